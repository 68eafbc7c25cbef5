//! Clocks. The protocol never reads one: every call that needs time is given [`Now`].

use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A point in time on CLOCK_BOOTTIME (it runs through suspends, nobody sets it), in microseconds since boot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// From microseconds since boot.
    pub const fn from_micros(micros: u64) -> Self {
        Time(micros)
    }

    /// Microseconds since boot.
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// How long ago `earlier` was; zero if it is yet to come.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, rhs: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(rhs.as_micros()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Time {
    type Output = Time;
    fn sub(self, rhs: Duration) -> Time {
        Time(self.0.saturating_sub(u64::try_from(rhs.as_micros()).unwrap_or(u64::MAX)))
    }
}

/// A [`Time`] that several threads write, each for itself: who reads it gets one of theirs.
#[derive(Debug, Default)]
pub(crate) struct AtomicTime(AtomicU64);

impl AtomicTime {
    pub(crate) fn new(time: Time) -> Self {
        AtomicTime(AtomicU64::new(time.0))
    }

    pub(crate) fn get(&self) -> Time {
        Time(self.0.load(Relaxed))
    }

    pub(crate) fn set(&self, time: Time) {
        self.0.store(time.0, Relaxed);
    }
}

/// The two clocks at one instant.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// CLOCK_BOOTTIME: all timers and the session clock.
    pub boot: Time,
    /// CLOCK_REALTIME in milliseconds since 1970: rendezvous alone.
    pub unix_ms: u64,
}
