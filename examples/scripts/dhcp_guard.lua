-- At ingress of a port with hosts: who answers for DHCP there is not the server.

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip = eth:data(packet_ip6) or eth:data(packet_ip)
  local udp = ip and ip:data(packet_udp)
  if not udp then return XT_CONTINUE end
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
