//! A peer: its sessions, the way to a new one, and the packets that wait for it.
//!
//! Invariants: an older session is kept until a younger one is confirmed by the other end. Where there are several at
//! once, because both ends began, `L` chooses (the one that was confirmed last, to it) and `H` follows: it sends on the
//! one on which it heard from `L` last, and keeps the others until it is clear that `L` does not use them.

mod meeting;
mod memory;
mod packets;
mod pairing;
mod pairings;
mod places;
mod rendezvous;
mod standing;
mod status;
mod told;

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddrV6};
use std::sync::Arc;
use std::time::Duration;

use ipnet::{IpNet, Ipv6Net};
use wire::ecn::Ecn;
use wire::virtio_net;

use crate::config::{PeerConfig, Shape};
use crate::contact::Attempts;
use crate::drops::{DropReason, Drops};
use crate::env::Env;
use crate::envelope::Mark;
use crate::event::{Ending, SendFailure};
use crate::host_interface::{HostInterface, Purpose};
use crate::id::{EndpointId, PairingId, PeerId, SessionId};
use crate::keys::PublicPair;
use crate::limit::Limit;
use crate::offer::Offer;
use crate::routes::may_be_destination;
use crate::session::{self, Budget, Health, InnerMtu, PeerClock, Phase, RekeyMessage, Session, Traffic};
use crate::time::{Now, Time};

use meeting::Meeting;
pub use memory::PeerMemory;
use pairing::Pairing;
pub(crate) use pairing::{Wanted, wanted};
pub use status::{LaneStatus, PeerStatus, SessionStatus};
use told::Told;

/// Traffic keeps tries going for this long.
const WANTED_FOR: Duration = Duration::from_secs(60);
/// `H` gives up a session that `L` does not use any more after this time.
const FORSAKEN_AFTER: Duration = Duration::from_secs(10);
/// A node that moved tries for this long to tell the peer, who cannot find it otherwise.
const MOVED_FOR: Duration = Duration::from_secs(600);
/// Handshakes that the peer may begin: this many at once, and one more after each pause. A try takes three seconds.
const HANDSHAKES: (u32, Duration) = (8, Duration::from_secs(1));
/// ICMP errors to inner senders: this many at once, and again after the pause (RFC 4443 section 2.4 f).
const ERRORS: (u32, Duration) = (50, Duration::from_millis(20));
/// Sessions of the peer's making that nobody confirmed yet.
const UNCONFIRMED: usize = 2;

/// An answer that leaves once its session's endpoints are open.
struct Answer {
    session: SessionId,
    from: EndpointId,
    to: SocketAddrV6,
    datagram: Vec<u8>,
}

/// An inner packet that waits for a session.
struct Queued {
    header: virtio_net::Header,
    packet: Vec<u8>,
    since: Time,
}

pub(crate) struct Peer {
    pub(crate) config: PeerConfig,
    pub(crate) next: Time,
    /// When a shape has something to send; not part of `next`, since it is often and nothing else is due then.
    pub(crate) next_slot: Option<Time>,
    /// What the node's table of timers has for it.
    pub(crate) timer: Option<Time>,
    index: PeerId,
    /// One at least, the one that is to last first.
    pairings: Vec<Pairing>,
    /// The next one's number.
    next_pairing: PairingId,
    /// The one of the session that was confirmed last.
    settled: PairingId,
    /// While there is a session of another pairing than the first, tries for a better one begin then.
    better: Time,
    attempts: Attempts,
    sessions: Vec<Session>,
    answers: Vec<Answer>,
    queue: VecDeque<Queued>,
    /// Where the peer is thought to be.
    remote_prefix: Ipv6Net,
    /// The peer's first message that was heard last, and our own last ones.
    heard: Mark,
    tried: VecDeque<Mark>,
    /// The peer's clock, if it was learned in this run.
    clock: Option<PeerClock>,
    /// How far it was ahead of ours in an earlier one, in milliseconds.
    clock_before: Option<i64>,
    /// Tries go on until then.
    wanted: Time,
    /// The session in use does not answer.
    silent: bool,
    errors: Limit,
    handshakes_begun: Limit,
    /// The inner MTU that the host was last told.
    route_mtu: Option<InnerMtu>,
    drops: Drops,
    /// Of sessions that are gone.
    past: Traffic,
    past_rewritten: Traffic,
    past_rotations: (u64, u64),
    handshakes: u64,
    /// When a session that is gone was heard last.
    last_heard: Option<Time>,
    /// Why the last session has ended, or will have, if nothing else is known.
    ending: Ending,
    told: Told,
    /// When the kernel last did not take a datagram, and why.
    send_failure: Option<(Time, SendFailure)>,
    /// When a message of a handshake came last, whatever was done with it.
    contact: Option<Time>,
    /// When a first message was refused last, and why.
    refused: Option<(Time, DropReason)>,
    meeting: Meeting,
    /// What an adaptive shape has spent, once there was one.
    budget: Option<Arc<Budget>>,
}

