-- What of ICMPv6 may be forwarded (RFC 4890): errors and echo; nothing that belongs to one link.

local FORWARDED = { [1] = true, [2] = true, [3] = true, [4] = true, [128] = true, [129] = true }

-- The first fragment of what may be ICMPv6, without all of its header: who makes one hides it from whoever does not put fragments
-- together. Extension headers can take its place.
local function is_cut(ip)
  local fragment = ip:data(packet_ip6_fragment)
  if not fragment or fragment:frag_off():get() > 0 then return false end
  local kind = fragment:nexthdr():get()
  return kind == 58 or kind == 0 or kind == 43 or kind == 44 or kind == 51 or kind == 60
end

function process_packet(p)
  local ip = p:data(packet_eth):data(packet_ip6)
  local icmp = ip and ip:data(packet_icmp6)
  if not icmp then return ip and is_cut(ip) and NF_DROP or XT_CONTINUE end
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

function test_a_first_fragment_without_the_header_is_dropped()
  local function fragment(octets) return test.ip(test.ip_octets("2001:db8::a", "2001:db8::1", 44, test.hex(octets))) end
  test.verdict(NF_DROP, fragment "3a000001 00000001")
  test.verdict(NF_DROP, fragment "3c000001 00000001 3a01 010c 00000000")
  test.verdict(XT_CONTINUE, fragment "3a000001 00000001 8000 0000 00000001")
  test.verdict(XT_CONTINUE, fragment "3a000009 00000001 00000000") -- a later one
end
