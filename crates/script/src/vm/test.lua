-- The module `test`: packets for tests of scripts, and what they are compared with.

local native, entry = ...
local test = {}

-- What an error of this module is told of: the line of the test, two levels up.
local function fail(message)
  error(message, 3)
end

local function hex(octets)
  return (octets:gsub(".", function(octet) return ("%02x "):format(octet:byte()) end)):sub(1, -2)
end

-- Octets from a string of hexadecimal digits, with any spaces between them.
function test.hex(text)
  local digits = text:gsub("%s+", "")
  if #digits % 2 == 1 or digits:find("%X") then fail("hex: pairs of hexadecimal digits are wanted") end
  return (digits:gsub("%x%x", function(pair) return string.char(tonumber(pair, 16)) end))
end

local function packet(octets, is_ip)
  return entry.view(native.packet(octets, is_ip))
end

-- A packet of octets that begin with an Ethernet header.
function test.frame(octets) return packet(octets, false) end

-- A packet of octets that begin with an IP header, as where there are no frames.
function test.ip(octets) return packet(octets, true) end

-- The octets of an IPv4 or IPv6 packet around a transport header and payload, with lengths and checksums.
function test.ip_octets(from, to, protocol, payload)
  local is_ip6 = from:find(":", 1, true) ~= nil
  local header = bytes.new(is_ip6 and 40 or 20)
  local view
  if is_ip6 then
    header[0] = 0x60
    view = bytes.to_packet(header, packet_ip6)
    view:payload_len():set(#payload)
    view:nexthdr():set(protocol)
    view:hop_limit():set(64)
  else
    header[0] = 0x45
    view = bytes.to_packet(header, packet_ip)
    view:tot_len():set(20 + #payload)
    view:protocol():set(protocol)
    view:ttl():set(64)
  end
  view:saddr():set(from)
  view:daddr():set(to)
  return native.complete(tostring(header) .. payload, true)
end

-- A packet of UDP.
function test.udp(from, sport, to, dport, payload)
  payload = payload or ""
  return test.ip(test.ip_octets(from, to, 17, string.pack(">I2I2I2I2", sport, dport, 8 + #payload, 0) .. payload))
end

-- A packet of TCP; `flags` is a string such as "syn ack", `seq` the sequence number, 0 if it is not told.
function test.tcp(from, sport, to, dport, flags, payload, seq)
  local header = bytes.new(20)
  header[12] = 0x50
  local tcp = bytes.to_packet(header, packet_tcp)
  tcp:sport():set(sport)
  tcp:dport():set(dport)
  tcp:seq():set((seq or 0) & 0xffffffff)
  tcp:window():set(65535)
  for flag in (flags or ""):gmatch("%a+") do tcp[flag](tcp):set(true) end
  return test.ip(test.ip_octets(from, to, 6, tostring(header) .. (payload or "")))
end

-- The packets of a capture (pcap) beside the script.
function test.pcap(name)
  local list = {}
  for at, captured in ipairs(native.pcap(name)) do list[at] = packet(captured.octets, captured.is_ip) end
  return list
end

local noted, redirected

-- A packet of a test has its octets for itself, so it is as a byte array to the script.
function entry.methods.redirect(_, name)
  if type(name) ~= "string" then fail("redirect: the name of an interface is wanted, not a " .. type(name)) end
  noted = name
  return NF_STOLEN
end

-- The verdict of a function of the script, process_packet if none is named. It may use what a packet may, and no more. Of a
-- frame that no hook gives to scripts it is nil, and why.
function test.run(view, name)
  name = name or "process_packet"
  local callback = type(name) == "function" and name or _G[name]
  if type(callback) ~= "function" then fail("run: there is no function " .. tostring(name)) end
  noted, redirected = nil, nil
  local unseen = native.unseen(entry.octets(view))
  if unseen then return nil, unseen end
  if type(name) == "string" then native.given(name, entry.octets(view)) end
  native.begin_packet()
  local verdict = callback(view)
  native.end_packet()
  redirected = verdict == NF_STOLEN and noted or nil
  return verdict
end

local verdicts = {}
for _, name in ipairs { "NF_DROP", "NF_ACCEPT", "NF_STOLEN", "NF_QUEUE", "NF_REPEAT", "XT_CONTINUE" } do
  verdicts[_G[name]] = name
end

-- Runs a packet, and compares the verdict.
function test.verdict(wanted, view, name)
  local verdict, unseen = test.run(view, name)
  if unseen then fail("the frame has no verdict: " .. unseen) end
  if verdict ~= wanted then
    fail(("verdict %s, not %s"):format(verdicts[verdict] or tostring(verdict), verdicts[wanted] or tostring(wanted)))
  end
end

-- Compares two values; of views and byte arrays, the octets.
function test.equal(got, wanted, what)
  local function plain(value)
    return (type(value) == "table" or type(value) == "userdata") and entry.octets(value) or value
  end
  got, wanted = plain(got), plain(wanted)
  if got == wanted then return end
  local function show(value)
    if type(value) ~= "string" then return tostring(value) end
    return value:find("[^\x20-\x7e]") and hex(value) or ("%q"):format(value)
  end
  fail((what and what .. ": " or "") .. "got " .. show(got) .. ", wanted " .. show(wanted))
end

-- Whether all checksums of a packet are right; fails if not.
function test.checksums(view)
  if not native.checksums_are_right(entry.octets(view)) then fail("a checksum is wrong") end
end

-- Fails unless `callback` does, with an error that contains `text`.
function test.fails(callback, text)
  local ok, message = pcall(callback)
  native.end_packet()
  if ok then fail("there was no error") end
  if text and not tostring(message):find(text, 1, true) then fail("another error: " .. tostring(message)) end
end

-- What the script has sent since the last time, as octets that begin with an IP header.
function test.sent() return native.sent() end

-- The interface that the last packet was redirected to, nil if it was not.
function test.redirected() return redirected end

-- What it has captured since the last time: a list of { name = …, octets = … }, from the IP header on.
function test.captured() return native.captured() end

-- The copies that it has sent since the last time: a list of { interface = …, frame = … }.
function test.mirrored() return native.mirrored() end

-- What it has logged since the last time.
function test.log() return native.log() end

return test
