//! The packets that wait for a slot: bounded in number and time, those first that wait for an answer.
//!
//! There are two rows. A flow that has little waiting has its packets in the first, so that a question, an acknowledgement or
//! a keystroke does not wait behind a download, as the new flows of `fq` (RFC 8290 section 4.2) do not. What a flow has
//! beyond that is in the second, and so is all that follows until that is empty: so each flow stays in order. Packets that
//! are marked for expedited forwarding (RFC 3246) are always in the first.

use std::collections::VecDeque;
use std::time::Duration;

use super::delays::Delays;
use crate::drops::DropReason;
use crate::session::fast_out::{OUTER, Place};
use crate::session::path_mtu::BASE;
use crate::session::seal;
use crate::time::Time;

/// Size of all outer packets: what every path carries.
pub(crate) const SIZE: u16 = BASE;
/// What they have room for.
pub(crate) const ROOM: usize = SIZE as usize - OUTER - seal::OVERHEAD;

/// The rows.
const FIRST: usize = 0;
const SECOND: usize = 1;
/// What a flow may have waiting in the first row.
const FEW: u16 = 2;
/// What waited for so long is given up: a sender has sent it again by then. Where so many datagrams take longer, after that
/// time: else a packet that is alone would often find no slot before it is given up.
const LONGEST_WAIT: (Duration, u64) = (Duration::from_secs(1), 16);
/// Each row holds what the rate carries in this time, but no fewer and no more than that.
const HOLDS: (Duration, usize, usize) = (Duration::from_millis(400), 16, 512);
/// Flows that are told apart; others share a place.
const FLOWS: usize = 1024;

/// An inner part of a datagram, which waits.
pub(crate) struct Waiting {
    since: Time,
    flow: usize,
    length: usize,
    /// Length of the inner packet that is whole with it.
    pub(crate) packet: Option<usize>,
    bytes: Box<[u8]>,
}

impl Waiting {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// What waits.
pub(crate) struct Queue {
    rows: [VecDeque<Waiting>; 2],
    /// Of each flow, how many wait in either row.
    waiting: Box<[[u16; 2]; FLOWS]>,
    /// Memory that is used again.
    free: Vec<Box<[u8]>>,
    limit: usize,
    longest_wait: Duration,
    /// Packets that were given up, until somebody asks.
    given_up: u64,
    asked: u64,
    pub(crate) delays: Delays,
}

/// The queue, for the packets of one flow.
pub(crate) struct OfFlow<'a> {
    queue: &'a mut Queue,
    flow: usize,
    expedited: bool,
    now: Time,
    /// The rows that parts of the packet are in.
    parts: Vec<usize>,
    /// Whether there was no room for one of them.
    torn: bool,
}

impl Queue {
    /// Of a shape with this rate, in bytes per second: the lowest, if there are several.
    pub(crate) fn new(rate: u64, now: Time) -> Self {
        let (time, datagrams) = LONGEST_WAIT;
        let mut queue = Queue {
            rows: [VecDeque::new(), VecDeque::new()],
            waiting: Box::new([[0; 2]; FLOWS]),
            free: Vec::new(),
            limit: 0,
            longest_wait: time.max(Duration::from_micros(datagrams * u64::from(SIZE) * 1_000_000 / rate)),
            given_up: 0,
            asked: 0,
            delays: Delays::new(now),
        };
        queue.set_rate(rate);
        queue
    }

    /// The rate changes: what waits stays.
    pub(crate) fn set_rate(&mut self, rate: u64) {
        let (time, least, most) = HOLDS;
        let datagrams = u128::from(rate) * time.as_micros() / 1_000_000 / u128::from(SIZE);
        self.limit = usize::try_from(datagrams).unwrap_or(most).clamp(least, most);
    }

    /// How many datagrams were to be kept since this was asked, whether there was room or not.
    pub(crate) fn asked(&mut self) -> u64 {
        std::mem::take(&mut self.asked)
    }

