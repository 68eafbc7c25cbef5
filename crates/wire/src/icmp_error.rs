//! Error packets: what a router tells the sender of a packet that it cannot deliver (RFC 4443, RFC 792,
//! RFC 1812 §4.3.2), complete from the IP header on, quoting as much of that packet as allowed.
//!
//! The rules about when to stay silent are kept here; limiting the rate (RFC 4443 §2.4 f) is the caller's
//! part, as it needs a clock.

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
#[non_exhaustive]
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
    /// Fragments are missing after the time for reassembly.
    ReassemblyTimeExceeded,
    /// A field has a value that makes the packet impossible.
    ErroneousField {
        /// Where the field is in the packet; IPv4 can state 255 at most.
        pointer: u32,
    },
    /// Nobody here knows the protocol (IPv4: protocol unreachable).
    UnrecognizedNextHeader {
        /// Where the field that names it is in the packet.
        pointer: u32,
    },
    /// An option wants packets refused where it is not known (RFC 8200 §4.2). IPv4 has none of these.
    UnrecognizedOption {
        /// Where the option's type is in the packet.
        pointer: u32,
        /// Whether the sender wants to know of it even if the packet was sent to many: the option's type begins with 10.
        even_if_multicast: bool,
    },
    /// A first fragment without all headers, up to the upper layer's (RFC 7112 §5). IPv4 has no such rule.
    IncompleteHeaderChain,
}

