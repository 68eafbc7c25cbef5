//! The receiving half of a connection: reassembly, the window, when to acknowledge, and the buffer that follows how fast
//! the user reads.
//!
//! Payload goes to its place in one ring as it arrives, in order or not, and from there to the user: nothing is copied in
//! between.

use std::time::{Duration, Instant};

use wire::tcp::SackBlocks;

use super::config::INITIAL_RECEIVE_BUFFER;
use super::drops::DropReason;
use super::reassembly::{Inserted, Range, Reassembly};
use super::ring::Ring;
use super::sequence::SequenceNumber;
use super::timers::{Timer, Timers};

/// How long an acknowledgement is delayed at most; RFC 9293 §3.8.6.3 allows 500 ms. What interactive users notice, and
/// other hosts wait for.
const ACK_DELAY: Duration = Duration::from_millis(40);

/// Segments below this are not full ones, whatever else has been seen: keystrokes are acknowledged late.
const LEAST_FULL_SEGMENT: usize = 536;

#[derive(Debug)]
pub(super) struct Receiver {
    /// RCV.NXT.
    next: SequenceNumber,
    /// What the user has not read, and behind it what arrived out of order, at its place.
    ring: Ring,
    /// Bytes that the user can read.
    readable: usize,
    reassembly: Reassembly,
    /// The number of their FIN, once it has been seen.
    fin: Option<SequenceNumber>,
    /// The FIN's turn has come: the stream has ended.
    ended: bool,

    /// Bytes that the user may leave unread, now and ever.
    limit: usize,
    max_limit: usize,
    /// The right edge of the window as told; it never moves left (RFC 9293 §3.8.6).
    edge: SequenceNumber,
    /// Shift of the window field.
    scale: u8,
    is_scaled: bool,
    /// What counts as a full segment: the largest one seen, at most the maximum segment size.
    segment_size: usize,
    max_segment_size: usize,

    /// What was received twice and is to be reported (RFC 2883).
    duplicate: Option<(SequenceNumber, SequenceNumber)>,
    acknowledge: Acknowledge,
    /// Bytes received in order and not acknowledged.
    unacknowledged: usize,
    /// SEG.ACK as sent last.
    last_ack: SequenceNumber,
    rate: ReadRate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Acknowledge {
    No,
    Delayed,
    Now,
}

/// How fast the user reads: bytes in each round trip.
#[derive(Debug, Default)]
struct ReadRate {
    since: Option<Instant>,
    bytes: usize,
    rtt: Option<Duration>,
}

impl Receiver {
    /// A receiver with at most `max_limit` bytes of buffer, for segments of `max_segment_size`.
    pub(super) fn new(max_limit: usize, max_segment_size: usize) -> Self {
        let limit = INITIAL_RECEIVE_BUFFER.min(max_limit);
        Self {
            next: SequenceNumber::default(),
            ring: Ring::default(),
            readable: 0,
            reassembly: Reassembly::default(),
            fin: None,
            ended: false,
            limit,
            max_limit,
            edge: SequenceNumber::default(),
            scale: 0,
            is_scaled: false,
            segment_size: LEAST_FULL_SEGMENT.min(max_segment_size),
            max_segment_size,
            duplicate: None,
            acknowledge: Acknowledge::No,
            unacknowledged: 0,
            last_ack: SequenceNumber::default(),
            rate: ReadRate::default(),
        }
    }

    /// Their SYN has told the first number. Windows in SYN segments are not scaled (RFC 7323 §2.2), so what is told
    /// of ours until now is at most 64 KB.
    pub(super) fn begin(&mut self, first: SequenceNumber) {
        self.next = first;
        self.last_ack = first;
        self.edge = first + self.limit.min(usize::from(u16::MAX));
    }

    /// The handshake agreed on the shift of the window field; `None` if there is none.
    pub(super) fn agree_on_scale(&mut self, scale: Option<u8>) {
        self.scale = scale.unwrap_or(0);
        self.is_scaled = scale.is_some();
        if scale.is_none() {
            self.max_limit = self.max_limit.min(usize::from(u16::MAX));
            self.limit = self.limit.min(self.max_limit);
        }
    }

