-- How many connections each client may begin at a server within ten seconds; what is under way is left alone. For services that
-- are asked by programs, where one that fails tries again without end.

local MOST = 30
local SERVICES = nf.prefixes { name = "services", limit = 16 }
SERVICES:add("2001:db8:5::/48", 1)
local begun = nf.table { name = "connections begun", key = { "ipv6", "ipv6", "int" }, limit = 65536, expires = 20000, when_full = "oldest" }

-- The first fragment of what may be TCP, without all of its header: who makes one hides it from whoever does not put fragments
-- together. Extension headers can take its place.
local function is_cut(ip)
  local fragment = ip:data(packet_ip6_fragment)
  if not fragment or fragment:frag_off():get() > 0 then return false end
  local kind = fragment:nexthdr():get()
  return kind == 6 or kind == 0 or kind == 43 or kind == 44 or kind == 51 or kind == 60
end

function process_packet(p)
  local ip = p:data(packet_eth):data(packet_ip6)
  local tcp = ip and ip:data(packet_tcp)
  if not tcp then return ip and is_cut(ip) and NF_DROP or XT_CONTINUE end
  if not tcp:syn():get() or tcp:ack():get() then return XT_CONTINUE end
  if not SERVICES:find(ip:daddr():get()) then return XT_CONTINUE end
  if begun:add(ip:saddr():get(), ip:daddr():get(), nf.get_time() // 10000, 1) > MOST then return NF_DROP end
  return XT_CONTINUE
end

local test = require "test"

local function syn(from, to) return test.tcp(from, 1000, to, 443, "syn") end

function test_a_client_has_its_share_at_each_server()
  for _ = 1, MOST do test.verdict(XT_CONTINUE, syn("2001:db8::a", "2001:db8:5::1")) end
  test.verdict(NF_DROP, syn("2001:db8::a", "2001:db8:5::1"))
  test.verdict(XT_CONTINUE, syn("2001:db8::a", "2001:db8:5::2"))
  test.verdict(XT_CONTINUE, syn("2001:db8::b", "2001:db8:5::1"))
  test.verdict(XT_CONTINUE, test.tcp("2001:db8::a", 1000, "2001:db8:5::1", 443, "ack"))
  test.advance(10000)
  test.verdict(XT_CONTINUE, syn("2001:db8::a", "2001:db8:5::1"))
end

function test_servers_elsewhere_are_not_meant()
  for _ = 0, MOST do test.verdict(XT_CONTINUE, syn("2001:db8::a", "2001:db8:6::1")) end
end

function test_a_first_fragment_without_the_whole_header_is_dropped()
  local function fragment(header) return test.ip(test.ip_octets("2001:db8::a", "2001:db8::1", 44, test.hex(header))) end
  test.verdict(NF_DROP, fragment "0600 0001 00000007 03e8000500000000")
  test.verdict(NF_DROP, fragment "3c00 0001 00000007 0601 010c 00000000")
  test.verdict(XT_CONTINUE, fragment "0600 0009 00000007 03e8000500000000") -- a later one
  test.verdict(XT_CONTINUE, fragment "1100 0001 00000007 1000100000080000")
end
