-- How much of TCP is sent again: segments with data whose sequence number is not beyond what their connection has sent already.

local flows = nf.flows { name = "sequence numbers", limit = 65536, expires = 60000 }
local all, again = nf.counter "segments", nf.counter "segments again"

function process_packet(p)
  local ip = p:data(packet_eth):data(packet_ip6)
  local tcp = ip and ip:data(packet_tcp)
  if not tcp or #tcp:data() == 0 then return XT_CONTINUE end
  local flow = p:flow(flows)
  if not flow then return XT_CONTINUE end
  all:add(1)
  -- Numbers wrap around (RFC 9293 section 3.4); 0 says that nothing is known of a direction yet.
  local ends = (tcp:seq():get() + #tcp:data() & 0xffffffff) + 1
  if flow:is_reply() then
    if flow.back ~= 0 and (ends - flow.back & 0xffffffff) - 1 & 0x80000000 ~= 0 then
      again:add(1)
    else
      flow.back = ends
    end
  elseif flow.there ~= 0 and (ends - flow.there & 0xffffffff) - 1 & 0x80000000 ~= 0 then
    again:add(1)
  else
    flow.there = ends
  end
  return XT_CONTINUE
end

local test = require "test"

local function segment(seq, from, to)
  local packet = test.tcp(from or "2001:db8::a", 1000, to or "2001:db8::1", 1000, "ack", "1234")
  packet:data(packet_eth):data(packet_ip6):data(packet_tcp):seq():set(seq)
  return packet
end

function test_what_comes_again_is_counted_in_each_direction()
  for _, seq in ipairs { 0xfffffff8, 0xfffffffc, 0xfffffffc, 0, 4, 0xfffffff8 } do test.run(segment(seq)) end
  for _, seq in ipairs { 100, 104, 100 } do test.run(segment(seq, "2001:db8::1", "2001:db8::a")) end
  test.equal(all:get(), 9)
  test.equal(again:get(), 3)
end

function test_acknowledgments_alone_are_not()
  test.run(test.tcp("2001:db8::a", 1000, "2001:db8::1", 1000, "ack"))
  test.equal(all:get(), 0)
end
