-- Extension headers that a network of hosts has no use for: routing headers that are not spent (RFC 5095), and hop-by-hop options.
-- Mobile IPv6 (type 2) is let through.

function process_packet(p)
  local ip = p:data(packet_eth):data(packet_ip6)
  if not ip then return XT_CONTINUE end
  if ip:nexthdr():get() == 0 then return NF_DROP end
  local routing = ip:data(packet_ip6_routing)
  if routing and routing:segments_left():get() > 0 and routing:type():get() ~= 2 then return NF_DROP end
  return XT_CONTINUE
end

local test = require "test"

local function packet(first, header)
  return test.ip(test.ip_octets("2001:db8::a", "2001:db8::1", first, test.hex(header) .. ("\0"):rep(8)))
end

function test_routes_are_not_followed()
  test.verdict(NF_DROP, packet(43, "3b02 00 01 00000000 20010db8000000000000000000000001"))
  test.verdict(XT_CONTINUE, packet(43, "3b02 00 00 00000000 20010db8000000000000000000000001"))
  test.verdict(XT_CONTINUE, packet(43, "3b02 02 01 00000000 20010db8000000000000000000000001"))
end

function test_hop_by_hop_options_are_dropped_and_others_pass()
  test.verdict(NF_DROP, packet(0, "3b00 0104 00000000"))
  test.verdict(XT_CONTINUE, packet(60, "3b00 0104 00000000"))
end
