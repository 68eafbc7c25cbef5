-- The objects that scripts see. A view of the packet, a field of one and a protocol are light userdata: numbers, which
-- cost nothing to make; what they stand for is known and checked in Rust, and so are their methods. A view of a byte
-- array is a table of such a number and the array's octets; so is a byte array, which may be of the packet too.

local native = ...
-- Each operation twice: on a view of the packet, and on a view with the octets of a byte array, or nil, behind it.
local of_packet, of_any = native.of_packet, native.of_any
-- Scripts may give these names another meaning: the thesis's listing 3.1 has a global variable `type`.
local getmetatable, type, error, tostring, rawget = getmetatable, type, error, tostring, rawget
local setmetatable, ipairs, concat, globals = native.setmetatable, ipairs, table.concat, _G

-- Byte arrays ---------------------------------------------------------------------------------------------------------

local ByteArray, PacketArray = {}, {}

local function byte_array(view, octets)
  if octets then return setmetatable({ view = view, octets = octets }, ByteArray) end
  return setmetatable({ view = view }, PacketArray)
end

-- Where it is. Its entries are read raw: an index that is not there is an octet.
local function place(array)
  return rawget(array, "view"), rawget(array, "octets")
end

local function is_byte_array(value)
  local metatable = type(value) == "table" and getmetatable(value)
  return metatable == ByteArray or metatable == PacketArray
end

-- The octets of a byte array, a view, or a string.
local function octets(value)
  if type(value) == "string" then return value end
  if type(value) == "userdata" then return of_packet.octets(value) end
  if is_byte_array(value) then return of_any.octets(place(value)) end
  if type(value) == "table" and type(rawget(value, 2)) == "userdata" then return of_any.octets(value[1], value[2]) end
  error("a byte array, a view or a string is wanted, not a " .. type(value), 3)
end

local byte, set_byte, packet_byte, set_packet_byte = of_any.byte, of_any.set_byte, of_packet.byte, of_packet.set_byte

function ByteArray.__index(array, index) return byte(array.view, array.octets, index) end

function ByteArray.__newindex(array, index, value) set_byte(array.view, array.octets, index, value) end

function PacketArray.__index(array, index) return packet_byte(array.view, index) end

function PacketArray.__newindex(array, index, value) set_packet_byte(array.view, index, value) end

for _, class in ipairs { ByteArray, PacketArray } do
  function class.__len(array)
    local view, store = place(array)
    return of_any.length(view, store)
  end

  function class.__tostring(array)
    return of_any.octets(place(array))
  end

  function class.__eq(one, other)
    return is_byte_array(one) and is_byte_array(other) and octets(one) == octets(other)
  end

  -- Two byte arrays make a byte array, one and a string or number make a string.
  function class.__concat(one, other)
    if is_byte_array(one) and is_byte_array(other) then return byte_array(native.new(octets(one) .. octets(other))) end
    return tostring(one) .. tostring(other)
  end
end

bytes = {}

function bytes.new(length)
  return byte_array(native.new(length))
end

function bytes.copy(value)
  return byte_array(native.new(octets(value)))
end

function bytes.new_from_string(text)
  return bytes.copy(text .. "\0")
end

function bytes.many_to_one(list)
  local parts = {}
  for at, part in ipairs(list) do parts[at] = octets(part) end
  return bytes.copy(concat(parts))
end

-- Views ---------------------------------------------------------------------------------------------------------------

local packet_methods, array_methods = {}, {}

native.share {
  __index = packet_methods, __len = of_packet.length, __tostring = of_packet.describe, __metatable = "view",
  __newindex = function(view) error(tostring(view) .. ": nothing can be written to it; fields have set()", 2) end,
}

for _, name in ipairs { "raw", "data", "get", "set", "grow", "shrink", "vlan_id", "push_vlan", "pop_vlan" } do
  packet_methods[name] = of_packet[name]
end

packet_methods.redirect = native.redirect

function packet_methods.flow(view, flows) return native.flow(view, nil, flows) end

function packet_methods.stream(view, streams) return native.stream(view, nil, streams) end

local ArrayView = {
  __index = array_methods,
  __len = function(view) return of_any.length(view[1], view[2]) end,
  __tostring = function(view) return of_any.describe(view[1], view[2]) end,
}

local function array_view(view, store)
  return setmetatable({ view, store }, ArrayView)
end

function array_methods.raw(view, offset, length)
  return array_view(of_any.raw(view[1], view[2], offset, length), view[2])
end

function array_methods.data(view, ...)
  local made = of_any.data(view[1], view[2], ...)
  return made and array_view(made, view[2])
end

function array_methods.get(view) return of_any.get(view[1], view[2]) end

