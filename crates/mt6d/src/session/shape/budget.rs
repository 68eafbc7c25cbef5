//! How much may be sent in a day, counted in memory since the start.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::config::Daily;
use crate::time::Time;

const DAY: u64 = 86_400_000_000;

/// A budget, which a peer's sessions spend one after the other: half of it at once, and half in the course of each day. So no
/// more than the whole is spent within any 24 hours.
#[derive(Debug)]
pub(crate) struct Budget {
    /// What may be spent in a day as it comes, in bytes; as much may be saved up.
    half: u64,
    /// When all that was spent will have come in, in microseconds.
    settled: AtomicU64,
}

impl Budget {
    /// Nothing of it is spent yet.
    pub(crate) fn new(daily: Daily) -> Self {
        Budget { half: daily.bytes() / 2, settled: AtomicU64::new(0) }
    }

    /// Spends so much, if it is there.
    pub(crate) fn spend(&self, bytes: u64, now: Time) -> bool {
        let settled = self.after(bytes, now);
        let is_there = settled <= now.micros().saturating_add(DAY);
        if is_there {
            self.settled.store(settled, Relaxed);
        }
        is_there
    }

    /// Spends so much, there or not.
    pub(crate) fn owe(&self, bytes: u64, now: Time) {
        self.settled.store(self.after(bytes, now), Relaxed);
    }

    /// What comes in on average, in bytes per second.
    pub(crate) fn mean_rate(&self) -> u64 {
        self.half / 86_400
    }

    /// What could be spent now, in bytes.
    pub(crate) fn left(&self, now: Time) -> u64 {
        let owed = self.settled.load(Relaxed).saturating_sub(now.micros());
        (u128::from(self.half) * u128::from(DAY.saturating_sub(owed)) / u128::from(DAY)) as u64
    }

    fn after(&self, bytes: u64, now: Time) -> u64 {
        let takes = u128::from(bytes) * u128::from(DAY) / u128::from(self.half);
        let from = self.settled.load(Relaxed).max(now.micros());
        from.saturating_add(u64::try_from(takes).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn budget() -> Budget {
        Budget::new(Daily::from_bytes(2_000_000_000).unwrap())
    }

    #[test]
    fn half_is_there_at_once_and_half_comes_in_a_day() {
        let (budget, start) = (budget(), Time::from_micros(5));
        assert_eq!(budget.left(start), 1_000_000_000);
        assert!(budget.spend(1_000_000_000, start) && !budget.spend(1_000, start));
        let later = Time::from_micros(5 + DAY / 2);
        assert!(budget.left(later).abs_diff(500_000_000) < 2);
        assert!(!budget.spend(600_000_000, later) && budget.spend(400_000_000, later));
    }

    proptest! {
        #[test]
        fn no_day_has_more_than_the_whole(
            asks in prop::collection::vec((0u64..DAY / 6, 1u64..300_000_000), 1..200),
        ) {
            let (budget, mut now, mut spent) = (budget(), 0, Vec::new());
            for (wait, bytes) in asks {
                now += wait;
                if budget.spend(bytes, Time::from_micros(now)) {
                    spent.push((now, bytes));
                }
                let within: u64 = spent.iter().filter(|(at, _)| at + DAY > now).map(|(_, bytes)| bytes).sum();
                prop_assert!(within <= 2_000_000_000 + 1_000, "{}", within);
            }
        }
    }
}
