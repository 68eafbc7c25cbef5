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
use crate::association::{Mode, Protocol};
use crate::drops::DropReason;
use crate::key_engine::{AssociationId, KeyEngine, Lookup, SecurityError};
pub use crate::level::{Level, Levels, Socket};
use crate::marks::Marks;
use crate::request::{Request, Service};
use crate::selector::{Selector, Traffic, Upper};
use crate::{ah, esp};

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

/// The security policy database.
#[derive(Debug, Default)]
pub struct PolicyDatabase {
    rules: Vec<Rule>,
    system: Levels,
    generation: u64,
}

pub(crate) fn selectors_of_tunnel(rules: &[Rule], ends: (IpAddr, IpAddr)) -> Vec<Selector> {
    let is_its =
        |rule: &&Rule| matches!(rule.action, Action::Protect { tunnel: Some(tunnel), .. } if tunnel == ends);
    rules.iter().filter(is_its).map(|rule| rule.selector.clone()).collect()
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

    /// What the rules that name a tunnel by its ends select.
    pub fn selectors_of_tunnel(&self, ends: (IpAddr, IpAddr)) -> Vec<Selector> {
        selectors_of_tunnel(&self.rules, ends)
    }

    /// Puts in a rule behind the others.
    pub fn add(&mut self, rule: Rule) {
        self.generation += 1;
        self.rules.push(rule);
    }

    /// Takes away the rules of a direction and selector; returns whether there were any.
    pub fn delete(&mut self, direction: Direction, selector: &Selector) -> bool {
        self.generation += 1;
        let before = self.rules.len();
        self.rules.retain(|rule| rule.direction != direction || rule.selector != *selector);
        self.rules.len() < before
    }

    /// Takes away all rules.
    pub fn flush(&mut self) {
        self.generation += 1;
        self.rules.clear();
    }

    /// The levels for what no rule selects, and the least for what is to be protected.
    pub fn system_levels(&self) -> Levels {
        self.system
    }

    /// Sets them.
    pub fn set_system_levels(&mut self, levels: Levels) {
        self.generation += 1;
        self.system = levels;
    }

    /// Another number whenever a rule or the system's levels have changed: what was decided before is to be decided again.
    pub fn generation(&self) -> u64 {
        self.generation
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
        self.bundle(traffic, socket, |request, level| {
            if level == Level::Use {
                return Ok(engine.available(request, now).map(Lookup::Ready));
            }
            engine.lookup(request, now).map(Some)
        })
    }

    /// As [`output_policy`](Self::output_policy), for a packet that is worth no association of its own, such as an answer to
    /// a stranger: nobody is asked for what is missing, and the packet does not wait.
    ///
    /// # Errors
    /// [`SecurityError`] when it must not leave as it is.
    pub fn output_policy_without_asking(
        &self,
        engine: &KeyEngine,
        traffic: &Traffic,
        socket: Option<&Socket>,
        now: Instant,
    ) -> Result<Bundle, SecurityError> {
        let output = self.bundle(traffic, socket, |request, level| match engine.available(request, now) {
            None if level >= Level::Require => Err(SecurityError::NotAsked),
            found => Ok(found.map(Lookup::Ready)),
        })?;
        match output {
            Output::Send(bundle) => Ok(bundle),
            Output::Delay(_) => Err(SecurityError::NotAsked),
        }
    }

    /// How many bytes sealing adds at most to packets of a kind, and the far end of the tunnel that they go through if there
    /// is one: it is the path there that their size depends on. What is still missing counts as the longest there is.
    pub fn overhead(
        &self,
        engine: &KeyEngine,
        traffic: &Traffic,
        socket: Option<&Socket>,
        now: Instant,
    ) -> (usize, Option<IpAddr>) {
        let (mut bytes, mut far_end) = (0, None);
        // What is discarded has no size; what has been counted until then is as good as anything.
        let _ = self.bundle(traffic, socket, |request, level| {
            let found = engine.available(request, now);
            let is_tunnel = request.service.mode() == Mode::Tunnel;
            if let Some(association) = found.and_then(|id| engine.get(id)) {
                bytes += association.overhead();
                far_end = far_end.or(is_tunnel.then(|| association.parameters().destination));
            } else if level >= Level::Require {
                bytes += match request.service.protocol() {
                    Protocol::Ah => ah::MAX_HEADROOM,
                    Protocol::Esp => esp::MAX_HEADROOM + esp::MAX_TAILROOM,
                };
                far_end = far_end.or(request.tunnel.map(|(_, there)| there));
            }
            Ok(found.map(Lookup::Ready))
        });
        (bytes, far_end)
    }

    /// Asks for an association for each service that is wanted; `Ok(None)`: it is done without.
    fn bundle(
        &self,
        traffic: &Traffic,
        socket: Option<&Socket>,
        mut find: impl FnMut(&Request, Level) -> Result<Option<Lookup>, SecurityError>,
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
            *slot = match find(&request, level)? {
                Some(Lookup::Delayed(acquire)) => return Ok(Output::Delay(acquire)),
                Some(Lookup::Ready(id)) => Some(id),
                None => None,
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
