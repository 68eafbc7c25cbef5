//! Datagrams of one client (RFC 1928 §7): between a socket of this host, which hears that client alone, and one of the host
//! inside the tunnel.
//!
//! Names are asked for once, and what is for one waits until it is known. All of it is bounded, and what is too much is
//! dropped, as datagrams may be.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use linux::owner::{Owners, User};
use stack::host::Host;
use stack::udp::SocketId;

use crate::dns::Kind;
use crate::resolver::{Found, LookupId, Resolver, as_ipv6};
use crate::socks5::{self, DatagramError};
use crate::target::{Destination, Name};

/// Associations at once.
pub const MAX_ASSOCIATIONS: usize = 256;
/// Names of one association whose addresses are kept, and for how long.
const MAX_NAMES: usize = 64;
const NAMES_LAST: Duration = Duration::from_secs(60);
/// Datagrams of one association that wait for an address, and how many bytes of them.
const MAX_WAITING: usize = 16;
const MAX_WAITING_BYTES: usize = 32 << 10;
/// Datagrams that are taken from a client before others have their turn.
const AT_ONCE: usize = 32;
/// How often it is looked whose socket the client's is.
const LOOK_EVERY: Duration = Duration::from_secs(1);

wire::drop_reasons! {
    /// It is from somebody else than the client.
    Stranger = "stranger",
    /// It is a part of a datagram.
    Fragment = "fragment",
    /// It is none of SOCKS, or longer than any that is carried.
    Malformed = "malformed",
    /// Too many wait for the addresses of names.
    Waiting = "waiting",
    /// The name has no address, or nobody says.
    NoAddress = "no_address",
    /// The host inside could not send it.
    NotSent = "not_sent",
    /// The client does not take it.
    NotTaken = "not_taken",
}

/// What an association works with.
pub(crate) struct Around<'a> {
    pub(crate) host: &'a mut Host,
    pub(crate) resolver: &'a mut Resolver,
    pub(crate) owners: Option<&'a mut Owners>,
    pub(crate) scratch: &'a mut [u8],
    pub(crate) kinds: &'a [Kind],
    pub(crate) lookup: LookupId,
    pub(crate) now: Instant,
}

/// Who the client is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Who {
    /// Where its connection is from.
    pub(crate) ip: IpAddr,
    /// The port that its datagrams are to come from, if it has said so.
    pub(crate) port: Option<u16>,
    /// The user whose connection it is, if that is known: datagrams are to be of the same.
    pub(crate) owner: Option<User>,
}

/// Datagrams of one client.
pub(crate) struct Association {
    socket: UdpSocket,
    inside: SocketId,
    who: Who,
    client: Option<Client>,
    names: HashMap<Name, (Vec<IpAddr>, Instant)>,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    asking: Option<Name>,
    packet: Vec<u8>,
    header: Vec<u8>,
    drops: Drops,
}

/// Where the client's datagrams come from, since the first has.
struct Client {
    address: SocketAddr,
    looked: Instant,
}

struct Waiting {
    name: Name,
    port: u16,
    data: Vec<u8>,
}

impl Association {
    /// Opens a socket at `here`, an address that the client has reached.
    pub(crate) fn open(here: IpAddr, who: Who, host: &mut Host) -> io::Result<Self> {
        let socket = UdpSocket::bind((here, 0))?;
        socket.set_nonblocking(true)?;
        let any = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0);
        let inside = host.interface_mut().udp_bind(any).map_err(io::Error::other)?;
        Ok(Self {
            socket,
            inside,
            who,
            client: None,
            names: HashMap::new(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            asking: None,
            packet: Vec::new(),
            header: Vec::new(),
            drops: Drops::default(),
        })
    }

