//! What an endpoint is given: its algorithms, its peers, and their children.

use std::net::IpAddr;
use std::time::Duration;

use crate::certificate::Certificates;
use crate::crypto::secret::Secret;
pub use crate::lease::Pool;
use crate::message::body::Identity;
use crate::message::traffic_selector::TrafficSelector;
use crate::negotiation::{ChildAlgorithms, IkeAlgorithms};

/// The port that IKE shares with ESP in UDP (RFC 3948), by default. There, four zero bytes are before an IKE message.
pub const NAT_PORT: u16 = 4500;

/// How an endpoint behaves.
#[derive(Debug, Clone)]
pub struct Config {
    /// Of the IKE SAs, with whomever: who the other end is comes out later.
    pub algorithms: IkeAlgorithms,
    /// Whom it talks to. The first one that an initiator's identities fit is taken.
    pub peers: Vec<PeerConfig>,
    /// From so many half-open IKE SAs on, initiators must show that they receive at their address (RFC 7296 §2.6).
    pub cookies_from: usize,
    /// This end's port for IKE and ESP together: [`NAT_PORT`], or the one that a host without it has. An IKE SA may begin
    /// there: [`crate::Endpoint::initiate`] says where from and where to.
    pub nat_port: u16,
}

impl Config {
    /// Defaults, with these peers.
    pub fn new(peers: Vec<PeerConfig>) -> Self {
        Self { algorithms: IkeAlgorithms::default(), peers, cookies_from: 16, nat_port: NAT_PORT }
    }
}

/// Index of a peer in [`Config::peers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PeerIndex(pub usize);

impl PeerIndex {
    /// That of what belongs to no peer any more, and only ends.
    pub(crate) const NONE: Self = Self(usize::MAX);
}

/// Index of a child in [`PeerConfig::children`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChildIndex(pub usize);

impl ChildIndex {
    /// That of what is no child of the configuration any more, and only ends.
    pub(crate) const NONE: Self = Self(usize::MAX);
}

/// What becomes of a peer of the configuration before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptPeer {
    /// Which one it is from now on.
    pub peer: PeerIndex,
    /// Which one each of its children is; those that are none any more are deleted at both ends.
    pub children: Vec<Option<ChildIndex>>,
}

impl KeptPeer {
    /// Which one a child is from now on.
    pub(crate) fn child(&self, before: ChildIndex) -> Option<ChildIndex> {
        self.children.get(before.0).copied().flatten()
    }
}

/// One peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerConfig {
    /// Who this end is.
    pub local: Identity,
    /// Who the other end must be; anybody who knows the key, if there is none.
    pub remote: Option<Identity>,
    /// How both ends prove who they are.
    pub authentication: Authentication,
    /// Children. An initiator asks for the first one along with the IKE SA.
    pub children: Vec<ChildConfig>,
    /// Addresses of the initiator may change while the IKE SA is there (MOBIKE, RFC 4555), if both ends want that.
    pub mobile: bool,
    /// ESP travels in UDP even if no NAT is between the ends: this one says that it is behind one. As the responder it does
    /// not know yet with whom it talks when it says so: if one peer is to have UDP, all who begin have it.
    pub encapsulate: bool,
    /// The other end's port for IKE and ESP together.
    pub nat_port: u16,
    /// Ask the other end for addresses and DNS servers (RFC 7296 §2.19).
    pub request_addresses: bool,
    /// What the other end is given when it asks.
    pub assigned: Assigned,
    /// The IKE SA is replaced when it is as old as this, less up to a tenth.
    pub rekey_after: Duration,
    /// Silence after which the other end is asked whether it is there (RFC 7296 §2.4).
    pub liveness_after: Duration,
}

impl PeerConfig {
    /// One with a shared key and the usual timing.
    pub fn new(local: Identity, remote: Option<Identity>, shared_key: Secret) -> Self {
        Self::with(local, remote, Authentication::SharedKey(shared_key))
    }

    /// One with the usual timing.
    pub fn with(local: Identity, remote: Option<Identity>, authentication: Authentication) -> Self {
        Self {
            local,
            remote,
            authentication,
            children: Vec::new(),
            mobile: false,
            encapsulate: false,
            nat_port: NAT_PORT,
            request_addresses: false,
            assigned: Assigned::default(),
            rekey_after: Duration::from_secs(4 * 3600),
            liveness_after: Duration::from_secs(30),
        }
    }
}

/// How two ends prove to each other who they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authentication {
    /// Both know this key (RFC 7296 §2.15).
    SharedKey(Secret),
    /// Both have a certificate. An endpoint must know the time of day
    /// ([`crate::Endpoint::set_wall_clock`]), or it believes none.
    Certificates(Box<Certificates>),
}

/// Addresses for a client that asks for some, and the DNS servers it is to use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Assigned {
    /// These, whoever the client is.
    pub addresses: Vec<IpAddr>,
    /// One more for each IP version, out of the first pool that has one left. An identity has it to itself, on all of its IKE
    /// SAs, and is given the same one when it comes back. A client that does not ask has no child, unless
    /// [`ChildConfig::remote`] says what it may have.
    pub pools: Vec<Pool>,
    /// DNS servers.
    pub dns: Vec<IpAddr>,
}

/// Whether whole packets are carried, or what is in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Packets of others, whole.
    Tunnel,
    /// Packets between the two ends themselves, without their IP header.
    Transport,
}

/// One child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildConfig {
    /// Its algorithms.
    pub algorithms: ChildAlgorithms,
    /// Tunnel or transport.
    pub mode: Mode,
    /// What it carries at this end: this end's own address, if empty. Of this and of `remote`, the first
    /// [`MAX_SELECTORS`](crate::message::traffic_selector::MAX_SELECTORS) count.
    pub local: Vec<TrafficSelector>,
    /// What it carries at the other end: if empty, the addresses that the other end is given, or else has.
    pub remote: Vec<TrafficSelector>,
    /// It is replaced when it is as old as this, less up to a tenth.
    pub rekey_after: Duration,
}

impl ChildConfig {
    /// One with the usual algorithms and timing.
    pub fn new(mode: Mode, local: Vec<TrafficSelector>, remote: Vec<TrafficSelector>) -> Self {
        Self {
            algorithms: ChildAlgorithms::default(),
            mode,
            local,
            remote,
            rekey_after: Duration::from_secs(3600),
        }
    }
}
