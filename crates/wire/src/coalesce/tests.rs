use super::*;
use crate::segment::Segmenter;
use crate::test_stream::{Stream, payload};
use crate::virtio_net::Header;
use proptest::prelude::*;

const ALL: Offloads = Offloads { tcp4: true, tcp6: true, udp4: true, udp6: true };
const DATA: u8 = tcp::ACK;

/// Packets behind each other in an arena, as a tunnel pushes them; then what the kernel would be given.
fn coalesce(offloads: Offloads, packets: &[Vec<u8>]) -> Vec<(Header, Vec<u8>)> {
    let mut coalescer = Coalescer::new(offloads);
    let arena = packets.concat();
    let mut start = 0;
    for packet in packets {
        let header_len = if packet[0] >> 4 == 6 { 40 } else { usize::from(packet[0] & 0xf) * 4 };
        let end = start + packet.len();
        coalescer.push(&arena, &packet[..header_len], start + header_len..end);
        start = end;
    }
    written(&coalescer, &arena)
}

fn written(coalescer: &Coalescer, arena: &[u8]) -> Vec<(Header, Vec<u8>)> {
    let packets = coalescer.packets().map(|coalesced| {
        let mut bytes = coalesced.head.to_vec();
        for piece in coalesced.pieces {
            bytes.extend_from_slice(&arena[piece.clone()]);
        }
        assert_eq!(bytes.len(), coalesced.len());
        assert!(coalesced.pieces.len() <= MAX_PIECES && bytes.len() <= virtio_net::LEN + MAX_PACKET);
        let (header, packet) = bytes.split_first_chunk().unwrap();
        (Header::from_bytes(header), packet.to_vec())
    });
    packets.collect()
}

/// What a kernel makes of it again.
fn segments(written: Vec<(Header, Vec<u8>)>) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    for (header, mut packet) in written {
        let mut segmenter = Segmenter::new(&header, &mut packet).ok().unwrap();
        while let Some(segment) = segmenter.next() {
            packets.push([segment.head, segment.payload].concat());
        }
    }
    packets
}

/// Number of segments in each packet written.
fn counts(packets: &[Vec<u8>]) -> Vec<usize> {
    let count = |(header, mut packet): (Header, Vec<u8>)| {
        Segmenter::new(&header, &mut packet).ok().unwrap().segment_count()
    };
    coalesce(ALL, packets).into_iter().map(count).collect()
}

/// Three equal packets of the stream.
fn three(stream: Stream) -> Vec<Vec<u8>> {
    stream.segments(&payload(300), 100, DATA)
}

#[test]
fn coalescing_undoes_segmentation() {
    for stream in Stream::ALL {
        for flags in [DATA, DATA | tcp::PSH] {
            let (header, packet) = stream.gso_packet(&payload(4000), 1400, flags);
            let coalesced = coalesce(ALL, &stream.segments(&payload(4000), 1400, flags));
            assert_eq!(coalesced, [(header, packet)], "{stream:?}");
        }
    }
}

#[test]
fn what_the_device_does_not_take_merged_passes_unchanged() {
    let nothing = Offloads::default();
    for (stream, mine) in Stream::ALL.into_iter().zip([
        Offloads { tcp6: true, ..nothing },
        Offloads { tcp4: true, ..nothing },
        Offloads { udp6: true, ..nothing },
        Offloads { udp4: true, ..nothing },
    ]) {
        let packets = three(stream);
        let single: Vec<_> = packets.iter().map(|packet| (Header::NONE, packet.clone())).collect();
        assert_eq!(coalesce(nothing, &packets), single);
        assert_eq!(coalesce(mine, &packets).len(), 1);
    }
}

#[test]
fn a_packet_alone_keeps_its_checksum() {
    for stream in Stream::ALL {
        let packet = stream.packet(0, 0, b"alone", DATA);
        assert_eq!(coalesce(ALL, std::slice::from_ref(&packet)), [(Header::NONE, packet)]);
    }
}

