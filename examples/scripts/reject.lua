-- Telnet is refused in words that its client understands: the connection is reset at once, not after a minute of silence.

local answer = require "lib.answer"

local RST_ACK = 0x14

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip = eth:data(packet_ip6) or eth:data(packet_ip)
  local tcp = ip and ip:data(packet_tcp)
  if not tcp or tcp:dport():get() ~= 23 then return XT_CONTINUE end
  if tcp:syn():get() and not tcp:ack():get() then
    nf.create_packet(p, answer.tcp(ip, 23, tcp:sport():get(), 0, tcp:seq():get() + 1, RST_ACK, 0))
  end
  return NF_DROP
end

local test = require "test"

local function refused(from, to, protocol)
  test.verdict(NF_DROP, test.tcp(from, 1000, to, 23, "syn"))
  local sent = test.sent()
  test.equal(#sent, 1)
  local packet = test.ip(sent[1])
  test.checksums(packet)
  local ip = packet:data(packet_eth):data(protocol)
  local tcp = ip:data(packet_tcp)
  test.equal(ip:saddr():get(), to)
  test.equal(ip:daddr():get(), from)
  test.equal(tcp:dport():get(), 1000)
  test.equal(tcp:rst():get(), true)
  test.equal(tcp:ack_seq():get(), 1)
end

function test_a_connection_is_reset()
  refused("2001:db8::a", "2001:db8::1", packet_ip6)
  refused("192.0.2.7", "192.0.2.1", packet_ip)
end

function test_what_is_no_connection_is_not_answered()
  test.verdict(NF_DROP, test.tcp("2001:db8::a", 1000, "2001:db8::1", 23, "ack"))
  test.verdict(XT_CONTINUE, test.tcp("2001:db8::a", 1000, "2001:db8::1", 22, "syn"))
  test.equal(#test.sent(), 0)
end
