//! A session: what two nodes have once a handshake is done (docs/protocol.md, "Session").
//!
//! It owns the session clock and schedule, a [`lane::Lane`] of endpoints for each lane, the keys of the current and
//! (around a rekey) the next generation, and everything learned about the path. It is driven by [`Session::poll`]
//! (time), [`Session::send`] (inner packets), [`Receiver::receive`] and [`Session::receive`] (datagrams) and the host's
//! word on endpoints. Its halves, [`Sender`] and [`Receiver`], carry packets on any thread.

mod activity;
mod clock;
mod contexts;
mod lane;
mod path_mtu;
mod reassembly;
mod receive;
mod receiver;
mod rekey;
mod replay;
mod rewriting;
pub(crate) mod seal;
mod send;
mod sender;

use std::collections::HashMap;
use std::net::Ipv6Addr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use ipnet::Ipv6Net;

use crate::config::Padding;
use crate::control::Control;
use crate::endpoint;
use crate::handshake::SessionSecret;
use crate::host::{EndpointId, Host, PeerIndex, Purpose, SessionId};
use crate::kdf::Secret;
use crate::keys::Role;
use crate::offer::Cipher;
use crate::outbox::Outbox;
use crate::schedule::Schedule;
use crate::time::Time;

pub(crate) use activity::Activity;
pub use activity::Traffic;
use clock::{RoundTrip, SessionClock};
pub(crate) use contexts::{KEPT as CONTEXTS_KEPT, Pair};
use contexts::{ReceiveContexts, SendContexts};
use lane::{Lane, Overlap, Slot, State};
use path_mtu::PathMtu;
use reassembly::Reassembly;
pub(crate) use receive::{Incoming, may_be_destination};
pub(crate) use receiver::{Datagrams, Receiver};
pub(crate) use rekey::RekeyMessage;
pub(crate) use rewriting::LONGEST_PREFIX;
use rewriting::Rewriting;
use seal::{OpeningKey, SealingKey};
pub use sender::InnerMtu;
use sender::LaneSender;
pub(crate) use sender::{Refusal, Sender};

/// An answer that took longer is refused.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// A session that nobody confirms is given up.
const CONFIRM_WITHIN: Duration = Duration::from_secs(10);
/// Data received and nothing sent for this long: padding is sent, so that the peer knows that we live.
const ANSWER_TRAFFIC_AFTER: Duration = Duration::from_secs(10);
/// Data sent and nothing received for this long: the peer may be gone.
const DEAD_AFTER: Duration = Duration::from_secs(15);
/// A session without inner traffic for this long ends.
const IDLE_AFTER: Duration = Duration::from_secs(180);
/// Traffic within this time keeps openers and probes going.
const BUSY_FOR: Duration = Duration::from_secs(60);
/// A stateful firewall forgets a flow after 30 s at the least.
const OPENER_AGAIN: Duration = Duration::from_secs(25);
/// How often the round trip is measured.
const ROUND_TRIP_EVERY: Duration = Duration::from_secs(10);
/// How often liveness is looked at.
const TICK: Duration = Duration::from_secs(1);
/// Openers that a responder sends before it is confirmed.
const OPENERS_UNCONFIRMED: u8 = 3;

/// What the two ends agreed on, seen from this one.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) cipher: Cipher,
    pub(crate) rotation: Duration,
    pub(crate) lanes: u8,
    pub(crate) padding: Padding,
    pub(crate) local_prefix: Ipv6Net,
    pub(crate) remote_prefix: Ipv6Net,
    /// The largest outer packet that the links of both ends take.
    pub(crate) mtu: u16,
    /// How many contexts the peer keeps for us.
    pub(crate) contexts: u16,
    /// The two protected hosts, ours first, where each end has but one.
    pub(crate) stream: Option<(Ipv6Addr, Ipv6Addr)>,
    /// Age at which keys are renewed.
    pub(crate) rekey_after: Duration,
    /// Packets of pairs that both know travel with other addresses, and nothing else.
    pub(crate) rewrite: bool,
}

