use proptest::prelude::*;

use super::*;

const START: u32 = 0xffff_ff00;

fn segment(at: u32, flags: u8, octets: &[u8]) -> Segment<'_> {
    let sequence = START.wrapping_add(at).wrapping_add(u32::from(flags & tcp::SYN == 0));
    Segment { sequence, flags, octets, fault: None }
}

fn syn() -> Segment<'static> {
    segment(0, tcp::SYN, &[])
}

/// A text, and places where it is cut, in any order, some of them twice.
fn a_text_in_pieces() -> impl Strategy<Value = (Vec<u8>, Vec<(usize, usize)>)> {
    proptest::collection::vec(any::<u8>(), 1..400).prop_flat_map(|text| {
        let length = text.len();
        let cuts = proptest::collection::btree_set(1..=length, 0..10);
        let more = proptest::collection::vec((0..length, 1..=length), 0..10);
        (Just(text), cuts, more).prop_flat_map(move |(text, cuts, more)| {
            let ends: Vec<usize> = cuts.into_iter().chain([length]).collect();
            let starts = [0].into_iter().chain(ends.iter().copied());
            let mut pieces: Vec<_> =
                starts.zip(ends.iter().copied()).filter(|(from, to)| from < to).collect();
            pieces.extend(more.into_iter().map(|(from, count)| (from, (from + count).min(length))));
            (Just(text), Just(pieces).prop_shuffle())
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_text_in_any_pieces_in_any_order_is_that_text((text, pieces) in a_text_in_pieces(), fin: bool) {
        let mut streams = Streams::new(Limits::default());
        streams.take(b"key", &syn(), 0);
        for (from, to) in pieces {
            let before = streams.octets(b"key", 0).to_vec();
            let flags = if fin && to == text.len() { tcp::FIN } else { 0 };
            let seen = streams.take(b"key", &segment(from as u32, flags, &text[from..to]), 0);
            let early = from > before.len();
            prop_assert_eq!(seen.fault, early.then_some(Fault::Early));
            prop_assert!(streams.octets(b"key", 0).starts_with(&before));
        }
        prop_assert_eq!(streams.octets(b"key", 0), &text[..]);
        prop_assert_eq!(streams.has_ended(b"key", 0), fin);
    }

    /// Of what passes no two copies of an octet differ, and nothing is behind what was seen.
    #[test]
    fn a_receiver_of_what_passes_has_what_was_seen(
        segments in proptest::collection::vec((0u32..80, 0u8..3, proptest::collection::vec(0u8..2, 0..30), 0u8..20), 1..60),
        decide_at in 0usize..60,
        limit in 1usize..100,
    ) {
        let limits = Limits { octets: limit, ..Limits::default() };
        let mut streams = Streams::new(limits);
        streams.take(b"key", &syn(), 0);
        let mut examined = None;
        for (number, (at, flags, octets, wrong)) in segments.iter().enumerate() {
            // FIN now and then; SYN, which may be another; faults of the segment itself.
            let flags = [0, tcp::FIN, tcp::SYN][usize::from(*flags)];
            let fault = (*wrong == 0).then_some(Fault::Checksum);
            let segment = Segment { fault, ..segment(*at, flags, octets) };
            let before = streams.octets(b"key", 0).to_vec();
            let seen = streams.take(b"key", &segment, 0);
            let after = streams.octets(b"key", 0).to_vec();
            prop_assert!(after.starts_with(&before) && after.len() <= limit);
            prop_assert!(!seen.begins);
            if seen.fault.is_none() && !octets.is_empty() {
                let shown = *at as usize..*at as usize + octets.len();
                let free = examined.unwrap_or(shown.end).max(shown.start);
                let bound = shown.end.min(free) - shown.start;
                prop_assert_eq!(&octets[..bound], &after[shown.start.min(after.len())..][..bound]);
            }
            if number == decide_at {
                examined = Some(streams.decide(b"key", Decision::Accept, 0).examined as usize);
                prop_assert_eq!(examined, Some(after.len()));
            }
        }
    }

    #[test]
    fn no_flood_takes_more_than_was_granted(
        segments in proptest::collection::vec((0u8..200, 0u32..2000, any::<u8>(), 0usize..50, 0u8..30), 1..400),
    ) {
        let limits = Limits { streams: 20, octets: 500, memory: 2000, expires_ms: 1000 };
        let mut streams = Streams::new(limits);
        for (now, (key, at, flags, count, decide)) in segments.into_iter().enumerate() {
            let now = now as u64 * 7;
            let octets = vec![key; count];
            streams.take(&[key % 40], &segment(at, flags & 7, &octets), now);
            if decide < 2 {
                let decision = if decide == 0 { Decision::Accept } else { Decision::Refuse };
                streams.decide(&[key % 40], decision, now);
            }
            prop_assert!(streams.held() <= limits.memory);
            for table in [&mut streams.opening, &mut streams.open] {
                prop_assert!(table.count(now) <= limits.streams);
            }
            prop_assert!(streams.decided.count(now) <= limits.streams);
        }
    }
}

#[test]
fn a_segment_alone_makes_no_stream() {
    let mut streams = Streams::new(Limits::default());
    for flags in [0, tcp::ACK, tcp::FIN, tcp::RST, tcp::SYN | tcp::RST] {
        let seen = streams.take(b"key", &segment(0, flags, b"octets"), 0);
        assert_eq!(seen, Seen { fault: Some(Fault::Unknown), decided: None, begins: false });
    }
    assert_eq!((streams.opening.count(0), streams.open.count(0)), (0, 0));
}

#[test]
fn a_flood_of_beginnings_evicts_no_stream_with_octets() {
    let mut streams = Streams::new(Limits { streams: 10, ..Limits::default() });
    streams.take(b"key", &syn(), 0);
    streams.take(b"key", &segment(0, 0, b"octets"), 0);
    for other in 0..100_u8 {
        streams.take(&[other], &syn(), 1);
    }
    assert_eq!(streams.octets(b"key", 1), b"octets");
    assert_eq!(streams.opening.count(1), 10);
}

#[test]
fn what_was_forgotten_of_an_accepted_stream_is_not_believed_again() {
    let mut streams = Streams::new(Limits { octets: 100, memory: 200, ..Limits::default() });
    streams.take(b"key", &syn(), 0);
    streams.take(b"key", &segment(0, 0, &[1; 100]), 0);
    streams.decide(b"key", Decision::Accept, 0);
    for other in 0..5_u8 {
        streams.take(&[other], &syn(), 0);
        streams.take(&[other], &segment(0, 0, &[2; 100]), 0);
    }
    let seen = streams.take(b"key", &segment(50, 0, &[1; 100]), 0);
    assert_eq!(seen.fault, Some(Fault::Contradicts));
    assert_eq!(streams.take(b"key", &segment(100, 0, &[1; 100]), 0).fault, None);
}

#[test]
fn sequence_numbers_that_come_again_are_no_copies() {
    let mut streams = Streams::new(Limits::default());
    streams.take(b"key", &syn(), 0);
    streams.take(b"key", &segment(0, 0, b"hello"), 0);
    streams.decide(b"key", Decision::Accept, 0);
    let octets = vec![1; 1 << 16];
    // One of another number does not change that.
    assert_eq!(streams.take(b"key", &segment(3 << 30, 0, &octets), 0).fault, None);
    for at in 0..1_u32 << 16 {
        let copy = streams.take(b"key", &segment(1, 0, b"a"), 0);
        // The half that counts is nearly through.
        assert_eq!(copy.fault, (at < (1 << 16) - 30).then_some(Fault::Contradicts), "{at}");
        assert_eq!(
            streams.take(b"key", &segment((at << 16) + 5, 0, &octets[..(1 << 16) - 5]), 0).fault,
            None
        );
    }
    assert_eq!(streams.take(b"key", &segment(0, 0, b"world"), 0).fault, None);
}

#[test]
fn what_is_forgotten_of_a_stream_may_be_restored() {
    let mut streams = Streams::new(Limits::default());
    let accepted = Decided::known(Decision::Accept, START, 10, 0);
    streams.restore(b"key", accepted, 0);
    assert_eq!(streams.take(b"key", &segment(20, tcp::FIN, b"the end"), 0).fault, None);
    assert_eq!(streams.take(b"key", &segment(5, 0, b"other"), 0).fault, Some(Fault::Contradicts));
    // What is known is not replaced.
    streams.restore(b"key", Decided::known(Decision::Refuse, 0, 0, 0), 0);
    assert_eq!(
        streams.take(b"key", &segment(30, 0, b"x"), 0).decided.map(|one| one.decision),
        Some(Decision::Accept)
    );
}

#[test]
fn data_of_a_syn_is_the_beginning() {
    let mut streams = Streams::new(Limits::default());
    let seen = streams.take(b"key", &segment(0, tcp::SYN, b"fast"), 0);
    assert_eq!((seen.fault, seen.begins), (None, true));
    assert_eq!(streams.take(b"key", &segment(0, 0, b"open"), 0).fault, Some(Fault::Contradicts));
    assert_eq!(streams.take(b"key", &segment(0, 0, b"faster"), 0).fault, None);
    assert_eq!(streams.octets(b"key", 0), b"faster");
}

#[test]
fn a_stream_that_nothing_is_seen_of_expires() {
    let limits = Limits::default();
    let mut streams = Streams::new(limits);
    streams.take(b"key", &syn(), 0);
    streams.take(b"key", &segment(0, 0, b"octets"), 5);
    assert_eq!(streams.octets(b"key", limits.expires_ms + 4), b"octets");
    assert_eq!(streams.octets(b"key", limits.expires_ms + 5), b"");
    let late = streams.take(b"key", &segment(6, 0, b"x"), limits.expires_ms + 5);
    assert_eq!(late.fault, Some(Fault::Unknown));
}
