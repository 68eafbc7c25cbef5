//! What an endpoint keeps: attempts, initiators that are to prove who they are, IKE SAs; by SPI, with the time of each.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::time::Instant;

use crate::census::{Census, Counted};
use crate::config::{Config, PeerIndex};
use crate::initiator::Attempt;
use crate::message::body::Identity;
use crate::numbers::IkeSpi;
use crate::places::Places;
use crate::responder::HalfOpen;
use crate::sa::{IkeSa, State};

/// IKE SAs of one identity, those included that have ended or were replaced and only repeat an answer. An identity has one,
/// and two or three while they replace each other; with more it has lost its memory, and the oldest ones end.
pub const MAX_OF_IDENTITY: usize = 16;

/// IKE SAs in all, in whatever state: nobody can begin one when there are so many. Each takes some 3 KiB.
pub const MAX_IKE_SAS: usize = 16_384;
/// IKE SAs of one identity from then on.
const OF_IDENTITY_WHEN_FULL: usize = 3;

pub(crate) type Initiator = (IkeSpi, SocketAddr);

#[derive(Debug)]
pub(crate) enum Entry {
    Attempt(Box<Attempt>),
    HalfOpen(Box<HalfOpen>),
    Established(Box<IkeSa>),
}

impl Entry {
    pub(crate) fn established(&self) -> Option<&IkeSa> {
        match self {
            Self::Established(sa) => Some(sa),
            _ => None,
        }
    }

    fn deadline(&self, config: &Config) -> Option<Instant> {
        match self {
            Self::Attempt(attempt) => Some(attempt.deadline()),
            Self::HalfOpen(half_open) => Some(half_open.deadline()),
            Self::Established(sa) => sa.deadline(config.peers.get(sa.peer.0)),
        }
    }
}

/// Entries by this end's SPI.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: HashMap<IkeSpi, Entry>,
    /// Of the IKE SAs among them.
    pub(crate) census: Census,
    /// When each entry is to be looked at, as far as it has a time.
    timers: BTreeSet<(Instant, IkeSpi)>,
    due_at: HashMap<IkeSpi, Instant>,
    /// Initiators that were answered, by their SPI and where they are, for as long as what came of it is there: so a
    /// request that was repeated underway begins nothing twice.
    initiators: HashMap<Initiator, IkeSpi>,
    initiator_of: HashMap<IkeSpi, Initiator>,
    /// Of the half-open ones among the entries.
    pub(crate) places: Places,
}

impl Table {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn get(&self, ike: IkeSpi) -> Option<&Entry> {
        self.entries.get(&ike)
    }

    pub(crate) fn established(&self, ike: IkeSpi) -> Option<&IkeSa> {
        self.get(ike).and_then(Entry::established)
    }

    pub(crate) fn all_established(&self) -> impl Iterator<Item = &IkeSa> {
        self.entries.values().filter_map(Entry::established)
    }

    /// All names that are in use.
    pub(crate) fn names(&self) -> Vec<IkeSpi> {
        self.entries.keys().copied().collect()
    }

    /// Names of attempts of a kind.
    pub(crate) fn attempts(&self, is_meant: impl Fn(&Attempt) -> bool) -> Vec<IkeSpi> {
        let attempt = |(ike, entry): (&IkeSpi, &Entry)| match entry {
            Entry::Attempt(attempt) if is_meant(attempt) => Some(*ike),
            _ => None,
        };
        self.entries.iter().filter_map(attempt).collect()
    }

    /// What came of an initiator's request.
    pub(crate) fn of_initiator(&self, initiator: &Initiator) -> Option<&Entry> {
        self.get(*self.initiators.get(initiator)?)
    }

    /// Remembers what came of an initiator's request, in place of what came of an earlier one.
    pub(crate) fn answered(&mut self, initiator: Initiator, ike: IkeSpi) {
        self.initiators.insert(initiator, ike);
        self.initiator_of.insert(ike, initiator);
    }

    /// Whether nobody can begin any more.
    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= MAX_IKE_SAS
    }

    /// An IKE SA has moved on to another one: attempts that are to replace it are about that one.
    pub(crate) fn rekeyed(&mut self, old: IkeSpi, new: IkeSpi) {
        for entry in self.entries.values_mut() {
            if let Entry::Attempt(attempt) = entry
                && attempt.replaces == Some(old)
            {
                attempt.replaces = Some(new);
            }
        }
    }

    /// Of the IKE SAs of an identity, the one that is to go since there are more than it may have: one that is of no use any
    /// more, or else the oldest.
    pub(crate) fn surplus_of(&self, peer: PeerIndex, identity: &Identity) -> Option<IkeSpi> {
        let limit = if self.is_full() { OF_IDENTITY_WHEN_FULL } else { MAX_OF_IDENTITY };
        if self.census.of_identity(peer, identity) <= limit {
            return None;
        }
        let of_it = |sa: &&IkeSa| sa.peer == peer && sa.identity == *identity;
        let use_of = |sa: &&IkeSa| match sa.state {
            State::Ended { .. } => 0,
            State::Replaced { .. } => 1,
            State::Closing => 2,
            State::Up => 3,
        };
        self.all_established().filter(of_it).min_by_key(|sa| (use_of(sa), sa.since)).map(IkeSa::spi)
    }

    /// The next time that an entry is to be looked at.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// An entry whose time has come. It has none any more until it is kept again.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<IkeSpi> {
        let (_, ike) = self.timers.first().copied().filter(|(at, _)| *at <= now)?;
        self.timers.pop_first();
        self.due_at.remove(&ike);
        Some(ike)
    }

    pub(crate) fn take(&mut self, ike: IkeSpi) -> Option<Entry> {
        let entry = self.entries.remove(&ike)?;
        match &entry {
            Entry::Attempt(_) => {}
            Entry::HalfOpen(half_open) => self.places.remove(half_open.source(), ike),
            Entry::Established(sa) => self.census.remove(counted(sa)),
        }
        Some(entry)
    }

    pub(crate) fn keep(&mut self, ike: IkeSpi, entry: Entry, config: &Config) {
        let due = entry.deadline(config);
        match &entry {
            Entry::Attempt(_) => {}
            Entry::HalfOpen(half_open) => self.places.add(half_open.source(), half_open.begun_at(), ike),
            Entry::Established(sa) => self.census.add(counted(sa)),
        }
        self.entries.insert(ike, entry);
        self.set_timer(ike, due);
    }

    pub(crate) fn forget(&mut self, ike: IkeSpi) {
        if let Some(Entry::Established(sa)) = self.take(ike) {
            self.census.forget(counted(&sa));
        }
        if let Some(initiator) = self.initiator_of.remove(&ike)
            && self.initiators.get(&initiator) == Some(&ike)
        {
            self.initiators.remove(&initiator);
        }
        self.set_timer(ike, None);
    }

    fn set_timer(&mut self, ike: IkeSpi, due: Option<Instant>) {
        if let Some(before) = self.due_at.remove(&ike) {
            self.timers.remove(&(before, ike));
        }
        if let Some(due) = due {
            self.due_at.insert(ike, due);
            self.timers.insert((due, ike));
        }
    }
}

fn counted(sa: &IkeSa) -> Counted<'_> {
    Counted { peer: sa.peer, identity: &sa.identity, address: sa.path.remote.ip() }
}
