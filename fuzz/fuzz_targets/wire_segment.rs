//! Any GSO packet under any virtio header: segmented into well-formed packets, or refused unchanged.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::segment::Segmenter;
use wire::virtio_net::Header;
use wire::{ipv4, ipv6};

fuzz_target!(|bytes: &[u8]| {
    let Some((header, packet)) = bytes.split_first_chunk() else { return };
    let header = Header::from_bytes(header);
    let mut cut = packet.to_vec();
    let Ok(mut segmenter) = Segmenter::new(&header, &mut cut) else {
        assert_eq!(cut, packet);
        return;
    };
    let (count, largest) = (segmenter.segment_count(), segmenter.largest_segment());
    let mut payload = 0;
    for left in (0..count).rev() {
        let segment = segmenter.next().expect("as many as were announced");
        assert!(segment.len() <= largest);
        payload += segment.payload.len();
        if header.is_gso() {
            well_formed(&[segment.head, segment.payload].concat());
        }
        assert_eq!(segmenter.segment_count(), left);
    }
    assert!(segmenter.next().is_none());
    assert!(payload <= packet.len());
});

fn well_formed(segment: &[u8]) {
    if segment[0] >> 4 == 6 {
        let view = ipv6::Packet::parse(segment).expect("IPv6");
        assert_eq!(usize::from(view.payload_length()) + ipv6::HEADER_LEN, segment.len());
    } else {
        let view = ipv4::Packet::parse(segment).expect("IPv4");
        assert_eq!(usize::from(view.total_length()), segment.len());
        assert!(view.has_valid_checksum());
    }
}
