-- Which names connections with TLS are for. A ClientHello that is split over segments is told without a name.

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip = eth:data(packet_ip6) or eth:data(packet_ip)
  local tcp = ip and ip:data(packet_tcp)
  if not tcp or tcp:dport():get() ~= 443 then return XT_CONTINUE end
  local octets = tcp:data():get()
  -- A record of the handshake that is a ClientHello.
  if #octets < 6 or octets[0] ~= 22 or octets[5] ~= 1 then return XT_CONTINUE end
  local record = tcp:data(packet_tls)
  local name = record and record:server_name():get() or ""
  nf.log(ip:saddr():get(), "to", name == "" and "no name" or name)
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

local function segment(octets) return test.tcp("2001:db8::a", 5000, "2001:db8::1", 443, "ack psh", octets) end

function test_the_name_is_told()
  test.verdict(XT_CONTINUE, segment(hello "www.example"))
  test.equal(table.concat(test.log(), "; "), "2001:db8::a to www.example")
end

function test_what_comes_later_is_not()
  test.run(segment("\x17\3\3\0\5hello"))
  test.run(segment ".")
  test.equal(#test.log(), 0)
end
