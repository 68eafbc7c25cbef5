//! Packets of unencrypted streams, carried where they lie: headers change, payloads stay in the memory that they were
//! read to.
//!
//! This is for GSO packets what the program in the kernel is for single ones (docs/classic.md section 17). It takes
//! what is as it should be. All else is the node's, which finds and counts what is wrong with it.

use std::collections::HashMap;
use std::net::Ipv6Addr;
use std::ops::Range;

use classic::packet::{HEADERS, SHORT_HEADER, headers};
use classic::profile::{Carry, StreamConfig};
use classic::{KeyState, Node};
use wire::checksum::TransportChecksum;
use wire::coalesce::Coalescer;
use wire::segment::Segmenter;
use wire::{ipv6, udp, virtio_net};

/// Inner packets and bytes of a stream.
#[derive(Debug, Clone, Copy, Default)]
pub(in super::super) struct Traffic {
    pub(in super::super) tx_packets: u64,
    pub(in super::super) tx_bytes: u64,
    pub(in super::super) rx_packets: u64,
    pub(in super::super) rx_bytes: u64,
}

impl std::ops::Add for Traffic {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Traffic {
            tx_packets: self.tx_packets + other.tx_packets,
            tx_bytes: self.tx_bytes + other.tx_bytes,
            rx_packets: self.rx_packets + other.rx_packets,
            rx_bytes: self.rx_bytes + other.rx_bytes,
        }
    }
}

/// Source and destination, as a header has them.
type Addresses = [u8; 32];

/// Who sends where, as the node had it last.
#[derive(Default)]
pub(super) struct InPlaceForwarder {
    outgoing: HashMap<Addresses, Outgoing>,
    incoming: HashMap<Addresses, Incoming>,
}

struct Outgoing {
    stream: usize,
    /// Of the outer packet.
    headers: [u8; HEADERS],
    /// The largest inner packet.
    mtu: usize,
}

struct Incoming {
    stream: usize,
    /// Source and destination port, as they are in the outer packet.
    ports: [u8; 4],
    /// Of the inner packet.
    addresses: Addresses,
}

impl InPlaceForwarder {
    /// Writes down the routes that the node has now.
    pub(super) fn refresh<'a>(&mut self, node: &Node, streams: impl Iterator<Item = &'a StreamConfig>) {
        self.outgoing.clear();
        self.incoming.clear();
        for (stream, config) in streams.enumerate() {
            if config.cipher.is_some() || config.carry != Carry::Encapsulate {
                continue;
            }
            // A key exchange is the node's: what comes in may decide it.
            let Some(routes) = node.routes(stream).filter(|routes| routes.key == KeyState::Idle) else {
                continue;
            };
            let (local, remote) = (config.local.address, config.remote.address);
            if let Some((path, flag)) = &routes.outgoing {
                let mtu = node.inner_mtu(stream).into();
                let outgoing = Outgoing { stream, headers: headers(path, *flag), mtu };
                self.outgoing.insert(addresses(local, remote), outgoing);
            }
            for path in &routes.incoming {
                let expected = headers(path, false);
                let ports = std::array::from_fn(|i| expected[ipv6::HEADER_LEN + i]);
                let incoming = Incoming { stream, ports, addresses: addresses(remote, local) };
                self.incoming.insert(addresses(path.source.address, path.destination.address), incoming);
            }
        }
    }

    /// Takes the packet that was read to this range of the arena, whose `header` says how it was left. Tells up to where
    /// the arena is used then; none, and nothing has changed, if the packet is the node's.
    pub(super) fn carry(
        &self,
        header: &virtio_net::Header,
        arena: &mut [u8],
        packet: Range<usize>,
        merged: &mut Coalescer,
        traffic: &mut [Traffic],
    ) -> Option<usize> {
        let bytes = &arena[packet.clone()];
        let key = bytes.get(8..ipv6::HEADER_LEN).filter(|_| bytes[0] >> 4 == 6)?;
        if let Some(outgoing) = self.outgoing.get(key) {
            let traffic = &mut traffic[outgoing.stream];
            return outgoing.carry(header, arena, packet, merged, traffic);
        }
        let incoming = self.incoming.get(key)?;
        incoming.carry(header, arena, packet, merged, &mut traffic[incoming.stream])
    }
}

fn addresses(source: Ipv6Addr, destination: Ipv6Addr) -> Addresses {
    let mut addresses = [0; 32];
    addresses[..16].copy_from_slice(&source.octets());
    addresses[16..].copy_from_slice(&destination.octets());
    addresses
}