/// Where a session stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Responder: endpoints are being opened; then the answer goes out.
    Answering,
    /// Responder: the answer is out, nothing was received yet.
    Unconfirmed { openers: u8 },
    /// Initiator: confirming; data may be sent.
    Confirming,
    /// Both have the keys.
    Up,
    /// Replaced or closed: receives what is still on its way.
    Retiring { until: Time },
}

/// What [`Session::poll`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    /// Nothing to worry about.
    Good,
    /// The peer does not answer: try to reach it anew, the session stays meanwhile.
    Silent,
    /// The session is over; to be removed.
    Over,
}

/// The keys of one handshake, in use from `from_epoch` on.
struct Generation {
    number: u32,
    from_epoch: u64,
    /// Of each lane.
    sealing: Vec<Arc<SealingKey>>,
    receivers: Vec<Arc<Receiver>>,
    local_address: Secret,
    remote_address: Secret,
}

/// What all generations of a session's keys have in common.
struct Common {
    peer: PeerIndex,
    session: SessionId,
    role: Role,
    contexts: Arc<RwLock<ReceiveContexts>>,
    activity: Arc<Activity>,
}

impl Generation {
    fn new(number: u32, from_epoch: u64, secret: &SessionSecret, terms: &Terms, common: &Common) -> Self {
        let Common { peer, session, role, contexts, activity } = common;
        let (cipher, role, other) = (terms.cipher, *role, role.other());
        let sealing = |lane| SealingKey::new(cipher, &secret.data(role, lane), &secret.header(role, lane));
        let receiver = |lane| {
            let key = OpeningKey::new(cipher, &secret.data(other, lane), &secret.header(other, lane));
            let prefix = terms.remote_prefix;
            Receiver::new(*peer, *session, key, contexts.clone(), prefix, activity.clone())
        };
        Generation {
            number,
            from_epoch,
            sealing: (0..terms.lanes).map(|lane| Arc::new(sealing(lane))).collect(),
            receivers: (0..terms.lanes).map(|lane| Arc::new(receiver(lane))).collect(),
            local_address: secret.address(role),
            remote_address: secret.address(other),
        }
    }
}

/// A control message that is sent until it is answered.
struct Reliable {
    id: u32,
    message: ReliableMessage,
    next: Time,
    pause: Duration,
    until: Time,
}

enum ReliableMessage {
    Confirm,
    RekeyFirst(Vec<u8>),
    Skip { lane: u8, epoch: u64 },
}

/// A session with a peer.
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) initiated_by: Role,
    pub(crate) phase: Phase,
    pub(crate) terms: Terms,
    pub(crate) begun: Time,
    pub(crate) activity: Arc<Activity>,
    pub(crate) round_trip: RoundTrip,
    pub(crate) path_mtu: PathMtu,
    pub(crate) rekeys: u64,
    /// Whether the peer has counted it among its handshakes.
    pub(crate) counted: bool,
    common: Common,
    /// What packets are sent with; see [`Session::update_sender`].
    sender: Sender,
    clock: SessionClock,
    schedule: Schedule,
    lanes: Vec<Lane>,
    generations: Vec<Generation>,
    next_generation: u32,
    send_contexts: SendContexts,
    /// Pairs whose packets travel with other addresses, if that was agreed on.
    rewriting: Option<Rewriting>,
    reassembly: Reassembly,
    rekey: rekey::Rekey,
    keyed: Time,
    reliable: Vec<Reliable>,
    next_id: u32,
    keepalive: Option<Duration>,
    cover: Option<Duration>,
    next_cover: Time,
    next_tick: Time,
    next_round_trip: Time,
}

/// What a new session begins with.
pub(crate) struct Beginning<'a> {
    pub(crate) peer: PeerIndex,
    pub(crate) role: Role,
    pub(crate) initiated_by: Role,
    pub(crate) secret: &'a SessionSecret,
    pub(crate) terms: Terms,
    pub(crate) round_trip: Option<Duration>,
    pub(crate) keepalive: Option<Duration>,
    /// Cover traffic, datagrams per second.
    pub(crate) cover: u32,
}

