-- The gateway's address is claimed by the gateway alone: who says in ARP or neighbor discovery that he has it, and has another
-- MAC address, is dropped. At ingress of an interface, in the kernel, where frames have their addresses.

local GATEWAY4, GATEWAY6, MAC = "192.0.2.1", "fe80::1", "02:00:00:00:00:01"

function process_packet(p)
  local eth = p:data(packet_eth)
  local arp = eth:data(packet_arp)
  if arp then
    return arp:spa():get() == GATEWAY4 and arp:sha():get() ~= MAC and NF_DROP or XT_CONTINUE
  end
  local ip = eth:data(packet_ip6)
  local icmp = ip and ip:data(packet_icmp6)
  if not icmp or icmp:type():get() ~= 136 then return XT_CONTINUE end
  local claim = icmp:data(packet_nd_na)
  if claim and claim:target():get() == GATEWAY6 and eth:smac():get() ~= MAC then return NF_DROP end
  return XT_CONTINUE
end

local test = require "test"

local function arp(mac, address)
  return test.frame(test.hex("ffffffffffff" .. mac .. "0806 0001 0800 06 04 0002" .. mac .. address .. "ffffffffffff c0000209"))
end

local function advertisement(mac, target)
  local icmp = test.hex("88000000 20000000" .. target)
  return test.frame(test.hex("333300000001" .. mac .. "86dd") .. test.ip_octets("fe80::2", "ff02::1", 58, icmp))
end

function test_another_that_claims_it_is_dropped()
  test.verdict(NF_DROP, arp("020000000066", "c0000201"))
  test.verdict(NF_DROP, advertisement("020000000066", "fe800000000000000000000000000001"))
end

function test_the_gateway_and_others_addresses_pass()
  test.verdict(XT_CONTINUE, arp("020000000001", "c0000201"))
  test.verdict(XT_CONTINUE, arp("020000000066", "c0000207"))
  test.verdict(XT_CONTINUE, advertisement("020000000001", "fe800000000000000000000000000001"))
  test.verdict(XT_CONTINUE, advertisement("020000000066", "fe800000000000000000000000000007"))
end
