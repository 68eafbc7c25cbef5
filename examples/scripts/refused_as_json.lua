-- Who tries from outside what nobody offers here, for a collector that reads JSON: such connections are dropped, and each
-- source and port is told once a minute (`sidestep script logs --follow --json`).

local OPEN = { [22] = true, [443] = true }

local told = nf.table { name = "told", key = { "ipv6", "int" }, when_full = "oldest", expires = 60000 }

-- The first fragment of what may be TCP, without all of its header: who makes one hides it from whoever does not put fragments
-- together. Extension headers can take its place.
local function is_cut(ip)
  local fragment = ip:data(packet_ip6_fragment)
  if not fragment or fragment:frag_off():get() > 0 then return false end
  local kind = fragment:nexthdr():get()
  return kind == 6 or kind == 0 or kind == 43 or kind == 44 or kind == 51 or kind == 60
end

function process_packet(p)
  local ip = p:data(packet_eth):data(packet_ip6)
  local tcp = ip and ip:data(packet_tcp)
  if not tcp then return ip and is_cut(ip) and NF_DROP or XT_CONTINUE end
  if not tcp:syn():get() or tcp:ack():get() then return XT_CONTINUE end
  local port, from = tcp:dport():get(), ip:saddr():get()
  if OPEN[port] then return XT_CONTINUE end
  if not told:get(from, port) then
    told:set(from, port, 1)
    nf.log("refused", { src = from, dst = ip:daddr():get(), port = port, hops = ip:hop_limit():get() })
  end
  return NF_DROP
end

local test = require "test"

local function syn(port)
  return test.tcp("2001:db8::bad", 5000, "2001:db8::1", port, "syn")
end

function test_what_is_offered_passes_in_silence()
  test.verdict(XT_CONTINUE, syn(443))
  test.verdict(XT_CONTINUE, test.tcp("2001:db8::bad", 5000, "2001:db8::1", 23, "ack"))
  test.equal(#test.log(), 0)
end

function test_what_is_not_is_told_once()
  test.verdict(NF_DROP, syn(23))
  test.verdict(NF_DROP, syn(23))
  test.verdict(NF_DROP, syn(3389))
  test.equal(table.concat(test.log(), "; "), "refused dst=2001:db8::1 hops=64 port=23 src=2001:db8::bad; "
    .. "refused dst=2001:db8::1 hops=64 port=3389 src=2001:db8::bad")
end

function test_a_first_fragment_without_the_whole_header_is_dropped()
  local function fragment(header) return test.ip(test.ip_octets("2001:db8::a", "2001:db8::1", 44, test.hex(header))) end
  test.verdict(NF_DROP, fragment "0600 0001 00000007 03e8000500000000")
  test.verdict(NF_DROP, fragment "3c00 0001 00000007 0601 010c 00000000")
  test.verdict(XT_CONTINUE, fragment "0600 0009 00000007 03e8000500000000") -- a later one
  test.verdict(XT_CONTINUE, fragment "1100 0001 00000007 1000100000080000")
end
