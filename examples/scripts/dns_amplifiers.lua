-- Before a name server of one's own: questions for ANY, which are asked to be answered at length to somebody else, and more
-- than a few questions a second of one source.

local ANY, PER_SECOND = 255, 20
local asked = nf.table { name = "dns asked", key = { "ipv6", "int" }, limit = 65536, expires = 2000, when_full = "oldest" }

function process_packet(p)
  local ip = p:data(packet_eth):data(packet_ip6)
  local udp = ip and ip:data(packet_udp)
  if not udp or udp:dport():get() ~= 53 then return XT_CONTINUE end
  if asked:add(ip:saddr():get(), nf.get_time() // 1000, 1) > PER_SECOND then return NF_DROP end
  local query = udp:data(packet_dns)
  if not query or query:qr():get() then return NF_DROP end
  return query:qtype():get() == ANY and NF_DROP or XT_CONTINUE
end

local test = require "test"

local function query(kind, flags)
  local question = "\7example\0" .. string.pack(">I2I2", kind, 1)
  return test.udp("2001:db8::a", 5000, "2001:db8::53", 53, test.hex("1234" .. (flags or "0100") .. "0001 0000 0000 0000") .. question)
end

function test_any_is_not_answered()
  test.verdict(NF_DROP, query(ANY))
  test.verdict(XT_CONTINUE, query(28))
end

function test_answers_and_rubbish_are_not_questions()
  test.verdict(NF_DROP, query(28, "8180"))
  test.verdict(NF_DROP, test.udp("2001:db8::a", 5000, "2001:db8::53", 53, "short"))
end

function test_a_source_has_its_share_of_each_second()
  for _ = 1, PER_SECOND do test.verdict(XT_CONTINUE, query(28)) end
  test.verdict(NF_DROP, query(28))
  test.advance(1000)
  test.verdict(XT_CONTINUE, query(28))
end
