//! Faults of a link, on demand: loss, reordering, duplication, corruption, delay, rate, MTU.
//!
//! A [`Line`] is one direction of a link in virtual time. What becomes of a packet follows from the seed and the packets
//! before it, so that a run with the same packets at the same times is the same run.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use stack::faults::{Faults, Line};
//!
//! let start = Instant::now();
//! let faults = Faults { delay: Duration::from_millis(20), ..Faults::default() };
//! let mut line = Line::new(faults, 1);
//! assert!(line.send(start, b"packet".to_vec(), 6));
//! assert_eq!(line.receive(start), None);
//! assert_eq!(line.next_arrival(), Some(start + faults.delay));
//! assert_eq!(line.receive(start + faults.delay), Some(b"packet".to_vec()));
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use crate::random::Random;

/// Packets under way on a line; what comes on top is lost.
pub const MAX_UNDER_WAY: usize = 1 << 16;
/// A duplicate comes so much later.
const DUPLICATE_AFTER: Duration = Duration::from_millis(1);

/// What a line does to packets. By default nothing. Shares are between 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Faults {
    /// The share that is lost.
    pub loss: f64,
    /// The share that is late, and by how much: others overtake it.
    pub reorder: (f64, Duration),
    /// The share that comes twice.
    pub duplicate: f64,
    /// The share of which one bit is another.
    pub corrupt: f64,
    /// How long each is under way.
    pub delay: Duration,
    /// Octets per second; 0: no limit.
    pub rate: u64,
    /// Octets that wait for their turn, where there is a rate; what comes on top is lost.
    pub queue: usize,
    /// Longer packets are lost, silently.
    pub mtu: usize,
}

impl Default for Faults {
    fn default() -> Self {
        Faults {
            loss: 0.0,
            reorder: (0.0, Duration::ZERO),
            duplicate: 0.0,
            corrupt: 0.0,
            delay: Duration::ZERO,
            rate: 0,
            queue: usize::MAX,
            mtu: usize::MAX,
        }
    }
}

impl Faults {
    /// Whether there are any.
    pub fn any(&self) -> bool {
        *self != Faults::default()
    }
}

/// What a line carries.
pub trait Parcel: Clone {
    /// The octets of which one bit may be changed.
    fn octets_mut(&mut self) -> &mut [u8];
}

impl Parcel for Vec<u8> {
    fn octets_mut(&mut self) -> &mut [u8] {
        self
    }
}

/// One direction of a link.
pub struct Line<T> {
    faults: Faults,
    random: Random,
    /// When what was sent so far has left.
    busy_until: Option<Instant>,
    under_way: BinaryHeap<UnderWay<T>>,
    sent: u64,
}

#[derive(Debug)]
struct UnderWay<T> {
    order: Reverse<(Instant, u64)>,
    parcel: T,
}

impl<T> PartialEq for UnderWay<T> {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl<T> Eq for UnderWay<T> {}

impl<T> PartialOrd for UnderWay<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for UnderWay<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order.cmp(&other.order)
    }
}

impl<T: Parcel> Line<T> {
    /// An idle line.
    pub fn new(faults: Faults, seed: u64) -> Self {
        let mut octets = [0; 32];
        octets[..8].copy_from_slice(&seed.to_le_bytes());
        Line { faults, random: Random::new(octets), busy_until: None, under_way: BinaryHeap::new(), sent: 0 }
    }

    /// Takes a packet of this length; returns whether it will arrive.
    pub fn send(&mut self, now: Instant, mut parcel: T, length: usize) -> bool {
        let faults = self.faults;
        let overflows = faults.rate > 0 && self.waiting(now) > faults.queue;
        let is_full = self.under_way.len() >= MAX_UNDER_WAY;
        if self.happens(faults.loss) || overflows || is_full || length > faults.mtu {
            return false;
        }
        let mut leaves = self.busy_until.map_or(now, |until| until.max(now));
        if faults.rate > 0 {
            leaves += Duration::from_secs_f64(length as f64 / faults.rate as f64);
            self.busy_until = Some(leaves);
        }
        let mut arrives = leaves + faults.delay;
        let (late, by) = faults.reorder;
        if self.happens(late) {
            arrives += by;
        }
        if self.happens(faults.corrupt) {
            let bit = self.random.u64() as usize;
            let octets = parcel.octets_mut();
            if !octets.is_empty() {
                octets[bit / 8 % octets.len()] ^= 1 << (bit % 8);
            }
        }
        if self.happens(faults.duplicate) {
            self.push(arrives + DUPLICATE_AFTER, parcel.clone());
        }
        self.push(arrives, parcel);
        true
    }