/// Why no error may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
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
    // Path MTU discovery works for multicast too, and some options ask for it (RFC 4443 §2.4 e.3).
    let to_many_too = matches!(
        reason,
        Reason::PacketTooBig { .. } | Reason::UnrecognizedOption { even_if_multicast: true, .. }
    );
    if packet.destination().is_multicast() && !to_many_too {
        return Err(Refused::Destination);
    }
    let quote = &invoking[..ipv6::HEADER_LEN + packet.payload().len()];
    let upper = match packet.upper_layer() {
        Ok(upper) => Some(upper),
        // What is not there cannot be looked at, and that is what the sender is to be told.
        Err(_) if reason == Reason::IncompleteHeaderChain => None,
        Err(error) => return Err(error.into()),
    };
    if let Some(upper) = upper.filter(|upper| upper.protocol == protocol::ICMPV6) {
        let is_informational = |message_type: &u8| *message_type >= 128 && *message_type != icmpv6::REDIRECT;
        if upper.is_later_fragment() || !quote.get(upper.offset).is_some_and(is_informational) {
            return Err(Refused::IcmpError);
        }
    }
    let (message_type, code, body) = match reason {
        Reason::PacketTooBig { mtu } => (icmpv6::PACKET_TOO_BIG, 0, mtu),
        Reason::NoRoute => (icmpv6::DESTINATION_UNREACHABLE, icmpv6::code::NO_ROUTE, 0),
        Reason::AdministrativelyProhibited => {
            (icmpv6::DESTINATION_UNREACHABLE, icmpv6::code::ADMINISTRATIVELY_PROHIBITED, 0)
        }
        Reason::AddressUnreachable => (icmpv6::DESTINATION_UNREACHABLE, icmpv6::code::ADDRESS_UNREACHABLE, 0),
        Reason::PortUnreachable => (icmpv6::DESTINATION_UNREACHABLE, icmpv6::code::PORT_UNREACHABLE, 0),
        Reason::HopLimitExceeded => (icmpv6::TIME_EXCEEDED, 0, 0),
        Reason::ReassemblyTimeExceeded => (icmpv6::TIME_EXCEEDED, 1, 0),
        Reason::ErroneousField { pointer } => {
            (icmpv6::PARAMETER_PROBLEM, icmpv6::problem::ERRONEOUS_FIELD, pointer)
        }
        Reason::UnrecognizedNextHeader { pointer } => {
            (icmpv6::PARAMETER_PROBLEM, icmpv6::problem::UNRECOGNIZED_NEXT_HEADER, pointer)
        }
        Reason::UnrecognizedOption { pointer, .. } => {
            (icmpv6::PARAMETER_PROBLEM, icmpv6::problem::UNRECOGNIZED_OPTION, pointer)
        }
        Reason::IncompleteHeaderChain => {
            (icmpv6::PARAMETER_PROBLEM, icmpv6::problem::INCOMPLETE_HEADER_CHAIN, 0)
        }
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
    let message_len = message.len() as u32;
    let sum = Sum::pseudo_ipv6(source, packet.source(), message_len, protocol::ICMPV6) + Sum::of(message);
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
        Reason::ReassemblyTimeExceeded => (icmpv4::TIME_EXCEEDED, 1, 0),
        Reason::ErroneousField { pointer } | Reason::UnrecognizedOption { pointer, .. } => {
            (icmpv4::PARAMETER_PROBLEM, 0, pointer.min(255) << 24)
        }
        Reason::IncompleteHeaderChain => (icmpv4::PARAMETER_PROBLEM, 0, 0),
        Reason::UnrecognizedNextHeader { .. } => {
            (icmpv4::DESTINATION_UNREACHABLE, icmpv4::code::PROTOCOL_UNREACHABLE, 0)
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{Icmpv4Type, Icmpv6Type, IpHeaders, PacketBuilder, PacketHeaders, TransportHeader};
    use proptest::prelude::*;

    const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xfe));
    const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 254));
    const TOO_BIG: Reason = Reason::PacketTooBig { mtu: 1464 };

    fn udp6(payload: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let builder = PacketBuilder::ipv6([0x20; 16], [0x21; 16], 64).udp(1, 2);
        builder.write(&mut bytes, &vec![7; payload]).unwrap();
        bytes
    }

    fn udp4(payload: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let builder = PacketBuilder::ipv4([192, 0, 2, 1], [198, 51, 100, 1], 64).udp(1, 2);
        builder.write(&mut bytes, &vec![7; payload]).unwrap();
        bytes
    }

    fn refused(source: IpAddr, invoking: &[u8], reason: Reason) -> Refused {
        build(reason, source, invoking, &mut [0; MAX_LEN]).unwrap_err()
    }

    #[test]
    fn packet_too_big_quotes_what_fits_the_minimum_mtu() {
        let invoking = udp6(1452);
        let mut out = [0; 2000];
        let length = build(TOO_BIG, V6, &invoking, &mut out).unwrap();
        assert_eq!(length, 1280);
        let headers = PacketHeaders::from_ip_slice(&out[..length]).unwrap();
        let Some(TransportHeader::Icmpv6(icmp)) = headers.transport else { panic!("no ICMPv6") };
        assert_eq!(icmp.icmp_type, Icmpv6Type::PacketTooBig { mtu: 1464 });
        assert_eq!(headers.payload.slice(), &invoking[..1232]);
        let message = icmpv6::Message::of_packet(&ipv6::Packet::parse(&out[..length]).unwrap()).unwrap();
        assert_eq!(message.body(), 1464);
        let Some(etherparse::NetHeaders::Ipv6(ip, _)) = headers.net else { panic!("no IPv6") };
        assert_eq!((IpAddr::from(ip.source), ip.destination), (V6, [0x20; 16]));
    }

    #[test]
    fn fragmentation_needed_quotes_what_fits_576() {
        let invoking = udp4(1452);
        let mut out = [0; MAX_LEN];
        let length = build(TOO_BIG, V4, &invoking, &mut out).unwrap();
        assert_eq!(length, 576);
        let (ip, payload) = IpHeaders::from_ipv4_slice(&out[..length]).unwrap();
        let ip = ip.ipv4().unwrap().0;
        assert_eq!(ip.header_checksum, ip.calc_header_checksum());
        let (icmp, quoted) = etherparse::Icmpv4Header::from_slice(payload.payload).unwrap();
        assert_eq!(
            icmp.icmp_type,
            Icmpv4Type::DestinationUnreachable(
                etherparse::icmpv4::DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: 1464 }
            )
        );
        assert_eq!(icmp.checksum, icmp.icmp_type.calc_checksum(quoted));
        assert_eq!(quoted, &invoking[..548]);
    }

    #[test]
    fn a_short_packet_is_quoted_whole_and_padding_is_not() {
        for (source, mut invoking, headers) in [(V6, udp6(3), 48), (V4, udp4(3), 28)] {
            let stated = invoking.len();
            invoking.extend([0; 9]);
            let mut out = [0; MAX_LEN];
            let length = build(Reason::AddressUnreachable, source, &invoking, &mut out).unwrap();
            assert_eq!(&out[headers..length], &invoking[..stated]);
        }
    }

    #[test]
    fn every_reason_has_its_type_and_code() {
        let mut out = [0; MAX_LEN];
        for (reason, in_ipv6, in_ipv4) in [
            (TOO_BIG, [2, 0], [3, 4]),
            (Reason::NoRoute, [1, 0], [3, 0]),
            (Reason::AdministrativelyProhibited, [1, 1], [3, 13]),
            (Reason::AddressUnreachable, [1, 3], [3, 1]),
            (Reason::PortUnreachable, [1, 4], [3, 3]),
            (Reason::HopLimitExceeded, [3, 0], [11, 0]),
            (Reason::ReassemblyTimeExceeded, [3, 1], [11, 1]),
            (Reason::ErroneousField { pointer: 4 }, [4, 0], [12, 0]),
            (Reason::UnrecognizedNextHeader { pointer: 6 }, [4, 1], [3, 2]),
            (Reason::UnrecognizedOption { pointer: 42, even_if_multicast: false }, [4, 2], [12, 0]),
        ] {
            build(reason, V6, &udp6(1), &mut out).unwrap();
            assert_eq!(out[40..42], in_ipv6, "{reason:?}");
            build(reason, V4, &udp4(1), &mut out).unwrap();
            assert_eq!(out[20..22], in_ipv4, "{reason:?}");
        }
    }

    #[test]
    fn no_error_about_an_error() {
        let mut out = [0; MAX_LEN];
        for (source, invoking) in [(V6, udp6(9)), (V4, udp4(9))] {
            let length = build(Reason::NoRoute, source, &invoking, &mut out).unwrap();
            assert_eq!(refused(source, &out[..length], TOO_BIG), Refused::IcmpError);
        }
        let mut echo = Vec::new();
        PacketBuilder::ipv6([0x20; 16], [0x21; 16], 64)
            .icmpv6_echo_request(1, 2)
            .write(&mut echo, &[])
            .unwrap();
        assert!(build(TOO_BIG, V6, &echo, &mut out).is_ok(), "an echo request is not an error");
        echo[40] = icmpv6::REDIRECT;
        assert_eq!(refused(V6, &echo, TOO_BIG), Refused::IcmpError);
        // A later fragment of an ICMPv6 message may be of an error.
        echo[6] = protocol::FRAGMENT;
        echo[40..44].copy_from_slice(&[protocol::ICMPV6, 0, 0, 8]);
        assert_eq!(refused(V6, &echo, TOO_BIG), Refused::IcmpError);
    }

    #[test]
    fn no_error_to_or_about_many() {
        let mut invoking = udp6(1);
        invoking[24] = 0xff;
        assert_eq!(refused(V6, &invoking, Reason::NoRoute), Refused::Destination);
        assert!(
            build(TOO_BIG, V6, &invoking, &mut [0; MAX_LEN]).is_ok(),
            "path MTU discovery is the exception"
        );
        let option = |even_if_multicast| Reason::UnrecognizedOption { pointer: 42, even_if_multicast };
        assert_eq!(refused(V6, &invoking, option(false)), Refused::Destination);
        assert!(build(option(true), V6, &invoking, &mut [0; MAX_LEN]).is_ok(), "and so are some options");
        invoking[8] = 0xff;
        assert_eq!(refused(V6, &invoking, TOO_BIG), Refused::Source);
        invoking[8..24].fill(0);
        assert_eq!(refused(V6, &invoking, TOO_BIG), Refused::Source);

        for source in [[0, 0, 0, 0], [127, 0, 0, 1], [224, 0, 0, 1], [255; 4]] {
            let mut invoking = udp4(1);
            invoking[12..16].copy_from_slice(&source);
            assert_eq!(refused(V4, &invoking, TOO_BIG), Refused::Source);
        }
        for destination in [[239, 1, 2, 3], [255; 4]] {
            let mut invoking = udp4(1);
            invoking[16..20].copy_from_slice(&destination);
            assert_eq!(refused(V4, &invoking, TOO_BIG), Refused::Destination);
        }
    }

    #[test]
    fn no_error_about_what_cannot_be_answered() {
        let mut fragment = udp4(1);
        fragment[7] = 1;
        assert_eq!(refused(V4, &fragment, TOO_BIG), Refused::Fragment);
        assert_eq!(refused(V4, &udp6(1), TOO_BIG), Refused::AddressFamily);
        assert_eq!(refused(V6, &[], TOO_BIG), Refused::Malformed(ParseError::Truncated));
        assert_eq!(refused(V6, &udp6(1)[..48], TOO_BIG), Refused::Malformed(ParseError::Truncated));
        assert_eq!(refused(V6, &[0x20; 60], TOO_BIG), Refused::Malformed(ParseError::Version));
        assert_eq!(build(TOO_BIG, V6, &udp6(1), &mut [0; 87]), Err(Refused::NoSpace));
        assert_eq!(build(TOO_BIG, V4, &udp4(1), &mut [0; 47]), Err(Refused::NoSpace));
    }

    proptest! {
        #[test]
        fn never_panics(
            mut invoking in proptest::collection::vec(any::<u8>(), 0..100),
            first in prop::sample::select(vec![0x45u8, 0x46, 0x60]),
            room in 0usize..120,
        ) {
            if let Some(byte) = invoking.first_mut() { *byte = first; }
            for source in [V6, V4] {
                let _ = build(TOO_BIG, source, &invoking, &mut vec![0; room]);
            }
        }
    }
}
