//! Error packets: what a router tells the sender of a packet that it cannot deliver (RFC 4443, RFC 792,
//! RFC 1812 §4.3.2), complete from the IP header on, quoting as much of that packet as allowed.
//!
//! The rules about when to stay silent are kept here; limiting the rate (RFC 4443 §2.4 f) is the caller's part,
//! as it needs a clock.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::bytes::put_u16;
use crate::checksum::Sum;
use crate::{ParseError, icmpv4, icmpv6, ipv4, ipv6, protocol};

/// Size of the largest error packet: room for any in `out` of [`build`].
pub const MAX_LEN: usize = ipv6::MIN_MTU;
/// Size of the largest IPv4 error packet (RFC 1812 §4.3.2.3).
const MAX_LEN_IPV4: usize = 576;
const HOP_LIMIT: u8 = 64;
/// Precedence of IPv4 errors, internetwork control (RFC 1812 §4.3.2.5).
const TYPE_OF_SERVICE: u8 = 0xc0;

/// What is wrong, in terms of both versions of IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The packet exceeds `mtu`: Packet Too Big, or fragmentation needed.
    PacketTooBig {
        /// Largest IP packet in bytes that would pass. IPv4 can state 65,535 at most.
        mtu: u32,
    },
    /// No route to the destination (IPv4: network unreachable).
    NoRoute,
    /// Policy forbids it.
    AdministrativelyProhibited,
    /// There is a route, but the destination does not answer (IPv4: host unreachable).
    AddressUnreachable,
    /// Nothing listens there.
    PortUnreachable,
    /// Hop limit or time to live used up.
    HopLimitExceeded,
}

/// Why no error may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The packet itself is malformed.
    #[error("malformed packet: {0}")]
    Malformed(#[from] ParseError),
    /// The error's source address is not of the packet's IP version.
    #[error("the source address given is of the other IP version")]
    AddressFamily,
    /// The packet is itself an ICMP error or redirect, or it cannot be told whether it is.
    #[error("never an error about an ICMP error")]
    IcmpError,
    /// The packet's source is not one node: unspecified, multicast, broadcast, loopback.
    #[error("the packet's source is not a single node")]
    Source,
    /// The packet was sent to many.
    #[error("the packet's destination is multicast or broadcast")]
    Destination,
    /// The packet is a fragment other than the first (IPv4).
    #[error("not the first fragment")]
    Fragment,
    /// The buffer does not hold headers and the invoking packet's own header.
    #[error("the buffer is too small")]
    NoSpace,
}

/// Builds the error packet about `invoking`, sent from `source`, in `out`; returns its length.
///
/// `out` should have room for [`MAX_LEN`] bytes; with less, less is quoted. `invoking` is a whole IP packet.
///
/// # Errors
/// When no error may be sent about this packet; see [`Refused`].
pub fn build(reason: Reason, source: IpAddr, invoking: &[u8], out: &mut [u8]) -> Result<usize, Refused> {
    match (invoking.first().map(|first| first >> 4), source) {
        (Some(6), IpAddr::V6(source)) => build_ipv6(reason, source, invoking, out),
        (Some(4), IpAddr::V4(source)) => build_ipv4(reason, source, invoking, out),
        (Some(4 | 6), _) => Err(Refused::AddressFamily),
        (Some(_), _) => Err(ParseError::Version.into()),
        (None, _) => Err(ParseError::Truncated.into()),
    }
}