impl Outgoing {
    /// Puts what is left of each segment's headers behind the packet. The outer checksum is left to the device: the
    /// payload is looked at once, for the inner one.
    fn carry(
        &self,
        header: &virtio_net::Header,
        arena: &mut [u8],
        packet: Range<usize>,
        merged: &mut Coalescer,
        traffic: &mut Traffic,
    ) -> Option<usize> {
        let (start, end) = (packet.start, packet.end);
        let (read, free) = arena.split_at_mut(end);
        let packet = &mut read[start..];
        if !(header.is_gso() || is_whole(packet) && packet.len() <= self.mtu) {
            return None;
        }
        let mut segments = Segmenter::new(header, packet).ok()?;
        let head = segments.head_len();
        if segments.largest_segment() > self.mtu || segments.segment_count() * head > free.len() {
            return None;
        }
        let (mut used, mut payload_start) = (0, start + head);
        while let Some(segment) = segments.next() {
            traffic.tx_packets += 1;
            traffic.tx_bytes += segment.len() as u64;
            let (short, rest) = (&segment.head[..SHORT_HEADER], &segment.head[ipv6::HEADER_LEN..]);
            // A packet that was not cut is one head, and where it was read to.
            let (rest, payload) = match segment.payload.len() {
                0 => (&[][..], start + ipv6::HEADER_LEN..start + head),
                length => (rest, payload_start..payload_start + length),
            };
            payload_start = payload.end;
            let headers = used..used + SHORT_HEADER + rest.len();
            let (short_to, rest_to) = free[headers.clone()].split_at_mut(SHORT_HEADER);
            short_to.copy_from_slice(short);
            rest_to.copy_from_slice(rest);
            merged.push_datagram(&self.headers, &[end + headers.start..end + headers.end, payload]);
            used = headers.end;
        }
        Some(end + used)
    }
}

impl Incoming {
    /// Segments a GSO packet into its datagrams, and gives each its inner header. Their checksums are verified where they
    /// merge, or by the host that receives them.
    fn carry(
        &self,
        header: &virtio_net::Header,
        arena: &[u8],
        packet: Range<usize>,
        merged: &mut Coalescer,
        traffic: &mut Traffic,
    ) -> Option<usize> {
        let outer = ipv6::Packet::parse(&arena[packet.clone()]).ok()?;
        let datagram = udp::Datagram::parse(outer.payload()).ok()?;
        let length = datagram.payload().len();
        let whole = HEADERS + length == packet.len();
        if outer.next_header() != wire::protocol::UDP || !whole || outer.payload()[..4] != self.ports {
            return None;
        }
        let size = match header.gso_type {
            virtio_net::GSO_NONE => length,
            virtio_net::GSO_UDP_L4 => usize::from(header.gso_size),
            _ => return None,
        };
        // One that nobody has verified, nor made on this machine, is verified by the node.
        let checked = header.flags & virtio_net::DATA_VALID != 0
            || header.transport_checksum() == TransportChecksum::Partial;
        if size == 0 || !checked || !datagram.payload().chunks(size).all(is_inner) {
            return None;
        }
        let mut inner = [0; ipv6::HEADER_LEN];
        inner[SHORT_HEADER..].copy_from_slice(&self.addresses);
        let mut start = packet.start + HEADERS;
        for payload in datagram.payload().chunks(size) {
            inner[..SHORT_HEADER].copy_from_slice(&payload[..SHORT_HEADER]);
            let end = start + payload.len();
            merged.push(arena, &inner, start + SHORT_HEADER..end);
            start = end;
            traffic.rx_packets += 1;
            traffic.rx_bytes += (payload.len() + ipv6::HEADER_LEN - SHORT_HEADER) as u64;
        }
        Some(packet.end)
    }
}

/// Whether a packet is as long as its header says.
fn is_whole(packet: &[u8]) -> bool {
    ipv6::Packet::parse(packet).is_ok_and(|view| ipv6::HEADER_LEN + view.payload().len() == packet.len())
}

/// Whether a payload is an inner packet of the length that it states.
fn is_inner(payload: &[u8]) -> bool {
    payload.get(..SHORT_HEADER).is_some_and(|short| {
        let stated = u16::from_be_bytes([short[4], short[5]]);
        short[0] >> 4 == 6 && SHORT_HEADER + usize::from(stated) == payload.len()
    })
}

#[cfg(test)]
mod tests {
    use classic::hashed::{Host, Rotation};
    use classic::keys::SessionKey;
    use classic::{Received, UnixTime};
    use proptest::prelude::*;
    use wire::checksum::Sum;
    use wire::coalesce::Offloads;
    use wire::protocol;

