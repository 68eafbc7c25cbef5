//! How long packets have waited, or how late slots were, of the last minute.

use std::time::Duration;

use crate::time::Time;

/// What is counted together.
const SPAN: Duration = Duration::from_secs(10);
/// So many of these are remembered.
const SPANS: usize = 6;
/// Buckets: one for less than a [`LEAST`], then four for each doubling, up to four seconds.
const BUCKETS: usize = 1 + 4 * 16;
const LEAST: u64 = 64;

/// Counts of waits, by how long they were.
pub(crate) struct Delays {
    spans: [[u32; BUCKETS]; SPANS],
    current: usize,
    since: Time,
}

/// How long packets have waited, or how late slots were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Delay {
    /// Half of them no longer than this.
    pub median: Duration,
    /// Of a hundred all but one no longer than this.
    pub p99: Duration,
}

impl Delays {
    pub(super) fn new(now: Time) -> Self {
        Delays { spans: [[0; BUCKETS]; SPANS], current: 0, since: now }
    }

    /// One has waited for so long.
    pub(super) fn add(&mut self, waited: Duration, now: Time) {
        self.forget(now);
        self.spans[self.current][bucket(waited)] += 1;
    }

    /// Those of the last minute, or a little less; none if nothing has waited in it.
    pub(super) fn last_minute(&self, now: Time) -> Option<Delay> {
        let over = (now.since(self.since).as_micros() / SPAN.as_micros()).min(SPANS as u128) as usize;
        let age = |span: usize| (self.current + SPANS - span) % SPANS;
        let spans = || (0..SPANS).filter(|span| age(*span) + over < SPANS).map(|span| &self.spans[span]);
        let sums: [u64; BUCKETS] =
            std::array::from_fn(|bucket| spans().map(|span| u64::from(span[bucket])).sum());
        let all: u64 = sums.iter().sum();
        let below = |share: u64| {
            let mut passed = 0;
            let found = sums.iter().position(|sum| {
                passed += sum;
                passed * 100 >= all * share
            });
            upper_bound(found.unwrap_or(0))
        };
        (all > 0).then(|| Delay { median: below(50), p99: below(99) })
    }

    fn forget(&mut self, now: Time) {
        let mut spans = 0;
        while now.since(self.since) >= SPAN && spans < SPANS {
            self.since = self.since + SPAN;
            self.current = (self.current + 1) % SPANS;
            self.spans[self.current] = [0; BUCKETS];
            spans += 1;
        }
        if spans == SPANS {
            self.since = now;
        }
    }
}

fn bucket(waited: Duration) -> usize {
    let micros = waited.as_micros() as u64;
    if micros < LEAST {
        return 0;
    }
    let doublings = (micros / LEAST).ilog2();
    let quarter = (micros >> doublings) * 4 / LEAST - 4;
    (1 + 4 * doublings as usize + quarter as usize).min(BUCKETS - 1)
}

/// What a bucket counts is shorter than this.
fn upper_bound(bucket: usize) -> Duration {
    let Some(place) = bucket.checked_sub(1) else { return Duration::from_micros(LEAST) };
    let doubled = LEAST << (place / 4);
    Duration::from_micros(doubled + doubled * (place as u64 % 4 + 1) / 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(s: u64) -> Time {
        Time::from_micros(s * 1_000_000)
    }

    #[test]
    fn percentiles_are_those_of_what_was_added_and_a_minute_later_forgotten() {
        let mut delays = Delays::new(at(100));
        assert_eq!(delays.last_minute(at(100)), None);
        (0..98).for_each(|_| delays.add(Duration::from_millis(2), at(101)));
        (0..2).for_each(|_| delays.add(Duration::from_millis(500), at(102)));
        let delay = delays.last_minute(at(120)).unwrap();
        assert!((2..=3).contains(&delay.median.as_millis()), "{delay:?}");
        assert!((500..=625).contains(&delay.p99.as_millis()), "{delay:?}");
        assert_eq!(delays.last_minute(at(170)), None);
        delays.add(Duration::ZERO, at(10_000));
        assert!(delays.last_minute(at(10_001)).is_some());
    }

    proptest! {
        #[test]
        fn a_bucket_is_a_quarter_wide_at_most(micros in 0u64..4_000_000) {
            let upper = upper_bound(bucket(Duration::from_micros(micros))).as_micros() as u64;
            prop_assert!(micros <= upper && upper <= (micros * 5 / 4 + 1).max(LEAST), "{micros} {upper}");
        }
    }
}
