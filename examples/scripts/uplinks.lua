-- Two uplinks: some services leave by the second one, wherever the routes say that they would go.
--
-- For packets as they come in from inside: `--hook ingress --dev lan`. The second uplink has a table of its own:
--
--     ip -6 route add default via 2001:db8:e::9 table 100
--     ip -6 rule add oif wan1 table 100

local WAYS = { [25] = "wan1", [5201] = "wan1" }

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip = eth:data(packet_ip6) or eth:data(packet_ip)
  local transport = ip and (ip:data(packet_tcp) or ip:data(packet_udp))
  local way = transport and WAYS[transport:dport():get()]
  if way then return p:redirect(way) end
  return NF_ACCEPT
end

local test = require "test"

function test_the_port_decides()
  for from, to in pairs { ["192.168.0.2"] = "192.0.2.1", ["fd00::2"] = "2001:db8:f::9" } do
    test.verdict(NF_STOLEN, test.tcp(from, 4000, to, 25, "syn"))
    test.equal(test.redirected(), "wan1")
    test.verdict(NF_ACCEPT, test.tcp(from, 4000, to, 80, "syn"))
    test.equal(test.redirected(), nil)
  end
end
