-- Who is new in the network: the first packet of each pair of a MAC address and an address of IPv6. At ingress of an interface,
-- in the kernel.

local seen = nf.table { name = "hosts", key = { "mac", "ipv6" }, limit = 16384, expires = 86400000, when_full = "oldest" }

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip = eth:data(packet_ip6)
  if not ip then return XT_CONTINUE end
  local mac, address = eth:smac():get(), ip:saddr():get()
  if address ~= "::" and not seen:get(mac, address) then nf.log("new:", mac, address) end
  seen:set(mac, address, 1)
  return XT_CONTINUE
end

local test = require "test"

local function from(mac, address)
  return test.frame(test.hex("020000000001" .. mac .. "86dd") .. test.ip_octets(address, "2001:db8::1", 59, ""))
end

function test_each_is_told_once()
  for _ = 1, 2 do
    test.run(from("02000000000a", "2001:db8::a"))
    test.run(from("02000000000b", "2001:db8::b"))
    test.run(from("02000000000b", "::"))
  end
  test.equal(table.concat(test.log(), "; "), "new: 02:00:00:00:00:0A 2001:db8::a; new: 02:00:00:00:00:0B 2001:db8::b")
end

function test_an_address_at_another_card_is_new()
  test.run(from("02000000000a", "2001:db8::a"))
  test.run(from("02000000000b", "2001:db8::a"))
  test.equal(#test.log(), 2)
end
