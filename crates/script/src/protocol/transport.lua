register_dynamic_protbuf {
  name = "packet_udp",
  about = "UDP (RFC 768). Any protocol may be in it: ports only suggest which.",
  payload_field = "data",
  protocol_fields = {
    { "sport", 0, 16, "int" },
    { "dport", 16, 16, "int" },
    { "len", 32, 16, "int" },
    { "check", 48, 16, "int" },
    { "data", 64, 0 },
  },
  has_protocol = true,
  get_field_changes = { field = "len", unit = 8, ends = true },
}

register_dynamic_protbuf {
  name = "packet_tcp",
  about = "TCP (RFC 9293). Any protocol may be in it: ports only suggest which.",
  payload_field = "data",
  protocol_fields = {
    { "sport", 0, 16, "int" },
    { "dport", 16, 16, "int" },
    { "seq", 32, 32, "int" },
    { "ack_seq", 64, 32, "int" },
    { "doff", 96, 4, "int" },
    { "cwr", 104, 1, "bool" },
    { "ece", 105, 1, "bool" },
    { "urg", 106, 1, "bool" },
    { "ack", 107, 1, "bool" },
    { "psh", 108, 1, "bool" },
    { "rst", 109, 1, "bool" },
    { "syn", 110, 1, "bool" },
    { "fin", 111, 1, "bool" },
    { "flags", 104, 8, "int" },
    { "window", 112, 16, "int" },
    { "check", 128, 16, "int" },
    { "urg_ptr", 144, 16, "int" },
    { "options", 160, 0 },
    { "data", 160, 0 },
  },
  has_protocol = true,
  get_field_changes = { field = "doff", unit = 32, minimum = 160, grows = "options" },
}

register_dynamic_protbuf {
  name = "packet_tcp_option",
  about = "An option of TCP (RFC 9293 §3.1): tcp:options():data(packet_tcp_option) is the first, "
    .. "data(packet_tcp_option) of one the next. Kinds 0, which ends the list, and 1 have no length.",
  payload_field = "rest",
  protocol_fields = {
    { "kind", 0, 8, "int" },
    { "length", 8, 0, "int" },
    { "value", 8, 0 },
    { "rest", 8, 0 },
  },
  has_protocol = true,
  get_field_changes = {
    { when = { field = "kind", is_not = { 0, 1 } }, grows = "length", by = 8 },
    { when = { field = "kind", is_not = { 0, 1 } }, field = "length", unit = 8, minimum = 16, grows = "value" },
  },
}
