-- Every field of every built-in protocol, read from and written into headers that stand here octet by octet as the RFCs
-- draw them. A row is: field, its value, another value, and the octets that the header then has at a place.

local test = require "test"

local function of_hex(text) return text:find("^0x") and test.hex(text:sub(3)) or text end

-- Rows with values in "0x…" are octets.
local function each(protocol, header, rows)
  local octets = test.hex(header)
  for _, row in ipairs(rows) do
    local name, value, other, at, after = table.unpack(row)
    local what = tostring(protocol) .. ":" .. name
    local copy = bytes.copy(octets)
    local view = bytes.to_packet(copy, protocol)
    if not view then error(what .. ": the header is not taken") end
    local field = view[name](view)
    local got = field:get()
    if type(value) == "string" then
      value, other = of_hex(value), of_hex(other)
      got = type(got) == "string" and got or tostring(got)
    end
    test.equal(got, value, what)
    field:set(other)
    after = test.hex(after)
    test.equal(copy, octets:sub(1, at) .. after .. octets:sub(at + #after + 1), what .. ", written")
    nf.log(what)
  end
end

function test_link()
  each(packet_eth, "33330000 0001 0200 0000 00fe 8100 6064 86dd aabb", {
    { "dmac", "33:33:00:00:00:01", "02:00:00:00:00:0A", 0, "02000000000a" },
    { "smac", "02:00:00:00:00:FE", "02:", 6, "02" },
    { "vlan", "0x81006064", "0x81000005", 12, "81000005" },
    { "type", 0x86dd, 0x0800, 16, "0800" },
    { "data", "0xaabb", "0xccdd", 18, "ccdd" },
  })
  each(packet_arp, "0001 0800 06 04 0002 0200000000fe c0000201 02000000000a c0000202", {
    { "htype", 1, 6, 0, "0006" }, { "ptype", 0x800, 0x86dd, 2, "86dd" }, { "hlen", 6, 8, 4, "08" },
    { "plen", 4, 16, 5, "10" }, { "oper", 2, 1, 6, "0001" },
    { "sha", "02:00:00:00:00:FE", "02:00:00:00:00:01", 8, "020000000001" },
    { "spa", "192.0.2.1", "198.51.100.7", 14, "c6336407" },
    { "tha", "02:00:00:00:00:0A", "FF:FF:FF:FF:FF:FF", 18, "ffffffffffff" },
    { "tpa", "192.0.2.2", "10.", 24, "0a" },
  })
  each(packet_mt6d, "0102 0304", { { "sealed", "0x01020304", "0x0a0b0c0d", 0, "0a0b0c0d" } })
end

function test_ipv4()
  each(packet_ip, "46b8 001c 1234 5fff 40 11 abcd c0000201 c6336407 94040000 aabbccdd", {
    { "version", 4, 5, 0, "56" }, { "ihl", 6, 7, 0, "47" }, { "tos", 0xb8, 0x2e, 1, "2e" },
    { "tot_len", 28, 27, 2, "001b" }, { "id", 0x1234, 0x4321, 4, "4321" }, { "df", true, false, 6, "1fff" },
    { "mf", false, true, 6, "7fff" }, { "frag_off", 0x1fff, 0x0801, 6, "4801" }, { "ttl", 64, 1, 8, "01" },
    { "protocol", 17, 6, 9, "06" }, { "check", 0xabcd, 0x1122, 10, "1122" },
    { "saddr", "192.0.2.1", "10.1.2.3", 12, "0a010203" }, { "daddr", "198.51.100.7", "203.0.113.9", 16, "cb007109" },
    { "options", "0x94040000", "0x01010101", 20, "01010101" }, { "data", "0xaabbccdd", "0x01020304", 24, "01020304" },
  })
end

local from, to = "20010db8000000000000000000000001", "20010db8000100000000000000000002"

function test_ipv6()
  each(packet_ip6, "6b8fedcb 0002 11 40" .. from .. to .. "aabb", {
    { "version", 6, 4, 0, "4b" }, { "tclass", 0xb8, 0x2e, 0, "62ef" }, { "flow_label", 0xfedcb, 0x12345, 0, "6b812345" },
    { "payload_len", 2, 1, 4, "0001" }, { "nexthdr", 17, 58, 6, "3a" }, { "hop_limit", 64, 255, 7, "ff" },
    { "saddr", "2001:db8::1", "fe80::1", 8, "fe800000000000000000000000000001" },
    { "daddr", "2001:db8:1::2", "ff02::1", 24, "ff020000000000000000000000000001" },
    { "data", "0xaabb", "0x0102", 40, "0102" },
  })
  each(packet_ip6_options, "2b01 0502 0000 0104 00000000 00000000 aabb", {
    { "nexthdr", 43, 58, 0, "3a" }, { "hdrlen", 1, 0, 1, "00" },
    { "options", "0x0502000001040000000000000000", "0x0502000101040000000000000000", 2, "050200010104" },
    { "data", "0xaabb", "0x0102", 16, "0102" },
  })
  each(packet_ip6_routing, "3a02 0401 00000000" .. to .. "aa", {
    { "nexthdr", 58, 17, 0, "11" }, { "hdrlen", 2, 1, 1, "01" }, { "type", 4, 2, 2, "02" },
    { "segments_left", 1, 0, 3, "00" },
    { "segments", "0x00000000" .. to, "0x00000000" .. from, 4, "00000000" .. from }, { "data", "0xaa", "0x01", 24, "01" },
  })
  each(packet_ip6_fragment, "1100 fff9 12345678 aabb", {
    { "nexthdr", 17, 6, 0, "06" }, { "frag_off", 0x1fff, 1, 2, "0009" }, { "mf", true, false, 2, "fff8" },
    { "id", 0x12345678, 0x87654321, 4, "87654321" }, { "data", "0xaabb", "0x0102", 8, "0102" },
  })
  each(packet_ip6_auth, "0602 0000 12345678 00000009 0a0b0c0d aabb", {
    { "nexthdr", 6, 17, 0, "11" }, { "hdrlen", 2, 1, 1, "01" }, { "spi", 0x12345678, 1, 4, "00000001" },
    { "sequence", 9, 10, 8, "0000000a" }, { "icv", "0x0a0b0c0d", "0x01020304", 12, "01020304" },
    { "data", "0xaabb", "0x0102", 16, "0102" },
  })
end

function test_icmp()
  for _, protocol in ipairs { packet_icmp, packet_icmp6 } do
    each(protocol, "8001 abcd 00010002", {
      { "type", 128, 129, 0, "81" }, { "code", 1, 4, 1, "04" }, { "check", 0xabcd, 0x1234, 2, "1234" },
      { "data", "0x00010002", "0x00030004", 4, "00030004" },
    })
  end
  each(packet_icmp_echo, "1234 0005 aabb", {
    { "id", 0x1234, 1, 0, "0001" }, { "sequence", 5, 6, 2, "0006" }, { "data", "0xaabb", "0x0102", 4, "0102" },
  })
  each(packet_icmp_error, "00000500 60000000", {
    { "parameter", 1280, 1500, 0, "000005dc" }, { "data", "0x60000000", "0x45000000", 4, "45000000" },
  })
end

function test_neighbor_discovery()
  local options = { "options", "0x0101020000000001", "0x0101020000000002", 4, "0101020000000002" }
  local function options_at(at) return { options[1], options[2], options[3], at, options[5] } end
  local link_address = "0101020000000001"
  each(packet_nd_rs, "00000000" .. link_address, { { "reserved", 0, 1, 0, "00000001" }, options_at(4) })
  each(packet_nd_ra, "40 80 0708 00007530 000003e8" .. link_address, {
    { "cur_hop_limit", 64, 255, 0, "ff" }, { "managed", true, false, 1, "00" }, { "other", false, true, 1, "c0" },
    { "router_lifetime", 1800, 0, 2, "0000" }, { "reachable_time", 30000, 1, 4, "00000001" },
    { "retrans_timer", 1000, 2, 8, "00000002" }, options_at(12),
  })
  each(packet_nd_ns, "00000000" .. to .. link_address, {
    { "reserved", 0, 1, 0, "00000001" }, { "target", "2001:db8:1::2", "2001:db8::1", 4, from }, options_at(20),
  })
  each(packet_nd_na, "60000000" .. to .. link_address, {
    { "router", false, true, 0, "e0" }, { "solicited", true, false, 0, "20" }, { "override", true, false, 0, "40" },
    { "target", "2001:db8:1::2", "2001:db8::1", 4, from }, options_at(20),
  })
  each(packet_nd_redirect, "00000000" .. to .. from .. link_address, {
    { "reserved", 0, 1, 0, "00000001" }, { "target", "2001:db8:1::2", "2001:db8::1", 4, from },
    { "destination", "2001:db8::1", "2001:db8:1::2", 20, to }, options_at(36),
  })
  each(packet_nd_option, "0302 40c0 00000e10 00000708 00000000 aabb", {
    { "type", 3, 25, 0, "19" }, { "length", 2, 1, 1, "01" },
    { "value", "0x40c000000e100000070800000000", "0x40c000000e100000070900000000", 2, "40c000000e1000000709" },
    { "rest", "0xaabb", "0x0102", 16, "0102" },
  })
end

function test_transport()
  each(packet_udp, "1234 0035 000a abcd aabb ff", {
    { "sport", 0x1234, 1, 0, "0001" }, { "dport", 53, 5353, 2, "14e9" }, { "len", 10, 9, 4, "0009" },
    { "check", 0xabcd, 0, 6, "0000" }, { "data", "0xaabb", "0x0102", 8, "0102" },
  })
  each(packet_tcp, "1234 01bb 00000001 00000002 60 52 1000 abcd 0007 020405b4 aabb", {
    { "sport", 0x1234, 1, 0, "0001" }, { "dport", 443, 80, 2, "0050" }, { "seq", 1, 0xffffffff, 4, "ffffffff" },
    { "ack_seq", 2, 3, 8, "00000003" }, { "doff", 6, 5, 12, "50" }, { "cwr", false, true, 13, "d2" },
    { "ece", true, false, 13, "12" }, { "urg", false, true, 13, "72" }, { "ack", true, false, 13, "42" },
    { "psh", false, true, 13, "5a" }, { "rst", false, true, 13, "56" }, { "syn", true, false, 13, "50" },
    { "fin", false, true, 13, "53" }, { "flags", 0x52, 0x10, 13, "10" }, { "window", 4096, 65535, 14, "ffff" },
    { "check", 0xabcd, 1, 16, "0001" }, { "urg_ptr", 7, 8, 18, "0008" },
    { "options", "0x020405b4", "0x01010101", 20, "01010101" }, { "data", "0xaabb", "0x0102", 24, "0102" },
  })
  each(packet_tcp_option, "0204 05b4 0101", {
    { "kind", 2, 5, 0, "05" }, { "length", 4, 3, 1, "03" }, { "value", "0x05b4", "0x0218", 2, "0218" },
    { "rest", "0x0101", "0x0000", 4, "0000" },
  })
end

local function in_hex(text) return (text:gsub(".", function(octet) return ("%02x"):format(octet:byte()) end)) end

function test_application()
  each(packet_dns, "1234 ad83 0001 0002 0003 0004" .. "076578616d706c6503 6f7267 00" .. "001c 0001 c00c", {
    { "id", 0x1234, 1, 0, "0001" }, { "qr", true, false, 2, "2d" }, { "opcode", 5, 0, 2, "85" },
    { "aa", true, false, 2, "a9" }, { "tc", false, true, 2, "af" }, { "rd", true, false, 2, "ac" },
    { "ra", true, false, 3, "03" }, { "rcode", 3, 5, 3, "85" }, { "qdcount", 1, 5, 4, "0005" },
    { "ancount", 2, 6, 6, "0006" }, { "nscount", 3, 7, 8, "0007" }, { "arcount", 4, 8, 10, "0008" },
    { "qname", "\7example\3org\0", "\7exAmple\3ORG\0", 12, "076578416d706c6503 4f5247 00" },
    { "qtype", 28, 1, 25, "0001" }, { "qclass", 1, 255, 27, "00ff" }, { "answers", "0xc00c", "0xc00d", 29, "c00d" },
  })
  each(packet_tftp, "0001 626f6f74 00 6f6374657400", {
    { "opcode", 1, 2, 0, "0002" }, { "filename", "boot", "root", 2, in_hex "root" },
  })
  each(packet_tftp, "0003 0102 aabb", { { "number", 0x102, 1, 2, "0001" }, { "data", "0xaabb", "0x0102", 4, "0102" } })
  local extension = "0000 0010 000e 00 000b 6578616d706c652e6f7267"
  local hello = "0303" .. ("61"):rep(32) .. "00" .. "0002 1301" .. "0100" .. "0014" .. extension
  each(packet_tls, "16 0301 0043 01 00003f" .. hello, {
    { "type", 22, 23, 0, "17" }, { "version", 0x301, 0x303, 1, "0303" }, { "length", 67, 66, 3, "0042" },
    { "handshake", 1, 2, 5, "02" }, { "server_name", "example.org", "example.net", 61, in_hex "example.net" },
    { "data", "0x0100003f" .. hello:gsub(" ", ""), "0x0200003f" .. hello:gsub(" ", ""), 5, "02" },
  })
  local head = "Host: a.example\r\nUser-Agent: x/1\r\nContent-Type: text/a\r\nContent-Length: 4\r\nConnection: close"
  each(packet_http, in_hex("GET /a HTTP/1.1\r\n" .. head .. "\r\n\r\nbody"), {
    { "method", "GET", "PUT", 0, in_hex "PUT" }, { "uri", "/a", "/b", 4, in_hex "/b" },
    { "version", "HTTP/1.1", "HTTP/1.0", 7, in_hex "HTTP/1.0" }, { "host", "a.example", "b.example", 23, in_hex "b.example" },
    { "user_agent", "x/1", "y/2", 46, in_hex "y/2" }, { "content_type", "text/a", "text/b", 65, in_hex "text/b" },
    { "content_length", "4", "3", 89, in_hex "3" }, { "connection", "close", "Close", 104, in_hex "Close" },
    { "headers", head, head:lower(), 17, in_hex(head:lower()) }, { "body", "body", "BODY", 113, in_hex "BODY" },
  })
  each(packet_http, in_hex "HTTP/1.1 404 Not Found\r\n\r\n", {
    { "status", "404", "403", 9, in_hex "403" }, { "reason", "Not Found", "not found", 13, in_hex "not found" },
  })
end

function test_classic()
  local key = ("6b"):rep(64)
  each(packet_classic, "3a12 db02 2c cc 45" .. "03 00015180" .. key, {
    { "nexthdr", 58, 17, 0, "11" }, { "hdrlen", 0x12, 1, 1, "01" }, { "option", 219, 204, 2, "cc" },
    { "option_length", 2, 3, 3, "03" }, { "cipher", 2, 1, 4, "1c" }, { "padding", 12, 3, 4, "23" },
    { "second_option", 204, 0, 5, "00" }, { "second_length", 0x45, 0x44, 6, "44" }, { "key_cipher", 3, 2, 7, "02" },
    { "change_time", 86400, 1, 8, "00000001" }, { "key", "0x" .. key, "0x" .. ("6c"):rep(64), 12, ("6c"):rep(64) },
  })
end
