//! When epochs begin (docs/protocol.md, "Epochs").

use crate::id::{Epoch, LaneId};
use crate::kdf::prf;

/// The jittered epochs that both ends of a pair keep, on a clock in milliseconds that both share.
///
/// `start(e, l) = e·T - floor(l·T/n) + jitter(e, l)` for `e >= 1`; epoch 0 has always begun. The jitter is less than
/// half an interval, so epochs come in order and last between T/2 and 3T/2.
#[derive(Clone)]
pub struct Schedule {
    key: [u8; 32],
    interval: i64,
    lanes: u8,
}

impl Schedule {
    /// A schedule of `lanes` lanes with epochs of `interval` milliseconds on average.
    pub fn new(key: [u8; 32], interval_ms: u64, lanes: u8) -> Self {
        let interval = i64::try_from(interval_ms).expect("intervals are at most 32 days");
        assert!(interval >= 2 && lanes >= 1, "an interval and at least one lane");
        Schedule { key, interval, lanes }
    }

    /// The average length of an epoch, in milliseconds.
    pub fn interval_ms(&self) -> i64 {
        self.interval
    }

    /// `jitter(e, l)` in milliseconds, less than half an interval.
    pub fn jitter(&self, epoch: Epoch, lane: LaneId) -> i64 {
        let out = prf(&self.key, &[b"jitter", &epoch.0.to_be_bytes(), &[lane.0]]);
        let value = u64::from_be_bytes(out[..8].try_into().expect("eight bytes"));
        (value % (self.interval as u64 / 2)) as i64
    }

    /// When `epoch` begins on `lane`, in milliseconds of the shared clock; `i64::MIN` for epoch 0.
    pub fn start(&self, epoch: Epoch, lane: LaneId) -> i64 {
        if epoch == Epoch::FIRST {
            return i64::MIN;
        }
        self.earliest(epoch, lane).saturating_add(self.jitter(epoch, lane))
    }

    /// The epoch that is current on `lane` at `now` milliseconds of the shared clock.
    pub fn current(&self, lane: LaneId, now: i64) -> Epoch {
        let candidate = (now.saturating_add(self.lead(lane))).div_euclid(self.interval);
        let Ok(candidate @ 1..) = u64::try_from(candidate) else { return Epoch::FIRST };
        if self.start(Epoch(candidate), lane) <= now { Epoch(candidate) } else { Epoch(candidate - 1) }
    }

    /// How much earlier than lane 0 a lane begins its epochs.
    fn lead(&self, lane: LaneId) -> i64 {
        i64::from(lane.0) * self.interval / i64::from(self.lanes)
    }

    fn earliest(&self, epoch: Epoch, lane: LaneId) -> i64 {
        i64::try_from(epoch.0)
            .unwrap_or(i64::MAX)
            .saturating_mul(self.interval)
            .saturating_sub(self.lead(lane))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn epochs_come_in_order_and_last_between_half_and_one_and_a_half_intervals(
            key: [u8; 32], interval in 1_000u64..3_600_000, lanes in 1u8..=16, lane in 0u8..16, epoch in 1u64..1_000_000,
        ) {
            let (lane, epoch) = (LaneId(lane % lanes), Epoch(epoch));
            let schedule = Schedule::new(key, interval, lanes);
            let length = schedule.start(epoch + 1, lane) - schedule.start(epoch, lane);
            let t = interval as i64;
            prop_assert!(length > t / 2 - 1 && length < t + t / 2 + 1, "{length}");
        }

        #[test]
        fn current_is_the_last_that_has_begun(
            key: [u8; 32], interval in 1_000u64..100_000, lanes in 1u8..=16, lane in 0u8..16, now in -100_000i64..1_000_000_000,
        ) {
            let lane = LaneId(lane % lanes);
            let schedule = Schedule::new(key, interval, lanes);
            let epoch = schedule.current(lane, now);
            prop_assert!(schedule.start(epoch, lane) <= now);
            prop_assert!(schedule.start(epoch + 1, lane) > now);
        }
    }
}
