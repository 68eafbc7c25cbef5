-- Which names are asked for, and by whom.

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip = eth:data(packet_ip6) or eth:data(packet_ip)
  local udp = ip and ip:data(packet_udp)
  if not udp or udp:dport():get() ~= 53 then return XT_CONTINUE end
  local query = udp:data(packet_dns)
  if not query or query:qr():get() then return XT_CONTINUE end
  local name = dns.name(query)
  if name then nf.log(ip:saddr():get(), "asks for", name, "type", query:qtype():get()) end
  return XT_CONTINUE
end

local test = require "test"

local function query(from, to, flags)
  local question = "\3www\7example\0" .. string.pack(">I2I2", 28, 1)
  return test.udp(from, 5000, to, 53, test.hex("1234" .. (flags or "0100") .. "0001 0000 0000 0000") .. question)
end

function test_both_versions_are_told()
  test.verdict(XT_CONTINUE, query("2001:db8::a", "2001:db8::53"))
  test.verdict(XT_CONTINUE, query("192.0.2.7", "192.0.2.53"))
  test.equal(table.concat(test.log(), "; "),
    "2001:db8::a asks for www.example type 28; 192.0.2.7 asks for www.example type 28")
end

function test_what_is_no_question_is_not_told()
  test.run(query("2001:db8::a", "2001:db8::53", "8180"))
  test.run(test.udp("2001:db8::a", 5000, "2001:db8::53", 53, "short"))
  test.equal(#test.log(), 0)
end
