//! The rules of RFC 9293 and others, one story each: a connection of ours, and segments written by hand.

use std::time::{Duration, Instant};

use wire::ecn::Ecn;
use wire::tcp::{
    ACK, CWR, ECE, FIN, Header, PSH, RST, SYN, SackBlocks, Segment, SegmentOptions, Timestamps, URG,
};

use super::super::{
    Config, Connection, Error, IcmpError, KeepAlive, Listener, MAX_HALF_OPEN, Reaction, State,
};
use super::network::{MS, flow, reversed, secrets};

/// Their initial sequence number; ours is the connection's choice.
const THEIRS: u32 = u32::MAX - 1;
const MSS: usize = 1000;
/// Of the handshake.
const RTT: Duration = Duration::from_millis(50);
const SECOND: Duration = Duration::from_secs(1);

/// What left.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Left {
    /// From our initial sequence number and theirs on: the first byte of each stream is 1.
    sequence: u32,
    ack: u32,
    flags: u8,
    window: u16,
    options: SegmentOptions,
    payload: Vec<u8>,
    segment_size: Option<u16>,
    ecn: Ecn,
}

impl Left {
    /// Sequence, acknowledgement, flags and length.
    fn brief(&self) -> (u32, u32, u8, usize) {
        (self.sequence, self.ack, self.flags, self.payload.len())
    }
}

struct Story {
    now: Instant,
    connection: Connection,
    initial: u32,
    /// What they acknowledge and say of their window in [`Story::give`].
    ack: u32,
    window: u16,
    timestamps: Option<Timestamps>,
    max_gso: usize,
}

fn config() -> Config {
    Config { ecn: false, ..Config::new(MSS as u16) }
}

/// What they offer in their SYN.
fn offer() -> SegmentOptions {
    SegmentOptions {
        maximum_segment_size: Some(MSS as u16),
        sack_permitted: true,
        ..SegmentOptions::default()
    }
}

impl Story {
    /// A SYN has left.
    fn connecting(config: Config) -> (Self, Left) {
        let now = Instant::now();
        let connection = Connection::connect(now, &flow(), &secrets(now), &config);
        let mut story =
            Story { now, connection, initial: 0, ack: 1, window: 60_000, timestamps: None, max_gso: 0 };
        let mut syn = story.take().unwrap();
        story.initial = syn.sequence;
        syn.sequence = 0;
        (story, syn)
    }

    fn established_with(config: Config, options: SegmentOptions, flags: u8) -> Self {
        let (mut story, _) = Self::connecting(config);
        story.timestamps = options.timestamps;
        story.now += RTT;
        story.send(Header { flags: SYN | ACK | flags, options, ..story.header(0) }, &[]);
        assert_eq!(story.connection.state(), State::Established);
        assert_eq!(story.take().unwrap().brief(), (1, 1, ACK, 0));
        story
    }

    fn established() -> Self {
        Self::established_with(config(), offer(), 0)
    }

    fn header(&self, sequence: u32) -> Header {
        let options = SegmentOptions { timestamps: self.timestamps, ..SegmentOptions::default() };
        Header {
            source_port: 80,
            destination_port: 4000,
            sequence: THEIRS.wrapping_add(sequence),
            acknowledgement: self.initial.wrapping_add(self.ack),
            flags: ACK,
            window: self.window,
            options,
            ..Header::default()
        }
    }

    fn send(&mut self, header: Header, payload: &[u8]) {
        self.send_marked(header, payload, Ecn::NotEct);
    }

    fn send_marked(&mut self, header: Header, payload: &[u8], ecn: Ecn) {
        let bytes = [&header.to_bytes()[..], payload].concat();
        self.connection.receive(self.now, &Segment::parse(&bytes).unwrap(), ecn);
    }

    /// They send a segment, numbered from their initial sequence number on.
    fn give(&mut self, sequence: u32, flags: u8, payload: &[u8]) {
        self.send(Header { flags, ..self.header(sequence) }, payload);
    }

    /// They acknowledge up to `ack`.
    fn acknowledge(&mut self, ack: u32) {
        self.ack = ack;
        self.give(1, ACK, &[]);
    }

    /// They acknowledge what they did before, and report blocks.
    fn sack(&mut self, blocks: &[(u32, u32)]) {
        let mut sack = SackBlocks::default();
        for (start, end) in blocks {
            sack.push(self.initial.wrapping_add(*start), self.initial.wrapping_add(*end));
        }
        let mut header = self.header(1);
        header.options.sack = sack;
        self.send(header, &[]);
    }

    fn take(&mut self) -> Option<Left> {
        let mut out = Vec::new();
        let transmit = self.connection.poll_transmit(self.now, self.max_gso, &mut out)?;
        let segment = Segment::parse(&out).unwrap();
        assert_eq!(
            (segment.header().len(), segment.payload().len()),
            (transmit.header_len, transmit.payload_len)
        );
        let ack = segment.acknowledgement();
        Some(Left {
            sequence: segment.sequence().wrapping_sub(self.initial),
            ack: if segment.flags() & ACK != 0 { ack.wrapping_sub(THEIRS) } else { ack },
            flags: segment.flags(),
            window: segment.window(),
            options: SegmentOptions::of(&segment),
            payload: segment.payload().to_vec(),
            segment_size: transmit.segment_size,
            ecn: transmit.ecn,
        })
    }

    /// All that leaves now: sequence, acknowledgement, flags and length.
    fn all(&mut self) -> Vec<(u32, u32, u8, usize)> {
        std::iter::from_fn(|| self.take()).map(|left| left.brief()).collect()
    }

