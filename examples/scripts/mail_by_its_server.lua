-- Mail leaves through the mail server alone: what else inside sends to port 25 is a machine that somebody has taken over.

-- IPv4 addresses are kept as IPv4-mapped ones.
local SERVERS = { ["2001:db8:a::25"] = true, ["::ffff:192.0.2.25"] = true }
local tried = nf.table { name = "mail tried", key = "ipv6", limit = 1024, expires = 3600000, when_full = "oldest" }

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
  local ip6, ip4 = eth:data(packet_ip6), eth:data(packet_ip)
  local ip = ip6 or ip4
  local tcp = ip and ip:data(packet_tcp)
  if not tcp then return is_cut(eth) and NF_DROP or XT_CONTINUE end
  if tcp:dport():get() ~= 25 then return XT_CONTINUE end
  local from = ip6 and ip6:saddr():get() or "::ffff:" .. ip4:saddr():get()
  if SERVERS[from] then return XT_CONTINUE end
  -- Once an hour for each.
  if not tried:get(from) then nf.log("mail of", from) end
  tried:set(from, 1)
  return NF_DROP
end

local test = require "test"

function test_the_servers_send_and_nobody_else()
  test.verdict(XT_CONTINUE, test.tcp("2001:db8:a::25", 1000, "2001:db8:f::1", 25, "syn"))
  test.verdict(XT_CONTINUE, test.tcp("192.0.2.25", 1000, "203.0.113.1", 25, "syn"))
  test.verdict(NF_DROP, test.tcp("2001:db8:a::7", 1000, "2001:db8:f::1", 25, "syn"))
  test.verdict(XT_CONTINUE, test.tcp("2001:db8:a::7", 1000, "2001:db8:f::1", 587, "syn"))
end

function test_it_is_told_once_an_hour()
  for _ = 1, 3 do test.run(test.tcp("192.0.2.7", 1000, "203.0.113.1", 25, "syn")) end
  test.equal(table.concat(test.log(), "; "), "mail of ::ffff:192.0.2.7")
  test.advance(3600001)
  test.run(test.tcp("192.0.2.7", 1000, "203.0.113.1", 25, "syn"))
  test.equal(#test.log(), 1)
end

function test_a_first_fragment_without_the_whole_header_is_dropped()
  local ports = string.pack(">I2I2I4", 1000, 25, 0)
  local packet = test.ip(test.ip_octets("192.0.2.9", "192.0.2.1", 6, ports))
  packet:data(packet_eth):data(packet_ip):mf():set(true)
  test.verdict(NF_DROP, packet)
  local function fragment(header) return test.ip(test.ip_octets("2001:db8::a", "2001:db8::1", 44, test.hex(header) .. ports)) end
  test.verdict(NF_DROP, fragment "0600 0001 00000007")
  test.verdict(NF_DROP, fragment "3c00 0001 00000007 0600 0104 00000000")
  test.verdict(XT_CONTINUE, fragment "0600 0009 00000007") -- a later one
  test.verdict(XT_CONTINUE, fragment "1100 0001 00000007")
end
