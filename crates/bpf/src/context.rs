//! Where things are in `struct __sk_buff`, the context of `socket_filter` and `sched_cls` programs. All are 4 bytes.

/// Length of the packet with all its fragments, and at an interface with a link header with that.
pub const LEN: i16 = 0;
/// Whom its link address is for: 0, this host.
pub const PACKET_TYPE: i16 = 4;
/// Mark of the packet.
pub const MARK: i16 = 8;
/// EtherType, in network byte order.
pub const PROTOCOL: i16 = 16;
/// Whether there is a VLAN tag beside the packet.
pub const VLAN_PRESENT: i16 = 20;
/// That tag: priority, and in the low 12 bits the VLAN, 0 for none.
pub const VLAN_TCI: i16 = 24;
/// The interface that the packet came in by, 0 for one of this host.
pub const INGRESS_INTERFACE: i16 = 36;
/// The interface that it is at.
pub const INTERFACE: i16 = 40;
/// Where the packet begins; loaded, it is a pointer.
pub const DATA: i16 = 76;
/// And where that ends which can be read there.
pub const DATA_END: i16 = 80;
/// Segments of a GSO packet, 0 of others.
pub const GSO_SEGMENTS: i16 = 164;
/// Payload of each of them, in bytes; 0 of packets that are none.
pub const GSO_SIZE: i16 = 176;
