-- Packets and octets of each source, as one record, in a table that can be looked at from outside.

local talkers = nf.table {
  name = "talkers", key = "ipv6", value = { "int", "int" }, limit = 4096, expires = 3600000, when_full = "oldest",
}

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip6, ip4 = eth:data(packet_ip6), eth:data(packet_ip)
  if not ip6 and not ip4 then return XT_CONTINUE end
  local from = ip6 and ip6:saddr():get() or "::ffff:" .. ip4:saddr():get()
  talkers:add(from, 1, #(ip6 or ip4))
  return XT_CONTINUE
end

local test = require "test"

function test_it_counts_each_source()
  for _ = 1, 3 do test.run(test.udp("2001:db8::a", 1, "2001:db8::1", 2, "1234")) end
  test.run(test.udp("192.0.2.1", 1, "192.0.2.2", 2, "1234"))
  local packets, octets = talkers:get "2001:db8::a"
  test.equal(packets, 3)
  test.equal(octets, 3 * 52)
  test.equal(select(2, talkers:get "::ffff:192.0.2.1"), 32)
end