impl Session {
    /// Begins a session and asks for its first endpoints. The initiator's clock starts half a round trip back, when
    /// the responder sent its answer.
    pub(crate) fn begin(beginning: Beginning, now: Time, host: &mut Host) -> Self {
        let Beginning { peer, role, initiated_by, secret, terms, round_trip, keepalive, cover } = beginning;
        let interval = u64::try_from(terms.rotation.as_millis()).expect("an hour at most");
        let schedule = Schedule::new(*secret.schedule(), interval, terms.lanes);
        let clock = SessionClock::starting(now - round_trip.unwrap_or_default() / 2);
        let ours = terms.stream.map(|(own, peer)| contexts::pair(own, peer));
        let theirs = terms.stream.map(|(own, peer)| contexts::pair(peer, own));
        let phase = if initiated_by == role { Phase::Confirming } else { Phase::Answering };
        let send_contexts = SendContexts::new(terms.contexts, ours, terms.rewrite);
        let activity = Arc::new(Activity::new(terms.lanes, phase == Phase::Answering, now));
        let common = Common {
            peer,
            session: host.new_session(),
            role,
            contexts: Arc::new(RwLock::new(ReceiveContexts::new(theirs))),
            activity: activity.clone(),
        };
        let path_mtu = PathMtu::new(terms.mtu, now);
        let sender = Sender {
            lanes: vec![None; terms.lanes.into()],
            contexts: send_contexts.known_ones().clone(),
            padding: terms.padding,
            path_mtu: path_mtu.get(),
            stated_mtu: terms.mtu,
            remote_prefix: terms.remote_prefix,
            whole: terms.rewrite,
            activity: activity.clone(),
        };
        let mut session = Session {
            id: common.session,
            initiated_by,
            phase,
            begun: now,
            activity,
            round_trip: RoundTrip::new(round_trip),
            path_mtu,
            rekeys: 0,
            counted: false,
            sender,
            clock,
            lanes: (0..terms.lanes).map(|number| Lane::new(number, &schedule, 0)).collect(),
            schedule,
            generations: vec![Generation::new(0, 0, secret, &terms, &common)],
            common,
            next_generation: 1,
            send_contexts,
            rewriting: terms.rewrite.then(|| Rewriting::new(role, terms.local_prefix, terms.remote_prefix)),
            reassembly: Reassembly::default(),
            rekey: rekey::Rekey::Idle,
            keyed: now,
            reliable: Vec::new(),
            next_id: 1,
            keepalive,
            cover: (cover > 0).then(|| Duration::from_secs(1) / cover.max(1)),
            next_cover: now,
            next_tick: now + TICK,
            next_round_trip: now + TICK,
            terms,
        };
        if session.phase == Phase::Confirming {
            session.send_reliably(
                0,
                ReliableMessage::Confirm,
                now,
                Duration::from_millis(250),
                now + CONFIRM_WITHIN,
            );
        }
        session.poll_lanes(now, host);
        session.update_sender();
        session
    }

    /// Whether it may carry what we send.
    pub(crate) fn may_send(&self) -> bool {
        matches!(self.phase, Phase::Up | Phase::Confirming) && self.lanes.iter().any(Lane::ready)
    }

    /// Whether all first endpoints are open.
    pub(crate) fn ready(&self) -> bool {
        self.lanes.iter().all(Lane::ready)
    }

    /// The answer goes out now: the session clock begins.
    pub(crate) fn answered(&mut self, now: Time) {
        self.phase = Phase::Unconfirmed { openers: 0 };
        self.clock = SessionClock::starting(now);
        self.begun = now;
    }

    /// Takes over what may change without a new session.
    pub(crate) fn reconfigure(&mut self, keepalive: Option<Duration>, cover: u32) {
        self.keepalive = keepalive;
        self.cover = (cover > 0).then(|| Duration::from_secs(1) / cover.max(1));
        for receiver in self.generations.iter().flat_map(|g| &g.receivers) {
            receiver.forget_admitted();
        }
        self.pairs_changed();
    }

    /// Somebody claims that the peer cannot be reached: ask it, at the next tick.
    pub(crate) fn doubt_reachability(&mut self, now: Time) {
        self.next_round_trip = self.next_round_trip.min(now);
    }

