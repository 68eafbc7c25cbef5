register_dynamic_protbuf {
  name = "packet_icmp",
  about = "ICMP (RFC 792).",
  payload_field = "data",
  protocol_fields = {
    { "type", 0, 8, "int" },
    { "code", 8, 8, "int" },
    { "check", 16, 16, "int" },
    { "data", 32, 0 },
  },
  has_protocol = {
    field = "type", [0] = "packet_icmp_echo", [8] = "packet_icmp_echo",
    [3] = "packet_icmp_error", [5] = "packet_icmp_error", [11] = "packet_icmp_error", [12] = "packet_icmp_error",
  },
}

register_dynamic_protbuf {
  name = "packet_icmp6",
  about = "ICMPv6 (RFC 4443).",
  payload_field = "data",
  protocol_fields = {
    { "type", 0, 8, "int" },
    { "code", 8, 8, "int" },
    { "check", 16, 16, "int" },
    { "data", 32, 0 },
  },
  has_protocol = {
    field = "type", [1] = "packet_icmp_error", [2] = "packet_icmp_error", [3] = "packet_icmp_error",
    [4] = "packet_icmp_error", [128] = "packet_icmp_echo", [129] = "packet_icmp_echo", [133] = "packet_nd_rs",
    [134] = "packet_nd_ra", [135] = "packet_nd_ns", [136] = "packet_nd_na", [137] = "packet_nd_redirect",
  },
}

register_dynamic_protbuf {
  name = "packet_icmp_echo",
  about = "Body of an echo request or reply, of both versions of ICMP.",
  payload_field = "data",
  protocol_fields = { { "id", 0, 16, "int" }, { "sequence", 16, 16, "int" }, { "data", 32, 0 } },
}

register_dynamic_protbuf {
  name = "packet_icmp_error",
  about = "Body of an error of both versions of ICMP: parameter is the MTU, a pointer, a gateway or unused by the type; "
    .. "data is the packet that it is about, as far as it is there.",
  payload_field = "data",
  protocol_fields = { { "parameter", 0, 32, "int" }, { "data", 32, 0 } },
  has_protocol = true,
}

register_dynamic_protbuf {
  name = "packet_nd_rs",
  about = "Router Solicitation (RFC 4861 §4.1).",
  payload_field = "options",
  protocol_fields = { { "reserved", 0, 32, "int" }, { "options", 32, 0 } },
  has_protocol = true,
}

register_dynamic_protbuf {
  name = "packet_nd_ra",
  about = "Router Advertisement (RFC 4861 §4.2).",
  payload_field = "options",
  protocol_fields = {
    { "cur_hop_limit", 0, 8, "int" },
    { "managed", 8, 1, "bool" },
    { "other", 9, 1, "bool" },
    { "router_lifetime", 16, 16, "int" },
    { "reachable_time", 32, 32, "int" },
    { "retrans_timer", 64, 32, "int" },
    { "options", 96, 0 },
  },
  has_protocol = true,
}

register_dynamic_protbuf {
  name = "packet_nd_ns",
  about = "Neighbor Solicitation (RFC 4861 §4.3).",
  payload_field = "options",
  protocol_fields = { { "reserved", 0, 32, "int" }, { "target", 32, 128, "ipv6" }, { "options", 160, 0 } },
  has_protocol = true,
}

register_dynamic_protbuf {
  name = "packet_nd_na",
  about = "Neighbor Advertisement (RFC 4861 §4.4).",
  payload_field = "options",
  protocol_fields = {
    { "router", 0, 1, "bool" },
    { "solicited", 1, 1, "bool" },
    { "override", 2, 1, "bool" },
    { "target", 32, 128, "ipv6" },
    { "options", 160, 0 },
  },
  has_protocol = true,
}

register_dynamic_protbuf {
  name = "packet_nd_redirect",
  about = "Redirect (RFC 4861 §4.5).",
  payload_field = "options",
  protocol_fields = {
    { "reserved", 0, 32, "int" }, { "target", 32, 128, "ipv6" }, { "destination", 160, 128, "ipv6" },
    { "options", 288, 0 },
  },
  has_protocol = true,
}

register_dynamic_protbuf {
  name = "packet_nd_option",
  about = "An option of neighbor discovery (RFC 4861 §4.6); data(packet_nd_option) is the next one.",
  payload_field = "rest",
  protocol_fields = {
    { "type", 0, 8, "int" },
    { "length", 8, 8, "int" },
    { "value", 16, 48 },
    { "rest", 64, 0 },
  },
  has_protocol = true,
  get_field_changes = { field = "length", unit = 64, minimum = 64, grows = "value" },
}
