//! Reassembly (RFC 8200 §4.5): what IPv6 says of fragments, before [`Fragments`] keeps them.

use std::time::Instant;

use wire::ecn::Ecn;
use wire::ipv6::{Fragment, HEADER_LEN, Packet};

use super::input::{Chain, holds_all_headers};
use super::refusal::{Refusal, erroneous, incomplete};
use crate::DropReason;
use crate::fragments::{Fragments, Id, Part};

const FRAGMENT_HEADER_LEN: usize = 8;
const LARGEST_PAYLOAD: usize = 65_535;

/// Takes a fragment. If that completes its packet, it is written to `out`, without Fragment header, and `true` returned.
/// `chain` is that of `packet`, and has led to `fragment`.
///
/// # Errors
/// When the fragment is impossible, overlaps another, or has no room.
pub fn insert(
    fragments: &mut Fragments,
    now: Instant,
    packet: &Packet<'_>,
    chain: &Chain,
    fragment: Fragment,
    protection: u8,
    out: &mut Vec<u8>,
) -> Result<bool, Refusal> {
    let impossible = DropReason::ImpossibleFragment;
    let at = chain.offset - HEADER_LEN;
    let (headers, data) =
        packet.payload().split_at_checked(at + FRAGMENT_HEADER_LEN).ok_or(Refusal::Silent(impossible))?;
    let next_header = headers[at];
    let offset = usize::from(fragment.offset);
    if fragment.more && !data.len().is_multiple_of(8) {
        return Err(erroneous(impossible, 4));
    }
    if at + offset + data.len() > LARGEST_PAYLOAD {
        return Err(erroneous(impossible, chain.offset + 2));
    }
    if data.is_empty() {
        return Err(Refusal::Silent(impossible));
    }
    if offset == 0 && !holds_all_headers(next_header, data) {
        return Err(incomplete());
    }
    // The next header is no part of it: that of the first fragment counts (RFC 8200 §4.5).
    let id = Id {
        source: packet.source().into(),
        destination: packet.destination().into(),
        identification: fragment.identification,
        protocol: None,
        protection,
    };
    let part = Part {
        offset,
        more: fragment.more,
        data,
        ecn: Ecn::from_bits(packet.traffic_class()),
        headers: [packet.header(), headers],
        kept: chain.offset,
        changed: (chain.pointer, next_header),
    };
    if !fragments.insert(now, id, &part, out).map_err(Refusal::Silent)? {
        return Ok(false);
    }
    // The first fragment may have had longer headers than the one whose end was checked.
    let Ok(payload) = u16::try_from(out.len() - HEADER_LEN) else {
        return Err(erroneous(impossible, chain.offset + 2));
    };
    out[4..6].copy_from_slice(&payload.to_be_bytes());
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fragments::{
        MAX_OCTETS, MAX_OCTETS_PER_SOURCE, MAX_PACKETS, MAX_PACKETS_PER_SOURCE, REASSEMBLY_TIME,
    };
    use crate::ipv6::input::{self, Next};
    use proptest::prelude::*;
    use std::net::Ipv6Addr;
    use std::time::Duration;
    use wire::icmp_error::Reason;
    use wire::ipv6::Header;
    use wire::{ecn, protocol};

    struct Host {
        reassembly: Fragments,
        start: Instant,
        out: Vec<u8>,
    }

    impl Host {
        fn new() -> Self {
            Host { reassembly: Fragments::default(), start: Instant::now(), out: Vec::new() }
        }

        fn receive(&mut self, bytes: &[u8]) -> Result<bool, Refusal> {
            self.receive_at(0, bytes)
        }

        fn receive_at(&mut self, second: u64, bytes: &[u8]) -> Result<bool, Refusal> {
            let packet = Packet::parse(bytes).unwrap();
            let chain = input::parse(&packet)?;
            let Next::Fragment(fragment) = chain.next else { panic!("no fragment") };
            let now = self.start + Duration::from_secs(second);
            insert(&mut self.reassembly, now, &packet, &chain, fragment, 0, &mut self.out)
        }
    }

    /// A fragment of a UDP packet from the host with this number.
    fn fragment(from: u16, id: u32, offset: u16, more: bool, data: &[u8]) -> Vec<u8> {
        let header = Header {
            traffic_class: 2,
            flow_label: 0,
            payload_length: 8 + data.len() as u16,
            next_header: protocol::FRAGMENT,
            hop_limit: 64,
            source: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 1, from),
            destination: "2001:db8::2".parse().unwrap(),
        };
        let mut bytes = header.to_bytes().to_vec();
        bytes.extend([protocol::UDP, 0]);
        bytes.extend((offset | u16::from(more)).to_be_bytes());
        bytes.extend(id.to_be_bytes());
        bytes.extend(data);
        bytes
    }

    const OVERLAP: Result<bool, Refusal> = Err(Refusal::Silent(DropReason::OverlappingFragment));

    #[test]
    fn fragments_in_any_order_make_the_packet() {
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
            let mut host = Host::new();
            let all = [
                fragment(1, 7, 0, true, &[1; 16]),
                fragment(1, 7, 16, true, &[2; 8]),
                fragment(1, 7, 24, false, &[3; 5]),
            ];
            assert_eq!(host.receive(&all[order[0]]), Ok(false));
            assert_eq!(host.receive(&all[order[1]]), Ok(false));
            assert_eq!(host.receive(&all[order[1]]), Ok(false), "a duplicate is ignored");
            assert_eq!(host.receive(&all[order[2]]), Ok(true));
            let packet = Packet::parse(&host.out).unwrap();
            assert_eq!(packet.next_header(), protocol::UDP);
            assert_eq!(packet.payload(), [&[1; 16][..], &[2; 8], &[3; 5]].concat());
            assert_eq!((host.reassembly.octets(), host.reassembly.deadline()), (0, None));
        }
    }

    #[test]
    fn rfc_5722_an_overlap_drops_the_packet_with_all_that_comes_of_it() {
        for overlapping in [
            fragment(1, 7, 8, true, &[9; 16]),
            fragment(1, 7, 0, true, &[9; 16]),
            fragment(1, 7, 0, true, &[1; 24]),
            fragment(1, 7, 8, false, &[9; 3]),
        ] {
            let mut host = Host::new();
            assert_eq!(host.receive(&fragment(1, 7, 0, true, &[1; 16])), Ok(false));
            assert_eq!(host.receive(&overlapping), OVERLAP);
            assert_eq!(host.receive(&fragment(1, 7, 16, false, &[1; 16])), OVERLAP);
            assert_eq!(host.reassembly.octets(), 0);
            assert!(host.reassembly.expire(host.start + REASSEMBLY_TIME, &mut host.out));
            assert!(host.out.is_empty(), "and no error is sent");
        }
    }

    #[test]
    fn two_ends_of_one_packet_contradict_each_other() {
        let mut host = Host::new();
        assert_eq!(host.receive(&fragment(1, 7, 32, false, &[1; 8])), Ok(false));
        assert_eq!(host.receive(&fragment(1, 7, 16, false, &[1; 8])), OVERLAP);
        let mut host = Host::new();
        assert_eq!(host.receive(&fragment(1, 7, 32, false, &[1; 8])), Ok(false));
        assert_eq!(host.receive(&fragment(1, 7, 40, true, &[1; 8])), OVERLAP);
    }

    #[test]
    fn rfc_8200_4_5_impossible_fragments_are_answered_with_the_field() {
        let mut host = Host::new();
        let answered = |pointer| {
            Err(Refusal::Answered(DropReason::ImpossibleFragment, Reason::ErroneousField { pointer }))
        };
        assert_eq!(host.receive(&fragment(1, 7, 8, true, &[1; 9])), answered(4));
        assert_eq!(host.receive(&fragment(1, 7, 65_528, false, &[1; 8])), answered(42));
        assert_eq!(host.receive(&fragment(1, 7, 65_528, false, &[1; 7])), Ok(false));
    }

    #[test]
    fn rfc_7112_a_first_fragment_without_all_headers_is_refused() {
        let mut first = fragment(1, 7, 0, true, &[0; 8]);
        first[40] = protocol::TCP;
        assert_eq!(Host::new().receive(&first), Err(incomplete()));
    }

    #[test]
    fn rfc_8200_4_5_after_60_seconds_the_first_fragment_is_there_to_be_quoted() {
        let mut host = Host::new();
        let first = fragment(1, 7, 0, true, &[1; 16]);
        host.receive(&first).unwrap();
        host.receive_at(1, &fragment(2, 7, 16, true, &[1; 16])).unwrap();
        assert_eq!(host.reassembly.deadline(), Some(host.start + REASSEMBLY_TIME));
        assert!(!host.reassembly.expire(host.start + Duration::from_millis(59_999), &mut host.out));
        assert!(host.reassembly.expire(host.start + REASSEMBLY_TIME, &mut host.out));
        assert_eq!(host.out, first);
        assert!(host.reassembly.expire(host.start + Duration::from_secs(61), &mut host.out));
        assert!(host.out.is_empty(), "without the first fragment there is nothing to quote");
    }

    #[test]
    fn congestion_experienced_by_a_fragment_is_that_of_the_packet() {
        let mut host = Host::new();
        let mut marked = fragment(1, 7, 8, false, &[1; 8]);
        ecn::set(&mut marked, Ecn::Ce);
        host.receive(&marked).unwrap();
        assert_eq!(host.receive(&fragment(1, 7, 0, true, &[1; 8])), Ok(true));
        assert_eq!(ecn::get(&host.out), Some(Ecn::Ce));
    }

    #[test]
    fn a_source_has_no_more_than_its_share_and_the_oldest_makes_room() {
        let mut host = Host::new();
        for id in 0..MAX_PACKETS_PER_SOURCE as u32 {
            assert_eq!(host.receive(&fragment(1, id, 8, true, &[1; 8])), Ok(false));
        }
        assert_eq!(host.receive(&fragment(1, 99, 8, true, &[1; 8])), Ok(false));
        assert_eq!(host.reassembly.len(), MAX_PACKETS_PER_SOURCE);
        assert_eq!(host.receive(&fragment(1, 99, 0, true, &[1; 8])), Ok(false));
        assert_eq!(host.receive(&fragment(1, 99, 16, false, &[1; 8])), Ok(true), "the newest is whole");
        for source in 2..200 {
            assert_eq!(host.receive(&fragment(source, 1, 8, true, &[1; 8])), Ok(false));
            assert!(host.reassembly.len() <= MAX_PACKETS);
        }
    }

    #[test]
    fn octets_are_bounded_for_a_source_and_for_all() {
        let mut host = Host::new();
        for source in 1..20 {
            for id in 0..6 {
                for at in 0..40u16 {
                    let _ = host.receive(&fragment(source, id, at * 1400, true, &[1; 1400]));
                }
            }
            assert!(host.reassembly.octets() <= MAX_OCTETS);
        }
        let mut host = Host::new();
        for id in 0..6 {
            for at in 0..40u16 {
                let _ = host.receive(&fragment(1, id, at * 1400, true, &[1; 1400]));
            }
        }
        assert!(host.reassembly.octets() <= MAX_OCTETS_PER_SOURCE);
    }

    proptest! {
        #[test]
        fn what_is_fragmented_is_whole_again(
            data in proptest::collection::vec(any::<u8>(), 1300..9000), mtu in 1280usize..2000, seed: u64
        ) {
            let header = Header {
                traffic_class: 0,
                flow_label: 0,
                payload_length: data.len() as u16,
                next_header: protocol::UDP,
                hop_limit: 64,
                source: "2001:db8::1".parse().unwrap(),
                destination: "2001:db8::2".parse().unwrap(),
            };
            let packet = [&header.to_bytes()[..], &data].concat();
            let mut fragments = Vec::new();
            let view = Packet::parse(&packet).unwrap();
            crate::ipv6::fragmentation::fragment(&view, mtu, 7, |head, data| {
                fragments.push([head, data].concat());
            });
            fastrand::Rng::with_seed(seed).shuffle(&mut fragments);
            let mut host = Host::new();
            let last = fragments.pop().unwrap();
            if fragments.is_empty() { return Ok(()); }
            for fragment in fragments {
                prop_assert_eq!(host.receive(&fragment), Ok(false));
            }
            prop_assert_eq!(host.receive(&last), Ok(true));
            prop_assert_eq!(host.out, packet);
        }

        #[test]
        fn any_fragments_keep_memory_bounded(
            pieces in proptest::collection::vec((1u16..4, 0u32..3, 0u16..40, any::<bool>(), 1usize..40), 0..60)
        ) {
            let mut host = Host::new();
            for (from, id, units, more, length) in pieces {
                // Offset 0 and no more: no fragment.
                let more = more || units == 0;
                let _ = host.receive(&fragment(from, id, units * 8, more, &vec![7; length]));
                prop_assert!(host.reassembly.len() <= MAX_PACKETS);
            }
        }
    }
}
