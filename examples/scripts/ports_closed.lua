-- Services that nobody is to reach from outside, by their ports.

local TCP = { [23] = true, [135] = true, [139] = true, [445] = true, [3389] = true }
local UDP = { [137] = true, [161] = true, [1900] = true, [5353] = true }

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip = eth:data(packet_ip6) or eth:data(packet_ip)
  local tcp, udp = ip and ip:data(packet_tcp), ip and ip:data(packet_udp)
  if tcp and TCP[tcp:dport():get()] then return NF_DROP end
  if udp and UDP[udp:dport():get()] then return NF_DROP end
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