    /// Time passes; timers fire one by one, and what leaves then is returned.
    fn pass(&mut self, time: Duration) -> Vec<(u32, u32, u8, usize)> {
        let end = self.now + time;
        let mut left = self.all();
        while let Some(deadline) = self.connection.deadline().filter(|deadline| *deadline <= end) {
            self.now = self.now.max(deadline);
            self.connection.handle_timeout(self.now);
            left.extend(self.all());
        }
        self.now = end;
        left
    }

    /// Time until something leaves.
    fn until_something_leaves(&mut self) -> (Duration, Left) {
        let start = self.now;
        assert_eq!(self.take(), None);
        loop {
            self.now = self.connection.deadline().expect("a timer").max(self.now);
            self.connection.handle_timeout(self.now);
            if let Some(left) = self.take() {
                return (self.now - start, left);
            }
        }
    }

    fn write(&mut self, len: usize) {
        assert_eq!(self.connection.write(&vec![7; len]), len);
    }

    fn state(&self) -> State {
        self.connection.state()
    }
}

// RFC 9293 §3.5 and §3.10.7.3: opening.

#[test]
fn rfc_9293_section_3_10_1_active_open_sends_a_syn_with_options() {
    let (_, syn) = Story::connecting(Config { ecn: true, ..config() });
    assert_eq!((syn.flags, syn.window, syn.ecn), (SYN | ECE | CWR, 65535, Ecn::NotEct));
    assert_eq!(syn.options.maximum_segment_size, Some(1000));
    assert_eq!(syn.options.window_scale, Some(8));
    assert!(syn.options.sack_permitted && syn.options.timestamps.is_some());
}

#[test]
fn rfc_9293_section_3_5_simultaneous_open() {
    let (mut story, _) = Story::connecting(config());
    story.send(Header { flags: SYN, options: offer(), ..story.header(0) }, &[]);
    assert_eq!(story.state(), State::SynReceived);
    assert_eq!(story.all(), [(0, 1, SYN | ACK, 0)]);
    story.give(0, SYN | ACK, &[]);
    assert_eq!(story.all(), [(1, 1, ACK, 0)]);
    story.give(1, ACK, &[]);
    assert_eq!(story.state(), State::Established);
}

#[test]
fn rfc_9293_section_3_10_7_3_an_acknowledgement_of_no_syn_of_ours_is_reset() {
    let (mut story, _) = Story::connecting(config());
    story.ack = 5;
    story.give(0, SYN | ACK, &[]);
    let reset = story.take().unwrap();
    assert_eq!((reset.sequence, reset.flags), (5, RST));
    assert_eq!(story.state(), State::SynSent);
    story.give(0, RST | ACK, &[]);
    assert_eq!((story.state(), story.take()), (State::SynSent, None));
}

#[test]
fn rfc_9293_section_3_10_7_3_a_reset_that_acknowledges_our_syn_refuses() {
    let (mut story, _) = Story::connecting(config());
    story.give(0, RST, &[]);
    assert_eq!(story.state(), State::SynSent);
    story.give(0, RST | ACK, &[]);
    assert_eq!((story.state(), story.connection.error()), (State::Closed, Some(Error::Refused)));
}

#[test]
fn rfc_9293_section_3_8_3_a_syn_is_sent_again_for_three_minutes() {
    let (mut story, _) = Story::connecting(Config { ecn: true, ..config() });
    let (first, again) = story.until_something_leaves();
    assert_eq!((first, again.flags), (SECOND, SYN | ECE | CWR));
    let (second, again) = story.until_something_leaves();
    assert_eq!((second, again.flags), (2 * SECOND, SYN), "the third without ECN (RFC 3168 §6.1.1.1)");
    story.pass(178 * SECOND);
    assert_eq!((story.state(), story.connection.error()), (State::Closed, Some(Error::TimedOut)));
}

#[test]
fn rfc_9293_section_3_10_7_3_text_with_a_syn_is_taken() {
    let (mut story, _) = Story::connecting(config());
    story.send(Header { flags: SYN | ACK, options: offer(), ..story.header(0) }, b"early");
    assert_eq!(story.connection.readable(), 5);
    assert_eq!(story.all(), [(1, 6, ACK, 0)]);
}

// RFC 9293 §3.6: closing.

#[test]
fn rfc_9293_section_3_6_we_close_first() {
    let mut story = Story::established();
    story.write(10);
    story.connection.close();
    assert_eq!(story.connection.write(b"more"), 0);
    assert_eq!(story.state(), State::FinWait1);
    assert_eq!(story.all(), [(1, 1, ACK | PSH | FIN, 10)]);
    story.acknowledge(12);
    assert_eq!(story.state(), State::FinWait2);
    story.give(1, ACK, b"half close");
    assert_eq!(story.connection.readable(), 10);
    story.give(11, ACK | FIN, &[]);
    assert_eq!(story.state(), State::TimeWait);
    assert_eq!(story.all(), [(12, 12, ACK, 0)]);
    story.pass(59 * SECOND);
    story.give(11, ACK | FIN, &[]);
    assert_eq!(story.all(), [(12, 12, ACK, 0)], "their FIN again is acknowledged again");
    assert_eq!(story.pass(59 * SECOND), []);
    assert_eq!(story.state(), State::TimeWait, "and the wait begins anew");
    story.pass(SECOND);
    assert_eq!((story.state(), story.connection.error()), (State::Closed, None));
}