impl Peer {
    pub(crate) fn new(
        index: PeerId,
        config: PeerConfig,
        pairings: Vec<Wanted>,
        memory: &HashMap<PublicPair, PeerMemory>,
        now: Now,
    ) -> Self {
        let known = pairings.iter().find_map(|wanted| memory.get(&wanted.pair())).cloned();
        let known = known.unwrap_or_default();
        // What the user has written since counts for more.
        let remote_prefix = match known.hop_prefix {
            Some((configured, seen)) if configured == config.hop_prefix => seen,
            _ => config.hop_prefix,
        };
        let mut peer = Peer {
            next: now.boot,
            next_slot: None,
            timer: None,
            index,
            pairings: Vec::new(),
            next_pairing: PairingId::default(),
            settled: PairingId::default(),
            better: now.boot,
            attempts: Attempts::default(),
            sessions: Vec::new(),
            answers: Vec::new(),
            queue: VecDeque::new(),
            remote_prefix,
            heard: Mark::default(),
            tried: VecDeque::new(),
            clock: None,
            clock_before: known.clock_offset_ms,
            wanted: now.boot,
            silent: false,
            errors: Limit::new(ERRORS.0, ERRORS.1, now.boot),
            handshakes_begun: Limit::new(HANDSHAKES.0, HANDSHAKES.1, now.boot),
            route_mtu: None,
            drops: Drops::default(),
            past: Traffic::default(),
            past_rewritten: Traffic::default(),
            past_rotations: (0, 0),
            handshakes: 0,
            last_heard: None,
            ending: Ending::Dropped,
            told: Told::new(remote_prefix, now.boot),
            send_failure: None,
            contact: None,
            refused: None,
            meeting: Meeting::new(now.boot),
            budget: None,
            config,
        };
        peer.take_pairings(pairings, memory, &known, now.boot);
        peer
    }

    /// Tries to reach the peer at once, and goes on for `long`. A session that is being confirmed comes first.
    fn reach(&mut self, now: Time, long: Duration) {
        self.reach_from(now, long, now);
    }

    /// As [`Peer::reach`], but not before `from`.
    pub(crate) fn reach_from(&mut self, from: Time, long: Duration, now: Time) {
        self.wanted = self.wanted.max(from + long);
        if !self.confirming() {
            self.attempts.begin(from);
        }
        self.next = now;
    }

    /// Takes over a new configuration that the sessions survive, but for those of pairings that are not wanted any more.
    pub(crate) fn reconfigure(
        &mut self,
        config: PeerConfig,
        pairings: Vec<Wanted>,
        gone: &mut HashMap<PublicPair, PeerMemory>,
        env: &mut Env,
    ) {
        let now = env.now.boot;
        self.change_pairings(pairings, gone, env);
        if config.hop_prefix != self.config.hop_prefix {
            self.remote_prefix = config.hop_prefix;
        }
        // Routes that are new have no MTU yet.
        self.route_mtu = None;
        for session in &mut self.sessions {
            session.reconfigure(config.keepalive);
        }
        self.config = config;
        self.next = now;
    }

    /// This node moved to another hopping prefix: listen there, and tell the peer by a handshake from there, not before
    /// `from`.
    pub(crate) fn moved(&mut self, from: Time, now: Time, host: &mut HostInterface) {
        self.close_listeners(host);
        self.attempts.stop();
        while let Some(session) = self.sessions.iter().find(|s| s.phase == Phase::Confirming) {
            self.remove(session.id, host);
        }
        self.reach_from(from, MOVED_FOR, now);
    }

