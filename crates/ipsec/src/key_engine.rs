//! The Key Engine: the one way to the table of associations, for the stack and for key management daemons.
//!
//! The stack asks for associations by SPI for what arrives, and by traffic and socket for what leaves. Where none is for
//! what leaves, the engine asks the daemons for one ([`Event::Acquire`]) and keeps the packets meanwhile, within bounds;
//! where no daemon is, that is an error. Daemons are told when a soft lifetime ends, so that they replace the association
//! in time; at the end of the hard one it is gone.
//!
//! An association has no direction: what makes it one for arriving packets is that its destination is this host. Of several
//! that are for the same traffic, the newest is used for what leaves; those that were replaced go on taking what arrives.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use crate::acquire::{AcquireError, AcquireId, Acquires, Released};
use crate::association::{
    Age, Association, AssociationError, Lifetimes, Mode, Parameters, Protocol, Spi, UdpEncapsulation, Usage,
};
pub use crate::association::{AssociationId, Name};
use crate::level::Socket;
use crate::request::{DaemonId, Request, SocketId};
use crate::table::Table;

/// Associations and reserved SPIs together. A gateway has two or four for each of its peers; beyond this, something is
/// wrong with a daemon.
pub const MAX_ASSOCIATIONS: usize = 16_384;
/// Events that wait for the daemons to be told. Older ones are dropped: an acquire that was missed is asked for again with
/// the next packet, an expiry shows when the association is gone.
pub const MAX_EVENTS: usize = 1024;
/// Daemons that are registered at once.
pub const MAX_DAEMONS: usize = 16;
/// How long a reserved SPI waits for its association (as `net.core.xfrm_acq_expires`).
pub const LARVAL_LIFETIME: Duration = Duration::from_secs(30);
/// How often a free SPI is looked for in a range that a daemon gives.
const SPI_TRIES: u32 = 64;

/// Where random numbers come from: SPIs should not be guessed (RFC 4301 §4.4.2.1).
pub trait Random {
    /// One more.
    fn next_u32(&mut self) -> u32;
}

/// What daemons are to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An association is wanted.
    Acquire {
        /// Which of the wishes; a daemon answers with it.
        acquire: AcquireId,
        /// For what.
        request: Request,
    },
    /// The end of a soft lifetime: to be replaced.
    SoftExpired(Ended),
    /// The end of a hard lifetime: gone.
    HardExpired(Ended),
}

/// An association whose lifetime has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Its name.
    pub name: Name,
    /// Where its packets come from.
    pub source: IpAddr,
    /// Its mode.
    pub mode: Mode,
    /// When it was made.
    pub added: Instant,
    /// When its first packet came.
    pub first_used: Option<Instant>,
    /// What it has carried.
    pub usage: Usage,
    /// Its lifetimes.
    pub lifetimes: Lifetimes,
}

/// Why the engine does not do what a daemon wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// There is one of this name.
    #[error("there is an association of this destination, protocol and SPI")]
    Exists,
    /// There is none of this name.
    #[error("there is no association of this destination, protocol and SPI")]
    NotFound,
    /// The table, or that of the daemons, is full.
    #[error("the table is full")]
    Full,
    /// In the range no SPI is free.
    #[error("no SPI of the range is free")]
    NoSpi,
    /// The parameters make no association.
    #[error(transparent)]
    Association(#[from] AssociationError),
}

/// Security could not be had for a packet that needs it: what NRL's stack calls `EIPSEC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecurityError {
    /// There is no association, and no daemon that could make one.
    #[error("no security association, and no key management daemon to make one")]
    NoDaemon,
    /// There is no association, and the packet is not worth asking for one.
    #[error("no security association, and none is asked for")]
    NotAsked,
    /// No more wishes for associations are kept.
    #[error("too many security associations are waited for")]
    TooMany,
    /// The policy has the packet discarded.
    #[error("the security policy discards it")]
    Discarded,
}

/// The error number that a socket returns for a [`SecurityError`]: that of OpenBSD's `errno.h`, whose IPsec, too, comes
/// from NRL's time. Linux has none.
pub const EIPSEC: i32 = 82;

impl SecurityError {
    /// The error number for a socket.
    pub const fn errno(self) -> i32 {
        EIPSEC
    }
}

/// What there is for packets of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// This one.
    Ready(AssociationId),
    /// None yet. The daemons have been asked, the packet may be [delayed](KeyEngine::delay).
    Delayed(AcquireId),
}

/// The table of associations.
#[derive(Debug, Default)]
pub struct KeyEngine {
    table: Table,
    larval: HashMap<Name, Instant>,
    /// The same by the time at which they end.
    larval_ends: BTreeSet<(Instant, Name)>,
    acquires: Acquires,
    daemons: Vec<(DaemonId, Protocol)>,
    events: VecDeque<Event>,
}

