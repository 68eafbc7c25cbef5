-- An access port of VLAN 7 on a trunk: frames of that VLAN lose their tag as they come in (`strip`, at ingress), what leaves
-- gets it (`tag`, at egress), and other VLANs do not come in. In the kernel, at interfaces with a link header.

local VLAN = 7

function strip(p)
  if p:vlan_id() ~= VLAN then return NF_DROP end
  p:pop_vlan()
  return XT_CONTINUE
end

function tag(p)
  p:push_vlan(VLAN)
  return XT_CONTINUE
end

local test = require "test"

local function frame(tags)
  return test.frame(test.hex("020000000001 020000000002" .. tags .. "86dd") .. test.ip_octets("2001:db8::a", "2001:db8::1", 59, ""))
end

function test_the_tag_is_gone_and_other_vlans_are_dropped()
  local packet = frame "8100 6007"
  test.verdict(XT_CONTINUE, packet, "strip")
  test.equal(packet, frame "")
  test.verdict(NF_DROP, frame "8100 0008", "strip")
  test.verdict(NF_DROP, frame "", "strip")
end

function test_what_leaves_has_the_tag()
  local packet = frame ""
  test.verdict(XT_CONTINUE, packet, "tag")
  test.equal(packet:vlan_id(), VLAN)
end
