//! The wall clock, which alone moves the classic profile.

use std::time::Duration;

/// CLOCK_REALTIME in milliseconds since 1970. May be set back and forth.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixTime(u64);

impl UnixTime {
    /// A time that never comes.
    pub const NEVER: UnixTime = UnixTime(u64::MAX);

    /// From milliseconds since 1970.
    pub const fn from_millis(millis: u64) -> Self {
        UnixTime(millis)
    }

    /// From whole seconds since 1970.
    pub const fn from_secs(seconds: u64) -> Self {
        UnixTime(seconds.saturating_mul(1000))
    }

    /// Milliseconds since 1970.
    pub const fn millis(self) -> u64 {
        self.0
    }

    /// Whole seconds since 1970.
    pub const fn secs(self) -> u64 {
        self.0 / 1000
    }

    /// This much later.
    pub fn after(self, duration: Duration) -> Self {
        UnixTime(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }
}
