//! What lies between two sites: the path with its impairments, stateful firewalls, prefix translators.

use std::collections::HashMap;
use std::net::{Ipv6Addr, SocketAddrV6};

use ipnet::Ipv6Net;

use super::random::Random;

/// A path in one direction. Times in microseconds.
#[derive(Debug, Clone)]
pub(crate) struct Path {
    pub(crate) delay: u64,
    /// Added to the delay, uniformly between nothing and this: reorders.
    pub(crate) jitter: u64,
    pub(crate) loss: f64,
    pub(crate) duplicate: f64,
    /// The share of datagrams that are held back, and for how long.
    pub(crate) held_back: (f64, u64),
    /// Largest outer packet, in bytes.
    pub(crate) mtu: usize,
    /// Bits per second.
    pub(crate) rate: Option<u64>,
    /// The share of ECN-capable packets that are marked as having met congestion.
    pub(crate) congestion: f64,
    /// The share of packets that are so marked whatever they say of themselves, as no router should.
    pub(crate) wrong_congestion: f64,
    pub(crate) cut: bool,
    /// An octet of each datagram becomes another.
    pub(crate) alters: bool,
}

impl Default for Path {
    fn default() -> Self {
        Path {
            delay: 500,
            jitter: 0,
            loss: 0.0,
            duplicate: 0.0,
            held_back: (0.0, 0),
            mtu: 1500,
            rate: None,
            congestion: 0.0,
            wrong_congestion: 0.0,
            cut: false,
            alters: false,
        }
    }
}

impl Path {
    /// When a datagram sent now arrives, if it does.
    pub(crate) fn delay(&self, random: &mut Random) -> Option<u64> {
        if self.cut || random.chance(self.loss) {
            return None;
        }
        let jitter = if self.jitter > 0 { random.between(0, self.jitter) } else { 0 };
        let held = if random.chance(self.held_back.0) { self.held_back.1 } else { 0 };
        Some(self.delay + jitter + held)
    }
}

/// Lets in only what was opened from inside: one state for each 5-tuple, forgotten 30 s after its last datagram.
#[derive(Default)]
pub(crate) struct Firewall {
    states: HashMap<(SocketAddrV6, SocketAddrV6), u64>,
    pub(crate) refused: u64,
}

impl Firewall {
    const TIMEOUT: u64 = 30_000_000;

    pub(crate) fn leaves(&mut self, inside: SocketAddrV6, outside: SocketAddrV6, now: u64) {
        self.states.insert((inside, outside), now + Self::TIMEOUT);
    }

    pub(crate) fn lets_in(&mut self, inside: SocketAddrV6, outside: SocketAddrV6, now: u64) -> bool {
        match self.states.get_mut(&(inside, outside)) {
            Some(until) if now < *until => {
                *until = now + Self::TIMEOUT;
                true
            }
            _ => {
                self.refused += 1;
                false
            }
        }
    }
}

/// Rewrites the addresses of a site at its border.
pub(crate) enum Translator {
    /// To another prefix, host bits and ports kept (in the manner of RFC 6296).
    Prefix { inside: Ipv6Net, outside: Ipv6Net },
    /// NAT66: to one address, ports as they come.
    Masquerade { outside: Ipv6Addr, states: HashMap<SocketAddrV6, u16> },
}

impl Translator {
    pub(crate) fn leaves(&mut self, source: SocketAddrV6) -> SocketAddrV6 {
        match self {
            Translator::Prefix { outside, .. } => moved(source, *outside),
            Translator::Masquerade { outside, states } => {
                let next = 20_000 + states.len() as u16;
                SocketAddrV6::new(*outside, *states.entry(source).or_insert(next), 0, 0)
            }
        }
    }

    pub(crate) fn enters(&mut self, destination: SocketAddrV6) -> SocketAddrV6 {
        match self {
            Translator::Prefix { inside, .. } => moved(destination, *inside),
            Translator::Masquerade { states, .. } => {
                let known = states.iter().find(|(_, port)| **port == destination.port());
                known.map_or(destination, |(inside, _)| *inside)
            }
        }
    }
}

fn moved(address: SocketAddrV6, prefix: Ipv6Net) -> SocketAddrV6 {
    let host = u128::from(*address.ip()) & u128::from(prefix.hostmask());
    SocketAddrV6::new(Ipv6Addr::from(u128::from(prefix.network()) | host), address.port(), 0, 0)
}
