-- Only network cards of a list may send IP here. At ingress of an interface, in the kernel.
--
-- What is not IP comes to no script: a stranger's ARP passes, and with it claims to have addresses of IPv4.

local KNOWN = { ["02:00:00:00:00:0A"] = true, ["02:00:00:00:00:0B"] = true }
local strangers = nf.table { name = "strange cards", key = "mac", limit = 256, expires = 600000, when_full = "oldest" }

function process_packet(p)
  local mac = p:data(packet_eth):smac():get()
  if KNOWN[mac] then return XT_CONTINUE end
  if not strangers:get(mac) then
    strangers:set(mac, 1)
    nf.log("a card that is not on the list:", mac)
  end
  return NF_DROP
end

local test = require "test"

local function from(mac)
  return test.frame(test.hex("020000000001" .. mac .. "86dd") .. test.ip_octets("2001:db8::a", "2001:db8::1", 59, ""))
end

function test_the_list_decides()
  test.verdict(XT_CONTINUE, from "02000000000a")
  test.verdict(NF_DROP, from "02000000000c")
end

function test_a_stranger_is_told_once()
  test.run(from "02000000000c")
  test.run(from "02000000000c")
  test.equal(table.concat(test.log(), "; "), "a card that is not on the list: 02:00:00:00:00:0C")
end
