//! Policy, apart from mechanism (RFC 4301 §4.4.1): which packets pass, which are discarded, and how well the others must be
//! protected, by the administrator's rules, the system's levels and the socket's. The stricter of them counts.
//!
//! | level | sending | receiving |
//! |---|---|---|
//! | [`None`](Level::None) | not protected | as it comes |
//! | [`Use`](Level::Use) | protected if there is an association | as it comes |
//! | [`Require`](Level::Require) | protected, or not sent | protected, or dropped |
//! | [`Unique`](Level::Unique) | by an association of the socket's own, or not sent | protected, or dropped |
//!
//! There is a level for each [`Service`]. A received packet is authentic by AH, or by ESP with an ICV.
//!
//! What the system and the rules ask for does not apply to a socket that [bypasses](Socket::bypasses), which is for key
//! management daemons alone: they speak before there are associations. The host decides who may have one.

use std::net::IpAddr;
use std::time::Instant;

use wire::protocol;

use crate::acquire::AcquireId;
use crate::drops::DropReason;
use crate::key_engine::{AssociationId, KeyEngine, Lookup, SecurityError};
use crate::marks::Marks;
use crate::request::{Request, Service, SocketId};
use crate::selector::{Selector, Traffic, Upper};

/// How much a service is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Level {
    /// Not at all.
    #[default]
    None = 0,
    /// Where it can be had.
    Use = 1,
    /// Both ways.
    Require = 2,
    /// Both ways, with an association of the socket's own.
    Unique = 3,
}

impl Level {
    /// The level of this number, as in a socket option.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::None),
            1 => Some(Self::Use),
            2 => Some(Self::Require),
            3 => Some(Self::Unique),
            _ => None,
        }
    }
}

/// A level for each service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Levels {
    /// That of AH.
    pub authentication: Level,
    /// That of ESP in transport mode.
    pub transport_encryption: Level,
    /// That of ESP in tunnel mode.
    pub tunnel_encryption: Level,
}

impl Levels {
    /// Nothing is wanted.
    pub const NONE: Self = Self {
        authentication: Level::None,
        transport_encryption: Level::None,
        tunnel_encryption: Level::None,
    };

    /// The stricter of both, for each service.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        Self {
            authentication: self.authentication.max(other.authentication),
            transport_encryption: self.transport_encryption.max(other.transport_encryption),
            tunnel_encryption: self.tunnel_encryption.max(other.tunnel_encryption),
        }
    }

    /// That of a service.
    pub const fn of(self, service: Service) -> Level {
        match service {
            Service::Authentication => self.authentication,
            Service::TransportEncryption => self.transport_encryption,
            Service::TunnelEncryption => self.tunnel_encryption,
        }
    }
}

/// Which way packets go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Out of this host.
    Out,
    /// To this host, or through it.
    In,
}

/// What happens to packets that a rule selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// They pass without protection, whatever the system's levels are.
    Bypass,
    /// They do not pass.
    Discard,
    /// They pass with these levels at least.
    Protect {
        /// For each service.
        levels: Levels,
        /// The ends of the tunnel, from here and to there, if it is to be a certain one.
        tunnel: Option<(IpAddr, IpAddr)>,
    },
}

/// A rule: the first that selects a packet counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Which way.
    pub direction: Direction,
    /// Which packets.
    pub selector: Selector,
    /// What happens.
    pub action: Action,
}

impl Rule {
    /// What cannot be seen of a packet counts for what is stricter.
    fn selects(&self, traffic: &Traffic) -> bool {
        match self.action {
            Action::Bypass => self.selector.matches(traffic),
            Action::Discard | Action::Protect { .. } => self.selector.may_match(traffic),
        }
    }

    /// Neighbor discovery passes: it is what finds those whom a daemon could talk to. It guards itself by a hop limit that
    /// nobody further away can send (RFC 4861 §11.2).
    pub fn neighbor_discovery(direction: Direction) -> Self {
        let all = ipnet::IpNet::V6(ipnet::Ipv6Net::default());
        let upper = Upper::Icmp { protocol: protocol::ICMPV6, types: 133..=137, codes: 0..=0 };
        let selector = Selector { upper, ..Selector::between(all, all) };
        Self { direction, selector, action: Action::Bypass }
    }
}

/// What a socket asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Socket {
    /// Which it is.
    pub id: SocketId,
    /// Its levels.
    pub levels: Levels,
    /// Whether it is a key management daemon's.
    pub bypasses: bool,
}

/// The security policy database.
#[derive(Debug, Default)]
pub struct PolicyDatabase {
    rules: Vec<Rule>,
    system: Levels,
}