    /// For the packets of a flow.
    pub(crate) fn of_flow(&mut self, hash: u32, expedited: bool, now: Time) -> OfFlow<'_> {
        OfFlow { queue: self, flow: hash as usize % FLOWS, expedited, now, parts: Vec::new(), torn: false }
    }

    /// How many datagrams wait.
    pub(crate) fn len(&self) -> usize {
        self.rows.iter().map(VecDeque::len).sum()
    }

    /// How many packets were given up since this was asked.
    pub(crate) fn given_up(&mut self) -> u64 {
        std::mem::take(&mut self.given_up)
    }

    /// Gives up all that waits; how many packets that is.
    pub(crate) fn give_up(&mut self) -> u64 {
        for waiting in self.rows.iter_mut().flat_map(|row| row.drain(..)) {
            self.given_up += u64::from(waiting.packet.is_some());
        }
        *self.waiting = [[0; 2]; FLOWS];
        self.given_up()
    }

    /// What leaves next. To be given back.
    pub(crate) fn pop(&mut self, now: Time) -> Option<Waiting> {
        loop {
            let row = usize::from(self.rows[FIRST].is_empty());
            let waiting = self.rows[row].pop_front()?;
            self.waiting[waiting.flow][row] -= 1;
            let waited = now.since(waiting.since);
            if waited <= self.longest_wait {
                self.delays.add(waited, now);
                return Some(waiting);
            }
            self.given_up += u64::from(waiting.packet.is_some());
            self.give_back(waiting);
        }
    }

    /// What was put into a row last is not to leave.
    fn take_back(&mut self, row: usize) {
        if let Some(waiting) = self.rows[row].pop_back() {
            self.waiting[waiting.flow][row] -= 1;
            self.give_back(waiting);
        }
    }

    /// Takes the memory of what has left.
    pub(crate) fn give_back(&mut self, waiting: Waiting) {
        self.free.push(waiting.bytes);
    }
}

impl Place for OfFlow<'_> {
    fn room(&self) -> usize {
        ROOM
    }

    fn put(&mut self, length: usize, write: impl FnOnce(&mut [u8])) -> Result<(), DropReason> {
        self.queue.asked += 1;
        let waiting = &mut self.queue.waiting[self.flow];
        let is_first = self.expedited || waiting[SECOND] == 0 && waiting[FIRST] < FEW;
        let row = if is_first { FIRST } else { SECOND };
        if self.torn || self.queue.rows[row].len() >= self.queue.limit {
            self.torn = true;
            return Ok(());
        }
        waiting[row] += 1;
        let mut bytes = self.queue.free.pop().unwrap_or_else(|| vec![0; ROOM].into_boxed_slice());
        write(&mut bytes[..length]);
        let waiting = Waiting { since: self.now, flow: self.flow, length, packet: None, bytes };
        self.queue.rows[row].push_back(waiting);
        self.parts.push(row);
        Ok(())
    }

    fn whole(&mut self, length: usize) {
        if std::mem::take(&mut self.torn) {
            self.queue.given_up += 1;
            while let Some(row) = self.parts.pop() {
                self.queue.take_back(row);
            }
        } else if let Some(last) = self.parts.pop().and_then(|row| self.queue.rows[row].back_mut()) {
            last.packet = Some(length);
        }
        self.parts.clear();
    }
}

