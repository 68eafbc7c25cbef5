//! Datagrams as a socket has received them.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use wire::ecn::Ecn;

use crate::outbox::{Via, Way};

/// Datagrams of one sender and one size, one behind the other in an arena.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// Where they are.
    pub at: Range<usize>,
    /// Bytes of each; the last one may be shorter. At least 1.
    pub segment: usize,
    /// Which socket has received them.
    pub via: Via,
    /// Where they were sent to.
    pub local: IpAddr,
    /// Where they came from.
    pub remote: SocketAddr,
    /// The ECN codepoint of all.
    pub ecn: Ecn,
}

impl Received {
    /// The way back.
    pub(super) fn way(&self) -> Way {
        Way { via: self.via, local: self.local, remote: self.remote }
    }

    pub(super) fn each(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (end, segment) = (self.at.end, self.segment.max(1));
        self.at.clone().step_by(segment).map(move |start| start..end.min(start + segment))
    }
}