function array_methods.set(view, value) of_any.set(view[1], view[2], value) end

function array_methods.grow(view, offset, count) of_any.grow(view[1], view[2], offset, count) end

function array_methods.shrink(view, offset, count) of_any.shrink(view[1], view[2], offset, count) end

function array_methods.vlan_id(view) return of_any.vlan_id(view[1], view[2]) end

function array_methods.push_vlan(view, id) of_any.push_vlan(view[1], view[2], id) end

function array_methods.pop_vlan(view) return of_any.pop_vlan(view[1], view[2]) end

function array_methods.flow(view, flows) return native.flow(view[1], view[2], flows) end

function array_methods.stream(view, streams) return native.stream(view[1], view[2], streams) end

-- Protocols -----------------------------------------------------------------------------------------------------------

-- What scripts do themselves, by protocol: functions of policies and changes; of getters and setters by position.
local policies, changes, getters, setters = {}, {}, {}, {}

local function dissect(view, store, wanted, policy)
  if policy and not policies[policy](byte_array(view, store), wanted) then return nil end
  local made = of_any.enter(view, store, wanted)
  local change = made and changes[wanted]
  if change then of_any.change(made, store, change(byte_array(made, store))) end
  return made
end

-- Functions may be given themselves, or by the name of a global one, as the thesis has it.
local function function_of(value, what)
  if type(value) == "function" then return value end
  if type(value) ~= "string" then return nil end
  local found = _G[value]
  if type(found) ~= "function" then
    error(what .. ": there is no function " .. tostring(value) .. "; define it above the registration", 3)
  end
  return found
end

-- Names that scripts rely on, or know from Lua elsewhere: a protocol that took one would be found out at a packet.
local taken = {
  print = true, io = true, os = true, debug = true, package = true, coroutine = true, dofile = true, loadfile = true,
}

function register_dynamic_protbuf(declaration)
  local wanted = type(declaration) == "table" and rawget(declaration, "name")
  local present = wanted and rawget(globals, wanted)
  if wanted and (taken[wanted] or present ~= nil and type(present) ~= "userdata") then
    error("protocol " .. tostring(wanted) .. ": the name has another meaning (those of protocols begin with packet_)", 2)
  end
  local protocol, name, functions = native.declare(declaration)
  policies[protocol] = function_of(declaration.has_protocol, name .. ": has_protocol")
  changes[protocol] = function_of(declaration.get_field_changes, name .. ": get_field_changes")
  getters[protocol], setters[protocol] = {}, {}
  for at, field in ipairs(declaration.protocol_fields) do
    local what = name .. ": getter or setter of " .. field[1]
    getters[protocol][at] = functions[at].getter and function_of(field[4], what) or nil
    setters[protocol][at] = functions[at].setter and function_of(field[5], what) or nil
    -- `data` is the method with this name.
    if not packet_methods[field[1]] then
      local of_view, of_array = native.field(field[1])
      packet_methods[field[1]] = of_view
      array_methods[field[1]] = function(view) return array_view(of_array(view[1], view[2]), view[2]) end
    end
  end
  _G[name] = protocol
  return protocol
end

register_dynamic_protbuf {
  name = "packet_raw", about = "Octets without fields: what every script is given, and what every payload is.",
  protocol_fields = {}, has_protocol = true,
}

-- Both directions share the octets: nothing is copied.
function bytes.to_bytes(view)
  local number, store = view, nil
  if type(view) == "table" then number, store = view[1], view[2] end
  return byte_array(of_any.part(number, store), store)
end

function bytes.to_packet(array, protocol)
  local whole, store = place(array)
  local made = of_any.cast(whole, store, protocol)
  if not made then return nil end
  if changes[protocol] then of_any.change(made, store, changes[protocol](array)) end
  return store and array_view(made, store) or made
end

-- What the host calls -------------------------------------------------------------------------------------------------

local entry = {
  byte_array = byte_array, octets = octets, dissect = dissect, view = array_view, methods = array_methods,
  to_packet = bytes.to_packet,
}

function entry.getter(protocol, position, view, store)
  return getters[protocol][position](byte_array(view, store))
end

function entry.setter(protocol, position, view, store, value)
  return setters[protocol][position](byte_array(view, store), value)
end

-- Deferred work: the packet that was handed on, and the one that it was scheduled for.
function entry.deferred(callback, id, octets_handed, protocol_name, octets_of_origin)
  local handed, origin
  if octets_handed then
    handed = bytes.to_packet(bytes.copy(octets_handed), _G[protocol_name])
  end
  if octets_of_origin then
    origin = bytes.to_packet(bytes.copy(octets_of_origin), packet_raw)
  end
  return callback(id, handed, origin)
end

return entry