#[test]
fn a_short_segment_and_a_push_end_a_gso_packet() {
    let tcp = Stream::TCP6;
    let packet = |index: usize, length, flags| tcp.packet(index as u16, index * 100, &payload(length), flags);
    let short = [packet(0, 100, DATA), packet(1, 40, DATA), tcp.packet(2, 140, &payload(100), DATA)];
    assert_eq!(counts(&short), [2, 1]);
    let push = [packet(0, 100, DATA), packet(1, 100, DATA | tcp::PSH), packet(2, 100, DATA)];
    assert_eq!(counts(&push), [2, 1]);
    let pushed_first = [packet(0, 100, DATA | tcp::PSH), packet(1, 100, DATA), packet(2, 100, DATA)];
    assert_eq!(counts(&pushed_first), [1, 2]);
    let longer = [packet(0, 50, DATA), tcp.packet(1, 50, &payload(100), DATA)];
    assert_eq!(counts(&longer), [1, 1]);
}

#[test]
fn a_gap_or_a_repetition_is_not_coalesced() {
    let packets = three(Stream::TCP6);
    assert_eq!(counts(&[packets[0].clone(), packets[2].clone(), packets[1].clone()]), [1, 1, 1]);
    assert_eq!(counts(&[packets[0].clone(), packets[0].clone(), packets[1].clone()]), [1, 2]);
}

#[test]
fn headers_that_differ_are_not_coalesced() {
    // Offsets in the packet: traffic class and flow label, hop limit; acknowledgement, window, option data.
    for (stream, offsets) in [
        (Stream::TCP6, &[1, 3, 7, 51, 55, 70][..]),
        (Stream::TCP4, &[1, 8, 31, 35, 50]),
        (Stream::UDP6, &[1, 3, 7]),
        (Stream::UDP4, &[1, 8]),
    ] {
        for offset in offsets {
            let mut packets = three(stream);
            packets[1][*offset] ^= 1;
            packets[1] = reseal(&packets[1]);
            let coalesced = coalesce(ALL, &packets);
            assert_eq!(coalesced.len(), 3, "{stream:?} {offset}");
            assert_eq!(segments(coalesced), packets);
        }
    }
}

#[test]
fn segments_with_other_flags_pass_and_end_the_gso_packet() {
    for flags in [tcp::FIN, tcp::SYN, tcp::RST, tcp::URG, tcp::ECE, tcp::CWR] {
        let mut packets = three(Stream::TCP6);
        packets[1][53] |= flags;
        packets[1] = reseal(&packets[1]);
        assert_eq!(counts(&packets), [1, 1, 1]);
    }
    let mut packets = three(Stream::TCP6);
    packets.insert(1, Stream::TCP6.packet(0, 100, b"", DATA));
    assert_eq!(counts(&packets), [1, 1, 2], "an acknowledgement without data");
}

#[test]
fn damaged_segments_pass_as_they_are() {
    for stream in Stream::ALL {
        let mut packets = three(stream);
        *packets[1].last_mut().unwrap() ^= 1;
        let coalesced = coalesce(ALL, &packets);
        assert_eq!(coalesced[1], (Header::NONE, packets[1].clone()));
        assert_eq!(segments(coalesced), packets);
    }
    let mut packets = three(Stream::UDP4);
    packets[1][26..28].fill(0);
    assert_eq!(counts(&packets), [1, 1, 1], "without a checksum");
    let mut packets = three(Stream::TCP4);
    packets[1][8] -= 1;
    assert_eq!(counts(&packets), [1, 1, 1], "IPv4 header checksum");
}

#[test]
fn fragmentable_ipv4_merges_only_with_consecutive_identification() {
    for (dont_fragment, expected) in [(false, vec![1, 1, 1]), (true, vec![3])] {
        let stream = Stream { dont_fragment, ..Stream::TCP4 };
        let packets: Vec<_> =
            (0..3).map(|i| stream.packet(i * 2, usize::from(i) * 100, &payload(100), DATA)).collect();
        assert_eq!(counts(&packets), expected);
    }
}

#[test]
fn interleaved_flows_merge_each_for_itself() {
    let flow = |port| three(Stream { source_port: port, ..Stream::TCP6 });
    let (a, b) = (flow(1), flow(2));
    let packets: Vec<_> = a.iter().zip(&b).flat_map(|(a, b)| [a.clone(), b.clone()]).collect();
    let coalesced = coalesce(ALL, &packets);
    assert_eq!(coalesced.len(), 2);
    assert_eq!(segments(coalesced), [a, b].concat());
}