    pub(super) fn is_scaled(&self) -> bool {
        self.is_scaled
    }

    pub(super) fn next(&self) -> SequenceNumber {
        self.next
    }

    pub(super) fn last_ack(&self) -> SequenceNumber {
        self.last_ack
    }

    /// The window as told, from RCV.NXT on.
    pub(super) fn window(&self) -> usize {
        self.edge.since(self.next)
    }

    pub(super) fn readable(&self) -> usize {
        self.readable
    }

    /// Whether the other end has closed, and all of its data has arrived.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    pub(super) fn has_gap(&self) -> bool {
        !self.reassembly.is_empty()
    }

    pub(super) fn read(&mut self, out: &mut [u8]) -> usize {
        let (first, second) = self.ring.slices(0, out.len().min(self.readable));
        let len = first.len() + second.len();
        out[..first.len()].copy_from_slice(first);
        out[first.len()..len].copy_from_slice(second);
        self.ring.consume(len);
        self.readable -= len;
        self.rate.bytes += len;
        len
    }

    pub(super) fn heap(&self) -> usize {
        self.ring.capacity() + self.reassembly.heap()
    }

    pub(super) fn release(&mut self) {
        if self.readable == 0 && self.reassembly.is_empty() {
            self.ring.release();
        }
    }

    /// Whether a segment of `len` bytes of sequence space is acceptable (RFC 9293 §3.10.7.4, first check). One that
    /// reaches over both edges of the window is, too.
    pub(super) fn is_acceptable(&self, sequence: SequenceNumber, len: usize) -> bool {
        if self.window() == 0 {
            return len == 0 && sequence == self.next;
        }
        let edge = self.acceptable_edge();
        if len == 0 {
            self.next <= sequence && sequence < edge
        } else {
            sequence < edge && sequence + len > self.next
        }
    }

    /// What was told is rounded up to what the window field can say.
    fn acceptable_edge(&self) -> SequenceNumber {
        if self.window() == 0 { self.next } else { self.edge + ((1 << self.scale) - 1) }
    }

    /// Takes the text and FIN of a segment, cut to the window. An unacceptable one is reported as a duplicate where it
    /// is one.
    pub(super) fn accept(
        &mut self,
        now: Instant,
        sequence: SequenceNumber,
        payload: &[u8],
        fin: bool,
        timers: &mut Timers,
    ) -> Result<(), DropReason> {
        if payload.is_empty() && !fin {
            return Ok(());
        }
        if self.ended {
            self.acknowledge_now();
            return Ok(());
        }
        self.segment_size = self.segment_size.max(payload.len()).min(self.max_segment_size);
        let (end, edge) = (sequence + payload.len(), self.acceptable_edge());
        if fin && self.fin.is_none() && end >= self.next && end <= edge && !self.is_beyond(end) {
            self.fin = Some(end);
        }
        let old = self.next.since(sequence).min(payload.len());
        if old > 0 {
            self.note_duplicate(sequence, sequence + old);
        }
        let start = sequence + old;
        let room = edge.min(self.fin.unwrap_or(edge)).since(start);
        let payload = &payload[old..];
        let payload = &payload[..payload.len().min(room)];
        let before = self.next;
        let had_gap = self.has_gap();
        let mut accepted = Ok(());
        if start == self.next {
            self.store(start, payload);
            self.next = self.reassembly.advance(start + payload.len());
        } else if !payload.is_empty() && start > self.next {
            let range = Range { start, end: start + payload.len() };
            match self.reassembly.insert(range) {
                Inserted::New => self.store(start, payload),
                Inserted::Duplicate => self.duplicate = Some((range.start, range.end)),
                Inserted::Full => accepted = Err(DropReason::Gaps),
            }
        }
        let advanced = self.next.since(before);
        self.readable += advanced;
        if self.fin == Some(self.next) {
            self.ended = true;
            self.next += 1;
        }
        self.schedule(now, advanced, had_gap, timers);
        accepted
    }

    /// An acknowledgement is due at once.
    pub(super) fn acknowledge_now(&mut self) {
        self.acknowledge = Acknowledge::Now;
    }

