//! A node: all its peers, their timers, and the host's way to drive them.

mod meeting;
mod packet_workers;
mod table;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::net::{Ipv6Addr, SocketAddrV6};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ipnet::Ipv6Net;
use wire::virtio_net;
use zeroize::Zeroizing;

use crate::config::{ConfigError, NodeConfig, PeerConfig};
use crate::deliver::{Deliver, Discard};
use crate::drops::{AtomicDrops, DropReason, Drops};
use crate::env::{Env, Identity};
use crate::event::{PeerEvent, PeerState, SendFailure, Unheard};
use crate::host_interface::{Action, HostInterface, Purpose};
use crate::id::{EndpointId, PeerId};
use crate::key_log::KeyLog;
use crate::keys::{PublicKey, PublicPair};
use crate::mask::Flow;
use crate::outbox::Outbox;
use crate::packet_worker::Updates;
use crate::peer::{Peer, PeerMemory, PeerStatus, Wanted, wanted};
use crate::received::Received;
use crate::routes::{Routes, may_be_destination};
use crate::session::{InnerMtu, Traffic};
use crate::time::{Now, Time};
use table::Table;

/// A node tries to reach its peers for this long after its start: a peer that has a session with who was there
/// before learns of the restart, and stateful firewalls in front of both see each send.
const REACH_AT_START: Duration = Duration::from_secs(60);
/// At the start, and after a move, tries to reach the peers begin one after the other: each costs two ends the work of
/// a handshake. One for which there is traffic does not wait.
const PACE: Duration = Duration::from_millis(2);
/// Peers that one call of [`Node::handle_timeout`] serves: a tenth of a millisecond each at the worst, and packets wait.
const AT_ONCE: usize = 8;
/// A step of the wall clock by more than this changes where to listen at once.
const CLOCK_STEP_MS: u64 = 500;
/// How often the clocks are compared.
const CLOCK_CHECK: Duration = Duration::from_secs(1);
/// How often peers are told of a step, once at each comparison: any of it may be lost.
const CLOCK_TOLD: u8 = 3;
/// No slot for so long: there is no shape any more. Longer than any shape takes from one to the next.
const SLOTS_END: Duration = Duration::from_secs(10);

/// What drives the protocol: see the [crate] page for how a host uses it.
pub struct Node {
    own: Identity,
    peers: Table,
    /// Places in `peers` that are free, the lowest first.
    free: BinaryHeap<Reverse<PeerId>>,
    routes: Arc<Routes>,
    /// By their keys, those that may be met through others, or introduced.
    meeting: HashMap<PublicKey, PeerId>,
    /// What was known of pairs of keys that are not configured any more: they may come back, and with them what was recorded.
    gone: HashMap<PublicPair, PeerMemory>,
    /// When each peer wants to be polled: one entry each, see [`Node::wake`].
    timers: BTreeSet<(Time, PeerId)>,
    /// Peers whose inner MTU the host does not know yet, and such of which there is something to remember.
    new_mtus: BTreeSet<PeerId>,
    unsaved: BTreeSet<PeerId>,
    host: HostInterface,
    drops: Arc<AtomicDrops>,
    /// For those that carry packets beside the node, if there are any.
    workers: Option<Updates>,
    /// Wall clock minus boot clock when last looked at, in milliseconds.
    wall: i64,
    /// How often a step of it is still to be told to peers.
    clock_untold: u8,
    next_clock_check: Time,
    /// When a slot of a shape was last due; none if there was none.
    last_slot: Option<Time>,
}

