-- Address translation without state, for IPv4 and IPv6: listing 4.1 of the thesis, for both.
--
-- `snat` belongs where packets leave, `dnat` where they come back. Checksums follow by themselves.

local INSIDE = { [4] = "192.168.0.2", [6] = "fd00::2" }
local OUTSIDE = { [4] = "10.0.0.1", [6] = "2001:db8::1" }

local function ip_of(p)
  local eth = p:data(packet_eth)
  return eth:data(packet_ip) or eth:data(packet_ip6)
end

function snat(p)
  local ip = ip_of(p)
  if not ip then return NF_DROP end
  ip:saddr():set(OUTSIDE[ip:version():get()])
  return XT_CONTINUE
end

function dnat(p)
  local ip = ip_of(p)
  if not ip then return NF_DROP end
  ip:daddr():set(INSIDE[ip:version():get()])
  return XT_CONTINUE
end

local test = require "test"

function test_both_directions_of_both_versions()
  for version, peer in pairs { [4] = "192.0.2.1", [6] = "2001:db8:f::9" } do
    local out = test.udp(INSIDE[version], 4000, peer, 53, "query")
    test.verdict(XT_CONTINUE, out, "snat")
    test.equal(out, test.udp(OUTSIDE[version], 4000, peer, 53, "query"))

    local back = test.tcp(peer, 80, OUTSIDE[version], 4001, "ack", "answer")
    test.verdict(XT_CONTINUE, back, "dnat")
    test.equal(back, test.tcp(peer, 80, INSIDE[version], 4001, "ack", "answer"))
  end
end
