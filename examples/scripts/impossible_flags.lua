-- Combinations of TCP's flags that no implementation sends: scanners do, to tell systems apart.

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip = eth:data(packet_ip6) or eth:data(packet_ip)
  local tcp = ip and ip:data(packet_tcp)
  if not tcp then return XT_CONTINUE end
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