    /// This node has no hopping prefix any more: nothing comes in, and nothing may leave.
    pub(crate) fn lost_place(&mut self, now: Time, host: &mut HostInterface) {
        self.close_listeners(host);
        self.forget_sessions(host);
        for _ in self.queue.drain(..) {
            self.drops.count(DropReason::NoSession);
        }
        self.next = now;
    }

    /// Ends all sessions, and what leads to one, without a word.
    pub(crate) fn forget_sessions(&mut self, host: &mut HostInterface) {
        while let Some(session) = self.sessions.first() {
            self.remove(session.id, host);
        }
        self.attempts.stop();
        self.silent = false;
    }

    /// Ends all sessions, telling the peer, and closes all endpoints.
    pub(crate) fn end(&mut self, env: &mut Env) {
        if let Some(session) = self.sending() {
            session.close(env);
        }
        for mut session in std::mem::take(&mut self.sessions) {
            session.close_endpoints(env.host);
        }
        self.close_listeners(env.host);
        self.tell_end(env);
    }

    pub(crate) fn count(&mut self, reason: DropReason) {
        self.drops.count(reason);
    }

    fn kept(&self) -> bool {
        self.config.keepalive.is_some() || self.config.shape != Shape::None
    }

    /// Whether an address is one that the peer may hop to.
    pub(crate) fn in_hop_prefix(&self, address: IpAddr) -> bool {
        IpNet::V6(self.remote_prefix).contains(&address)
    }

    fn session(&mut self, id: SessionId) -> Option<&mut Session> {
        self.sessions.iter_mut().find(|s| s.id == id)
    }

    /// Whether the peer has answered, and we wait for its word that it knows that we know.
    fn confirming(&self) -> bool {
        self.sessions.iter().any(|s| s.phase == Phase::Confirming)
    }

    /// The session that carries what we send.
    fn sending(&mut self) -> Option<&mut Session> {
        let at = self.in_use()?;
        Some(&mut self.sessions[at])
    }

    /// Where it is: of those that can, the youngest at `L`, the one on which we heard from `L` last at `H`.
    fn in_use(&self) -> Option<usize> {
        let chooses = self.chooses();
        let since = |s: &Session| if chooses { s.begun } else { s.activity.last_received.get() };
        let usable = self.sessions.iter().enumerate().filter(|(_, s)| s.may_send());
        usable.max_by_key(|(_, s)| (since(s), s.id)).map(|(at, _)| at)
    }

    /// The inner MTU towards the peer, if it is known and has changed since it was last asked for.
    pub(crate) fn new_route_mtu(&mut self) -> Option<InnerMtu> {
        let mtu = self.route_mtu_now()?;
        (self.route_mtu.replace(mtu) != Some(mtu)).then_some(mtu)
    }

    /// Whether there is one.
    pub(crate) fn route_mtu_changed(&self) -> bool {
        self.route_mtu_now().is_some_and(|mtu| self.route_mtu != Some(mtu))
    }

    fn route_mtu_now(&self) -> Option<InnerMtu> {
        let session = self.in_use().map(|at| &self.sessions[at]).filter(|s| s.phase == Phase::Up)?;
        session.path_mtu.settled().then(|| session.route_mtu())
    }

    fn rekey(
        &mut self,
        id: SessionId,
        rekey: u32,
        message: &RekeyMessage,
        env: &mut Env,
    ) -> Result<(), DropReason> {
        let Some(at) = self.sessions.iter().position(|s| s.id == id) else { return Err(DropReason::Stale) };
        let offer = self.offer(env);
        let mut session = self.sessions.swap_remove(at);
        let parties = self.pairing(session.pairing).map(Pairing::parties);
        let good = parties.is_some_and(|parties| session.rekey_message(rekey, message, &parties, offer, env));
        self.sessions.push(session);
        if good { Ok(()) } else { Err(DropReason::HandshakeFailed) }
    }