#[test]
fn rfc_9293_section_3_6_they_close_first() {
    let mut story = Story::established();
    story.give(1, ACK | FIN, b"bye");
    assert_eq!(story.state(), State::CloseWait);
    assert!(!story.connection.has_ended(), "there is something to read before");
    assert_eq!(story.connection.read(&mut [0; 9]), 3);
    assert!(story.connection.has_ended());
    assert_eq!(story.all(), [(1, 5, ACK, 0)]);
    story.write(20);
    assert_eq!(story.all(), [(1, 5, ACK | PSH, 20)]);
    story.connection.close();
    assert_eq!(story.state(), State::LastAck);
    assert_eq!(story.all(), [(21, 5, ACK | FIN, 0)]);
    story.ack = 22;
    story.give(5, ACK, &[]);
    assert_eq!((story.state(), story.connection.error()), (State::Closed, None));
}

#[test]
fn rfc_9293_section_3_6_both_close_at_once() {
    let mut story = Story::established();
    story.connection.close();
    assert_eq!(story.all(), [(1, 1, ACK | FIN, 0)]);
    story.give(1, ACK | FIN, &[]);
    assert_eq!(story.state(), State::Closing);
    assert_eq!(story.all(), [(2, 2, ACK, 0)]);
    story.ack = 2;
    story.give(2, ACK, &[]);
    assert_eq!(story.state(), State::TimeWait);
}

#[test]
fn rfc_9293_section_3_6_a_lost_fin_is_sent_again() {
    let mut story = Story::established();
    story.connection.close();
    assert_eq!(story.all(), [(1, 1, ACK | FIN, 0)]);
    assert_eq!(story.until_something_leaves().1.brief(), (1, 1, ACK | FIN, 0));
}

#[test]
fn rfc_9293_section_3_6_1_a_syn_with_a_later_number_may_take_the_place_of_time_wait() {
    let mut story = Story::established();
    story.connection.close();
    story.all();
    story.ack = 2;
    story.give(1, ACK | FIN, &[]);
    assert_eq!(story.state(), State::TimeWait);
    let syn = |sequence| Header { flags: SYN, ..story.header(sequence) }.to_bytes().to_vec();
    let yields = |bytes: &[u8]| story.connection.yields_to(&Segment::parse(bytes).unwrap());
    assert!(!yields(&syn(2)) && yields(&syn(3)));
}

#[test]
fn rfc_9293_section_3_10_5_abort_sends_a_reset() {
    let mut story = Story::established();
    story.write(100);
    story.connection.abort();
    assert!(!story.connection.is_closed());
    let reset = story.take().unwrap();
    assert_eq!((reset.sequence, reset.flags & RST), (1, RST));
    assert!(story.connection.is_closed() && story.take().is_none());
    assert_eq!(story.connection.error(), Some(Error::Aborted));
}

// RFC 9293 §3.10.7.4: checks of segments, with RFC 5961.

#[test]
fn rfc_9293_section_3_10_7_4_first_what_is_outside_of_the_window_is_acknowledged_and_dropped() {
    let mut story = Story::established();
    story.give(1 + 65535 + 255, ACK, b"beyond");
    assert_eq!(story.all(), [(1, 1, ACK, 0)]);
    story.give(1, ACK, b"abc");
    story.pass(40 * MS);
    story.give(1, ACK, b"abc");
    let again = story.take().unwrap();
    assert_eq!(again.brief(), (1, 4, ACK, 0));
    assert_eq!(again.options.sack.as_slice(), [(THEIRS.wrapping_add(1), THEIRS.wrapping_add(4))], "RFC 2883");
    assert_eq!(story.connection.readable(), 3);
}

#[test]
fn rfc_9293_section_3_10_7_4_seventh_overlap_with_what_was_received_is_cut() {
    let mut story = Story::established();
    story.give(1, ACK, b"abc");
    story.give(2, ACK, b"bcdef");
    let mut read = [0; 10];
    assert_eq!(story.connection.read(&mut read), 6);
    assert_eq!(&read[..6], b"abcdef");
}

#[test]
fn rfc_5961_section_3_2_only_the_next_number_resets() {
    let mut story = Story::established();
    story.give(2, RST, &[]);
    assert_eq!((story.state(), story.all()), (State::Established, vec![(1, 1, ACK, 0)]));
    story.give(0, RST, &[]);
    assert_eq!((story.state(), story.all()), (State::Established, vec![]));
    story.give(1, RST, &[]);
    assert_eq!((story.state(), story.connection.error()), (State::Closed, Some(Error::Reset)));
}

#[test]
fn rfc_5961_section_4_2_a_syn_is_challenged() {
    let mut story = Story::established();
    story.give(5, SYN, &[]);
    assert_eq!((story.state(), story.all()), (State::Established, vec![(1, 1, ACK, 0)]));
}

#[test]
fn rfc_5961_section_5_2_an_acknowledgement_too_old_or_of_the_future_takes_its_data_along() {
    let mut story = Story::established();
    for ack in [2, 0u32.wrapping_sub(60_001)] {
        story.ack = ack;
        story.give(1, ACK, b"injected");
        assert_eq!((story.connection.readable(), story.all()), (0, vec![(1, 1, ACK, 0)]));
    }
    story.ack = 0u32.wrapping_sub(59_000);
    story.give(1, ACK, b"old, but possible");
    assert_eq!(story.connection.readable(), 17);
}

#[test]
fn rfc_5961_section_7_challenges_are_ten_in_five_seconds() {
    let mut story = Story::established();
    let answered = |story: &mut Story| {
        (0..100)
            .filter(|_| {
                story.give(5, SYN, &[]);
                !story.all().is_empty()
            })
            .count()
    };
    assert_eq!(answered(&mut story), 10);
    story.now += 5 * SECOND;
    assert_eq!(answered(&mut story), 10);
}

#[test]
fn rfc_9293_section_3_8_5_urgent_data_is_delivered_in_its_place() {
    let mut story = Story::established();
    story.send(Header { flags: ACK | URG, urgent_pointer: 2, ..story.header(1) }, b"abcd");
    let mut read = [0; 10];
    assert_eq!(story.connection.read(&mut read), 4);
    assert_eq!(&read[..4], b"abcd");
}

