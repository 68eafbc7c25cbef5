//! Packets that the active adversary makes: scans with every header, and ICMPv6 errors.

use std::net::Ipv6Addr;

use rand_chacha::ChaCha8Rng;
use wire::icmpv6::{
    DESTINATION_UNREACHABLE, ECHO_REQUEST, NEIGHBOR_SOLICITATION, PACKET_TOO_BIG, PARAMETER_PROBLEM,
    TIME_EXCEEDED,
};
use wire::{ipv6, udp as wire_udp};

use super::draw::{below, bytes, draw};
use super::kind::{Probe, Target};
use super::packet::{
    DESTINATION_OPTIONS, Datagram, FRAGMENT, Flow, HOP_BY_HOP, ICMPV6, ROUTING, TCP, UDP, frame, icmpv6, syn,
    udp,
};

/// The hop limit that a scan arrives with.
const HOP_LIMIT: u8 = 61;

/// A next header that nobody implements (RFC 3692), and a routing type likewise.
const EXPERIMENTAL: u8 = 253;

/// An option that whoever does not know it answers with an ICMPv6 error (RFC 8200, section 4.2), with two bytes.
const UNKNOWN_OPTION: [u8; 6] = [0x9e, 2, 0, 0, 1, 0];

/// A quote that is cut: the headers, and eight bytes.
const SHORT_QUOTE: usize = ipv6::HEADER_LEN + wire_udp::HEADER_LEN + 8;

/// Hop limit of packets that must not have been forwarded (RFC 4861, section 7.1.1).
const ON_THE_LINK: u8 = 255;

/// The port of the relay that gateway B is at: on its other side is a router.
const GATEWAY: usize = 1;

/// A probe of the address that the datagram goes to, or of one beside it; and the port that it leaves by.
pub(super) fn scan(
    datagram: &Datagram,
    what: Probe,
    target: Target,
    random: &mut ChaCha8Rng,
) -> (usize, Vec<u8>) {
    if what == Probe::NeighborSolicitation {
        return (GATEWAY, neighbor_solicitation(datagram, target, random));
    }
    let (peer, address) = (datagram.flow.source, datagram.flow.destination);
    let address = match target {
        Target::Used => address,
        Target::Unused => (neighbor_of(address.0, random), address.1),
    };
    // In the peer's name, or as a stranger of its network, to whom an answer finds its way.
    let source =
        if below(random, 2) == 0 { peer } else { (neighbor_of(peer.0, random), draw(random) as u16 | 1) };
    let closed = (address.0, address.1 ^ 1 << below(random, 16));
    let ends = (source.0, address.0);
    let length = 1 + below(random, 200);
    let payload = bytes(random, length);
    let open = udp(Flow { source, destination: address }, &payload);
    let (next_header, body) = match what {
        Probe::Echo | Probe::NeighborSolicitation => {
            (ICMPV6, icmpv6(ends, [ECHO_REQUEST, 0], draw(random), &payload))
        }
        Probe::Syn => (TCP, syn(Flow { source, destination: closed }, draw(random))),
        Probe::UdpOpen => (UDP, open),
        Probe::UdpClosed => (UDP, udp(Flow { source, destination: closed }, &payload)),
        Probe::Fragment => (FRAGMENT, fragment(&open, random)),
        Probe::HopByHop => (HOP_BY_HOP, [&[UDP, 0][..], &UNKNOWN_OPTION, &open].concat()),
        Probe::DestinationOptions => (DESTINATION_OPTIONS, [&[UDP, 0][..], &UNKNOWN_OPTION, &open].concat()),
        // One segment is left of an unknown type: an error is due (RFC 8200, section 4.4).
        Probe::Routing => (ROUTING, [&[UDP, 0, EXPERIMENTAL, 1, 0, 0, 0, 0][..], &open].concat()),
        Probe::UnknownHeader => (EXPERIMENTAL, payload),
    };
    (1 - datagram.from, frame(datagram.onward(), ends, next_header, HOP_LIMIT, &body))
}

/// A fragment: all of it, or the first or last of two, whose other one never comes.
fn fragment(datagram: &[u8], random: &mut ChaCha8Rng) -> Vec<u8> {
    const MORE: u16 = 1;
    let (field, part) = match below(random, 3) {
        0 => (0, datagram),
        1 => (MORE, &datagram[..8]),
        _ => (8, &datagram[8..]),
    };
    let [high, low] = u16::to_be_bytes(field);
    [&[UDP, 0, high, low][..], &draw(random).to_be_bytes(), part].concat()
}

/// On the link of gateway B: who has its address?
fn neighbor_solicitation(datagram: &Datagram, target: Target, random: &mut ChaCha8Rng) -> Vec<u8> {
    let (ethernet, own) = if datagram.from == GATEWAY {
        (datagram.back(), datagram.flow.source.0)
    } else {
        (datagram.onward(), datagram.flow.destination.0)
    };
    let target = match target {
        Target::Used => own,
        Target::Unused => neighbor_of(own, random),
    };
    let source = neighbor_of(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), random);
    let option = [&[1, 1][..], &ethernet[6..12]].concat();
    let ends = (source, target);
    let message = icmpv6(ends, [NEIGHBOR_SOLICITATION, 0], 0, &[&target.octets()[..], &option].concat());
    frame(ethernet, ends, ICMPV6, ON_THE_LINK, &message)
}

