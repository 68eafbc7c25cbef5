-- Each source may send RATE packets of UDP a second, and BURST at once: a token bucket for each.

local RATE, BURST = 50, 100
-- When the bucket is full again: one number says how full it is, at any time. In thousandths of tokens.
local full = nf.table { name = "tokens", key = "ipv6", limit = 65536, expires = 60000, when_full = "oldest" }

function process_packet(p)
  local ip = p:data(packet_eth):data(packet_ip6)
  if not ip or not ip:data(packet_udp) then return XT_CONTINUE end
  local from, now = ip:saddr():get(), nf.get_time() * RATE
  local at = full:get(from) or now
  if at < now then at = now end
  if at + 1000 - now > BURST * 1000 then return NF_DROP end
  full:set(from, at + 1000)
  return XT_CONTINUE
end

local test = require "test"

local function passed(from, count)
  local passed = 0
  for _ = 1, count do
    if test.run(test.udp(from, 1000, "2001:db8::1", 53)) == XT_CONTINUE then passed = passed + 1 end
  end
  return passed
end

function test_a_burst_and_then_its_rate()
  test.equal(passed("2001:db8::a", 150), BURST)
  test.advance(1000)
  test.equal(passed("2001:db8::a", 150), RATE)
  test.advance(100)
  test.equal(passed("2001:db8::a", 150), RATE // 10)
end

function test_each_source_has_its_own()
  passed("2001:db8::a", 150)
  test.equal(passed("2001:db8::b", 10), 10)
  test.verdict(XT_CONTINUE, test.tcp("2001:db8::a", 1000, "2001:db8::1", 443, "ack"))
end
