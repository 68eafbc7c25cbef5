-- Where packets do not fit: Packet Too Big of IPv6, and what IPv4 calls fragmentation needed, with the MTU that they tell. One
-- that claims less than IPv6's minimum is a lie, and is dropped (RFC 8201).

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip6, ip4 = eth:data(packet_ip6), eth:data(packet_ip)
  local icmp6, icmp = ip6 and ip6:data(packet_icmp6), ip4 and ip4:data(packet_icmp)
  if icmp6 and icmp6:type():get() == 2 then
    local problem = icmp6:data(packet_icmp_error)
    if not problem then return NF_DROP end
    local mtu = problem:parameter():get()
    nf.log(ip6:saddr():get(), "carries", mtu)
    return mtu < 1280 and NF_DROP or XT_CONTINUE
  end
  if icmp and icmp:type():get() == 3 and icmp:code():get() == 4 then
    local problem = icmp:data(packet_icmp_error)
    if problem then nf.log(ip4:saddr():get(), "carries", problem:parameter():get() & 0xffff) end
  end
  return XT_CONTINUE
end

local test = require "test"

local function too_big(mtu)
  local message = "\2\0\0\0" .. string.pack(">I4", mtu) .. ("\0"):rep(40)
  return test.ip(test.ip_octets("2001:db8::7", "2001:db8::a", 58, message))
end

function test_both_versions_are_told()
  test.verdict(XT_CONTINUE, too_big(1400))
  local message = "\3\4\0\0" .. string.pack(">I2I2", 0, 1300) .. ("\0"):rep(28)
  test.verdict(XT_CONTINUE, test.ip(test.ip_octets("192.0.2.7", "192.0.2.1", 1, message)))
  test.equal(table.concat(test.log(), "; "), "2001:db8::7 carries 1400; 192.0.2.7 carries 1300")
end

function test_a_lie_is_dropped()
  test.verdict(NF_DROP, too_big(68))
end
