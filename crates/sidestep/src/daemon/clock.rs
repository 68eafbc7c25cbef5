//! The clocks that the protocol is given.

use mt6d::{Now, Time};

/// A wall clock before this, 2024-01-01, was never set.
const NEVER_SET_BEFORE_MS: u64 = 1_704_067_200_000;

/// CLOCK_BOOTTIME and CLOCK_REALTIME, the latter with a correction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    offset_ms: i64,
}

impl Clock {
    /// Clocks whose wall time is off by `test_offset_ms`.
    pub(super) fn new(test_offset_ms: Option<i64>) -> Self {
        Clock { offset_ms: test_offset_ms.unwrap_or(0) }
    }

    /// A device whose clock was never set goes on from the last time it remembers.
    pub(super) fn not_before(&mut self, saved_ms: u64) {
        let now = self.now().unix_ms;
        if now < NEVER_SET_BEFORE_MS && saved_ms > now {
            self.offset_ms += (saved_ms - now) as i64;
        }
    }

    pub(super) fn set_offset(&mut self, ms: i64) {
        self.offset_ms = ms;
    }

    pub(super) fn now(&self) -> Now {
        Now {
            boot: Time::from_micros(linux::clock::boottime_us()),
            unix_ms: linux::clock::unix_ms().saturating_add_signed(self.offset_ms),
        }
    }
}
