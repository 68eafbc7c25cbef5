//! Reassembly (RFC 8200 §4.5): fragments are kept until their packet is whole, or 60 seconds have passed.
//!
//! Fragments that overlap give the whole packet up, with those of its fragments that are still to come (RFC 5722). What
//! strangers can make us keep is bounded: in packets and octets, of one source and of all. If there is no room, the oldest
//! packet makes some: of the source that has too many, or of all.

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use wire::ecn::{self, Ecn};
use wire::ipv6::{Fragment, HEADER_LEN, Packet};
use wire::protocol;

use super::input::{Chain, holds_all_headers};
use super::refusal::{Refusal, erroneous};
use crate::DropReason;

/// After the first fragment to arrive, the others have so long (RFC 8200 §4.5).
pub const REASSEMBLY_TIME: Duration = Duration::from_secs(60);
/// Packets in pieces, of all sources. Those that have lost a fragment are the oldest, and make room.
pub const MAX_PACKETS: usize = 64;
/// Packets in pieces of one source: what a burst of large datagrams out of order needs.
pub const MAX_PACKETS_PER_SOURCE: usize = 8;
/// Octets of all sources: sixteen packets of the largest size.
pub const MAX_OCTETS: usize = 1 << 20;
/// Octets of one source: four packets of the largest size.
pub const MAX_OCTETS_PER_SOURCE: usize = 1 << 18;
/// Fragments of one packet: 65,535 octets in pieces for the least MTU are 54.
pub const MAX_FRAGMENTS: usize = 64;
/// What a fragment is counted with beside its octets, so that small ones are not free.
const FRAGMENT_COST: usize = 64;

const FRAGMENT_HEADER_LEN: usize = 8;
const LARGEST_PAYLOAD: usize = 65_535;

/// The packets of which some fragments have arrived.
#[derive(Default)]
pub struct Reassembly {
    /// The oldest first.
    packets: Vec<Pieces>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Id {
    source: Ipv6Addr,
    destination: Ipv6Addr,
    identification: u32,
}

struct Pieces {
    id: Id,
    deadline: Instant,
    /// Headers of the first fragment, its Fragment header included.
    headers: Option<Headers>,
    /// By offset; none overlap.
    fragments: Vec<Piece>,
    /// How long the whole is, once the last fragment has come.
    total: Option<usize>,
    congestion_experienced: bool,
    not_ect: bool,
    octets: usize,
    /// Fragments have overlapped: those that come are dropped, too.
    given_up: bool,
}

struct Headers {
    bytes: Vec<u8>,
    /// Where the field is that names the Fragment header.
    pointer: usize,
}

struct Piece {
    offset: usize,
    data: Vec<u8>,
}

impl Piece {
    fn end(&self) -> usize {
        self.offset + self.data.len()
    }
}

impl Reassembly {
    /// Takes a fragment. If that completes its packet, it is written to `out`, without Fragment header, and `true`
    /// returned. `chain` is that of `packet`, and has led to `fragment`.
    ///
    /// # Errors
    /// When the fragment is impossible, overlaps another, or has no room.
    pub fn insert(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        chain: &Chain,
        fragment: Fragment,
        out: &mut Vec<u8>,
    ) -> Result<bool, Refusal> {
        let impossible = DropReason::ImpossibleFragment;
        let at = chain.offset - HEADER_LEN;
        let header = packet.payload().get(at..at + FRAGMENT_HEADER_LEN).ok_or(Refusal::Silent(impossible))?;
        let data = &packet.payload()[at + FRAGMENT_HEADER_LEN..];
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
        if offset == 0 && !holds_all_headers(header[0], data) {
            return Err(Refusal::Silent(DropReason::IncompleteHeaderChain));
        }
        let id = Id {
            source: packet.source(),
            destination: packet.destination(),
            identification: fragment.identification,
        };
        let index = self.find_or_begin(now, id);
        if self.packets[index].given_up {
            return Err(Refusal::Silent(DropReason::OverlappingFragment));
        }
        if !self.packets[index].fits(offset, data, fragment.more) {
            self.packets[index].give_up();
            return Err(Refusal::Silent(DropReason::OverlappingFragment));
        }
        if self.packets[index].has(offset, data) {
            return Ok(false);
        }
        let index = self.make_room(index, chain.offset + data.len() + FRAGMENT_COST)?;
        let pieces = &mut self.packets[index];
        pieces.add(packet, chain, offset, data, fragment.more);
        if !pieces.is_whole() {
            return Ok(false);
        }
        let pieces = self.packets.remove(index);
        pieces.write(out)
    }