impl KeyEngine {
    /// With nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Tells a daemon of what is wanted in this protocol from now on.
    ///
    /// # Errors
    /// [`EngineError::Full`].
    pub fn register(&mut self, daemon: DaemonId, protocol: Protocol) -> Result<(), EngineError> {
        if self.daemons.contains(&(daemon, protocol)) {
            return Ok(());
        }
        if self.daemons.len() == MAX_DAEMONS {
            return Err(EngineError::Full);
        }
        self.daemons.push((daemon, protocol));
        Ok(())
    }

    /// A daemon is gone.
    pub fn unregister(&mut self, daemon: DaemonId) {
        self.daemons.retain(|(registered, _)| *registered != daemon);
    }

    /// Who is to be told of a protocol.
    pub fn daemons(&self, protocol: Protocol) -> impl Iterator<Item = DaemonId> + '_ {
        self.daemons.iter().filter(move |(_, registered)| *registered == protocol).map(|(daemon, _)| *daemon)
    }

    /// Reserves an SPI of `range` for an association that is to come within [`LARVAL_LIFETIME`].
    ///
    /// # Errors
    /// [`EngineError::NoSpi`], [`EngineError::Full`].
    pub fn reserve_spi(
        &mut self,
        destination: IpAddr,
        protocol: Protocol,
        range: RangeInclusive<u32>,
        random: &mut impl Random,
        now: Instant,
    ) -> Result<Spi, EngineError> {
        let (first, last) = (*range.start().max(&Spi::FIRST.0), *range.end());
        let span = u64::from(last.checked_sub(first).ok_or(EngineError::NoSpi)?) + 1;
        if self.is_full() {
            return Err(EngineError::Full);
        }
        let start = u64::from(random.next_u32());
        for step in 0..SPI_TRIES {
            // Random numbers in a wide range, one by one in a narrow one.
            let offset = if span > u64::from(SPI_TRIES) && step > 0 {
                u64::from(random.next_u32()) % span
            } else {
                (start + u64::from(step)) % span
            };
            let spi = Spi(first + offset as u32);
            let name = Name { destination, protocol, spi };
            if self.table.by_name(&name).is_none() && !self.larval.contains_key(&name) {
                let end = now.checked_add(LARVAL_LIFETIME).ok_or(EngineError::NoSpi)?;
                self.larval.insert(name, end);
                self.larval_ends.insert((end, name));
                return Ok(spi);
            }
            if u64::from(step) + 1 >= span {
                break;
            }
        }
        Err(EngineError::NoSpi)
    }

    /// Whether a name is reserved, and has no association yet.
    pub fn is_larval(&self, name: &Name) -> bool {
        self.larval.contains_key(name)
    }

    /// Puts in an association, for all sockets or for one. Packets that waited for it are [released](Self::next_released).
    ///
    /// # Errors
    /// [`EngineError`] when it cannot be.
    pub fn add(
        &mut self,
        parameters: Parameters,
        owner: Option<SocketId>,
        now: Instant,
    ) -> Result<AssociationId, EngineError> {
        let id = self.add_receiving(parameters, now)?;
        self.table.offer(id, owner);
        if let Some(entry) = self.table.get(id) {
            self.acquires.satisfy(|request| request.is_met_by(&entry.association, owner));
        }
        Ok(id)
    }

    /// Puts in an association that is for arriving packets alone, whatever its selectors are: a gateway's two ends may be for
    /// the same networks.
    ///
    /// # Errors
    /// [`EngineError`] when it cannot be.
    pub fn add_receiving(
        &mut self,
        parameters: Parameters,
        now: Instant,
    ) -> Result<AssociationId, EngineError> {
        let association = Association::new(parameters, now)?;
        let name = Name::of(&association);
        if self.table.by_name(&name).is_some() {
            return Err(EngineError::Exists);
        }
        if !self.remove_larval(&name) && self.is_full() {
            return Err(EngineError::Full);
        }
        Ok(self.table.insert(association))
    }

    /// Gives an association other lifetimes; they count from when it was made.
    ///
    /// # Errors
    /// [`EngineError::NotFound`].
    pub fn set_lifetimes(
        &mut self,
        name: &Name,
        lifetimes: Lifetimes,
        now: Instant,
    ) -> Result<(), EngineError> {
        let id = self.table.by_name(name).ok_or(EngineError::NotFound)?;
        self.table.get_mut(id).ok_or(EngineError::NotFound)?.told = Age::Fresh;
        self.table.change(id, |parameters| parameters.lifetimes = lifetimes);
        self.note_age(id, now);
        Ok(())
    }

    /// Gives ESP in UDP other ports, where a NAT has forgotten the old ones.
    ///
    /// # Errors
    /// [`EngineError::NotFound`] also for an association that is not in UDP.
    pub fn set_ports(&mut self, name: &Name, ports: UdpEncapsulation) -> Result<(), EngineError> {
        let id = self.table.by_name(name).ok_or(EngineError::NotFound)?;
        let entry = self.table.get_mut(id).ok_or(EngineError::NotFound)?;
        *entry.association.parameters.encapsulation.as_mut().ok_or(EngineError::NotFound)? = ports;
        Ok(())
    }

    /// Gives a tunnel other ends, where one of them has moved (MOBIKE, RFC 4555), and returns its new name.
    ///
    /// # Errors
    /// [`EngineError::NotFound`], also for one of transport mode, which is for its ends; [`EngineError::Exists`] if there is
    /// one of the new name.
    pub fn move_to(
        &mut self,
        name: &Name,
        (source, destination): (IpAddr, IpAddr),
        encapsulation: Option<UdpEncapsulation>,
    ) -> Result<Name, EngineError> {
        let id = self.table.by_name(name).ok_or(EngineError::NotFound)?;
        let entry = self.table.get(id).ok_or(EngineError::NotFound)?;
        if entry.association.parameters().mode != Mode::Tunnel {
            return Err(EngineError::NotFound);
        }
        if source.is_ipv4() != destination.is_ipv4() {
            return Err(AssociationError::Addresses.into());
        }
        let moved = Name { destination, ..*name };
        if moved != *name && self.table.by_name(&moved).is_some() {
            return Err(EngineError::Exists);
        }
        self.table.change(id, |parameters| {
            (parameters.source, parameters.destination) = (source, destination);
            parameters.encapsulation = encapsulation;
        });
        Ok(moved)
    }

    /// Takes one away; nobody is told.
    ///
    /// # Errors
    /// [`EngineError::NotFound`].
    pub fn delete(&mut self, name: &Name) -> Result<(), EngineError> {
        if self.remove_larval(name) {
            return Ok(());
        }
        let id = self.table.by_name(name).ok_or(EngineError::NotFound)?;
        self.table.remove(id);
        Ok(())
    }

    /// Takes away all of a protocol between two addresses; returns how many.
    pub fn delete_between(&mut self, ends: (IpAddr, IpAddr), protocol: Protocol) -> usize {
        let is_meant = |association: &Association| {
            let parameters = association.parameters();
            (parameters.source, parameters.destination) == ends && association.protocol() == protocol
        };
        let meant = self.table.entries().filter(|(_, entry)| is_meant(&entry.association));
        let ids: Vec<_> = meant.map(|(id, _)| id).collect();
        for id in &ids {
            self.table.remove(*id);
        }
        ids.len()
    }

    /// Takes away all of a protocol, or of both.
    pub fn flush(&mut self, protocol: Option<Protocol>) {
        let is_meant = |name: &Name| protocol.is_none_or(|protocol| protocol == name.protocol);
        self.larval.retain(|name, _| !is_meant(name));
        self.larval_ends.retain(|(_, name)| !is_meant(name));
        let ids: Vec<_> = self.table.names().filter(|(name, _)| is_meant(name)).map(|(_, id)| id).collect();
        for id in ids {
            self.table.remove(id);
        }
    }

    /// A socket is closed. The associations that were its own are gone, since nobody else may use them, and daemons are told
    /// as at the end of a lifetime.
    pub fn close_socket(&mut self, socket: SocketId) {
        for id in self.table.owned(socket) {
            if let Some(entry) = self.table.remove(id) {
                self.tell(Event::HardExpired(Ended::of(&entry.association)));
            }
        }
    }

    /// All, the oldest first.
    pub fn associations(&self) -> impl Iterator<Item = (AssociationId, &Association)> {
        let mut all: Vec<_> = self.table.entries().map(|(id, entry)| (id, &entry.association)).collect();
        all.sort_unstable_by_key(|(id, _)| *id);
        all.into_iter()
    }

    /// Whose own one is.
    pub fn owner(&self, id: AssociationId) -> Option<SocketId> {
        self.table.get(id)?.owner
    }

    /// The one of this name.
    pub fn by_name(&self, name: &Name) -> Option<(AssociationId, &Association)> {
        let id = self.table.by_name(name)?;
        Some((id, &self.table.get(id)?.association))
    }

    /// One of the table.
    pub fn get(&self, id: AssociationId) -> Option<&Association> {
        Some(&self.table.get(id)?.association)
    }

    /// One of the table, to seal or to open with; [`used`](Self::used) is to be called behind.
    pub fn get_mut(&mut self, id: AssociationId) -> Option<&mut Association> {
        Some(&mut self.table.get_mut(id)?.association)
    }

    /// As [`by_name`](Self::by_name), to open with; faster for those that were asked for lately.
    pub fn named_mut(&mut self, name: &Name) -> Option<(AssociationId, &mut Association)> {
        let id = self.table.recent_by_name(name)?;
        Some((id, &mut self.table.get_mut(id)?.association))
    }

    /// To be called after an association was used: bytes and packets may have ended its lifetime.
    pub fn used(&mut self, id: AssociationId, now: Instant) {
        self.table.was_used(id);
        self.note_age(id, now);
    }

    /// Another number whenever an association has come, gone or changed, or can seal no more for another reason than the
    /// time: what was [looked up](Self::lookup) before is to be looked up again.
    pub fn generation(&self) -> u64 {
        self.table.generation()
    }

    /// The newest association for packets of a kind, if there is one.
    pub fn available(&self, request: &Request, now: Instant) -> Option<AssociationId> {
        self.table.newest(request, now)
    }

    /// The newest association for packets of a kind. If there is none, the daemons are asked for one.
    ///
    /// # Errors
    /// [`SecurityError`] when there is none and none can come.
    pub fn lookup(&mut self, request: &Request, now: Instant) -> Result<Lookup, SecurityError> {
        if let Some(id) = self.available(request, now) {
            return Ok(Lookup::Ready(id));
        }
        if self.daemons(request.service.protocol()).next().is_none() {
            return Err(SecurityError::NoDaemon);
        }
        let (acquire, is_new) =
            self.acquires.want(request, now).map_err(|AcquireError::Full| SecurityError::TooMany)?;
        if is_new {
            self.tell(Event::Acquire { acquire, request: request.clone() });
        }
        Ok(Lookup::Delayed(acquire))
    }

    /// Keeps a copy of a packet until what it waits for is there. `false`: there is no room for it, and it is
    /// dropped: [`DropReason::TooMany`](crate::drops::DropReason::TooMany).
    pub fn delay(&mut self, acquire: AcquireId, packet: &[u8], socket: Option<Socket>) -> bool {
        self.acquires.delay(acquire, packet, socket)
    }

    /// A daemon has failed to make what was asked for: what waits for it is dropped. Returns how many packets:
    /// [`DropReason::NotKeyed`](crate::drops::DropReason::NotKeyed).
    pub fn give_up(&mut self, acquire: AcquireId) -> usize {
        self.acquires.give_up(acquire)
    }

    /// What a wish is for, while it lasts.
    pub fn wanted(&self, acquire: AcquireId) -> Option<&Request> {
        self.acquires.request(acquire)
    }

    /// Whether there is a packet that waited and is to be sent again.
    pub fn has_released(&self) -> bool {
        self.acquires.has_released()
    }

    /// A packet that waited and is to be sent again, from the policy on.
    pub fn next_released(&mut self) -> Option<Released> {
        self.acquires.next_released()
    }

    /// What the daemons are to be told next.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Does what is due, and returns how many delayed packets were dropped because nobody made them an association:
    /// [`DropReason::NotKeyed`](crate::drops::DropReason::NotKeyed).
    pub fn handle_timeout(&mut self, now: Instant) -> usize {
        while let Some((end, name)) = self.larval_ends.first().copied().filter(|(end, _)| *end <= now) {
            self.larval_ends.remove(&(end, name));
            self.larval.remove(&name);
        }
        while let Some(id) = self.table.pop_due(now) {
            self.note_age(id, now);
            self.table.reschedule(id);
        }
        self.acquires.handle_timeout(now)
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called.
    pub fn deadline(&self) -> Option<Instant> {
        let larval = self.larval_ends.first().map(|(end, _)| *end);
        [self.table.due(), larval, self.acquires.deadline()].into_iter().flatten().min()
    }

    fn is_full(&self) -> bool {
        self.table.len() + self.larval.len() >= MAX_ASSOCIATIONS
    }

    fn remove_larval(&mut self, name: &Name) -> bool {
        let Some(end) = self.larval.remove(name) else { return false };
        self.larval_ends.remove(&(end, *name))
    }

    fn tell(&mut self, event: Event) {
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    fn note_age(&mut self, id: AssociationId, now: Instant) {
        let Some(entry) = self.table.get_mut(id) else { return };
        let age = entry.association.age(now);
        if age <= entry.told {
            return;
        }
        entry.told = age;
        let ended = Ended::of(&entry.association);
        if age == Age::Hard {
            self.table.remove(id);
            self.tell(Event::HardExpired(ended));
        } else {
            self.table.reschedule(id);
            self.tell(Event::SoftExpired(ended));
        }
    }
}

impl Ended {
    fn of(association: &Association) -> Self {
        let parameters = association.parameters();
        Self {
            name: Name::of(association),
            source: parameters.source,
            mode: parameters.mode,
            added: association.added(),
            first_used: association.first_used(),
            usage: association.usage(),
            lifetimes: parameters.lifetimes,
        }
    }
}
