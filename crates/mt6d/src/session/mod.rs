//! A session: what two nodes have once a handshake is done (docs/protocol.md, "Session").
//!
//! It owns the session clock, the [`lane::Lanes`] with their endpoints and keys, the secrets of the current and (around a
//! rekey) the next generation, and everything learned about the path. It is driven by [`Session::poll`]
//! (time), [`Session::send`] (inner packets), [`Receiver::receive`] and [`Session::receive`] (datagrams) and the host's
//! word on endpoints. Its halves, [`Sender`] and [`Receiver`], carry packets on any thread.

mod activity;
mod clock;
mod contexts;
mod control_in;
mod control_out;
mod fast_in;
mod fast_out;
mod health;
mod lane;
mod liveness;
mod masking;
mod path_mtu;
mod poll;
mod reassembly;
mod rekey;
mod replay;
mod rewriting;
pub(crate) mod seal;
mod shape;
mod shape_out;

use std::collections::HashMap;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use ipnet::Ipv6Net;

use crate::births::{Births, Life};
use crate::config::{Padding, Shape};
use crate::control::Control;
use crate::endpoint::{self, Place};
use crate::env::Env;
use crate::handshake::{InitiatorState, LaneSecret, SessionSecret};
use crate::host_interface::{Action, HostInterface, Purpose};
use crate::id::{EndpointId, LaneId, PairingId, PeerId, SessionId};
use crate::kdf::Secret;
use crate::key_log::{Label, LaneKeys};
use crate::keys::Role;
use crate::limit::Limit;
use crate::mask::{Flow, MARK, MaskKey, MaskedLane};
use crate::offer::Cipher;
use crate::schedule::Schedule;
use crate::tier::TierEpoch;
use crate::time::Time;

pub(crate) use activity::Activity;
use activity::LaneActivity;
pub use activity::Traffic;
use clock::{RoundTrip, SessionClock};
pub(crate) use contexts::{KEPT as CONTEXTS_KEPT, Pair};
use contexts::{ReceiveContexts, SendContexts};
pub(crate) use control_in::Incoming;
use fast_in::Opening;
pub(crate) use fast_in::Receiver;
pub use fast_out::InnerMtu;
pub(crate) use fast_out::{Refusal, Sender};
use lane::{Lane, Lanes, State, Tickets};
use liveness::Liveness;
use path_mtu::PathMtu;
use reassembly::Reassembly;
pub(crate) use rekey::RekeyMessage;
use rewriting::Rewriting;
use seal::{OpeningKey, SealingKey};
pub(crate) use shape::Budget;
pub(crate) use shape::SIZE as SHAPE_SIZE;
use shape::Shaping;
pub use shape::{Delay, ShapeStatus};

/// An answer that took longer is refused.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// A session that nobody confirms is given up.
const CONFIRM_WITHIN: Duration = Duration::from_secs(10);
/// Rekeys that the peer may begin: this many at once, and one more after each pause. It waits ten seconds before another.
const REKEYS: (u32, Duration) = (4, Duration::from_secs(5));

/// What the two ends agreed on, seen from this one.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) cipher: Cipher,
    pub(crate) rotation: Duration,
    pub(crate) lanes: u8,
    pub(crate) padding: Padding,
    pub(crate) shape: Shape,
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
    /// Packets of this flow travel with a mask, and nothing else.
    pub(crate) mask: Option<Flow>,
    /// The peer's turn, where its key is another's, too.
    pub(crate) turn: Option<u64>,
}

/// Where a session stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Responder: endpoints are being opened; then the answer goes out.
    Responding,
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

/// What one handshake left: the secrets of all lanes that are born from some time on.
struct Generation {
    /// From when on, on the session clock.
    from: i64,
    sending: LaneSecret,
    receiving: LaneSecret,
    local_address: Secret,
    remote_address: Secret,
}

/// What all lanes of a session have in common.
struct Common {
    peer: PeerId,
    session: SessionId,
    /// What it is called in a key log.
    label: Label,
    role: Role,
    contexts: Arc<RwLock<ReceiveContexts>>,
    activity: Arc<Activity>,
}

impl Generation {
    fn new(from: i64, secret: &SessionSecret, role: Role) -> Self {
        Generation {
            from,
            sending: secret.lanes(role),
            receiving: secret.lanes(role.other()),
            local_address: secret.address(role),
            remote_address: secret.address(role.other()),
        }
    }

