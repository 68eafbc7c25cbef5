-- A filter against floods of SYN: it belongs where both directions of connections to the servers pass.
--
-- A source may begin PER_SOURCE connections in a second. That does not help against a flood with made-up sources, so when
-- more than FLOOD connections begin in a second from wherever, a source that nothing is known of has its first SYN
-- dropped, and passes with the repetition that TCP sends after a second (RFC 6298): who makes sources up does not wait
-- for that. A source is known for a while once it has shown that its address is its own: by acknowledging the sequence
-- number that a server chose. Connections that are under way pass, whatever happens.

PER_SOURCE = 20     -- SYNs a second
FLOOD = 1000        -- SYNs a second from all sources
PATIENCE = 500      -- milliseconds before a repetition counts
KNOWN = 600000      -- milliseconds for which a source is known

-- IPv4 addresses are kept as IPv4-mapped ones.
local begun = nf.table { name = "synflood begun", key = { "ipv6", "int" }, expires = 2000, when_full = "oldest" }
local all = nf.counter "synflood all"
local second = nf.counter "synflood second"
local waiting = nf.table { name = "synflood waiting", key = { "ipv6", "int" }, expires = 10000, when_full = "oldest" }
local known = nf.table { name = "synflood known", key = "ipv6", expires = KNOWN, when_full = "oldest" }
local flows = nf.flows { name = "synflood", expires = 10000 }

-- How many have begun in this second, with this one.
local function count_all(now)
  if second:get() ~= now // 1000 then
    second:add(now // 1000 - second:get())
    all:add(-all:get())
  end
  return all:add(1)
end

local function may_begin(source, port)
  local now = nf.get_time()
  local flood = count_all(now) > FLOOD
  if begun:add(source, now // 1000, 1) > PER_SOURCE then return false end
  if not flood or known:get(source) then return true end
  local first = waiting:get(source, port)
  if not first then waiting:set(source, port, now) end
  return first ~= nil and now - first >= PATIENCE
end

local function source_of(ip6, ip4)
  return ip6 and ip6:saddr():get() or "::ffff:" .. ip4:saddr():get()
end

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip6, ip4 = eth and eth:data(packet_ip6), eth and eth:data(packet_ip)
  local ip = ip6 or ip4
  local tcp = ip and ip:data(packet_tcp)
  if not tcp then return XT_CONTINUE end
  local syn, ack = tcp:syn():get(), tcp:ack():get()

  if syn and not ack then
    return may_begin(source_of(ip6, ip4), tcp:sport():get()) and XT_CONTINUE or NF_DROP
  end
  if syn then
    local flow = p:flow(flows)
    if flow then flow.chosen = (tcp:seq():get() + 1 & 0xffffffff) + 1 end
  elseif ack then
    local flow = p:flow(flows)
    if flow and flow.chosen == tcp:ack_seq():get() + 1 then
      known:set(source_of(ip6, ip4), 1)
      flow:forget()
    end
  end
  return XT_CONTINUE
end

local test = require "test"
local server = "2001:db8::5"

local function syn(from, port) return test.tcp(from, port or 1000, server, 443, "syn") end

-- More SYNs than FLOOD, each from another source.
local function flood()
  for number = 0, FLOOD do test.run(syn(("2001:db8:bad::%x"):format(number))) end
end

local function handshake(from, guess)
  local answer = test.tcp(server, 443, from, 1000, "syn ack")
  answer:data(packet_eth):data(packet_ip6):data(packet_tcp):seq():set(0xffffffff)
  test.verdict(XT_CONTINUE, answer)
  local last = test.tcp(from, 1000, server, 443, "ack")
  last:data(packet_eth):data(packet_ip6):data(packet_tcp):ack_seq():set(guess or 0)
  test.verdict(XT_CONTINUE, last)
end

function test_a_source_has_its_share_of_each_second()
  for _, from in ipairs { "2001:db8::a", "2001:db8::b" } do
    for port = 1, PER_SOURCE do test.verdict(XT_CONTINUE, syn(from, port)) end
    test.verdict(NF_DROP, syn(from, 99))
  end
  test.advance(1000)
  test.verdict(XT_CONTINUE, syn("2001:db8::a", 99))
  test.verdict(XT_CONTINUE, test.tcp("10.0.0.1", 1, "10.0.0.2", 443, "syn"))
end

function test_in_a_flood_the_repetition_passes()
  flood()
  test.verdict(NF_DROP, syn "2001:db8::a")
  test.verdict(NF_DROP, syn "2001:db8::a")
  test.advance(999)
  flood()
  test.verdict(XT_CONTINUE, syn "2001:db8::a")
end

function test_in_a_flood_a_known_source_passes_at_once()
  test.verdict(XT_CONTINUE, syn "2001:db8::a")
  handshake("2001:db8::a")
  flood()
  test.verdict(XT_CONTINUE, syn "2001:db8::a")
end

function test_a_guessed_sequence_number_makes_nobody_known()
  handshake("2001:db8::a", 12345)
  flood()
  test.verdict(NF_DROP, syn "2001:db8::a")
end

function test_connections_under_way_and_other_traffic_pass()
  flood()
  test.verdict(XT_CONTINUE, test.tcp("2001:db8::a", 1000, server, 443, "ack psh", "data"))
  test.verdict(XT_CONTINUE, test.udp("2001:db8::a", 1000, server, 443))
end
