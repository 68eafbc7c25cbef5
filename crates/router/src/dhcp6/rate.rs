//! How many messages of a network are heard.

use std::time::{Duration, Instant};

/// So many at once, after a pause.
const BURST: u32 = 64;
/// Then one in this time.
const EACH: Duration = Duration::from_millis(50);

/// What is left of it.
#[derive(Debug)]
pub(super) struct Rate {
    left: u32,
    counted_at: Instant,
}

impl Rate {
    pub(super) fn new(now: Instant) -> Self {
        Rate { left: BURST, counted_at: now }
    }

    /// Whether another one is heard.
    pub(super) fn allows(&mut self, now: Instant) -> bool {
        let more = (now.saturating_duration_since(self.counted_at).as_millis() / EACH.as_millis()) as u32;
        if more > 0 {
            self.left = self.left.saturating_add(more).min(BURST);
            self.counted_at = now;
        }
        let allowed = self.left > 0;
        self.left = self.left.saturating_sub(1);
        allowed
    }
}
