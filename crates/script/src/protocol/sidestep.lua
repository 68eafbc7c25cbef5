register_dynamic_protbuf {
  name = "packet_mt6d",
  about = "A datagram of a Sidestep tunnel (protocol version 3), as anybody between the gateways sees it: there is no "
    .. "field that could be read without keys.",
  payload_field = "sealed",
  protocol_fields = { { "sealed", 0, 0 } },
}

register_dynamic_protbuf {
  name = "packet_classic",
  about = "The Destination Options header of the classic profile (docs/classic.md section 6): option is 219 "
    .. "(encryption: cipher and padding) or 204 (a new key); behind 219 there may be 204 as second_option. What follows "
    .. "the header is found through packet_ip6_options.",
  protocol_fields = {
    { "nexthdr", 0, 8, "int" },
    { "hdrlen", 8, 8, "int" },
    { "option", 16, 8, "int" },
    { "option_length", 24, 8, "int" },
    { "cipher", 32, 0, "int" },
    { "padding", 32, 0, "int" },
    { "second_option", 32, 0, "int" },
    { "second_length", 32, 0, "int" },
    { "key_cipher", 32, 0, "int" },
    { "change_time", 32, 0, "int" },
    { "key", 32, 0 },
  },
  get_field_changes = {
    { when = { field = "option", is = { 219 } }, grows = "cipher", by = 4 },
    { when = { field = "option", is = { 219 } }, grows = "padding", by = 4 },
    { when = { field = "option", is = { 219 } }, grows = "second_option", by = 8 },
    { when = { field = "option", is = { 219 } }, grows = "second_length", by = 8 },
    { when = { field = "option", is = { 204 } }, grows = "key_cipher", by = 8 },
    { when = { field = "option", is = { 204 } }, grows = "change_time", by = 32 },
    { when = { field = "option", is = { 204 } }, grows = "key", by = 512 },
    { when = { field = "second_option", is = { 204 } }, grows = "key_cipher", by = 8 },
    { when = { field = "second_option", is = { 204 } }, grows = "change_time", by = 32 },
    { when = { field = "second_option", is = { 204 } }, grows = "key", by = 512 },
  },
}
