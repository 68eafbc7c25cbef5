-- Telnet is refused in words that its client understands: the connection is reset at once, not after a minute of silence.

local answer = require "lib.answer"

local RST_ACK = 0x14

-- The first fragment of what may be TCP, without all of its header: who makes one hides it from whoever does not put fragments
-- together. In IPv6, extension headers can take its place.
local function is_cut(eth)
  local ip4 = eth:data(packet_ip)
  if ip4 then return ip4:protocol():get() == 6 and ip4:mf():get() and ip4:frag_off():get() == 0 end
  local ip6 = eth:data(packet_ip6)
  local fragment = ip6 and ip6:data(packet_ip6_fragment)
  if not fragment or fragment:frag_off():get() > 0 then return false end
  local kind = fragment:nexthdr():get()
  return kind == 6 or kind == 0 or kind == 43 or kind == 44 or kind == 51 or kind == 60
end

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip = eth:data(packet_ip6) or eth:data(packet_ip)
  local tcp = ip and ip:data(packet_tcp)
  if not tcp then return is_cut(eth) and NF_DROP or XT_CONTINUE end
  if tcp:dport():get() ~= 23 then return XT_CONTINUE end
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

function test_a_first_fragment_without_the_whole_header_is_dropped()
  local ports = string.pack(">I2I2I4", 1000, 23, 0)
  local packet = test.ip(test.ip_octets("192.0.2.9", "192.0.2.1", 6, ports))
  packet:data(packet_eth):data(packet_ip):mf():set(true)
  test.verdict(NF_DROP, packet)
  local function fragment(header) return test.ip(test.ip_octets("2001:db8::a", "2001:db8::1", 44, test.hex(header) .. ports)) end
  test.verdict(NF_DROP, fragment "0600 0001 00000007")
  test.verdict(NF_DROP, fragment "3c00 0001 00000007 0600 0104 00000000")
  test.verdict(XT_CONTINUE, fragment "0600 0009 00000007") -- a later one
  test.verdict(XT_CONTINUE, fragment "1100 0001 00000007")
end