    /// A session is confirmed. To `L` that is the choice: all others make way but those that may yet be confirmed. At both
    /// ends those make way that are of an earlier turn of the peer's.
    fn settle(&mut self, id: SessionId, now: Time) {
        let Some(session) = self.session(id) else { return };
        let (turn, pairing) = (session.terms.turn, session.pairing);
        if turn.is_some_and(|turn| self.is_over(turn, pairing)) {
            return self.session(id).into_iter().for_each(|session| session.retire(now));
        }
        let chooses = self.chooses();
        for session in &mut self.sessions {
            if session.id == id {
                self.remote_prefix = session.terms.remote_prefix;
                let learned = std::mem::take(&mut session.learned);
                self.clock = learned.clock.or(self.clock);
                self.settled = session.pairing;
                let pairing = self.pairings.iter_mut().find(|pairing| pairing.id == session.pairing);
                if let Some(pairing) = pairing {
                    pairing.turn = pairing.turn.max(turn.unwrap_or_default());
                    if let Some(at) = learned.accepted {
                        pairing.accepted[at.tier as usize] = at.epoch;
                    }
                }
                self.handshakes += u64::from(!std::mem::replace(&mut session.counted, true));
            } else if (chooses
                || turn.is_some_and(|turn| session.terms.turn.is_some_and(|other| other < turn)))
                && !matches!(session.phase, Phase::Responding | Phase::Unconfirmed { .. })
            {
                session.retire(now);
            }
        }
        self.attempts.stop();
        self.met();
        self.wanted = now;
        self.silent = false;
    }

    /// Whether the peer has begun another turn since this one.
    fn is_over(&self, turn: u64, pairing: PairingId) -> bool {
        self.pairing(pairing).is_some_and(|pairing| turn < pairing.turn)
    }

    /// An endpoint is open.
    pub(crate) fn opened(&mut self, id: EndpointId, purpose: Purpose, now: Time) {
        match purpose {
            Purpose::Rendezvous(pairing, at) => {
                if let Some(pairing) = self.pairing_mut(pairing) {
                    pairing.listeners.opened(at);
                }
            }
            Purpose::Data { session, .. } => {
                if let Some(session) = self.session(session) {
                    session.opened(id, now);
                }
            }
        }
        self.next = now;
    }

    /// An endpoint could not be opened.
    pub(crate) fn open_failed(
        &mut self,
        id: EndpointId,
        purpose: Purpose,
        now: Time,
        host: &mut HostInterface,
    ) {
        match purpose {
            Purpose::Rendezvous(pairing, at) => {
                if let Some(pairing) = self.pairing_mut(pairing) {
                    pairing.listeners.open_failed(at, host);
                }
                // A try has nowhere to leave from then; the next has another epoch, or finds the port free.
                self.attempts.current.take_if(|t| t.first.from == id);
            }
            Purpose::Data { session: id_of, .. } => {
                let Some(session) = self.session(id_of) else { return };
                if !session.open_failed(id, host) {
                    // Its first endpoint: a fresh handshake has others.
                    let ours = session.phase == Phase::Confirming;
                    self.remove(id_of, host);
                    if ours {
                        self.attempts.stop();
                        self.reach(now, WANTED_FOR);
                    }
                }
            }
        }
        self.next = now;
    }

    fn remove(&mut self, id: SessionId, host: &mut HostInterface) {
        let Some(at) = self.sessions.iter().position(|s| s.id == id) else { return };
        self.last_heard = self.last_heard();
        let mut session = self.sessions.swap_remove(at);
        session.close_endpoints(host);
        let (rotations, skips) = session.rotations();
        self.past_rotations = (self.past_rotations.0 + rotations, self.past_rotations.1 + skips);
        self.past.add(session.activity.traffic());
        self.past_rewritten.add(session.activity.rewritten());
        self.drops.add(&session.activity.drops.get());
        self.answers.retain(|a| a.session != id);
    }

    /// Does what is due, and sets when to be called again.
    pub(crate) fn poll(&mut self, env: &mut Env) {
        let now = env.now.boot;
        if env.own.is_nowhere() {
            self.attempts.stop();
            self.next = now + Duration::from_secs(3600);
            return self.tell(env);
        }
        let mut next = self.poll_listeners(env);
        next = next.min(self.poll_sessions(env));
        self.send_answers(env);
        self.poll_attempts(env);
        next = [self.poll_meeting(env), self.place_due()].into_iter().flatten().fold(next, Time::min);
        self.flush(env);
        next = next.min(self.rewrite(env));
        if let Some(better) = self.better_deadline(now) {
            next = next.min(better);
        }
        if let Some(attempt) = self.attempts.deadline(|first| self.open_at(first).is_some()) {
            next = next.min(attempt);
        }
        self.next = next.max(now + Duration::from_micros(100));
        self.next_slot = self.sessions.iter().filter_map(Session::next_slot).min();
        if self.route_mtu_changed() {
            env.deliver.mtu_changed();
        }
        self.tell(env);
    }

