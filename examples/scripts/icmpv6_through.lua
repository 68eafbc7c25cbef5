-- What of ICMPv6 may be forwarded (RFC 4890): errors and echo; nothing that belongs to one link.

local FORWARDED = { [1] = true, [2] = true, [3] = true, [4] = true, [128] = true, [129] = true }

function process_packet(p)
  local ip = p:data(packet_eth):data(packet_ip6)
  local icmp = ip and ip:data(packet_icmp6)
  if not icmp then return XT_CONTINUE end
  return FORWARDED[icmp:type():get()] and XT_CONTINUE or NF_DROP
end

local test = require "test"

local function icmp(kind)
  return test.ip(test.ip_octets("2001:db8::a", "2001:db8::1", 58, string.char(kind) .. ("\0"):rep(15)))
end

function test_errors_and_echo_pass()
  for _, kind in ipairs { 1, 2, 3, 4, 128, 129 } do test.verdict(XT_CONTINUE, icmp(kind)) end
end

function test_what_is_of_a_link_or_unknown_does_not()
  for _, kind in ipairs { 0, 100, 130, 133, 134, 135, 136, 137, 143, 200 } do test.verdict(NF_DROP, icmp(kind)) end
end