    /// Asks for the endpoint of a lane and makes its keys.
    fn lane(&self, life: Life, terms: &Terms, common: &Common, host: &mut HostInterface) -> Lane {
        let Common { peer, session, contexts, activity: of_session, .. } = common;
        let number = life.lane;
        let at = |key: &Secret, prefix| endpoint::derive(key, prefix, Place::Lane(number));
        let local = at(&self.local_address, terms.local_prefix);
        let remote = at(&self.remote_address, terms.remote_prefix);
        let keys = |secret: &LaneSecret, sender, from, to, host: &mut HostInterface| {
            let (data, header) = (secret.data(number), secret.header(number));
            let mask = terms.mask.map(|_| MaskKey::new(secret.mask(number)));
            if let Some(log) = &mut host.key_log {
                let (session, cipher) = (common.label, terms.cipher);
                let (data, header, mask) = (&data, &header, mask.as_ref());
                log.lane(&LaneKeys { session, sender, lane: number, cipher, from, to, data, header, mask });
            }
            (data, header, mask)
        };
        let (data, header, masks) = keys(&self.sending, common.role, local, remote, host);
        let sealing = SealingKey::new(terms.cipher, &data, &header, masks.clone());
        let (data, header, masked) = keys(&self.receiving, common.role.other(), remote, local, host);
        let opening = OpeningKey::new(terms.cipher, &data, &header, masked.as_ref());
        let activity = Arc::new(LaneActivity::new());
        let receiver = Receiver {
            peer: *peer,
            session: *session,
            opening: Opening::new(opening),
            contexts: contexts.clone(),
            remote_prefix: terms.remote_prefix,
            activity: of_session.clone(),
            lane: activity.clone(),
        };
        let purpose = Purpose::Data { session: *session, lane: number };
        if let Some((flow, key)) = terms.mask.zip(masked) {
            host.act(Action::AddMask(Box::new(MaskedLane { flow, lane: Flow { local, remote }, key })));
        }
        Lane {
            life,
            local,
            remote,
            state: State::Opening(host.open(*peer, purpose, local, Some(remote))),
            mask: terms.mask.zip(masks),
            sealing: Arc::new(sealing),
            receiver: Arc::new(receiver),
            activity,
            opener: None,
            openers: 0,
            tickets: Tickets { count: host.random(1..=4) as u8, salt: host.random(0..=u64::MAX - 1) },
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
}

/// Where a rekey stands.
#[expect(clippy::large_enum_variant, reason = "one for each session, and a handshake in most of its rekeys")]
enum Rekey {
    Idle,
    /// Our first message waits for its answer.
    Asked {
        id: u32,
        pending: Option<InitiatorState>,
        switch: i64,
        until: Time,
    },
    /// Our answer waits for its confirmation.
    Answered {
        id: u32,
        answer: Vec<u8>,
        generation: Option<Generation>,
        until: Time,
    },
    /// The peer has confirmed; it may not know yet that we know.
    Agreed {
        id: u32,
    },
}

/// A session with a peer.
pub(crate) struct Session {
    pub(crate) id: SessionId,
    /// The keys of both ends that it was made with, and that its keys are renewed with.
    pub(crate) pairing: PairingId,
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
    /// What its handshake told of the peer: to be believed once it is confirmed.
    pub(crate) learned: Learned,
    common: Common,
    /// What packets are sent with; see [`Session::update_sender`].
    sender: Sender,
    clock: SessionClock,
    lanes: Lanes,
    /// Those that lanes yet to be born come from, oldest first.
    generations: Vec<Generation>,
    send_contexts: SendContexts,
    /// Pairs whose packets travel with other addresses, if that was agreed on.
    rewriting: Option<Rewriting>,
    /// The lanes that masked packets leave by.
    masked_by: Vec<LaneId>,
    reassembly: Reassembly,
    rekey: Rekey,
    /// Rekeys that the peer begins.
    rekeys_begun: Limit,
    keyed: Time,
    /// When the next are due, once that was drawn.
    rekey_due: Option<Time>,
    reliable: Vec<Reliable>,
    next_id: u32,
    keepalive: Option<Duration>,
    /// Decides what leaves and when, if there is a shape.
    shaping: Option<Box<Shaping>>,
    liveness: Liveness,
}

/// What the peer's clock shows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerClock {
    /// Its CLOCK_REALTIME minus our CLOCK_BOOTTIME, in milliseconds.
    pub(crate) ahead_ms: i64,
    /// How long what told it was on its way at most, in milliseconds: it may show as much more.
    pub(crate) delay_ms: u64,
}

/// What a handshake tells of the peer beyond its session. A forged one tells anything; nobody confirms it.
#[derive(Debug, Default)]
pub(crate) struct Learned {
    /// Its CLOCK_REALTIME minus our CLOCK_BOOTTIME.
    pub(crate) clock: Option<PeerClock>,
    /// The epoch of its first message.
    pub(crate) accepted: Option<TierEpoch>,
}

/// What a new session begins with.
pub(crate) struct NewSession<'a> {
    pub(crate) peer: PeerId,
    /// The peer's.
    pub(crate) name: &'a str,
    pub(crate) pairing: PairingId,
    pub(crate) role: Role,
    pub(crate) initiated_by: Role,
    pub(crate) secret: &'a SessionSecret,
    pub(crate) terms: Terms,
    pub(crate) round_trip: Option<Duration>,
    pub(crate) learned: Learned,
    pub(crate) keepalive: Option<Duration>,
    /// What the peer's adaptive shape has spent, in whatever session.
    pub(crate) budget: &'a mut Option<Arc<Budget>>,
    /// Where packets are masked: the inner ends, ours and the peer's, of all keys that the two may use.
    pub(crate) masked: Vec<(Ipv6Addr, Ipv6Addr)>,
}

