//! How often something may happen: a token bucket (RFC 4443 §2.4 f).

use std::time::{Duration, Instant};

/// So many at once, and one more after each pause.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    tokens: u32,
    most: u32,
    pause: Duration,
    filled: Instant,
}

impl Limit {
    /// `most` at once, and again one after each `pause`, which is not 0.
    pub(crate) fn new(most: u32, pause: Duration, now: Instant) -> Self {
        Limit { tokens: most, most, pause, filled: now }
    }

    /// Whether it may happen now; then it counts.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let earned = now.saturating_duration_since(self.filled).as_micros() / self.pause.as_micros().max(1);
        if earned >= u128::from(self.most) {
            self.tokens = self.most;
            self.filled = now;
        } else if earned > 0 {
            // What is left of the time counts for the next.
            self.tokens = (self.tokens + earned as u32).min(self.most);
            self.filled += self.pause * earned as u32;
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
    fn so_many_at_once_then_one_each_pause_and_never_more_than_at_once() {
        let start = Instant::now();
        let mut limit = Limit::new(3, Duration::from_secs(1), start);
        let mut taken = |ms| (0..5).filter(|_| limit.take(start + Duration::from_millis(ms))).count();
        assert_eq!([0, 999, 1000, 1500, 2000, 100_000].map(&mut taken), [3, 0, 1, 0, 1, 3]);
    }
}