    use super::*;

    const NOW: UnixTime = UnixTime::from_secs(1_000_003);
    const MSS: usize = 1412;

    /// One end of a stream.
    struct End {
        node: Node,
        in_place: InPlaceForwarder,
        traffic: [Traffic; 1],
    }

    fn hosts() -> [Ipv6Addr; 2] {
        ["2001:db8:a::1", "2001:db8:b::2"].map(|text| text.parse().unwrap())
    }

    fn stream(local: usize) -> StreamConfig {
        let host = |address| Host { address, mac: None };
        StreamConfig {
            local: host(hosts()[local]),
            remote: host(hosts()[1 - local]),
            key: SessionKey::from_bytes([7; 64]),
            cipher: None,
            carry: Carry::Encapsulate,
            rotation: Rotation::Fixed(10),
            lifetime: 30,
            key_exchange: None,
            outer_mtu: 1500,
        }
    }

    impl End {
        fn new(local: usize) -> Self {
            let stream = stream(local);
            let mut node = Node::new(vec![stream.clone()], [1; 32], NOW).unwrap();
            node.handle_timeout(NOW);
            let mut in_place = InPlaceForwarder::default();
            in_place.refresh(&node, std::iter::once(&stream));
            End { node, in_place, traffic: [Traffic::default()] }
        }

        /// What is written for packets that were read, if all of them are carried in place.
        fn carry(
            &mut self,
            read: &[(virtio_net::Header, Vec<u8>)],
        ) -> Option<Vec<(virtio_net::Header, Vec<u8>)>> {
            let (mut arena, mut used) = (vec![0; 1 << 20], 0);
            let mut merged = Coalescer::new(Offloads { tcp4: true, tcp6: true, udp4: true, udp6: true });
            for (header, packet) in read {
                let range = used..used + packet.len();
                arena[range.clone()].copy_from_slice(packet);
                let before = arena.clone();
                let end = self.in_place.carry(header, &mut arena, range, &mut merged, &mut self.traffic);
                if end.is_none() {
                    assert!(arena == before && merged.is_empty(), "left to the node, but changed");
                }
                used = end?;
            }
            let written = merged.packets().map(|packet| {
                let mut bytes = packet.head.to_vec();
                packet.pieces.iter().for_each(|piece| bytes.extend_from_slice(&arena[piece.clone()]));
                let (header, packet) = bytes.split_first_chunk().unwrap();
                (virtio_net::Header::from_bytes(header), packet.to_vec())
            });
            Some(written.collect())
        }
    }

    /// Single packets, as a device without offloads would have them.
    fn cut(packets: &[(virtio_net::Header, Vec<u8>)]) -> Vec<Vec<u8>> {
        let mut single = Vec::new();
        for (header, packet) in packets {
            let mut packet = packet.clone();
            let mut segments = Segmenter::new(header, &mut packet).unwrap();
            while let Some(segment) = segments.next() {
                single.push([segment.head, segment.payload].concat());
            }
        }
        single
    }

    /// A packet from host A to host B as a device hands it over, a GSO packet if it is longer than `size`.
    fn packet(next_header: u8, payload: &[u8], size: usize, first: [u8; 4]) -> (virtio_net::Header, Vec<u8>) {
        let (transport_len, csum_offset, gso_type) = match next_header {
            protocol::TCP => (32, 16, virtio_net::GSO_TCPV6),
            _ => (8, 6, virtio_net::GSO_UDP_L4),
        };
        let length = transport_len + payload.len();
        let mut bytes = vec![0x60, first[1], first[2], first[3]];
        bytes.extend((length as u16).to_be_bytes());
        bytes.extend([next_header, 64]);
        bytes.extend(addresses(hosts()[0], hosts()[1]));
        bytes.resize(ipv6::HEADER_LEN + transport_len, 1);
        let transport = &mut bytes[ipv6::HEADER_LEN..];
        if next_header == protocol::TCP {
            transport[12..14].copy_from_slice(&[0x80, 0x10]);
        } else {
            transport[4..6].copy_from_slice(&(length as u16).to_be_bytes());
        }
        let pseudo = Sum::pseudo_ipv6(hosts()[0], hosts()[1], length as u32, next_header);
        transport[csum_offset..][..2].copy_from_slice(&pseudo.value().to_be_bytes());
        bytes.extend(payload);
        let gso = payload.len() > size;
        let header = virtio_net::Header {
            flags: virtio_net::NEEDS_CSUM,
            gso_type: if gso { gso_type } else { virtio_net::GSO_NONE },
            hdr_len: (ipv6::HEADER_LEN + transport_len) as u16,
            gso_size: if gso { size as u16 } else { 0 },
            csum_start: ipv6::HEADER_LEN as u16,
            csum_offset: csum_offset as u16,
        };
        (header, bytes)
    }

