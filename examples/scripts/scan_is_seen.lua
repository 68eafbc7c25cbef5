-- A source that asks for many ports of a host within ten seconds is scanning it: from then on it gets nothing for a minute.

local PORTS = 15
local asked = nf.table { name = "scan asked", key = { "ipv6", "ipv6", "int" }, limit = 65536, expires = 10000, when_full = "oldest" }
local ports = nf.table { name = "scan ports", key = { "ipv6", "ipv6" }, limit = 16384, expires = 10000, when_full = "oldest" }
local scanner = nf.table { name = "scan scanners", key = "ipv6", limit = 4096, expires = 60000, when_full = "oldest" }

function process_packet(p)
  local ip = p:data(packet_eth):data(packet_ip6)
  if not ip then return XT_CONTINUE end
  local from, to = ip:saddr():get(), ip:daddr():get()
  if scanner:get(from) then return NF_DROP end
  local tcp = ip:data(packet_tcp)
  if not tcp or not tcp:syn():get() or tcp:ack():get() then return XT_CONTINUE end
  local port = tcp:dport():get()
  if asked:get(from, to, port) then return XT_CONTINUE end
  asked:set(from, to, port, 1)
  if ports:add(from, to, 1) <= PORTS then return XT_CONTINUE end
  scanner:set(from, 1)
  nf.log(from, "scans", to)
  return NF_DROP
end

local test = require "test"

local function syn(port, from) return test.tcp(from or "2001:db8::bad", 1000, "2001:db8::1", port, "syn") end

function test_many_ports_are_a_scan()
  for port = 1, PORTS do test.verdict(XT_CONTINUE, syn(port)) end
  test.verdict(NF_DROP, syn(PORTS + 1))
  test.verdict(NF_DROP, test.udp("2001:db8::bad", 1, "2001:db8::1", 53))
  test.equal(table.concat(test.log(), "; "), "2001:db8::bad scans 2001:db8::1")
  test.advance(60000)
  test.verdict(XT_CONTINUE, syn(1))
end

function test_one_port_many_times_is_none()
  for _ = 1, 100 do test.verdict(XT_CONTINUE, syn(443)) end
end

function test_slowly_is_none()
  for port = 1, 2 * PORTS do
    test.verdict(XT_CONTINUE, syn(port))
    test.advance(10000)
  end
end
