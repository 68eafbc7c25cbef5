-- A monitor port: what goes to or comes from a suspect host is copied to MONITOR, where an intrusion detection system or
-- tcpdump listens; the packets themselves go on. Load it at ingress and egress of the interface of the host's network.

local MONITOR = "mon0"
local SUSPECTS = { ["2001:db8::a"] = true, ["192.0.2.10"] = true }

local copies = nf.counter "copies"

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip = eth:data(packet_ip6) or eth:data(packet_ip)
  if ip and (SUSPECTS[ip:saddr():get()] or SUSPECTS[ip:daddr():get()]) then
    nf.mirror(p, MONITOR)
    copies:add(1)
  end
  return XT_CONTINUE
end

local test = require "test"

function test_both_directions_of_a_suspect_are_copied()
  for _, ends in ipairs { { "2001:db8::a", "2001:db8::1" }, { "2001:db8::1", "2001:db8::a" }, { "192.0.2.10", "192.0.2.1" } } do
    local packet = test.udp(ends[1], 1000, ends[2], 53, "hello")
    test.verdict(XT_CONTINUE, packet)
    local copy = test.mirrored()
    test.equal(#copy, 1)
    test.equal(copy[1].interface, MONITOR)
    test.equal(copy[1].frame, packet)
  end
  test.equal(copies:get(), 3)
end

function test_others_are_not()
  test.verdict(XT_CONTINUE, test.udp("2001:db8::b", 1000, "2001:db8::1", 53, "hello"))
  test.equal(#test.mirrored(), 0)
end
