//! Errors about outer packets, passed on to whom the inner packet was from (RFC 4213 section 3.4, RFC 2473 section 8).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::checksum::Sum;
use wire::{icmp_error, icmpv4, icmpv6, ipv4, ipv6, protocol};

use super::domain::{is_single_host, is_single_host_ipv4};
use super::encapsulate::PROTOCOL_IPV4;
use super::{Endpoint, Kind};

/// What an error says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorReport {
    /// The largest inner packet that gets to this end, if that is what it says; never below [`Kind::min_mtu`].
    pub path_mtu: Option<(IpAddr, u32)>,
    /// The error for the sender of the inner packet, if enough of it was quoted.
    pub answer: Option<Vec<u8>>,
}

/// An error, in terms of both versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The inner packet must not be larger than this.
    TooBig(u32),
    /// It does not get there.
    Unreachable,
}

impl Endpoint {
    /// An ICMP message, from its IP header on, that came for this host. `from` is an address of ours to answer from, of
    /// the inner version. None if it is no error about a packet of this tunnel.
    #[must_use]
    pub fn handle_icmp_error(&self, packet: &[u8], from: IpAddr) -> Option<ErrorReport> {
        match (self.local, from) {
            (IpAddr::V4(local), IpAddr::V6(from)) => self.handle_icmpv4(packet, local, from),
            (IpAddr::V6(local), IpAddr::V4(from)) => self.handle_icmpv6(packet, local, from),
            _ => None,
        }
    }

    fn handle_icmpv4(&self, packet: &[u8], local: Ipv4Addr, from: Ipv6Addr) -> Option<ErrorReport> {
        let packet = ipv4::Packet::parse(packet).ok()?;
        if packet.protocol() != protocol::ICMPV4 || packet.destination() != local || packet.is_fragment() {
            return None;
        }
        let message = icmpv4::Message::parse(packet.payload()).ok()?;
        if !Sum::of(packet.payload()).is_valid() {
            return None;
        }
        let cause = match (message.message_type(), message.code()) {
            (icmpv4::DESTINATION_UNREACHABLE, icmpv4::code::FRAGMENTATION_NEEDED) => {
                // Routers before RFC 1191 say nothing.
                let mtu = (message.body() & 0xffff).saturating_sub(self.kind.overhead());
                Cause::TooBig(mtu.max(self.kind.min_mtu()))
            }
            (icmpv4::DESTINATION_UNREACHABLE, _) | (icmpv4::TIME_EXCEEDED, 0) => Cause::Unreachable,
            _ => return None,
        };
        // Of the quoted packet there may be no more than 8 bytes behind the header (RFC 792).
        let quoted = message.payload();
        let header = quoted.get(..ipv4::HEADER_LEN)?;
        let header_len = usize::from(header[0] & 0xf) * 4;
        let address = |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
        if header[0] >> 4 != 4 || header[9] != protocol::IPV6 || address(12) != local {
            return None;
        }
        let end = address(16);
        if let Kind::SixInFour { remote } = self.kind
            && remote != end
        {
            return None;
        }
        let inner = quoted.get(header_len..).unwrap_or_default();
        let answer = self.answer_ipv6(inner, cause, from);
        // 6to4 and 6rd have sent nothing that they would not send: what is quoted says to whom.
        if matches!(self.kind, Kind::Automatic(_)) && answer.is_none() {
            return None;
        }
        Some(ErrorReport { path_mtu: cause.path_mtu(end.into()), answer })
    }

