-- Requests of HTTP without encryption: who still uses it, and for what.

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip = eth:data(packet_ip6) or eth:data(packet_ip)
  local tcp = ip and ip:data(packet_tcp)
  if not tcp or tcp:dport():get() ~= 80 then return XT_CONTINUE end
  local octets = tcp:data():get()
  -- A method is of capital letters.
  if #octets < 16 or octets[0] < 65 or octets[0] > 90 then return XT_CONTINUE end
  local http = tcp:data(packet_http)
  if http and #http:method() > 0 then
    nf.log(ip:saddr():get(), http:method():get(), http:host():get() .. http:uri():get())
  end
  return XT_CONTINUE
end

local test = require "test"

local function segment(text) return test.tcp("192.0.2.7", 5000, "198.51.100.1", 80, "ack psh", text) end

function test_a_request_is_told()
  test.verdict(XT_CONTINUE, segment "GET /a?b HTTP/1.1\r\nHost: www.example\r\n\r\n")
  test.equal(table.concat(test.log(), "; "), "192.0.2.7 GET www.example/a?b")
end

function test_the_rest_of_a_body_is_not()
  test.run(segment "and so on, and so on, and so on")
  test.run(segment "")
  test.equal(#test.log(), 0)
end
