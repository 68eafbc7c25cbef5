-- Who begins more than a few connections to SSH within a minute is not let in for ten.

local SSH, TRIES = 22, 5
local tries = nf.table { name = "ssh tries", key = { "ipv6", "int" }, limit = 16384, expires = 60000, when_full = "oldest" }
local shut_out = nf.table { name = "ssh shut out", key = "ipv6", limit = 16384, expires = 600000, when_full = "oldest" }

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
  if tcp:dport():get() ~= SSH or not tcp:syn():get() or tcp:ack():get() then return XT_CONTINUE end
  local from = ip:saddr():get()
  if shut_out:get(from) then return NF_DROP end
  if tries:add(from, nf.get_time() // 60000, 1) <= TRIES then return XT_CONTINUE end
  shut_out:set(from, 1)
  nf.log("tries too often:", from)
  return NF_DROP
end

local test = require "test"

local function try(from) return test.tcp(from or "2001:db8::a", 1000, "2001:db8::1", SSH, "syn") end

function test_after_a_few_tries_it_is_shut_out_for_ten_minutes()
  for _ = 1, TRIES do test.verdict(XT_CONTINUE, try()) end
  test.verdict(NF_DROP, try())
  test.advance(599999)
  test.verdict(NF_DROP, try())
  test.advance(1)
  test.verdict(XT_CONTINUE, try())
  test.equal(table.concat(test.log(), "; "), "tries too often: 2001:db8::a")
end

function test_others_and_connections_that_are_there_go_on()
  for _ = 0, TRIES do test.run(try()) end
  test.verdict(XT_CONTINUE, try "2001:db8::b")
  test.verdict(XT_CONTINUE, test.tcp("2001:db8::a", 1000, "2001:db8::1", SSH, "ack psh", "more"))
end

function test_a_first_fragment_without_the_whole_header_is_dropped()
  local function fragment(header) return test.ip(test.ip_octets("2001:db8::a", "2001:db8::1", 44, test.hex(header))) end
  test.verdict(NF_DROP, fragment "0600 0001 00000007 03e8001600000000")
  test.verdict(NF_DROP, fragment "3c00 0001 00000007 0601 010c 00000000")
  test.verdict(XT_CONTINUE, fragment "0600 0009 00000007 03e8001600000000") -- a later one
  test.verdict(XT_CONTINUE, fragment "1100 0001 00000007 1000100000080000")
end
