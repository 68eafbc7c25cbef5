//! Where a packet goes next, and how large it may be: prefixes of the link, routers, routes, and what is known of single
//! destinations (RFC 4861 §5.2, §6.3; RFC 4191; RFC 5942; RFC 8201).
//!
//! An address on a link says nothing of its prefix (RFC 5942): on the link is what a router has said so of, what the
//! caller has set, what a redirect has led to, and link-local addresses.
//!
//! | file | subject |
//! |---|---|
//! | `table` | prefixes, default routers, routes |
//! | `destination` | redirects and path MTUs: the host routes |

mod destination;
mod table;

pub use destination::{Destinations, MAX_DESTINATIONS, MIN_MTU_IPV4, PATH_MTU_LIFETIME};
pub use table::{MAX_PREFIXES, MAX_ROUTERS, MAX_ROUTES, NextHop, Table};

use std::time::{Duration, Instant};

/// A lifetime as routers say it: in seconds, all ones for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// No end.
    Infinite,
    /// So long from now.
    Finite(Duration),
}

impl Lifetime {
    /// From the seconds in an option.
    pub fn from_seconds(seconds: u32) -> Self {
        if seconds == u32::MAX {
            Lifetime::Infinite
        } else {
            Lifetime::Finite(Duration::from_secs(seconds.into()))
        }
    }

    /// When it ends, if ever.
    pub fn end(self, now: Instant) -> Option<Instant> {
        match self {
            Lifetime::Infinite => None,
            Lifetime::Finite(lifetime) => now.checked_add(lifetime),
        }
    }

    /// Whether it is over at once.
    pub fn is_zero(self) -> bool {
        self == Lifetime::Finite(Duration::ZERO)
    }
}
