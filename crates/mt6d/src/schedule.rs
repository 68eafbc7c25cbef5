//! When epochs begin (docs/protocol.md, "Epochs").

use crate::id::Epoch;
use crate::kdf::prf;

/// The jittered epochs that both ends of a pair keep, on a clock in milliseconds that both share.
///
/// `start(e) = e·T + jitter(e)` for `e >= 1`; epoch 0 has always begun. The jitter is less than half an interval, so
/// epochs come in order and last between T/2 and 3T/2.
#[derive(Clone)]
pub struct Schedule {
    key: [u8; 32],
    interval: i64,
}

impl Schedule {
    /// Epochs of `interval` milliseconds on average.
    pub fn new(key: [u8; 32], interval_ms: u64) -> Self {
        let interval = i64::try_from(interval_ms).expect("intervals are at most 32 days");
        assert!(interval >= 2, "an interval");
        Schedule { key, interval }
    }

    /// `jitter(e)` in milliseconds, less than half an interval.
    pub fn jitter(&self, epoch: Epoch) -> i64 {
        let out = prf(&self.key, &[b"jitter", &epoch.0.to_be_bytes()]);
        let value = u64::from_be_bytes(out[..8].try_into().expect("eight bytes"));
        (value % (self.interval as u64 / 2)) as i64
    }

    /// When `epoch` begins, in milliseconds of the shared clock; `i64::MIN` for epoch 0.
    pub fn start(&self, epoch: Epoch) -> i64 {
        if epoch == Epoch::FIRST {
            return i64::MIN;
        }
        let earliest = i64::try_from(epoch.0).unwrap_or(i64::MAX).saturating_mul(self.interval);
        earliest.saturating_add(self.jitter(epoch))
    }

    /// The epoch that is current at `now` milliseconds of the shared clock.
    pub fn current(&self, now: i64) -> Epoch {
        let Ok(candidate @ 1..) = u64::try_from(now.div_euclid(self.interval)) else { return Epoch::FIRST };
        if self.start(Epoch(candidate)) <= now { Epoch(candidate) } else { Epoch(candidate - 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn epochs_come_in_order_and_last_between_half_and_one_and_a_half_intervals(
            key: [u8; 32], interval in 1_000u64..3_600_000, epoch in 1u64..1_000_000,
        ) {
            let schedule = Schedule::new(key, interval);
            let length = schedule.start(Epoch(epoch + 1)) - schedule.start(Epoch(epoch));
            let t = interval as i64;
            prop_assert!(length > t / 2 - 1 && length < t + t / 2 + 1, "{length}");
        }

        #[test]
        fn current_is_the_last_that_has_begun(
            key: [u8; 32], interval in 1_000u64..100_000, now in -100_000i64..1_000_000_000,
        ) {
            let schedule = Schedule::new(key, interval);
            let epoch = schedule.current(now);
            prop_assert!(schedule.start(epoch) <= now);
            prop_assert!(schedule.start(epoch + 1) > now);
        }
    }
}