#[test]
fn rfc_9293_section_3_10_7_4_eighth_a_fin_before_its_turn_waits_for_it() {
    let mut story = Story::established();
    story.give(4, ACK | FIN, b"def");
    assert_eq!(story.state(), State::Established);
    story.give(1, ACK, b"abc");
    assert_eq!((story.state(), story.connection.readable()), (State::CloseWait, 6));
    assert_eq!(story.all(), [(1, 8, ACK, 0)]);
}

// RFC 9293 §3.7 and §3.8: sending.

#[test]
fn rfc_9293_section_3_7_1_segments_are_no_larger_than_they_said_with_options_counted() {
    let timestamps = Some(Timestamps { value: 1, echo: 0 });
    let options = SegmentOptions { maximum_segment_size: Some(600), timestamps, ..SegmentOptions::default() };
    let mut story = Story::established_with(config(), options, 0);
    story.write(1000);
    assert_eq!(story.take().unwrap().payload.len(), 588, "RFC 6691 §3.1");
    let mut story = Story::established_with(config(), SegmentOptions::default(), 0);
    story.write(1000);
    assert_eq!(story.take().unwrap().payload.len(), 536, "what is assumed if they say nothing");
}

#[test]
fn rfc_9293_section_3_7_4_nagle_holds_what_is_small_while_something_small_is_outstanding() {
    let mut story = Story::established();
    story.write(10);
    story.write(10);
    assert_eq!(story.all(), [(1, 1, ACK | PSH, 20)]);
    story.write(10);
    assert_eq!(story.all(), []);
    story.write(MSS);
    assert_eq!(story.all(), [(21, 1, ACK, MSS)]);
    story.acknowledge(21);
    assert_eq!(story.all(), [(1021, 1, ACK | PSH, 10)]);
}

#[test]
fn rfc_9293_section_3_7_4_without_nagle_all_leaves_at_once() {
    let mut story = Story::established();
    story.connection.set_nagle(false);
    for n in 0..3 {
        story.write(10);
        assert_eq!(story.all(), [(1 + 10 * n, 1, ACK | PSH, 10)]);
    }
}

#[test]
fn a_gso_packet_has_one_header_and_the_size_of_its_segments() {
    let mut story = Story::established();
    story.max_gso = 4500;
    story.write(5500);
    let packet = story.take().unwrap();
    assert_eq!((packet.brief(), packet.segment_size), ((1, 1, ACK, 4000), Some(1000)));
    let packet = story.take().unwrap();
    assert_eq!((packet.brief(), packet.segment_size), ((4001, 1, ACK | PSH, 1500), Some(1000)));
}

#[test]
fn rfc_6928_section_2_ten_segments_leave_first() {
    let mut story = Story::established();
    story.write(30_000);
    assert_eq!(story.all().len(), 10);
    story.acknowledge(2001);
    assert_eq!(story.all().len(), 4, "slow start: two more for each that arrived");
}

#[test]
fn rfc_3042_section_2_a_duplicate_acknowledgement_lets_new_data_leave() {
    let options = SegmentOptions { sack_permitted: false, ..offer() };
    let mut story = Story::established_with(config(), options, 0);
    story.write(30_000);
    story.all();
    for n in 0..2 {
        story.acknowledge(1);
        assert_eq!(story.all(), [(10_001 + 1000 * n, 1, ACK, MSS)]);
    }
}

#[test]
fn rfc_6582_section_3_2_without_sack_three_duplicates_send_again_and_partial_acknowledgements_the_next() {
    let options = SegmentOptions { sack_permitted: false, ..offer() };
    let mut story = Story::established_with(config(), options, 0);
    story.write(10_000);
    story.all();
    for _ in 0..3 {
        assert_eq!(story.all(), []);
        story.acknowledge(1);
    }
    assert_eq!(story.take().unwrap().brief(), (1, 1, ACK, MSS));
    story.acknowledge(4001);
    assert_eq!(story.take().unwrap().brief(), (4001, 1, ACK, MSS));
    story.acknowledge(10_001);
    assert_eq!((story.all(), story.connection.statistics().recoveries), (vec![], 1));
}

#[test]
fn rfc_9293_section_3_8_6_1_a_closed_window_is_probed_for_ever_as_long_as_it_is_told() {
    let mut story = Story::established();
    story.window = 0;
    story.acknowledge(1);
    story.write(5000);
    let mut last = Duration::ZERO;
    for _ in 0..40 {
        let (waited, probe) = story.until_something_leaves();
        assert_eq!(probe.brief(), (1, 1, ACK, 1));
        assert!(waited >= last && waited <= 60 * SECOND, "{waited:?}");
        last = waited;
        story.acknowledge(1);
        assert_eq!(story.all(), []);
    }
    assert_eq!(last, 60 * SECOND);
    story.window = 3000;
    story.acknowledge(1);
    let left: usize = story.all().iter().map(|left| left.3).sum();
    assert_eq!(left, 2001, "what was probed with again, and two full segments");
    assert_eq!(story.connection.statistics().timeouts, 0);
}

#[test]
fn rfc_9293_section_3_8_6_1_a_window_that_opens_for_the_probe_goes_on_behind_it() {
    let mut story = Story::established();
    story.window = 0;
    story.acknowledge(1);
    story.write(2001);
    assert_eq!(story.until_something_leaves().1.brief(), (1, 1, ACK, 1));
    story.window = 2000;
    story.acknowledge(2);
    assert_eq!(story.all(), [(2, 1, ACK, MSS), (1002, 1, ACK | PSH, MSS)]);
}

