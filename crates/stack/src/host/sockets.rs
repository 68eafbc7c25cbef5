//! The TCP sockets: who holds them, and how a segment finds its own.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Instant;

use ipsec::policy::{self, Level, Levels};
use ipsec::selector::{Detail, Traffic};
use siphasher::sip::SipHasher13;
use wire::protocol;

use crate::tcp::{Config, Connection, Flow, Listener};

/// A connection. It is good until [`Host::abort`](super::Host::abort) or [`Host::release`](super::Host::release).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TcpHandle(Key);

/// A listener. It is good until [`Host::tcp_unlisten`](super::Host::tcp_unlisten).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListenerHandle(Key);

/// The handle is of something that has been given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such socket")]
pub struct Stale;

/// A place among the sockets, and how often its holder has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    index: u32,
    generation: u32,
}

/// A connection, and what the host keeps of it.
pub(super) struct Endpoint {
    pub(super) flow: Flow,
    pub(super) connection: Connection,
    pub(super) holder: Holder,
    pub(super) policy: policy::Socket,
    pub(super) flow_label: u32,
    pub(super) marks: Marks,
    /// The largest segment, TCP header included, that the connection knows to fit the path.
    pub(super) largest: usize,
    /// When its progress was last told to neighbor discovery.
    pub(super) confirmed: Option<Instant>,
}

/// What is asked of the IP headers of segments.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Marks {
    pub(super) dscp: u8,
    pub(super) hop_limit: Option<u8>,
}

impl Marks {
    pub(super) fn of(config: &Config) -> Self {
        Marks { dscp: config.dscp, hop_limit: config.hop_limit }
    }
}

/// Who holds a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    User,
    /// A listener, until it is accepted.
    Backlog(u32),
    /// It was released, and ends by itself.
    Nobody,
}

/// A listener, and the connections that wait there.
pub(super) struct Listening {
    pub(super) local: SocketAddrV6,
    pub(super) listener: Listener,
    pub(super) policy: policy::Socket,
    pub(super) marks: Marks,
    pub(super) backlog: VecDeque<u32>,
    pub(super) limit: usize,
    /// Half-open connections when the deadline was last looked for, which takes a look at each.
    pub(super) half_open: usize,
}

impl Endpoint {
    /// What the policy sees of its segments.
    pub(super) fn traffic(&self) -> Traffic {
        traffic(&self.flow)
    }
}

impl Listening {
    /// What its answers to those ask of security who have no connection yet: an association that is one connection's own
    /// is for the connection to ask for.
    pub(super) fn answering(&self) -> policy::Socket {
        let shared = |level: Level| level.min(Level::Require);
        let Levels { authentication, transport_encryption, tunnel_encryption } = self.policy.levels;
        let levels = Levels {
            authentication: shared(authentication),
            transport_encryption: shared(transport_encryption),
            tunnel_encryption: shared(tunnel_encryption),
        };
        policy::Socket { levels, ..self.policy }
    }

    /// The user does not accept more than wait already.
    pub(super) fn pause_if_full(&mut self) {
        self.listener.set_paused(self.backlog.len() >= self.limit);
    }
}

pub(super) enum Socket {
    Connection(Box<Endpoint>),
    Listener(Box<Listening>),
}

#[derive(Default)]
struct Slot {
    generation: u32,
    socket: Option<Socket>,
}

/// All sockets.
pub(super) struct Sockets {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// By both ends. Others choose one of them, so the hash is keyed.
    flows: HashMap<Ends, u32, Keyed>,
    /// The one that was found last: segments come in runs.
    last: Option<(Ends, u32)>,
    /// By port and address, or the unspecified one.
    ports: BTreeMap<(u16, Ipv6Addr), u32>,
}

impl Sockets {
    pub(super) fn new(key: [u8; 16]) -> Self {
        let flows = HashMap::with_hasher(Keyed(SipHasher13::new_with_key(&key)));
        Sockets { slots: Vec::new(), free: Vec::new(), flows, last: None, ports: BTreeMap::new() }
    }

    /// The connection with these ends.
    pub(super) fn find(&self, flow: &Flow) -> Option<u32> {
        self.flows.get(&ends(flow)).copied()
    }

    /// The connection that a segment between these is for.
    pub(super) fn find_ends(&mut self, local: (Ipv6Addr, u16), remote: (Ipv6Addr, u16)) -> Option<u32> {
        let ends = ends_of(local, remote);
        if let Some((last, index)) = self.last
            && last == ends
        {
            return Some(index);
        }
        let index = *self.flows.get(&ends)?;
        self.last = Some((ends, index));
        Some(index)
    }

    /// What is asked of security by the connection, or else the listener, that segments of a flow are for.
    pub(super) fn policy(&self, flow: &Flow) -> Option<policy::Socket> {
        let index = self.find(flow).or_else(|| self.listener_at(end(flow.local)))?;
        match self.slots.get(index as usize)?.socket.as_ref()? {
            Socket::Connection(endpoint) => Some(endpoint.policy),
            Socket::Listener(listening) => Some(listening.policy),
        }
    }

