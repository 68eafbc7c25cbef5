-- Queries for names of a list, and for names below them, go nowhere.

local BLOCKED = { ["ads.example"] = true, ["tracker.example.net"] = true }

local function is_blocked(name)
  while name do
    if BLOCKED[name] then return true end
    name = name:match("^[^.]*%.(.*)$")
  end
  return false
end

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip = eth:data(packet_ip) or eth:data(packet_ip6)
  local udp = ip and ip:data(packet_udp)
  if not udp or udp:dport():get() ~= 53 then return XT_CONTINUE end
  local query = udp:data(packet_dns)
  local name = query and dns.name(query)
  if name and is_blocked(name) then return NF_DROP end
  return XT_CONTINUE
end

local test = require "test"

local function query(name)
  local question = name:gsub("([^.]+)%.?", function(label) return string.char(#label) .. label end)
  return test.udp("10.0.0.2", 5000, "10.0.0.1", 53, test.hex "1234 0100 0001 0000 0000 0000" .. question .. "\0\0\1\0\1")
end

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