#[test]
fn rfc_9293_section_3_8_6_2_1_a_small_window_is_not_filled_in_small_pieces() {
    let mut story = Story::established();
    story.write(5000);
    story.window = 300;
    story.acknowledge(1);
    assert_eq!(story.all(), []);
    let (_, override_) = story.until_something_leaves();
    assert_eq!(override_.brief(), (1, 1, ACK, 300), "until the override timer");
}

#[test]
fn rfc_9293_section_3_8_6_a_window_that_shrinks_does_no_harm() {
    let mut story = Story::established();
    story.write(5000);
    assert_eq!(story.all().len(), 5);
    story.window = 500;
    story.acknowledge(1001);
    story.write(1000);
    assert_eq!(story.all(), []);
    story.window = 10_000;
    story.acknowledge(5001);
    assert_eq!(story.all(), [(5001, 1, ACK | PSH, MSS)]);
}

#[test]
fn rfc_9293_section_3_8_6_2_2_a_window_that_opens_again_is_told() {
    let mut story = Story::established();
    let mut sequence = 1;
    for _ in 0..66 {
        story.give(sequence, ACK, &[1; MSS]);
        let told: usize = story.all().len();
        assert!(told <= 1);
        sequence += MSS as u32;
    }
    assert!(story.connection.readable() >= 65_000);
    let mut buffer = [0; MSS];
    let mut updates = 0;
    while story.connection.read(&mut buffer) > 0 {
        updates += story.all().len();
    }
    assert!((5..=33).contains(&updates), "{updates}");
}

#[test]
fn rfc_9293_section_3_8_6_3_an_acknowledgement_waits_40_ms_for_a_second_segment_or_data() {
    let mut story = Story::established();
    story.give(1, ACK, &[1; MSS]);
    assert_eq!(story.all(), []);
    let (waited, ack) = story.until_something_leaves();
    assert_eq!((waited, ack.brief()), (40 * MS, (1, 1001, ACK, 0)));
    story.give(1001, ACK, &[1; MSS]);
    assert_eq!(story.all(), []);
    story.give(2001, ACK, &[1; MSS]);
    assert_eq!(story.all(), [(1, 3001, ACK, 0)]);
    story.give(3001, ACK, b"request");
    story.write(8);
    assert_eq!(story.all(), [(1, 3008, ACK | PSH, 8)]);
    assert_eq!(story.pass(100 * MS), []);
}

#[test]
fn rfc_5681_section_4_2_what_is_out_of_order_is_acknowledged_at_once() {
    let mut story = Story::established();
    story.give(1001, ACK, &[1; MSS]);
    let ack = story.take().unwrap();
    assert_eq!(ack.ack, 1);
    assert_eq!(ack.options.sack.as_slice(), [(THEIRS.wrapping_add(1001), THEIRS.wrapping_add(2001))]);
    story.give(1, ACK, &[1; MSS]);
    assert_eq!(story.all(), [(1, 2001, ACK, 0)]);
}

// RFC 6298, RFC 9293 §3.8.3: timeouts.

#[test]
fn rfc_6298_section_5_the_first_segment_is_sent_again_and_the_timeout_doubles() {
    let options = SegmentOptions { sack_permitted: false, ..offer() };
    let mut story = Story::established_with(config(), options, 0);
    story.write(3000);
    assert_eq!(story.all().len(), 3);
    let (first, again) = story.until_something_leaves();
    assert_eq!(again.brief(), (1, 1, ACK, MSS));
    assert_eq!(first, RTT + 200 * MS);
    let (second, again) = story.until_something_leaves();
    assert_eq!((second, again.brief()), (2 * first, (1, 1, ACK, MSS)));
    story.acknowledge(1001);
    assert_eq!(story.all(), [(1001, 1, ACK, MSS), (2001, 1, ACK | PSH, MSS)], "slow start");
}

#[test]
fn rfc_9293_section_3_8_3_the_user_timeout_ends_the_connection() {
    let mut story = Story::established();
    story.write(10);
    story.pass(299 * SECOND);
    assert_eq!(story.state(), State::Established);
    let left = story.pass(2 * SECOND);
    assert_eq!((story.state(), story.connection.error()), (State::Closed, Some(Error::TimedOut)));
    assert!(left.last().unwrap().2 & RST != 0);
}

#[test]
fn rfc_9293_section_3_8_4_keepalives_probe_and_give_up() {
    let keepalive = KeepAlive { idle: 100 * SECOND, interval: 10 * SECOND, probes: 3 };
    let config = Config { keepalive: Some(keepalive), ..config() };
    let mut story = Story::established_with(config, offer(), 0);
    assert_eq!(story.pass(99 * SECOND), []);
    assert_eq!(story.pass(SECOND), [(0, 1, ACK, 0)]);
    story.give(1, ACK, &[]);
    assert_eq!(story.pass(99 * SECOND), [], "an answer counts");
    assert_eq!(story.pass(29 * SECOND).len(), 3);
    story.pass(2 * SECOND);
    assert_eq!((story.state(), story.connection.error()), (State::Closed, Some(Error::TimedOut)));
}

#[test]
fn rfc_9293_section_3_8_4_a_keepalive_of_theirs_is_answered() {
    let mut story = Story::established();
    story.give(0, ACK, &[]);
    assert_eq!(story.all(), [(1, 1, ACK, 0)]);
}

// RFC 7323.

fn with_timestamps() -> SegmentOptions {
    let timestamps = Some(Timestamps { value: 100, echo: 0 });
    SegmentOptions { window_scale: Some(3), timestamps, ..offer() }
}

