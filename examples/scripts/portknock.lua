-- SSH opens for an address that has knocked at three ports of UDP in order, for a minute. After a packet to any other port
-- of UDP it begins with the first again.

local KNOCKS = { 7000, 8000, 9000 }
local SSH = 22

-- How far an address has come; it has ten seconds from one knock to the next.
local progress = nf.table { name = "portknock progress", key = "ipv6", limit = 4096, expires = 10000, when_full = "oldest" }
-- Who knows the ports could fill it from many addresses: then the oldest go.
local open = nf.table { name = "portknock open", key = "ipv6", limit = 4096, expires = 60000, when_full = "oldest" }

function process_packet(p)
  local ip = p:data(packet_eth):data(packet_ip6)
  if not ip then return XT_CONTINUE end
  local from = ip:saddr():get()

  local udp = ip:data(packet_udp)
  if udp then
    local step = (progress:get(from) or 0) + 1
    local port = udp:dport():get()
    if port == KNOCKS[step] then
      progress:set(from, step)
      if step == #KNOCKS then open:set(from, 1) end
      return NF_DROP
    end
    -- Who tries all ports in their order comes by these, too.
    progress:delete(from)
    if port == KNOCKS[1] or port == KNOCKS[2] or port == KNOCKS[3] then return NF_DROP end
  end

  local tcp = ip:data(packet_tcp)
  if tcp and tcp:dport():get() == SSH and not open:get(from) then return NF_DROP end
  return XT_CONTINUE
end

local test = require "test"
local from, to = "2001:db8::a", "2001:db8::1"

local function knock(...)
  for _, port in ipairs { ... } do test.verdict(NF_DROP, test.udp(from, 1000, to, port)) end
end

local function ssh() return test.tcp(from, 1000, to, SSH, "syn") end

function test_three_knocks_open_for_a_minute()
  test.verdict(NF_DROP, ssh())
  knock(7000, 8000, 9000)
  test.verdict(XT_CONTINUE, ssh())
  test.advance(59999)
  test.verdict(XT_CONTINUE, ssh())
  test.advance(1)
  test.verdict(NF_DROP, ssh())
end

function test_another_order_opens_nothing()
  knock(7000, 9000, 8000, 9000)
  test.verdict(NF_DROP, ssh())
end

function test_a_scan_of_ports_in_their_order_opens_nothing()
  for port = 6990, 9010, 10 do test.run(test.udp(from, 1000, to, port)) end
  test.verdict(NF_DROP, ssh())
end

function test_slow_knocks_open_nothing()
  knock(7000, 8000)
  test.advance(10000)
  knock(9000)
  test.verdict(NF_DROP, ssh())
end

function test_other_traffic_goes_on()
  test.verdict(XT_CONTINUE, test.udp(from, 1000, to, 53))
  test.verdict(XT_CONTINUE, test.tcp(from, 1000, to, 443, "syn"))
end
