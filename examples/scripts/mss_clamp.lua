-- TCP's segments fit a path of MTU octets, whatever the ends think: the option of each SYN says no more. At an interface, or at the
-- tunnel's device.

local MTU = 1280

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip6, ip4 = eth:data(packet_ip6), eth:data(packet_ip)
  local ip = ip6 or ip4
  local tcp = ip and ip:data(packet_tcp)
  if not tcp or not tcp:syn():get() then return XT_CONTINUE end
  local most = ip6 and MTU - 60 or MTU - 40
  local options = tcp:options():get()
  local at, found = 0, -1
  -- A SYN has six options and some padding; one with more is not clamped.
  for _ = 1, 10 do
    if at + 4 > #options then break end
    local kind = options[at]
    if kind == 2 then found = at end
    if kind == 0 or kind == 2 then break end
    at = kind == 1 and at + 1 or at + math.max(options[at + 1], 2)
  end
  if found >= 0 and options[found + 2] << 8 | options[found + 3] > most then
    options[found + 2] = most >> 8
    options[found + 3] = most & 255
  end
  return XT_CONTINUE
end

local test = require "test"

local function syn(from, to, options)
  local header = string.pack(">I2I2I4I4I1I1I2I2I2", 1000, 80, 1, 0, (20 + #options) // 4 << 4, 2, 65535, 0, 0)
  return test.ip(test.ip_octets(from, to, 6, header .. options))
end

local function mss_of(packet, protocol)
  local options = packet:data(packet_eth):data(protocol):data(packet_tcp):options()
  local octets = tostring(options:get())
  return string.unpack(">I2", octets, octets:find("\2\4", 1, true) + 2)
end

function test_it_is_clamped_behind_other_options()
  local packet = syn("2001:db8::a", "2001:db8::1", test.hex "0101 080a 0000000000000000 0204 05b4")
  test.verdict(XT_CONTINUE, packet)
  test.equal(mss_of(packet, packet_ip6), MTU - 60)
  test.checksums(packet)
end

function test_less_is_left_and_ipv4_has_more_room()
  local packet = syn("2001:db8::a", "2001:db8::1", test.hex "0204 0200")
  test.run(packet)
  test.equal(mss_of(packet, packet_ip6), 512)
  packet = syn("192.0.2.1", "192.0.2.2", test.hex "0204 05b4")
  test.run(packet)
  test.equal(mss_of(packet, packet_ip), MTU - 40)
end

function test_options_that_are_none_do_no_harm()
  for _, options in ipairs { "0300 0000", "fe01 0204", "00000204", "0204 05" .. "00" } do
    test.verdict(XT_CONTINUE, syn("2001:db8::a", "2001:db8::1", test.hex(options)))
  end
end