/// What is to be done with a packet that leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// To be sent, after these associations have [sealed](crate::processing::seal) it, one after the other.
    Send(Bundle),
    /// To be [delayed](KeyEngine::delay).
    Delay(AcquireId),
}

/// The associations that seal a packet, the innermost first: one for each service at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bundle([Option<AssociationId>; Service::ALL.len()]);

impl Bundle {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// In the order in which they are applied.
    pub fn iter(&self) -> impl Iterator<Item = AssociationId> + '_ {
        self.0.iter().flatten().copied()
    }
}

impl PolicyDatabase {
    /// Without rules, with no level.
    pub fn new() -> Self {
        Self::default()
    }

    /// The rules in their order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Puts in a rule behind the others.
    pub fn add(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    /// Takes away the rules of a direction and selector; returns whether there were any.
    pub fn delete(&mut self, direction: Direction, selector: &Selector) -> bool {
        let before = self.rules.len();
        self.rules.retain(|rule| rule.direction != direction || rule.selector != *selector);
        self.rules.len() < before
    }

    /// Takes away all rules.
    pub fn flush(&mut self) {
        self.rules.clear();
    }

    /// The levels for what no rule selects, and the least for what is to be protected.
    pub fn system_levels(&self) -> Levels {
        self.system
    }

    /// Sets them.
    pub fn set_system_levels(&mut self, levels: Levels) {
        self.system = levels;
    }

    /// What counts for packets of a kind, of or for this socket. `None`: they are discarded.
    fn levels(
        &self,
        direction: Direction,
        traffic: &Traffic,
        socket: Option<&Socket>,
    ) -> Option<(Levels, Option<(IpAddr, IpAddr)>)> {
        let rule = self
            .rules
            .iter()
            .find(|rule| rule.direction == direction && rule.selects(traffic))
            .map(|rule| rule.action);
        let (levels, tunnel) = match rule {
            Some(Action::Discard) => return None,
            _ if socket.is_some_and(|socket| socket.bypasses) => return Some((Levels::NONE, None)),
            Some(Action::Bypass) => (Levels::NONE, None),
            Some(Action::Protect { levels, tunnel }) => (levels.stricter(self.system), tunnel),
            None => (self.system, None),
        };
        Some((socket.map_or(levels, |socket| levels.stricter(socket.levels)), tunnel))
    }

    /// What is to be done with a packet that leaves: `ipsec_output_policy()`. The key engine is asked for what it needs.
    ///
    /// # Errors
    /// [`SecurityError`] when it must not leave as it is, and cannot be protected.
    pub fn output_policy(
        &self,
        engine: &mut KeyEngine,
        traffic: &Traffic,
        socket: Option<&Socket>,
        now: Instant,
    ) -> Result<Output, SecurityError> {
        let (levels, tunnel) =
            self.levels(Direction::Out, traffic, socket).ok_or(SecurityError::Discarded)?;
        let mut bundle = Bundle::default();
        for (slot, service) in bundle.0.iter_mut().zip(Service::ALL) {
            let level = levels.of(service);
            if level == Level::None {
                continue;
            }
            let request = Request {
                service,
                traffic: *traffic,
                socket: socket.map(|socket| socket.id),
                // A packet of no socket has nobody whose own it could be.
                is_unique: level == Level::Unique && socket.is_some(),
                tunnel: tunnel.filter(|_| service == Service::TunnelEncryption),
            };
            *slot = if level == Level::Use {
                engine.available(&request, now)
            } else {
                match engine.lookup(&request, now)? {
                    Lookup::Ready(id) => Some(id),
                    Lookup::Delayed(acquire) => return Ok(Output::Delay(acquire)),
                }
            };
        }
        Ok(Output::Send(bundle))
    }

    /// Whether a packet that arrived with these marks may go to this socket, or on: `ipsec_input_policy()`.
    ///
    /// # Errors
    /// Why not. It is to be dropped without an answer, and counted.
    pub fn input_policy(
        &self,
        traffic: &Traffic,
        marks: Marks,
        socket: Option<&Socket>,
    ) -> Result<(), DropReason> {
        let (levels, _) = self.levels(Direction::In, traffic, socket).ok_or(DropReason::Discarded)?;
        let demands = [
            (levels.authentication, marks.authentic, DropReason::NotAuthentic),
            (levels.transport_encryption, marks.decrypted, DropReason::NotEncrypted),
            (levels.tunnel_encryption, marks.decrypted_from_tunnel, DropReason::NotTunnelled),
        ];
        match demands.into_iter().find(|(level, is_so, _)| *level >= Level::Require && !is_so) {
            Some((_, _, reason)) => Err(reason),
            None => Ok(()),
        }
    }
}