    /// Octets that wait for their turn.
    pub fn waiting(&self, now: Instant) -> usize {
        let waits = self.busy_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        (waits.as_secs_f64() * self.faults.rate as f64) as usize
    }

    /// When the next packet arrives.
    pub fn next_arrival(&self) -> Option<Instant> {
        self.under_way.peek().map(|next| next.order.0.0)
    }

    /// The next packet that has arrived.
    pub fn receive(&mut self, now: Instant) -> Option<T> {
        if self.next_arrival()? > now {
            return None;
        }
        Some(self.under_way.pop()?.parcel)
    }

    fn push(&mut self, at: Instant, parcel: T) {
        self.sent += 1;
        self.under_way.push(UnderWay { order: Reverse((at, self.sent)), parcel });
    }

    fn happens(&mut self, share: f64) -> bool {
        // A fault that is off takes no randomness: to switch it on changes nothing about the others' draws before.
        share > 0.0 && f64::from(self.random.u32()) < share * (f64::from(u32::MAX) + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn through(faults: Faults, packets: u32) -> Vec<Vec<u8>> {
        let start = Instant::now();
        let mut line = Line::new(faults, 7);
        for number in 0..packets {
            line.send(start, number.to_be_bytes().to_vec(), 4);
        }
        std::iter::from_fn(|| line.receive(start + 3600 * 1000 * MS)).collect()
    }

    fn all(packets: u32) -> Vec<Vec<u8>> {
        (0..packets).map(|number| number.to_be_bytes().to_vec()).collect()
    }

    #[test]
    fn a_line_without_faults_carries_all_in_order() {
        assert_eq!(through(Faults::default(), 1000), all(1000));
    }

    #[test]
    fn each_fault_hits_its_share() {
        let lossy = through(Faults { loss: 0.1, ..Faults::default() }, 10_000).len();
        assert!((8_800..9_200).contains(&lossy), "{lossy}");
        let twice = through(Faults { duplicate: 0.1, ..Faults::default() }, 10_000).len();
        assert!((10_800..11_200).contains(&twice), "{twice}");
        let corrupt = through(Faults { corrupt: 0.1, ..Faults::default() }, 10_000);
        let wrong = corrupt.iter().zip(all(10_000)).filter(|(got, sent)| *got != sent).count();
        assert!((800..1_200).contains(&wrong), "{wrong}");
        let late = through(Faults { reorder: (0.1, MS), ..Faults::default() }, 10_000);
        let kept = late.iter().take(8_800).is_sorted();
        assert!(kept && !late.is_sorted() && late.len() == 10_000);
    }

    #[test]
    fn the_same_seed_is_the_same_run() {
        let faults = Faults { loss: 0.3, duplicate: 0.3, corrupt: 0.3, ..Faults::default() };
        assert_eq!(through(faults, 1000), through(faults, 1000));
    }

    #[test]
    fn what_exceeds_rate_and_queue_is_lost_and_the_rest_takes_its_time() {
        let start = Instant::now();
        let faults = Faults { rate: 1000, queue: 250, ..Faults::default() };
        let mut line = Line::new(faults, 7);
        let taken = (0..10).filter(|_| line.send(start, vec![0; 100], 100)).count();
        assert_eq!(taken, 4);
        let mut arrivals = Vec::new();
        while let Some(at) = line.next_arrival() {
            arrivals.push((at - start).as_millis());
            line.receive(at);
        }
        assert_eq!(arrivals, [100, 200, 300, 400].map(|ms: u128| ms));
    }

    #[test]
    fn packets_longer_than_the_mtu_are_lost() {
        let mut line = Line::new(Faults { mtu: 1280, ..Faults::default() }, 7);
        let now = Instant::now();
        assert!(line.send(now, vec![0; 1280], 1280));
        assert!(!line.send(now, vec![0; 1281], 1281));
    }
}
