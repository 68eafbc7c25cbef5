//! Two endpoints and a link between them that loses, repeats, reorders and translates, in virtual time.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ike::config::{ChildConfig, Config, Mode, PeerConfig, PeerIndex};
use ike::crypto::secret::Secret;
use ike::event::{ChildAssociation, Event, Path};
use ike::message::body::Identity;
use ike::message::traffic_selector::TrafficSelector;
use ike::numbers::{IkeSpi, Spi};
use ike::random::Random;
use ike::{Endpoint, Transmit};

/// SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_be_bytes(bytes) % limit
    }
}

impl Random for Dice {
    fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            chunk.copy_from_slice(&(z ^ (z >> 31)).to_be_bytes()[..chunk.len()]);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    A,
    B,
}

impl Side {
    pub(crate) fn other(self) -> Self {
        if self == Self::A { Self::B } else { Self::A }
    }
}

/// One end: its endpoint, and what its events have told.
pub(crate) struct End {
    pub(crate) endpoint: Endpoint<Dice>,
    pub(crate) events: Vec<Event>,
    pub(crate) ikes: Vec<IkeSpi>,
    pub(crate) children: HashMap<Spi, Box<ChildAssociation>>,
}

impl End {
    fn new(config: Config, seed: u64) -> Self {
        let endpoint = Endpoint::new(config, Dice(seed));
        Self { endpoint, events: Vec::new(), ikes: Vec::new(), children: HashMap::new() }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.endpoint.poll_event() {
            match &event {
                Event::IkeUp { ike, .. } => self.ikes.push(*ike),
                Event::IkeRekeyed { old, new } => {
                    let position = self.ikes.iter().position(|ike| ike == old).expect("known");
                    self.ikes[position] = *new;
                    for child in self.children.values_mut().filter(|child| child.ike == *old) {
                        child.ike = *new;
                    }
                    self.ikes.push(*old);
                }
                Event::IkeDown { ike, .. } => {
                    let position = self.ikes.iter().position(|known| known == ike).expect("known");
                    self.ikes.remove(position);
                    assert!(
                        !self.children.values().any(|child| child.ike == *ike),
                        "children outlive their IKE SA"
                    );
                }
                Event::ChildUp(child) | Event::ChildRekeyed { new: child, .. } => {
                    assert!(self.children.insert(child.inbound_spi, child.clone()).is_none());
                }
                Event::ChildDown { inbound_spi, .. } => {
                    assert!(self.children.remove(inbound_spi).is_some(), "a child goes down twice");
                }
                _ => {}
            }
            self.events.push(event);
        }
    }

    pub(crate) fn ike(&self) -> IkeSpi {
        assert_eq!(self.ikes.len(), 1, "IKE SAs: {:?}", self.ikes);
        self.ikes[0]
    }

    pub(crate) fn child(&self) -> &ChildAssociation {
        assert_eq!(self.children.len(), 1, "children: {:?}", self.children.keys());
        self.children.values().next().unwrap()
    }
}

/// What the link does.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Link {
    /// Of 100 datagrams.
    pub(crate) lost: u64,
    /// Of 100 datagrams.
    pub(crate) repeated: u64,
    /// Up to so much delay on top of 10 ms.
    pub(crate) jitter_ms: u64,
    /// Behind it, A is seen at this address, with these ports on top of its own.
    pub(crate) nat: Option<(std::net::IpAddr, u16)>,
}

pub(crate) type Filter = Box<dyn FnMut(Side, &Transmit) -> bool>;

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) start: Instant,
    pub(crate) a: End,
    pub(crate) b: End,
    pub(crate) link: Link,
    /// What is not to arrive: given the sender.
    pub(crate) filter: Option<Filter>,
    /// All that was sent.
    pub(crate) sent: Vec<(Side, Transmit)>,
    dice: Dice,
    flying: BTreeMap<(Instant, u64), (Side, Path, Vec<u8>)>,
    count: u64,
}

pub(crate) const A: &str = "[2001:db8::a]:500";
pub(crate) const B: &str = "[2001:db8::b]:500";

pub(crate) fn identity(name: &str) -> Identity {
    Identity::Fqdn(name.to_owned())
}

pub(crate) fn prefix(text: &str, length: u8) -> TrafficSelector {
    TrafficSelector::prefix(text.parse().unwrap(), length)
}

pub(crate) fn peer(local: &str, remote: &str) -> PeerConfig {
    let mut peer =
        PeerConfig::new(identity(local), Some(identity(remote)), Secret::new(b"a shared key".to_vec()));
    let net = |name: &str| vec![prefix(&format!("fd00:{name}::"), 32)];
    peer.children.push(ChildConfig::new(Mode::Tunnel, net(local), net(remote)));
    peer
}

