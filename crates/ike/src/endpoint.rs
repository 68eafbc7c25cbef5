//! All IKE SAs of a host, by SPI: what arrives goes to the one that it belongs to, strangers are kept within bounds.

mod hints;
mod reconfigure;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use crate::census::Census;
pub use crate::census::{MAX_OF_SHARED_KEY, MAX_OF_SOURCE};
use crate::config::{ChildIndex, Config, PeerIndex};
use crate::cookie::Cookies;
use crate::drops::{DropReason, Drops};
use crate::event::{EndReason, Event, Path};
pub use crate::hint::HINTS_PER_SECOND;
use crate::hint::{self, Budget};
use crate::initiator::{Attempt, Wanted};
use crate::lease::Leases;
use crate::message::body::Identity;
use crate::message::{Header, Message, ParseError};
use crate::numbers::{ExchangeType, IkeSpi, NotifyType, Spi};
use crate::output::{Context, NON_ESP_MARKER, Output, Transmit};
pub use crate::places::{MAX_HALF_OPEN, MAX_HALF_OPEN_OF_SOURCE};
use crate::random::{Random, Spis};
use crate::responder::{Accepted, HalfOpen, stateless_answer};
use crate::sa::{FollowUp, Heritage, IkeSa, State, Task};
use crate::table::{Entry, Table};
pub use crate::table::{MAX_IKE_SAS, MAX_OF_IDENTITY};

/// Length of an answer of one notify with a byte of data: nothing shorter is answered, so that nobody is flooded through us.
const SHORT_ANSWER: usize = 37;

/// Why nothing was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// No peer or child of this index, or no algorithms.
    #[error("not configured")]
    NotConfigured,
    /// No such IKE SA or child, or it is about to end.
    #[error("no such IKE SA or child")]
    NotFound,
    /// Too much was asked before.
    #[error("too much waits")]
    Busy,
}

/// All IKE SAs of a host.
pub struct Endpoint<R> {
    table: Table,
    cookies: Cookies,
    hints_sent: Budget,
    hints_taken: Budget,
    surroundings: Surroundings<R>,
}

/// What all that happens needs.
struct Surroundings<R> {
    config: Config,
    random: R,
    clock: WallClock,
    spis: Spis,
    leases: Leases,
    out: Output,
}

impl<R: Random> Surroundings<R> {
    fn context<'a>(&'a mut self, now: Instant, census: &'a Census) -> Context<'a> {
        let Self { config, random, clock, spis, leases, out } = self;
        Context { now, unix_time: clock.at(now), config, random, spis, leases, census, out }
    }
}

/// The time of day, as it was at some instant.
#[derive(Debug, Clone, Copy, Default)]
struct WallClock(Option<(Instant, Duration)>);

impl WallClock {
    fn at(self, now: Instant) -> Option<Duration> {
        self.0.and_then(|(set, unix_time)| unix_time.checked_add(now.saturating_duration_since(set)))
    }
}

impl<R: Random> Endpoint<R> {
    /// One without any IKE SA so far.
    pub fn new(config: Config, mut random: R) -> Self {
        let (spis, out) = (Spis::new(&mut random), Output::new(config.nat_port));
        let (clock, leases) = Default::default();
        let surroundings = Surroundings { config, random, clock, spis, leases, out };
        let (table, cookies, hints_sent, hints_taken) = Default::default();
        Self { table, cookies, hints_sent, hints_taken, surroundings }
    }

    /// Says how long after the beginning of 1970 (UTC) it is now: certificates are valid for a time. To be said again when
    /// the clock was set.
    pub fn set_wall_clock(&mut self, now: Instant, since_1970: Duration) {
        self.surroundings.clock = WallClock(Some((now, since_1970)));
    }

    /// Begins an IKE SA, and the first child of the peer with it. Returns the IKE SA's name.
    pub fn initiate(&mut self, now: Instant, peer: PeerIndex, path: Path) -> Result<IkeSpi, AskError> {
        self.begin(now, Wanted { peer, path, replaces: None })
    }

