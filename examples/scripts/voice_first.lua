-- Voice is marked so that queues put it first (RFC 4594): expedited forwarding for RTP's ports, CS5 for signalling; what others
-- have marked is cleared, so that nobody puts himself first.

local VOICE, SIGNALLING = 46, 40

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip6, ip4 = eth:data(packet_ip6), eth:data(packet_ip)
  local ip = ip6 or ip4
  if not ip then return XT_CONTINUE end
  local udp = ip:data(packet_udp)
  local port = udp and udp:dport():get() or 0
  local class = 0
  if port >= 16384 and port < 32768 then class = VOICE end
  if port == 5060 or port == 5061 then class = SIGNALLING end
  -- The two bits of ECN stay.
  if ip6 then
    ip6:tclass():set(class << 2 | ip6:tclass():get() & 3)
  elseif ip4 then
    ip4:tos():set(class << 2 | ip4:tos():get() & 3)
  end
  return XT_CONTINUE
end

local test = require "test"

local function class_of(packet)
  test.run(packet)
  test.checksums(packet)
  local eth = packet:data(packet_eth)
  local ip6 = eth:data(packet_ip6)
  return ip6 and ip6:tclass():get() or eth:data(packet_ip):tos():get()
end

function test_voice_and_signalling_are_marked()
  test.equal(class_of(test.udp("2001:db8::a", 16384, "2001:db8::1", 16384)), VOICE << 2)
  test.equal(class_of(test.udp("192.0.2.1", 16384, "192.0.2.2", 20000)), VOICE << 2)
  test.equal(class_of(test.udp("192.0.2.1", 5060, "192.0.2.2", 5060)), SIGNALLING << 2)
end

function test_others_marks_are_cleared_and_ecn_stays()
  local packet = test.tcp("2001:db8::a", 1000, "2001:db8::1", 80, "ack")
  packet:data(packet_eth):data(packet_ip6):tclass():set(46 << 2 | 1)
  test.equal(class_of(packet), 1)
end