pub(crate) fn config(local: &str, remote: &str) -> Config {
    Config::new(vec![peer(local, remote)])
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        Self::with(seed, config("a", "b"), config("b", "a"))
    }

    pub(crate) fn with(seed: u64, a: Config, b: Config) -> Self {
        let now = Instant::now();
        Self {
            now,
            start: now,
            a: End::new(a, seed * 3 + 1),
            b: End::new(b, seed * 3 + 2),
            link: Link::default(),
            filter: None,
            sent: Vec::new(),
            dice: Dice(seed * 3 + 3),
            flying: BTreeMap::new(),
            count: 0,
        }
    }

    /// With an IKE SA and a child.
    pub(crate) fn established(seed: u64) -> Self {
        let mut world = Self::new(seed);
        world.initiate();
        world.run(Duration::from_secs(2));
        world.agree();
        world
    }

    pub(crate) fn end(&mut self, side: Side) -> &mut End {
        match side {
            Side::A => &mut self.a,
            Side::B => &mut self.b,
        }
    }

    pub(crate) fn path(&self) -> Path {
        Path { local: A.parse().unwrap(), remote: B.parse().unwrap() }
    }

    pub(crate) fn initiate(&mut self) -> IkeSpi {
        let path = self.path();
        let ike = self.a.endpoint.initiate(self.now, PeerIndex(0), path).unwrap();
        self.flush();
        ike
    }

    /// Takes events and datagrams from both ends.
    pub(crate) fn flush(&mut self) {
        for side in [Side::A, Side::B] {
            self.end(side).take_events();
            while let Some(transmit) = self.end(side).endpoint.poll_transmit() {
                self.sent.push((side, transmit.clone()));
                if self.filter.as_mut().is_some_and(|drops| drops(side, &transmit)) {
                    continue;
                }
                let copies = 1 + u64::from(self.dice.below(100) < self.link.repeated);
                for _ in 0..copies {
                    if self.dice.below(100) >= self.link.lost {
                        self.fly(side, &transmit);
                    }
                }
            }
        }
    }

    fn fly(&mut self, from: Side, transmit: &Transmit) {
        let Path { mut local, mut remote } = transmit.path;
        if let Some((public, shift)) = self.link.nat {
            if from == Side::A {
                local = SocketAddr::new(public, local.port() + shift);
            } else if remote.ip() == public {
                remote = SocketAddr::new(A.parse::<SocketAddr>().unwrap().ip(), remote.port() - shift);
            }
        }
        let delay = 10 + self.dice.below(self.link.jitter_ms + 1);
        self.count += 1;
        let at = self.now + Duration::from_millis(delay);
        let path = Path { local: remote, remote: local };
        self.flying.insert((at, self.count), (from.other(), path, transmit.payload.clone()));
    }

    /// Hands an end a datagram now, as if it had come from the other one.
    pub(crate) fn inject(&mut self, to: Side, path: Path, bytes: &[u8]) {
        let now = self.now;
        self.end(to).endpoint.receive(now, path, bytes);
        self.flush();
    }

    /// Lets time pass.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        self.flush();
        loop {
            let arrival = self.flying.first_key_value().map(|((at, _), _)| *at);
            let due = [self.a.endpoint.deadline(), self.b.endpoint.deadline(), arrival];
            let Some(next) = due.into_iter().flatten().min().filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            while let Some(entry) = self.flying.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let (to, path, bytes) = entry.remove();
                self.inject(to, path, &bytes);
            }
            let now = self.now;
            self.a.endpoint.handle_timeout(now);
            self.b.endpoint.handle_timeout(now);
            self.flush();
        }
        self.now = end;
    }

    /// Both ends know the same children, with the same keys.
    pub(crate) fn agree(&self) {
        assert_eq!(self.a.ikes.len(), self.b.ikes.len(), "{:?} and {:?}", self.a.ikes, self.b.ikes);
        assert_eq!(
            self.a.children.len(),
            self.b.children.len(),
            "{:?} and {:?}",
            self.a.children.keys(),
            self.b.children.keys()
        );
        for at_a in self.a.children.values() {
            let at_b = &self.b.children[&at_a.outbound_spi];
            assert_eq!(at_b.outbound_spi, at_a.inbound_spi);
            assert_eq!((at_a.suite, at_a.mode), (at_b.suite, at_b.mode));
            assert_eq!((&at_a.local, &at_a.remote), (&at_b.remote, &at_b.local));
            for (out, into) in [(&at_a.outbound, &at_b.inbound), (&at_b.outbound, &at_a.inbound)] {
                assert_eq!(out.encryption.as_bytes(), into.encryption.as_bytes());
                assert_eq!(out.integrity.as_bytes(), into.integrity.as_bytes());
            }
            assert_ne!(at_a.outbound.encryption.as_bytes(), at_a.inbound.encryption.as_bytes());
        }
    }

    pub(crate) fn count(&self, side: Side, is: impl Fn(&Event) -> bool) -> usize {
        let end = if side == Side::A { &self.a } else { &self.b };
        end.events.iter().filter(|event| is(event)).count()
    }
}

/// Exchange type, whether it is a response, and message ID, behind a marker or not.
pub(crate) fn header(transmit: &Transmit) -> (u8, bool, u32) {
    let bytes = message(transmit);
    (bytes[18], bytes[19] & 0x20 != 0, u32::from_be_bytes(bytes[20..24].try_into().unwrap()))
}

pub(crate) fn message(transmit: &Transmit) -> &[u8] {
    if transmit.path.local.port() == 4500 { &transmit.payload[4..] } else { &transmit.payload }
}