    /// Sends no more; receives until what is on its way has come.
    pub(crate) fn retire(&mut self, now: Time) {
        if !matches!(self.phase, Phase::Retiring { .. }) {
            let after = u64::try_from(self.overlap().after).expect("positive");
            self.phase = Phase::Retiring { until: now + Duration::from_millis(after) };
            self.reliable.clear();
        }
    }

    /// Tells the peer that the session is over.
    pub(crate) fn close(&mut self, now: Time, host: &mut Host, outbox: &mut Outbox) {
        if self.may_send() {
            self.send_control(0, &Control::Close, now, host, outbox);
        }
    }

    /// Closes all endpoints. The session must not be used any more.
    pub(crate) fn dismantle(&mut self, host: &mut Host) {
        for lane in &mut self.lanes {
            lane.close(host);
        }
        if let Some(rewriting) = &mut self.rewriting {
            rewriting.close(host);
        }
    }

    /// Other pairs of addresses may be known than before.
    fn pairs_changed(&mut self) {
        if let Some(rewriting) = &mut self.rewriting {
            rewriting.changed = true;
        }
    }

    /// Whether [`Session::rewrite`] is to be called for pairs of addresses that are new.
    pub(crate) fn has_new_pairs(&self) -> bool {
        self.rewriting.as_ref().is_some_and(|rewriting| rewriting.changed)
    }

    /// Replaces addresses where that was agreed on: takes packets of all pairs that the peer may know and that are
    /// `allowed` (our host, the peer's), and, while this session is `in_use`, has packets sent of those that it does know.
    /// When to be called again.
    pub(crate) fn rewrite(
        &mut self,
        in_use: bool,
        allowed: impl Fn(Ipv6Addr, Ipv6Addr) -> bool,
        now: Time,
        host: &mut Host,
    ) -> Option<Time> {
        let (clock, overlap) = (self.clock.at(now), self.overlap());
        let faded = self.send_contexts.fade(now);
        let rewriting = self.rewriting.as_mut()?;
        let keys = |epoch| {
            let generation = self.generations.iter().rfind(|g| g.from_epoch <= epoch);
            let generation = generation.expect("keys outlive the endpoints that use them");
            (generation.local_address.clone(), generation.remote_address.clone())
        };
        rewriting.open(clock, overlap, &self.schedule, keys, host);
        if rewriting.changed || faded {
            let mut pairs: HashMap<Pair, bool> = self.send_contexts.pairs().collect();
            let theirs = self.common.contexts.read().unwrap_or_else(PoisonError::into_inner);
            pairs.extend(theirs.pairs().map(|theirs| {
                let (source, destination) = contexts::addresses(theirs);
                (contexts::pair(destination, source), true)
            }));
            drop(theirs);
            pairs.retain(|pair, _| {
                let (ours, theirs) = contexts::addresses(pair);
                allowed(ours, theirs)
            });
            rewriting.set_pairs(&pairs, now, host);
        }
        let in_use = in_use && self.phase == Phase::Up;
        rewriting.send(in_use, &self.schedule, clock, now, host);
        let (at, sends) = rewriting.deadline(clock, overlap, &self.schedule);
        let at = self.clock.time_of(at).max(now);
        Some(sends.map_or(at, |sends| at.min(sends)))
    }

    /// Packets crossed between two hosts with other addresses.
    pub(crate) fn crossed(&self, inner: (Ipv6Addr, Ipv6Addr), crossed: &Traffic, now: Time) {
        self.send_contexts.used(&contexts::pair(inner.0, inner.1), now);
        self.activity.crossed(crossed, now);
    }

    /// An endpoint is open.
    pub(crate) fn opened(&mut self, id: EndpointId, lane: u8, now: Time) {
        let now_ms = self.clock.at(now);
        self.lanes[usize::from(lane)].opened(id, now_ms);
        self.update_sender();
    }

