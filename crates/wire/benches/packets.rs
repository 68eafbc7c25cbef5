//! What the packet formats cost: `cargo bench -p sidestep-wire`.

#![allow(missing_docs, reason = "benchmarks")]

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use sidestep_wire::checksum::Sum;
use sidestep_wire::coalesce::{Coalescer, Offloads};
use sidestep_wire::segment::Segmenter;
use sidestep_wire::virtio_net;

const IPV6: usize = 40;
const TCP: usize = 20;
const SEGMENT: usize = 1_364;
const SEGMENTS: usize = 45;
const OFFLOADS: Offloads = Offloads { tcp4: true, tcp6: true, udp4: true, udp6: true };

fn main() {
    divan::main();
}

/// A GSO packet of TCP over IPv6 as a TUN device hands it over.
fn gso_packet() -> (virtio_net::Header, Vec<u8>) {
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, 6, 64];
    packet.extend([0x20; 32]);
    packet.extend([0x10, 0x92, 0x10, 0x93, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    packet.resize(IPV6 + TCP + SEGMENTS * SEGMENT, 0x5a);
    let header = virtio_net::Header {
        flags: virtio_net::NEEDS_CSUM,
        gso_type: virtio_net::GSO_TCPV6,
        hdr_len: (IPV6 + TCP) as u16,
        gso_size: SEGMENT as u16,
        csum_start: IPV6 as u16,
        csum_offset: 16,
    };
    (header, packet)
}

#[divan::bench(args = [64, 1_400])]
fn checksum(bencher: Bencher, length: usize) {
    let bytes = vec![0x5a; length];
    bencher.counter(BytesCount::new(length)).bench_local(|| Sum::of(black_box(&bytes)));
}

#[divan::bench]
fn segment_64_kb(bencher: Bencher) {
    let (header, mut packet) = gso_packet();
    bencher.counter(ItemsCount::new(SEGMENTS)).bench_local(|| {
        let mut segmenter = Segmenter::new(&header, &mut packet).expect("a GSO packet");
        while let Some(segment) = segmenter.next() {
            black_box(segment);
        }
    });
}

#[divan::bench]
fn coalesce_64_kb(bencher: Bencher) {
    let (header, mut packet) = gso_packet();
    let (mut arena, mut places) = (Vec::new(), Vec::new());
    let mut segmenter = Segmenter::new(&header, &mut packet).expect("a GSO packet");
    while let Some(segment) = segmenter.next() {
        let (ip, transport) = segment.head.split_at(IPV6);
        let start = arena.len();
        arena.extend_from_slice(transport);
        arena.extend_from_slice(segment.payload);
        places.push((ip.to_vec(), start..arena.len()));
    }
    let mut coalescer = Coalescer::new(OFFLOADS);
    bencher.counter(ItemsCount::new(SEGMENTS)).bench_local(|| {
        for (ip, rest) in &places {
            coalescer.push(&arena, ip, rest.clone());
        }
        assert_eq!(coalescer.packets().len(), 1);
        coalescer.clear();
    });
}
