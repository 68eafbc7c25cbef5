register_dynamic_protbuf {
  name = "packet_eth",
  about = "Ethernet II (IEEE 802.3), with up to two VLAN tags (802.1Q, 802.1ad), which are the field vlan.",
  payload_field = "data",
  protocol_fields = {
    { "dmac", 0, 48, "mac" },
    { "smac", 48, 48, "mac" },
    { "vlan", 96, 0 },
    { "type", 96, 16, "int" },
    { "data", 112, 0 },
  },
  has_protocol = { field = "type", [0x0800] = "packet_ip", [0x0806] = "packet_arp", [0x86dd] = "packet_ip6" },
  get_field_changes = {
    { when = { field = "type", is = { 0x8100, 0x88a8 } }, grows = "vlan", by = 32 },
    { when = { field = "type", is = { 0x8100, 0x88a8 } }, grows = "vlan", by = 32 },
  },
}

register_dynamic_protbuf {
  name = "packet_arp",
  about = "ARP for IPv4 over Ethernet (RFC 826). No hook gives it to scripts.",
  protocol_fields = {
    { "htype", 0, 16, "int" },
    { "ptype", 16, 16, "int" },
    { "hlen", 32, 8, "int" },
    { "plen", 40, 8, "int" },
    { "oper", 48, 16, "int" },
    { "sha", 64, 48, "mac" },
    { "spa", 112, 32, "ipv4" },
    { "tha", 144, 48, "mac" },
    { "tpa", 192, 32, "ipv4" },
  },
}
