-- How long servers take to accept connections, from here: those that take longer than LIMIT are told, once a minute each.

local LIMIT = 200 -- milliseconds
local flows = nf.flows { name = "handshakes", limit = 16384, expires = 10000 }
local told = nf.table { name = "slow told", key = "ipv6", limit = 1024, expires = 60000, when_full = "oldest" }

function process_packet(p)
  local ip = p:data(packet_eth):data(packet_ip6)
  local tcp = ip and ip:data(packet_tcp)
  if not tcp or not tcp:syn():get() then return XT_CONTINUE end
  local flow = p:flow(flows)
  if not flow then return XT_CONTINUE end
  if not tcp:ack():get() then
    -- Of a repeated SYN the first counts.
    if flow.began == 0 then flow.began = nf.get_time() end
    return XT_CONTINUE
  end
  if flow.began == 0 then return XT_CONTINUE end
  local took = nf.get_time() - flow.began
  flow:forget()
  local server = ip:saddr():get()
  if took > LIMIT and not told:get(server) then
    told:set(server, 1)
    nf.log(server, "took", took, "ms")
  end
  return XT_CONTINUE
end

local test = require "test"

local function connect(port, after)
  test.run(test.tcp("2001:db8::a", port, "2001:db8::1", 80, "syn"))
  test.advance(after)
  test.run(test.tcp("2001:db8::1", 80, "2001:db8::a", port, "syn ack"))
end

function test_a_slow_one_is_told_once_a_minute()
  test.advance(1)
  connect(1, 250)
  connect(2, 300)
  test.equal(table.concat(test.log(), "; "), "2001:db8::1 took 250 ms")
  test.advance(60000)
  connect(3, 201)
  test.equal(#test.log(), 1)
end

function test_a_fast_one_is_not()
  test.advance(1)
  connect(1, LIMIT)
  test.equal(#test.log(), 0)
end
