-- Echo requests to SERVICE are answered here, also while nobody has that address: for monitoring of a way, or a service that is
-- moved.

local SERVICE = "2001:db8:5::80"

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip = eth:data(packet_ip6)
  local icmp = ip and ip:data(packet_icmp6)
  if not icmp or icmp:type():get() ~= 128 or ip:daddr():get() ~= SERVICE then return XT_CONTINUE end
  local octets = bytes.copy(eth:data():get())
  local reply = bytes.to_packet(octets, packet_ip6)
  reply:daddr():set(ip:saddr():get())
  reply:saddr():set(SERVICE)
  reply:hop_limit():set(64)
  reply:data(packet_icmp6):type():set(129)
  nf.fix_checksums(octets, packet_ip6)
  nf.create_packet(p, octets)
  return NF_DROP
end

local test = require "test"

local function echo(kind, from, to)
  return test.ip(test.ip_octets(from, to, 58, string.char(kind) .. "\0\0\0\1\2\0\3hello"))
end

function test_the_reply_has_what_was_sent()
  test.verdict(NF_DROP, echo(128, "2001:db8::a", SERVICE))
  test.equal(test.ip(test.sent()[1]), echo(129, SERVICE, "2001:db8::a"))
end

function test_others_are_asked_themselves()
  test.verdict(XT_CONTINUE, echo(128, "2001:db8::a", "2001:db8:5::81"))
  test.verdict(XT_CONTINUE, echo(129, "2001:db8::a", SERVICE))
  test.equal(#test.sent(), 0)
end