impl Node {
    /// A node that begins to reach its peers. `entropy` gives 32 bytes of the best randomness there is, others each time:
    /// it is asked for each ephemeral key and each handshake's nonce. `memory`: what [`Node::memory`] told in an earlier life.
    pub fn new(
        config: NodeConfig,
        memory: &HashMap<PublicPair, PeerMemory>,
        entropy: impl FnMut() -> [u8; 32] + Send + 'static,
        now: Now,
    ) -> Result<Self, ConfigError> {
        config.check_values()?;
        let own_keys = config.own_keys();
        let pairings = |peer: PeerConfig| Ok((wanted(&own_keys, &peer, |_| false)?, peer));
        let peers = config.peers.into_iter().map(pairings).collect::<Result<Vec<_>, ConfigError>>()?;
        let own = Identity {
            hop_prefix: config.hop_prefix,
            link_mtu: config.link_mtu,
            hardware_aes: config.hardware_aes,
            addresses: config.addresses,
            rekey_after: config.rekey_after,
            turn: None,
        };
        let mut node = Node {
            own,
            peers: Table::default(),
            free: BinaryHeap::new(),
            routes: Arc::default(),
            meeting: HashMap::new(),
            gone: HashMap::new(),
            timers: BTreeSet::new(),
            new_mtus: BTreeSet::new(),
            unsaved: BTreeSet::new(),
            host: HostInterface::new(entropy),
            drops: Arc::default(),
            workers: None,
            wall: wall(now),
            clock_untold: 0,
            next_clock_check: now.boot + CLOCK_CHECK,
            last_slot: None,
        };
        node.add(peers, memory, now);
        node.route();
        Ok(node)
    }

    fn add(
        &mut self,
        peers: Vec<(Vec<Wanted>, PeerConfig)>,
        memory: &HashMap<PublicPair, PeerMemory>,
        now: Now,
    ) {
        let mut at = now.boot;
        for (pairings, config) in peers {
            let index = self.free.pop().map_or_else(|| self.peers.grow(), |Reverse(index)| index);
            let mut peer = Peer::new(index, config, pairings, memory, now);
            peer.reach_from(at, REACH_AT_START, now.boot);
            self.peers[index] = Some(peer);
            self.wake(index);
            at = at + PACE;
        }
    }

    fn route(&mut self) {
        let behind = self.peers.iter().map(|(i, p)| (i, p.config.allowed_ips.as_slice()));
        let hop_prefixes = self.peers.iter().map(|(_, p)| p.config.hop_prefix);
        let routes = Routes::new(behind, self.own.hop_prefix, hop_prefixes);
        self.routes = Arc::new(routes.replacing(&self.routes));
        let meeting = self.peers.iter().filter(|(_, peer)| peer.config.meets());
        self.meeting =
            meeting.flat_map(|(index, peer)| peer.config.keys().map(move |key| (key, index))).collect();
        if let Some(workers) = &mut self.workers {
            workers.routes_changed(&self.routes);
        }
    }

