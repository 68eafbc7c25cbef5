//! A neighbor: its state (RFC 4861 §5.1, appendix C), and the packets that wait for its address.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use wire::ethernet::MacAddress;

/// Questions for an address that nobody answers (RFC 4861 §10).
pub(super) const MAX_MULTICAST_SOLICIT: u8 = 3;
/// Questions to a neighbor that does not answer (RFC 4861 §10).
pub(super) const MAX_UNICAST_SOLICIT: u8 = 3;
/// How long transports have to confirm that a neighbor is reachable (RFC 4861 §10).
pub(super) const DELAY_FIRST_PROBE_TIME: Duration = Duration::from_secs(5);
/// Packets that wait for an address: a datagram of eight fragments. The newest stay (RFC 4861 §7.2.2).
pub(super) const MAX_QUEUED: usize = 8;

/// What is known of a neighbor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Its address is asked for.
    Incomplete {
        /// Questions sent.
        sent: u8,
        /// When to ask again, or give up.
        next: Instant,
    },
    /// It has answered.
    Reachable {
        /// As long as that counts.
        until: Instant,
    },
    /// Whether it answers is not known, and not asked.
    Stale,
    /// Something was sent to it.
    Delay {
        /// When it is asked.
        until: Instant,
    },
    /// It is asked.
    Probe {
        /// Questions sent.
        sent: u8,
        /// When to ask again, or give up.
        next: Instant,
    },
}

impl State {
    /// When time changes it.
    pub fn deadline(self) -> Option<Instant> {
        match self {
            State::Incomplete { next, .. } | State::Probe { next, .. } => Some(next),
            State::Reachable { until } | State::Delay { until } => Some(until),
            State::Stale => None,
        }
    }
}

pub(super) struct Entry {
    pub(super) state: State,
    /// Known in all states but INCOMPLETE.
    pub(super) link_layer: Option<MacAddress>,
    pub(super) is_router: bool,
    /// Our own traffic has asked for it, or it is a router that is there.
    pub(super) ours: bool,
    pub(super) used: Instant,
    pub(super) queue: VecDeque<Vec<u8>>,
}

impl Entry {
    /// Keeps a packet until the address is known; returns whether an older one had to go.
    pub(super) fn enqueue(&mut self, packet: &[u8]) -> bool {
        let full = self.queue.len() >= MAX_QUEUED;
        let mut room = if full { self.queue.pop_front() } else { None }.unwrap_or_default();
        room.clear();
        room.extend_from_slice(packet);
        self.queue.push_back(room);
        full
    }
}