    /// Notes what a segment that is not acceptable repeats (RFC 2883 §4).
    pub(super) fn note_duplicate(&mut self, start: SequenceNumber, end: SequenceNumber) {
        let end = end.min(self.next);
        // Only what a sender can have sent in a window says anything.
        if start < end && self.next.since(start) <= self.max_limit {
            self.duplicate = Some((start, end));
            self.acknowledge_now();
        }
    }

    /// Whether an acknowledgement is to be sent without waiting for data: one that is due, or news of the window
    /// (RFC 9293 §3.8.6.2.2).
    pub(super) fn owes(&self) -> bool {
        if self.acknowledge == Acknowledge::Now {
            return true;
        }
        // No news where it would be none: a good part of the window is still open.
        let edge = self.next + self.free();
        let threshold = (self.limit / 2).min(2 * self.max_segment_size);
        !self.ended && self.window() < self.limit / 2 && edge.since(self.edge) >= threshold.max(1)
    }

    /// The delayed acknowledgement is due.
    pub(super) fn delayed_ack_due(&mut self) {
        if self.acknowledge == Acknowledge::Delayed {
            self.acknowledge = Acknowledge::Now;
        }
    }

    /// The window field of a segment that is sent now; it acknowledges all.
    pub(super) fn tell(&mut self, timers: &mut Timers) -> u16 {
        // Silly window avoidance: the edge moves by as much as is worth a segment, or not.
        let edge = self.next + self.free();
        if edge.since(self.edge) >= (self.limit / 2).min(self.max_segment_size).max(1) {
            self.edge = edge;
        }
        self.acknowledge = Acknowledge::No;
        self.unacknowledged = 0;
        self.last_ack = self.next;
        timers.clear(Timer::DelayedAck);
        // Rounded up, or the edge would seem to move left by less than the field can say (RFC 7323 §2.4).
        u16::try_from(self.window().div_ceil(1 << self.scale)).unwrap_or(u16::MAX)
    }

    /// The window field of a SYN.
    pub(super) fn unscaled_window(&self) -> u16 {
        u16::try_from(self.limit).unwrap_or(u16::MAX)
    }

