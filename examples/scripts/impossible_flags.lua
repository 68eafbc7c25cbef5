-- Combinations of TCP's flags that no implementation sends: scanners do, to tell systems apart.

-- The first fragment of what may be TCP, without all of its header: who makes one hides it from whoever does not put fragments
-- together. In IPv6, extension headers can take its place.
local function is_cut(eth)
  local ip4 = eth:data(packet_ip)
  if ip4 then return ip4:protocol():get() == 6 and ip4:mf():get() and ip4:frag_off():get() == 0 end
  local ip6 = eth:data(packet_ip6)
  local fragment = ip6 and ip6:data(packet_ip6_fragment)
  if not fragment or fragment:frag_off():get() > 0 then return false end
  local kind = fragment:nexthdr():get()
  return kind == 6 or kind == 0 or kind == 43 or kind == 44 or kind == 51 or kind == 60
end

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip = eth:data(packet_ip6) or eth:data(packet_ip)
  local tcp = ip and ip:data(packet_tcp)
  if not tcp then return is_cut(eth) and NF_DROP or XT_CONTINUE end
  -- Without ECN's.
  local flags = tcp:flags():get() & 0x3f
  local fin, syn, rst, ack = flags & 1, flags & 2, flags & 4, flags & 16
  local is_none = flags == 0
  local is_both = syn ~= 0 and (fin ~= 0 or rst ~= 0) or fin ~= 0 and rst ~= 0
  local is_alone = fin ~= 0 and ack == 0
  return (is_none or is_both or is_alone) and NF_DROP or XT_CONTINUE
end

local test = require "test"

local function flags(text) return test.tcp("2001:db8::a", 1000, "2001:db8::1", 80, text) end

function test_scans_are_dropped()
  for _, scan in ipairs { "", "fin", "fin psh urg", "syn fin", "syn rst", "fin rst ack" } do
    test.verdict(NF_DROP, flags(scan))
  end
end

function test_what_connections_send_passes()
  for _, usual in ipairs { "syn", "syn ece cwr", "syn ack", "ack", "psh ack", "fin ack", "rst", "rst ack" } do
    test.verdict(XT_CONTINUE, flags(usual))
  end
end

function test_a_first_fragment_without_the_whole_header_is_dropped()
  local ports = string.pack(">I2I2I4", 1000, 80, 0)
  local packet = test.ip(test.ip_octets("192.0.2.9", "192.0.2.1", 6, ports))
  packet:data(packet_eth):data(packet_ip):mf():set(true)
  test.verdict(NF_DROP, packet)
  local function fragment(header) return test.ip(test.ip_octets("2001:db8::a", "2001:db8::1", 44, test.hex(header) .. ports)) end
  test.verdict(NF_DROP, fragment "0600 0001 00000007")
  test.verdict(NF_DROP, fragment "3c00 0001 00000007 0600 0104 00000000")
  test.verdict(XT_CONTINUE, fragment "0600 0009 00000007") -- a later one
  test.verdict(XT_CONTINUE, fragment "1100 0001 00000007")
end
