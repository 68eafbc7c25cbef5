//! Two nodes on a path that loses, delays, reorders and repeats, in virtual time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::net::Ipv6Addr;

use classic::cipher::Cipher;
use classic::hashed::{Host, Rotation};
use classic::keys::{SESSION_KEY_LEN, SessionKey};
use classic::profile::{Carry, KeyExchange, StreamConfig};
use classic::{Action, KeyState, Node, Received, UnixTime};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

const START: u64 = 1_800_000_000_000;

/// What happens to packets, in thousandths and milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Path {
    pub(crate) loss: [u32; 2],
    pub(crate) duplicates: u32,
    pub(crate) delay: (u64, u64),
}

impl Path {
    pub(crate) const CLEAN: Path = Path { loss: [0, 0], duplicates: 0, delay: (5, 5) };
    pub(crate) const POOR: Path = Path { loss: [50, 50], duplicates: 30, delay: (1, 80) };
}

/// How the streams are set up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) cipher: Option<Cipher>,
    pub(crate) carry: Carry,
    pub(crate) rotation: Rotation,
    pub(crate) key_exchange: Option<KeyExchange>,
    /// What each clock is wrong by, in milliseconds.
    pub(crate) skew: [i64; 2],
    pub(crate) seed: u64,
}

impl Setup {
    /// Rotation every 10 s, keys every 120 s ± 5 s.
    pub(crate) fn new(seed: u64) -> Self {
        Setup {
            cipher: Some(Cipher::Aes256Cbc),
            carry: Carry::Encapsulate,
            rotation: Rotation::Fixed(10),
            key_exchange: Some(KeyExchange { interval: 120, window: 5 }),
            skew: [0, 0],
            seed,
        }
    }

    fn stream(&self, own: usize, key: SessionKey) -> StreamConfig {
        let host = |n: usize| Host { address: address(n), mac: Some([2, 0, 0, 0, 0, n as u8]) };
        StreamConfig {
            local: host(own),
            remote: host(1 - own),
            key,
            cipher: self.cipher,
            carry: self.carry,
            rotation: self.rotation,
            lifetime: 3 * self.rotation.longest(),
            key_exchange: self.key_exchange,
            outer_mtu: 1500,
        }
    }

    pub(crate) fn node(&self, own: usize, key: SessionKey, clock: UnixTime) -> Node {
        let mut seed = [own as u8; 32];
        seed[..8].copy_from_slice(&(self.seed ^ clock.millis()).to_be_bytes());
        Node::new(vec![self.stream(own, key)], seed, clock).unwrap()
    }
}

pub(crate) fn address(node: usize) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0xa + node as u16, 0, 0, 0, 0, 1)
}

/// When a packet arrives, in which order, where, and the packet.
type Arrival = (u64, u64, usize, Vec<u8>);

pub(crate) struct World {
    setup: Setup,
    pub(crate) path: Path,
    nodes: [Node; 2],
    /// Routes whose addresses each node answers for: local, remote.
    open: [HashSet<(Ipv6Addr, Ipv6Addr)>; 2],
    /// The session key that each node has stored.
    pub(crate) stored: [SessionKey; 2],
    now: u64,
    queue: BinaryHeap<Reverse<Arrival>>,
    serial: u64,
    rng: ChaCha20Rng,
    /// Inner packets of each node: sent, and lost by the path.
    sent: [u64; 2],
    lost: [u64; 2],
    /// Inner packets that came to each node, by number: how often.
    pub(crate) delivered: [HashMap<u64, u32>; 2],
    /// Source addresses seen on the path.
    pub(crate) addresses_seen: HashSet<Ipv6Addr>,
    pub(crate) most_open: usize,
}

impl World {
    pub(crate) fn new(setup: Setup) -> Self {
        let key = SessionKey::from_bytes([setup.seed as u8; SESSION_KEY_LEN]);
        let clock = |n: usize| UnixTime::from_millis(START.saturating_add_signed(setup.skew[n]));
        let mut world = World {
            path: Path::CLEAN,
            nodes: [0, 1].map(|n| setup.node(n, key.clone(), clock(n))),
            open: Default::default(),
            stored: [key.clone(), key],
            now: START,
            queue: BinaryHeap::new(),
            serial: 0,
            rng: ChaCha20Rng::seed_from_u64(setup.seed),
            sent: [0; 2],
            lost: [0; 2],
            delivered: Default::default(),
            addresses_seen: HashSet::new(),
            most_open: 0,
            setup,
        };
        for node in [0, 1] {
            world.timeout(node);
        }
        world
    }

    /// Lets time pass. Every `every` milliseconds both hosts say something, if that is not 0.
    pub(crate) fn run(&mut self, seconds: u64, every: u64) {
        let end = self.now + seconds * 1000;
        let mut next_traffic = if every == 0 { u64::MAX } else { self.now };
        loop {
            let arrival = self.queue.peek().map_or(u64::MAX, |Reverse((time, ..))| *time);
            let deadlines = [0, 1].map(|n| self.deadline(n));
            let next = deadlines[0].min(deadlines[1]).min(arrival).min(next_traffic);
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            for node in [0, 1] {
                if deadlines[node] <= self.now {
                    self.timeout(node);
                    assert!(self.deadline(node) > self.now, "node {node} has nothing to wait for");
                }
            }
            if arrival <= self.now {
                self.arrive();
            }
            if next_traffic <= self.now {
                next_traffic += every;
                for node in [0, 1] {
                    self.say(node);
                }
            }
        }
        self.now = end;
    }