    /// Takes over another configuration. Peers that did not change, or only in what a session survives, keep their
    /// sessions; a new hopping prefix is moved to. A session ends with either of the keys that it was made with.
    pub fn reconfigure(
        &mut self,
        config: NodeConfig,
        now: Now,
        outbox: &mut Outbox,
    ) -> Result<(), ConfigError> {
        config.check_values()?;
        let own_keys = config.own_keys();
        let known: HashMap<PublicPair, PeerId> =
            self.peers.iter().flat_map(|(i, p)| p.pairs().map(move |pair| (pair, i))).collect();
        let stays = |new: &PeerConfig| {
            let index = new
                .pairs(&own_keys)
                .find_map(|(own, peer)| known.get(&PublicPair { own: own.public, peer }))?;
            survives(&self.peers.get(*index)?.config, new).then_some(*index)
        };
        let (mut staying, mut coming) = (HashMap::new(), Vec::new());
        // In the order of the file. What may fail is done before anything is changed.
        for peer in config.peers {
            match stays(&peer).filter(|index| !staying.contains_key(index)) {
                Some(index) => {
                    let has = |pair: &PublicPair| known.get(pair) == Some(&index);
                    staying.insert(index, (wanted(&own_keys, &peer, has)?, peer));
                }
                None => coming.push((wanted(&own_keys, &peer, |_| false)?, peer)),
            }
        }
        let moved = config.hop_prefix != self.own.hop_prefix;
        self.own.hop_prefix = config.hop_prefix;
        self.own.link_mtu = config.link_mtu;
        self.own.addresses = config.addresses;
        let mut gone = std::mem::take(&mut self.gone);
        for index in self.peers.ids() {
            match (&mut self.peers[index], staying.remove(&index)) {
                (None, _) => {}
                (Some(peer), Some((pairings, new))) => {
                    let (host, deliver) = (&mut self.host, &mut Discard);
                    let env = &mut Env { own: &self.own, routes: &self.routes, now, host, outbox, deliver };
                    peer.reconfigure(new, pairings, &mut gone, env);
                    self.wake(index);
                }
                (Some(_), None) => {
                    let mut peer = self.peers[index].take().expect("just seen");
                    if let Some(workers) = &mut self.workers {
                        workers.touch(index);
                    }
                    if let Some(at) = peer.timer {
                        self.timers.remove(&(at, index));
                    }
                    self.free.push(Reverse(index));
                    gone.extend(peer.memory(now));
                    let (host, deliver) = (&mut self.host, &mut Discard);
                    peer.end(&mut Env { own: &self.own, routes: &self.routes, now, host, outbox, deliver });
                }
            }
        }
        if moved {
            self.moved(now);
        }
        self.add(coming, &gone, now);
        self.gone = gone;
        self.route();
        Ok(())
    }

    /// The node takes turns with another that has the same key, and this is its turn: peers that have a session of a later one
    /// begin none with it. To be called before the node has a prefix; `None` if it is the only one.
    pub fn take_turn(&mut self, turn: Option<u64>) {
        self.own.turn = turn;
    }

    /// The node is at another hopping prefix from now on.
    pub fn move_to(&mut self, hop_prefix: Ipv6Net, now: Now) {
        self.own.hop_prefix = hop_prefix;
        self.route();
        self.moved(now);
    }

    fn moved(&mut self, now: Now) {
        let mut at = now.boot;
        for index in self.peers.ids() {
            if let Some(peer) = self.peers.get_mut(index) {
                match self.own.is_nowhere() {
                    true => peer.lost_place(now.boot, &mut self.host),
                    false => peer.moved(at, now.boot, &mut self.host),
                }
                self.wake(index);
                at = at + PACE;
            }
        }
    }

    /// Tries to reach a peer, by its configured name, for a minute; where there is a session, asks in it for some seconds
    /// whether the peer is there. False if there is none of that name.
    pub fn reach(&mut self, name: &str, now: Now) -> bool {
        let found = self.peers.iter().find(|(_, peer)| peer.config.name == name).map(|(index, _)| index);
        let Some((index, peer)) = found.and_then(|index| Some((index, self.peers.get_mut(index)?))) else {
            return false;
        };
        if peer.state(now.boot) == PeerState::Established {
            peer.watch(now.boot);
        } else {
            peer.reach_from(now.boot, REACH_AT_START, now.boot);
        }
        self.wake(index);
        true
    }

    /// The link towards the peers has another MTU: it bounds the path MTU of sessions that begin from now on.
    pub fn set_link_mtu(&mut self, link_mtu: u16) {
        self.own.link_mtu = link_mtu;
    }

    /// The machine may run twice from now on, or again from some time ago: it was restored from a snapshot, or cloned. All
    /// sessions end without a word, which would be sealed with a counter that was used, and others are begun.
    pub fn forget_sessions(&mut self, now: Now) {
        let mut at = now.boot;
        for index in self.peers.ids() {
            if let Some(peer) = self.peers.get_mut(index) {
                peer.forget_sessions(&mut self.host);
                peer.reach_from(at, REACH_AT_START, now.boot);
                self.wake(index);
                at = at + PACE;
            }
        }
    }