    /// Begins an IKE SA in place of this one, with authentication anew (RFC 7296 §2.8.3); the old one is deleted
    /// once the new one is there. Returns the new one's name.
    pub fn reauthenticate(&mut self, now: Instant, ike: IkeSpi) -> Result<IkeSpi, AskError> {
        let sa = self.table.established(ike).filter(|sa| sa.is_live());
        let sa = sa.ok_or(AskError::NotFound)?;
        let (peer, path) = (sa.peer, sa.path);
        self.begin(now, Wanted { peer, path, replaces: Some(ike) })
    }

    /// Asks for a further child, unless it is asked for already.
    pub fn create_child(&mut self, now: Instant, ike: IkeSpi, index: ChildIndex) -> Result<(), AskError> {
        // Several packets may want the same at once.
        if self.table.established(ike).is_some_and(|sa| sa.is_live() && sa.is_asked_for(index)) {
            return Ok(());
        }
        self.ask(now, ike, |sa, config| {
            let peer = config.peers.get(sa.peer.0);
            let known = peer.is_some_and(|peer| index.0 < peer.children.len());
            if known { Ok(Task::CreateChild { index, group: None }) } else { Err(AskError::NotConfigured) }
        })
    }

    /// Replaces a child before its time, say because it has carried enough.
    pub fn rekey_child(&mut self, now: Instant, ike: IkeSpi, inbound_spi: Spi) -> Result<(), AskError> {
        self.ask(now, ike, |sa, _| {
            let known = sa.children.iter().any(|child| child.inbound_spi == inbound_spi && !child.closing);
            let task = Task::RekeyChild { old: inbound_spi, group: None };
            if known { Ok(task) } else { Err(AskError::NotFound) }
        })
    }

    /// Replaces an IKE SA before its time.
    pub fn rekey_ike(&mut self, now: Instant, ike: IkeSpi) -> Result<(), AskError> {
        self.ask(now, ike, |_, _| Ok(Task::RekeyIke { group: None }))
    }

    /// Deletes a child at both ends.
    pub fn delete_child(&mut self, now: Instant, ike: IkeSpi, inbound_spi: Spi) -> Result<(), AskError> {
        self.ask(now, ike, |sa, _| {
            let child = sa.children.iter().find(|child| child.inbound_spi == inbound_spi && !child.closing);
            let protocol = child.ok_or(AskError::NotFound)?.protocol;
            Ok(Task::DeleteChild { protocol, spi: inbound_spi })
        })
    }

    /// Deletes an IKE SA with its children at both ends, or gives one up that is not there yet.
    pub fn delete_ike(&mut self, now: Instant, ike: IkeSpi) -> Result<(), AskError> {
        if let Some(Entry::Attempt(attempt)) = self.table.get(ike) {
            let (peer, reason) = (attempt.peer, EndReason::Deleted);
            self.surroundings.out.events.push_back(Event::InitiationFailed { ike, peer, reason });
            self.table.forget(ike);
            return Ok(());
        }
        self.ask(now, ike, |_, _| Ok(Task::DeleteIke))
    }

    /// Asks the other end whether it is there, say because nothing comes from it any more. A request that it has not answered
    /// so far asks as well.
    pub fn check_liveness(&mut self, now: Instant, ike: IkeSpi) -> Result<(), AskError> {
        if self.table.established(ike).is_some_and(|sa| sa.is_live() && sa.is_asking()) {
            return Ok(());
        }
        self.ask(now, ike, |_, _| Ok(Task::Liveness))
    }

    /// Where the two ends of an IKE SA are, or of an attempt to have one.
    pub fn path(&self, ike: IkeSpi) -> Option<Path> {
        match self.table.get(ike)? {
            Entry::Attempt(attempt) => Some(attempt.path()),
            Entry::HalfOpen(_) => None,
            Entry::Established(sa) => sa.is_live().then_some(sa.path),
        }
    }

