-- What `sidestep script repl` adds: packets of a capture, and values as they are shown.

local entry, test, packets = ...
local number = 0

-- The packet of this number, from 1 on, as it was captured: it is `p` from now on.
function packet(at)
  local captured = packets[at]
  if not captured then error(("there is no packet %s: there are %d"):format(tostring(at), #packets), 0) end
  number = at
  p = captured.is_ip and test.ip(captured.octets) or test.frame(captured.octets)
  return p
end

-- The next one.
function next_packet() return packet(number + 1) end

local verdicts = {}
for _, name in ipairs { "NF_DROP", "NF_ACCEPT", "NF_STOLEN", "NF_QUEUE", "NF_REPEAT", "XT_CONTINUE" } do
  verdicts[_G[name]] = name
end

-- What a function of the script makes of `p`, by the name of its verdict.
function run(name)
  if not p then error("there is no packet: name a capture with --pcap", 0) end
  local verdict, unseen = test.run(p, name)
  return unseen or verdicts[verdict] or verdict
end

local function hex(octets)
  local text = octets:sub(1, 64):gsub(".", function(octet) return ("%02x"):format(octet:byte()) end)
  return #octets > 64 and ("%s… (%d octets)"):format(text, #octets) or text
end

local function show(value, depth)
  local kind = type(value)
  if kind == "string" then
    if not value:find("[^\x20-\x7e]") then return ("%q"):format(value) end
    local text = value:gsub("[%c\x80-\xff\\\"]", function(octet) return ("\\x%02x"):format(octet:byte()) end)
    return '"' .. text .. '"'
  end
  if kind == "number" or kind == "boolean" or kind == "nil" then return tostring(value) end
  local is_view, octets = pcall(entry.octets, value)
  if is_view and kind == "table" and type(rawget(value, 2)) == "userdata" then
    return ("%s: %s"):format(tostring(value), hex(octets))
  end
  if is_view then return hex(octets) end
  if kind == "userdata" then return (tostring(value):gsub(": 0x%x+$", "")) end
  if kind ~= "table" or depth > 2 then return kind end
  local parts = {}
  for key, entry in pairs(value) do
    parts[#parts + 1] = ("[%s] = %s"):format(show(key, depth + 1), show(entry, depth + 1))
  end
  table.sort(parts)
  return "{ " .. table.concat(parts, ", ") .. " }"
end

if packets[1] then packet(1) end
return function(...)
  local shown = {}
  for at = 1, select("#", ...) do shown[at] = show((select(at, ...)), 1) end
  return table.concat(shown, "  ")
end
