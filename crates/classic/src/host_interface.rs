//! What streams ask of their host, and what they share.

use std::collections::VecDeque;
use std::net::Ipv6Addr;

use rand_chacha::ChaCha20Rng;
use rustc_hash::FxHashMap;

use crate::hashed::HashedHost;
use crate::keys::SessionKey;
use crate::routes::{Change, Path};

/// What the host is to do. No action may be passed over, so the list is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Packets for this local address are the node's from now on: answer neighbor solicitations for it, or have it
    /// routed here, and hand what comes to [`Node::receive`](crate::Node::receive).
    Open(Endpoint),
    /// They are no longer.
    Close(Endpoint),
    /// Send this outer packet.
    Transmit(Vec<u8>),
    /// The stream has a new session key, to begin with after a restart.
    StoreKey {
        /// Which stream, by its place in the configuration.
        stream: usize,
        /// The key.
        key: SessionKey,
    },
}

/// The way into a route: packets from `remote` to `local` belong to the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Which stream, by its place in the configuration.
    pub stream: usize,
    /// The hashed host on this side: the address to answer for, the destination port.
    pub local: HashedHost,
    /// The hashed host on the other side.
    pub remote: HashedHost,
}

impl Endpoint {
    pub(crate) fn of(stream: usize, incoming: &Path) -> Self {
        Endpoint { stream, local: incoming.destination, remote: incoming.source }
    }
}

/// What streams share: what the host is to do, whose routes are whose, and the random generator.
pub(crate) struct HostInterface {
    pub(crate) actions: VecDeque<Action>,
    pub(crate) rng: ChaCha20Rng,
    /// Streams by the local and the remote hashed address.
    pub(crate) by_route: FxHashMap<(Ipv6Addr, Ipv6Addr), usize>,
}

impl HostInterface {
    /// A stream's route was made or collected.
    pub(crate) fn change(&mut self, stream: usize, change: Change) {
        self.actions.push_back(match change {
            Change::Made(path) => {
                self.by_route.insert((path.destination.address, path.source.address), stream);
                Action::Open(Endpoint::of(stream, &path))
            }
            Change::Collected(path) => {
                self.by_route.remove(&(path.destination.address, path.source.address));
                Action::Close(Endpoint::of(stream, &path))
            }
        });
    }
}
