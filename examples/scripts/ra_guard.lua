-- Router advertisements and redirects come from routers (RFC 6105): at ingress of a port with hosts they are dropped, also
-- behind extension headers and in fragments (RFC 7113).

function process_packet(p)
  local ip = p:data(packet_eth):data(packet_ip6)
  if not ip then return XT_CONTINUE end
  local icmp = ip:data(packet_icmp6)
  if icmp then
    local kind = icmp:type():get()
    if kind == 134 or kind == 137 then return NF_DROP end
    return XT_CONTINUE
  end
  -- Neighbor discovery is never fragmented (RFC 6980). A first fragment that hides what is in it is none of it.
  local fragment = ip:data(packet_ip6_fragment)
  if fragment and fragment:frag_off():get() == 0 and fragment:nexthdr():get() == 58 and #fragment:data() < 8 then
    return NF_DROP
  end
  return XT_CONTINUE
end

local test = require "test"

local function icmp(kind, before)
  local octets = (before or "") .. string.char(kind) .. ("\0"):rep(15)
  return test.ip(test.ip_octets("fe80::bad", "ff02::1", before and 60 or 58, octets))
end

function test_advertisements_and_redirects_are_dropped()
  test.verdict(NF_DROP, icmp(134))
  test.verdict(NF_DROP, icmp(137))
end

function test_an_extension_header_hides_nothing()
  test.verdict(NF_DROP, icmp(134, test.hex "3a00 0104 00000000"))
end

function test_what_is_behind_more_headers_than_are_followed_is_an_error_which_drops()
  local eight = test.hex("3c00 0104 00000000"):rep(8)
  assert(not pcall(test.run, icmp(134, eight .. test.hex "3a00 0104 00000000")))
end

function test_what_hosts_send_passes()
  for _, kind in ipairs { 128, 133, 135, 136, 143 } do test.verdict(XT_CONTINUE, icmp(kind)) end
end

function test_a_fragment_that_is_too_short_to_tell_is_dropped()
  local fragment = test.hex "3a000001 00000001 8600"
  test.verdict(NF_DROP, test.ip(test.ip_octets("fe80::bad", "ff02::1", 44, fragment)))
end