    /// All connections that segments find.
    pub(super) fn connections(&self) -> impl Iterator<Item = u32> + '_ {
        self.flows.values().copied()
    }

    /// The listener that takes what comes to this end.
    pub(super) fn listener_at(&self, local: SocketAddrV6) -> Option<u32> {
        let to = |address| self.ports.get(&(local.port(), address)).copied();
        to(*local.ip()).or_else(|| to(Ipv6Addr::UNSPECIFIED))
    }

    /// Whether a listener has just this end.
    pub(super) fn is_listened_to(&self, local: SocketAddrV6) -> bool {
        self.ports.contains_key(&(local.port(), *local.ip()))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Socket> + '_ {
        self.slots.iter().filter_map(|slot| slot.socket.as_ref())
    }

    pub(super) fn add_connection(&mut self, endpoint: Box<Endpoint>) -> (u32, TcpHandle) {
        let flow = endpoint.flow;
        let key = self.add(Socket::Connection(endpoint));
        self.last = None;
        self.flows.insert(ends(&flow), key.index);
        (key.index, TcpHandle(key))
    }

    pub(super) fn add_listener(&mut self, listening: Listening) -> ListenerHandle {
        let local = listening.local;
        let key = self.add(Socket::Listener(Box::new(listening)));
        self.ports.insert((local.port(), *local.ip()), key.index);
        ListenerHandle(key)
    }

    /// Segments no longer find this connection.
    pub(super) fn detach(&mut self, index: u32) {
        let Some(flow) = self.connection(index).map(|endpoint| endpoint.flow) else { return };
        if self.find(&flow) == Some(index) {
            self.last = None;
            self.flows.remove(&ends(&flow));
        }
    }

    /// Its handle is good no longer.
    pub(super) fn withdraw(&mut self, index: u32) {
        if let Some(slot) = self.slots.get_mut(index as usize) {
            slot.generation = slot.generation.wrapping_add(1);
        }
    }

    pub(super) fn remove(&mut self, index: u32) -> Option<Socket> {
        self.detach(index);
        if let Some(listening) = self.listener(index) {
            let local = listening.local;
            self.ports.remove(&(local.port(), *local.ip()));
        }
        let socket = self.slots.get_mut(index as usize)?.socket.take()?;
        self.withdraw(index);
        self.free.push(index);
        Some(socket)
    }

    pub(super) fn get(&mut self, index: u32) -> Option<&mut Socket> {
        self.slots.get_mut(index as usize)?.socket.as_mut()
    }

    pub(super) fn connection(&mut self, index: u32) -> Option<&mut Endpoint> {
        match self.get(index)? {
            Socket::Connection(endpoint) => Some(endpoint),
            Socket::Listener(_) => None,
        }
    }

    pub(super) fn listener(&mut self, index: u32) -> Option<&mut Listening> {
        match self.get(index)? {
            Socket::Listener(listening) => Some(listening),
            Socket::Connection(_) => None,
        }
    }

    /// What a handle stands for.
    pub(super) fn held(&self, handle: TcpHandle) -> Result<&Endpoint, Stale> {
        match self.slots.get(handle.0.index as usize) {
            Some(Slot { generation, socket: Some(Socket::Connection(endpoint)) })
                if *generation == handle.0.generation =>
            {
                Ok(endpoint)
            }
            _ => Err(Stale),
        }
    }

    pub(super) fn held_mut(&mut self, handle: TcpHandle) -> Result<(u32, &mut Endpoint), Stale> {
        self.held(handle)?;
        let index = handle.0.index;
        self.connection(index).map(|endpoint| (index, endpoint)).ok_or(Stale)
    }

    pub(super) fn held_listener(&mut self, handle: ListenerHandle) -> Result<(u32, &mut Listening), Stale> {
        let index = handle.0.index;
        let generation = self.slots.get(index as usize).map(|slot| slot.generation);
        if generation != Some(handle.0.generation) {
            return Err(Stale);
        }
        self.listener(index).map(|listening| (index, listening)).ok_or(Stale)
    }

    pub(super) fn handle(&self, index: u32) -> Option<TcpHandle> {
        Some(TcpHandle(self.key(index)?))
    }

    pub(super) fn listener_handle(&self, index: u32) -> Option<ListenerHandle> {
        Some(ListenerHandle(self.key(index)?))
    }

    fn key(&self, index: u32) -> Option<Key> {
        Some(Key { index, generation: self.slots.get(index as usize)?.generation })
    }

    fn add(&mut self, socket: Socket) -> Key {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        slot.socket = Some(socket);
        Key { index, generation: slot.generation }
    }
}

/// The two ends as the host has them: IPv4 addresses are mapped ones, and scopes and flow labels are left out.
pub(super) fn flow(local: (IpAddr, u16), remote: (IpAddr, u16)) -> Flow {
    let end = |(address, port)| SocketAddr::V6(SocketAddrV6::new(mapped(address), port, 0, 0));
    Flow { local: end(local), remote: end(remote) }
}

/// Both ends, as they are hashed: addresses, ports.
type Ends = (u128, u128, u32);

fn ends(flow: &Flow) -> Ends {
    let end = |end: SocketAddr| (mapped(end.ip()), end.port());
    ends_of(end(flow.local), end(flow.remote))
}

fn ends_of(local: (Ipv6Addr, u16), remote: (Ipv6Addr, u16)) -> Ends {
    let ports = u32::from(local.1) << 16 | u32::from(remote.1);
    (local.0.to_bits(), remote.0.to_bits(), ports)
}

/// What the policy sees of segments that leave.
pub(super) fn traffic(flow: &Flow) -> Traffic {
    Traffic {
        source: flow.local.ip().to_canonical(),
        destination: flow.remote.ip().to_canonical(),
        protocol: protocol::TCP,
        detail: Detail::Ports { source: flow.local.port(), destination: flow.remote.port() },
    }
}

/// An address as sockets have it.
pub(super) fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// An end as the caller has it.
pub(super) fn end(end: SocketAddr) -> SocketAddrV6 {
    SocketAddrV6::new(mapped(end.ip()), end.port(), 0, 0)
}

#[derive(Clone)]
struct Keyed(SipHasher13);

impl BuildHasher for Keyed {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        self.0
    }
}
