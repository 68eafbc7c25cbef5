-- The gateway's IPv6 address is claimed by the gateway alone: who says in neighbor discovery that he has it, and has another
-- MAC address, is dropped. At ingress of an interface, in the kernel, where frames have their addresses.
--
-- IPv4 addresses are claimed by ARP, which is not IP and so comes to no script. That takes a rule of nftables at ingress of the
-- interface: `arp saddr ip 192.0.2.1 arp saddr ether != 02:00:00:00:00:01 drop`.

local GATEWAY, MAC = "fe80::1", "02:00:00:00:00:01"

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip = eth:data(packet_ip6)
  local icmp = ip and ip:data(packet_icmp6)
  if not icmp or icmp:type():get() ~= 136 then return XT_CONTINUE end
  local claim = icmp:data(packet_nd_na)
  if claim and claim:target():get() == GATEWAY and eth:smac():get() ~= MAC then return NF_DROP end
  return XT_CONTINUE
end

local test = require "test"

local function advertisement(mac, target)
  local icmp = test.hex("88000000 20000000" .. target)
  return test.frame(test.hex("333300000001" .. mac .. "86dd") .. test.ip_octets("fe80::2", "ff02::1", 58, icmp))
end

function test_another_that_claims_it_is_dropped()
  test.verdict(NF_DROP, advertisement("020000000066", "fe800000000000000000000000000001"))
end

function test_the_gateway_and_others_addresses_pass()
  test.verdict(XT_CONTINUE, advertisement("020000000001", "fe800000000000000000000000000001"))
  test.verdict(XT_CONTINUE, advertisement("020000000066", "fe800000000000000000000000000007"))
end
