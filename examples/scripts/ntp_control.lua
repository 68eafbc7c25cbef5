-- NTP tells time (modes 3 and 4), and nothing else from outside: modes 6 and 7 answer at length to whoever is named as source.

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip = eth:data(packet_ip6) or eth:data(packet_ip)
  local udp = ip and ip:data(packet_udp)
  if not udp or udp:dport():get() ~= 123 then return XT_CONTINUE end
  local octets = udp:data():get()
  if #octets < 48 then return NF_DROP end
  local mode = octets[0] & 7
  return (mode == 3 or mode == 4) and XT_CONTINUE or NF_DROP
end

local test = require "test"

local function ntp(first, length)
  return test.udp("2001:db8::a", 5000, "2001:db8::1", 123, string.char(first) .. ("\0"):rep((length or 48) - 1))
end

function test_time_passes()
  test.verdict(XT_CONTINUE, ntp(0x23))
  test.verdict(XT_CONTINUE, ntp(0x24))
end

function test_control_and_private_messages_do_not()
  test.verdict(NF_DROP, ntp(0x16))
  test.verdict(NF_DROP, ntp(0x17))
  test.verdict(NF_DROP, ntp(0x23, 8))
end
