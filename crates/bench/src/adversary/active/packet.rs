//! Frames that the active adversary reads, changes and makes.

use std::net::Ipv6Addr;
use std::time::Duration;

use wire::checksum::Sum;
use wire::ethernet::{self, ETHERTYPE_IPV6, Frame};
use wire::{icmpv6, ipv6, udp};

/// Next headers.
pub(super) const HOP_BY_HOP: u8 = 0;
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const ROUTING: u8 = 43;
pub(super) const FRAGMENT: u8 = 44;
pub(super) const ICMPV6: u8 = 58;
pub(super) const DESTINATION_OPTIONS: u8 = 60;

/// Where the IPv6 packet and its payload begin in a frame.
const IPV6: usize = ethernet::HEADER_LEN;
const PAYLOAD: usize = IPV6 + ipv6::HEADER_LEN;

/// Addresses and ports of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Flow {
    pub(super) source: (Ipv6Addr, u16),
    pub(super) destination: (Ipv6Addr, u16),
}

/// A UDP datagram over IPv6 that came by.
#[derive(Clone, Debug)]
pub(super) struct Datagram {
    pub(super) time: Duration,
    /// The port that it came in by.
    pub(super) from: usize,
    pub(super) flow: Flow,
    /// The frame; nothing but this datagram is in it.
    pub(super) frame: Vec<u8>,
}

impl Datagram {
    /// Reads a frame; `None` if it carries something else.
    pub(super) fn parse(time: Duration, from: usize, frame: &[u8]) -> Option<Self> {
        let ethernet = Frame::parse(frame).ok().filter(|frame| frame.ethertype() == ETHERTYPE_IPV6)?;
        let packet = ipv6::Packet::parse(ethernet.payload()).ok()?;
        if packet.next_header() != UDP {
            return None;
        }
        let datagram = udp::Datagram::parse(packet.payload()).ok()?;
        let flow = Flow {
            source: (packet.source(), datagram.source_port()),
            destination: (packet.destination(), datagram.destination_port()),
        };
        let length = PAYLOAD + packet.payload().len();
        Some(Self { time, from, flow, frame: frame[..length].to_vec() })
    }

    /// Its IPv6 packet.
    pub(super) fn packet(&self) -> &[u8] {
        &self.frame[IPV6..]
    }

    /// What UDP carries.
    pub(super) fn payload(&self) -> &[u8] {
        &self.frame[PAYLOAD + udp::HEADER_LEN..]
    }

    /// The frame with another payload: lengths and checksum are right.
    pub(super) fn with_payload(&self, payload: &[u8]) -> Vec<u8> {
        let segment = udp(self.flow, payload);
        let mut frame = [&self.frame[..PAYLOAD], &segment].concat();
        frame[IPV6 + 4..IPV6 + 6].copy_from_slice(&(segment.len() as u16).to_be_bytes());
        frame
    }

    /// The frame with other ECN bits.
    pub(super) fn with_ecn(&self, ecn: u8) -> Vec<u8> {
        let mut frame = self.frame.clone();
        frame[IPV6 + 1] = frame[IPV6 + 1] & !0x30 | (ecn & 3) << 4;
        frame
    }

    /// The frame with another hop limit.
    pub(super) fn with_hop_limit(&self, hop_limit: u8) -> Vec<u8> {
        let mut frame = self.frame.clone();
        frame[IPV6 + 7] = hop_limit;
        frame
    }

    /// The frame with another flow label.
    pub(super) fn with_flow_label(&self, label: u32) -> Vec<u8> {
        let mut frame = self.frame.clone();
        let [_, high, middle, low] = label.to_be_bytes();
        frame[IPV6 + 1] = frame[IPV6 + 1] & 0xf0 | high & 0x0f;
        frame[IPV6 + 2..IPV6 + 4].copy_from_slice(&[middle, low]);
        frame
    }

    /// Its Ethernet header, for a packet that goes the same way.
    pub(super) fn onward(&self) -> [u8; IPV6] {
        let mut header = [0; IPV6];
        header.copy_from_slice(&self.frame[..IPV6]);
        header
    }

    /// Its Ethernet header turned round, for a packet to the end that sent it.
    pub(super) fn back(&self) -> [u8; IPV6] {
        let mut header = self.onward();
        header[..6].copy_from_slice(&self.frame[6..12]);
        header[6..12].copy_from_slice(&self.frame[..6]);
        header
    }
}

/// A frame of one IPv6 packet.
pub(super) fn frame(
    ethernet: [u8; IPV6],
    (source, destination): (Ipv6Addr, Ipv6Addr),
    next_header: u8,
    hop_limit: u8,
    payload: &[u8],
) -> Vec<u8> {
    let header = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: payload.len() as u16,
        next_header,
        hop_limit,
        source,
        destination,
    };
    [&ethernet[..], &header.to_bytes(), payload].concat()
}

/// A UDP header with its checksum, and the payload.
pub(super) fn udp(flow: Flow, payload: &[u8]) -> Vec<u8> {
    let length = udp::HEADER_LEN + payload.len();
    let header = udp::Header {
        source_port: flow.source.1,
        destination_port: flow.destination.1,
        length: length as u16,
        checksum: 0,
    };
    let mut segment = [&header.to_bytes()[..], payload].concat();
    let sum = Sum::pseudo_ipv6(flow.source.0, flow.destination.0, length as u32, UDP) + Sum::of(&segment);
    segment[udp::CHECKSUM_OFFSET..][..2].copy_from_slice(&sum.udp_checksum().to_be_bytes());
    segment
}

