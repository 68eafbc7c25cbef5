//! What a node is given: its own identity and its peers. Values here are already valid one by one (keys are keys,
//! prefixes prefixes); what concerns several of them is checked by [`NodeConfig::check`].

use std::collections::{HashMap, HashSet};
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::{IpNet, Ipv6Net};

use crate::keys::{KeyError, PairKeys, PresharedKey, PrivateKey, PublicKey};

/// Shortest and longest rotation interval.
pub const ROTATION: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);
/// Fewest and most lanes.
pub const LANES: std::ops::RangeInclusive<u8> = 1..=16;
/// With a shape, if neither end wishes for a number.
const MOST_UNASKED: u8 = 6;
/// Keys of a session are renewed after this time, or after a rotation interval if that is longer.
pub const REKEY_AFTER: Duration = Duration::from_secs(120);
/// Shortest and longest hopping prefix, in bits.
pub const HOP_PREFIX_LENGTH: std::ops::RangeInclusive<u8> = 32..=112;
/// The hopping prefix of a node that has none yet, or no longer: it neither listens nor tries until
/// [`Node::move_to`](crate::Node::move_to) or [`Node::reconfigure`](crate::Node::reconfigure) gives it one. Nobody has this
/// one (RFC 6666).
pub const NOWHERE: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64);
/// The longest where addresses are replaced: among 2^32 addresses no two pairs meet.
pub(crate) const LONGEST_REWRITE_PREFIX: u8 = 96;

/// How datagrams hide the size of what they carry. Of two peers' wishes the stronger (later) one holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Padding {
    /// Data as it comes: no overhead, sizes show.
    #[default]
    None = 0,
    /// Up to the next size of a fixed ladder: a few sizes show.
    Buckets = 1,
    /// Always the path MTU: no size shows, small packets cost as much as large ones.
    Full = 2,
}

/// What the traffic with a peer looks like from outside. Of two peers' wishes the later one holds, and of two of the same
/// kind the one with the greater rate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    /// Like the traffic inside.
    #[default]
    None,
    /// Each lane sends datagrams of one size at a rate of its own, one of three, which is drawn at its birth by chance and,
    /// one time in three, by demand. No more than this leaves in a day, in each direction.
    Adaptive(Daily),
    /// Each lane sends datagrams of one size at one rate from its birth to its death, whatever there is to carry. This is
    /// the rate of all lanes together, on average, in each direction.
    Constant(Rate),
}

impl Shape {
    /// How many lanes there are with it, where neither end has a wish: with a shape, when lanes are born and die is all that
    /// links them, and of fewer it links some.
    #[must_use]
    pub fn lanes(self) -> u8 {
        if self == Shape::None { 3 } else { MOST_UNASKED }
    }

    /// The shape of both directions, where the ends want these. A budget is each end's own.
    pub(crate) fn agreed(self, theirs: Shape) -> Shape {
        match (self, self.max(theirs)) {
            (Shape::Adaptive(_), Shape::Adaptive(_)) => self,
            (_, Shape::Adaptive(_)) => Shape::Adaptive(Daily::default()),
            (_, agreed) => agreed,
        }
    }
}

/// Bytes of outer packets per day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Daily(u64);

impl Daily {
    /// The least that an adaptive shape may have: 1 GB.
    pub const LEAST: Daily = Daily(1_000_000_000);
    /// The most: 100 GB, of which the highest class has 37 Mbit/s.
    pub const MOST: Daily = Daily(100_000_000_000);

    /// So many bytes per day, if a shape may have that.
    pub fn from_bytes(bytes: u64) -> Option<Daily> {
        Some(Daily(bytes)).filter(|daily| (Daily::LEAST..=Daily::MOST).contains(daily))
    }

    /// Bytes per day.
    pub fn bytes(self) -> u64 {
        self.0
    }
}

impl Default for Daily {
    /// 20 GB.
    fn default() -> Self {
        Daily(20_000_000_000)
    }
}

/// A rate of outer packets, headers included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(u32);

impl Rate {
    /// The least that a shape may have: ten datagrams per second.
    pub const LEAST: Rate = Rate(12_500);
    /// The most: some 10,000 datagrams per second, each of them sent at a time of its own.
    pub const MOST: Rate = Rate(12_500_000);

    /// So many bytes per second, if a shape may have that.
    pub fn from_bytes(bytes_per_second: u32) -> Option<Rate> {
        Some(Rate(bytes_per_second)).filter(|rate| (Rate::LEAST..=Rate::MOST).contains(rate))
    }

