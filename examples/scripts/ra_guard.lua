-- Router advertisements and redirects come from routers (RFC 6105): at ingress of a port with hosts they are dropped, also
-- behind extension headers and in fragments (RFC 7113).

-- A first fragment of ICMPv6, or of what extension headers hide.
local function is_cut(ip)
  local fragment = ip:data(packet_ip6_fragment)
  if not fragment or fragment:frag_off():get() > 0 then return false end
  local kind = fragment:nexthdr():get()
  return kind == 58 or kind == 0 or kind == 43 or kind == 44 or kind == 51 or kind == 60
end

function process_packet(p)
  local ip = p:data(packet_eth):data(packet_ip6)
  if not ip then return XT_CONTINUE end
  local icmp = ip:data(packet_icmp6)
  if icmp then
    local kind = icmp:type():get()
    if kind == 134 or kind == 137 then return NF_DROP end
    return XT_CONTINUE
  end
  if ip:data(packet_tcp) or ip:data(packet_udp) then return XT_CONTINUE end
  -- Nothing that a host sends needs a first fragment that ends before it says what it is of, and routers do not fragment
  -- neighbor discovery (RFC 6980).
  return is_cut(ip) and NF_DROP or XT_CONTINUE
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

local function fragment(octets) return test.ip(test.ip_octets("fe80::bad", "ff02::1", 44, test.hex(octets))) end

function test_a_fragment_that_is_too_short_to_tell_is_dropped()
  test.verdict(NF_DROP, fragment "3a000001 00000001 8600")
  test.verdict(NF_DROP, fragment "3a000001 00000001")
end

-- The rest of the options, and the advertisement behind them, come in the second one.
function test_options_that_fill_a_first_fragment_hide_nothing()
  test.verdict(NF_DROP, fragment "3c000001 00000001 3a01 010c 00000000")
  test.verdict(NF_DROP, fragment "3c000001 00000001 3a00 0104 00000000")
  test.verdict(NF_DROP, fragment "2b000001 00000001 3a01 0000 00000000")
  test.verdict(NF_DROP, fragment "2c000001 00000001 3c000001 00000002")
end

function test_fragments_of_what_is_plain_to_see_pass()
  test.verdict(XT_CONTINUE, fragment "11000001 00000001 03e8 0035 0100 0000")
  test.verdict(XT_CONTINUE, fragment "3c000001 00000001 1100 0104 00000000 03e8 0035 0100 0000")
  test.verdict(XT_CONTINUE, fragment "3a000001 00000001 8000 0000 00000001")
  test.verdict(XT_CONTINUE, fragment "3c000009 00000001 00000000")
end
