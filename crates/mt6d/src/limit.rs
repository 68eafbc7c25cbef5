//! How often something may happen: a token bucket.

use std::time::Duration;

use crate::time::Time;

/// So many at once, and one more after each pause.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    tokens: u32,
    most: u32,
    pause: Duration,
    filled: Time,
}

impl Limit {
    /// `most` at once, and again one after each `pause`.
    pub(crate) fn new(most: u32, pause: Duration, now: Time) -> Self {
        Limit { tokens: most, most, pause, filled: now }
    }

    /// From when on it may happen again.
    pub(crate) fn free_from(&self) -> Time {
        if self.tokens > 0 { self.filled } else { self.filled + self.pause }
    }

    /// Whether it may happen now; then it counts.
    pub(crate) fn take(&mut self, now: Time) -> bool {
        let earned = (now.since(self.filled).as_micros() / self.pause.as_micros()) as u32;
        if earned > 0 {
            // What is left of the time counts for the next.
            self.tokens = self.tokens.saturating_add(earned).min(self.most);
            self.filled = self.filled + self.pause * earned;
        }
        let left = self.tokens.checked_sub(1);
        self.tokens = left.unwrap_or(0);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_when_it_is_free_again() {
        let start = Time::from_micros(5_000_000);
        let mut limit = Limit::new(1, Duration::from_secs(2), start);
        assert!(limit.free_from() <= start && limit.take(start));
        let free = limit.free_from();
        assert!(!limit.take(free - Duration::from_micros(1)) && limit.take(free));
    }

    #[test]
    fn so_many_at_once_then_one_each_pause_and_never_more_than_at_once() {
        let second = Duration::from_secs(1);
        let at = |ms: u64| Time::from_micros(5_000_000) + Duration::from_millis(ms);
        let mut limit = Limit::new(3, second, at(0));
        let mut taken = |ms| (0..5).filter(|_| limit.take(at(ms))).count();
        assert_eq!(
            [0, 999, 1000, 1500, 2000, 100_000, 4_000_000_000_000].map(&mut taken),
            [3, 0, 1, 0, 1, 3, 3]
        );
    }
}
