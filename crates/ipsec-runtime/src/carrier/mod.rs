//! A carrier: IKE, the key engine and policy together, without a device or a socket.
//!
//! Inner packets go in by [`Carrier::send`], and leave it as datagrams in the [outbox](Carrier::outbox). What sockets
//! receive goes in by [`Carrier::receive`], and comes out as inner packets by [`Deliver`]. [`Carrier::poll_event`] says what
//! else there is to do: find out where a peer is, or use the addresses that it has given.
//!
//! | file | subject |
//! |---|---|
//! | `event`, `received` | what it tells, and what it is given |
//! | `conversation`, `child`, `recent` | what it keeps of remotes, their children, and traffic |
//! | `conversations` | when IKE SAs are begun, and what becomes of them |
//! | `reconfigure` | another configuration |
//! | `moving` | this end gets another address |
//! | `keying` | children of IKE become associations of the key engine, its wishes become children |
//! | `outward`, `inward` | packets of IKE's tunnels |
//! | `whole` | packets of all other associations, as raw sockets have them |
//! | `by_hand` | associations and policies that are none of IKE's |
//! | `report` | what there is, for a status |

mod by_hand;
mod child;
mod conversation;
mod conversations;
mod event;
mod inward;
mod keying;
mod moving;
mod outward;
mod path_mtu;
mod received;
mod recent;
mod reconfigure;
mod report;
mod strangers;
#[cfg(test)]
mod tests;
mod whole;

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use config::ipsec::{IpsecConfig, Ports};
use ike::Endpoint;
use ike::event::Path;
use ike::random::Random;
use ipnet::IpNet;
use ipsec::association::Protocol;
use ipsec::key_engine::{AssociationId, KeyEngine};
use ipsec::policy::{PolicyDatabase, Rule};
use ipsec::request::DaemonId;

use crate::deliver::Deliver;
use crate::drops::{DropReason, Drops};
use crate::outbox::{Outbox, Via, Way};
use child::Child;
use conversation::Conversation;
pub use event::{Ends, Event, NotReached, RemoteIndex};
use path_mtu::{MIN_MTU, PathMtus};
pub use received::Received;
use recent::Recent;
pub use reconfigure::Kept;
use strangers::Strangers;

/// IKE's name among key daemons.
const IKE: DaemonId = DaemonId(0);

/// IKE, the key engine and policy.
pub struct Carrier<R> {
    ike: Endpoint<R>,
    engine: KeyEngine,
    /// The rules that count, of all that follow.
    policies: PolicyDatabase,
    /// Those of the configuration, and what its children stand for where that is no tunnel.
    own_rules: Vec<Rule>,
    child_rules: Vec<Rule>,
    /// Those by hand.
    by_hand: PolicyDatabase,
    /// Whether there are raw sockets for what does not go in UDP.
    has_raw: bool,
    /// Whether daemons beside IKE are to be told.
    tells_keys: bool,
    /// Of the next packet of IPv4 that has none.
    identification: u16,
    /// Whether a rule says more of what arrives than that it must come from a tunnel.
    judges_input: bool,
    config: ike::config::Config,
    conversations: Vec<Conversation>,
    /// By their inbound SPI.
    children: HashMap<u32, Child>,
    by_outbound: HashMap<AssociationId, u32>,
    /// Children that are over, and until when they are received from.
    late: VecDeque<(Instant, u32)>,
    ports: Ports,
    recent: Recent,
    strangers: Strangers,
    /// MTU of the ways to remotes, where it is less than that of the device that they leave by.
    path_mtus: PathMtus,
    link_mtu: u16,
    /// This end's addresses inside, for errors.
    own: Vec<IpAddr>,
    next_error: Instant,
    outbox: Outbox,
    events: VecDeque<Event>,
    drops: Drops,
    ipsec_drops: ipsec::drops::Drops,
    engine_deadline: Option<Instant>,
    /// When the first of the conversations begins, as of the last [`settle`](Self::settle).
    begins: Option<Instant>,
    scratch: Vec<u8>,
    ending: bool,
}

