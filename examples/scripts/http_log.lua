-- The first request of each connection of HTTP without encryption: who still uses it, and for what.

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip = eth:data(packet_ip6) or eth:data(packet_ip)
  local tcp = ip and ip:data(packet_tcp)
  if not tcp or tcp:dport():get() ~= 80 then return XT_CONTINUE end
  local stream = p:stream()
  -- The kernel knows which streams are done with.
  if stream:decided() then return XT_CONTINUE end
  local host, fault = http.host(stream), stream:fault()
  if host then
    local head = stream:data(packet_http)
    nf.log(ip:saddr():get(), head:method():get(), host .. head:uri():get())
  end
  -- Of one whose beginning was not seen, or that is too long, no more will be known.
  if host ~= nil or fault == "unknown" or fault == "full" then stream:accept() end
  return XT_CONTINUE
end

local test = require "test"

local function segment(flags, text, seq)
  test.verdict(XT_CONTINUE, test.tcp("192.0.2.7", 5000, "198.51.100.1", 80, flags, text, seq))
end

function test_a_request_is_told_however_it_comes()
  segment("syn")
  segment("ack psh", "www.example\r\n\r\n", 26)
  segment("ack psh", "GET /a?b HTTP/1.1\r\nHost:", 1)
  test.equal(#test.log(), 0)
  segment("ack psh", " ", 25)
  test.equal(table.concat(test.log(), "; "), "192.0.2.7 GET www.example/a?b")
end

function test_the_rest_of_a_body_is_not()
  segment("ack psh", "and so on, and so on, and so on", 1)
  segment("ack", "", 1)
  test.equal(#test.log(), 0)
end