    /// An endpoint could not be opened. False if the session cannot go on: it is its first.
    #[must_use]
    pub(crate) fn open_failed(&mut self, id: EndpointId, lane: u8, now: Time, host: &mut Host) -> bool {
        let now_ms = self.clock.at(now);
        let Some(epoch) = self.lanes[usize::from(lane)].open_failed(id, now_ms, host) else { return true };
        if !self.lanes[usize::from(lane)].ready() {
            return false;
        }
        self.update_sender();
        let message = ReliableMessage::Skip { lane, epoch };
        let id = self.new_id();
        self.send_reliably(
            id,
            message,
            now,
            Duration::from_millis(200),
            now + self.terms.rotation * 2 + DEAD_AFTER,
        );
        true
    }

    /// Does what is due. The outcome, and when to be called again.
    pub(crate) fn poll(&mut self, now: Time, host: &mut Host, outbox: &mut Outbox) -> (Health, Time) {
        let over = match self.phase {
            Phase::Retiring { until } => now >= until,
            Phase::Answering | Phase::Unconfirmed { .. } | Phase::Confirming => {
                now.since(self.begun) >= CONFIRM_WITHIN
            }
            Phase::Up => {
                !self.kept() && now.since(self.activity.last_inner.get()) >= IDLE_AFTER
                    || now.since(self.keyed) >= rekey::hard_limit(&self.terms)
            }
        };
        if over {
            return (Health::Over, now);
        }
        self.poll_lanes(now, host);
        self.send_openers(now, host, outbox);
        if matches!(self.phase, Phase::Up | Phase::Confirming) {
            self.send_due(now, host, outbox);
        }
        let mut health = Health::Good;
        if now >= self.next_tick {
            self.next_tick = now + TICK;
            if self.phase == Phase::Up {
                self.keep_alive(now, host, outbox);
                if self.activity.unanswered().is_some_and(|since| now.since(since) >= DEAD_AFTER) {
                    health = Health::Silent;
                }
            }
        }
        self.forget_old_keys();
        self.update_sender();
        (health, self.deadline(now))
    }

    /// Whether the session goes on without traffic.
    fn kept(&self) -> bool {
        self.keepalive.is_some() || self.cover.is_some()
    }

    fn busy(&self, now: Time) -> bool {
        self.kept() || now.since(self.activity.last_inner.get()) < BUSY_FOR
    }

    fn overlap(&self) -> Overlap {
        let rtt = self.round_trip.smoothed().as_millis() as i64;
        Overlap::new(self.schedule.interval_ms(), rtt)
    }

    fn deadline(&self, now: Time) -> Time {
        let now_ms = self.clock.at(now);
        let overlap = self.overlap();
        let lanes = self.lanes.iter().map(|l| self.clock.time_of(l.deadline(now_ms, overlap)));
        let phase = match self.phase {
            Phase::Retiring { until } => until,
            Phase::Up => self.path_mtu.deadline(),
            _ => self.begun + CONFIRM_WITHIN,
        };
        // What waits for the session to be one that may send is not due before.
        let due = self.reliable.iter().map(|r| r.next).chain(self.cover.map(|_| self.next_cover));
        let due = due.filter(|_| self.may_send());
        lanes.chain(due).fold(self.next_tick.min(phase), Time::min).max(now)
    }

    fn poll_lanes(&mut self, now: Time, host: &mut Host) {
        let now_ms = self.clock.at(now);
        let overlap = self.overlap();
        let retiring = matches!(self.phase, Phase::Retiring { .. });
        let Session { lanes, generations, terms, schedule, common: Common { peer, session, .. }, .. } = self;
        for lane in lanes {
            let number = lane.number;
            lane.poll(now_ms, overlap, schedule, host, |host, epoch, start| {
                let generation = generations
                    .iter()
                    .rfind(|g| g.from_epoch <= epoch)
                    .expect("the first holds from epoch 0");
                let at = |key: &Secret, prefix| endpoint::derive(key, prefix, epoch, number);
                let local = at(&generation.local_address, terms.local_prefix);
                let remote = at(&generation.remote_address, terms.remote_prefix);
                let purpose =
                    Purpose::Data { session: *session, lane: number, generation: generation.number, epoch };
                let opener = if epoch == 0 {
                    now_ms
                } else {
                    now_ms + host.random(overlap.before as u64 / 10..=overlap.before as u64 / 2) as i64
                };
                Slot {
                    epoch,
                    start,
                    generation: generation.number,
                    local,
                    remote,
                    state: State::Opening(host.open(*peer, purpose, local, Some(remote))),
                    opener: (!retiring).then_some(opener),
                }
            });
        }
    }