/// MTU until another is known.
const ETHERNET: u16 = 1500;

impl<R: Random> Carrier<R> {
    /// Of a configuration, with nothing begun: [`handle_timeout`](Self::handle_timeout) begins. `ports` are those that there
    /// are; without one of IKE, 0, all begins at the port that it shares with ESP.
    pub fn new(config: &IpsecConfig, ports: Ports, random: R, now: Instant) -> Self {
        Self::build(config, ports, random, now, false)
    }

    /// The same with raw sockets: AH, transport mode, and ESP outside of UDP are carried, too.
    pub fn with_raw(config: &IpsecConfig, ports: Ports, random: R, now: Instant) -> Self {
        Self::build(config, ports, random, now, true)
    }

    fn build(config: &IpsecConfig, ports: Ports, random: R, now: Instant, has_raw: bool) -> Self {
        let ike = ike_config(config, ports, has_raw);
        let mut engine = KeyEngine::new();
        // There is room for many.
        let registered = engine.register(IKE, Protocol::Esp);
        debug_assert_eq!(registered, Ok(()));
        let registered = engine.register(IKE, Protocol::Ah);
        debug_assert_eq!(registered, Ok(()));
        let mut policies = PolicyDatabase::new();
        policies.set_system_levels(config.levels);
        let conversations: Vec<_> =
            config.remotes.iter().map(|remote| Conversation::new(remote.clone(), now)).collect();
        let begins = conversations.iter().filter_map(Conversation::begins_at).min();
        let mut own: Vec<IpAddr> = config.addresses.iter().map(IpNet::addr).collect();
        own.dedup();
        let mut carrier = Self {
            ike: Endpoint::new(ike.clone(), random),
            engine,
            policies,
            own_rules: own_rules(config),
            child_rules: child_rules(config),
            by_hand: PolicyDatabase::new(),
            has_raw,
            tells_keys: false,
            identification: 1,
            judges_input: false,
            config: ike,
            conversations,
            children: HashMap::new(),
            by_outbound: HashMap::new(),
            late: VecDeque::new(),
            ports,
            recent: Recent::default(),
            strangers: Strangers::default(),
            path_mtus: PathMtus::default(),
            link_mtu: ETHERNET,
            own,
            next_error: now,
            outbox: Outbox::default(),
            events: VecDeque::new(),
            drops: Drops::default(),
            ipsec_drops: ipsec::drops::Drops::default(),
            engine_deadline: None,
            begins,
            scratch: Vec::new(),
            ending: false,
        };
        carrier.compose_policies();
        carrier
    }

    /// Says how long after the beginning of 1970 (UTC) it is now: certificates are valid for a time.
    pub fn set_wall_clock(&mut self, now: Instant, since_1970: std::time::Duration) {
        self.ike.set_wall_clock(now, since_1970);
    }

    /// What is to be sent; to be cleared when it was.
    pub fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    /// Something to do, if there is something.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called, if nothing else happens before.
    pub fn deadline(&self) -> Option<Instant> {
        let late = self.late.front().map(|(until, _)| *until);
        let narrow = self.path_mtus.deadline();
        [self.ike.deadline(), self.engine_deadline, self.begins, late, narrow].into_iter().flatten().min()
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant, deliver: &mut dyn Deliver) {
        self.ike.handle_timeout(now);
        if self.engine_deadline.is_some_and(|deadline| deadline <= now) {
            for _ in 0..self.engine.handle_timeout(now) {
                self.ipsec_drops.count(ipsec::drops::DropReason::NotKeyed);
            }
        }
        self.forget_late(now);
        if self.path_mtus.handle_timeout(now) {
            self.events.push_back(Event::Mtu);
        }
        self.begin_conversations(now);
        self.begin_children(now);
        self.settle(now, deliver);
    }

    /// Ends all IKE SAs; the other ends are told. What is sent meanwhile is in the outbox, and
    /// [`is_quiet`](Self::is_quiet) says when all have answered.
    pub fn end(&mut self, now: Instant, deliver: &mut dyn Deliver) {
        self.ending = true;
        for conversation in &self.conversations {
            for ike in conversation.ike_spis() {
                // One that is about to end anyway need not be told.
                let _ = self.ike.delete_ike(now, ike);
            }
        }
        self.settle(now, deliver);
    }