    /// Ends all sessions, telling the peers, and closes all endpoints.
    pub fn end(&mut self, now: Now, outbox: &mut Outbox) {
        self.timers.clear();
        for peer in self.peers.iter_mut() {
            let (host, deliver) = (&mut self.host, &mut Discard);
            peer.end(&mut Env { own: &self.own, routes: &self.routes, now, host, outbox, deliver });
        }
    }

    /// What the host is to do next; to be asked until there is nothing.
    pub fn next_action(&mut self) -> Option<Action> {
        self.host.next_action()
    }

    /// What has happened to peers since this was last asked, the oldest first; to be asked until there is nothing.
    pub fn next_event(&mut self) -> Option<PeerEvent> {
        self.host.next_event()
    }

    /// Whether there is something.
    pub fn has_actions(&self) -> bool {
        self.host.has_actions()
    }

    /// When [`Node::handle_timeout`] wants to be called.
    pub fn deadline(&self) -> Time {
        self.timers.first().map_or(self.next_clock_check, |(at, _)| (*at).min(self.next_clock_check))
    }

    /// Whether there are shapes, whose slots show it if they leave late.
    pub fn keeps_slots(&self, now: Time) -> bool {
        self.last_slot.is_some_and(|last| now.since(last) < SLOTS_END)
    }

    /// Does what time asks for, for a few peers at a time: where more are due, [`Node::deadline`] is now.
    pub fn handle_timeout(&mut self, now: Now, outbox: &mut Outbox, deliver: &mut dyn Deliver) {
        if now.boot >= self.next_clock_check {
            self.next_clock_check = now.boot + CLOCK_CHECK;
            let wall = wall(now);
            if wall.abs_diff(self.wall) > CLOCK_STEP_MS {
                self.clock_untold = CLOCK_TOLD;
                for index in self.peers.ids() {
                    if let Some(peer) = self.peers.get_mut(index) {
                        peer.next = now.boot;
                        self.wake(index);
                    }
                }
            }
            self.wall = wall;
            if let Some(left) = self.clock_untold.checked_sub(1) {
                self.clock_untold = left;
                let peers: Vec<_> = self.peers.ids().collect();
                for index in peers {
                    let Some(peer) = self.peers.get_mut(index) else { continue };
                    let host = &mut self.host;
                    let (own, routes) = (&self.own, &self.routes);
                    peer.say_wall_clock(&mut Env { own, routes, now, host, outbox, deliver });
                    self.wake(index);
                }
            }
        }
        for _ in 0..AT_ONCE {
            let Some(&(_, index)) = self.timers.first().filter(|(at, _)| *at <= now.boot) else { return };
            self.timers.pop_first();
            let Some(peer) = self.peers.get_mut(index) else { continue };
            peer.timer = None;
            if peer.next_slot.is_some() {
                self.last_slot = Some(now.boot);
            }
            let mut env =
                Env { own: &self.own, routes: &self.routes, now, host: &mut self.host, outbox, deliver };
            if peer.next > now.boot {
                peer.send_slots(&mut env);
                self.wake(index);
                continue;
            }
            peer.poll(&mut env);
            if peer.route_mtu_changed() {
                self.new_mtus.insert(index);
            }
            if peer.memory_changed(now) {
                self.unsaved.insert(index);
            }
            self.wake(index);
            self.meet(now, outbox, deliver);
        }
    }

    /// An endpoint that was asked for is open.
    pub fn opened(&mut self, id: EndpointId, now: Now) {
        let Some((index, purpose)) = self.host.purpose(id) else { return };
        if let Some(peer) = self.peers.get_mut(index) {
            peer.opened(id, purpose, now.boot);
            self.wake(index);
        }
    }

    /// An endpoint could not be opened, for instance because another program holds its port.
    pub fn open_failed(&mut self, id: EndpointId, now: Now) {
        let Some((index, purpose)) = self.host.purpose(id) else { return };
        if let Some(peer) = self.peers.get_mut(index) {
            peer.open_failed(id, purpose, now.boot, &mut self.host);
            self.wake(index);
        }
    }

