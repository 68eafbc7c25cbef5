//! Packet formats: views and builders over byte slices.
//!
//! Here is what is to be known about the shape of a packet: headers, checksums, neighbor discovery, ICMP errors, and
//! the two transformations that let packets cross a program in large pieces. The terms are the kernel's:
//!
//! - A *GSO packet* (generic segmentation offload) is up to 64 KB of a TCP stream, or datagrams of equal size, under one
//!   set of headers, with the size of the segments that it stands for beside it ([`virtio_net`]).
//! - *Segmentation* ([`segment`]) makes these segments of it, each a packet as it leaves a host.
//! - *Coalescing* ([`coalesce`], the kernel's generic receive offload, GRO) is the reverse: of consecutive segments of a
//!   flow that were received it makes a GSO packet.
//!
//! What it does not do: no I/O, no clock, no randomness, no logging.
//!
//! ```
//! use sidestep_wire::{ipv6, protocol, udp};
//!
//! let ip = ipv6::Header {
//!     traffic_class: 0,
//!     flow_label: 0,
//!     payload_length: 12,
//!     next_header: protocol::UDP,
//!     hop_limit: 64,
//!     source: "2001:db8::1".parse()?,
//!     destination: "2001:db8::2".parse()?,
//! };
//! let udp = udp::Header { source_port: 5353, destination_port: 53, length: 12, checksum: 0 };
//! let packet = [&ip.to_bytes()[..], &udp.to_bytes(), b"wire"].concat();
//!
//! let view = ipv6::Packet::parse(&packet)?;
//! assert_eq!((view.destination(), view.next_header()), (ip.destination, protocol::UDP));
//! let datagram = udp::Datagram::parse(view.payload())?;
//! assert_eq!((datagram.destination_port(), datagram.payload()), (53, &b"wire"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Shape
//!
//! One file per protocol, or one folder, the same shape in each. A view (`Packet`, `Segment`, `Datagram`, `Message`,
//! `Frame`) borrows the bytes and is made by `parse`, which checks once that every field that the accessors
//! read is there; the accessors then cannot fail. Headers that we write are plain structs with `to_bytes`.
//!
//! # Allocation
//!
//! Views, headers and segmentation allocate nothing. [`coalesce::Coalescer`] keeps its tables between batches, and stops
//! allocating once it has seen its largest one. What allocates each time is no part of any packet's way: control
//! messages in the form that is kept or sent, since they have any number of options, of any length. These are
//! [`ndp::RouterAdvertisement`] with its packet, [`ndp::with_mtu`], [`ndp::Redirect`], the messages of [`mld`], [`dhcpv6::Builder`], and what
//! [`dhcpv6::Message::delegation`] and [`dhcpv6::Message::remark`] return.
//!
//! # Invariants
//!
//! - No function panics, whatever bytes it is given. Parsers are fuzzed and property-tested for that.
//! - Loops over input are bounded by the input's length, walks over extension headers by
//!   [`ipv6::MAX_EXTENSION_HEADERS`].
//! - A view ends where the packet's own length field says, never behind it: link padding is not payload.
//! - Checksums are verified where a message is believed (neighbor discovery, ICMP) and where coalescing would otherwise
//!   hide damage, and left alone where bytes pass through unchanged.
//!
//! # Modules
//!
//! | module | subject |
//! |---|---|
//! | [`checksum`] | internet checksum, pseudo-headers, incremental update |
//! | [`ethernet`] | frames and MAC addresses |
//! | [`arp`] | who has an IPv4 address |
//! | [`ipv6`], [`ipv4`] | headers, extension headers, the upper-layer protocol |
//! | [`tcp`], [`udp`] | transport headers |
//! | [`icmpv6`], [`icmpv4`] | message headers and types |
//! | [`icmp_error`] | complete error packets about a packet that cannot be delivered |
//! | [`ndp`] | neighbor discovery: solicitations and advertisements of neighbors and routers, redirects, and their options |
//! | [`mld`] | multicast listener discovery, the listener's side |
//! | [`dhcpv6`] | messages and options of prefix delegation |
//! | [`domain_name`] | names of DNS in options |
//! | [`ecn`] | explicit congestion notification, also through tunnels |
//! | [`mss`] | clamping of the TCP maximum segment size |
//! | [`drop_reasons`] | why packets go no further, as each crate declares it |
//! | [`flow`] | addresses and flow hash of a packet |
//! | [`virtio_net`] | the header before each packet of a TUN device with offloads |
//! | [`pcap`], [`pcapng`] | capture files |
//! | [`segment`] | GSO packet → segments |
//! | [`coalesce`] | segments → GSO packets |

