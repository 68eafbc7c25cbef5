//! How long something is valid: the lifetimes of router advertisements and DHCPv6.

use std::time::{Duration, Instant};

/// How long something is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lifetime {
    /// It has ended.
    Expired,
    /// It ends at that moment.
    Until(Instant),
    /// It has no end.
    Infinite,
}

impl Lifetime {
    /// So many seconds from now; all ones mean infinity, as in DHCPv6 and router advertisements.
    pub fn from_seconds(seconds: u32, now: Instant) -> Self {
        match seconds {
            u32::MAX => Lifetime::Infinite,
            seconds => Lifetime::Until(now + Duration::from_secs(seconds.into())),
        }
    }

    /// The moment at which it ends, if there is one to wait for.
    pub fn end(self) -> Option<Instant> {
        match self {
            Lifetime::Until(end) => Some(end),
            Lifetime::Expired | Lifetime::Infinite => None,
        }
    }

    /// What remains of it; none if it has no end.
    pub fn remaining(self, now: Instant) -> Option<Duration> {
        match self {
            Lifetime::Expired => Some(Duration::ZERO),
            Lifetime::Until(end) => Some(end.saturating_duration_since(now)),
            Lifetime::Infinite => None,
        }
    }

    /// Whether it has ended.
    pub fn is_expired(self, now: Instant) -> bool {
        self.remaining(now).is_some_and(|remaining| remaining.is_zero())
    }
}
