//! What was told last of a peer: what differs from it is told next.

use ipnet::Ipv6Net;

use crate::event::PeerState;
use crate::time::Time;

/// What was told last.
pub(super) struct Told {
    pub(super) state: PeerState,
    /// Since when it is so.
    pub(super) since: Time,
    /// When the session was made.
    pub(super) established: Time,
    pub(super) handshakes: u64,
    pub(super) hop_prefix: Ipv6Net,
    pub(super) path_mtu: Option<u16>,
}

impl Told {
    pub(super) fn new(hop_prefix: Ipv6Net, now: Time) -> Self {
        let state = PeerState::Idle;
        Told { state, since: now, established: now, handshakes: 0, hop_prefix, path_mtu: None }
    }
}