    /// The local host of `node` says something.
    pub(crate) fn say(&mut self, node: usize) {
        let number = self.sent[node];
        self.sent[node] += 1;
        let body = vec![number as u8; 12 + (self.rng.next_u32() % 1300) as usize];
        let packet = inner(node, number, &body);
        let mut outer = Vec::new();
        self.nodes[node].send(&packet, &mut outer).unwrap();
        self.transmit(node, outer);
    }

    /// The node is started anew, with the key that it stored and another clock.
    pub(crate) fn restart(&mut self, node: usize) {
        self.open[node].clear();
        self.nodes[node] = self.setup.node(node, self.stored[node].clone(), self.clock(node));
        self.timeout(node);
    }

    pub(crate) fn set_clock(&mut self, node: usize, skew: i64) {
        self.setup.skew[node] = skew;
        self.timeout(node);
    }

    pub(crate) fn key_state(&self, node: usize) -> KeyState {
        self.nodes[node].status().next().unwrap().key
    }

    pub(crate) fn keys_adopted(&self) -> [u64; 2] {
        [0, 1].map(|n| self.nodes[n].status().next().unwrap().keys_adopted)
    }

    pub(crate) fn drops(&self, node: usize) -> Vec<(&'static str, u64)> {
        self.nodes[node].drops().nonzero().map(|(reason, n)| (reason.name(), n)).collect()
    }

    /// What was sent to each node and never came, though the path carried it. Nothing may be under way.
    pub(crate) fn lost_by_the_protocol(&self) -> [u64; 2] {
        assert!(self.queue.iter().all(|Reverse((.., outer))| !is_data(outer)), "packets are under way");
        [0, 1].map(|to| self.sent[1 - to] - self.lost[1 - to] - self.delivered[to].len() as u64)
    }

    pub(crate) fn forget(&mut self) {
        self.sent = [0; 2];
        self.lost = [0; 2];
        self.delivered = Default::default();
        self.addresses_seen.clear();
    }

    fn clock(&self, node: usize) -> UnixTime {
        UnixTime::from_millis(self.now.saturating_add_signed(self.setup.skew[node]))
    }

    fn deadline(&self, node: usize) -> u64 {
        self.nodes[node].deadline().millis().saturating_add_signed(-self.setup.skew[node])
    }

    fn timeout(&mut self, node: usize) {
        let clock = self.clock(node);
        self.nodes[node].handle_timeout(clock);
        self.actions(node);
    }

    fn actions(&mut self, node: usize) {
        let mut moved = false;
        while let Some(action) = self.nodes[node].next_action() {
            moved |= matches!(action, Action::Open(_) | Action::Close(_));
            match action {
                Action::Open(e) => {
                    assert!(self.open[node].insert((e.local.address, e.remote.address)), "opened twice");
                }
                Action::Close(e) => {
                    assert!(self.open[node].remove(&(e.local.address, e.remote.address)), "never opened");
                }
                Action::Transmit(outer) => self.transmit(node, outer),
                Action::StoreKey { key, .. } => self.stored[node] = key,
            }
        }
        if !moved {
            return;
        }
        let known: HashSet<_> =
            self.nodes[node].endpoints().map(|e| (e.local.address, e.remote.address)).collect();
        assert_eq!(known, self.open[node]);
        self.most_open = self.most_open.max(known.len());
    }

    fn transmit(&mut self, from: usize, outer: Vec<u8>) {
        let source: [u8; 16] = outer[8..24].try_into().unwrap();
        self.addresses_seen.insert(source.into());
        let to = 1 - from;
        if self.chance(self.path.loss[from]) {
            self.lost[from] += u64::from(is_data(&outer));
            return;
        }
        for _ in 0..=u32::from(self.chance(self.path.duplicates)) {
            let (least, most) = self.path.delay;
            let time = self.now + least + self.rng.next_u64() % (most - least + 1);
            self.serial += 1;
            self.queue.push(Reverse((time, self.serial, to, outer.clone())));
        }
    }

    fn arrive(&mut self) {
        let Some(Reverse((_, _, to, outer))) = self.queue.pop() else { return };
        let clock = self.clock(to);
        let mut packet = Vec::new();
        match self.nodes[to].receive(&outer, clock, &mut packet) {
            Received::Packet { stream: 0 } => {
                let number = u64::from_be_bytes(packet[40..48].try_into().unwrap());
                assert_eq!(packet, inner(1 - to, number, &packet[48..]), "something else came out");
                *self.delivered[to].entry(number).or_default() += 1;
            }
            Received::Packet { .. } => panic!("of no stream"),
            Received::Handled | Received::NotOurs | Received::Dropped(_) => {}
        }
        self.actions(to);
    }

    fn chance(&mut self, thousandths: u32) -> bool {
        self.rng.next_u32() % 1000 < thousandths
    }
}

/// A packet of the host of `node`, with a number.
fn inner(node: usize, number: u64, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((body.len() as u16 + 8).to_be_bytes());
    packet.extend([59, 63]);
    packet.extend(address(node).octets());
    packet.extend(address(1 - node).octets());
    packet.extend(number.to_be_bytes());
    packet.extend(body);
    packet
}

/// Whether an outer packet has a payload.
fn is_data(outer: &[u8]) -> bool {
    let udp_at = if outer[6] == 60 { 40 + (usize::from(outer[41]) + 1) * 8 } else { 40 };
    outer.len() > udp_at + 8
}
