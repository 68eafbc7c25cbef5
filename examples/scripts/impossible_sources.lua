-- Sources that no packet from outside can have (RFC 6890, RFC 8190): loopback, multicast, private and documentation addresses.
-- At ingress of the interface to the provider.

local impossible = nf.prefixes { name = "impossible sources", limit = 64 }
for _, prefix in ipairs {
  "::/128", "::1/128", "::ffff:0:0/96", "64:ff9b:1::/48", "100::/64", "2001:db8::/32", "fc00::/7", "ff00::/8",
  "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.2.0/24",
  "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
} do
  impossible:add(prefix, 1)
end

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip = eth:data(packet_ip6) or eth:data(packet_ip)
  if not ip then return XT_CONTINUE end
  -- Duplicate address detection has no source, and is answered on the link.
  local icmp = ip:data(packet_icmp6)
  if icmp and icmp:type():get() == 135 then return XT_CONTINUE end
  return impossible:find(ip:saddr():get()) and NF_DROP or XT_CONTINUE
end

local test = require "test"

function test_what_cannot_be_a_source_is_dropped()
  for _, from in ipairs { "::1", "fd00::1", "ff02::1", "2001:db8::1" } do
    test.verdict(NF_DROP, test.udp(from, 1, "2600::1", 2))
  end
  for _, from in ipairs { "10.1.1.1", "127.0.0.1", "224.0.0.1", "255.255.255.255" } do
    test.verdict(NF_DROP, test.udp(from, 1, "9.9.9.9", 2))
  end
end

function test_addresses_of_the_internet_and_of_the_link_pass()
  test.verdict(XT_CONTINUE, test.udp("2600::2", 1, "2600::1", 2))
  test.verdict(XT_CONTINUE, test.udp("fe80::1", 547, "fe80::2", 546))
  test.verdict(XT_CONTINUE, test.udp("9.9.9.9", 1, "8.8.8.8", 2))
end

function test_duplicate_address_detection_passes()
  local solicitation = test.hex "8700000000000000 fe800000000000000000000000000001"
  test.verdict(XT_CONTINUE, test.ip(test.ip_octets("::", "ff02::1:ff00:1", 58, solicitation)))
end