    /// Sends openers from all endpoints soon: a responder sends few before it knows that the peer is there.
    fn open_firewalls(&mut self, now: Time) {
        let now_ms = self.clock.at(now);
        for slot in self.lanes.iter_mut().flat_map(Lane::slots_mut) {
            if matches!(slot.state, State::Open(_)) && slot.start <= now_ms {
                slot.opener = Some(now_ms);
            }
        }
    }

    /// Sends the openers that are due from endpoints whose epoch is yet to come, so that the path's stateful
    /// firewalls see the inside send first.
    fn send_openers(&mut self, now: Time, host: &mut Host, outbox: &mut Outbox) {
        let now_ms = self.clock.at(now);
        let wanted = self.busy(now);
        let mut due = Vec::new();
        for lane in &mut self.lanes {
            let number = lane.number;
            for slot in lane.slots_mut().filter(|s| s.opener.is_some_and(|at| at <= now_ms)) {
                let State::Open(id) = slot.state else {
                    slot.opener = Some(now_ms + 10);
                    continue;
                };
                slot.opener = None;
                match &mut self.phase {
                    Phase::Unconfirmed { openers } if *openers < OPENERS_UNCONFIRMED => {
                        *openers += 1;
                        slot.opener = Some(now_ms + 300 * i64::from(*openers));
                    }
                    Phase::Up | Phase::Confirming if wanted => {}
                    Phase::Answering => {
                        slot.opener = Some(now_ms + 10);
                        continue;
                    }
                    _ => continue,
                }
                due.push((id, slot.generation, number));
            }
        }
        for (id, generation, lane) in due {
            self.send_control_from(id, generation, lane, 0, &Control::Opener, None, host, outbox);
        }
    }

    /// Repeats what was not answered, measures the path, rekeys, sends cover traffic.
    fn send_due(&mut self, now: Time, host: &mut Host, outbox: &mut Outbox) {
        self.reliable.retain(|r| now < r.until);
        for index in 0..self.reliable.len() {
            if self.reliable[index].next > now || !self.may_send() {
                continue;
            }
            let clock = self.clock.at(now);
            let reliable = &mut self.reliable[index];
            reliable.next = now + reliable.pause;
            reliable.pause = (reliable.pause * 3).min(Duration::from_secs(1)).max(reliable.pause);
            let id = reliable.id;
            // Taken out while it is sent: sending needs the whole session.
            let message = std::mem::replace(&mut reliable.message, ReliableMessage::Confirm);
            let control = match &message {
                ReliableMessage::Confirm => Control::Confirm { clock },
                ReliableMessage::RekeyFirst(noise) => Control::RekeyFirst(noise),
                ReliableMessage::Skip { lane, epoch } => Control::Skip { lane: *lane, epoch: *epoch },
            };
            if matches!(message, ReliableMessage::Confirm) {
                self.round_trip.asked(clock, now);
            }
            self.send_control(id, &control, now, host, outbox);
            self.reliable[index].message = message;
        }
        if self.phase == Phase::Up {
            self.probe_path(now, host, outbox);
        }
        while self.cover.is_some_and(|_| now >= self.next_cover) && self.may_send() {
            let pause = self.cover.expect("checked");
            self.next_cover =
                if now.since(self.next_cover) > TICK / 10 { now + pause } else { self.next_cover + pause };
            let size = self.cover_size(host);
            self.send_control_sized(0, &Control::Padding, size, now, host, outbox);
        }
    }

    fn probe_path(&mut self, now: Time, host: &mut Host, outbox: &mut Outbox) {
        let mut sizes = Vec::new();
        let busy = now.since(self.activity.last_inner.get()) < BUSY_FOR;
        self.path_mtu.poll(now, self.round_trip.smoothed(), busy, |size| sizes.push(size));
        for size in sizes {
            let id = self.new_id();
            self.send_control_sized(id, &Control::MtuProbe { size }, size, now, host, outbox);
        }
    }