    /// Takes an inner packet or GSO packet from the TUN device.
    pub fn send(
        &mut self,
        header: &virtio_net::Header,
        packet: &mut [u8],
        now: Now,
        outbox: &mut Outbox,
        deliver: &mut dyn Deliver,
    ) {
        let Ok((_, destination)) = wire::flow::addresses(packet) else {
            return self.drops.count(DropReason::Malformed);
        };
        // The kernel says hello on every device (router solicitations, multicast listener reports): nothing to count.
        if !may_be_destination(destination) {
            return;
        }
        let Some(index) = self.routes.peer(destination) else {
            return self.drops.count(DropReason::NoPeer);
        };
        let Some(peer) = self.peers.get_mut(index) else { return };
        if peer.in_hop_prefix(destination) {
            return self.drops.count(DropReason::NoPeer);
        }
        let before = peer.next;
        let mut env =
            Env { own: &self.own, routes: &self.routes, now, host: &mut self.host, outbox, deliver };
        peer.send(header, packet, &mut env);
        if peer.next != before || self.workers.is_some() {
            self.wake(index);
        }
    }

    /// Takes datagrams that lie in `arena`, where `received` says. They are decrypted in place.
    pub fn receive(
        &mut self,
        received: &Received,
        arena: &mut [u8],
        now: Now,
        outbox: &mut Outbox,
        deliver: &mut dyn Deliver,
    ) {
        let Some((index, purpose)) = self.host.purpose(received.endpoint) else {
            return self.drops.count(DropReason::Stale);
        };
        let Some(peer) = self.peers.get_mut(index) else { return };
        let before = peer.next;
        let mut env =
            Env { own: &self.own, routes: &self.routes, now, host: &mut self.host, outbox, deliver };
        peer.receive(purpose, received, arena, &mut env);
        if matches!(purpose, Purpose::Rendezvous(..)) && peer.memory_changed(now) {
            self.unsaved.insert(index);
        }
        if peer.next != before || self.workers.is_some() {
            self.wake(index);
        }
        self.meet(now, outbox, deliver);
    }

    /// So many packets crossed between two hosts, ours and the peer's, without coming to the node
    /// ([`Action::Replace`]). To be told every second or so, while there are some.
    pub fn count_rewritten(&mut self, inner: (Ipv6Addr, Ipv6Addr), traffic: &Traffic, now: Now) {
        let index = self.routes.peer(inner.1.into());
        if let Some(peer) = index.and_then(|index| self.peers.get_mut(index)) {
            peer.count_rewritten(inner, traffic, now.boot);
        }
    }

    /// The kernel did not take a datagram of an endpoint.
    pub fn send_failed(&mut self, endpoint: EndpointId, why: SendFailure, now: Now) {
        match self.host.purpose(endpoint).and_then(|(index, _)| self.peers.get_mut(index)) {
            Some(peer) => peer.send_failed(why, now.boot),
            None => self.drops.count(DropReason::SendFailed),
        }
    }

    /// Inner MTUs that have changed, each with the prefixes behind the peer.
    pub fn new_mtus(&mut self) -> impl Iterator<Item = (&[ipnet::IpNet], InnerMtu)> {
        let mut new = Vec::new();
        for index in std::mem::take(&mut self.new_mtus) {
            new.extend(self.peers.get_mut(index).and_then(Peer::new_route_mtu).map(|mtu| (index, mtu)));
        }
        let peers = &self.peers;
        new.into_iter().filter_map(|(i, mtu)| Some((peers.get(i)?.config.allowed_ips.as_slice(), mtu)))
    }

    /// What to remember over a restart, of the peers for which that has changed.
    pub fn memory(&mut self, now: Now) -> impl Iterator<Item = (PublicPair, PeerMemory)> {
        let (peers, changed) = (&mut self.peers, std::mem::take(&mut self.unsaved));
        changed.into_iter().filter_map(move |index| Some(peers.get_mut(index)?.new_memory(now))).flatten()
    }

