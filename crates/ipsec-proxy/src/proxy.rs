//! The sockets that clients come to, the clients, and the host inside the tunnel.
//!
//! Whoever owns the main loop and the tunnel
//! 1. hands in events of the [`Poller`] whose tokens the proxy [owns](Proxy::owns), by [`Proxy::handle`],
//! 2. hands in packets that come out of the tunnel, by [`Proxy::receive`],
//! 3. calls [`Proxy::handle_timeout`] at [`Proxy::deadline`],
//! 4. after each of these takes packets for the tunnel from [`Proxy::poll_transmit`] until there is none,
//! 5. says which addresses and DNS servers the tunnel has given, by [`Proxy::tunnel_is_up`], and when it has ended, by
//!    [`Proxy::tunnel_is_down`]: clients that come then wait for a while.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use linux::event::{Event, Interest, Poller};
use linux::owner::{Owners, User};
use stack::autoconf;
use stack::host::{Host, TcpEvent, TcpHandle};
use stack::interface::{Config, Medium};
use stack::ipv4::Ipv4;
use stack::random::Key;

use crate::asking::Speaks;
use crate::association::MAX_ASSOCIATIONS;
use crate::client::{CHUNK, Client, Outcome, Surroundings};
use crate::dns::Kind;
use crate::forward::Forward;
use crate::passwords::Passwords;
use crate::place::Place;
use crate::resolver::{LookupId, Resolver};
use crate::stream::{Listener, Stream};

/// Clients at once. More wait in the kernel's queue, until one leaves.
pub const MAX_CLIENTS: usize = 1024;
/// Places to listen at.
pub const MAX_LISTENERS: usize = 64;
/// Connections that are accepted before others have their turn: of those that may not come in, there may be many.
const AT_ONCE: usize = 64;
/// How often it is told that somebody may not come in.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// When to accept again after the kernel had no descriptor left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(500);

/// Where clients come to, and what they speak there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entrances {
    /// For SOCKS 5.
    pub socks: Vec<Place>,
    /// For HTTP's CONNECT.
    pub http: Vec<Place>,
    /// For one target each.
    pub forwards: Vec<Forward>,
}

/// Where clients come to, and which.
#[derive(Debug, Default)]
pub struct Options {
    /// Where.
    pub entrances: Entrances,
    /// What clients of SOCKS and HTTP have to say at a port; who says it may be anybody.
    pub passwords: Option<Passwords>,
    /// Whether programs of other users may come to a loopback address, and not only those of the user of this process.
    pub any_user: bool,
}

/// Why nobody listens.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Others than this machine could come there.
    #[error("{0} is no loopback address: whoever reaches it is inside the tunnel")]
    NotLoopback(Place),
    /// There are too many, or none.
    #[error("there are {0} places to listen at: at least one and at most {MAX_LISTENERS} are possible")]
    Count(usize),
    /// The kernel refuses.
    #[error("cannot listen at {place}: {source}")]
    Io {
        /// Where.
        place: Place,
        /// Why.
        source: io::Error,
    },
    /// Whose connections are cannot be told.
    #[error(
        "{0}: so every user could come in: if that is meant, say --any-user, or use the path of a socket, or --password-file"
    )]
    Owners(linux::Error),
    /// The system has no randomness for the host.
    #[error("the system gives no randomness: {0}")]
    Randomness(io::Error),
}

impl Entrances {
    fn all(&self) -> impl Iterator<Item = (&Place, Speaks)> + '_ {
        let socks = self.socks.iter().map(|place| (place, Speaks::Socks));
        let http = self.http.iter().map(|place| (place, Speaks::Http));
        let forwards =
            self.forwards.iter().map(|forward| (&forward.listen, Speaks::Nothing(forward.target.clone())));
        socks.chain(http).chain(forwards)
    }

    /// Refuses addresses that others than this machine reach.
    ///
    /// # Errors
    /// [`ListenError::NotLoopback`].
    pub fn must_be_loopback(&self) -> Result<(), ListenError> {
        match self.all().find(|(place, _)| !is_within(place)) {
            Some((place, _)) => Err(ListenError::NotLoopback(place.clone())),
            None => Ok(()),
        }
    }

    /// Folders that sockets are made in.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        self.all().filter_map(|(place, _)| place.folder()).collect()
    }
}

