-- At ingress of a port with hosts: who answers for DHCP there is not the server.

-- A first fragment of IPv6 in which extension headers take the place of UDP's header (RFC 7610).
local function is_cut(ip)
  local fragment = ip:data(packet_ip6_fragment)
  if not fragment or fragment:frag_off():get() > 0 then return false end
  local kind = fragment:nexthdr():get()
  return kind == 17 or kind == 0 or kind == 43 or kind == 44 or kind == 51 or kind == 60
end

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip6 = eth:data(packet_ip6)
  local ip = ip6 or eth:data(packet_ip)
  local udp = ip and ip:data(packet_udp)
  if not udp then return ip6 and is_cut(ip6) and NF_DROP or XT_CONTINUE end
  local from, to = udp:sport():get(), udp:dport():get()
  -- Servers and relays speak from 67 to 68, and from 547 to 546 or 547.
  if from == 67 or from == 547 or to == 546 or to == 68 then return NF_DROP end
  return XT_CONTINUE
end

local test = require "test"

function test_answers_are_dropped()
  test.verdict(NF_DROP, test.udp("192.0.2.66", 67, "255.255.255.255", 68, "offer"))
  test.verdict(NF_DROP, test.udp("fe80::bad", 547, "fe80::1", 546, "advertise"))
  test.verdict(NF_DROP, test.udp("fe80::bad", 5000, "fe80::1", 546, "advertise"))
end

function test_questions_pass()
  test.verdict(XT_CONTINUE, test.udp("0.0.0.0", 68, "255.255.255.255", 67, "discover"))
  test.verdict(XT_CONTINUE, test.udp("fe80::1", 546, "ff02::1:2", 547, "solicit"))
end

function test_a_first_fragment_without_the_header_is_dropped()
  local function fragment(octets) return test.ip(test.ip_octets("fe80::bad", "fe80::1", 44, test.hex(octets))) end
  test.verdict(NF_DROP, fragment "3c000001 00000001 1101 010c 00000000")
  test.verdict(XT_CONTINUE, fragment "11000001 00000001 0222 0223 0100 0000")
  test.verdict(XT_CONTINUE, fragment "3a000001 00000001 8000 0000 00000001")
end