    /// The blocks of the next acknowledgement; a duplicate is reported once, and first.
    pub(super) fn sack_blocks(&mut self) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        if let Some((start, end)) = self.duplicate.take() {
            blocks.push(start.0, end.0);
        }
        self.reassembly.sack_blocks(&mut blocks);
        blocks
    }

    pub(super) fn has_sack_blocks(&self) -> bool {
        self.duplicate.is_some() || self.has_gap()
    }

    /// A round trip as the receiver sees it; the buffer grows to what the user reads in two (dynamic right-sizing), so
    /// that the sender's window can double each round trip.
    pub(super) fn round_trip(&mut self, now: Instant, rtt: Duration) {
        self.rate.rtt = Some(self.rate.rtt.map_or(rtt, |least| least.min(rtt)));
        let since = *self.rate.since.get_or_insert(now);
        let round = self.rate.rtt.unwrap_or(rtt).max(Duration::from_millis(1));
        if now.saturating_duration_since(since) < round {
            return;
        }
        let wanted = 2 * self.rate.bytes + 16 * self.max_segment_size;
        self.limit = self.limit.max(wanted.min(self.max_limit));
        self.rate = ReadRate { since: Some(now), bytes: 0, rtt: None };
    }

    fn free(&self) -> usize {
        self.limit.saturating_sub(self.readable)
    }

    /// Whether data behind `end` has been received: then no FIN can be there.
    fn is_beyond(&self, end: SequenceNumber) -> bool {
        self.reassembly.last_end().is_some_and(|last| last > end)
    }

    fn store(&mut self, start: SequenceNumber, payload: &[u8]) {
        self.ring.write(self.readable + start.since(self.next), payload);
    }

    /// RFC 5681 §4.2: at once for each second full segment, and while there are gaps.
    fn schedule(&mut self, now: Instant, advanced: usize, had_gap: bool, timers: &mut Timers) {
        self.unacknowledged += advanced;
        let two_segments = self.unacknowledged >= 2 * self.segment_size.max(1);
        if two_segments || had_gap || self.has_gap() || self.ended || advanced == 0 {
            self.acknowledge_now();
        } else if self.acknowledge == Acknowledge::No {
            self.acknowledge = Acknowledge::Delayed;
            timers.set(Timer::DelayedAck, now + ACK_DELAY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: SequenceNumber = SequenceNumber(u32::MAX - 1000);

    fn receiver() -> (Receiver, Timers, Instant) {
        let mut receiver = Receiver::new(1 << 20, 1000);
        receiver.begin(FIRST);
        receiver.agree_on_scale(Some(5));
        (receiver, Timers::default(), Instant::now())
    }

    #[test]
    fn segments_in_any_order_are_one_stream() {
        let (mut receiver, mut timers, now) = receiver();
        let bytes: Vec<u8> = (0..10_000u32).map(|n| (n % 251) as u8).collect();
        for at in [3000, 1000, 9000, 0, 2000, 8000, 4000, 1500, 7000, 6000, 5000] {
            let end = (at + 1000).min(10_000);
            receiver.accept(now, FIRST + at, &bytes[at..end], end == 10_000, &mut timers).unwrap();
        }
        assert_eq!((receiver.readable(), receiver.has_ended()), (10_000, true));
        let mut read = vec![0; 20_000];
        assert_eq!(receiver.read(&mut read), 10_000);
        assert_eq!(read[..10_000], bytes);
        receiver.release();
        assert_eq!(receiver.heap(), 0);
    }

    #[test]
    fn rfc_9293_section_3_8_6_2_2_the_edge_moves_by_a_segment_or_not_at_all() {
        let (mut receiver, mut timers, now) = receiver();
        while receiver.window() >= 1000 {
            let next = receiver.next();
            receiver.accept(now, next, &[0; 1000], false, &mut timers).unwrap();
            receiver.tell(&mut timers);
        }
        let rest = receiver.window();
        let next = receiver.next();
        receiver.accept(now, next, &vec![0; rest], false, &mut timers).unwrap();
        assert_eq!(receiver.tell(&mut timers), 0);
        receiver.read(&mut [0; 900]);
        assert_eq!((receiver.owes(), receiver.tell(&mut timers)), (false, 0));
        receiver.read(&mut [0; 1200]);
        assert!(receiver.owes(), "two segments are worth a window update");
        assert_eq!(receiver.tell(&mut timers), 2100u16.div_ceil(1 << 5));
    }

    #[test]
    fn rfc_9293_section_3_8_6_3_each_second_full_segment_is_acknowledged_at_once() {
        let (mut receiver, mut timers, now) = receiver();
        receiver.accept(now, FIRST, &[0; 1000], false, &mut timers).unwrap();
        assert!(!receiver.owes() && timers.get(Timer::DelayedAck) == Some(now + ACK_DELAY));
        receiver.accept(now, FIRST + 1000, &[0; 1000], false, &mut timers).unwrap();
        assert!(receiver.owes());
    }

    #[test]
    fn rfc_2883_section_4_1_a_duplicate_is_reported_once_and_first() {
        let (mut receiver, mut timers, now) = receiver();
        receiver.accept(now, FIRST, &[0; 1000], false, &mut timers).unwrap();
        receiver.accept(now, FIRST + 2000, &[0; 1000], false, &mut timers).unwrap();
        receiver.accept(now, FIRST, &[0; 1000], false, &mut timers).unwrap();
        let at = |offset| (FIRST + offset).0;
        assert_eq!(receiver.sack_blocks().as_slice(), [(at(0), at(1000)), (at(2000), at(3000))]);
        assert_eq!(receiver.sack_blocks().as_slice(), [(at(2000), at(3000))]);
        // Above the cumulative acknowledgement, the second block is what it is part of (§4.2.1).
        receiver.accept(now, FIRST + 2500, &[0; 500], false, &mut timers).unwrap();
        assert_eq!(receiver.sack_blocks().as_slice(), [(at(2500), at(3000)), (at(2000), at(3000))]);
    }
}
