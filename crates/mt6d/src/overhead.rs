//! What travelling through the tunnel adds to inner packets, in bytes (docs/protocol.md, "Overhead"). A path MTU less
//! this is the inner MTU.

/// The outer headers, IPv6 and UDP.
pub const OUTER: u16 = 40 + 8;
/// What a datagram has beside its inner part: counter and tag.
pub const SEALED: u16 = 4 + 16;
/// The addresses of an inner IPv6 packet, which are left out where both ends know them.
pub const ADDRESSES: u16 = 32;
/// The first byte and the context that two of the forms begin with.
pub const PREFIX: u16 = 3;

/// An IPv6 packet between the two hosts of a pair of nodes that has one behind each.
pub const ELIDED: u16 = IPV4 - ADDRESSES;
/// An IPv6 packet between addresses that both ends know as a context.
pub const CONTEXT: u16 = ELIDED + PREFIX;
/// An IPv4 packet.
pub const IPV4: u16 = OUTER + SEALED;
/// An IPv6 packet in full: one of the first between two addresses.
pub const FULL: u16 = IPV4 + PREFIX;
