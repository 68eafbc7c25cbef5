//! What numbers name: each kind has a type of its own, so that none is taken for another. They become plain numbers
//! where they are derived from, sent, stored and shown.

use std::fmt;
use std::ops::Add;

/// A stretch of time for which a pair's rendezvous, or the addresses in the place of two hosts', stay where they are. Each
/// has its own row of them, counted from zero (docs/protocol.md, "Epochs").
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch that has always begun.
    pub const FIRST: Epoch = Epoch(0);

    /// The one after it.
    #[must_use]
    pub fn next(self) -> Epoch {
        self + 1
    }
}

impl Add<u64> for Epoch {
    type Output = Epoch;
    fn add(self, epochs: u64) -> Epoch {
        Epoch(self.0.saturating_add(epochs))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which lane of a session, counted from zero in the order of their births (docs/protocol.md, "Lanes").
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub u64);

impl LaneId {
    /// The lane that a session begins with.
    pub const FIRST: LaneId = LaneId(0);

    /// The one that is born next.
    #[must_use]
    pub fn next(self) -> LaneId {
        LaneId(self.0.saturating_add(1))
    }
}

impl fmt::Display for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which session of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SessionId(pub(crate) u32);

/// Which pair of keys of a node and a peer, among those that they have or had.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PairingId(pub(crate) u32);

/// Which peer, by its place in the node's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PeerId(pub(crate) usize);

/// Names an endpoint between the protocol and its host. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId {
    pub(crate) slot: u32,
    pub(crate) serial: u32,
}

impl EndpointId {
    /// The name as one number.
    pub fn as_u64(self) -> u64 {
        u64::from(self.serial) << 32 | u64::from(self.slot)
    }

    /// The endpoint's slot: a small number that no other open endpoint has, to index tables with.
    pub fn slot(self) -> usize {
        self.slot as usize
    }
}