    /// Where the client's datagrams are to go to.
    pub(crate) fn relay(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Gives back what it holds in the tunnel.
    pub(crate) fn close(&mut self, around: &mut Around<'_>) {
        if self.asking.is_some() {
            around.resolver.cancel(around.host, around.lookup);
        }
        around.host.interface_mut().udp_close(self.inside);
        let drops: Vec<_> =
            self.drops.nonzero().map(|(reason, count)| format!("{} {count}", reason.name())).collect();
        if !drops.is_empty() {
            tracing::debug!("datagrams of a client that were dropped: {}", drops.join(", "));
        }
    }

    /// The client has sent something.
    pub(crate) fn outward(&mut self, around: &mut Around<'_>) {
        let scratch = std::mem::take(&mut around.scratch);
        for _ in 0..AT_ONCE {
            match self.socket.recv_from(scratch) {
                // What fills the room may have been cut.
                Ok((length, _)) if length >= scratch.len() => self.drops.count(DropReason::Malformed),
                Ok((length, from)) => {
                    if let Err(reason) = self.take(&scratch[..length], from, around) {
                        self.drops.count(reason);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // An ICMP error about something that was sent.
                Err(_) => {}
            }
        }
        around.scratch = scratch;
    }

    /// Something has come out of the tunnel.
    pub(crate) fn inward(&mut self, around: &mut Around<'_>) {
        let interface = around.host.interface_mut();
        while interface.udp_error(self.inside).is_some() {}
        while let Some(metadata) = interface.udp_receive(self.inside, &mut self.packet) {
            let Some(client) = &self.client else { continue };
            let from = SocketAddr::new(metadata.from.ip().to_canonical(), metadata.from.port());
            self.header.clear();
            socks5::put_datagram_header(&mut self.header, from);
            self.packet.splice(0..0, self.header.iter().copied());
            if self.socket.send_to(&self.packet, client.address).is_err() {
                self.drops.count(DropReason::NotTaken);
            }
        }
    }

    /// A name has addresses, or has none.
    pub(crate) fn resolved(&mut self, found: Found, around: &mut Around<'_>) {
        let Some(name) = self.asking.take() else { return };
        let addresses = found.unwrap_or_default();
        for _ in 0..self.waiting.len() {
            let Some(waiting) = self.waiting.pop_front() else { break };
            if waiting.name != name {
                self.waiting.push_back(waiting);
                continue;
            }
            self.waiting_bytes -= waiting.data.len();
            if let Err(reason) = self.send(addresses.first().copied(), waiting.port, &waiting.data, around) {
                self.drops.count(reason);
            }
        }
        // What nobody knows is asked again.
        if !addresses.is_empty() {
            if self.names.len() >= MAX_NAMES {
                self.names.retain(|_, (_, until)| *until > around.now);
            }
            if self.names.len() >= MAX_NAMES {
                self.names.clear();
            }
            self.names.insert(name, (addresses, around.now + NAMES_LAST));
        }
        self.ask(around);
    }

    fn take(&mut self, bytes: &[u8], from: SocketAddr, around: &mut Around<'_>) -> Result<(), DropReason> {
        if !self.is_client(from, around) {
            return Err(DropReason::Stranger);
        }
        let (target, start) = socks5::datagram(bytes).map_err(|error| match error {
            DatagramError::Fragment => DropReason::Fragment,
            DatagramError::Malformed => DropReason::Malformed,
        })?;
        let data = bytes.get(start..).unwrap_or_default();
        let name = match target.host {
            Destination::Address(address) => return self.send(Some(address), target.port, data, around),
            Destination::Name(name) => name,
        };
        if let Some((addresses, until)) = self.names.get(&name)
            && *until > around.now
        {
            let address = addresses.first().copied();
            return self.send(address, target.port, data, around);
        }
        if self.waiting.len() >= MAX_WAITING || self.waiting_bytes + data.len() > MAX_WAITING_BYTES {
            return Err(DropReason::Waiting);
        }
        self.waiting_bytes += data.len();
        self.waiting.push_back(Waiting { name, port: target.port, data: data.to_vec() });
        self.ask(around);
        Ok(())
    }

    /// Whether a datagram is the client's: the first that may be one says where all others come from.
    fn is_client(&mut self, from: SocketAddr, around: &mut Around<'_>) -> bool {
        let is_same = match &self.client {
            Some(client) => client.address == from,
            None => from.ip() == self.who.ip && self.who.port.is_none_or(|port| port == from.port()),
        };
        if !is_same {
            return false;
        }
        let is_fresh = |client: &Client| around.now.saturating_duration_since(client.looked) < LOOK_EVERY;
        if self.client.as_ref().is_some_and(is_fresh) {
            return true;
        }
        // Its port may be another user's meanwhile.
        if let Some(owner) = self.who.owner {
            let here = self.socket.local_addr().ok();
            let found =
                here.zip(around.owners.as_mut()).and_then(|(here, owners)| owners.of_udp(from, here).ok()?);
            if found.is_none_or(|found| found != owner && found != User::ROOT) {
                return false;
            }
        }
        self.client = Some(Client { address: from, looked: around.now });
        true
    }

    /// Asks for the next name that something waits for.
    fn ask(&mut self, around: &mut Around<'_>) {
        while self.asking.is_none()
            && let Some(name) = self.waiting.front().map(|waiting| waiting.name.clone())
        {
            let Around { resolver, host, .. } = around;
            if resolver.ask(around.now, host, around.lookup, name.clone(), around.kinds).is_ok() {
                self.asking = Some(name);
                return;
            }
            if let Some(waiting) = self.waiting.pop_front() {
                self.waiting_bytes -= waiting.data.len();
                self.drops.count(DropReason::NoAddress);
            }
        }
    }

    fn send(
        &self,
        to: Option<IpAddr>,
        port: u16,
        data: &[u8],
        around: &mut Around<'_>,
    ) -> Result<(), DropReason> {
        let to = SocketAddrV6::new(as_ipv6(to.ok_or(DropReason::NoAddress)?), port, 0, 0);
        let sent = around.host.interface_mut().udp_send(around.now, self.inside, Some(to), data);
        sent.map(drop).map_err(|_| DropReason::NotSent)
    }
}

impl AsFd for Association {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
