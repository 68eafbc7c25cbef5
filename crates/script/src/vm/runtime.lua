-- The objects that scripts see: views of packets, their fields, byte arrays. Each holds a number that stands for a
-- place, and the byte array that it is a place of (none for the packet); what a number means is known and checked in
-- Rust. A view is a table of two entries because making one must be cheap: it happens several times for each packet.

local native = ...
local native_data, native_get, native_set = native.data, native.get, native.set
-- Scripts may give these names another meaning: the thesis's listing 3.1 has a global variable `type`.
local getmetatable, select, type, error, tostring, rawget = getmetatable, select, type, error, tostring, rawget
local setmetatable = native.setmetatable
local ipairs, pairs, concat, kind_of_number = ipairs, pairs, table.concat, math.type

-- Byte arrays ---------------------------------------------------------------------------------------------------------

local ByteArray = {}

local function byte_array(handle, store)
  return setmetatable({ handle = handle, store = store }, ByteArray)
end

-- Where it is. Its entries are read raw: an index that is not there is an octet.
local function place(array)
  return rawget(array, "handle"), rawget(array, "store")
end

local function is_byte_array(value)
  return type(value) == "table" and getmetatable(value) == ByteArray
end

-- The octets of a byte array, a view, or a string.
local function octets(value)
  if type(value) == "string" then return value end
  if is_byte_array(value) then return native.octets(place(value)) end
  if type(value) == "table" and type(rawget(value, 1)) == "number" then return native.octets(value[1], value[2]) end
  error("a byte array, a view or a string is wanted, not a " .. type(value), 3)
end

function ByteArray.__index(array, index)
  return native.byte(rawget(array, "handle"), rawget(array, "store"), index)
end

function ByteArray.__newindex(array, index, value)
  native.set_byte(rawget(array, "handle"), rawget(array, "store"), index, value)
end

function ByteArray.__len(array)
  return native.length(place(array))
end

function ByteArray.__tostring(array)
  return native.octets(place(array))
end

function ByteArray.__eq(one, other)
  return is_byte_array(one) and is_byte_array(other) and octets(one) == octets(other)
end

-- Two byte arrays make a byte array, one and a string or number make a string.
function ByteArray.__concat(one, other)
  if is_byte_array(one) and is_byte_array(other) then
    local store, handle = native.new(octets(one) .. octets(other))
    return byte_array(handle, store)
  end
  return tostring(one) .. tostring(other)
end

bytes = {}

function bytes.new(length)
  local store, handle = native.new(length)
  return byte_array(handle, store)
end

function bytes.copy(value)
  local store, handle = native.new(octets(value))
  return byte_array(handle, store)
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

local classes = {} -- of each protocol: the metatable of its views
local raw_class

local function view_raw(view, offset, length)
  return setmetatable({ native.raw(view[1], view[2], offset, length), view[2] }, raw_class)
end

local function view_get(view)
  native.length(view[1], view[2]) -- is it there?
  return byte_array(view[1], view[2])
end

local function view_set(view, value)
  if native_set(view[1], view[2], value) then native_set(view[1], view[2], octets(value)) end
end

local function view_data(view, ...)
  local class = classes[...]
  if class then
    local handle = native_data(view[1], view[2], class.id)
    if handle then
      local made = setmetatable({ handle, view[2] }, class)
      if class.changes then
        native.change(handle, view[2], class.changes(byte_array(handle, view[2])))
      end
      return made
    end
    return nil
  end
  if select("#", ...) == 0 then
    local payload = getmetatable(view).payload
    if payload then return payload(view) end
    error("data() without a protocol is the payload field; this view has none", 2)
  end
  error("data: " .. tostring((...)) .. " is not a protocol: is its name written correctly, and registered?", 2)
end

local function view_resize(name, sign)
  return function(view, offset, count)
    if not native.is_whole_packet(view[1], view[2]) then
      error(name .. ": only the whole packet can " .. name, 2)
    end
    if kind_of_number(count) ~= "integer" or count < 0 then
      error(name .. ": the number of octets must be an integer of 0 or more", 2)
    end
    view[1] = native.resize(view[1], view[2], offset, sign * count)
  end
end

local function view_flow(view, flows)
  return native.flow(view[1], view[2], flows)
end

local function view_length(view)
  return native.length(view[1], view[2])
end

