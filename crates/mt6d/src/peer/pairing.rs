//! A pairing: one key of this node, one of the peer, and all that comes from the two of them alone.
//!
//! A peer has one, but for the time in which an end changes its key: then this node still has its former key, or knows the
//! peer's next, and whoever has not heard of the change is met with the old pair. Pairings share sessions and packets,
//! never a secret.

use std::sync::Arc;

use super::memory::PeerMemory;
use crate::config::{ConfigError, OwnKey, PeerConfig};
use crate::contact::Listeners;
use crate::handshake::Parties;
use crate::id::{Epoch, PairingId};
use crate::keys::{KeyError, PairKeys, PresharedKey, PrivateKey, PublicKey, PublicPair};
use crate::tier::Tier;
use crate::time::Time;

pub(crate) struct Pairing {
    pub(super) id: PairingId,
    pub(super) public: PublicPair,
    own: Arc<PrivateKey>,
    psk: Option<PresharedKey>,
    pub(super) keys: PairKeys,
    pub(super) listeners: Listeners,
    /// Of first messages that led to a session, the newest epochs.
    pub(super) accepted: [Epoch; Tier::ALL.len()],
    /// Of those that were sent.
    pub(super) used: [Epoch; Tier::ALL.len()],
    /// The peer's last turn.
    pub(super) turn: u64,
    /// Since when nonces of first messages are known, if there may be some that were made before.
    pub(super) knows_since: Option<Time>,
    /// What the node remembers already.
    pub(super) remembered: PeerMemory,
}

/// What there is to be of a peer: a pairing that it has, or a new one.
pub(crate) enum Wanted {
    Known(PublicPair),
    New(Box<Pairing>),
}

impl Wanted {
    pub(super) fn pair(&self) -> PublicPair {
        match self {
            Wanted::Known(pair) => *pair,
            Wanted::New(pairing) => pairing.public,
        }
    }
}

impl Pairing {
    fn new(own: &OwnKey, peer: &PeerConfig, theirs: PublicKey) -> Result<Self, KeyError> {
        let psk = peer.preshared_key.clone();
        let keys = PairKeys::derive_as(&own.private, &own.public, &theirs, psk.as_ref())?;
        Ok(Pairing {
            id: PairingId::default(),
            public: PublicPair { own: own.public, peer: theirs },
            own: own.private.clone(),
            psk,
            listeners: Listeners::new(&keys, peer.clockless),
            keys,
            accepted: Default::default(),
            used: Default::default(),
            turn: 0,
            knows_since: None,
            remembered: PeerMemory::default(),
        })
    }

    /// What a handshake needs.
    pub(super) fn parties(&self) -> Parties<'_> {
        Parties { own: &self.own, peer: &self.public.peer, psk: self.psk.as_ref(), pair: &self.keys }
    }
}

/// The pairings of a peer, in the order of [`PeerConfig::pairs`]. Those that it `has` cost nothing, the others a key
/// agreement each.
pub(crate) fn wanted(
    own: &[OwnKey],
    peer: &PeerConfig,
    has: impl Fn(&PublicPair) -> bool,
) -> Result<Vec<Wanted>, ConfigError> {
    let one = |(own, peer_key): (&OwnKey, PublicKey)| {
        let pair = PublicPair { own: own.public, peer: peer_key };
        if has(&pair) {
            return Ok(Wanted::Known(pair));
        }
        let new = Pairing::new(own, peer, peer_key);
        new.map(|new| Wanted::New(Box::new(new)))
            .map_err(|source| ConfigError::Key { name: peer.name.clone(), source })
    };
    peer.pairs(own).map(one).collect()
}
