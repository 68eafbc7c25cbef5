//! The clocks that the protocol is given.

use mt6d::{Now, Time};

/// A wall clock before this, 2024-01-01, was never set.
const NEVER_SET_BEFORE_MS: u64 = 1_704_067_200_000;

/// CLOCK_BOOTTIME and CLOCK_REALTIME, the latter with a correction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    test_offset_ms: i64,
    /// What is added as long as nobody has set the clock.
    never_set_offset_ms: u64,
}

impl Clock {
    /// Clocks whose wall time is off by `test_offset_ms`.
    pub(super) fn new(test_offset_ms: Option<i64>) -> Self {
        Clock { test_offset_ms: test_offset_ms.unwrap_or(0), never_set_offset_ms: 0 }
    }

    /// A device whose clock was never set goes on from the last time it remembers, until somebody sets it.
    pub(super) fn not_before(&mut self, saved_ms: u64) {
        self.never_set_offset_ms = saved_ms.saturating_sub(linux::clock::unix_ms());
    }

    pub(super) fn set_offset(&mut self, ms: i64) {
        self.test_offset_ms = ms;
    }

    pub(super) fn now(&self) -> Now {
        let mut unix_ms = linux::clock::unix_ms();
        if unix_ms < NEVER_SET_BEFORE_MS {
            unix_ms += self.never_set_offset_ms;
        }
        Now {
            boot: Time::from_micros(linux::clock::boottime_us()),
            unix_ms: unix_ms.saturating_add_signed(self.test_offset_ms),
        }
    }
}