    /// Bytes per second.
    pub fn bytes(self) -> u32 {
        self.0
    }

    /// Bits per second.
    pub fn bits(self) -> u64 {
        u64::from(self.0) * 8
    }
}

/// A node and its peers.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// The node's identity.
    pub private_key: PrivateKey,
    /// The one that it had before. Peers that do not know the new one yet are met by it, too.
    pub previous_key: Option<PrivateKey>,
    /// The prefix whose addresses are the node's to hop in, /32 to /112; [`NOWHERE`] as long as it has none.
    pub hop_prefix: Ipv6Net,
    /// MTU of the link towards the peers, in bytes; bounds the path MTU.
    pub link_mtu: u16,
    /// Whether the processor has AES instructions; where both ends have, AES-256-GCM is chosen.
    pub hardware_aes: bool,
    /// Addresses of the tunnel device; ICMP errors to inner senders come from the first of their family,
    /// otherwise from the address that the packet was for.
    pub addresses: Vec<std::net::IpAddr>,
    /// Age at which keys are renewed: [`REKEY_AFTER`], but for tests.
    pub rekey_after: Duration,
    /// The peers.
    pub peers: Vec<PeerConfig>,
}

/// One peer.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerConfig {
    /// A name for the user.
    pub name: String,
    /// The peer's identity.
    pub public_key: PublicKey,
    /// The one that it is going to have, or has already. It is met by both.
    pub next_key: Option<PublicKey>,
    /// Mixed into all keys of the pair.
    pub preshared_key: Option<PresharedKey>,
    /// The prefix that the peer hops in.
    pub hop_prefix: Ipv6Net,
    /// Inner prefixes behind the peer: packets to these go to it, only packets from these are taken from it.
    pub allowed_ips: Vec<IpNet>,
    /// How long a lane lives on average, 1 s to 1 h; of two wishes the longer holds.
    pub rotation: Duration,
    /// Lanes alive at once on average, 1 to 16; of two wishes the fewer hold. None: no wish. If neither end has one, it is
    /// what [`Shape::lanes`] says.
    pub lanes: Option<u8>,
    /// Padding policy; of two wishes the stronger holds. With a shape all datagrams have one size anyway.
    pub padding: Padding,
    /// What the traffic looks like from outside.
    pub shape: Shape,
    /// Keep a session up, and the path's stateful firewalls open, without traffic: something is sent at least this
    /// often. None: sessions are made when there is something to send, and end.
    pub keepalive: Option<Duration>,
    /// Accept and try the rendezvous tier of 32 days, for devices without a clock. Both ends must agree.
    pub clockless: bool,
    /// The path to the peer translates prefixes (RFC 6296), so that what it says of its own, and of ours, need not be what
    /// the other end sees. What it sees is taken as it is then, whoever made it so.
    pub translated: bool,
    /// Packets of pairs of hosts travel as they are but for their addresses, if both ends want it. The host has to do
    /// what [`Action::AddRewrite`](crate::Action::AddRewrite) and [`Action::Replace`](crate::Action::Replace) ask for.
    pub rewrite: bool,
    /// Packets of another tunnel between the two nodes travel as they are but for a mask, if both ends want it: its UDP port
    /// at our end, not zero; that at the peer is the peer's to say. Its inner ends follow from the keys of the session
    /// ([`mask::address`](crate::mask::address)): those of the peer are to be among its `allowed_ips`. The host has to do
    /// what [`Action::AddMask`](crate::Action::AddMask) and [`Action::Mask`](crate::Action::Mask) ask for.
    pub mask: Option<u16>,
    /// Names of other peers that are asked where this one is, while it cannot be reached.
    pub meet_through: Vec<String>,
    /// To whom this peer is introduced, if both want to meet.
    pub introduce: Introduce,
}

/// Whom a node tells, as the third that two peers have in common, where one of them is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Introduce {
    /// Nobody.
    #[default]
    Nobody,
    /// All other peers.
    Everybody,
    /// The peers of these names.
    Only(Vec<String>),
}

impl Introduce {
    /// Whether the peer of this name is told.
    pub(crate) fn to(&self, name: &str) -> bool {
        match self {
            Introduce::Nobody => false,
            Introduce::Everybody => true,
            Introduce::Only(names) => names.iter().any(|only| only == name),
        }
    }
}