fn build_ipv6(reason: Reason, source: Ipv6Addr, invoking: &[u8], out: &mut [u8]) -> Result<usize, Refused> {
    let packet = ipv6::Packet::parse(invoking)?;
    if packet.source().is_unspecified() || packet.source().is_loopback() || packet.source().is_multicast() {
        return Err(Refused::Source);
    }
    // Path MTU discovery works for multicast too (RFC 4443 §2.4 e.3).
    if packet.destination().is_multicast() && !matches!(reason, Reason::PacketTooBig { .. }) {
        return Err(Refused::Destination);
    }
    let upper = packet.upper_layer()?;
    if upper.protocol == protocol::ICMPV6 {
        let message_type = invoking[..ipv6::HEADER_LEN + packet.payload().len()].get(upper.offset);
        match message_type {
            Some(128..) if message_type == Some(&icmpv6::REDIRECT) => return Err(Refused::IcmpError),
            Some(128..) if !upper.is_later_fragment() => {}
            _ => return Err(Refused::IcmpError),
        }
    }
    let quote = &invoking[..ipv6::HEADER_LEN + packet.payload().len()];
    let (message_type, code, body) = match reason {
        Reason::PacketTooBig { mtu } => (icmpv6::PACKET_TOO_BIG, 0, mtu),
        Reason::NoRoute => (icmpv6::DESTINATION_UNREACHABLE, icmpv6::code::NO_ROUTE, 0),
        Reason::AdministrativelyProhibited => {
            (icmpv6::DESTINATION_UNREACHABLE, icmpv6::code::ADMINISTRATIVELY_PROHIBITED, 0)
        }
        Reason::AddressUnreachable => (icmpv6::DESTINATION_UNREACHABLE, icmpv6::code::ADDRESS_UNREACHABLE, 0),
        Reason::PortUnreachable => (icmpv6::DESTINATION_UNREACHABLE, icmpv6::code::PORT_UNREACHABLE, 0),
        Reason::HopLimitExceeded => (icmpv6::TIME_EXCEEDED, 0, 0),
    };
    let headers = ipv6::HEADER_LEN + icmpv6::HEADER_LEN;
    let length = (headers + quote.len()).min(MAX_LEN).min(out.len());
    if length < headers + ipv6::HEADER_LEN {
        return Err(Refused::NoSpace);
    }
    let header = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: (length - ipv6::HEADER_LEN) as u16,
        next_header: protocol::ICMPV6,
        hop_limit: HOP_LIMIT,
        source,
        destination: packet.source(),
    };
    out[..ipv6::HEADER_LEN].copy_from_slice(&header.to_bytes());
    let message = &mut out[ipv6::HEADER_LEN..length];
    write_message(message, message_type, code, body, quote);
    let length_sum = message.len() as u32;
    let sum = Sum::pseudo_ipv6(source, packet.source(), length_sum, protocol::ICMPV6) + Sum::of(message);
    put_u16(message, icmpv6::CHECKSUM_OFFSET, sum.checksum());
    Ok(length)
}

fn build_ipv4(reason: Reason, source: Ipv4Addr, invoking: &[u8], out: &mut [u8]) -> Result<usize, Refused> {
    let packet = ipv4::Packet::parse(invoking)?;
    let from = packet.source();
    // 240/4 holds the limited broadcast address; no host of the remainder can be answered either.
    if from.octets()[0] == 0 || from.is_loopback() || from.is_multicast() || from.octets()[0] >= 240 {
        return Err(Refused::Source);
    }
    if packet.destination().is_multicast() || packet.destination().is_broadcast() {
        return Err(Refused::Destination);
    }
    if packet.fragment_offset() != 0 {
        return Err(Refused::Fragment);
    }
    if packet.protocol() == protocol::ICMPV4
        && packet.payload().first().is_none_or(|message_type| icmpv4::is_error(*message_type))
    {
        return Err(Refused::IcmpError);
    }
    let quote = &invoking[..packet.header().len() + packet.payload().len()];
    let (message_type, code, body) = match reason {
        Reason::PacketTooBig { mtu } => {
            (icmpv4::DESTINATION_UNREACHABLE, icmpv4::code::FRAGMENTATION_NEEDED, mtu.min(0xffff))
        }
        Reason::NoRoute => (icmpv4::DESTINATION_UNREACHABLE, icmpv4::code::NETWORK_UNREACHABLE, 0),
        Reason::AdministrativelyProhibited => {
            (icmpv4::DESTINATION_UNREACHABLE, icmpv4::code::ADMINISTRATIVELY_PROHIBITED, 0)
        }
        Reason::AddressUnreachable => (icmpv4::DESTINATION_UNREACHABLE, icmpv4::code::HOST_UNREACHABLE, 0),
        Reason::PortUnreachable => (icmpv4::DESTINATION_UNREACHABLE, icmpv4::code::PORT_UNREACHABLE, 0),
        Reason::HopLimitExceeded => (icmpv4::TIME_EXCEEDED, 0, 0),
    };
    let headers = ipv4::HEADER_LEN + icmpv4::HEADER_LEN;
    let length = (headers + quote.len()).min(MAX_LEN_IPV4).min(out.len());
    if length < headers + packet.header().len() {
        return Err(Refused::NoSpace);
    }
    let header = ipv4::Header {
        type_of_service: TYPE_OF_SERVICE,
        total_length: length as u16,
        identification: 0,
        dont_fragment: true,
        time_to_live: HOP_LIMIT,
        protocol: protocol::ICMPV4,
        source,
        destination: from,
    };
    out[..ipv4::HEADER_LEN].copy_from_slice(&header.to_bytes());
    let message = &mut out[ipv4::HEADER_LEN..length];
    write_message(message, message_type, code, body, quote);
    let checksum = Sum::of(message).checksum();
    put_u16(message, icmpv4::CHECKSUM_OFFSET, checksum);
    Ok(length)
}

/// Fills `message`, cutting the quotation to it; the checksum stays 0.
fn write_message(message: &mut [u8], message_type: u8, code: u8, body: u32, quote: &[u8]) {
    let (header, quoted) = message.split_at_mut(icmpv6::HEADER_LEN);
    header[..4].copy_from_slice(&[message_type, code, 0, 0]);
    header[4..].copy_from_slice(&body.to_be_bytes());
    quoted.copy_from_slice(&quote[..quoted.len()]);
}
