-- Services that nobody is to reach from outside, by their ports.

local TCP = { [23] = true, [135] = true, [139] = true, [445] = true, [3389] = true }
local UDP = { [137] = true, [161] = true, [1900] = true, [5353] = true }

-- The first fragment of what may be TCP or UDP, without all of its header: who makes one hides it from whoever does not put fragments
-- together. In IPv6, extension headers can take its place.
local function is_cut(eth)
  local ip4 = eth:data(packet_ip)
  if ip4 then return ip4:protocol():get() == 6 and ip4:mf():get() and ip4:frag_off():get() == 0 end
  local ip6 = eth:data(packet_ip6)
  local fragment = ip6 and ip6:data(packet_ip6_fragment)
  if not fragment or fragment:frag_off():get() > 0 then return false end
  local kind = fragment:nexthdr():get()
  return kind == 6 or kind == 17 or kind == 0 or kind == 43 or kind == 44 or kind == 51 or kind == 60
end

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip = eth:data(packet_ip6) or eth:data(packet_ip)
  local tcp, udp = ip and ip:data(packet_tcp), ip and ip:data(packet_udp)
  if tcp and TCP[tcp:dport():get()] then return NF_DROP end
  if udp and UDP[udp:dport():get()] then return NF_DROP end
  if not tcp and not udp and is_cut(eth) then return NF_DROP end
  return XT_CONTINUE
end

local test = require "test"

function test_closed_ports_are_closed_for_both_versions()
  test.verdict(NF_DROP, test.tcp("2001:db8::a", 1000, "2001:db8::1", 445, "syn"))
  test.verdict(NF_DROP, test.tcp("192.0.2.9", 1000, "192.0.2.1", 23, "syn"))
  test.verdict(NF_DROP, test.udp("2001:db8::a", 1000, "2001:db8::1", 161, "get"))
end

function test_the_same_number_of_the_other_protocol_is_open()
  test.verdict(XT_CONTINUE, test.udp("2001:db8::a", 1000, "2001:db8::1", 445, "x"))
  test.verdict(XT_CONTINUE, test.tcp("2001:db8::a", 1000, "2001:db8::1", 443, "syn"))
end

function test_a_first_fragment_without_the_whole_header_is_dropped()
  local ports = string.pack(">I2I2I4", 1000, 445, 0)
  local packet = test.ip(test.ip_octets("192.0.2.9", "192.0.2.1", 6, ports))
  packet:data(packet_eth):data(packet_ip):mf():set(true)
  test.verdict(NF_DROP, packet)
  local function fragment(header) return test.ip(test.ip_octets("2001:db8::a", "2001:db8::1", 44, test.hex(header) .. ports)) end
  test.verdict(NF_DROP, fragment "0600 0001 00000007")
  test.verdict(NF_DROP, fragment "3c00 0001 00000007 0600 0104 00000000")
  test.verdict(XT_CONTINUE, fragment "0600 0009 00000007") -- a later one
  test.verdict(XT_CONTINUE, fragment "1100 0001 00000007")
end