/// Whether only programs of this machine come there.
fn is_within(place: &Place) -> bool {
    match place {
        Place::Port(address) => address.ip().to_canonical().is_loopback(),
        Place::Socket(_) => true,
    }
}

/// The proxy.
pub struct Proxy {
    first_token: u64,
    listeners: Vec<Listening>,
    is_accepting: bool,
    accept_again: Option<Instant>,
    clients: Vec<Option<Held>>,
    free: Vec<usize>,
    deadlines: BTreeSet<(Instant, usize)>,
    by_handle: HashMap<TcpHandle, usize>,
    host: Host,
    addresses: Vec<IpAddr>,
    kinds: Vec<Kind>,
    resolver: Resolver,
    owners: Option<Owners>,
    passwords: Option<Passwords>,
    /// Clients that have datagrams carried.
    associated: BTreeSet<usize>,
    /// Something that is not of TCP has come out of the tunnel, since it was looked for datagrams.
    has_datagrams: bool,
    told: Option<Instant>,
    scratch: Vec<u8>,
}

struct Listening {
    socket: Listener,
    speaks: Speaks,
    admits: Admits,
}

/// Who may come to a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admits {
    Anybody,
    /// The user of this process, and root, who could be that user.
    OwnUser,
    /// Whoever may open the file of a socket, which is of this user's.
    WhoeverOpens,
    /// Whoever has a password.
    Password,
}

struct Held {
    client: Client,
    interest: Interest,
    /// The deadline as it stands among all.
    deadline: Option<Instant>,
    /// It has hung up, and is asked for nothing but what is left to read.
    is_unwatched: bool,
    admits: Admits,
}

impl Proxy {
    /// How many tokens of the poller it needs.
    pub const TOKENS: u64 = (MAX_LISTENERS + 2 * MAX_CLIENTS) as u64;