    /// What liveness asks for, once a second.
    fn keep_alive(&mut self, now: Time, host: &mut Host, outbox: &mut Outbox) {
        let (received, sent) = (self.activity.last_received.get(), self.activity.last_sent.get());
        let owed = received > sent && now.since(sent) >= ANSWER_TRAFFIC_AFTER;
        let due = self.keepalive.is_some_and(|every| now.since(sent) >= every);
        if owed || due {
            self.send_control(0, &Control::Padding, now, host, outbox);
        }
        // Of packets with other addresses nothing comes back that proves anything: before one lost answer makes the
        // session seem silent it is asked for again.
        let again = self.rewriting.is_some()
            && self.activity.unanswered().is_some_and(|since| now.since(since) >= ROUND_TRIP_EVERY);
        if (now >= self.next_round_trip || again) && self.busy(now) {
            self.next_round_trip = now + ROUND_TRIP_EVERY;
            let id = self.new_id();
            let clock = self.clock.at(now);
            self.round_trip.asked(clock, now);
            self.send_control(id, &Control::RoundTrip { clock }, now, host, outbox);
            // Nothing else would tell that the peer of a session without inner traffic is gone.
            if self.kept() {
                self.activity.waits_for_answer(now);
            }
        }
        if self.busy(now) {
            for index in 0..self.lanes.len() {
                if now.since(self.activity.lane_sent[index].get()) < OPENER_AGAIN {
                    continue;
                }
                if let Some((slot, id)) = self.lanes[index].current() {
                    let (generation, lane) = (slot.generation, index as u8);
                    self.send_control_from(id, generation, lane, 0, &Control::Opener, None, host, outbox);
                    self.activity.lane_sent[index].set(now);
                }
            }
        }
    }

    fn forget_old_keys(&mut self) {
        let oldest = self.lanes.iter().filter_map(Lane::oldest_generation).min().unwrap_or(0);
        self.generations.retain(|g| g.number >= oldest);
    }

    fn generation(&self, number: u32) -> Option<&Generation> {
        self.generations.iter().find(|g| g.number == number)
    }

    /// The receiving half of a lane, under the keys of a generation.
    pub(crate) fn receiver(&self, lane: u8, generation: u32) -> Option<&Arc<Receiver>> {
        self.generation(generation)?.receivers.get(usize::from(lane))
    }

    /// The sending half.
    pub(crate) fn sender(&self) -> &Sender {
        &self.sender
    }

    fn new_id(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1).max(1);
        id
    }

    fn send_reliably(&mut self, id: u32, message: ReliableMessage, now: Time, pause: Duration, until: Time) {
        self.reliable.push(Reliable { id, message, next: now, pause, until });
    }

    fn answered_reliable(&mut self, id: u32, is: impl Fn(&ReliableMessage) -> bool) -> bool {
        let before = self.reliable.len();
        self.reliable.retain(|r| !(r.id == id && is(&r.message)));
        self.reliable.len() < before
    }

    /// The lanes as the status shows them: number, epoch, local and remote endpoint in use.
    pub(crate) fn endpoints(
        &self,
    ) -> impl Iterator<Item = (u8, u64, std::net::SocketAddrV6, std::net::SocketAddrV6)> + '_ {
        self.lanes.iter().filter_map(|l| l.current().map(|(s, _)| (l.number, s.epoch, s.local, s.remote)))
    }

    /// Until a lane moves next.
    pub(crate) fn next_rotation(&self, now: Time) -> Duration {
        let now_ms = self.clock.at(now);
        let next = self.lanes.iter().map(|l| l.next_start(now_ms)).min().unwrap_or(now_ms);
        self.clock.time_of(next).since(now)
    }

    /// Moves of all lanes, and epochs that were skipped.
    pub(crate) fn rotations(&self) -> (u64, u64) {
        (self.lanes.iter().map(|l| l.rotations).sum(), self.lanes.iter().map(|l| l.skips).sum())
    }
}