    /// Where the two ends of an IKE SA are, or were when it ended a moment ago.
    pub fn last_path(&self, ike: IkeSpi) -> Option<Path> {
        self.table.established(ike).map(|sa| sa.path)
    }

    /// Goes on from another address, to the other end's address in the path (MOBIKE, RFC 4555). Only the initiator can, and
    /// only if both ends are [`crate::config::PeerConfig::mobile`]. [`Event::PathChanged`] says that the other end has
    /// followed.
    pub fn move_to(&mut self, now: Instant, ike: IkeSpi, path: Path) -> Result<(), AskError> {
        let mut moved = false;
        self.with_entry(now, ike, |entry, context| {
            let Entry::Established(mut sa) = entry else { return Some(entry) };
            moved = sa.is_live() && sa.move_to(path, context);
            Some(Entry::Established(sa))
        });
        if moved { Ok(()) } else { Err(AskError::NotFound) }
    }

    /// Says that a packet of one of its children has come, which shows that the other end is there: it need not be asked then
    /// (RFC 7296 §2.4). Once in a few seconds is enough: this is not for each packet.
    pub fn saw_traffic(&mut self, now: Instant, ike: IkeSpi) {
        self.with_entry(now, ike, |mut entry, _| {
            if let Entry::Established(sa) = &mut entry {
                sa.saw_traffic(now);
            }
            Some(entry)
        });
    }

    /// The UDP payload of a datagram that came from `path.remote` to `path.local`. On [`Config::nat_port`] ESP comes in the
    /// same way: a host keeps what does not begin with four zero bytes for itself.
    pub fn receive(&mut self, now: Instant, path: Path, datagram: &[u8]) {
        let mut bytes = datagram;
        if path.local.port() == self.surroundings.config.nat_port {
            match datagram.strip_prefix(&NON_ESP_MARKER) {
                Some(message) => bytes = message,
                None => return self.surroundings.out.drops.count(DropReason::NotIke),
            }
        }
        match Message::parse(bytes) {
            Ok(message) => self.dispatch(now, path, &message),
            Err(error) => self.refuse_unparsed(now, path, bytes, error),
        }
    }

