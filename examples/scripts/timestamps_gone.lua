-- TCP's timestamps count since a host was started, and tell hosts behind one address apart: the option becomes padding in each
-- SYN, and then neither end uses it (RFC 7323).

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip = eth:data(packet_ip6) or eth:data(packet_ip)
  local tcp = ip and ip:data(packet_tcp)
  if not tcp or not tcp:syn():get() then return XT_CONTINUE end
  local options = tcp:options():get()
  local at, found = 0, -1
  -- A SYN has six options and some padding.
  for _ = 1, 10 do
    if at + 10 > #options then break end
    local kind = options[at]
    if kind == 8 then found = at end
    if kind == 0 or kind == 8 then break end
    at = kind == 1 and at + 1 or at + math.max(options[at + 1], 2)
  end
  if found >= 0 then tcp:options():raw(found, 10):set(1) end
  return XT_CONTINUE
end

local test = require "test"

local function packet(flags, options)
  local header = string.pack(">I2I2I4I4I1I1I2I2I2", 1000, 80, 1, 0, (20 + #options) // 4 << 4, flags, 65535, 0, 0)
  return test.ip(test.ip_octets("2001:db8::a", "2001:db8::1", 6, header .. options))
end

function test_the_option_of_a_syn_is_padding()
  local syn = packet(2, test.hex "0204 05a0 0101 080a 1234567800000000")
  test.verdict(XT_CONTINUE, syn)
  test.equal(syn, packet(2, test.hex "0204 05a0 0101 0101 0101010101010101"))
  test.checksums(syn)
end

function test_of_what_is_under_way_nothing_is_changed()
  local ack = packet(16, test.hex "0101 080a 1234567812345678")
  test.run(ack)
  test.equal(ack, packet(16, test.hex "0101 080a 1234567812345678"))
end