/// A TCP SYN without options.
pub(super) fn syn(flow: Flow, sequence: u32) -> Vec<u8> {
    const CHECKSUM: usize = 16;
    let mut segment = vec![0; 20];
    segment[..2].copy_from_slice(&flow.source.1.to_be_bytes());
    segment[2..4].copy_from_slice(&flow.destination.1.to_be_bytes());
    segment[4..8].copy_from_slice(&sequence.to_be_bytes());
    segment[12..16].copy_from_slice(&[0x50, 0x02, 0xff, 0xff]);
    let sum = Sum::pseudo_ipv6(flow.source.0, flow.destination.0, 20, TCP) + Sum::of(&segment);
    segment[CHECKSUM..][..2].copy_from_slice(&sum.checksum().to_be_bytes());
    segment
}

/// An ICMPv6 message: type and code, the four bytes behind the checksum, and the rest.
pub(super) fn icmpv6(
    (source, destination): (Ipv6Addr, Ipv6Addr),
    [message_type, code]: [u8; 2],
    word: u32,
    body: &[u8],
) -> Vec<u8> {
    let mut message = [&[message_type, code, 0, 0][..], &word.to_be_bytes(), body].concat();
    let length = message.len() as u32;
    let sum = Sum::pseudo_ipv6(source, destination, length, ICMPV6) + Sum::of(&message);
    message[icmpv6::CHECKSUM_OFFSET..][..2].copy_from_slice(&sum.checksum().to_be_bytes());
    message
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(in super::super) fn datagram(time: Duration, from: usize, host: u16, payload: &[u8]) -> Datagram {
        let address = |site: u16| Ipv6Addr::new(0x2001, 0xdb8, site, 0, 0, 0, 0, host);
        let sites = if from == 0 { (0xa1, 0xb1) } else { (0xb1, 0xa1) };
        let flow = Flow { source: (address(sites.0), 4_000), destination: (address(sites.1), 5_000) };
        let mut ethernet = [0; IPV6];
        ethernet[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
        ethernet[12..].copy_from_slice(&[0x86, 0xdd]);
        let bytes = frame(ethernet, (flow.source.0, flow.destination.0), UDP, 60, &udp(flow, payload));
        Datagram::parse(time, from, &bytes).expect("a datagram")
    }

    fn is_whole(frame: &[u8]) -> bool {
        let packet = ipv6::Packet::parse(&frame[IPV6..]).expect("a packet");
        let length = packet.payload().len() as u32;
        let sum = packet.pseudo_header(length, packet.next_header()) + Sum::of(packet.payload());
        usize::from(packet.payload_length()) + PAYLOAD == frame.len() && sum.is_valid()
    }

    #[test]
    fn what_is_changed_above_udp_has_right_lengths_and_checksums() {
        let datagram = datagram(Duration::ZERO, 0, 7, &[5; 100]);
        assert!(is_whole(&datagram.frame));
        for length in [0, 1, 99, 1_000] {
            let frame = datagram.with_payload(&vec![9; length]);
            assert!(is_whole(&frame), "{length}");
            let again = Datagram::parse(Duration::ZERO, 0, &frame).expect("a datagram");
            assert_eq!((again.flow, again.payload().len()), (datagram.flow, length));
        }
    }

    #[test]
    fn a_header_is_changed_in_one_field() {
        let datagram = datagram(Duration::ZERO, 0, 7, &[5; 100]);
        let read = |frame: Vec<u8>| {
            let packet = ipv6::Packet::parse(&frame[IPV6..]).expect("a packet");
            (packet.traffic_class(), packet.hop_limit(), packet.flow_label(), is_whole(&frame))
        };
        assert_eq!(read(datagram.with_ecn(3)), (3, 60, 0, true));
        assert_eq!(read(datagram.with_hop_limit(9)), (0, 9, 0, true));
        assert_eq!(read(datagram.with_flow_label(0xa_bcde)), (0, 60, 0xa_bcde, true));
    }

    #[test]
    fn made_packets_have_right_checksums_and_go_the_right_way() {
        let datagram = datagram(Duration::ZERO, 0, 7, &[5; 10]);
        let (source, destination) = (datagram.flow.source.0, datagram.flow.destination.0);
        let error = icmpv6((destination, source), [2, 0], 1_280, datagram.packet());
        let error = frame(datagram.back(), (destination, source), ICMPV6, 64, &error);
        assert!(is_whole(&error));
        assert_eq!((&error[..6], &error[6..12]), (&datagram.frame[6..12], &datagram.frame[..6]));
        let syn = syn(datagram.flow, 77);
        assert!(is_whole(&frame(datagram.onward(), (source, destination), TCP, 64, &syn)));
    }

    proptest! {
        #[test]
        fn any_frame_is_read_or_left(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(datagram) = Datagram::parse(Duration::ZERO, 0, &bytes) {
                prop_assert!(bytes.starts_with(&datagram.frame));
            }
        }
    }
}
