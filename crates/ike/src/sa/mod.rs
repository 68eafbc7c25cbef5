//! An IKE SA that both ends have authenticated: windows, retransmission, liveness, timers (RFC 7296 §2.1–2.4).
//!
//! The window is one request at a time, in each direction. What is to be asked waits in a queue of [`Task`]s.
//!
//! | module | subject |
//! |---|---|
//! | [`request`] | makes requests of tasks |
//! | [`response`] | takes the other end's responses |
//! | [`answer`] | answers the other end's requests |
//! | [`handover`] | children move to the IKE SA that replaces this one |
//! | [`reassign`] | another configuration is in force |
//! | [`silence`] | the other end does not answer |

mod answer;
#[cfg(test)]
mod fixture;
mod handover;
mod reassign;
mod request;
mod response;
mod silence;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::{Duration, Instant};

pub(crate) use self::request::{NONCE, Request, Task};
pub(crate) use self::response::wanted_group;
use crate::channel::{Channel, Opened};
use crate::child::{Agreed, Child, PeerRekey, Refusal, Surroundings};
use crate::config::{ChildIndex, PeerConfig, PeerIndex};
use crate::drops::DropReason;
use crate::event::{EndReason, Event, Nat, Path};
use crate::hint;
use crate::message::body::Identity;
use crate::message::builder::Builder;
use crate::message::{Message, ParseError, Payloads};
use crate::numbers::{ExchangeType, IkeSpi, MessageId, NotifyType, Spi};
use crate::output::{Context, Output};
use crate::random;

/// The first retransmission comes after this time, each later one after twice as long as the one before it.
pub(crate) const RETRANSMIT_FIRST: Duration = Duration::from_secs(1);
/// No longer than this between two of them.
const RETRANSMIT_LAST: Duration = Duration::from_secs(32);
/// RFC 7296 §2.4: at least a dozen times, over at least several minutes. These are four and a half.
pub(crate) const TRIES: u32 = 13;
/// An IKE SA that has ended is kept for so long, to repeat its last answer, should that have been lost.
const LINGER: Duration = Duration::from_secs(60);
/// An IKE SA that the other end has replaced is closed by that end: within the time for which it retransmits, since it may
/// still wait for the answer that tells it so.
const REPLACED_FOR: Duration = Duration::from_secs(320);
/// The mapping of a NAT is kept alive by a datagram in such intervals (RFC 3948 §4).
const KEEPALIVE: Duration = Duration::from_secs(20);
/// What this end has replaced is deleted after this time: packets of it may still be under way.
const GRACE: Duration = Duration::from_secs(1);
/// What was refused for the time being is asked again after this time, and up to as much more.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// Who is told for so long to come again later has lost track of what the other end does (RFC 7296 §2.25): longer than one of
/// the other end's own requests may take.
const BUSY_FOR: Duration = Duration::from_secs(320);
/// What could not be replaced in time ends when it is older than it should be by a tenth, or by this: time for a request
/// to fail, and for a few more.
const OVERTIME: Duration = Duration::from_secs(600);
/// Tasks that wait. A host that asks for more than this without looking has lost its way.
const MAX_TASKS: usize = 256;
/// Children that the other end may make. It bounds what an authenticated peer makes this end keep.
const MAX_CHILDREN: usize = 256;

/// How long to wait after so many tries.
pub(crate) fn retransmit_after(tries: u32) -> Duration {
    RETRANSMIT_FIRST.saturating_mul(1 << tries.saturating_sub(1).min(16)).min(RETRANSMIT_LAST)
}

/// A time, made earlier by up to a tenth, so that not everything happens at once, and the two ends seldom collide.
fn jittered(after: Duration, random: &mut dyn random::Random) -> Duration {
    let share = u32::from(random::bytes::<1>(random)[0]);
    after - after / 2550 * share
}

/// When something ends that is to be replaced after this time.
fn expiry(now: Instant, rekey_after: Duration) -> Option<Instant> {
    now.checked_add(rekey_after)?.checked_add((rekey_after / 10).max(OVERTIME))
}

/// What is to happen to another IKE SA.
#[derive(Debug)]
pub(crate) enum FollowUp {
    /// This one has come into being.
    Born(Box<IkeSa>),
    /// What moves to this one, which takes the place of the one that says so.
    Adopt { to: IkeSpi, heritage: Heritage },
}

/// What one IKE SA leaves to the one that takes its place.
#[derive(Debug)]
pub(crate) struct Heritage {
    pub(super) children: Vec<Child>,
    pub(super) tasks: VecDeque<Task>,
    pub(super) given: Vec<IpAddr>,
    pub(super) identity: Identity,
}