#[test]
fn more_flows_than_are_watched_lose_coalescing_not_packets() {
    let flow = |port| three(Stream { source_port: port, ..Stream::UDP6 });
    let flows: Vec<_> = (0..2 * MAX_OPEN as u16).map(flow).collect();
    let packets: Vec<_> = (0..3).flat_map(|i| flows.iter().map(move |flow| flow[i].clone())).collect();
    let coalesced = coalesce(ALL, &packets);
    assert_eq!(segments(coalesced), packets);
}

#[test]
fn a_fragment_is_not_overtaken() {
    let mut packets = three(Stream::UDP4);
    let mut fragment = packets[1].clone();
    fragment[6] = 0x20;
    packets.insert(1, fragment);
    let coalesced: Vec<_> = coalesce(ALL, &packets).into_iter().map(|(_, packet)| packet).collect();
    assert_eq!(coalesced.len(), 3, "alone, the fragment, two coalesced");
    assert_eq!(coalesced[1], packets[1]);
}

#[test]
fn what_is_neither_tcp_nor_udp_passes() {
    let mut options = Stream::TCP4.packet(0, 0, b"x", DATA);
    options[0] = 0x46;
    options.splice(20..20, [1, 1, 1, 0]);
    let mut extension = Stream::TCP6.packet(0, 0, b"x", DATA);
    extension[6] = protocol::DESTINATION_OPTIONS;
    let mut wrong_length = Stream::UDP6.packet(0, 0, b"x", 0);
    wrong_length[5] += 1;
    let packets = [options, extension, wrong_length, vec![0x4f; 60], vec![0x60; 40]];
    let single: Vec<_> = packets.iter().map(|packet| (Header::NONE, packet.clone())).collect();
    assert_eq!(coalesce(ALL, &packets), single);
}

#[test]
fn size_and_number_of_pieces_are_bounded() {
    for stream in Stream::ALL {
        let packets: Vec<_> =
            (0..100).map(|i| stream.packet(i, usize::from(i) * 1000, &payload(1000), DATA)).collect();
        let coalesced = coalesce(ALL, &packets);
        assert_eq!(coalesced.len(), 2);
        assert_eq!(segments(coalesced).concat(), packets.concat());
        let small: Vec<_> =
            (0..100).map(|i| stream.packet(i, usize::from(i) * 10, &payload(10), DATA)).collect();
        assert_eq!(counts(&small), [MAX_SEGMENTS, 100 - MAX_SEGMENTS]);
    }
}

#[test]
fn a_cleared_coalescer_begins_anew() {
    let mut coalescer = Coalescer::new(ALL);
    let packets = three(Stream::TCP6);
    for packet in &packets {
        coalescer.push(packet, &packet[..40], 40..packet.len());
        assert!(!coalescer.is_empty());
        assert_eq!(written(&coalescer, packet), [(Header::NONE, packet.clone())]);
        coalescer.clear();
        assert!(coalescer.is_empty());
    }
}

/// Corrects the checksums of a packet that a test has changed.
fn reseal(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let is_ipv6 = packet[0] >> 4 == 6;
    let start = if is_ipv6 { 40 } else { 20 };
    let (ip, transport) = packet.split_at_mut(start);
    if !is_ipv6 {
        ipv4::write_checksum(ip);
    }
    let ip = IpHeader(ip);
    let offset = if ip.protocol() == protocol::TCP { 16 } else { 6 };
    put_u16(transport, offset, 0);
    let pseudo_header = Sum::of(ip.addresses()) + Sum::word(ip.protocol().into());
    let sum = pseudo_header + Sum::word(transport.len() as u16) + Sum::of(transport);
    put_u16(transport, offset, sum.udp_checksum());
    packet
}

/// The same packets of the same flow, in order.
fn by_flow(packets: &[Vec<u8>]) -> std::collections::BTreeMap<Vec<u8>, Vec<Vec<u8>>> {
    let mut flows = std::collections::BTreeMap::<_, Vec<_>>::new();
    for packet in packets {
        let ip = IpHeader(packet);
        let ports = packet.get(ip.len()..ip.len() + 4).unwrap_or_default();
        let key = [ip.addresses(), &[ip.protocol()], ports].concat();
        flows.entry(key).or_default().push(packet.clone());
    }
    flows
}