#![forbid(unsafe_code)]

pub mod arp;
mod bytes;
pub mod checksum;
pub mod coalesce;
pub mod dhcpv6;
pub mod domain_name;
mod drops;
pub mod ecn;
pub mod ethernet;
pub mod flow;
pub mod icmp_error;
pub mod icmpv4;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
pub mod mld;
pub mod mss;
pub mod ndp;
pub mod pcap;
pub mod pcapng;
pub mod segment;
pub mod tcp;
#[cfg(test)]
mod test_stream;
pub mod udp;
pub mod virtio_net;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// IP protocol numbers (also: IPv6 next-header values) that the crate names.
pub mod protocol {
    /// IPv6 Hop-by-Hop Options (RFC 8200 §4.3).
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP for IPv4 (RFC 792).
    pub const ICMPV4: u8 = 1;
    /// IPv4 inside (RFC 2003).
    pub const IPV4: u8 = 4;
    /// TCP (RFC 9293).
    pub const TCP: u8 = 6;
    /// UDP (RFC 768).
    pub const UDP: u8 = 17;
    /// IPv6 inside (RFC 2473, 6in4).
    pub const IPV6: u8 = 41;
    /// IPv6 Routing header (RFC 8200 §4.4).
    pub const ROUTING: u8 = 43;
    /// IPv6 Fragment header (RFC 8200 §4.5).
    pub const FRAGMENT: u8 = 44;
    /// Encapsulating Security Payload (RFC 4303).
    pub const ESP: u8 = 50;
    /// Authentication Header (RFC 4302).
    pub const AUTHENTICATION: u8 = 51;
    /// ICMPv6 (RFC 4443).
    pub const ICMPV6: u8 = 58;
    /// Nothing follows (RFC 8200 §4.7).
    pub const NO_NEXT_HEADER: u8 = 59;
    /// IPv6 Destination Options (RFC 8200 §4.6).
    pub const DESTINATION_OPTIONS: u8 = 60;
    /// Mobility header (RFC 6275).
    pub const MOBILITY: u8 = 135;
    /// Host Identity Protocol (RFC 7401).
    pub const HIP: u8 = 139;
    /// Shim6 (RFC 5533).
    pub const SHIM6: u8 = 140;
}

/// Why bytes are not the packet that they were taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The bytes end before the header or the stated length does.
    #[error("truncated: the bytes end before the packet does")]
    Truncated,
    /// The version nibble is neither the wanted one nor, where both will do, 4 or 6.
    #[error("wrong IP version")]
    Version,
    /// A length field contradicts itself: shorter than its own header, or zero where that is not allowed.
    #[error("a length field contradicts the packet")]
    Length,
    /// A checksum does not match.
    #[error("wrong checksum")]
    Checksum,
    /// More extension headers than [`ipv6::MAX_EXTENSION_HEADERS`].
    #[error("too many extension headers")]
    ExtensionHeaders,
    /// Well-formed, but not of the protocol or message type that the view is for.
    #[error("another protocol or message type")]
    Type,
    /// A value that receivers must refuse, such as a neighbor discovery hop limit below 255.
    #[error("a field has a value that must be refused")]
    Value,
}