/// Who says where the two ends are (RFC 4555).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mobility {
    /// Nobody.
    None,
    /// This end, which has initiated the first of the IKE SAs that replaced each other.
    Leads,
    /// The other end.
    Follows,
}

/// Where an IKE SA is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// In use.
    Up,
    /// Another one has its children; the other end will delete it.
    Replaced {
        /// If it does not until then, this end does.
        until: Instant,
    },
    /// This end deletes it.
    Closing,
    /// It has ended, and only repeats its last answer.
    Ended {
        /// Until then.
        until: Instant,
    },
}

/// A request without a response so far.
#[derive(Debug)]
pub(crate) struct InFlight {
    id: MessageId,
    exchange: ExchangeType,
    datagrams: Vec<Vec<u8>>,
    tries: u32,
    again_at: Instant,
    request: Request,
}

/// An IKE SA.
#[derive(Debug)]
pub(crate) struct IkeSa {
    pub(crate) channel: Channel,
    pub(crate) peer: PeerIndex,
    pub(crate) identity: Identity,
    pub(crate) path: Path,
    pub(crate) nat: Nat,
    pub(crate) children: Vec<Child>,
    /// Addresses that the other end was given.
    pub(crate) given: Vec<IpAddr>,
    pub(crate) state: State,
    pub(crate) mobility: Mobility,
    /// When it came into being.
    pub(crate) since: Instant,
    /// The host knows of it.
    pub(crate) announced: bool,
    pub(crate) follow_ups: Vec<FollowUp>,
    tasks: VecDeque<Task>,
    later: Vec<(Instant, Task)>,
    next_id: MessageId,
    in_flight: Option<InFlight>,
    expected: MessageId,
    last_answer: Vec<Vec<u8>>,
    last_heard: Instant,
    /// The host was told that the other end does not answer.
    silent: bool,
    hinted_at: Option<Instant>,
    rekey_at: Option<Instant>,
    /// When it ends, replaced or not.
    expires_at: Option<Instant>,
    expired: bool,
    /// Since when the other end has nothing but TEMPORARY_FAILURE to say to what is asked for, and when it last said so. In a
    /// box, as few IKE SAs have it.
    busy: Option<Box<(Instant, Instant)>>,
    keepalive_at: Instant,
    rekeyed_by_peer: Option<PeerRekey<IkeSpi>>,
    /// Its children have gone to another one.
    replaced: bool,
}

/// Where the message IDs of an IKE SA begin, and the answer that may be asked for again.
pub(crate) struct Begin {
    pub(crate) next_id: MessageId,
    pub(crate) expected: MessageId,
    pub(crate) last_answer: Vec<Vec<u8>>,
}

impl Begin {
    /// After a rekey.
    pub(crate) fn anew() -> Self {
        Self { next_id: MessageId::ZERO, expected: MessageId::ZERO, last_answer: Vec::new() }
    }
}

impl IkeSa {
    pub(crate) fn new(
        channel: Channel,
        peer: PeerIndex,
        identity: Identity,
        (path, nat): (Path, Nat),
        begin: Begin,
        context: &mut Context<'_>,
    ) -> Self {
        let now = context.now;
        let rekey_after = context.config.peers.get(peer.0).map(|peer| peer.rekey_after);
        let rekey_at = rekey_after.and_then(|after| now.checked_add(jittered(after, context.random)));
        Self {
            channel,
            peer,
            identity,
            path,
            nat,
            children: Vec::new(),
            given: Vec::new(),
            state: State::Up,
            mobility: Mobility::None,
            since: now,
            announced: false,
            follow_ups: Vec::new(),
            tasks: VecDeque::new(),
            later: Vec::new(),
            next_id: begin.next_id,
            in_flight: None,
            expected: begin.expected,
            last_answer: begin.last_answer,
            last_heard: now,
            silent: false,
            hinted_at: None,
            rekey_at,
            expires_at: rekey_after.and_then(|after| expiry(now, after)),
            expired: false,
            busy: None,
            keepalive_at: now + KEEPALIVE,
            rekeyed_by_peer: None,
            replaced: false,
        }
    }

    /// Its name: this end's SPI.
    pub(crate) fn spi(&self) -> IkeSpi {
        self.channel.own_spi()
    }

    /// Whether it can be used.
    pub(crate) fn is_live(&self) -> bool {
        self.state == State::Up
    }

    /// The other end is there.
    pub(crate) fn saw_traffic(&mut self, now: Instant) {
        self.last_heard = self.last_heard.max(now);
        self.silent = false;
    }

