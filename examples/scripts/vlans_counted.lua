-- Frames and octets of each VLAN, of a trunk's interface. At ingress, in the kernel; 0: without a tag.

local frames = nf.table { name = "vlan frames", key = "int", limit = 4096 }
local octets = nf.table { name = "vlan octets", key = "int", limit = 4096 }

function process_packet(p)
  local vlan = p:vlan_id() or 0
  frames:add(vlan, 1)
  octets:add(vlan, #p)
  return XT_CONTINUE
end

local test = require "test"

local function frame(tag)
  return test.frame(test.hex("020000000001 020000000002" .. tag .. "86dd") .. test.ip_octets("2001:db8::a", "2001:db8::1", 59, ""))
end

function test_each_vlan_has_its_count()
  for _ = 1, 2 do test.run(frame "8100 6007") end
  test.run(frame "")
  test.equal(frames:get(7), 2)
  test.equal(frames:get(0), 1)
  test.equal(octets:get(7), 2 * 58)
end
