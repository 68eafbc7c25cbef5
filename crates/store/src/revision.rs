//! Moments of a store, and leases.

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

/// A moment of a store: which commit was the last one. Larger is later. Revisions of different stores have nothing to do with
/// each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(NonZeroU64);

impl Revision {
    /// The revision of this number, which once was [`Revision::number`] of one.
    #[must_use]
    pub fn new(number: u64) -> Option<Self> {
        NonZeroU64::new(number).map(Self)
    }

    /// Its number, for a message or a file.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0.get()
    }

    /// As databases have it; none where it is no revision.
    pub(crate) fn from_signed(number: i64) -> Option<Self> {
        u64::try_from(number).ok().and_then(Self::new)
    }

    /// As databases have it.
    pub(crate) fn signed(self) -> i64 {
        i64::try_from(self.0.get()).unwrap_or(i64::MAX)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, formatter)
    }
}

impl fmt::Debug for Revision {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "@{}", self.0)
    }
}

/// Which lease. None is used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(NonZeroU64);

impl LeaseId {
    /// As databases have it; none where it is no lease.
    pub(crate) fn from_signed(number: i64) -> Option<Self> {
        NonZeroU64::new(number.cast_unsigned()).map(Self)
    }

    /// As databases have it.
    pub(crate) fn signed(self) -> i64 {
        self.0.get().cast_signed()
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:x}", self.0)
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "lease {self}")
    }
}

/// A lease as it was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Which.
    pub id: LeaseId,
    /// How long it lasts if it is not kept alive: what was asked for, or more (etcd has whole seconds, and more than its
    /// elections last).
    pub time_to_live: Duration,
}