    /// Whether there is no IKE SA.
    pub fn is_quiet(&self) -> bool {
        self.conversations.iter().all(|conversation| conversation.ike_spis().next().is_none())
    }

    /// The MTU of what leads to the remotes.
    pub fn set_link_mtu(&mut self, mtu: u16) {
        self.link_mtu = mtu.max(MIN_MTU);
        self.events.push_back(Event::Mtu);
    }

    /// A packet to `remote` was longer than this machine's own device, or than somebody on the way has said that he carries:
    /// then `quoted` is what he says that it was (see [`path_mtu::is_ours`]), by the socket of `via`.
    pub fn too_big(&mut self, remote: IpAddr, mtu: u16, quoted: Option<&[u8]>, via: Via, now: Instant) {
        let mtu = mtu.max(MIN_MTU);
        if mtu >= self.path_mtu(remote) {
            return;
        }
        if quoted.is_some_and(|quoted| !path_mtu::is_ours(&self.engine, remote, via, quoted)) {
            return self.drops.count(DropReason::StrangeTooBig);
        }
        self.path_mtus.learn(remote, mtu, now);
        self.events.push_back(Event::Mtu);
    }

    /// The way of what IKE sends on a path.
    fn way(&self, path: &Path) -> Way {
        let via = if path.local.port() == self.ports.nat { Via::Nat } else { Via::Ike };
        Way { via, local: path.local.ip(), remote: path.remote }
    }

    /// The path of what came on a way.
    fn path(&self, way: &Way) -> Path {
        let port = if way.via == Via::Nat { self.ports.nat } else { self.ports.ike };
        Path { local: SocketAddr::new(way.local, port), remote: way.remote }
    }

    fn path_mtu(&self, remote: IpAddr) -> u16 {
        self.path_mtus.get(remote).map_or(self.link_mtu, |mtu| mtu.min(self.link_mtu))
    }

    /// Sends what IKE has to send.
    fn send_messages(&mut self) {
        while let Some(transmit) = self.ike.poll_transmit() {
            let way = self.way(&transmit.path);
            let size = transmit.payload.len();
            self.outbox.datagram(&way, 0, size).copy_from_slice(&transmit.payload);
        }
    }

    /// Carries on what has happened: events of IKE and of the key engine, what waited, what is to be sent.
    fn settle(&mut self, now: Instant, deliver: &mut dyn Deliver) {
        loop {
            if let Some(event) = self.ike.poll_event() {
                self.heard_of_ike(event, now);
            } else if let Some(event) = self.engine.next_event() {
                self.heard_of_engine(event, now);
            } else {
                break;
            }
        }
        self.send_messages();
        while let Some(mut released) = self.engine.next_released() {
            self.send_whole(&mut released.packet, now, deliver);
        }
        self.engine_deadline = self.engine.deadline();
        self.begins = self.conversations.iter().filter_map(Conversation::begins_at).min();
    }
}

/// The configuration of IKE, as it is carried.
fn ike_config(config: &IpsecConfig, ports: Ports, has_raw: bool) -> ike::config::Config {
    let mut ike = config.ike.clone();
    ike.nat_port = ports.nat;
    for (peer, remote) in ike.peers.iter_mut().zip(&config.remotes) {
        peer.nat_port = remote.ports.nat;
        // Without raw sockets there is no way for ESP but UDP, whatever is between the ends.
        peer.encapsulate = !has_raw || remote.encapsulate;
    }
    ike
}

fn own_rules(config: &IpsecConfig) -> Vec<Rule> {
    config.rules.iter().cloned().map(by_hand::stricter).collect()
}

fn child_rules(config: &IpsecConfig) -> Vec<Rule> {
    config.child_rules.iter().filter(|rule| by_hand::is_no_tunnel(rule)).cloned().collect()
}