    /// Begins with what waits, after a rekey.
    pub(crate) fn begin(&mut self, context: &mut Context<'_>) {
        self.start_next(context);
    }

    /// Whether a child of this configuration, in no other's place, is asked for and there is no answer so far.
    pub(crate) fn is_asked_for(&self, child: ChildIndex) -> bool {
        let flying = self.in_flight.as_ref().is_some_and(|flying| {
            matches!(&flying.request, Request::CreateChild { offer, old: None, .. } if offer.index == child)
        });
        let mut waiting = self.tasks.iter().chain(self.later.iter().map(|(_, task)| task));
        flying || waiting.any(|task| matches!(task, Task::CreateChild { index, .. } if *index == child))
    }

    /// Asks for something as soon as the window allows. False if too much waits already, or the end has come.
    pub(crate) fn ask(&mut self, task: Task, context: &mut Context<'_>) -> bool {
        if self.tasks.len() >= MAX_TASKS || matches!(self.state, State::Ended { .. } | State::Closing) {
            return false;
        }
        self.tasks.push_back(task);
        self.start_next(context);
        true
    }

    /// Goes on from another path, what is in flight as well. False if the other end would not follow.
    pub(crate) fn move_to(&mut self, path: Path, context: &mut Context<'_>) -> bool {
        if self.mobility != Mobility::Leads {
            return false;
        }
        self.path = path;
        if let Some(flying) = &mut self.in_flight {
            flying.again_at = context.now;
        }
        self.tasks.retain(|task| *task != Task::Move);
        self.tasks.push_front(Task::Move);
        self.start_next(context);
        true
    }

    /// A message with this end's SPI has come.
    pub(crate) fn receive(&mut self, message: &Message<'_>, path: Path, context: &mut Context<'_>) {
        let header = message.header();
        if !self.channel.is_from_peer(&header) {
            context.out.drops.count(DropReason::UnknownSpi);
        } else if header.is_response {
            self.receive_response(message, path, context);
        } else {
            self.receive_request(message, path, context);
        }
    }

    fn receive_request(&mut self, message: &Message<'_>, path: Path, context: &mut Context<'_>) {
        let header = message.header();
        if header.message_id.next() == Some(self.expected) && !self.last_answer.is_empty() {
            if self.channel.is_genuine_first(message) {
                context.out.send_all(path, &self.last_answer);
            } else {
                context.out.drops.count(DropReason::NotAuthentic);
            }
            return;
        }
        if header.message_id != self.expected || matches!(self.state, State::Ended { .. }) {
            context.out.drops.count(DropReason::OutsideWindow);
            return;
        }
        let (first, content) = match self.channel.open(message, context.now) {
            Ok(Opened::Whole(first, content)) => (first, content),
            Ok(Opened::Fragment) => return,
            Err(reason) => return context.out.drops.count(reason),
        };
        self.saw_traffic(context.now);
        self.follow_nat(path, context.out);

        let mut answer = Builder::new();
        let mut end = None;
        match Payloads::parse(first, &content) {
            Ok(payloads) => end = self.answer_request(&header, payloads, path, &mut answer, context),
            Err(ParseError::UnsupportedCritical(kind)) => {
                Refusal::critical(kind).write(&mut answer);
            }
            Err(_) => {
                answer.notify(NotifyType::INVALID_SYNTAX, &[]);
                end = Some(EndReason::Malformed);
            }
        }
        self.last_answer =
            self.channel.seal(header.exchange, true, header.message_id, &answer, context.random);
        context.out.send_all(path, &self.last_answer);
        match header.message_id.next() {
            Some(next) => self.expected = next,
            None => end = end.or(Some(EndReason::Exhausted)),
        }
        match end {
            Some(reason) => self.end(reason, context),
            None => self.start_next(context),
        }
    }

    fn receive_response(&mut self, message: &Message<'_>, path: Path, context: &mut Context<'_>) {
        let header = message.header();
        let awaited =
            |flying: &InFlight| flying.id == header.message_id && flying.exchange == header.exchange;
        if !self.in_flight.as_ref().is_some_and(awaited) {
            context.out.drops.count(DropReason::Unexpected);
            return;
        }
        let (first, content) = match self.channel.open(message, context.now) {
            Ok(Opened::Whole(first, content)) => (first, content),
            Ok(Opened::Fragment) => return,
            Err(_) if hint::is_of_unknown_ike_spi(message) && path.remote == self.path.remote => {
                context.out.drops.count(DropReason::Hint);
                return self.doubt_by_answer(context.out);
            }
            Err(reason) => return context.out.drops.count(reason),
        };
        self.saw_traffic(context.now);
        let Some(flying) = self.in_flight.take() else { return };
        let end = match Payloads::parse(first, &content) {
            Ok(payloads) => self.take_response(flying.request, payloads, context),
            Err(_) => Some(EndReason::Malformed),
        };
        match end {
            Some(reason) => self.end(reason, context),
            None => self.start_next(context),
        }
    }

