//! Names, asked of the servers that are inside the tunnel: never of this machine's resolver, which is outside.
//!
//! Each lookup has a port of its own that is hard to guess, and a random number (RFC 5452).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddrV6};
use std::time::{Duration, Instant};

use stack::host::Host;
use stack::udp::SocketId;

use crate::dns::{self, Kind};
use crate::target::Name;

/// Lookups at once.
pub const MAX_LOOKUPS: usize = 256;
/// When a question is asked again, of the next server; after the last, it has failed.
const ATTEMPTS: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(3), Duration::from_secs(4)];
const PORT: u16 = 53;

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LookupId(pub u64);

/// Why there are no addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookupError {
    /// There are too many lookups, or no server is known, or none can be reached.
    Unavailable,
    /// The name has no address of a version of IP that there is in the tunnel.
    NotFound,
    /// No server answers.
    TimedOut,
}

/// What a lookup has come to.
pub type Found = Result<Vec<IpAddr>, LookupError>;

/// Lookups that are under way.
#[derive(Debug, Default)]
pub struct Resolver {
    servers: Vec<SocketAddrV6>,
    lookups: BTreeMap<LookupId, Lookup>,
}

#[derive(Debug)]
struct Lookup {
    name: Name,
    questions: Vec<Question>,
    socket: SocketId,
    attempt: usize,
    deadline: Instant,
}

#[derive(Debug)]
struct Question {
    id: u16,
    kind: Kind,
    found: Option<Vec<IpAddr>>,
}

impl Resolver {
    /// Asks these servers from now on.
    pub fn set_servers(&mut self, servers: &[IpAddr]) {
        self.servers = servers.iter().map(|server| SocketAddrV6::new(as_ipv6(*server), PORT, 0, 0)).collect();
    }

    /// Asks for addresses of `kinds`, the better kind first.
    ///
    /// # Errors
    /// [`LookupError::Unavailable`].
    pub fn ask(
        &mut self,
        now: Instant,
        host: &mut Host,
        id: LookupId,
        name: Name,
        kinds: &[Kind],
    ) -> Result<(), LookupError> {
        if self.lookups.len() >= MAX_LOOKUPS || self.servers.is_empty() || kinds.is_empty() {
            return Err(LookupError::Unavailable);
        }
        let any = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0);
        let socket = host.interface_mut().udp_bind(any).map_err(|_| LookupError::Unavailable)?;
        let mut questions = Vec::with_capacity(kinds.len());
        for kind in kinds {
            let Ok(random) = getrandom::u32() else {
                host.interface_mut().udp_close(socket);
                return Err(LookupError::Unavailable);
            };
            questions.push(Question { id: random as u16, kind: *kind, found: None });
        }
        let mut lookup = Lookup { name, questions, socket, attempt: 0, deadline: now };
        lookup.send(now, host, &self.servers);
        self.lookups.insert(id, lookup);
        Ok(())
    }

    /// Nobody wants to know any more.
    pub fn cancel(&mut self, host: &mut Host, id: LookupId) {
        if let Some(lookup) = self.lookups.remove(&id) {
            host.interface_mut().udp_close(lookup.socket);
        }
    }

    /// When [`poll`](Self::poll) has something to do, if no answer comes before.
    pub fn deadline(&self) -> Option<Instant> {
        self.lookups.values().map(|lookup| lookup.deadline).min()
    }

    /// Reads answers and asks again; returns a lookup that has ended, if one has.
    pub fn poll(&mut self, now: Instant, host: &mut Host) -> Option<(LookupId, Found)> {
        let mut bytes = Vec::new();
        let (id, found) = self.lookups.iter_mut().find_map(|(id, lookup)| {
            while let Some(metadata) = host.interface_mut().udp_receive(lookup.socket, &mut bytes) {
                if self.servers.contains(&metadata.from) {
                    lookup.hear(&bytes);
                }
                bytes.clear();
            }
            if lookup.questions.iter().all(|question| question.found.is_some()) {
                let found = lookup.questions.iter_mut().filter_map(|question| question.found.take());
                let addresses: Vec<_> = found.flatten().take(dns::MAX_ADDRESSES).collect();
                let found = if addresses.is_empty() { Err(LookupError::NotFound) } else { Ok(addresses) };
                return Some((*id, found));
            }
            if lookup.deadline > now {
                return None;
            }
            lookup.attempt += 1;
            if lookup.attempt < ATTEMPTS.len() {
                lookup.send(now, host, &self.servers);
                return None;
            }
            // A server that answers for one version of IP only is good enough for that one.
            let some: Vec<_> = lookup.questions.iter_mut().filter_map(|q| q.found.take()).flatten().collect();
            Some((*id, if some.is_empty() { Err(LookupError::TimedOut) } else { Ok(some) }))
        })?;
        self.cancel(host, id);
        Some((id, found))
    }
}

impl Lookup {
    /// Sends what is not answered yet. What cannot be sent is as good as lost on the way.
    fn send(&mut self, now: Instant, host: &mut Host, servers: &[SocketAddrV6]) {
        self.deadline = now + ATTEMPTS[self.attempt.min(ATTEMPTS.len() - 1)];
        let server = servers.get(self.attempt % servers.len().max(1)).copied();
        for question in self.questions.iter().filter(|question| question.found.is_none()) {
            if let Some(bytes) = dns::question(question.id, &self.name, question.kind) {
                let _ = host.interface_mut().udp_send(now, self.socket, server, &bytes);
            }
        }
    }

    fn hear(&mut self, bytes: &[u8]) {
        for question in &mut self.questions {
            if question.found.is_none() {
                question.found = dns::answer(bytes, question.id, &self.name, question.kind);
            }
        }
    }
}

/// Addresses of IPv4 as sockets of the host have them.
pub fn as_ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}
