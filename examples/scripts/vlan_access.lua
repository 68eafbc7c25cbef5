-- An access port of VLAN 7 on a trunk, for IPv6: packets of that VLAN lose their tag as they come in (`strip`, at ingress),
-- what leaves gets it (`tag`, at egress), and packets of other VLANs do not come in. In the kernel, at interfaces with a link
-- header.
--
-- It is of no use for IPv4, unless neighbors are known without ARP (`ip neighbor replace`): ARP is not IP, and so comes to no
-- script. That of VLAN 7 keeps its tag, so nobody here hears it; ours leaves without one; and ARP without a tag comes in.
-- IPv6 finds neighbors by ICMPv6. For both there are interfaces of VLANs (`ip link add link eth0 name eth0.7 type vlan id 7`).

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