    /// Without MOBIKE, an end behind a NAT is wherever its last genuine request came from (RFC 7296 §2.23).
    fn follow_nat(&mut self, path: Path, out: &mut Output) {
        let follows = self.mobility == Mobility::None && self.nat.remote && !self.nat.local;
        if follows && path != self.path && path.local == self.path.local {
            self.path = path;
            if self.announced {
                out.events.push_back(Event::PathChanged { ike: self.spi(), path, nat: self.nat });
            }
        }
    }

    /// The next time that something is to be done.
    pub(crate) fn deadline(&self, config: Option<&PeerConfig>) -> Option<Instant> {
        if let State::Ended { until } = self.state {
            return Some(until);
        }
        let replaced = match self.state {
            State::Replaced { until } => Some(until),
            _ => None,
        };
        let is_up = self.state == State::Up;
        let alive = config.filter(|_| is_up && self.in_flight.is_none());
        let times = [
            replaced,
            self.in_flight.as_ref().map(|flying| flying.again_at),
            self.rekey_at.filter(|_| is_up),
            self.expires_at.filter(|_| is_up),
            alive.and_then(|peer| self.last_heard.checked_add(peer.liveness_after)),
            (self.nat.local && is_up).then_some(self.keepalive_at),
            self.channel.deadline(),
        ];
        let times_of = |child: &Child| [child.rekey_at, child.expires_at];
        let children = self.children.iter().filter(|_| is_up).flat_map(times_of).flatten();
        let later = self.later.iter().map(|(at, _)| *at);
        times.into_iter().flatten().chain(children).chain(later).min()
    }

    /// Does what is due. Once it has ended and lingered, it is to be dropped.
    pub(crate) fn handle_timeout(&mut self, context: &mut Context<'_>) {
        let now = context.now;
        if matches!(self.state, State::Ended { .. }) {
            return;
        }
        self.channel.forget_fragments(now);
        if let Some(flying) = self.in_flight.as_mut().filter(|flying| flying.again_at <= now) {
            if flying.tries >= TRIES {
                return self.end(EndReason::NoAnswer, context);
            }
            flying.tries += 1;
            flying.again_at = now + retransmit_after(flying.tries);
            context.out.send_all(self.path, &flying.datagrams);
            self.doubt_by_silence(context.out);
        }
        let due = |at: &mut Option<Instant>| at.take_if(|at| *at <= now).is_some();
        if self.state == State::Up {
            let rekeyed = self.children.iter_mut().filter_map(|child| {
                due(&mut child.rekey_at).then_some(Task::RekeyChild { old: child.inbound_spi, group: None })
            });
            self.tasks.extend(rekeyed);
            self.expire_children(now, context.out);
            if due(&mut self.expires_at) {
                self.expired = true;
                self.tasks.clear();
                self.tasks.push_back(Task::DeleteIke);
            } else if due(&mut self.rekey_at) {
                self.tasks.push_back(Task::RekeyIke { group: None });
            }
            let liveness = context.config.peers.get(self.peer.0).map(|peer| peer.liveness_after);
            let heard = now.saturating_duration_since(self.last_heard);
            let silent = liveness.is_some_and(|after| heard >= after);
            if silent && self.in_flight.is_none() && self.tasks.is_empty() {
                self.tasks.push_back(Task::Liveness);
            }
            if self.nat.local && self.keepalive_at <= now {
                self.keepalive_at = now + KEEPALIVE;
                context.out.send_keepalive(self.path);
            }
        }
        if matches!(self.state, State::Replaced { until } if until <= now) {
            self.tasks.push_back(Task::DeleteIke);
            self.state = State::Up;
        }
        let (ready, later) = std::mem::take(&mut self.later).into_iter().partition(|(at, _)| *at <= now);
        self.later = later;
        let ready: Vec<(Instant, Task)> = ready;
        self.tasks.extend(ready.into_iter().map(|(_, task)| task));
        self.start_next(context);
    }