    /// A datagram to send, if there is one.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.surroundings.out.datagrams.pop_front()
    }

    /// Something that has happened, if there is something. Take it before [`Endpoint::poll_transmit`].
    pub fn poll_event(&mut self) -> Option<Event> {
        self.surroundings.out.events.pop_front()
    }

    /// When [`Endpoint::handle_timeout`] is to be called, if nothing else happens before.
    pub fn deadline(&self) -> Option<Instant> {
        self.table.deadline()
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(ike) = self.table.pop_due(now) {
            let lingered = |sa: &IkeSa| matches!(sa.state, State::Ended { until } if until <= now);
            if self.table.established(ike).is_some_and(lingered) {
                self.table.forget(ike);
                continue;
            }
            self.with_entry(now, ike, |entry, context| match entry {
                Entry::Attempt(mut attempt) => match attempt.handle_timeout(context) {
                    None => Some(Entry::Attempt(attempt)),
                    Some(reason) => {
                        let (ike, peer) = (attempt.spi(), attempt.peer);
                        context.out.events.push_back(Event::InitiationFailed { ike, peer, reason });
                        None
                    }
                },
                Entry::HalfOpen(half_open) => {
                    (half_open.deadline() > context.now).then_some(Entry::HalfOpen(half_open))
                }
                Entry::Established(mut sa) => {
                    sa.handle_timeout(context);
                    Some(Entry::Established(sa))
                }
            });
        }
    }

    /// Why datagrams went no further.
    pub fn drops(&self) -> &Drops {
        &self.surroundings.out.drops
    }

    /// Initiators that have not authenticated themselves so far.
    pub fn half_open(&self) -> usize {
        self.table.places.len()
    }

    fn begin(&mut self, now: Instant, wanted: Wanted) -> Result<IkeSpi, AskError> {
        let mut context = self.surroundings.context(now, &self.table.census);
        let attempt = Attempt::new(wanted, &mut context).ok_or(AskError::NotConfigured)?;
        let ike = attempt.spi();
        self.keep(ike, Entry::Attempt(Box::new(attempt)));
        Ok(ike)
    }

    fn ask(
        &mut self,
        now: Instant,
        ike: IkeSpi,
        task: impl FnOnce(&IkeSa, &Config) -> Result<Task, AskError>,
    ) -> Result<(), AskError> {
        let sa = self.table.established(ike).filter(|sa| sa.is_live());
        let task = task(sa.ok_or(AskError::NotFound)?, &self.surroundings.config)?;
        let mut asked = false;
        self.with_entry(now, ike, |entry, context| {
            let Entry::Established(mut sa) = entry else { return Some(entry) };
            asked = sa.ask(task, context);
            Some(Entry::Established(sa))
        });
        if asked { Ok(()) } else { Err(AskError::Busy) }
    }

    fn dispatch(&mut self, now: Instant, path: Path, message: &Message<'_>) {
        let header = message.header();
        let begins = header.exchange == ExchangeType::IKE_SA_INIT && !header.is_response;
        if begins {
            if header.from_initiator
                && header.responder_spi == IkeSpi::ZERO
                && header.initiator_spi != IkeSpi::ZERO
                && header.message_id.0 == 0
            {
                self.answer_init(now, path, message);
            } else {
                self.surroundings.out.drops.count(DropReason::Malformed);
            }
            return;
        }
        let own = if header.from_initiator { header.responder_spi } else { header.initiator_spi };
        if let Some(spi) = hint::spi_of(message) {
            return self.take_hint(now, path, spi);
        }
        if self.table.get(own).is_none() {
            return self.answer_unknown(now, path, message);
        }
        let after = match self.table.get(own) {
            Some(Entry::HalfOpen(_)) => self.authenticate(now, own, path, message),
            _ => self.hand_over(now, own, path, message),
        };
        match after {
            After::Nothing => return,
            // It may have ended meanwhile: then nothing is left to do.
            After::Retire(old) => self.with_entry(now, old, |mut entry, _| {
                if let Entry::Established(sa) = &mut entry {
                    sa.retire(now);
                }
                Some(entry)
            }),
            After::EndOthers { begun_at } => self.end_others(now, own, begun_at),
            After::Bound => {}
        }
        if let Some(sa) = self.table.established(own) {
            let (peer, identity) = (sa.peer, sa.identity.clone());
            self.bound(now, peer, &identity);
        }
    }

    /// A message for an attempt or an IKE SA.
    fn hand_over(&mut self, now: Instant, own: IkeSpi, path: Path, message: &Message<'_>) -> After {
        let mut after = After::Nothing;
        let alone = self.has_none_with_peer_of(own);
        self.with_entry(now, own, |entry, context| match entry {
            Entry::Attempt(mut attempt) => match attempt.receive(message, path, alone, context) {
                None => Some(Entry::Attempt(attempt)),
                Some(sa) => {
                    if let Some(old) = attempt.replaces {
                        after = After::Retire(old);
                    }
                    Some(Entry::Established(Box::new(sa)))
                }
            },
            Entry::Established(mut sa) => {
                sa.receive(message, path, context);
                Some(Entry::Established(sa))
            }
            half_open @ Entry::HalfOpen(_) => Some(half_open),
        });
        after
    }

    /// An initiator that has been answered may prove who it is. One attempt of it leads to one IKE SA: where somebody has
    /// changed or repeated its first message underway, it proves itself to each answer, and what comes second would end what
    /// came first (INITIAL_CONTACT), which is what it goes on with.
    fn authenticate(&mut self, now: Instant, own: IkeSpi, path: Path, message: &Message<'_>) -> After {
        let Some(Entry::HalfOpen(half_open)) = self.table.take(own) else { return After::Nothing };
        let table = &self.table;
        let has_come_about = |initiator: IkeSpi, peer: PeerIndex, identity: &Identity| {
            let is_it = |sa: &IkeSa| {
                sa.channel.initiator_spi == initiator && sa.peer == peer && sa.identity == *identity
            };
            table.all_established().any(is_it)
        };
        let mut context = self.surroundings.context(now, &table.census);
        match half_open.receive(message, path, &has_come_about, &mut context) {
            Err(half_open) => {
                self.keep(own, Entry::HalfOpen(half_open));
                After::Nothing
            }
            Ok(Accepted { sa, initial_contact }) => {
                self.keep(own, Entry::Established(Box::new(sa)));
                initial_contact.map_or(After::Bound, |begun_at| After::EndOthers { begun_at })
            }
        }
    }

    /// Whether an attempt is about the only IKE SA with its peer, so that it may say so (INITIAL_CONTACT).
    fn has_none_with_peer_of(&self, ike: IkeSpi) -> bool {
        let Some(Entry::Attempt(attempt)) = self.table.get(ike) else { return false };
        let counts = |sa: &IkeSa| sa.peer == attempt.peer && sa.is_live() && !sa.is_silent();
        !self.table.all_established().any(counts)
    }

    fn answer_init(&mut self, now: Instant, path: Path, message: &Message<'_>) {
        let initiator = (message.header().initiator_spi, path.remote);
        let mut context = self.surroundings.context(now, &self.table.census);
        match self.table.of_initiator(&initiator) {
            Some(Entry::HalfOpen(half_open)) if half_open.repeat(message.bytes(), path, &mut context) => {
                return;
            }
            // It has had the answer, or else it could not have authenticated itself.
            Some(Entry::Established(_)) => return context.out.drops.count(DropReason::OutsideWindow),
            _ => {}
        }
        let address = path.remote.ip();
        if !self.table.places.is_open_to(address, now) {
            return context.out.drops.count(DropReason::TooManyHalfOpen);
        }
        if self.table.is_full() {
            return context.out.drops.count(DropReason::TooManyIkeSas);
        }
        if self.table.census.of_source(address) >= MAX_OF_SOURCE {
            return context.out.drops.count(DropReason::TooManyOfSource);
        }
        let demanded = self.table.places.demand_cookie(address, context.config.cookies_from);
        let cookies = demanded.then_some(&mut self.cookies);
        match HalfOpen::answer_init(message, path, cookies, &mut context) {
            Err(reason) => context.out.drops.count(reason),
            Ok(half_open) => {
                if let Some(other) = self.table.places.gives_way_to(address) {
                    context.out.drops.count(DropReason::GaveWay);
                    self.table.forget(other);
                }
                // The same initiator may have begun anew, with a cookie or another group. What came of its earlier request
                // stays for its time: this one may be somebody else's.
                let own = half_open.spi();
                self.table.answered(initiator, own);
                self.keep(own, Entry::HalfOpen(Box::new(half_open)));
            }
        }
    }

    /// Some faults are answered although the message could not be read (RFC 7296 §2.5, §2.21.1), as often as hints are
    /// ([`HINTS_PER_SECOND`]): anybody can send such a message. The answer is not longer than that was.
    fn refuse_unparsed(&mut self, now: Instant, path: Path, bytes: &[u8], error: ParseError) {
        self.surroundings.out.drops.count(error.into());
        let mut context = self.surroundings.context(now, &self.table.census);
        let Some(header) = Header::of_any_version(bytes).filter(|header| !header.is_response) else { return };
        if bytes.len() < SHORT_ANSWER {
            return;
        }
        let (notify, data) = match error {
            ParseError::LaterVersion => (NotifyType::INVALID_MAJOR_VERSION, 2),
            ParseError::UnsupportedCritical(kind) if header.exchange == ExchangeType::IKE_SA_INIT => {
                (NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD, kind.0)
            }
            _ => return,
        };
        if self.hints_sent.take(now) {
            stateless_answer(&header, path, notify, &[data], &mut context);
        }
    }

    /// The other end has begun anew: what else there is with it is of before that (RFC 7296 §2.4), except what has come
    /// about since: both ends may have begun at once.
    fn end_others(&mut self, now: Instant, new: IkeSpi, begun_at: Instant) {
        let Some(sa) = self.table.established(new) else { return };
        let (peer, identity) = (sa.peer, sa.identity.clone());
        let others = self.table.all_established().filter_map(|sa| {
            let before = sa.spi() != new && sa.since <= begun_at;
            (before && sa.peer == peer && sa.identity == identity).then(|| sa.spi())
        });
        for ike in others.collect::<Vec<_>>() {
            self.with_entry(now, ike, |entry, context| {
                let Entry::Established(mut sa) = entry else { return Some(entry) };
                sa.end(EndReason::InitialContact, context);
                Some(Entry::Established(sa))
            });
        }
    }

    /// Takes an entry out, puts back what becomes of it, and does what follows from that.
    fn with_entry(
        &mut self,
        now: Instant,
        ike: IkeSpi,
        change: impl FnOnce(Entry, &mut Context<'_>) -> Option<Entry>,
    ) {
        let Some(entry) = self.table.take(ike) else { return };
        let mut changed = change(entry, &mut self.surroundings.context(now, &self.table.census));
        let follow_ups = match &mut changed {
            Some(Entry::Established(sa)) => std::mem::take(&mut sa.follow_ups),
            _ => Vec::new(),
        };
        match changed {
            Some(entry) => self.keep(ike, entry),
            None => self.table.forget(ike),
        }
        for follow_up in follow_ups {
            match follow_up {
                FollowUp::Born(mut sa) => {
                    sa.begin(&mut self.surroundings.context(now, &self.table.census));
                    let (ike, peer, identity) = (sa.spi(), sa.peer, sa.identity.clone());
                    self.keep(ike, Entry::Established(sa));
                    self.bound(now, peer, &identity);
                }
                FollowUp::Adopt { to, heritage } => {
                    self.table.rekeyed(ike, to);
                    self.adopt(now, to, heritage);
                }
            }
        }
    }

    fn adopt(&mut self, now: Instant, to: IkeSpi, heritage: Heritage) {
        match self.table.take(to) {
            Some(Entry::Established(mut sa)) => {
                sa.adopt(heritage, &mut self.surroundings.context(now, &self.table.census));
                self.keep(to, Entry::Established(sa));
            }
            // It has ended, and lingered, in between.
            _ => heritage.orphaned(to, &mut self.surroundings.context(now, &self.table.census)),
        }
    }

    /// Ends what an identity has too much of, without a word: it has not kept count of it either.
    fn bound(&mut self, now: Instant, peer: PeerIndex, identity: &Identity) {
        while let Some(surplus) = self.table.surplus_of(peer, identity) {
            self.with_entry(now, surplus, |mut entry, context| {
                if let Entry::Established(sa) = &mut entry {
                    sa.end(EndReason::TooMany, context);
                }
                Some(entry)
            });
            self.table.forget(surplus);
        }
    }

    fn keep(&mut self, ike: IkeSpi, entry: Entry) {
        self.table.keep(ike, entry, &self.surroundings.config);
    }
}

impl<R> std::fmt::Debug for Endpoint<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Endpoint({} IKE SAs, {} half-open)", self.table.len(), self.table.places.len())
    }
}

/// What is to be done once an IKE SA is there.
enum After {
    Nothing,
    Bound,
    Retire(IkeSpi),
    EndOthers { begun_at: Instant },
}
