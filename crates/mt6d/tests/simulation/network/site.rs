//! A site: a node, its clocks, its host's sockets, and what stands before it.

use std::collections::HashMap;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::ops::Range;

use ipnet::Ipv6Net;
use sidestep_mt6d::config::{NodeConfig, PeerConfig};
use sidestep_mt6d::keys::{PrivateKey, PublicKey, PublicPair};
use sidestep_mt6d::{Deliver, EndpointId, Node, Now, Outbox, PeerMemory, PeerStatus, Time, mask};

use super::path::{Firewall, Translator};
use super::threads::Threads;

/// 2027-01-15, in milliseconds since 1970.
const TODAY: u64 = 1_800_000_000_000;

/// A site's two clocks against the world's, which begins at zero.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    /// CLOCK_BOOTTIME when the world began, in microseconds.
    pub(crate) boot: u64,
    /// How fast it runs, in millionths too fast.
    pub(crate) drift: i64,
    /// How far CLOCK_REALTIME is off, in milliseconds.
    pub(crate) wall: i64,
}

impl Clock {
    pub(crate) fn now(&self, world: u64) -> Now {
        let run = world as i64 + world as i64 / 1000 * self.drift / 1000;
        let boot = self.boot.wrapping_add_signed(run);
        Now { boot: Time::from_micros(boot), unix_ms: TODAY.wrapping_add_signed(self.wall + run / 1000) }
    }

    /// The first instant of the world's time at which CLOCK_BOOTTIME shows at least `time`.
    pub(crate) fn world(&self, time: Time) -> u64 {
        let run = time.micros().saturating_sub(self.boot);
        let mut world = (run as i64 - run as i64 / 1000 * self.drift / 1000 - 2_000).max(0) as u64;
        while self.now(world).boot < time {
            world += (time.micros() - self.now(world).boot.micros()).max(1);
        }
        world
    }
}

/// A socket of the site's host.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Socket {
    pub(crate) id: EndpointId,
    pub(crate) local: SocketAddrV6,
    pub(crate) remote: Option<SocketAddrV6>,
}

/// Source and destination.
pub(crate) type Addresses = (Ipv6Addr, Ipv6Addr);

pub(crate) struct Site {
    pub(crate) config: NodeConfig,
    /// None while it is down.
    pub(crate) node: Option<Node>,
    pub(crate) threads: Threads,
    pub(crate) clock: Clock,
    pub(crate) memory: HashMap<PublicPair, PeerMemory>,
    pub(crate) suspended: bool,
    /// How long opening a socket takes, in microseconds.
    pub(crate) opening: (u64, u64),
    /// How often it fails.
    pub(crate) open_fails: f64,
    pub(crate) firewall: Option<Firewall>,
    pub(crate) translator: Option<Translator>,
    /// Sockets that are open, by their local address.
    pub(crate) sockets: HashMap<SocketAddrV6, Socket>,
    /// All that were asked for and not closed.
    pub(crate) asked: HashMap<EndpointId, Socket>,
    /// Addresses at which packets are taken, the peer's first, and the true ones.
    pub(crate) heard: HashMap<Addresses, Addresses>,
    /// Those that packets have that leave, by the true ones.
    pub(crate) replaced: HashMap<Addresses, Addresses>,
    /// Lanes by which masked packets come, the peer's end first, with what they are.
    pub(crate) unmasked: HashMap<mask::Flow, (mask::Flow, mask::MaskKey)>,
    /// Those by which they leave.
    pub(crate) masked: HashMap<mask::Flow, Vec<mask::DrawnLane>>,
    pub(crate) timer: u64,
    pub(crate) outbox: Outbox,
    pub(crate) arena: Vec<u8>,
    /// ICMP errors to inner hosts, with their times.
    pub(crate) errors: Vec<(u64, Vec<u8>)>,
    /// Whole packets that were not of a stream, and were delivered.
    pub(crate) others: Vec<Vec<u8>>,
    /// Datagrams from the peer that no socket took.
    pub(crate) missed: u64,
    pub(crate) open_failures: u64,
    /// Calls for time in the present second, and how many are too many.
    pub(crate) calls: (u64, u64),
    pub(crate) calls_allowed: u64,
    /// Calls for time in all.
    pub(crate) wakeups: u64,
    pub(crate) most_endpoints: usize,
    /// Endpoints that were asked for, in all.
    pub(crate) opens: u64,
}

impl Site {
    pub(crate) fn new(index: usize, hop_prefix: Ipv6Net, boot: u64) -> Self {
        let mut key = [7; 32];
        key[..8].copy_from_slice(&(index as u64).to_be_bytes());
        Site {
            config: NodeConfig {
                private_key: PrivateKey::from_bytes(key),
                previous_key: None,
                hop_prefix,
                link_mtu: 1500,
                hardware_aes: true,
                addresses: Vec::new(),
                rekey_after: sidestep_mt6d::config::REKEY_AFTER,
                peers: Vec::new(),
            },
            node: None,
            threads: Threads::default(),
            clock: Clock { boot, drift: 0, wall: 0 },
            memory: HashMap::new(),
            suspended: false,
            opening: (50, 500),
            open_fails: 0.0,
            firewall: None,
            translator: None,
            sockets: HashMap::new(),
            asked: HashMap::new(),
            heard: HashMap::new(),
            replaced: HashMap::new(),
            unmasked: HashMap::new(),
            masked: HashMap::new(),
            timer: u64::MAX,
            outbox: Outbox::new(),
            arena: Vec::new(),
            errors: Vec::new(),
            others: Vec::new(),
            missed: 0,
            open_failures: 0,
            calls: (0, 0),
            calls_allowed: 0,
            wakeups: 0,
            most_endpoints: 0,
            opens: 0,
        }
    }

    pub(crate) fn key(&self) -> PublicKey {
        self.config.private_key.public()
    }

    pub(crate) fn peer(&mut self, number: usize) -> &mut PeerConfig {
        &mut self.config.peers[number]
    }

    pub(crate) fn node(&mut self) -> &mut Node {
        self.node.as_mut().expect("the node is up")
    }

    /// Its first peer, as the node sees it.
    pub(crate) fn status(&self, world: u64) -> PeerStatus {
        let node = self.node.as_ref().expect("the node is up");
        node.status(self.clock.now(world)).next().expect("there is a peer")
    }
}

/// What a node delivers in one call.
#[derive(Default)]
pub(crate) struct Delivered {
    pub(crate) packets: Vec<Vec<u8>>,
}

impl Deliver for Delivered {
    fn packet(&mut self, arena: &[u8], header: &[u8], rest: Range<usize>) {
        self.packets.push([header, &arena[rest]].concat());
    }

    fn whole_packet(&mut self, packet: &[u8]) {
        self.packets.push(packet.to_vec());
    }
}