    /// Sends the next request, if none is in flight.
    fn start_next(&mut self, context: &mut Context<'_>) {
        while self.in_flight.is_none() && !matches!(self.state, State::Ended { .. }) {
            let Some(task) = self.tasks.pop_front() else { return };
            let Some((exchange, payloads, request)) = self.make_request(task, context) else { continue };
            let id = self.next_id;
            let Some(next) = id.next() else { return self.end(EndReason::Exhausted, context) };
            self.next_id = next;
            let datagrams = self.channel.seal(exchange, false, id, &payloads, context.random);
            context.out.send_all(self.path, &datagrams);
            let again_at = context.now + retransmit_after(1);
            self.in_flight = Some(InFlight { id, exchange, datagrams, tries: 1, again_at, request });
        }
    }

    /// Does a task again after a while.
    fn do_later(&mut self, task: Task, context: &mut Context<'_>) {
        let share = u32::from(random::bytes::<1>(context.random)[0]);
        self.later.push((context.now + TRY_AGAIN + TRY_AGAIN * share / 255, task));
    }

    /// Deletes this one after a while, since another one is there in its place.
    pub(crate) fn retire(&mut self, now: Instant) {
        self.later.push((now + GRACE, Task::DeleteIke));
    }

    /// Keeps a child that was agreed on, and tells the host.
    fn install(
        &mut self,
        agreed: Agreed,
        requested: bool,
        (initiator_nonce, responder_nonce): (&[u8], &[u8]),
        replaces: Option<Spi>,
        context: &mut Context<'_>,
    ) {
        self.busy = None;
        let now = context.now;
        let config = context.config.peers.get(self.peer.0).and_then(|peer| peer.children.get(agreed.index.0));
        let rekey_after = config.map(|child| child.rekey_after);
        let rekey_at = rekey_after.and_then(|after| now.checked_add(jittered(after, context.random)));
        self.children.push(Child {
            index: agreed.index,
            protocol: agreed.suite.protocol,
            inbound_spi: agreed.inbound_spi,
            outbound_spi: agreed.outbound_spi,
            rekey_at,
            expires_at: rekey_after.and_then(|after| expiry(now, after)),
            closing: false,
            rekeyed_by_peer: None,
        });
        let around = Surroundings {
            keys: &self.channel.keys,
            ike: self.spi(),
            peer: self.peer,
            path: self.path,
            nat: self.nat,
        };
        let new = agreed.associate(&around, requested, initiator_nonce, responder_nonce);
        context.out.events.push_back(match replaces {
            Some(old) => Event::ChildRekeyed { old, new },
            None => Event::ChildUp(new),
        });
    }

    /// The child of IKE_AUTH.
    pub(crate) fn install_first(
        &mut self,
        agreed: Agreed,
        requested: bool,
        nonces: (&[u8], &[u8]),
        context: &mut Context<'_>,
    ) {
        self.install(agreed, requested, nonces, None, context);
    }

    /// Forgets a child, and tells the host.
    fn remove(&mut self, inbound_spi: Spi, out: &mut Output) -> Option<Child> {
        let position = self.children.iter().position(|child| child.inbound_spi == inbound_spi)?;
        out.events.push_back(Event::ChildDown { ike: self.spi(), inbound_spi });
        Some(self.children.swap_remove(position))
    }

    /// Ends children that could not be replaced in time: no key is used for longer.
    fn expire_children(&mut self, now: Instant, out: &mut Output) {
        let expired = |child: &&Child| child.expires_at.is_some_and(|at| at <= now);
        while let Some(spi) = self.children.iter().find(expired).map(|child| child.inbound_spi) {
            let Some(child) = self.remove(spi, out) else { return };
            if !child.closing {
                self.tasks.push_front(Task::DeleteChild { protocol: child.protocol, spi });
            }
        }
    }

    /// Ends it with all that belongs to it, and tells the host.
    pub(crate) fn end(&mut self, reason: EndReason, context: &mut Context<'_>) {
        if matches!(self.state, State::Ended { .. }) {
            return;
        }
        self.hand_over_to_peers(context.out);
        for child in std::mem::take(&mut self.children) {
            context
                .out
                .events
                .push_back(Event::ChildDown { ike: self.spi(), inbound_spi: child.inbound_spi });
        }
        for address in std::mem::take(&mut self.given) {
            context.leases.give_back(address, &self.identity);
        }
        if std::mem::take(&mut self.announced) {
            let reason = if self.replaced { EndReason::Replaced } else { reason };
            context.out.events.push_back(Event::IkeDown { ike: self.spi(), reason });
        }
        self.in_flight = None;
        self.tasks.clear();
        self.later.clear();
        self.state = State::Ended { until: context.now + LINGER };
    }
}
