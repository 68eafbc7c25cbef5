-- Mail leaves through the mail server alone: what else inside sends to port 25 is a machine that somebody has taken over.

-- IPv4 addresses are kept as IPv4-mapped ones.
local SERVERS = { ["2001:db8:a::25"] = true, ["::ffff:192.0.2.25"] = true }
local tried = nf.table { name = "mail tried", key = "ipv6", limit = 1024, expires = 3600000, when_full = "oldest" }

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip6, ip4 = eth:data(packet_ip6), eth:data(packet_ip)
  local ip = ip6 or ip4
  local tcp = ip and ip:data(packet_tcp)
  if not tcp or tcp:dport():get() ~= 25 then return XT_CONTINUE end
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