    /// The error for whoever sent this inner packet, of which the end may be missing.
    fn answer_ipv6(&self, inner: &[u8], cause: Cause, from: Ipv6Addr) -> Option<Vec<u8>> {
        let header = inner.first_chunk::<{ ipv6::HEADER_LEN }>()?;
        let address =
            |at: usize| Ipv6Addr::from_bits(u128::from_be_bytes(std::array::from_fn(|i| header[at + i])));
        let (source, destination) = (address(8), address(24));
        let ours = match self.kind {
            Kind::Automatic(_) => {
                self.is_relay() || self.local_prefixes.iter().any(|own| own.contains(&source))
            }
            _ => true,
        };
        if header[0] >> 4 != 6 || !ours || !is_single_host(source) || destination.is_multicast() {
            return None;
        }
        // No error about an error (RFC 4443 section 2.4 e).
        let upper = ipv6::upper_layer(header[6], &inner[ipv6::HEADER_LEN..]).ok()?;
        let kind = inner.get(ipv6::HEADER_LEN + upper.offset);
        if upper.protocol == protocol::ICMPV6
            && (upper.is_later_fragment() || kind.is_none_or(|kind| *kind < 128))
        {
            return None;
        }
        let (kind, code, body) = match cause {
            Cause::TooBig(mtu) => (icmpv6::PACKET_TOO_BIG, 0, mtu),
            Cause::Unreachable => (icmpv6::DESTINATION_UNREACHABLE, icmpv6::code::ADDRESS_UNREACHABLE, 0),
        };
        let quote = &inner[..inner.len().min(icmp_error::MAX_LEN - ipv6::HEADER_LEN - icmpv6::HEADER_LEN)];
        let mut message = [&[kind, code, 0, 0][..], &body.to_be_bytes(), quote].concat();
        let sum = Sum::pseudo_ipv6(from, source, message.len() as u32, protocol::ICMPV6) + Sum::of(&message);
        message[2..4].copy_from_slice(&sum.checksum().to_be_bytes());
        let header = ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            payload_length: message.len() as u16,
            next_header: protocol::ICMPV6,
            hop_limit: 64,
            source: from,
            destination: source,
        };
        Some([&header.to_bytes()[..], &message].concat())
    }

    fn handle_icmpv6(&self, packet: &[u8], local: Ipv6Addr, from: Ipv4Addr) -> Option<ErrorReport> {
        let packet = ipv6::Packet::parse(packet).ok()?;
        if packet.next_header() != protocol::ICMPV6 || packet.destination() != local {
            return None;
        }
        let bytes = packet.payload();
        let [kind, _, _, _, body @ ..] = bytes else { return None };
        let (body, quoted) = body.split_first_chunk::<4>()?;
        if !(packet.pseudo_header(bytes.len() as u32, protocol::ICMPV6) + Sum::of(bytes)).is_valid() {
            return None;
        }
        let cause = match *kind {
            icmpv6::PACKET_TOO_BIG => {
                let mtu = u32::from_be_bytes(*body).saturating_sub(self.kind.overhead());
                Cause::TooBig(mtu.max(self.kind.min_mtu()))
            }
            icmpv6::DESTINATION_UNREACHABLE | icmpv6::TIME_EXCEEDED => Cause::Unreachable,
            _ => return None,
        };
        let (header, inner) = quoted.split_first_chunk::<{ ipv6::HEADER_LEN }>()?;
        let address =
            |at: usize| Ipv6Addr::from_bits(u128::from_be_bytes(std::array::from_fn(|i| header[at + i])));
        if header[0] >> 4 != 6 || address(8) != local {
            return None;
        }
        let remote = match self.kind {
            Kind::FourInSix { remote: Some(remote) }
                if header[6] == PROTOCOL_IPV4 && address(24) == remote =>
            {
                remote
            }
            // The program translates the error itself. What is narrow behind the provider's translator is so for one destination.
            Kind::Clat { plat: Some(plat) } if plat.has(address(24)) && !plat.has(packet.source()) => {
                return Some(ErrorReport { path_mtu: cause.path_mtu(address(24).into()), answer: None });
            }
            _ => return None,
        };
        Some(ErrorReport { path_mtu: cause.path_mtu(remote.into()), answer: answer_ipv4(inner, cause, from) })
    }
}

impl Cause {
    fn path_mtu(self, end: IpAddr) -> Option<(IpAddr, u32)> {
        match self {
            Cause::TooBig(mtu) => Some((end, mtu)),
            Cause::Unreachable => None,
        }
    }
}

/// Of an IPv4 error, header and quotation (RFC 1812 section 4.3.2.3).
const MOST_IPV4: usize = 576;

fn answer_ipv4(inner: &[u8], cause: Cause, from: Ipv4Addr) -> Option<Vec<u8>> {
    let header = inner.first_chunk::<{ ipv4::HEADER_LEN }>()?;
    let header_len = usize::from(header[0] & 0xf) * 4;
    let source = Ipv4Addr::new(header[12], header[13], header[14], header[15]);
    let field = u16::from_be_bytes([header[6], header[7]]);
    if header[0] >> 4 != 4 || !is_single_host_ipv4(source) || field & 0x1fff != 0 {
        return None;
    }
    if header[9] == protocol::ICMPV4
        && inner
            .get(header_len)
            .is_none_or(|kind| !matches!(*kind, icmpv4::ECHO_REPLY | icmpv4::ECHO_REQUEST))
    {
        return None;
    }
    let (kind, code, body) = match cause {
        // One that may be cut is cut the next time: the tunnel's device has the path's MTU then.
        Cause::TooBig(_) if field & ipv4::DONT_FRAGMENT == 0 => return None,
        Cause::TooBig(mtu) => {
            (icmpv4::DESTINATION_UNREACHABLE, icmpv4::code::FRAGMENTATION_NEEDED, mtu.min(0xffff))
        }
        Cause::Unreachable => (icmpv4::DESTINATION_UNREACHABLE, icmpv4::code::HOST_UNREACHABLE, 0),
    };
    let quote = &inner[..inner.len().min(MOST_IPV4 - ipv4::HEADER_LEN - icmpv4::HEADER_LEN)];
    let mut message = [&[kind, code, 0, 0][..], &body.to_be_bytes(), quote].concat();
    let sum = Sum::of(&message).checksum();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let header = ipv4::Header {
        type_of_service: 0xc0,
        total_length: (ipv4::HEADER_LEN + message.len()) as u16,
        identification: 0,
        dont_fragment: true,
        time_to_live: 64,
        protocol: protocol::ICMPV4,
        source: from,
        destination: source,
    };
    Some([&header.to_bytes()[..], &message].concat())
}
