register_dynamic_protbuf {
  name = "packet_ip",
  about = "IPv4 (RFC 791). A later fragment holds no protocol but packet_raw.",
  payload_field = "data",
  protocol_fields = {
    { "version", 0, 4, "int" },
    { "ihl", 4, 4, "int" },
    { "tos", 8, 8, "int" },
    { "tot_len", 16, 16, "int" },
    { "id", 32, 16, "int" },
    { "df", 49, 1, "bool" },
    { "mf", 50, 1, "bool" },
    { "frag_off", 51, 13, "int" },
    { "ttl", 64, 8, "int" },
    { "protocol", 72, 8, "int" },
    { "check", 80, 16, "int" },
    { "saddr", 96, 32, "ipv4" },
    { "daddr", 128, 32, "ipv4" },
    { "options", 160, 0 },
    { "data", 160, 0 },
  },
  has_protocol = {
    field = "protocol", when = { field = "frag_off", is = { 0 } },
    [1] = "packet_icmp", [4] = "packet_ip", [6] = "packet_tcp", [17] = "packet_udp", [41] = "packet_ip6",
  },
  get_field_changes = {
    { field = "tot_len", unit = 8, ends = true },
    { field = "ihl", unit = 32, minimum = 160, grows = "options" },
  },
}

local extensions = { "packet_ip6_options", "packet_ip6_routing", "packet_ip6_fragment", "packet_ip6_auth" }

-- What a next header may be: of the fixed header and of each extension header.
local function next_headers(when)
  return {
    field = "nexthdr", when = when, through = extensions,
    [0] = "packet_ip6_options", [4] = "packet_ip", [6] = "packet_tcp", [17] = "packet_udp", [41] = "packet_ip6",
    [43] = "packet_ip6_routing", [44] = "packet_ip6_fragment", [51] = "packet_ip6_auth", [58] = "packet_icmp6",
    [60] = { "packet_ip6_options", "packet_classic" },
  }
end

register_dynamic_protbuf {
  name = "packet_ip6",
  about = "IPv6 (RFC 8200). data(protocol) finds a protocol behind up to eight extension headers; where there are more, it is an error.",
  payload_field = "data",
  protocol_fields = {
    { "version", 0, 4, "int" },
    { "tclass", 4, 8, "int" },
    { "flow_label", 12, 20, "int" },
    { "payload_len", 32, 16, "int" },
    { "nexthdr", 48, 8, "int" },
    { "hop_limit", 56, 8, "int" },
    { "saddr", 64, 128, "ipv6" },
    { "daddr", 192, 128, "ipv6" },
    { "data", 320, 0 },
  },
  has_protocol = next_headers(),
  get_field_changes = { field = "payload_len", unit = 8, plus = 320, ends = true },
}

register_dynamic_protbuf {
  name = "packet_ip6_options",
  about = "Hop-by-Hop Options and Destination Options headers of IPv6 (RFC 8200 §4.3, §4.6).",
  payload_field = "data",
  protocol_fields = {
    { "nexthdr", 0, 8, "int" },
    { "hdrlen", 8, 8, "int" },
    { "options", 16, 48 },
    { "data", 64, 0 },
  },
  has_protocol = next_headers(),
  get_field_changes = { field = "hdrlen", unit = 64, grows = "options" },
}

register_dynamic_protbuf {
  name = "packet_ip6_routing",
  about = "Routing header of IPv6 (RFC 8200 §4.4).",
  payload_field = "data",
  protocol_fields = {
    { "nexthdr", 0, 8, "int" },
    { "hdrlen", 8, 8, "int" },
    { "type", 16, 8, "int" },
    { "segments_left", 24, 8, "int" },
    { "segments", 32, 32 },
    { "data", 64, 0 },
  },
  has_protocol = next_headers(),
  get_field_changes = { field = "hdrlen", unit = 64, grows = "segments" },
}

register_dynamic_protbuf {
  name = "packet_ip6_fragment",
  about = "Fragment header of IPv6 (RFC 8200 §4.5). A later fragment holds no protocol but packet_raw.",
  payload_field = "data",
  protocol_fields = {
    { "nexthdr", 0, 8, "int" },
    { "frag_off", 16, 13, "int" },
    { "mf", 31, 1, "bool" },
    { "id", 32, 32, "int" },
    { "data", 64, 0 },
  },
  has_protocol = next_headers { field = "frag_off", is = { 0 } },
}

register_dynamic_protbuf {
  name = "packet_ip6_auth",
  about = "Authentication Header (RFC 4302).",
  payload_field = "data",
  protocol_fields = {
    { "nexthdr", 0, 8, "int" },
    { "hdrlen", 8, 8, "int" },
    { "spi", 32, 32, "int" },
    { "sequence", 64, 32, "int" },
    { "icv", 96, 0 },
    { "data", 96, 0 },
  },
  has_protocol = next_headers(),
  get_field_changes = { field = "hdrlen", unit = 32, minimum = 32, grows = "icv" },
}
