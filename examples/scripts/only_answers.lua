-- What inside has begun is answered; from outside nothing begins. At forward of a gateway, for both directions.
--
-- Nobody outside makes or renews an entry, and so none can take another's place by a flood. What is neither TCP nor UDP is
-- known by its addresses and protocol alone.

local INSIDE = nf.prefixes { name = "inside", limit = 16 }
INSIDE:add("2001:db8:a::/48", 1)
INSIDE:add("192.168.0.0/16", 1)

-- By the end inside, the one outside, and protocol and ports. IPv4 addresses are kept as IPv4-mapped ones.
local begun = nf.table { name = "begun inside", key = { "ipv6", "ipv6", "int" }, limit = 65536, expires = 300000, when_full = "oldest" }

-- One number: the port inside comes before that outside.
local function conversation(protocol, inside, outside)
  return protocol << 32 | inside << 16 | outside
end

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip6, ip4 = eth:data(packet_ip6), eth:data(packet_ip)
  local ip = ip6 or ip4
  if not ip then return NF_DROP end
  local from, to = ip:saddr():get(), ip:daddr():get()
  if ip4 then from, to = "::ffff:" .. ip4:saddr():get(), "::ffff:" .. ip4:daddr():get() end
  local protocol, sport, dport = ip4 and ip4:protocol():get() or ip6:nexthdr():get(), 0, 0
  local tcp, udp = ip:data(packet_tcp), ip:data(packet_udp)
  if tcp then
    protocol, sport, dport = 6, tcp:sport():get(), tcp:dport():get()
  elseif udp then
    protocol, sport, dport = 17, udp:sport():get(), udp:dport():get()
  end
  if INSIDE:find(ip:saddr():get()) then
    begun:set(from, to, conversation(protocol, sport, dport), 1)
    return XT_CONTINUE
  end
  return begun:get(to, from, conversation(protocol, dport, sport)) and XT_CONTINUE or NF_DROP
end

local test = require "test"
local inside, outside = "2001:db8:a::7", "2001:db8:f::1"

function test_an_answer_passes_and_nothing_else()
  test.verdict(NF_DROP, test.udp(outside, 53, inside, 4000, "unasked"))
  test.verdict(XT_CONTINUE, test.udp(inside, 4000, outside, 53, "question"))
  test.verdict(XT_CONTINUE, test.udp(outside, 53, inside, 4000, "answer"))
  test.verdict(NF_DROP, test.udp(outside, 54, inside, 4000, "another port"))
  test.verdict(NF_DROP, test.udp("2001:db8:f::2", 53, inside, 4000, "another host"))
  test.verdict(NF_DROP, test.tcp(outside, 53, inside, 4000, "syn"))
end

function test_both_versions()
  test.verdict(NF_DROP, test.tcp("198.51.100.1", 80, "192.168.1.7", 4000, "syn"))
  test.verdict(XT_CONTINUE, test.tcp("192.168.1.7", 4000, "198.51.100.1", 80, "syn"))
  test.verdict(XT_CONTINUE, test.tcp("198.51.100.1", 80, "192.168.1.7", 4000, "syn ack"))
end

function test_pings_are_answered()
  local function ping(from, to, kind) return test.ip(test.ip_octets(from, to, 58, string.char(kind) .. ("\0"):rep(7))) end
  test.verdict(NF_DROP, ping(outside, inside, 128))
  test.verdict(XT_CONTINUE, ping(inside, outside, 128))
  test.verdict(XT_CONTINUE, ping(outside, inside, 129))
end

function test_a_flood_from_outside_leaves_nothing()
  test.run(test.udp(inside, 4000, outside, 53, "question"))
  for port = 1, 100 do test.verdict(NF_DROP, test.udp(outside, port, inside, 5000, "unasked")) end
  test.equal(begun:count(), 1)
  test.verdict(XT_CONTINUE, test.udp(outside, 53, inside, 4000, "answer"))
end

function test_it_is_forgotten_when_inside_says_nothing_for_long()
  test.run(test.udp(inside, 4000, outside, 53, "question"))
  test.advance(299999)
  test.verdict(XT_CONTINUE, test.udp(outside, 53, inside, 4000, "late"))
  test.advance(1)
  test.verdict(NF_DROP, test.udp(outside, 53, inside, 4000, "too late"))
end