    /// When the peer wants to be called.
    pub(crate) fn due(&self) -> Time {
        self.next_slot.map_or(self.next, |slot| slot.min(self.next))
    }

    /// Sends what a shape has to send now.
    pub(crate) fn send_slots(&mut self, env: &mut Env) {
        for session in &mut self.sessions {
            session.send_slots(env);
        }
        self.next_slot = self.sessions.iter().filter_map(Session::next_slot).min();
    }

    fn poll_sessions(&mut self, env: &mut Env) -> Time {
        let now = env.now.boot;
        let mut next = now + Duration::from_secs(3600);
        let offer = (!self.sessions.is_empty()).then(|| self.offer(env));
        let mut over = Vec::new();
        let in_use = self.sending().map(|s| s.id);
        let mut sessions = std::mem::take(&mut self.sessions);
        for session in &mut sessions {
            let forsaken = session.phase == Phase::Up
                && now.since(session.activity.last_received.get()) >= FORSAKEN_AFTER;
            if forsaken && in_use != Some(session.id) {
                session.retire(now);
            }
            if session.phase == Phase::Up
                && let Some(offer) = &offer
                && let Some(pairing) = self.pairing(session.pairing)
            {
                session.rekey_if_due(&pairing.parties(), offer.clone(), now, env.host);
            }
            let (health, at) = session.poll(env);
            match health {
                Health::Over => {
                    self.ending = session.ending(now).unwrap_or(self.ending);
                    over.push(session.id);
                }
                Health::Silent => {
                    // Tries for a better session say nothing of whether the peer can be reached, nor do those of before it
                    // was heard last.
                    let heard = session.activity.last_received.get();
                    if !self.silent
                        && (now >= self.wanted || self.attempts.since().is_some_and(|since| since < heard))
                    {
                        self.attempts.stop();
                    }
                    self.silent = true;
                }
                Health::Good => {}
            }
            next = next.min(at);
        }
        self.sessions = sessions;
        self.clear_silence();
        if self.silent && self.attempts.tried_all_tiers(self.tiers()) {
            over.extend(self.sessions.iter().filter(|s| s.phase == Phase::Up).map(|s| s.id));
            (self.silent, self.ending) = (false, Ending::Lost);
        }
        for id in over {
            if let Some(session) = self.session(id).filter(|s| s.phase == Phase::Up) {
                session.close(env);
            }
            self.remove(id, env.host);
        }
        next
    }

    /// Replaces addresses, or has another tunnel's packets leave by the lanes, where that was agreed on. When to be called again.
    fn rewrite(&mut self, env: &mut Env) -> Time {
        let (now, routes) = (env.now.boot, env.routes);
        let unreachable = self.silent && self.attempts.slow();
        let in_use = self.in_use().filter(|_| !unreachable);
        let (index, prefix) = (self.index, self.remote_prefix);
        let allowed = |ours: Ipv6Addr, theirs: Ipv6Addr| {
            let ours_hops = routes.in_hop_prefix(ours.into()) || prefix.contains(&ours);
            routes.peer(theirs.into()) == Some(index) && may_be_destination(ours.into()) && !ours_hops
        };
        let mut next = now + Duration::from_secs(3600);
        // What one of them sends no more another may send.
        let others = (0..self.sessions.len()).filter(|at| Some(*at) != in_use);
        for at in others.chain(in_use).collect::<Vec<_>>() {
            let session = &mut self.sessions[at];
            session.mask(Some(at) == in_use, now, env.host);
            next =
                session.rewrite(Some(at) == in_use, allowed, now, env.host).map_or(next, |at| next.min(at));
        }
        next
    }

    fn send_answers(&mut self, env: &mut Env) {
        for at in (0..self.answers.len()).rev() {
            let id = self.answers[at].session;
            let Some(session) = self.sessions.iter_mut().find(|s| s.id == id) else { continue };
            if session.ready() {
                session.answered(env.now.boot);
                let answer = self.answers.swap_remove(at);
                if env.host.purpose(answer.from).is_some() {
                    let size = answer.datagram.len();
                    env.outbox
                        .datagram(answer.from, Some(answer.to), Ecn::NotEct, size)
                        .copy_from_slice(&answer.datagram);
                }
                self.next = env.now.boot;
            }
        }
    }

