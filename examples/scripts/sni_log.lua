-- Which names connections with TLS are for, however their first message is split over segments and records.

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip = eth:data(packet_ip6) or eth:data(packet_ip)
  local tcp = ip and ip:data(packet_tcp)
  if not tcp or tcp:dport():get() ~= 443 then return XT_CONTINUE end
  local stream = p:stream()
  -- The kernel knows which streams are done with.
  if stream:decided() then return XT_CONTINUE end
  local name, fault = tls.server_name(stream), stream:fault()
  if name then nf.log(ip:saddr():get(), "to", name == "" and "no name" or name) end
  -- Of one whose beginning was not seen, or that is too long, no more will be known.
  if name ~= nil or fault == "unknown" or fault == "full" then stream:accept() end
  return XT_CONTINUE
end

local test = require "test"

local function hello(name)
  local server_name = string.pack(">I2I1I2", #name + 3, 0, #name) .. name
  local extension = string.pack(">I2I2", 0, #server_name) .. server_name
  local body = "\3\3" .. ("r"):rep(32) .. "\0" .. "\0\2\x13\1" .. "\1\0" .. string.pack(">I2", #extension) .. extension
  local handshake = "\1\0" .. string.pack(">I2", #body) .. body
  return "\x16\3\1" .. string.pack(">I2", #handshake) .. handshake
end

local function segment(flags, octets, seq)
  test.verdict(XT_CONTINUE, test.tcp("2001:db8::a", 5000, "2001:db8::1", 443, flags, octets, seq))
end

function test_the_name_is_told_once()
  local octets = hello "www.example"
  segment("syn")
  segment("ack psh", octets:sub(1, 9), 1)
  segment("ack psh", octets:sub(10), 10)
  segment("ack psh", octets:sub(10), 10)
  segment("ack psh", hello "another.example", 1 + #octets)
  test.equal(table.concat(test.log(), "; "), "2001:db8::a to www.example")
end

function test_what_comes_later_is_not()
  segment("ack psh", "\x17\3\3\0\5hello", 1)
  segment("ack psh", hello "www.example", 11)
  test.equal(#test.log(), 0)
end