    /// When [`Reassembly::expire`] has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        self.packets.first().map(|pieces| pieces.deadline)
    }

    /// Gives up the oldest packet if its time is over. If its first fragment had arrived, that is written to `out` for the
    /// error to quote (Time Exceeded, code 1), else `out` is empty.
    pub fn expire(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        out.clear();
        if self.deadline().is_none_or(|deadline| deadline > now) {
            return false;
        }
        let pieces = self.packets.remove(0);
        if let (Some(headers), Some(first)) = (&pieces.headers, pieces.fragments.first()) {
            out.extend_from_slice(&headers.bytes);
            out.extend_from_slice(&first.data);
        }
        true
    }

    /// Octets that are kept.
    pub fn octets(&self) -> usize {
        self.packets.iter().map(|pieces| pieces.octets).sum()
    }

    fn find_or_begin(&mut self, now: Instant, id: Id) -> usize {
        if let Some(index) = self.packets.iter().position(|pieces| pieces.id == id) {
            return index;
        }
        let of_source = |pieces: &&Pieces| pieces.id.source == id.source;
        if self.packets.iter().filter(of_source).count() >= MAX_PACKETS_PER_SOURCE {
            self.remove_oldest(|pieces| pieces.id.source == id.source);
        }
        if self.packets.len() >= MAX_PACKETS {
            self.packets.remove(0);
        }
        self.packets.push(Pieces {
            id,
            deadline: now + REASSEMBLY_TIME,
            headers: None,
            fragments: Vec::new(),
            total: None,
            congestion_experienced: false,
            not_ect: false,
            octets: 0,
            given_up: false,
        });
        self.packets.len() - 1
    }

    /// Makes room for `octets` more of the packet at `index`; returns where it is then.
    fn make_room(&mut self, index: usize, octets: usize) -> Result<usize, Refusal> {
        let id = self.packets[index].id;
        let source = id.source;
        let full = Refusal::Silent(DropReason::FragmentLimit);
        if self.packets[index].fragments.len() >= MAX_FRAGMENTS {
            return Err(full);
        }
        let of_source = |this: &Self| {
            let of_source = this.packets.iter().filter(|pieces| pieces.id.source == source);
            of_source.map(|pieces| pieces.octets).sum::<usize>()
        };
        while of_source(self) + octets > MAX_OCTETS_PER_SOURCE {
            if !self.remove_oldest(|pieces| pieces.id.source == source && pieces.id != id) {
                return Err(full);
            }
        }
        while self.octets() + octets > MAX_OCTETS {
            if !self.remove_oldest(|pieces| pieces.id != id) {
                return Err(full);
            }
        }
        self.packets.iter().position(|pieces| pieces.id == id).ok_or(full)
    }

    fn remove_oldest(&mut self, of: impl Fn(&Pieces) -> bool) -> bool {
        let oldest = self.packets.iter().position(of);
        oldest.map(|oldest| self.packets.remove(oldest)).is_some()
    }
}

impl Pieces {
    /// Whether the fragment goes with those that are here: no overlap, other than with one that is equal.
    fn fits(&self, offset: usize, data: &[u8], more: bool) -> bool {
        let end = offset + data.len();
        let beyond = match self.total {
            Some(total) => end > total || !more && end != total || more && end == total,
            None => !more && self.fragments.last().is_some_and(|last| last.end() > end),
        };
        !beyond
            && (self.has(offset, data)
                || self.fragments.iter().all(|piece| piece.end() <= offset || end <= piece.offset))
    }

    /// Whether this very fragment is here: networks duplicate packets (RFC 8200 §4.5).
    fn has(&self, offset: usize, data: &[u8]) -> bool {
        let found = self.fragments.binary_search_by_key(&offset, |piece| piece.offset);
        found.is_ok_and(|index| self.fragments[index].data == data)
    }