    /// From now on has a line of a key log for each lane and envelope (docs/operations.md, "Key log"). With these, whoever
    /// has recorded the datagrams reads them: for debugging only.
    pub fn log_keys(&mut self, now: Now) {
        self.host.key_log.get_or_insert_with(|| KeyLog::new(now.boot));
    }

    /// The next of these lines, with its end.
    pub fn next_key_log_line(&mut self) -> Option<Zeroizing<String>> {
        self.host.key_log.as_mut()?.next()
    }

    /// All peers as they are.
    pub fn status(&self, now: Now) -> impl Iterator<Item = PeerStatus> {
        self.status_of(0..self.peers.places(), now)
    }

    /// As [`Node::status`], for those of the peers whose places are in the range, for a host with many of them that has
    /// packets to carry meanwhile. There are [`Node::places`] of them, some of which may be empty.
    pub fn status_of(&self, places: Range<usize>, now: Now) -> impl Iterator<Item = PeerStatus> {
        let places = places.start..places.end.min(self.peers.places());
        places.filter_map(move |place| Some(self.peers.get(PeerId(place))?.status(now)))
    }

    /// The other tunnel of each peer that may have one, by the peer's name, as it is in the session in use; None where none
    /// is masked.
    pub fn masked(&self) -> impl Iterator<Item = (&str, Option<Flow>)> {
        let may = self.peers.iter().filter(|(_, peer)| peer.config.mask.is_some());
        may.map(|(_, peer)| (peer.config.name.as_str(), peer.masked()))
    }

    /// Peers that are to be reached and are not heard.
    pub fn unheard(&self, now: Now) -> impl Iterator<Item = Unheard<'_>> {
        self.peers.iter().filter_map(move |(_, peer)| peer.unheard(now.boot))
    }

    /// Whether an endpoint of ours is at this address and port, or being opened there.
    pub fn is_at(&self, local: SocketAddrV6) -> bool {
        self.host.is_at(local)
    }

    /// Whether an endpoint of ours was at this address and port that was closed lately: among the last thousand.
    pub fn was_at(&self, local: SocketAddrV6) -> bool {
        self.host.was_at(local)
    }

    /// How many places for peers there are.
    pub fn places(&self) -> usize {
        self.peers.places()
    }

    /// What was dropped before it was known whose it is.
    pub fn drops(&self) -> Drops {
        self.drops.get()
    }

    /// The prefix that the node hops in.
    pub fn hop_prefix(&self) -> Ipv6Net {
        self.own.hop_prefix
    }

    /// How many endpoints are open or being opened.
    pub fn endpoints(&self) -> usize {
        self.host.count()
    }

    /// Sees that the peer is polled when it wants to be, and that workers are told of what was done with it.
    fn wake(&mut self, index: PeerId) {
        if let Some(workers) = &mut self.workers {
            workers.touch(index);
        }
        let Some(peer) = self.peers.get_mut(index) else { return };
        let due = peer.due();
        let before = peer.timer.replace(due);
        if before == peer.timer {
            return;
        }
        if let Some(before) = before {
            self.timers.remove(&(before, index));
        }
        self.timers.insert((due, index));
    }
}

/// Whether a pair's session outlives a change of configuration.
fn survives(old: &PeerConfig, new: &PeerConfig) -> bool {
    let changeable = PeerConfig {
        name: old.name.clone(),
        hop_prefix: old.hop_prefix,
        allowed_ips: old.allowed_ips.clone(),
        keepalive: old.keepalive,
        public_key: old.public_key,
        next_key: old.next_key,
        translated: old.translated,
        meet_through: old.meet_through.clone(),
        introduce: old.introduce.clone(),
        ..new.clone()
    };
    *old == changeable
}

fn wall(now: Now) -> i64 {
    now.unix_ms as i64 - (now.boot.micros() / 1000) as i64
}