#[test]
fn rfc_7323_section_2_2_windows_are_scaled_except_in_a_syn() {
    let (mut story, _) = Story::connecting(config());
    story.window = 1000;
    story.send(Header { flags: SYN | ACK, options: with_timestamps(), ..story.header(0) }, &[]);
    assert_eq!(story.take().unwrap().window, 65536u32.div_ceil(256) as u16);
    story.timestamps = with_timestamps().timestamps;
    story.write(20_000);
    assert_eq!(story.take().unwrap().payload.len(), 988);
    assert_eq!(story.all(), [], "1000 bytes are theirs so far");
    story.acknowledge(989);
    assert_eq!(story.all().len(), 8, "now 8000; eleven would be allowed by the congestion window");
}

#[test]
fn rfc_7323_section_5_3_a_segment_with_an_old_timestamp_is_acknowledged_and_dropped() {
    let mut story = Story::established_with(config(), with_timestamps(), 0);
    story.timestamps = Some(Timestamps { value: 99, echo: 0 });
    story.give(1, ACK, b"old");
    assert_eq!((story.connection.readable(), story.all().len()), (0, 1));
    story.timestamps = None;
    story.give(1, ACK, b"none");
    assert_eq!((story.connection.readable(), story.all().len()), (0, 0));
    story.timestamps = Some(Timestamps { value: 101, echo: 0 });
    story.give(1, ACK, b"new");
    assert_eq!(story.connection.readable(), 3);
    story.pass(40 * MS);
    story.write(1);
    assert_eq!(story.take().unwrap().options.timestamps.unwrap().echo, 101);
}

#[test]
fn rfc_7323_section_4_3_the_earliest_segment_that_is_not_acknowledged_is_echoed() {
    let mut story = Story::established_with(config(), with_timestamps(), 0);
    for (value, sequence) in [(200, 1), (300, 1001)] {
        story.timestamps = Some(Timestamps { value, echo: 0 });
        story.give(sequence, ACK, &[1; MSS]);
    }
    assert_eq!(story.take().unwrap().options.timestamps.unwrap().echo, 200);
}

// RFC 8985, RFC 6675, RFC 3522: losses.

/// Ten segments have left, after an RTT of 50 ms was measured.
fn ten_outstanding() -> Story {
    let mut story = Story::established();
    story.write(MSS);
    story.all();
    story.now += 50 * MS;
    story.acknowledge(1001);
    story.write(10 * MSS);
    assert_eq!(story.all().len(), 10);
    story
}

#[test]
fn rfc_6675_section_5_what_three_sacked_segments_follow_is_sent_again_once() {
    let mut story = ten_outstanding();
    story.now += 50 * MS;
    for n in 2..=3 {
        story.sack(&[(2001, 1001 + 1000 * n)]);
        assert_eq!(story.all(), []);
    }
    story.sack(&[(2001, 5001)]);
    assert_eq!(story.all(), [(1001, 1, ACK, MSS)]);
    story.sack(&[(2001, 6001)]);
    assert_eq!(story.all(), []);
    story.acknowledge(11_001);
    assert_eq!(story.connection.statistics().recoveries, 1);
    assert_eq!(story.connection.unacknowledged(), 0);
}

#[test]
fn rfc_8985_section_6_2_fewer_wait_for_a_quarter_of_the_rtt() {
    let mut story = ten_outstanding();
    story.now += 50 * MS;
    story.sack(&[(2001, 3001)]);
    assert_eq!(story.all(), []);
    let (waited, again) = story.until_something_leaves();
    assert_eq!(again.brief(), (1001, 1, ACK, MSS));
    assert!((6 * MS..=13 * MS).contains(&waited), "{waited:?}");
}

#[test]
fn rfc_8985_section_6_a_lost_retransmission_is_found() {
    let mut story = ten_outstanding();
    story.now += 50 * MS;
    story.sack(&[(2001, 6001)]);
    assert_eq!(story.all(), [(1001, 1, ACK, MSS)]);
    story.write(5 * MSS);
    story.now += 5 * MS;
    story.sack(&[(2001, 9001)]);
    assert_ne!(story.all(), [], "new data follows the retransmission");
    story.now += 60 * MS;
    story.sack(&[(11_001, 12_001), (2001, 9001)]);
    let left = [story.all(), story.pass(20 * MS)].concat();
    assert!(left.iter().any(|left| left.0 == 1001), "{left:?}");
    assert_eq!(story.connection.statistics().timeouts, 0);
}

#[test]
fn rfc_8985_section_7_2_the_tail_is_probed_after_two_round_trips() {
    let mut story = ten_outstanding();
    let (waited, probe) = story.until_something_leaves();
    let rtt = story.connection.rtt().unwrap();
    assert_eq!((waited, probe.brief()), (2 * rtt, (10_001, 1, ACK | PSH, MSS)));
    assert_eq!(story.connection.statistics().tail_loss_probes, 1);
}

#[test]
fn rfc_8985_section_7_4_a_probe_that_repaired_the_loss_reduces_the_window() {
    let mut story = ten_outstanding();
    let before = story.connection.congestion_window();
    story.until_something_leaves();
    story.now += 50 * MS;
    story.write(MSS);
    story.acknowledge(11_001);
    story.all();
    story.acknowledge(12_001);
    assert!(story.connection.congestion_window() < before);
}

#[test]
fn rfc_8985_section_7_4_a_probe_of_what_had_arrived_does_not() {
    let mut story = ten_outstanding();
    let before = story.connection.congestion_window();
    story.until_something_leaves();
    story.acknowledge(11_001);
    story.sack(&[(10_001, 11_001)]);
    assert!(story.connection.congestion_window() >= before);
}

