//! What a node remembers of a peer.

use ipnet::Ipv6Net;

use crate::id::Epoch;
use crate::tier::Tier;

/// What a node remembers of a peer over restarts, so that neither replays nor clocks that are off can hurt it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PeerMemory {
    /// The newest rendezvous epoch of each tier in which a first message of the peer's led to a session.
    pub accepted: [Epoch; Tier::ALL.len()],
    /// The newest in which one was sent.
    pub used: [Epoch; Tier::ALL.len()],
    /// How far the peer's clock is ahead of ours, in milliseconds.
    pub clock_offset_ms: Option<i64>,
    /// The hopping prefix that it was last seen in, where that is not the configured one: behind the latter.
    pub hop_prefix: Option<(Ipv6Net, Ipv6Net)>,
    /// The peer's last turn: nothing is begun with one of an earlier.
    pub turn: u64,
}

/// Changes of the clock's offset by less are not worth remembering, in milliseconds.
const OFFSET_MS: u64 = 1_000;

impl PeerMemory {
    /// Whether it is worth remembering in the place of `old`.
    pub(super) fn differs(&self, old: &PeerMemory) -> bool {
        let close = match (self.clock_offset_ms, old.clock_offset_ms) {
            (Some(new), Some(old)) => new.abs_diff(old) < OFFSET_MS,
            (new, old) => new == old,
        };
        !close || *self != PeerMemory { clock_offset_ms: self.clock_offset_ms, ..old.clone() }
    }
}