    /// Listens at all places, or at none. `mtu` is that of the tunnel.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn open(
        options: Options,
        poller: &Poller,
        first_token: u64,
        mtu: u16,
        now: Instant,
    ) -> Result<Self, ListenError> {
        let Options { entrances, passwords, any_user } = options;
        let count = entrances.all().count();
        if !(1..=MAX_LISTENERS).contains(&count) {
            return Err(ListenError::Count(count));
        }
        let mut listeners = Vec::with_capacity(count);
        for (token, (place, speaks)) in (first_token..).zip(entrances.all()) {
            let admits = match place {
                Place::Socket(_) => Admits::WhoeverOpens,
                Place::Port(_) if passwords.is_some() && !matches!(speaks, Speaks::Nothing(_)) => {
                    Admits::Password
                }
                Place::Port(_) if is_within(place) && !any_user => Admits::OwnUser,
                Place::Port(_) => Admits::Anybody,
            };
            let listen = || {
                let socket = Listener::bind(place)?;
                poller.add(&socket, token, Interest::Readable).map_err(io::Error::other)?;
                Ok(Listening { socket, speaks, admits })
            };
            listeners.push(listen().map_err(|source| ListenError::Io { place: place.clone(), source })?);
        }
        let owners = match Owners::open() {
            Err(error) if listeners.iter().any(|listening| listening.admits == Admits::OwnUser) => {
                return Err(ListenError::Owners(error));
            }
            owners => owners.ok(),
        };
        let host = host(mtu, now).map_err(ListenError::Randomness)?;
        Ok(Self {
            first_token,
            listeners,
            is_accepting: true,
            accept_again: None,
            clients: Vec::new(),
            free: Vec::new(),
            deadlines: BTreeSet::new(),
            by_handle: HashMap::new(),
            host,
            addresses: Vec::new(),
            kinds: Vec::new(),
            resolver: Resolver::default(),
            owners,
            passwords,
            associated: BTreeSet::new(),
            has_datagrams: false,
            told: None,
            scratch: vec![0; CHUNK],
        })
    }

    /// Where it listens, in the order of the entrances: a port 0 has become one.
    pub fn listens_at(&self) -> impl Iterator<Item = io::Result<Place>> + '_ {
        self.listeners.iter().map(|listening| listening.socket.place())
    }

    /// Whether an event with this token is for the proxy that was given `first_token`.
    pub fn owns(first_token: u64, token: u64) -> bool {
        (first_token..first_token + Self::TOKENS).contains(&token)
    }

    /// Clients that are connected.
    pub fn clients(&self) -> usize {
        self.clients.len() - self.free.len()
    }

    /// The tunnel is there, and has given these addresses and servers.
    pub fn tunnel_is_up(&mut self, poller: &Poller, now: Instant, addresses: &[IpAddr], dns: &[IpAddr]) {
        for old in self.addresses.iter().filter(|old| !addresses.contains(old)) {
            if let IpAddr::V6(old) = old {
                self.host.interface_mut().remove_address(now, *old);
            }
        }
        let ipv4 = addresses.iter().find_map(|address| match address {
            IpAddr::V4(address) => Some(*address),
            IpAddr::V6(_) => None,
        });
        self.host.interface_mut().set_ipv4(ipv4.and_then(|address| {
            Some(Ipv4 { address: ipnet::Ipv4Net::new(address, 32).ok()?, gateway: None })
        }));
        for address in addresses {
            if let IpAddr::V6(address) = address {
                self.host.interface_mut().add_address(now, *address, 128);
            }
        }
        self.addresses = addresses.to_vec();
        self.resolver.set_servers(dns);
        let has = |kind: Kind, is_there: bool| is_there.then_some(kind);
        let has_ipv6 = addresses.iter().any(IpAddr::is_ipv6);
        self.kinds =
            [has(Kind::Aaaa, has_ipv6), has(Kind::A, ipv4.is_some())].into_iter().flatten().collect();
        for slot in 0..self.clients.len() {
            self.advance(slot, poller, now);
        }
        self.follow(poller, now);
    }

    /// The tunnel has ended. Connections stay, in case it comes back in time; clients that come now wait for that, too.
    pub fn tunnel_is_down(&mut self) {
        self.kinds.clear();
    }

    /// Does what an event is about.
    pub fn handle(&mut self, event: Event, poller: &Poller, now: Instant) {
        let number = event.token.saturating_sub(self.first_token) as usize;
        match number.checked_sub(MAX_LISTENERS) {
            None => self.accept(number, poller, now),
            Some(slot) if slot >= MAX_CLIENTS => {
                self.with(slot - MAX_CLIENTS, now, Client::carry_datagrams);
            }
            Some(slot) => {
                if event.error || event.hung_up {
                    self.look_after(slot, poller, now);
                }
                self.advance(slot, poller, now);
            }
        }
        self.follow(poller, now);
    }

    /// Takes a packet that has come out of the tunnel.
    pub fn receive(&mut self, packet: &[u8], poller: &Poller, now: Instant) {
        self.has_datagrams |= !self.associated.is_empty() && !is_tcp(packet);
        self.host.receive(now, packet);
        self.follow(poller, now);
    }

    /// The next packet for the tunnel. `false`: there is none.
    pub fn poll_transmit(&mut self, now: Instant, packet: &mut Vec<u8>) -> bool {
        if std::mem::take(&mut self.has_datagrams) {
            // Once for all that has come together.
            let associated: Vec<_> = self.associated.iter().copied().collect();
            for slot in associated {
                self.with(slot, now, Client::carry_datagrams);
            }
        }
        self.host.poll_transmit(now, packet)
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        let clients = self.deadlines.first().map(|(deadline, _)| *deadline);
        [clients, self.accept_again, self.host.deadline(), self.resolver.deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, poller: &Poller, now: Instant) {
        self.host.handle_timeout(now);
        if self.accept_again.is_some_and(|again| again <= now) {
            self.accept_again = None;
            self.watch_listeners(poller);
        }
        while let Some((deadline, slot)) = self.deadlines.first().copied()
            && deadline <= now
        {
            self.deadlines.pop_first();
            self.advance(slot, poller, now);
        }
        self.follow(poller, now);
    }

    /// What has happened to connections and lookups.
    fn follow(&mut self, poller: &Poller, now: Instant) {
        loop {
            if let Some(event) = self.host.poll_tcp() {
                if let TcpEvent::Connection(handle) = event
                    && let Some(slot) = self.by_handle.get(&handle).copied()
                {
                    self.advance(slot, poller, now);
                }
            } else if let Some((LookupId(slot), found)) = self.resolver.poll(now, &mut self.host) {
                let slot = slot as usize;
                self.with(slot, now, |client, around| client.resolved(found, around));
                self.advance(slot, poller, now);
            } else {
                return;
            }
        }
    }

    fn accept(&mut self, number: usize, poller: &Poller, now: Instant) {
        for _ in 0..AT_ONCE {
            let Some(listening) = self.listeners.get(number).filter(|_| self.clients() < MAX_CLIENTS) else {
                break;
            };
            let stream = match listening.socket.accept() {
                Ok(stream) => stream,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock) => return,
                // One that has left already.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(_) => {
                    self.accept_again = Some(now + ACCEPT_AGAIN);
                    break;
                }
            };
            let (speaks, admits) = (listening.speaks.clone(), listening.admits);
            let owner = self.owner_of(&stream, admits);
            if admits == Admits::OwnUser && !owner.is_some_and(is_trusted) {
                self.tell_of_stranger(owner, now);
                stream.reset_on_close();
                continue;
            }
            self.take_in(Client::new(stream, speaks, owner, now), admits, poller, now);
        }
        self.watch_listeners(poller);
    }

    /// Whose connection it is, where that can be told. It is told for sure only while the connection lasts.
    fn owner_of(&mut self, stream: &Stream, admits: Admits) -> Option<User> {
        if admits == Admits::WhoeverOpens {
            return Some(User::own());
        }
        let (here, there) = stream.ends()?;
        if !there.ip().to_canonical().is_loopback() {
            return None;
        }
        let owner = self.owners.as_mut()?.of_tcp(there, here).ok()??;
        stream.ends().map(|_| owner)
    }

    fn tell_of_stranger(&mut self, owner: Option<User>, now: Instant) {
        if self.told.is_some_and(|told| now.saturating_duration_since(told) < TELL_EVERY) {
            return;
        }
        self.told = Some(now);
        let who = owner.map_or_else(|| "nobody who can be told".to_owned(), |owner| owner.to_string());
        tracing::warn!(
            "refused a connection of {who}: it is another user; if all may come in, say --any-user"
        );
    }

    fn take_in(&mut self, client: Client, admits: Admits, poller: &Poller, now: Instant) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.clients.push(None);
            self.clients.len() - 1
        });
        if poller.add(client.stream(), self.token(slot), Interest::Readable).is_err() {
            self.free.push(slot);
            return;
        }
        let held = Held { client, interest: Interest::Readable, deadline: None, is_unwatched: false, admits };
        self.clients[slot] = Some(held);
        self.advance(slot, poller, now);
    }

    /// Listens as long as there is room for a client.
    fn watch_listeners(&mut self, poller: &Poller) {
        let accepts = self.clients() < MAX_CLIENTS && self.accept_again.is_none();
        if accepts == self.is_accepting {
            return;
        }
        self.is_accepting = accepts;
        let interest = if accepts { Interest::Readable } else { Interest::None };
        for (token, listening) in (self.first_token..).zip(&self.listeners) {
            // Only a descriptor that is not there can fail.
            let _ = poller.modify(&listening.socket, token, interest);
        }
    }

    fn token(&self, slot: usize) -> u64 {
        self.first_token + (MAX_LISTENERS + slot) as u64
    }

    fn with<T>(
        &mut self,
        slot: usize,
        now: Instant,
        act: impl FnOnce(&mut Client, &mut Surroundings<'_>) -> T,
    ) -> Option<T> {
        let held = self.clients.get_mut(slot)?.as_mut()?;
        let mut around = Surroundings {
            host: &mut self.host,
            resolver: &mut self.resolver,
            by_handle: &mut self.by_handle,
            owners: self.owners.as_mut(),
            passwords: self.passwords.as_ref().filter(|_| held.admits == Admits::Password),
            may_associate: self.associated.len() < MAX_ASSOCIATIONS,
            scratch: &mut self.scratch,
            kinds: &self.kinds,
            slot,
            now,
        };
        Some(act(&mut held.client, &mut around))
    }

    fn advance(&mut self, slot: usize, poller: &Poller, now: Instant) {
        match self.with(slot, now, Client::advance) {
            None => {}
            Some(Outcome::Over) => self.forget(slot, poller, now),
            Some(Outcome::GoesOn) => {
                let token = self.token(slot);
                let Some(Some(held)) = self.clients.get_mut(slot) else { return };
                if let Some(association) = held.client.association()
                    && self.associated.insert(slot)
                {
                    let token = token + MAX_CLIENTS as u64;
                    if poller.add(association, token, Interest::Readable).is_err() {
                        return self.forget(slot, poller, now);
                    }
                }
                if held.deadline != held.client.deadline {
                    if let Some(old) = held.deadline {
                        self.deadlines.remove(&(old, slot));
                    }
                    held.deadline = held.client.deadline;
                    self.deadlines.extend(held.deadline.map(|deadline| (deadline, slot)));
                }
                let interest = held.client.interest(&self.host);
                if interest != held.interest && !held.is_unwatched {
                    held.interest = interest;
                    if poller.modify(held.client.stream(), token, interest).is_err() {
                        self.forget(slot, poller, now);
                    }
                }
            }
        }
    }

    /// A client has gone, or has closed both ways. It would be reported for ever, while what it has said is still being
    /// carried: it is no longer watched then.
    fn look_after(&mut self, slot: usize, poller: &Poller, now: Instant) {
        let Some(Some(held)) = self.clients.get_mut(slot) else { return };
        if !matches!(held.client.stream().take_error(), Ok(None)) {
            return self.forget(slot, poller, now);
        }
        if held.interest == Interest::None && !held.is_unwatched {
            held.is_unwatched = poller.remove(held.client.stream()).is_ok();
        }
    }

    fn forget(&mut self, slot: usize, poller: &Poller, now: Instant) {
        self.with(slot, now, Client::give_up);
        let Some(held) = self.clients.get_mut(slot).and_then(Option::take) else { return };
        if let Some(deadline) = held.deadline {
            self.deadlines.remove(&(deadline, slot));
        }
        self.associated.remove(&slot);
        // It leaves the poller with its descriptors.
        drop(held);
        self.free.push(slot);
        self.watch_listeners(poller);
    }
}

/// Whether a user may come in where only the own may: root could be that user anyway.
fn is_trusted(user: User) -> bool {
    user == User::own() || user == User::ROOT
}

/// Whether it is a packet of TCP without anything before: what is in a packet that is not may be a datagram.
fn is_tcp(packet: &[u8]) -> bool {
    let protocol = match packet.first() {
        Some(first) if first >> 4 == 6 => packet.get(6),
        Some(_) => packet.get(9),
        None => None,
    };
    protocol == Some(&wire::protocol::TCP)
}

/// A host that has no address yet, on a link that is the tunnel.
fn host(mtu: u16, now: Instant) -> io::Result<Host> {
    let (mut seed, mut stable_key) = ([0; 32], [0; 16]);
    for bytes in [&mut seed[..], &mut stable_key[..]] {
        getrandom::fill(bytes).map_err(io::Error::other)?;
    }
    let config = Config {
        medium: Medium::Ip,
        mtu: mtu.into(),
        autoconf: autoconf::Config {
            stable_key: Key::new(stable_key),
            interface: b"proxy".to_vec(),
            temporary: false,
            duplicate_transmits: 0,
        },
        routers: false,
    };
    Ok(Host::new(now, config, seed))
}

#[cfg(test)]
mod tests;