local methods = {
  raw = view_raw, data = view_data, get = view_get, set = view_set, flow = view_flow,
  grow = view_resize("grow", 1), shrink = view_resize("shrink", -1),
}

-- Fields --------------------------------------------------------------------------------------------------------------

local function field_class(name, getter, setter)
  local index = { raw = view_raw, data = view_data, get = getter, set = setter }
  return {
    __index = index, __len = view_length,
    __tostring = function() return "field " .. name end,
  }
end

local function value_get(field)
  return native_get(field[1], field[2])
end

local function getter_of(kind, custom)
  if custom then
    return function(field) return custom(byte_array(field[1], field[2])) end
  end
  return kind == "raw" and view_get or value_get
end

local function setter_of(custom)
  if custom then
    return function(field, value) return custom(byte_array(field[1], field[2]), value) end
  end
  return view_set
end

local shared_field_classes = {}

-- Functions may be given themselves, or by the name of a global one, as the thesis has it.
local function function_of(value, what)
  if type(value) == "function" or value == nil then return value end
  local found = _G[value]
  if type(found) ~= "function" then
    error(what .. ": there is no function " .. tostring(value) .. "; define it above the registration", 3)
  end
  return found
end

function register_dynamic_protbuf(declaration)
  local id, name, payload_index, custom = native.declare(declaration)
  local class = { id = id, __len = view_length }
  local index = {}
  for key, method in pairs(methods) do index[key] = method end
  class.__index = index
  class.__tostring = function() return "view " .. name end

  for at, field in ipairs(declaration.protocol_fields) do
    local access = custom[at]
    local getter = access.getter == "" and function_of(field[4], name .. ": getter of " .. field[1]) or nil
    local setter = access.setter == "" and function_of(field[5], name .. ": setter of " .. field[1]) or nil
    local fields
    if getter or setter then
      fields = field_class(field[1], getter_of(access.getter, getter), setter_of(setter))
    else
      local shared = access.getter == "raw" and "raw" or "value"
      fields = shared_field_classes[shared]
      if not fields then
        fields = field_class("of a packet", getter_of(shared), setter_of())
        shared_field_classes[shared] = fields
      end
    end
    local function method(view)
      return setmetatable({ view[1] | at, view[2] }, fields)
    end
    if at == payload_index then class.payload = method end
    if field[1] ~= "data" then index[field[1]] = method end
  end

  if type(declaration.has_protocol) == "function" or type(declaration.has_protocol) == "string" then
    local policy = function_of(declaration.has_protocol, name .. ": has_protocol")
    index.data = function(view, ...)
      local wanted = ...
      if classes[wanted] and not policy(byte_array(view[1], view[2]), wanted) then return nil end
      return view_data(view, ...)
    end
  end
  if type(declaration.get_field_changes) == "function" or type(declaration.get_field_changes) == "string" then
    class.changes = function_of(declaration.get_field_changes, name .. ": get_field_changes")
  end

  local protocol = setmetatable({}, {
    __tostring = function() return name end,
    __newindex = function() error(name .. " is a protocol: nothing can be written to it", 2) end,
  })
  classes[protocol] = class
  _G[name] = protocol
  return protocol
end

packet_raw = register_dynamic_protbuf {
  name = "packet_raw", about = "Octets without fields: what every script is given, and what every payload is.",
  protocol_fields = {}, has_protocol = true,
}
raw_class = classes[packet_raw]

local function class_of(protocol)
  local class = classes[protocol]
  if not class then error("a protocol is wanted, not " .. tostring(protocol), 3) end
  return class
end

-- Both directions share the octets: nothing is copied.
function bytes.to_bytes(view)
  octets(view)
  return byte_array(view[1], view[2])
end

function bytes.to_packet(array, protocol)
  local class = class_of(protocol)
  local whole, store = place(array)
  local handle = native.cast(whole, store, class.id)
  if not handle then return nil end
  local made = setmetatable({ handle, store }, class)
  if class.changes then native.change(handle, store, class.changes(array)) end
  return made
end

-- What the host calls -------------------------------------------------------------------------------------------------

local entry = {}

-- A packet has come: `callback` gets a view of it.
function entry.packet(callback, handle)
  return callback(setmetatable({ handle }, raw_class))
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

-- For the library
entry.octets = octets
entry.class_id = function(protocol) return class_of(protocol).id end
entry.view = function(handle, store) return setmetatable({ handle, store }, raw_class) end

return entry
