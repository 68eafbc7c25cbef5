-- Looks into every protocol within every other; what a field is set to, it gives. Before this text stands `PROTOCOLS`, a
-- list of protocols with the names and kinds of their fields, and `DEPTH`: how many protocols within one another.

-- Another value for a field.
local function other(value, kind)
  if kind == "int" then return value ~ 1 end
  if kind == "bool" then return not value end
  if kind == "mac" then return "02:00:00:00:00:2A" end
  if kind == "ipv4" then return "198.51.100.7" end
  if kind == "ipv6" then return "2001:db8::7" end
  return value:reverse()
end

local function plain(value, kind) return kind == "raw" and tostring(value) or value end

local function check(field, kind)
  local length = #field
  local value = plain(field:get(), kind)
  local wanted = other(value, kind)
  field:set(wanted)
  local got = plain(field:get(), kind)
  if got ~= wanted then
    error(("%s: set to %s, it gives %s"):format(tostring(field), tostring(wanted), tostring(got)))
  end
  field:set(value)
end

local function look(view, depth)
  for _, protocol in ipairs(PROTOCOLS) do
    local within = view:data(protocol.protocol)
    if within then
      for _, field in ipairs(protocol.fields) do
        local name, kind = field[1], field[2]
        local place = within[name](within)
        -- A field that is not there, or begins within an octet.
        if pcall(place.get, place) then check(place, kind) end
      end
      if depth < DEPTH and protocol.protocol ~= packet_raw then look(within, depth + 1) end
    end
  end
end

function process_packet(p)
  look(p:data(packet_raw), DEPTH)
  local eth = p:data(packet_eth)
  if eth then look(eth, 1) end
  p:flow()
  pcall(p.grow, p, #p, 2)
  pcall(p.shrink, p, 54, 2)
  pcall(function() p:get()[15] = 255 end)
  return NF_ACCEPT
end