    fn add(&mut self, packet: &Packet<'_>, chain: &Chain, offset: usize, data: &[u8], more: bool) {
        if offset == 0 {
            let unfragmentable = chain.offset - HEADER_LEN + FRAGMENT_HEADER_LEN;
            let bytes = [&packet.header()[..], &packet.payload()[..unfragmentable]].concat();
            self.octets += bytes.len();
            self.headers = Some(Headers { bytes, pointer: chain.pointer });
        }
        if !more {
            self.total = Some(offset + data.len());
        }
        match Ecn::from_bits(packet.traffic_class()) {
            Ecn::Ce => self.congestion_experienced = true,
            Ecn::NotEct => self.not_ect = true,
            Ecn::Ect0 | Ecn::Ect1 => {}
        }
        let place = self.fragments.partition_point(|piece| piece.offset < offset);
        self.fragments.insert(place, Piece { offset, data: data.to_vec() });
        self.octets += data.len() + FRAGMENT_COST;
    }

    fn is_whole(&self) -> bool {
        let mut end = 0;
        self.fragments.iter().all(|piece| piece.offset == std::mem::replace(&mut end, piece.end()))
            && self.total == Some(end)
    }

    fn give_up(&mut self) {
        self.given_up = true;
        self.headers = None;
        self.fragments = Vec::new();
        self.octets = 0;
    }

    /// Writes the packet; `false` if its length is impossible after all.
    fn write(self, out: &mut Vec<u8>) -> Result<bool, Refusal> {
        let impossible = Refusal::Silent(DropReason::ImpossibleFragment);
        // Congestion marks on some fragments of a packet that cannot carry one (RFC 3168 §5.3).
        if self.congestion_experienced && self.not_ect {
            return Err(impossible);
        }
        let headers = self.headers.ok_or(impossible)?;
        let (unfragmentable, fragment) =
            headers.bytes.split_last_chunk::<FRAGMENT_HEADER_LEN>().ok_or(impossible)?;
        out.clear();
        out.extend_from_slice(unfragmentable);
        for piece in &self.fragments {
            out.extend_from_slice(&piece.data);
        }
        let payload = u16::try_from(out.len() - HEADER_LEN);
        let Ok(payload) = payload else { return Err(erroneous(DropReason::ImpossibleFragment, 4)) };
        out[4..6].copy_from_slice(&payload.to_be_bytes());
        debug_assert_eq!(out[headers.pointer], protocol::FRAGMENT);
        out[headers.pointer] = fragment[0];
        if self.congestion_experienced {
            ecn::set(out, Ecn::Ce);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipv6::input::{self, Next};
    use proptest::prelude::*;
    use wire::icmp_error::Reason;
    use wire::ipv6::Header;

    struct Host {
        reassembly: Reassembly,
        start: Instant,
        out: Vec<u8>,
    }

    impl Host {
        fn new() -> Self {
            Host { reassembly: Reassembly::default(), start: Instant::now(), out: Vec::new() }
        }

        fn receive(&mut self, bytes: &[u8]) -> Result<bool, Refusal> {
            self.receive_at(0, bytes)
        }

        fn receive_at(&mut self, second: u64, bytes: &[u8]) -> Result<bool, Refusal> {
            let packet = Packet::parse(bytes).unwrap();
            let chain = input::parse(&packet)?;
            let Next::Fragment(fragment) = chain.next else { panic!("no fragment") };
            let now = self.start + Duration::from_secs(second);
            self.reassembly.insert(now, &packet, &chain, fragment, &mut self.out)
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
    fn rfc_7112_a_first_fragment_without_all_headers_is_dropped() {
        let mut first = fragment(1, 7, 0, true, &[0; 8]);
        first[40] = protocol::TCP;
        assert_eq!(Host::new().receive(&first), Err(Refusal::Silent(DropReason::IncompleteHeaderChain)));
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
        assert_eq!(host.reassembly.packets.len(), MAX_PACKETS_PER_SOURCE);
        assert_eq!(host.receive(&fragment(1, 99, 0, true, &[1; 8])), Ok(false));
        assert_eq!(host.receive(&fragment(1, 99, 16, false, &[1; 8])), Ok(true), "the newest is whole");
        for source in 2..200 {
            assert_eq!(host.receive(&fragment(source, 1, 8, true, &[1; 8])), Ok(false));
            assert!(host.reassembly.packets.len() <= MAX_PACKETS);
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
        let last = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 1, 19);
        let of_last = host.reassembly.packets.iter().filter(|pieces| pieces.id.source == last);
        assert!(of_last.map(|pieces| pieces.octets).sum::<usize>() <= MAX_OCTETS_PER_SOURCE);
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
                prop_assert!(host.reassembly.packets.len() <= MAX_PACKETS);
            }
        }
    }
}
