//! How many IKE SAs there are of whom, so that nobody takes all that there may be.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use crate::config::PeerIndex;
use crate::message::body::Identity;

/// IKE SAs of a peer that is whoever knows a shared key: who knows it can invent as many identities. Others find room for
/// as many again, and more.
pub const MAX_OF_SHARED_KEY: usize = 4096;

/// IKE SAs with one address, or one /64 of IPv6: behind it may be a NAT and a large office, but not everybody.
pub const MAX_OF_SOURCE: usize = 1024;

/// How many there are. What is taken out of the table to be changed does not count meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Census {
    peers: HashMap<PeerIndex, OfPeer>,
    sources: HashMap<IpAddr, usize>,
}

/// What is counted of an IKE SA.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counted<'a> {
    pub(crate) peer: PeerIndex,
    pub(crate) identity: &'a Identity,
    /// Where the other end is.
    pub(crate) address: IpAddr,
}

#[derive(Debug, Default)]
struct OfPeer {
    all: usize,
    /// Also those of whom there is none just now: they go when an IKE SA is forgotten.
    identities: HashMap<Identity, usize>,
}

impl Census {
    /// Those of a peer.
    pub(crate) fn of_peer(&self, peer: PeerIndex) -> usize {
        self.peers.get(&peer).map_or(0, |of| of.all)
    }

    /// Those of an identity with a peer.
    pub(crate) fn of_identity(&self, peer: PeerIndex, identity: &Identity) -> usize {
        self.peers.get(&peer).and_then(|of| of.identities.get(identity)).copied().unwrap_or(0)
    }

    /// Those with an address, and its neighbors.
    pub(crate) fn of_source(&self, address: IpAddr) -> usize {
        self.sources.get(&source(address)).copied().unwrap_or(0)
    }

    pub(crate) fn add(&mut self, sa: Counted<'_>) {
        let of = self.peers.entry(sa.peer).or_default();
        of.all += 1;
        match of.identities.get_mut(sa.identity) {
            Some(count) => *count += 1,
            None => drop(of.identities.insert(sa.identity.clone(), 1)),
        }
        *self.sources.entry(source(sa.address)).or_default() += 1;
    }

    pub(crate) fn remove(&mut self, sa: Counted<'_>) {
        if let Some(of) = self.peers.get_mut(&sa.peer) {
            of.all = of.all.saturating_sub(1);
            if let Some(count) = of.identities.get_mut(sa.identity) {
                *count = count.saturating_sub(1);
            }
        }
        let source = source(sa.address);
        if let Some(count) = self.sources.get_mut(&source) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.sources.remove(&source);
            }
        }
    }

    /// Keeps nothing of an identity whose last IKE SA does not come back.
    pub(crate) fn forget(&mut self, sa: Counted<'_>) {
        let Some(of) = self.peers.get_mut(&sa.peer) else { return };
        if of.identities.get(sa.identity) == Some(&0) {
            of.identities.remove(sa.identity);
        }
        if of.identities.is_empty() {
            self.peers.remove(&sa.peer);
        }
    }

    /// The same for all, where peers have other numbers now.
    pub(crate) fn forget_empty(&mut self) {
        self.peers.retain(|_, of| {
            of.identities.retain(|_, count| *count > 0);
            of.all > 0
        });
    }
}

/// Of IPv6, whoever has one address has the others of its /64, too.
pub(crate) fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
    }
}
