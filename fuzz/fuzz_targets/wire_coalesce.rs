//! Packets of a few flows, valid or not, coalesced and segmented again: out comes what went in.

#![no_main]

use std::net::{Ipv4Addr, Ipv6Addr};

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use wire::checksum::Sum;
use wire::coalesce::{Coalescer, Offloads};
use wire::segment::Segmenter;
use wire::virtio_net::Header;
use wire::{ipv4, ipv6, protocol, tcp, udp};

const SOURCE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const DESTINATION6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
const SOURCE4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const DESTINATION4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

#[derive(Debug, Arbitrary)]
struct Input {
    tcp4: bool,
    tcp6: bool,
    udp4: bool,
    udp6: bool,
    packets: Vec<Packet>,
}

#[derive(Debug, Arbitrary)]
struct Packet {
    ipv6: bool,
    tcp: bool,
    port: bool,
    pushed: bool,
    /// In units of 8 bytes.
    offset: u8,
    payload_len: u8,
    /// Bytes changed before the checksum is written,
    before: Option<(u8, u8)>,
    /// and behind it.
    after: Option<(u8, u8)>,
}

impl Packet {
    fn build(&self) -> Vec<u8> {
        let mut transport = vec![0; if self.tcp { tcp::HEADER_LEN } else { udp::HEADER_LEN }];
        transport[1] = u8::from(self.port);
        if self.tcp {
            transport[6..8].copy_from_slice(&(u16::from(self.offset) * 8).to_be_bytes());
            transport[12] = 0x50;
            transport[13] = tcp::ACK | if self.pushed { tcp::PSH } else { 0 };
        }
        transport.extend((0..self.payload_len).map(|i| i ^ self.offset));
        let length = transport.len() as u16;
        let (protocol, checksum) = if self.tcp {
            (protocol::TCP, tcp::CHECKSUM_OFFSET)
        } else {
            transport[4..6].copy_from_slice(&length.to_be_bytes());
            (protocol::UDP, udp::CHECKSUM_OFFSET)
        };
        if let Some((at, value)) = self.before
            && let Some(byte) = transport.get_mut(usize::from(at))
        {
            *byte = value;
        }
        transport[checksum..checksum + 2].fill(0);
        let pseudo_header = if self.ipv6 {
            Sum::pseudo_ipv6(SOURCE6, DESTINATION6, length.into(), protocol)
        } else {
            Sum::pseudo_ipv4(SOURCE4, DESTINATION4, length, protocol)
        };
        let sum = (pseudo_header + Sum::of(&transport)).udp_checksum();
        transport[checksum..checksum + 2].copy_from_slice(&sum.to_be_bytes());

        let mut packet =
            if self.ipv6 { self.ipv6_header(length, protocol) } else { self.ipv4_header(length, protocol) };
        packet.extend(transport);
        if let Some((at, value)) = self.after
            && let Some(byte) = packet.get_mut(usize::from(at))
        {
            *byte = value;
        }
        packet
    }

    fn ipv6_header(&self, payload_length: u16, next_header: u8) -> Vec<u8> {
        let header = ipv6::Header {
            traffic_class: 0,
            flow_label: 7,
            payload_length,
            next_header,
            hop_limit: 64,
            source: SOURCE6,
            destination: DESTINATION6,
        };
        header.to_bytes().to_vec()
    }

    fn ipv4_header(&self, length: u16, protocol: u8) -> Vec<u8> {
        let header = ipv4::Header {
            type_of_service: 0,
            total_length: 20 + length,
            identification: self.offset.into(),
            dont_fragment: self.port,
            time_to_live: 64,
            protocol,
            source: SOURCE4,
            destination: DESTINATION4,
        };
        header.to_bytes().to_vec()
    }
}

fuzz_target!(|input: Input| {
    let packets: Vec<_> = input.packets.iter().map(|packet| (packet.ipv6, packet.build())).collect();
    let arena: Vec<u8> = packets.iter().flat_map(|(_, packet)| packet.clone()).collect();
    let Input { tcp4, tcp6, udp4, udp6, .. } = input;
    let mut coalescer = Coalescer::new(Offloads { tcp4, tcp6, udp4, udp6 });
    let mut start = 0;
    for (ipv6, packet) in &packets {
        let header = if *ipv6 { ipv6::HEADER_LEN } else { ipv4::HEADER_LEN };
        coalescer.push(&arena, &packet[..header], start + header..start + packet.len());
        start += packet.len();
    }

    let mut cut = Vec::new();
    for merged in coalescer.packets() {
        let mut bytes = merged.head.to_vec();
        for piece in merged.pieces {
            bytes.extend_from_slice(&arena[piece.clone()]);
        }
        let (header, packet) = bytes.split_first_chunk_mut().expect("a virtio header");
        let header = Header::from_bytes(header);
        if !header.is_gso() {
            cut.push(packet.to_vec());
            continue;
        }
        let mut segmenter = Segmenter::new(&header, packet).expect("what we merge can be cut");
        assert_eq!(segmenter.segment_count(), merged.pieces.len());
        while let Some(segment) = segmenter.next() {
            cut.push([segment.head, segment.payload].concat());
        }
    }
    let mut put: Vec<_> = packets.into_iter().map(|(_, packet)| normalised(packet)).collect();
    let mut got: Vec<_> = cut.into_iter().map(normalised).collect();
    put.sort();
    got.sort();
    assert_eq!(put, got);
});

/// Without what may change: the identification of IPv4 packets that must not be fragmented, with the checksum
/// over it, and which of the two zeros a TCP checksum is.
fn normalised(mut packet: Vec<u8>) -> Vec<u8> {
    let checksum = match packet[0] >> 4 {
        4 => {
            packet[4..6].fill(0);
            packet[10..12].fill(0);
            20 + tcp::CHECKSUM_OFFSET
        }
        _ => 40 + tcp::CHECKSUM_OFFSET,
    };
    if let Some(field) = packet.get_mut(checksum..checksum + 2)
        && *field == [0xff, 0xff]
    {
        field.fill(0);
    }
    packet
}
