-- The flow label tells a host's connections apart, also where addresses change: outside nobody needs it.

function process_packet(p)
  local ip = p:data(packet_eth):data(packet_ip6)
  if ip then ip:flow_label():set(0) end
  return XT_CONTINUE
end

local test = require "test"

function test_it_is_zero_and_nothing_else_is_changed()
  local packet = test.udp("2001:db8::a", 1000, "2001:db8::1", 53, "query")
  packet:data(packet_eth):data(packet_ip6):flow_label():set(0xabcde)
  test.verdict(XT_CONTINUE, packet)
  test.equal(packet, test.udp("2001:db8::a", 1000, "2001:db8::1", 53, "query"))
end
