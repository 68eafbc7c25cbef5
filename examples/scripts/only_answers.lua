-- What inside has begun is answered; from outside nothing begins. At forward of a gateway, for both directions.

local INSIDE = nf.prefixes { name = "inside", limit = 16 }
INSIDE:add("2001:db8:a::/48", 1)
INSIDE:add("192.168.0.0/16", 1)

local flows = nf.flows { name = "begun inside", limit = 65536, expires = 300000 }

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip = eth:data(packet_ip6) or eth:data(packet_ip)
  if not ip then return NF_DROP end
  local flow = p:flow(flows)
  if not flow then return NF_DROP end
  if INSIDE:find(ip:saddr():get()) then
    flow.begun = 1
    return XT_CONTINUE
  end
  return flow.begun == 1 and XT_CONTINUE or NF_DROP
end

local test = require "test"
local inside, outside = "2001:db8:a::7", "2001:db8:f::1"

function test_an_answer_passes_and_nothing_else()
  test.verdict(NF_DROP, test.udp(outside, 53, inside, 4000, "unasked"))
  test.verdict(XT_CONTINUE, test.udp(inside, 4000, outside, 53, "question"))
  test.verdict(XT_CONTINUE, test.udp(outside, 53, inside, 4000, "answer"))
  test.verdict(NF_DROP, test.udp(outside, 54, inside, 4000, "another port"))
  test.verdict(NF_DROP, test.udp("2001:db8:f::2", 53, inside, 4000, "another host"))
end

function test_both_versions()
  test.verdict(NF_DROP, test.tcp("198.51.100.1", 80, "192.168.1.7", 4000, "syn"))
  test.verdict(XT_CONTINUE, test.tcp("192.168.1.7", 4000, "198.51.100.1", 80, "syn"))
  test.verdict(XT_CONTINUE, test.tcp("198.51.100.1", 80, "192.168.1.7", 4000, "syn ack"))
end

function test_it_is_forgotten_when_nothing_comes_for_long()
  test.run(test.udp(inside, 4000, outside, 53, "question"))
  test.advance(300000)
  test.verdict(NF_DROP, test.udp(outside, 53, inside, 4000, "late"))
end
