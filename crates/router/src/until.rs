//! How long something lasts.

use std::time::{Duration, Instant};

/// How long something lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Until {
    /// It is over.
    Over,
    /// Up to that moment.
    Time(Instant),
    /// No end is known.
    Always,
}

impl Until {
    /// So many seconds from now; all ones mean for ever, as in DHCPv6 and router advertisements.
    pub fn seconds(seconds: u32, now: Instant) -> Self {
        match seconds {
            u32::MAX => Until::Always,
            seconds => Until::Time(now + Duration::from_secs(seconds.into())),
        }
    }

    /// The moment, if there is one.
    pub fn time(self) -> Option<Instant> {
        match self {
            Until::Time(at) => Some(at),
            Until::Over | Until::Always => None,
        }
    }

    /// What is left of it; none if there is no end.
    pub fn left(self, now: Instant) -> Option<Duration> {
        match self {
            Until::Over => Some(Duration::ZERO),
            Until::Time(end) => Some(end.saturating_duration_since(now)),
            Until::Always => None,
        }
    }

    /// Whether it has ended.
    pub fn is_over(self, now: Instant) -> bool {
        self.left(now).is_some_and(|left| left.is_zero())
    }
}
