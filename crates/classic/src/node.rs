//! The host's side: streams found by the addresses of packets, deadlines, and what is to be done.

use std::collections::VecDeque;
use std::net::Ipv6Addr;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use rustc_hash::FxHashMap;
use wire::ipv6;

use crate::drops::{DropReason, Drops};
use crate::host_interface::{Action, Endpoint, HostInterface};
use crate::icmp;
use crate::profile::{ConfigError, StreamConfig};
use crate::stream::{Context, Stream, StreamRoutes, StreamStatus};
use crate::time::UnixTime;

/// Why a packet of a protected host was not tunnelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendError {
    /// No stream has its addresses.
    NoStream,
    /// It is no whole IPv6 packet.
    Malformed,
    /// It does not fit; its sender is to be told that `mtu` bytes would.
    TooBig {
        /// The largest inner packet.
        mtu: u16,
    },
}

/// What came of a packet from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// An inner packet for the local host was written; an ICMPv6 error counts as one.
    Packet {
        /// Which stream, by its place in the configuration.
        stream: usize,
    },
    /// It was the node's, and held no inner packet.
    Handled,
    /// It is not the node's business; it may be for somebody else.
    NotOurs,
    /// It was the node's, and was dropped.
    Dropped(DropReason),
}

/// All streams of a gateway or host.
pub struct Node {
    streams: Vec<Stream>,
    by_hosts: FxHashMap<(Ipv6Addr, Ipv6Addr), usize>,
    /// When the node last looked: a clock that was set back is noticed.
    last: UnixTime,
    drops: Drops,
    host: HostInterface,
    /// How often routes, the state of a key exchange or what a path carries may have changed.
    changes: u64,
}

impl Node {
    /// A node with these streams, whose first round is due at once. `seed` is all the randomness it will have: new
    /// session keys come from it.
    ///
    /// # Errors
    /// What is wrong with a stream, by its place.
    pub fn new(
        streams: Vec<StreamConfig>,
        seed: [u8; 32],
        now: UnixTime,
    ) -> Result<Self, (usize, ConfigError)> {
        let mut by_hosts = FxHashMap::default();
        for (index, config) in streams.iter().enumerate() {
            config.check().map_err(|error| (index, error))?;
            if by_hosts.insert((config.local.address, config.remote.address), index).is_some() {
                return Err((index, ConfigError::SameStream));
            }
        }
        let rng = ChaCha20Rng::from_seed(seed);
        let mut host = HostInterface { actions: VecDeque::new(), rng, by_route: FxHashMap::default() };
        let streams = streams
            .into_iter()
            .enumerate()
            .map(|(index, config)| Stream::new(index, config, now, &mut host.rng))
            .collect();
        Ok(Node { streams, by_hosts, last: now, drops: Drops::default(), host, changes: 0 })
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called next.
    pub fn deadline(&self) -> UnixTime {
        self.streams.iter().map(Stream::deadline).min().unwrap_or(UnixTime::NEVER)
    }

    /// Makes routes, sets them aside, exchanges keys: whatever is due. To be called also when the clock was set.
    pub fn handle_timeout(&mut self, now: UnixTime) {
        let set_back = now < self.last;
        self.last = now;
        self.changes += 1;
        for stream in &mut self.streams {
            stream.handle_timeout(set_back, &mut Context { now, host: &mut self.host });
        }
    }

    /// Tunnels a packet of a protected host: writes the outer packet over whatever is in `outer`. Gives the stream.
    ///
    /// # Errors
    /// Why not, already counted.
    pub fn send(&mut self, inner: &[u8], outer: &mut Vec<u8>) -> Result<usize, SendError> {
        let result = self.try_send(inner, outer);
        if let Err(error) = result {
            self.drops.count(match error {
                SendError::NoStream => DropReason::NoStream,
                SendError::Malformed => DropReason::MalformedInner,
                SendError::TooBig { .. } => DropReason::TooBig,
            });
        }
        result
    }

    fn try_send(&self, inner: &[u8], outer: &mut Vec<u8>) -> Result<usize, SendError> {
        let packet = ipv6::Packet::parse(inner).map_err(|_| SendError::Malformed)?;
        let hosts = (packet.source(), packet.destination());
        let index = *self.by_hosts.get(&hosts).ok_or(SendError::NoStream)?;
        let whole = &inner[..ipv6::HEADER_LEN + packet.payload().len()];
        let mtu = self.inner_mtu(index);
        if whole.len() > usize::from(mtu) {
            return Err(SendError::TooBig { mtu });
        }
        self.streams[index].send(whole, outer);
        Ok(index)
    }

    /// The largest inner packet of a stream, in bytes.
    pub fn inner_mtu(&self, stream: usize) -> u16 {
        let Some(stream) = self.streams.get(stream) else { return 0 };
        stream.inner_mtu()
    }

    /// The link of a stream carries outer packets of so many bytes; 1280 at least.
    pub fn set_outer_mtu(&mut self, stream: usize, mtu: u16) {
        if let Some(stream) = self.streams.get_mut(stream) {
            stream.set_outer_mtu(mtu.max(ipv6::MIN_MTU as u16));
        }
    }

    /// Takes a packet from outside: writes the inner packet over whatever is in `inner`, if there is one.
    pub fn receive(&mut self, outer: &[u8], now: UnixTime, inner: &mut Vec<u8>) -> Received {
        let Ok(packet) = ipv6::Packet::parse(outer) else {
            self.drops.count(DropReason::Malformed);
            return Received::Dropped(DropReason::Malformed);
        };
        let error = icmp::Error::parse(&packet);
        let route = match error.as_ref().and_then(icmp::Error::addresses) {
            // The invoking packet was from this node: its source is the local address.
            Some((source, destination)) if source == packet.destination() => (source, destination),
            _ => (packet.destination(), packet.source()),
        };
        let Some(&index) = self.host.by_route.get(&route) else {
            self.drops.count(DropReason::NoRoute);
            return Received::NotOurs;
        };
        let stream = &mut self.streams[index];
        let before = (stream.key_state(), stream.outer_mtu());
        let received = match &error {
            Some(error) => stream.receive_error(error, now, inner).map(|()| true),
            None => stream.receive(&packet, inner, &mut Context { now, host: &mut self.host }),
        };
        self.changes += u64::from((stream.key_state(), stream.outer_mtu()) != before);
        match received {
            Ok(true) => Received::Packet { stream: index },
            Ok(false) => Received::Handled,
            Err(reason) => {
                self.drops.count(reason);
                Received::Dropped(reason)
            }
        }
    }

    /// What is to be done next.
    pub fn next_action(&mut self) -> Option<Action> {
        self.host.actions.pop_front()
    }

    /// The ways into all routes that are not given up.
    pub fn endpoints(&self) -> impl Iterator<Item = Endpoint> {
        self.streams.iter().flat_map(Stream::endpoints)
    }

    /// The routes of a stream, for somebody who carries its packets in the node's place, and is to ask again when
    /// [`changes`](Self::changes) tells something else.
    pub fn routes(&self, stream: usize) -> Option<StreamRoutes> {
        self.streams.get(stream).map(Stream::routes)
    }

    /// A number that grows when what [`routes`](Self::routes) returns may have changed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Each stream at a glance, in the order of the configuration.
    pub fn status(&self) -> impl ExactSizeIterator<Item = StreamStatus> {
        self.streams.iter().map(Stream::status)
    }

    /// What was dropped, and why.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }
}