/// Whether a packet of IPv4 or IPv6 is marked for expedited forwarding.
pub(crate) fn is_expedited(packet: &[u8]) -> bool {
    const EF: u8 = 46;
    let dscp = match packet {
        [first, second, ..] if first >> 4 == 6 => (first << 4 | second >> 4) >> 2,
        [first, second, ..] if first >> 4 == 4 => second >> 2,
        _ => return false,
    };
    dscp == EF
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> Time {
        Time::from_micros(1_000_000 + ms * 1000)
    }

    fn queue() -> Queue {
        Queue::new(250_000, at(0))
    }

    fn put(queue: &mut Queue, flow: u32, number: u8, expedited: bool, now: Time) {
        let mut place = queue.of_flow(flow, expedited, now);
        place.put(2, |bytes| bytes.copy_from_slice(&[flow as u8, number])).unwrap();
        place.whole(100);
    }

    fn pop(queue: &mut Queue, now: Time) -> Option<[u8; 2]> {
        let waiting = queue.pop(now)?;
        let bytes = waiting.bytes().try_into().unwrap();
        queue.give_back(waiting);
        Some(bytes)
    }

    #[test]
    fn a_question_does_not_wait_behind_a_download() {
        let mut queue = queue();
        (0..20).for_each(|number| put(&mut queue, 1, number, false, at(0)));
        put(&mut queue, 2, 0, false, at(1));
        let order: Vec<_> = std::iter::from_fn(|| pop(&mut queue, at(2))).collect();
        assert_eq!(order[..4], [[1, 0], [1, 1], [2, 0], [1, 2]]);
        assert_eq!(order.len(), 21);
    }

    #[test]
    fn expedited_packets_come_first_however_many_they_are() {
        let mut queue = queue();
        (0..10).for_each(|number| put(&mut queue, 1, number, false, at(0)));
        (0..10).for_each(|number| put(&mut queue, 3, number, true, at(0)));
        let order: Vec<_> = std::iter::from_fn(|| pop(&mut queue, at(2))).collect();
        assert!(order[2..12].iter().all(|packet| packet[0] == 3), "{order:?}");
    }

    #[test]
    fn it_is_bounded_in_number_and_time_and_what_is_given_up_is_counted() {
        let mut queue = queue();
        (0..200).for_each(|number| put(&mut queue, 1, number, false, at(0)));
        let held = queue.len();
        assert_eq!(held, queue.limit + usize::from(FEW));
        assert_eq!(queue.given_up(), 200 - held as u64);
        assert!(pop(&mut queue, at(1_000)).is_some());
        assert_eq!(pop(&mut queue, at(1_001)), None, "all are too old");
        assert_eq!(queue.given_up(), held as u64 - 1);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn of_a_packet_in_parts_none_or_one_counts() {
        let mut queue = queue();
        for _ in 0..40 {
            let mut place = queue.of_flow(1, false, at(0));
            (0..2).for_each(|_| place.put(2, |bytes| bytes.fill(0)).unwrap());
            place.whole(1_280);
        }
        let mut whole = 0;
        while let Some(waiting) = queue.pop(at(0)) {
            whole += u64::from(waiting.packet.is_some());
            queue.give_back(waiting);
        }
        assert_eq!(whole + queue.given_up(), 40);
    }

    #[test]
    fn marks_of_both_families_are_seen() {
        assert!(is_expedited(&[0x6b, 0x80, 0]) && is_expedited(&[0x45, 46 << 2, 0]));
        assert!(!is_expedited(&[0x60, 0, 0]) && !is_expedited(&[0x45, 0, 0]) && !is_expedited(&[]));
    }

    proptest! {
        #[test]
        fn flows_stay_in_order_and_nothing_is_lost_that_was_not_given_up(
            steps in prop::collection::vec((0u32..6, any::<bool>()), 1..600),
        ) {
            let mut queue = queue();
            let (mut sent, mut seen) = ([0u8; 6], HashMap::new());
            let (mut put_in, mut out) = (0u64, 0u64);
            for (step, (flow, pops)) in steps.into_iter().enumerate() {
                let now = at(step as u64);
                if pops {
                    if let Some([flow, number]) = pop(&mut queue, now) {
                        out += 1;
                        let before = seen.insert(flow, number);
                        prop_assert!(before.is_none_or(|before| before < number));
                    }
                } else if sent[flow as usize] < u8::MAX {
                    put(&mut queue, flow, sent[flow as usize], flow == 5, now);
                    sent[flow as usize] += 1;
                    put_in += 1;
                }
                prop_assert!(queue.len() <= 2 * queue.limit);
            }
            prop_assert_eq!(put_in, out + queue.given_up() + queue.len() as u64);
        }
    }
}