impl Session {
    /// Begins a session and asks for its first endpoints. The initiator's clock starts half a round trip back, when
    /// the responder sent its answer.
    pub(crate) fn begin(new: NewSession, now: Time, host: &mut HostInterface) -> Self {
        let NewSession { peer, name, pairing, role, initiated_by, secret, terms, .. } = new;
        let NewSession { round_trip, learned, keepalive, budget, masked, .. } = new;
        let interval = u64::try_from(terms.rotation.as_millis()).expect("an hour at most");
        let schedule = secret.schedule();
        let clock = SessionClock::starting(now - round_trip.unwrap_or_default() / 2);
        let ours = terms.stream.map(|(own, peer)| contexts::pair(own, peer));
        let theirs = terms.stream.map(|(own, peer)| contexts::pair(peer, own));
        let phase = if initiated_by == role { Phase::Confirming } else { Phase::Responding };
        let send_contexts = SendContexts::new(terms.contexts, ours, terms.rewrite);
        let activity = Arc::new(Activity::new(phase == Phase::Responding, now));
        let common = Common {
            peer,
            session: host.new_session(),
            label: secret.label(),
            role,
            contexts: Arc::new(RwLock::new(ReceiveContexts::new(theirs))),
            activity: activity.clone(),
        };
        if let Some(log) = &mut host.key_log {
            log.session(common.label, role, name);
            if let Some((own, peer)) = terms.stream {
                log.context(common.label, role, 0, own, peer);
                log.context(common.label, role.other(), 0, peer, own);
            }
        }
        let path_mtu = PathMtu::new(terms.mtu, now);
        let sender = Sender {
            lanes: Vec::new(),
            contexts: send_contexts.known_ones().clone(),
            padding: terms.padding,
            path_mtu: path_mtu.get(),
            stated_mtu: terms.mtu,
            remote_prefix: terms.remote_prefix,
            overhead: seal::OVERHEAD + if terms.mask.is_some() { MARK } else { 0 },
            whole: terms.rewrite,
            masked: masked.iter().map(|(own, peer)| contexts::pair(*own, *peer)).collect(),
            activity: activity.clone(),
        };
        let mut session = Session {
            id: common.session,
            pairing,
            initiated_by,
            phase,
            begun: now,
            activity,
            round_trip: RoundTrip::new(round_trip),
            path_mtu,
            rekeys: 0,
            counted: false,
            learned,
            sender,
            clock,
            lanes: Lanes::new(Births::new(*schedule, interval, terms.lanes)),
            generations: vec![Generation::new(i64::MIN, secret, role)],
            common,
            send_contexts,
            rewriting: terms.rewrite.then(|| {
                let schedule = Schedule::new(*schedule, interval);
                Rewriting::new(role, terms.local_prefix, terms.remote_prefix, schedule)
            }),
            masked_by: Vec::new(),
            reassembly: Reassembly::default(),
            rekey: Rekey::Idle,
            rekeys_begun: Limit::new(REKEYS.0, REKEYS.1, now),
            keyed: now,
            rekey_due: None,
            reliable: Vec::new(),
            next_id: 1,
            keepalive,
            shaping: Shaping::new(terms.shape, terms.lanes, budget, now, host).map(Box::new),
            liveness: Liveness::new(now, host),
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
        session.update_sender(now);
        session
    }

    /// Whether it may carry what we send.
    pub(crate) fn may_send(&self) -> bool {
        matches!(self.phase, Phase::Up | Phase::Confirming) && self.lanes.ready()
    }

    /// Whether its first endpoint is open.
    pub(crate) fn ready(&self) -> bool {
        self.lanes.ready()
    }

    /// The answer goes out now: the session clock begins.
    pub(crate) fn answered(&mut self, now: Time) {
        self.phase = Phase::Unconfirmed { openers: 0 };
        self.clock = SessionClock::starting(now);
        self.begun = now;
    }

    /// Takes over what may change without a new session.
    pub(crate) fn reconfigure(&mut self, keepalive: Option<Duration>) {
        self.keepalive = keepalive;
        self.pairs_changed();
    }

    /// Sends no more; receives until what is on its way has come.
    pub(crate) fn retire(&mut self, now: Time) {
        if !matches!(self.phase, Phase::Retiring { .. }) {
            let after = u64::try_from(self.overlap().after).expect("positive");
            self.phase = Phase::Retiring { until: now + Duration::from_millis(after) };
            self.reliable.clear();
            self.end_slots();
        }
    }

    /// Tells the peer that the session is over: at once, there are no more slots.
    pub(crate) fn close(&mut self, env: &mut Env) {
        if self.may_send() {
            self.shaping = None;
            self.send_control(0, &Control::Close, env);
        }
    }

    /// Closes all endpoints. The session must not be used any more.
    pub(crate) fn close_endpoints(&mut self, host: &mut HostInterface) {
        self.stop_masking(host);
        self.lanes.close(host);
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
        host: &mut HostInterface,
    ) -> Option<Time> {
        let (clock, overlap) = (self.clock.at(now), self.overlap());
        let expired = self.send_contexts.expire(now);
        let rewriting = self.rewriting.as_mut()?;
        let keys = |start| {
            let generation = generation(&self.generations, start);
            (generation.local_address.clone(), generation.remote_address.clone())
        };
        rewriting.open(clock, overlap, keys, host);
        if rewriting.changed || expired {
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
        rewriting.send(in_use, clock, now, host);
        let (at, sends) = rewriting.deadline(clock, overlap);
        let at = self.clock.time_of(at).max(now);
        Some(sends.map_or(at, |sends| at.min(sends)))
    }

    /// Packets crossed between two hosts with other addresses.
    pub(crate) fn count_rewritten(&self, inner: (Ipv6Addr, Ipv6Addr), traffic: &Traffic, now: Time) {
        self.send_contexts.used(&contexts::pair(inner.0, inner.1), now);
        self.activity.count_rewritten(traffic, now);
    }

    /// An endpoint is open.
    pub(crate) fn opened(&mut self, id: EndpointId, now: Time) {
        self.lanes.opened(id);
        self.update_sender(now);
    }

    /// An endpoint could not be opened. False if the session cannot go on: it is its first.
    #[must_use]
    pub(crate) fn open_failed(&mut self, id: EndpointId, host: &mut HostInterface) -> bool {
        self.lanes.open_failed(id, host) != Some(LaneId::FIRST)
    }

    /// Forgets secrets that nothing comes from any more.
    fn forget_old_secrets(&mut self) {
        let next =
            self.rewriting.as_ref().map_or(i64::MAX, Rewriting::next_start).min(self.lanes.next_birth());
        while self.generations.get(1).is_some_and(|second| second.from <= next) {
            self.generations.remove(0);
        }
    }

    /// The receiving half of a lane.
    pub(crate) fn receiver(&self, lane: LaneId) -> Option<&Arc<Receiver>> {
        Some(&self.lanes.get(lane)?.receiver)
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

    /// The lanes in use, as the status shows them: number, local and remote endpoint.
    pub(crate) fn endpoints(
        &self,
        now: Time,
    ) -> impl Iterator<Item = (LaneId, SocketAddrV6, SocketAddrV6)> + '_ {
        let clock = self.clock.at(now);
        let alive = self.lanes.usable(clock).filter(move |(lane, _)| lane.alive(clock));
        alive.map(|(lane, _)| (lane.life.lane, lane.local, lane.remote))
    }

    /// Until a lane is born or dies.
    pub(crate) fn next_rotation(&self, now: Time) -> Duration {
        self.clock.time_of(self.lanes.next_move(self.clock.at(now))).since(now)
    }

    /// How many lanes have been born since the first, and how many of ours had an endpoint that could not be opened.
    pub(crate) fn rotations(&self) -> (u64, u64) {
        (self.lanes.born, self.lanes.failed)
    }
}

/// The generation that what begins at `start` on the session clock belongs to.
fn generation(generations: &[Generation], start: i64) -> &Generation {
    generations.iter().rfind(|g| g.from <= start).expect("the first holds from the beginning")
}
