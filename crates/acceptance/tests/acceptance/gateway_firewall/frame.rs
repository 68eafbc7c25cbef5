//! Frames of packets, each with an identification in its IPv6 flow label or IPv4 identification field.

use std::net::IpAddr;

use router::firewall::service::protocol::{AH, ESP, ICMP, ICMPV6, TCP, UDP};
use router::firewall::{Packet, State};
use wire::checksum::Sum;

/// An Ethernet frame to the first of the addresses.
pub(crate) fn frame(to: [u8; 6], from: [u8; 6], packet: &Packet, id: u16, flow: u16) -> Vec<u8> {
    let upper = upper_layer(packet, flow);
    let mut frame = [&to[..], &from[..]].concat();
    match (packet.source, packet.destination) {
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let (next_header, before) = extension_headers(packet);
            let upper = if packet.incomplete { Vec::new() } else { upper };
            let length = u16::try_from(before.len() + upper.len()).expect("short");
            frame.extend([0x86, 0xdd, 0x60, 0]);
            frame.extend(id.to_be_bytes());
            frame.extend(length.to_be_bytes());
            frame.extend([next_header, packet.hop_limit]);
            frame.extend(source.octets());
            frame.extend(destination.octets());
            frame.extend(before);
            frame.extend(upper);
        }
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let length = u16::try_from(20 + upper.len()).expect("short");
            let mut header = vec![0x45, 0];
            header.extend(length.to_be_bytes());
            header.extend(id.to_be_bytes());
            header.extend([0, 0, packet.hop_limit, packet.protocol, 0, 0]);
            header.extend(source.octets());
            header.extend(destination.octets());
            let checksum = Sum::of(&header).checksum();
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            frame.extend([0x08, 0x00]);
            frame.extend(header);
            frame.extend(upper);
        }
        _ => panic!("two families"),
    }
    frame
}

/// What stands between the IPv6 header and the upper layer, and its type.
fn extension_headers(packet: &Packet) -> (u8, Vec<u8>) {
    if packet.incomplete {
        // The first fragment of a packet whose destination options go on in the second.
        (44, [&[60, 0, 0, 1, 0, 0, 0, 9][..], &[packet.protocol, 3, 1, 4, 0, 0, 0, 0]].concat())
    } else if packet.routing_header_0 {
        (43, vec![packet.protocol, 0, 0, 0, 0, 0, 0, 0])
    } else {
        (packet.protocol, Vec::new())
    }
}

fn upper_layer(packet: &Packet, flow: u16) -> Vec<u8> {
    let (source, destination) = packet.ports;
    let ports = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    let (mut bytes, at) = match packet.protocol {
        TCP => {
            let flags = if packet.state == State::Established { 0x12 } else { 0x02 };
            let rest = [0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 0x20, 0, 0, 0, 0, 0];
            ([&ports[..], &rest].concat(), 16)
        }
        UDP => ([&ports[..], &[0, 12, 0, 0], b"test"].concat(), 6),
        ICMPV6 | ICMP => {
            let [high, low] = flow.to_be_bytes();
            let mut bytes = vec![packet.icmp.0, packet.icmp.1, 0, 0, high, low, 0, 1];
            bytes.extend([0; 48]);
            (bytes, 2)
        }
        // Behind it ESP, as conntrack sees it.
        AH => ([&[ESP, 4][..], &[0; 38]].concat(), 36),
        // Before it answers a packet the kernel wants a right checksum of protocols that it knows nothing of; HIP and
        // mobility headers have it here.
        _ => (vec![0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0], 4),
    };
    let length = u16::try_from(bytes.len()).expect("short");
    let pseudo = match (packet.source, packet.destination) {
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            Sum::pseudo_ipv6(source, destination, length.into(), packet.protocol)
        }
        (IpAddr::V4(_), _) if !matches!(packet.protocol, TCP | UDP) => Sum::default(),
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            Sum::pseudo_ipv4(source, destination, length, packet.protocol)
        }
        _ => panic!("two families"),
    };
    let checksum = (pseudo + Sum::of(&bytes)).checksum();
    bytes[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

/// What a frame that left the router is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The packet of this identification, forwarded.
    Forwarded(u16),
    /// The answer to the packet of this identification: administratively prohibited.
    Prohibited(u16),
    /// A TCP reset for this port.
    Reset(u16),
}

/// Reads a frame.
pub(crate) fn read(frame: &[u8]) -> Option<Seen> {
    let word = |at: usize| Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?));
    let (id, protocol, upper, refusal) = match word(12)? {
        0x86dd => (word(16)?, *frame.get(20)?, 54, (1, 1)),
        0x0800 => (word(18)?, *frame.get(23)?, 34, (3, 13)),
        _ => return None,
    };
    let kind = *frame.get(upper)?;
    let is_error = matches!(protocol, ICMP | ICMPV6) && (kind, *frame.get(upper + 1)?) == refusal;
    if is_error {
        let inner = upper + 8;
        return Some(Seen::Prohibited(word(if protocol == ICMP { inner + 4 } else { inner + 2 })?));
    }
    // The router's own: a reset for the port that the packet came from.
    if protocol == TCP && frame.get(upper + 13)? & 0x04 != 0 {
        return Some(Seen::Reset(word(upper + 2)?));
    }
    // Other errors, answers and messages that nobody forwarded are the router's.
    let of_router = match protocol {
        ICMPV6 => matches!(kind, 0..=127 | 129) || (matches!(kind, 133..=137) && frame[21] == 255),
        ICMP => kind != 8,
        _ => false,
    };
    (!of_router).then_some(Seen::Forwarded(id))
}
