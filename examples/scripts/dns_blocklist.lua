-- Queries for names of a list, and for names below them, go nowhere, over UDP and TCP. What is asked over UDP the kernel
-- decides.

local BLOCKED = { "ads.example", "tracker.example.net" }

local function is_blocked(name)
  for at = 1, #BLOCKED do
    local blocked = BLOCKED[at]
    if name == blocked or name:sub(-#blocked - 1) == "." .. blocked then return true end
  end
  return false
end

-- A connection may have any number of queries, each split in any way: all are looked at, until there is no room for more.
-- Its client opens another one then.
local function over_tcp(p)
  local stream = p:stream()
  local decided = stream:decided()
  if decided then return decided end
  for _, query in ipairs(dns.messages(stream)) do
    local name = dns.name(query)
    if name and is_blocked(name) then return stream:refuse() end
  end
  local fault = stream:fault()
  if fault == "full" then return stream:refuse() end
  return fault and NF_DROP or XT_CONTINUE
end

-- The first fragment of what may be TCP or UDP: who cuts a query, or the header before it, hides the name from whoever does
-- not put fragments together. In IPv6, extension headers can take the header's place.
local function is_cut(eth)
  local ip4 = eth:data(packet_ip)
  if ip4 then
    local kind = ip4:protocol():get()
    return (kind == 6 or kind == 17) and ip4:mf():get() and ip4:frag_off():get() == 0
  end
  local ip6 = eth:data(packet_ip6)
  local fragment = ip6 and ip6:data(packet_ip6_fragment)
  if not fragment or fragment:frag_off():get() > 0 then return false end
  local kind = fragment:nexthdr():get()
  return kind == 6 or kind == 17 or kind == 0 or kind == 43 or kind == 44 or kind == 51 or kind == 60
end

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip = eth:data(packet_ip) or eth:data(packet_ip6)
  if not ip then return XT_CONTINUE end
  local tcp = ip:data(packet_tcp)
  if tcp then return tcp:dport():get() == 53 and over_tcp(p) or XT_CONTINUE end
  local udp = ip:data(packet_udp)
  if udp and udp:dport():get() ~= 53 then return XT_CONTINUE end
  local query = udp and udp:data(packet_dns)
  local name = query and dns.name(query)
  if name then return is_blocked(name) and NF_DROP or XT_CONTINUE end
  return is_cut(eth) and NF_DROP or XT_CONTINUE
end

local test = require "test"

local function message(name)
  local question = name:gsub("([^.]+)%.?", function(label) return string.char(#label) .. label end)
  return test.hex "1234 0100 0001 0000 0000 0000" .. question .. "\0\0\1\0\1"
end

local function query(name) return test.udp("10.0.0.2", 5000, "10.0.0.1", 53, message(name)) end

function test_names_of_the_list_and_below_are_dropped()
  test.verdict(NF_DROP, query "ads.example")
  test.verdict(NF_DROP, query "cdn.ADS.example")
  test.verdict(NF_DROP, query "a.b.tracker.example.net")
end

function test_other_names_go_on()
  test.verdict(XT_CONTINUE, query "example.net")
  test.verdict(XT_CONTINUE, query "badads.example")
end

function test_what_is_no_query_goes_on()
  test.verdict(XT_CONTINUE, test.udp("10.0.0.2", 5000, "10.0.0.1", 53, "short"))
  test.verdict(XT_CONTINUE, test.udp("10.0.0.2", 5000, "10.0.0.1", 53, ("\255"):rep(40)))
end

function test_queries_of_a_connection_are_found_however_they_are_split()
  local allowed, refused = string.pack(">s2", message "example.net"), string.pack(">s2", message "ads.example")
  for at = 1, #refused - 1 do
    local function segment(flags, octets, seq) return test.tcp("10.0.0.2", at, "10.0.0.1", 53, flags, octets, seq) end
    test.verdict(XT_CONTINUE, segment("syn"))
    test.verdict(XT_CONTINUE, segment("ack", allowed .. refused:sub(1, at), 1))
    test.verdict(NF_DROP, segment("ack", refused:sub(at + 1), 1 + #allowed + at))
    test.verdict(NF_DROP, segment("ack", refused:sub(at + 1), 1 + #allowed + at))
  end
end

function test_fragments_hide_no_name()
  local udp = string.pack(">I2I2I2I2", 5000, 53, 8 + #message "ads.example", 0) .. message "ads.example"
  for _, length in ipairs { 8, 24, #udp } do
    local packet = test.ip(test.ip_octets("10.0.0.2", "10.0.0.1", 17, udp:sub(1, length)))
    packet:data(packet_eth):data(packet_ip):mf():set(true)
    test.verdict(NF_DROP, packet)
    test.verdict(NF_DROP, test.ip(test.ip_octets("2001:db8::a", "2001:db8::1", 44, test.hex "11000001 00000001" .. udp:sub(1, length))))
  end
  local ports = string.pack(">I2I2I4", 5000, 53, 0)
  test.verdict(NF_DROP, test.ip(test.ip_octets("2001:db8::a", "2001:db8::1", 44, test.hex "06000001 00000001" .. ports)))
  test.verdict(NF_DROP, test.ip(test.ip_octets("2001:db8::a", "2001:db8::1", 44, test.hex "3c000001 00000001 1101 010c 00000000")))
  test.verdict(XT_CONTINUE, test.ip(test.ip_octets("2001:db8::a", "2001:db8::1", 44, test.hex "11000009 00000001 00000000")))
end
