-- Octets and packets of each source, in tables that can be looked at from outside.

local octets = nf.table { name = "talkers octets", key = "ipv6", limit = 4096, expires = 3600000, when_full = "oldest" }
local packets = nf.table { name = "talkers packets", key = "ipv6", limit = 4096, expires = 3600000, when_full = "oldest" }

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip6, ip4 = eth:data(packet_ip6), eth:data(packet_ip)
  if not ip6 and not ip4 then return XT_CONTINUE end
  local from = ip6 and ip6:saddr():get() or "::ffff:" .. ip4:saddr():get()
  octets:add(from, #(ip6 or ip4))
  packets:add(from, 1)
  return XT_CONTINUE
end

local test = require "test"

function test_it_counts_each_source()
  for _ = 1, 3 do test.run(test.udp("2001:db8::a", 1, "2001:db8::1", 2, "1234")) end
  test.run(test.udp("192.0.2.1", 1, "192.0.2.2", 2, "1234"))
  test.equal(octets:get "2001:db8::a", 3 * 52)
  test.equal(packets:get "2001:db8::a", 3)
  test.equal(octets:get "::ffff:192.0.2.1", 32)
end