#[test]
fn rfc_3522_section_3_2_a_needless_timeout_is_undone() {
    let mut story = Story::established_with(config(), with_timestamps(), 0);
    story.write(3000);
    let first = story.take().unwrap().options.timestamps.unwrap().value;
    story.all();
    let before = story.connection.congestion_window();
    while story.connection.statistics().timeouts == 0 {
        story.until_something_leaves();
    }
    assert!(story.connection.congestion_window() < before);
    story.timestamps = Some(Timestamps { value: 101, echo: first });
    story.acknowledge(989);
    assert_eq!(story.connection.statistics().undone, 1);
    assert!(story.connection.congestion_window() >= before);
}

#[test]
fn rfc_2018_section_8_a_receiver_that_forgot_what_it_sacked_gets_it_again() {
    let mut story = ten_outstanding();
    story.now += 50 * MS;
    story.sack(&[(1001, 11_001)]);
    let mut again = Vec::new();
    for _ in 0..30 {
        again.extend(story.pass(SECOND).iter().map(|left| left.0));
        let highest = again.iter().max().map_or(1001, |last| last + 1000);
        story.acknowledge(highest);
    }
    assert_eq!(story.connection.unacknowledged(), 0);
}

// RFC 3168.

#[test]
fn rfc_3168_section_6_1_2_an_echo_reduces_the_window_once_and_is_answered() {
    let config = Config { ecn: true, ..config() };
    let mut story = Story::established_with(config, offer(), ECE);
    story.write(20_000);
    assert_eq!(story.take().unwrap().ecn, Ecn::Ect0);
    story.all();
    let before = story.connection.congestion_window();
    for ack in [1001, 2001] {
        story.ack = ack;
        story.give(1, ACK | ECE, &[]);
    }
    assert_eq!(story.connection.statistics().marked, 1);
    assert_eq!(story.connection.congestion_window(), before * 7 / 10);
    story.acknowledge(9001);
    assert_ne!(story.take().unwrap().flags & CWR, 0);
    assert_eq!(story.take().unwrap().flags & CWR, 0);
}

#[test]
fn rfc_3168_section_6_1_3_a_mark_is_echoed_until_they_answer() {
    let config = Config { ecn: true, ..config() };
    let mut story = Story::established_with(config, offer(), ECE);
    story.send_marked(story.header(1), &[1; 2 * MSS], Ecn::Ce);
    let ack = story.take().unwrap();
    assert_eq!((ack.flags, ack.ecn), (ACK | ECE, Ecn::NotEct));
    story.give(2001, ACK, &[1; 2 * MSS]);
    assert_eq!(story.take().unwrap().flags, ACK | ECE);
    story.give(4001, ACK | CWR, &[1; 2 * MSS]);
    assert_eq!(story.take().unwrap().flags, ACK);
}

#[test]
fn rfc_3168_section_6_1_5_retransmissions_are_not_ecn_capable() {
    let config = Config { ecn: true, ..config() };
    let mut story = Story::established_with(config, offer(), ECE);
    story.write(10);
    assert_eq!(story.take().unwrap().ecn, Ecn::Ect0);
    assert_eq!(story.until_something_leaves().1.ecn, Ecn::NotEct);
}

// RFC 5927, RFC 4821: the path.

#[test]
fn rfc_5927_section_4_1_an_icmp_error_counts_only_for_what_is_outstanding() {
    let mut story = Story::established();
    story.write(5000);
    story.all();
    let too_big = IcmpError::PacketTooBig { largest_segment: 620 };
    for sequence in [0, 5001] {
        story.connection.icmp_error(story.initial.wrapping_add(sequence), too_big);
        assert_eq!(story.all(), []);
    }
    story.connection.icmp_error(story.initial.wrapping_add(1001), too_big);
    let left = story.all();
    assert_eq!(left[0], (1, 1, ACK, 600));
    assert_eq!(left.iter().map(|left| left.3).sum::<usize>(), 5000);
    assert_eq!(story.connection.statistics().recoveries, 0);
}

#[test]
fn rfc_5927_section_7_2_an_icmp_error_does_not_make_segments_tiny() {
    let mut story = Story::established();
    story.write(5000);
    story.all();
    let too_big = IcmpError::PacketTooBig { largest_segment: 60 };
    story.connection.icmp_error(story.initial.wrapping_add(1), too_big);
    assert_eq!(story.take().unwrap().payload.len(), 516);
}

#[test]
fn rfc_5927_section_5_2_a_hard_error_ends_only_what_is_not_established() {
    let (mut story, _) = Story::connecting(config());
    story.connection.icmp_error(story.initial.wrapping_add(1), IcmpError::Hard);
    assert_eq!(story.state(), State::SynSent);
    story.connection.icmp_error(story.initial, IcmpError::Hard);
    assert_eq!((story.state(), story.connection.error()), (State::Closed, Some(Error::Unreachable)));
    let mut story = Story::established();
    story.write(10);
    story.all();
    story.connection.icmp_error(story.initial.wrapping_add(1), IcmpError::Hard);
    assert_eq!(story.state(), State::Established);
    story.pass(301 * SECOND);
    assert_eq!(story.connection.error(), Some(Error::Unreachable), "a reason, once we give up");
}

#[test]
fn rfc_8899_section_4_3_full_segments_that_vanish_become_smaller() {
    let options = SegmentOptions { maximum_segment_size: Some(1440), ..offer() };
    let mut story = Story::established_with(Config { ecn: false, ..Config::new(1440) }, options, 0);
    story.write(10_000);
    story.all();
    let mut size = || {
        let (_, left) = story.until_something_leaves();
        story.all();
        left.payload.len()
    };
    let sizes = [size(), size(), size(), size()];
    assert_eq!(sizes, [1360, 1440, 1120, 1120]);
}

// Listening.

struct Ear {
    now: Instant,
    listener: Listener,
}

impl Ear {
    fn new() -> Self {
        let now = Instant::now();
        Ear { now, listener: Listener::new(Config::new(MSS as u16), secrets(now)) }
    }