    proptest! {
        #[test]
        fn what_is_carried_in_place_is_what_the_node_makes(
            packets in prop::collection::vec(
                (any::<bool>(), prop::collection::vec(any::<u8>(), 1..20_000), 500..=MSS, any::<[u8; 4]>()), 1..5),
        ) {
            let [mut a, mut b] = [End::new(0), End::new(1)];
            let read: Vec<_> = packets.iter().map(|(tcp, payload, size, first)| {
                packet(if *tcp { protocol::TCP } else { protocol::UDP }, payload, *size, *first)
            }).collect();
            let inner = cut(&read);
            let mut expected = Vec::new();
            for packet in &inner {
                let mut outer = Vec::new();
                a.node.send(packet, &mut outer).unwrap();
                expected.push(outer);
            }
            let written = a.carry(&read).unwrap();
            let outer = cut(&written);
            prop_assert_eq!(&outer, &expected);
            let mut received = Vec::new();
            for packet in &outer {
                let outcome = b.node.receive(packet, NOW, &mut received);
                prop_assert_eq!(outcome, Received::Packet { stream: 0 });
            }
            let mut arrived = cut(&b.carry(&written).unwrap());
            // Flows have no order among them.
            let mut sent = inner.clone();
            sent.sort();
            arrived.sort();
            prop_assert_eq!(&arrived, &sent);
            let bytes = inner.iter().map(Vec::len).sum::<usize>() as u64;
            prop_assert_eq!((a.traffic[0].tx_packets, a.traffic[0].tx_bytes), (inner.len() as u64, bytes));
            prop_assert_eq!((b.traffic[0].rx_packets, b.traffic[0].rx_bytes), (inner.len() as u64, bytes));
        }
    }

    #[test]
    fn what_is_not_as_it_should_be_is_the_nodes() {
        let [mut a, mut b] = [End::new(0), End::new(1)];
        let inner = packet(protocol::TCP, &[7; 4000], MSS, [0; 4]);
        let outer = a.carry(std::slice::from_ref(&inner)).unwrap().remove(0);
        assert!(b.carry(std::slice::from_ref(&outer)).is_some());
        let changed = |(header, packet): &(virtio_net::Header, Vec<u8>), at: usize, bits: u8| {
            let mut packet = packet.clone();
            packet[at] ^= bits;
            (*header, packet)
        };
        // Another host; segments that do not fit.
        assert!(a.carry(&[changed(&inner, 39, 1)]).is_none());
        assert!(a.carry(&[packet(protocol::TCP, &[7; 4000], MSS + 1 + 12, [0; 4])]).is_none());
        assert!(a.carry(&[packet(protocol::UDP, &[7; 1437], 1437, [0; 4])]).is_none());
        // The flag, both ports, another protocol, another route; the short header of the second segment: its version,
        // its length.
        let second = HEADERS + usize::from(outer.0.gso_size);
        for (at, bits) in [(40, 0x80), (41, 1), (43, 1), (6, 1), (39, 1), (second, 0x10), (second + 5, 1)] {
            assert!(b.carry(&[changed(&outer, at, bits)]).is_none(), "{at}");
        }
        // Nobody has verified it; it is shorter than it says; it has no payload.
        let nothing = virtio_net::Header { flags: 0, ..outer.0 };
        assert!(b.carry(&[(nothing, outer.1.clone())]).is_none());
        assert!(b.carry(&[(outer.0, outer.1[..outer.1.len() - 1].to_vec())]).is_none());
        let mut empty = outer.1[..HEADERS].to_vec();
        empty[4..6].copy_from_slice(&[0, 8]);
        empty[44..46].copy_from_slice(&[0, 8]);
        assert!(b.carry(&[(virtio_net::Header { gso_type: 0, ..outer.0 }, empty)]).is_none());
    }

    #[test]
    fn nothing_is_carried_in_place_that_is_encrypted() {
        let mut end = End::new(0);
        let mut stream = StreamConfig { cipher: Some(classic::cipher::Cipher::Aes256Cbc), ..stream(0) };
        for carry in [Carry::Encapsulate, Carry::Rewrite] {
            stream.carry = carry;
            end.in_place.refresh(&end.node, std::iter::once(&stream));
            assert!(end.carry(&[packet(protocol::TCP, &[7; 100], MSS, [0; 4])]).is_none());
            stream.cipher = None;
        }
    }
}
