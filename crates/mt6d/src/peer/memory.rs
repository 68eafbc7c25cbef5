//! What a node remembers of a peer.

use ipnet::Ipv6Net;

use super::Peer;
use crate::id::Epoch;
use crate::tier::Tier;
use crate::time::Now;

/// What a node remembers of a peer over restarts, so that neither replays nor clocks that are off can hurt it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PeerMemory {
    /// The newest rendezvous epoch of each tier in which a first message of the peer's was accepted.
    pub accepted: [Epoch; Tier::ALL.len()],
    /// The newest in which one was sent.
    pub used: [Epoch; Tier::ALL.len()],
    /// How far the peer's clock is ahead of ours, in milliseconds.
    pub clock_offset_ms: Option<i64>,
    /// The hopping prefix that it was last seen in, where that is not the configured one: behind the latter.
    pub hop_prefix: Option<(Ipv6Net, Ipv6Net)>,
}

impl Peer {
    /// What is known of the peer that outlives its sessions.
    pub(crate) fn memory(&self, now: Now) -> PeerMemory {
        PeerMemory {
            accepted: self.accepted,
            used: self.used,
            clock_offset_ms: self.clock_offset(now),
            hop_prefix: (self.remote_prefix != self.config.hop_prefix)
                .then_some((self.config.hop_prefix, self.remote_prefix)),
        }
    }

    /// What the node should remember over a restart, if that has changed since it was last asked.
    pub(crate) fn new_memory(&mut self, now: Now) -> Option<PeerMemory> {
        if !self.memory_changed(now) {
            return None;
        }
        self.remembered = self.memory(now);
        Some(self.remembered.clone())
    }

    /// Whether it has.
    pub(crate) fn memory_changed(&self, now: Now) -> bool {
        let memory = self.memory(now);
        let close = |a: Option<i64>, b: Option<i64>| match (a, b) {
            (Some(a), Some(b)) => (a - b).abs() < 1_000,
            (a, b) => a == b,
        };
        let known = PeerMemory { clock_offset_ms: memory.clock_offset_ms, ..self.remembered.clone() };
        known != memory || !close(memory.clock_offset_ms, self.remembered.clock_offset_ms)
    }

    pub(super) fn clock_offset(&self, now: Now) -> Option<i64> {
        self.clock.map(|clock| clock + (now.boot.micros() / 1000) as i64 - now.unix_ms as i64)
    }
}