    /// The sender's side of an offer to the peer.
    fn offer(&self, env: &Env) -> Offer {
        let mut hosts = self.config.allowed_ips.iter();
        let stream = match (hosts.next(), hosts.next()) {
            (Some(IpNet::V6(only)), None) if only.prefix_len() == 128 => Some(only.addr()),
            _ => None,
        };
        Offer {
            unix_ms: None,
            aes: env.own.hardware_aes,
            rotation: self.config.rotation,
            lanes: self.config.lanes,
            padding: self.config.padding,
            shape: self.config.shape,
            hop_prefix: None,
            receive_mtu: env.own.link_mtu,
            stream,
            contexts: session::CONTEXTS_KEPT,
            observed: None,
            switch: None,
            rewrite: self.config.rewrite,
            mask: self.config.mask,
            turn: env.own.turn,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::ops::Range;
    use std::time::Duration;

    use wire::virtio_net;

    use super::packets::QUEUED_FOR;
    use crate::config::{NodeConfig, PeerConfig};
    use crate::event::PeerState;
    use crate::keys::PrivateKey;
    use crate::{Action, Deliver, Node, Now, Outbox, Time};

    const START: Time = Time::from_micros(1_000_000);

    struct Nothing;

    impl Deliver for Nothing {
        fn packet(&mut self, _: &[u8], _: &[u8], _: Range<usize>) {}
        fn whole_packet(&mut self, _: &[u8]) {}
    }

    fn now(boot: Time) -> Now {
        Now { boot, unix_ms: 1_800_000_000_000 + boot.micros() / 1000 }
    }

    /// A node whose only peer never answers.
    fn lonely() -> Node {
        let peer = PeerConfig::new(
            "away",
            PrivateKey::from_bytes([2; 32]).public(),
            "2001:db8:b1::/64".parse().unwrap(),
            vec!["2001:db8:b::/64".parse().unwrap()],
        );
        let config = NodeConfig {
            private_key: PrivateKey::from_bytes([1; 32]),
            previous_key: None,
            hop_prefix: "2001:db8:a1::/64".parse().unwrap(),
            link_mtu: 1500,
            hardware_aes: false,
            addresses: Vec::new(),
            rekey_after: crate::config::REKEY_AFTER,
            peers: vec![peer],
        };
        Node::new(config, &HashMap::new(), || [0; 32], now(START)).unwrap()
    }

    /// Lets time pass; how often the node wanted to be called.
    fn run(node: &mut Node, time: Duration, endpoints_open: bool) -> usize {
        let (mut boot, mut calls, mut outbox) = (START, 0, Outbox::new());
        while boot < START + time {
            while let Some(action) = node.next_action() {
                match action {
                    Action::Open { id, .. } if endpoints_open => node.opened(id, now(boot)),
                    Action::Open { id, .. } => node.open_failed(id, now(boot)),
                    Action::Close { .. }
                    | Action::AddRewrite(_)
                    | Action::RemoveRewrite(_)
                    | Action::Replace { .. }
                    | Action::AddMask(_)
                    | Action::RemoveMask { .. }
                    | Action::Mask { .. } => {}
                }
            }
            outbox.clear();
            boot = node.deadline().max(boot);
            node.handle_timeout(now(boot), &mut outbox, &mut Nothing);
            calls += 1;
        }
        calls
    }

    #[test]
    fn a_packet_for_a_peer_that_never_answers_does_not_keep_tries_going_for_ever() {
        let mut node = lonely();
        let mut packet = hex::decode("6000000000003b4020010db8000a00000000000000000001").unwrap();
        packet.extend(hex::decode("20010db8000b00000000000000000001").unwrap());
        node.send(&virtio_net::Header::NONE, &mut packet, now(START), &mut Outbox::new(), &mut Nothing);
        run(&mut node, QUEUED_FOR * 20, true);
        assert_eq!(node.status(now(START)).next().unwrap().state, PeerState::Idle);
    }

    #[test]
    fn a_try_whose_endpoint_cannot_be_opened_does_not_keep_the_node_awake() {
        let calls = run(&mut lonely(), Duration::from_secs(60), false);
        assert!(calls < 300, "{calls} in a minute");
    }
}
