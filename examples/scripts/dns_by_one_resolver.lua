-- Whatever name server a host inside asks, the resolver of the house answers, in that server's name. At ingress of the inner
-- interface and at egress of it; hosts and resolver are on different networks.

local RESOLVER = "2001:db8:53::53"
-- Which server a host has asked, from which port.
local asked = nf.table { name = "dns asked servers", key = { "ipv6", "int" }, value = "ipv6", limit = 16384, expires = 10000, when_full = "oldest" }

function process_packet(p)
  local ip = p:data(packet_eth):data(packet_ip6)
  local udp = ip and ip:data(packet_udp)
  if not udp then return XT_CONTINUE end
  if udp:dport():get() == 53 then
    if ip:daddr():get() == RESOLVER then return XT_CONTINUE end
    asked:set(ip:saddr():get(), udp:sport():get(), ip:daddr():get())
    ip:daddr():set(RESOLVER)
  elseif udp:sport():get() == 53 and ip:saddr():get() == RESOLVER then
    local server = asked:get(ip:daddr():get(), udp:dport():get())
    if server then ip:saddr():set(server) end
  end
  return XT_CONTINUE
end

local test = require "test"
local host, other = "2001:db8:a::7", "2001:4860:4860::8888"

function test_the_resolver_answers_in_the_others_name()
  local query = test.udp(host, 4000, other, 53, "query")
  test.run(query)
  test.equal(query, test.udp(host, 4000, RESOLVER, 53, "query"))
  local answer = test.udp(RESOLVER, 53, host, 4000, "answer")
  test.run(answer)
  test.equal(answer, test.udp(other, 53, host, 4000, "answer"))
end

function test_who_asks_it_himself_is_answered_by_it()
  test.run(test.udp(host, 4000, RESOLVER, 53, "query"))
  local answer = test.udp(RESOLVER, 53, host, 4000, "answer")
  test.run(answer)
  test.equal(answer, test.udp(RESOLVER, 53, host, 4000, "answer"))
end
