-- Prefix translation of IPv6 (NPTv6, RFC 6296): two prefixes of one length, each host with its own address on both sides.
--
-- `outbound` belongs where packets leave the inside, `inbound` where they come in. It keeps no state, and leaves transport
-- checksums as they are: a word of the address makes up for the difference of the prefixes. Errors of ICMPv6 have the
-- packet that they are about translated too. An address that has no word to take the difference is dropped (RFC 6296
-- sections 3.4 and 3.5).

INSIDE, OUTSIDE = "fd01:203:405::", "2001:db8:1::"
LENGTH = 48 -- of both prefixes, in bits: a multiple of 16

-- Octets of an address, by way of a header that is nowhere.
local function octets(address)
  local header = bytes.to_packet(bytes.new(40), packet_ip6)
  header:saddr():set(address)
  return header:raw(8, 16):get()
end

local function word(array, at) return array[2 * at] << 8 | array[2 * at + 1] end

-- Sum of one's complement.
local function add(one, other)
  local sum = one + other
  return (sum & 0xffff) + (sum >> 16)
end

local WORDS = LENGTH // 16

local function translation(from, to)
  from, to = octets(from), octets(to)
  local self = { from = {}, to = {}, difference = 0 }
  for at = 0, WORDS - 1 do
    self.from[at], self.to[at] = word(from, at), word(to, at)
    self.difference = add(self.difference, add(self.from[at], ~self.to[at] & 0xffff))
  end
  return self
end

local OUT, IN = translation(INSIDE, OUTSIDE), translation(OUTSIDE, INSIDE)

-- Translates 16 octets of an address; false if it cannot be done. An address with another prefix stays.
local function translate(address, by)
  for at = 0, WORDS - 1 do
    if word(address, at) ~= by.from[at] then return true end
  end
  -- The word behind a prefix of at most 48 bits, or the first of the interface identifier that is not all ones.
  local at = 3
  if WORDS > 3 then
    at = 4
    while at < 8 and word(address, at) == 0xffff do at = at + 1 end
  end
  if at == 8 or word(address, at) == 0xffff then return false end
  local sum = add(word(address, at), by.difference)
  if sum == 0xffff then sum = 0 end
  for place = 0, WORDS - 1 do
    address[2 * place], address[2 * place + 1] = by.to[place] >> 8, by.to[place] & 0xff
  end
  address[2 * at], address[2 * at + 1] = sum >> 8, sum & 0xff
  return true
end

local SOURCE, DESTINATION = 8, 24

local function pass(p, by, place, place_in_error)
  local ip = p:data(packet_eth):data(packet_ip6)
  if not ip then return XT_CONTINUE end
  if not translate(ip:raw(place, 16):get(), by) then return NF_DROP end
  local icmp = ip:data(packet_icmp6)
  local about = icmp and icmp:data(packet_icmp_error)
  local inner = about and about:data(packet_ip6)
  if inner and not translate(inner:raw(place_in_error, 16):get(), by) then return NF_DROP end
  return XT_CONTINUE
end

function outbound(p) return pass(p, OUT, SOURCE, DESTINATION) end

function inbound(p) return pass(p, IN, DESTINATION, SOURCE) end

local test = require "test"

-- RFC 6296 section 3.6: 0xd54f is what makes up for the prefixes.
local inside, outside, peer = "fd01:203:405:1::1234", "2001:db8:1:d550::1234", "2001:db8:f::9"

local function check(packet) return packet:data(packet_eth):data(packet_ip6):data(packet_udp):check():get() end

function test_the_example_of_the_rfc_in_both_directions()
  local out = test.udp(inside, 4000, peer, 53, "query")
  local before = check(out)
  test.verdict(XT_CONTINUE, out, "outbound")
  test.equal(out, test.udp(outside, 4000, peer, 53, "query"))
  test.equal(check(out), before, "the checksum")

  local back = test.udp(peer, 53, outside, 4000, "answer")
  test.verdict(XT_CONTINUE, back, "inbound")
  test.equal(back, test.udp(peer, 53, inside, 4000, "answer"))
end

function test_every_subnet_comes_back_as_it_was()
  for subnet = 0, 0xfffe, 13 do
    local address = ("fd01:203:405:%x::1"):format(subnet)
    local there = test.udp(address, 1, peer, 2)
    test.verdict(XT_CONTINUE, there, "outbound")
    test.checksums(there)
    local outer = there:data(packet_eth):data(packet_ip6):saddr():get()
    local back = test.udp(peer, 2, outer, 1)
    test.verdict(XT_CONTINUE, back, "inbound")
    test.equal(back, test.udp(peer, 2, address, 1), address)
  end
end

function test_the_subnet_of_all_ones_has_no_place_for_the_difference()
  test.verdict(NF_DROP, test.udp("fd01:203:405:ffff::1", 1, peer, 2), "outbound")
end

function test_other_addresses_and_ipv4_go_on_as_they_are()
  local other = test.udp("fd01:203:406:1::1234", 1, peer, 2)
  test.verdict(XT_CONTINUE, other, "outbound")
  test.equal(other, test.udp("fd01:203:406:1::1234", 1, peer, 2))
  test.verdict(XT_CONTINUE, test.udp("10.0.0.1", 1, "10.0.0.2", 2), "outbound")
end

function test_the_packet_within_an_error_is_translated_too()
  local function unreachable(to, from)
    local about = test.ip_octets(from, peer, 17, string.pack(">I2I2I2I2", 4000, 53, 8, 0))
    return test.ip(test.ip_octets("2001:db8:e::1", to, 58, "\1\0\0\0\0\0\0\0" .. about))
  end
  local back = unreachable(outside, outside)
  test.verdict(XT_CONTINUE, back, "inbound")
  test.checksums(back)
  test.equal(back, unreachable(inside, inside))
end
