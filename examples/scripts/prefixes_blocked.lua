-- Networks that nothing is taken from, and how many packets each has sent in vain. The longest prefix counts: an exception is
-- written as a prefix of its own, with the number 0.

local blocked = nf.prefixes { name = "blocked", limit = 1024 }
blocked:add("2001:db8:bad::/48", 1)
blocked:add("2001:db8:bad:900d::/64", 0)
blocked:add("198.51.100.0/24", 2)

local refused = nf.table { name = "blocked packets", key = "int", value = "int", limit = 64 }

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip6, ip4 = eth:data(packet_ip6), eth:data(packet_ip)
  local ip = ip6 or ip4
  if not ip then return XT_CONTINUE end
  local list = blocked:find(ip:saddr():get())
  if not list or list == 0 then return XT_CONTINUE end
  refused:add(list, 1)
  return NF_DROP
end

local test = require "test"

function test_what_is_in_a_prefix_is_dropped_but_for_its_exception()
  test.verdict(NF_DROP, test.udp("2001:db8:bad:1::1", 1, "2001:db8::1", 2))
  test.verdict(XT_CONTINUE, test.udp("2001:db8:bad:900d::1", 1, "2001:db8::1", 2))
  test.verdict(XT_CONTINUE, test.udp("2001:db8:bae::1", 1, "2001:db8::1", 2))
  test.verdict(NF_DROP, test.udp("198.51.100.7", 1, "192.0.2.1", 2))
end

function test_it_counts_by_list()
  for _ = 1, 3 do test.run(test.udp("198.51.100.7", 1, "192.0.2.1", 2)) end
  test.equal(refused:get(2), 3)
  test.equal(refused:get(1), nil)
end