    fn give(&mut self, port: u16, header: Header, payload: &[u8]) -> (Reaction, Option<Header>) {
        let mut flow = reversed(flow());
        flow.remote.set_port(port);
        let bytes = [&header.to_bytes()[..], payload].concat();
        let mut out = Vec::new();
        let segment = Segment::parse(&bytes).unwrap();
        let reaction = self.listener.receive(self.now, &flow, &segment, Ecn::NotEct, &mut out);
        let reply = Segment::parse(&out).ok().map(|reply| Header {
            sequence: reply.sequence(),
            acknowledgement: reply.acknowledgement(),
            flags: reply.flags(),
            window: reply.window(),
            options: SegmentOptions::of(&reply),
            ..Header::default()
        });
        (reaction, reply)
    }

    fn syn(&mut self, port: u16) -> Header {
        let options = with_timestamps();
        let syn = Header { sequence: 100, flags: SYN, window: 5000, options, ..Header::default() };
        self.give(port, syn, &[]).1.expect("an answer")
    }
}

/// Their answer to our SYN-ACK.
fn third(syn_ack: &Header) -> Header {
    let theirs = syn_ack.options.timestamps.map(|ours| Timestamps { value: 101, echo: ours.value });
    Header {
        sequence: 101,
        acknowledgement: syn_ack.sequence.wrapping_add(1),
        flags: ACK,
        window: 5000,
        options: SegmentOptions { timestamps: theirs, ..SegmentOptions::default() },
        ..Header::default()
    }
}

#[test]
fn rfc_9293_section_3_10_7_2_a_syn_is_answered_and_its_acknowledgement_establishes() {
    let mut ear = Ear::new();
    let syn_ack = ear.syn(1);
    assert_eq!((syn_ack.flags, syn_ack.acknowledgement), (SYN | ACK, 101));
    assert_eq!(syn_ack.options.window_scale, Some(8));
    assert!(syn_ack.options.sack_permitted);
    ear.now += 30 * MS;
    let Reaction::Established(connection) = ear.give(1, third(&syn_ack), b"hello").0 else { panic!() };
    assert_eq!((connection.state(), connection.readable()), (State::Established, 5));
    assert_eq!(connection.rtt(), Some(30 * MS));
    assert_eq!(ear.listener.half_open(), 0);
}

#[test]
fn rfc_9293_section_3_10_7_2_other_segments_are_reset_or_ignored() {
    let mut ear = Ear::new();
    let stray = Header { sequence: 1, acknowledgement: 77, flags: ACK, ..Header::default() };
    let (_, reply) = ear.give(1, stray, &[]);
    assert_eq!(reply.map(|reply| (reply.sequence, reply.flags)), Some((77, RST)));
    assert_eq!(ear.give(1, Header { flags: RST, ..stray }, &[]).1, None);
    assert_eq!(ear.give(1, Header { flags: FIN, ..stray }, &[]).1, None);
    let syn_ack = ear.syn(1);
    let mut wrong = third(&syn_ack);
    wrong.acknowledgement += 1;
    assert_eq!(ear.give(1, wrong, &[]).1.unwrap().flags, RST);
    let reset = Header { sequence: 101, flags: RST, ..Header::default() };
    ear.give(1, Header { sequence: 102, ..reset }, &[]);
    assert_eq!(ear.listener.half_open(), 1);
    ear.give(1, reset, &[]);
    assert_eq!(ear.listener.half_open(), 0);
}

#[test]
fn a_syn_is_answered_five_times_in_31_seconds() {
    let mut ear = Ear::new();
    let start = ear.now;
    ear.syn(1);
    let (mut answers, mut out) = (1, Vec::new());
    while let Some(deadline) = ear.listener.deadline() {
        ear.now = deadline;
        ear.listener.handle_timeout(deadline);
        answers += usize::from(ear.listener.poll_transmit(deadline, &mut out).is_some());
    }
    assert_eq!((answers, ear.now - start, ear.listener.half_open()), (5, 31 * SECOND, 0));
}

#[test]
fn rfc_4987_section_3_6_a_flood_of_syns_leaves_room_for_those_who_answer() {
    let mut ear = Ear::new();
    for port in 1..5000 {
        ear.syn(port);
    }
    assert_eq!(ear.listener.half_open(), MAX_HALF_OPEN);
    let syn_ack = ear.syn(6000);
    assert_eq!(ear.listener.half_open(), MAX_HALF_OPEN);
    ear.now += 30 * MS;
    let Reaction::Established(mut connection) = ear.give(6000, third(&syn_ack), b"hello").0 else { panic!() };
    assert_eq!(connection.readable(), 5);
    connection.write(&[1; 30_000]);
    let mut out = Vec::new();
    let transmit = connection.poll_transmit(ear.now, 60_000, &mut out).unwrap();
    assert_eq!(transmit.segment_size, Some(524), "of the sizes that a cookie knows");
    assert_eq!(transmit.payload_len, 5240, "the initial window, of 40,000 bytes with the scale of the SYN");
    let mut forged = third(&syn_ack);
    forged.acknowledgement ^= 64;
    assert_eq!(ear.give(6001, forged, &[]).1.unwrap().flags, RST);
}

#[test]
fn a_listener_that_is_paused_leaves_handshakes_alone() {
    let mut ear = Ear::new();
    let syn_ack = ear.syn(1);
    ear.listener.set_paused(true);
    assert!(matches!(ear.give(1, third(&syn_ack), &[]), (Reaction::None, None)));
    ear.listener.set_paused(false);
    assert!(matches!(ear.give(1, third(&syn_ack), &[]).0, Reaction::Established(_)));
}