impl PeerConfig {
    /// A peer with the protocol's defaults: lanes that live for ten seconds, no wish how many, no padding, no shape.
    #[must_use]
    pub fn new(name: &str, public_key: PublicKey, hop_prefix: Ipv6Net, allowed_ips: Vec<IpNet>) -> Self {
        PeerConfig {
            name: name.to_owned(),
            public_key,
            next_key: None,
            preshared_key: None,
            hop_prefix,
            allowed_ips,
            rotation: Duration::from_secs(10),
            lanes: None,
            padding: Padding::None,
            shape: Shape::None,
            keepalive: None,
            clockless: false,
            translated: false,
            rewrite: false,
            mask: None,
            meet_through: Vec::new(),
            introduce: Introduce::Nobody,
        }
    }

    /// The keys by which it is met, ours and its own, the pair that is to last first.
    pub(crate) fn pairs<'a>(
        &self,
        own: &'a [OwnKey],
    ) -> impl Iterator<Item = (&'a OwnKey, PublicKey)> + use<'a> {
        let theirs = self.keys();
        own.iter().flat_map(move |own| theirs.clone().map(move |peer| (own, peer)))
    }

    /// Its own keys, the one that is to last first.
    pub(crate) fn keys(&self) -> impl Iterator<Item = PublicKey> + Clone + use<> {
        [self.next_key, Some(self.public_key)].into_iter().flatten()
    }

    /// Whether it is met through others, or introduced to them.
    pub(crate) fn meets(&self) -> bool {
        !self.meet_through.is_empty() || self.introduce != Introduce::Nobody
    }

    /// How many lanes there are at once on average at most, whatever the peer wants.
    #[must_use]
    pub fn most_lanes(&self) -> u8 {
        self.lanes.unwrap_or(MOST_UNASKED)
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A hopping prefix is too short or too long.
    #[error("hop_prefix {0}: its length must be /32 to /112")]
    HopPrefixLength(Ipv6Net),
    /// A peer's key cannot be used.
    #[error("peer {name:?}: {source}")]
    Key {
        /// The peer's name.
        name: String,
        /// What is wrong with the key.
        source: KeyError,
    },
    /// Two peers have the same key.
    #[error("peers {0:?} and {1:?} have the same public key")]
    SameKey(String, String),
    /// Two peers have the same name.
    #[error("two peers are named {0:?}")]
    SameName(String),
    /// Two peers claim the same inner prefix.
    #[error("peers {0:?} and {1:?} both have {2} in allowed_ips")]
    SamePrefix(String, String, IpNet),
    /// An inner prefix lies in a hopping prefix: its packets would loop through the tunnel.
    #[error("peer {name:?}: allowed_ips {prefix} overlaps the hopping prefix {hop_prefix}")]
    Loop {
        /// The peer's name.
        name: String,
        /// The inner prefix.
        prefix: IpNet,
        /// The hopping prefix that it overlaps.
        hop_prefix: Ipv6Net,
    },
    /// A hopping prefix has too few addresses for pairs of hosts to have one of their own each.
    #[error("peer {name:?}: hop_prefix {hop_prefix}: replacing addresses needs a /96 or shorter")]
    Crowded {
        /// The peer's name.
        name: String,
        /// The hopping prefix.
        hop_prefix: Ipv6Net,
    },
    /// A hopping prefix is used twice.
    #[error("hop_prefix {0} of {1} overlaps that of {2}")]
    SameHopPrefix(Ipv6Net, String, String),
    /// A value is out of its range.
    #[error("peer {name:?}: {what}")]
    Range {
        /// The peer's name.
        name: String,
        /// Which value, and its range.
        what: &'static str,
    },
}

/// A key of the node's.
pub(crate) struct OwnKey {
    pub(crate) public: PublicKey,
    pub(crate) private: Arc<PrivateKey>,
}

impl NodeConfig {
    /// The node's keys, the one that is to last first.
    pub(crate) fn own_keys(&self) -> Vec<OwnKey> {
        let keys = [Some(&self.private_key), self.previous_key.as_ref()].into_iter().flatten();
        keys.map(|key| OwnKey { public: key.public(), private: Arc::new(key.clone()) }).collect()
    }

    /// Checks what concerns several values at once. The first that is wrong.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_length(self.hop_prefix)?;
        self.errors().next().map_or(Ok(()), Err)
    }

    /// As [`NodeConfig::check`], but for the keys, whose check is the work of a key agreement with each peer.
    pub fn check_values(&self) -> Result<(), ConfigError> {
        check_length(self.hop_prefix)?;
        let mut earlier = Earlier::default();
        self.peers.iter().find_map(|peer| self.wrong(peer, &mut earlier)).map_or(Ok(()), Err)
    }

    /// What is wrong with the peers, one error of each. One with an error is not compared with those behind it.
    pub fn errors(&self) -> impl Iterator<Item = ConfigError> {
        let (mut earlier, own) = (Earlier::default(), self.own_keys());
        self.peers.iter().filter_map(move |peer| {
            let psk = peer.preshared_key.as_ref();
            let key = |(own, peer): (&OwnKey, PublicKey)| {
                PairKeys::derive_as(&own.private, &own.public, &peer, psk).err()
            };
            match peer.pairs(&own).find_map(key) {
                Some(source) => Some(ConfigError::Key { name: peer.name.clone(), source }),
                None => self.wrong(peer, &mut earlier),
            }
        })
    }

    /// What is wrong with a peer, by itself or beside earlier ones, which it is one of otherwise.
    fn wrong<'a>(&self, peer: &'a PeerConfig, earlier: &mut Earlier<'a>) -> Option<ConfigError> {
        let name = || peer.name.clone();
        if let Err(error) = check_length(peer.hop_prefix) {
            return Some(error);
        }
        let range = |what| Some(ConfigError::Range { name: name(), what });
        if !ROTATION.contains(&peer.rotation) {
            return range("rotation must be 1s to 1h");
        }
        if peer.lanes.is_some_and(|lanes| !LANES.contains(&lanes)) {
            return range("lanes must be 1 to 16");
        }
        if peer.mask == Some(0) {
            return range("the port of a masked flow must be 1 to 65535");
        }
        let crowded = |prefix: &Ipv6Net| prefix.prefix_len() > LONGEST_REWRITE_PREFIX;
        if peer.rewrite
            && let Some(hop_prefix) = [peer.hop_prefix, self.hop_prefix].into_iter().find(crowded)
        {
            return Some(ConfigError::Crowded { name: name(), hop_prefix });
        }
        if overlap(self.hop_prefix, peer.hop_prefix) {
            return Some(ConfigError::SameHopPrefix(peer.hop_prefix, name(), "this node".into()));
        }
        let keys = || [Some(peer.public_key), peer.next_key].into_iter().flatten();
        if let Some(first) = keys().find_map(|key| earlier.keys.get(&key)) {
            return Some(ConfigError::SameKey((*first).to_owned(), name()));
        }
        if peer.next_key == Some(peer.public_key) {
            return range("next_public_key is its public_key already");
        }
        if earlier.names.contains(peer.name.as_str()) {
            return Some(ConfigError::SameName(name()));
        }
        for prefix in &peer.allowed_ips {
            if let Some(first) = earlier.prefixes.get(prefix) {
                return Some(ConfigError::SamePrefix((*first).to_owned(), name(), *prefix));
            }
            let IpNet::V6(inner) = prefix else { continue };
            // A default route may contain a hopping prefix: outer packets are the kernel's, and datagrams to
            // hopping addresses that come to the tunnel all the same are dropped there.
            let inside = |hop: Ipv6Net| hop.contains(inner);
            if let Some(hop_prefix) = [self.hop_prefix, peer.hop_prefix].into_iter().find(|h| inside(*h)) {
                return Some(ConfigError::Loop { name: name(), prefix: *prefix, hop_prefix });
            }
        }
        earlier.keys.extend(keys().map(|key| (key, peer.name.as_str())));
        earlier.names.insert(&peer.name);
        earlier.prefixes.extend(peer.allowed_ips.iter().map(|prefix| (*prefix, peer.name.as_str())));
        None
    }
}

/// What peers have that no other may have, with their names.
#[derive(Default)]
struct Earlier<'a> {
    keys: HashMap<PublicKey, &'a str>,
    names: HashSet<&'a str>,
    prefixes: HashMap<IpNet, &'a str>,
}

fn check_length(prefix: Ipv6Net) -> Result<(), ConfigError> {
    if HOP_PREFIX_LENGTH.contains(&prefix.prefix_len()) {
        Ok(())
    } else {
        Err(ConfigError::HopPrefixLength(prefix))
    }
}

fn overlap(a: Ipv6Net, b: Ipv6Net) -> bool {
    a.contains(&b) || b.contains(&a)
}