/// An ICMPv6 error of this type about a datagram, to its source: code, value and length of the quote are drawn, and
/// whether a router or the peer says it.
pub(super) fn error(quoted: &Datagram, error: u8, random: &mut ChaCha8Rng) -> Vec<u8> {
    // What a router might say of a link: others are left aside by anybody.
    const MTUS: [u32; 5] = [1_280, 1_300, 1_400, 1_480, 1_492];
    let (codes, word) = match error {
        DESTINATION_UNREACHABLE => (8, 0),
        PACKET_TOO_BIG => (1, MTUS[below(random, MTUS.len())]),
        TIME_EXCEEDED => (2, 0),
        PARAMETER_PROBLEM => (3, [0, 6, 40][below(random, 3)]),
        _ => (256, draw(random)),
    };
    let code = below(random, codes) as u8;
    let peer = quoted.flow.destination.0;
    let source = if below(random, 2) == 0 { peer } else { neighbor_of(peer, random) };
    let whole = quotable(quoted);
    let length = [whole, whole.min(SHORT_QUOTE)][below(random, 2)];
    about(quoted, [error, code], word, length, source)
}

/// A Packet Too Big that quotes all that it can of a datagram, as the router before the peer would send it.
pub(super) fn too_big(quoted: &Datagram, mtu: u32) -> Vec<u8> {
    about(quoted, [PACKET_TOO_BIG, 0], mtu, quotable(quoted), quoted.flow.destination.0)
}

/// How much of a datagram an error can quote: it fits into the smallest MTU.
fn quotable(quoted: &Datagram) -> usize {
    quoted.packet().len().min(ipv6::MIN_MTU - ipv6::HEADER_LEN - wire::icmpv6::HEADER_LEN)
}

/// An error with so many bytes of the datagram that it is about.
fn about(quoted: &Datagram, kind: [u8; 2], word: u32, length: usize, source: Ipv6Addr) -> Vec<u8> {
    let ends = (source, quoted.flow.source.0);
    let message = icmpv6(ends, kind, word, &quoted.packet()[..length]);
    frame(quoted.back(), ends, ICMPV6, HOP_LIMIT, &message)
}

/// A datagram of these addresses and ports, on the same link.
pub(super) fn between(datagram: &Datagram, payload: &[u8]) -> Datagram {
    let flow = datagram.flow;
    let ends = (flow.source.0, flow.destination.0);
    let frame = frame(datagram.onward(), ends, UDP, HOP_LIMIT, &udp(flow, payload));
    Datagram { frame, ..datagram.clone() }
}

/// Another address of the same /64.
pub(super) fn neighbor_of(address: Ipv6Addr, random: &mut ChaCha8Rng) -> Ipv6Addr {
    let network = address.to_bits() >> 64 << 64;
    let interface = u64::from(draw(random)) << 32 | u64::from(draw(random));
    Ipv6Addr::from_bits(network | u128::from(interface))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rand_chacha::rand_core::SeedableRng;
    use wire::ethernet;

    use super::super::kind::Kind;
    use super::super::packet::tests::datagram;
    use super::*;

    #[test]
    fn every_probe_is_a_packet_to_the_address_that_it_is_about() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        for round in 0..50 {
            let sent = datagram(Duration::ZERO, round % 2, 3, &[7; 300]);
            for kind in Kind::all() {
                let Kind::Scan(what, target) = kind else { continue };
                let (port, bytes) = scan(&sent, what, target, &mut random);
                let packet = ipv6::Packet::parse(&bytes[ethernet::HEADER_LEN..]).expect("a packet");
                let (whole, at_b) = (bytes.len() - ethernet::HEADER_LEN - ipv6::HEADER_LEN, port == 1);
                assert_eq!(usize::from(packet.payload_length()), whole, "{kind}");
                let own = if at_b == (sent.from == 1) { sent.flow.source.0 } else { sent.flow.destination.0 };
                assert_eq!(packet.destination() == own, target == Target::Used, "{kind}");
            }
        }
    }

    #[test]
    fn an_error_goes_to_the_source_of_what_it_quotes_and_fits() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        for kind in [1, 2, 3, 4, 127].repeat(20) {
            let sent = datagram(Duration::ZERO, 0, 3, &[7; 1_400]);
            let bytes = error(&sent, kind, &mut random);
            let packet = ipv6::Packet::parse(&bytes[ethernet::HEADER_LEN..]).expect("a packet");
            let message = wire::icmpv6::Message::of_packet(&packet).expect("a message with a right checksum");
            assert_eq!((packet.destination(), message.message_type()), (sent.flow.source.0, kind));
            assert!(bytes.len() <= ethernet::HEADER_LEN + ipv6::MIN_MTU);
            assert!(sent.packet().starts_with(message.payload()));
        }
    }
}