/// One write of a host into one of its flows.
#[derive(Debug, Clone)]
struct Write {
    flow: usize,
    length: usize,
    size: u16,
    flags: u8,
    damage: Option<(usize, u8)>,
}

fn any_write() -> impl Strategy<Value = Write> {
    let flags = prop::sample::select(vec![DATA, DATA | tcp::PSH, DATA | tcp::PSH | tcp::FIN]);
    let damage = prop::option::weighted(0.1, (0usize..100, 1u8..));
    (0usize..8, 1usize..4000, 100u16..1400, flags, damage)
        .prop_map(|(flow, length, size, flags, damage)| Write { flow, length, size, flags, damage })
}

proptest! {
    #[test]
    fn streams_survive_segmentation_and_coalescing(writes in proptest::collection::vec(any_write(), 1..12)) {
        let mut offsets = [0usize; 8];
        let mut indexes = [0u16; 8];
        let mut packets = Vec::new();
        for write in &writes {
            let stream = Stream {
                source_port: write.flow as u16,
                sequence: Stream::TCP6.sequence.wrapping_add(offsets[write.flow] as u32),
                identification: indexes[write.flow],
                ..Stream::ALL[write.flow % 4]
            };
            let (header, mut gso_packet) =
                stream.gso_packet(&payload(write.length), write.size, write.flags);
            let mut segmenter = Segmenter::new(&header, &mut gso_packet).ok().unwrap();
            while let Some(segment) = segmenter.next() {
                let mut packet = [segment.head, segment.payload].concat();
                if let Some((at, mask)) = write.damage
                    // Behind all that names the flow.
                    && at > 44 && at < packet.len()
                {
                    packet[at] ^= mask;
                }
                packets.push(packet);
            }
            offsets[write.flow] += write.length;
            indexes[write.flow] += write.length.div_ceil(write.size.into()) as u16;
        }
        let coalesced = coalesce(ALL, &packets);
        prop_assert!(coalesced.len() <= packets.len());
        prop_assert_eq!(by_flow(&segments(coalesced)), by_flow(&packets));
    }

    #[test]
    fn never_panics(
        packets in proptest::collection::vec(
            (0usize..4, proptest::collection::vec((0usize..80, any::<u8>()), 0..4), 0usize..120), 1..8
        )
    ) {
        let packets: Vec<_> = packets
            .into_iter()
            .map(|(which, changes, length)| {
                let mut packet = Stream::ALL[which].packet(0, 0, &payload(60), DATA);
                for (at, value) in changes {
                    if at < packet.len() { packet[at] = value; }
                }
                packet.truncate(length.max(1));
                packet
            })
            .collect();
        let mut coalescer = Coalescer::new(ALL);
        let arena = packets.concat();
        let mut start = 0;
        for packet in &packets {
            for split in [0, 20, 40] {
                let split = split.min(packet.len());
                coalescer.push(&arena, &packet[..split], start + split..start + packet.len());
            }
            start += packet.len();
        }
        written(&coalescer, &arena);
    }
}

#[test]
fn datagrams_in_two_pieces_merge_and_the_device_completes_their_checksums() {
    let (_, whole) = Stream::UDP6.gso_packet(&payload(400), 400, 0);
    let mut headers = *whole.first_chunk::<48>().unwrap();
    for lengths_and_checksum in [4..6, 44..46, 46..48] {
        headers[lengths_and_checksum].fill(0);
    }
    let arena = payload(350);
    for offloads in [ALL, Offloads { udp6: false, ..ALL }] {
        let mut coalescer = Coalescer::new(offloads);
        for start in [0, 100, 200, 300] {
            coalescer.push_datagram(&headers, &[start..start + 20, start + 20..(start + 100).min(350)]);
        }
        let written = written(&coalescer, &arena);
        assert_eq!(written.len(), if offloads.udp6 { 1 } else { 4 });
        assert!(written.iter().all(|(header, _)| header.flags == virtio_net::NEEDS_CSUM));
        assert_eq!(segments(written), Stream::UDP6.segments(&arena, 100, 0));
    }
}
