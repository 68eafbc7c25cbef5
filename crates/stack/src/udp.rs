//! UDP sockets (RFC 768, RFC 8200 §8.1): ports, queues, errors about what was sent.
//!
//! The sockets of an interface are in [`Sockets`]; [`crate::interface::Interface`] sends for them.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv6Addr, SocketAddrV6};

use ipsec::policy;
use wire::checksum::Sum;
use wire::{protocol, udp};

use crate::DropReason;
use crate::icmpv6::{ErrorKind, ErrorReport};
use crate::random::{Key, Random};

/// Datagrams that wait in a socket: a burst at line rate while the caller does something else.
pub const MAX_QUEUED: usize = 256;
/// Octets that wait in a socket.
pub const MAX_QUEUED_OCTETS: usize = 1 << 18;
/// Buffers kept for later.
const MAX_SPARE: usize = 64;
/// Ports for sockets that ask for none (RFC 6056).
const EPHEMERAL: std::ops::RangeInclusive<u16> = 49_152..=65_535;

/// A socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId(u32);

/// Why a socket could not be had or used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Another socket has the address and port, or all ports are taken.
    #[error("the address is in use")]
    InUse,
    /// The socket is closed.
    #[error("no such socket")]
    Closed,
    /// A datagram without destination from a socket that is not connected.
    #[error("no destination")]
    NoDestination,
    /// Longer than a datagram can be.
    #[error("the datagram is too long")]
    TooLong,
    /// The host lets no socket past its security.
    #[error("not permitted to bypass security")]
    NotPermitted,
}

/// Where a datagram came from, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    /// Its source.
    pub from: SocketAddrV6,
    /// The address of ours, or the group, that it was sent to.
    pub to: Ipv6Addr,
    /// The hop limit that was left.
    pub hop_limit: u8,
    /// DSCP and ECN.
    pub traffic_class: u8,
}

struct Socket {
    local: SocketAddrV6,
    remote: Option<SocketAddrV6>,
    queue: VecDeque<(Metadata, Vec<u8>)>,
    octets: usize,
    error: Option<(ErrorKind, SocketAddrV6)>,
    /// The flow label of the flow sent last, so that it is not hashed for each datagram.
    flow: Option<(Ipv6Addr, SocketAddrV6, u32)>,
    /// What it asks of security.
    policy: Option<policy::Socket>,
}

/// The sockets of an interface.
pub struct Sockets {
    sockets: BTreeMap<SocketId, Socket>,
    next: u32,
    /// Of flow labels (RFC 6437 §3).
    key: Key,
    /// Buffers of datagrams that have been received, for others.
    spare: Vec<Vec<u8>>,
}

impl Sockets {
    /// None yet.
    pub fn new(random: &mut Random) -> Self {
        Sockets { sockets: BTreeMap::new(), next: 0, key: Key::new(random.octets()), spare: Vec::new() }
    }

    /// Opens a socket. The unspecified address takes what comes to any; port 0 is any that is free.
    ///
    /// # Errors
    /// [`Error::InUse`].
    pub fn bind(&mut self, mut local: SocketAddrV6, random: &mut Random) -> Result<SocketId, Error> {
        if local.port() == 0 {
            let (first, last) = EPHEMERAL.into_inner();
            let count = u32::from(last - first) + 1;
            let start = random.u32() % count;
            let port = |n| first + ((start + n) % count) as u16;
            let free = (0..count).map(port).find(|port| !self.is_taken(*local.ip(), *port));
            local.set_port(free.ok_or(Error::InUse)?);
        } else if self.is_taken(*local.ip(), local.port()) {
            return Err(Error::InUse);
        }
        let id = SocketId(self.next);
        self.next = self.next.wrapping_add(1);
        let queue = VecDeque::new();
        let socket = Socket { local, remote: None, queue, octets: 0, error: None, flow: None, policy: None };
        self.sockets.insert(id, socket);
        Ok(id)
    }

    /// From now on only what comes from there is taken, and what is sent without destination goes there.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn connect(&mut self, id: SocketId, remote: SocketAddrV6) -> Result<(), Error> {
        let socket = self.sockets.get_mut(&id).ok_or(Error::Closed)?;
        socket.remote = Some(remote);
        let length = |(_, data): &(Metadata, Vec<u8>)| data.len();
        socket.queue.retain(|(metadata, _)| is_same(&metadata.from, &remote));
        socket.octets = socket.queue.iter().map(length).sum();
        Ok(())
    }

    /// Closes a socket.
    pub fn close(&mut self, id: SocketId) {
        self.sockets.remove(&id);
    }

    /// The next datagram: it is put in place of what is in `out`, whose buffer is used again.
    pub fn receive(&mut self, id: SocketId, out: &mut Vec<u8>) -> Option<Metadata> {
        let socket = self.sockets.get_mut(&id)?;
        let (metadata, data) = socket.queue.pop_front()?;
        socket.octets -= data.len();
        let old = std::mem::replace(out, data);
        if self.spare.len() < MAX_SPARE && old.capacity() > 0 {
            self.spare.push(old);
        }
        Some(metadata)
    }

    /// Whether a datagram or an error waits.
    pub fn is_readable(&self, id: SocketId) -> bool {
        self.sockets.get(&id).is_some_and(|socket| !socket.queue.is_empty() || socket.error.is_some())
    }

    /// The last error about something that was sent to that address; then it is forgotten.
    pub fn take_error(&mut self, id: SocketId) -> Option<(ErrorKind, SocketAddrV6)> {
        self.sockets.get_mut(&id)?.error.take()
    }

    /// The address and port that a socket has.
    pub fn local(&self, id: SocketId) -> Option<SocketAddrV6> {
        Some(self.sockets.get(&id)?.local)
    }

    /// Our end of each socket, and the other one of those that are connected.
    pub fn iter(&self) -> impl Iterator<Item = (SocketAddrV6, Option<SocketAddrV6>)> + '_ {
        self.sockets.values().map(|socket| (socket.local, socket.remote))
    }

    /// What a socket asks of security.
    pub(crate) fn policy(&self, id: SocketId) -> Option<policy::Socket> {
        self.sockets.get(&id)?.policy
    }

    pub(crate) fn set_policy(&mut self, id: SocketId, policy: policy::Socket) -> Result<(), Error> {
        self.sockets.get_mut(&id).ok_or(Error::Closed)?.policy = Some(policy);
        Ok(())
    }

    /// Where a datagram goes: `to`, or where the socket is connected to.
    pub(crate) fn destination(&self, id: SocketId, to: Option<SocketAddrV6>) -> Result<SocketAddrV6, Error> {
        let socket = self.sockets.get(&id).ok_or(Error::Closed)?;
        to.or(socket.remote).ok_or(Error::NoDestination)
    }

    /// The flow label of what is sent from `source` to `to`, never 0 (RFC 6437 §3).
    pub(crate) fn flow_label(&mut self, id: SocketId, source: Ipv6Addr, to: SocketAddrV6) -> u32 {
        let Some(socket) = self.sockets.get_mut(&id) else { return 0 };
        if let Some((of_source, of_to, label)) = socket.flow
            && of_source == source
            && of_to == to
        {
            return label;
        }
        let (from_port, to_port) = (socket.local.port().to_be_bytes(), to.port().to_be_bytes());
        let parts = [&source.octets()[..], &to.ip().octets(), &from_port, &to_port, &[protocol::UDP]];
        let label = (self.key.hash(&parts) as u32 & 0xf_ffff).max(1);
        socket.flow = Some((source, to, label));
        label
    }

    /// Takes a datagram from a packet: `bytes` is the upper layer. The checksum must be there and right, and its security
    /// must suffice for the socket.
    pub(crate) fn deliver(
        &mut self,
        metadata: Metadata,
        bytes: &[u8],
        admits: impl FnOnce(Option<&policy::Socket>) -> bool,
    ) -> Result<(), DropReason> {
        let datagram = udp::Datagram::parse(bytes).map_err(|_| DropReason::Malformed)?;
        let length = datagram.length();
        let bytes = bytes.get(..usize::from(length)).ok_or(DropReason::Malformed)?;
        // In IPv4 a datagram need not have a checksum.
        let is_missing = datagram.checksum() == 0;
        let may_be_missing = metadata.to.to_ipv4_mapped().is_some();
        let is_valid = || (pseudo(*metadata.from.ip(), metadata.to, length) + Sum::of(bytes)).is_valid();
        if is_missing && !may_be_missing || !is_missing && !is_valid() {
            return Err(DropReason::Checksum);
        }
        let from = SocketAddrV6::new(*metadata.from.ip(), datagram.source_port(), 0, 0);
        let (to, port) = (metadata.to, datagram.destination_port());
        // The most special socket: connected before bound to the address before any.
        let found = self.sockets.values_mut().filter(|socket| socket.takes(&from, to, port));
        let socket =
            found.max_by_key(|socket| (socket.remote.is_some(), !socket.local.ip().is_unspecified()));
        if !admits(socket.as_ref().and_then(|socket| socket.policy.as_ref())) {
            return Err(DropReason::Security);
        }
        let Some(socket) = socket else { return Err(DropReason::NoSocket) };
        let data = datagram.payload();
        if socket.queue.len() >= MAX_QUEUED || socket.octets + data.len() > MAX_QUEUED_OCTETS {
            return Err(DropReason::QueueFull);
        }
        socket.octets += data.len();
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(data);
        socket.queue.push_back((Metadata { from, ..metadata }, buffer));
        Ok(())
    }

    /// An error about a datagram: if a socket may have sent it, and the error's security suffices for it, it is told.
    /// Returns whether there is one. Of a socket that is not
    /// connected only its own address and port say so: a server has more clients than it could remember.
    pub(crate) fn error(
        &mut self,
        report: &ErrorReport<'_>,
        mut admits: impl FnMut(Option<&policy::Socket>) -> bool,
    ) -> bool {
        let Some([a, b, c, d, ..]) = report.upper.first_chunk::<8>() else { return false };
        let (from, to) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
        let remote = SocketAddrV6::new(report.remote, to, 0, 0);
        let mut found = false;
        for socket in self.sockets.values_mut() {
            if socket.sends(report.local, from, &remote) && admits(socket.policy.as_ref()) {
                socket.error = Some((report.kind, remote));
                found = true;
            }
        }
        found
    }

    fn is_taken(&self, address: Ipv6Addr, port: u16) -> bool {
        let collides = |of: Ipv6Addr| of.is_unspecified() || address.is_unspecified() || of == address;
        self.sockets.values().any(|socket| socket.local.port() == port && collides(*socket.local.ip()))
    }
}

impl Socket {
    fn takes(&self, from: &SocketAddrV6, to: Ipv6Addr, port: u16) -> bool {
        self.local.port() == port
            && (self.local.ip().is_unspecified() || *self.local.ip() == to)
            && self.remote.is_none_or(|remote| is_same(&remote, from))
    }

    fn sends(&self, local: Ipv6Addr, port: u16, remote: &SocketAddrV6) -> bool {
        self.local.port() == port
            && (self.local.ip().is_unspecified() || *self.local.ip() == local)
            && self.remote.is_none_or(|to| is_same(&to, remote))
    }
}

/// The same address and port; flow and scope are no part of it.
fn is_same(a: &SocketAddrV6, b: &SocketAddrV6) -> bool {
    a.ip() == b.ip() && a.port() == b.port()
}

/// The pseudo-header, of IPv4 if the addresses are mapped ones.
fn pseudo(source: Ipv6Addr, destination: Ipv6Addr, length: u16) -> Sum {
    match (source.to_ipv4_mapped(), destination.to_ipv4_mapped()) {
        (Some(source), Some(destination)) => Sum::pseudo_ipv4(source, destination, length, protocol::UDP),
        _ => Sum::pseudo_ipv6(source, destination, length.into(), protocol::UDP),
    }
}

/// The header in front of `data`.
pub(crate) fn header(
    source: SocketAddrV6,
    destination: SocketAddrV6,
    data: &[u8],
) -> Result<[u8; udp::HEADER_LEN], Error> {
    let length = u16::try_from(udp::HEADER_LEN + data.len()).map_err(|_| Error::TooLong)?;
    let mut header =
        udp::Header { source_port: source.port(), destination_port: destination.port(), length, checksum: 0 };
    let pseudo = pseudo(*source.ip(), *destination.ip(), length);
    header.checksum = (pseudo + Sum::of(&header.to_bytes()) + Sum::of(data)).udp_checksum();
    Ok(header.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const US: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    const THEM: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

    fn at(address: Ipv6Addr, port: u16) -> SocketAddrV6 {
        SocketAddrV6::new(address, port, 0, 0)
    }

    struct Host {
        sockets: Sockets,
        random: Random,
    }

    impl Host {
        fn new() -> Self {
            let mut random = Random::new([1; 32]);
            Host { sockets: Sockets::new(&mut random), random }
        }

        fn bind(&mut self, address: Ipv6Addr, port: u16) -> Result<SocketId, Error> {
            self.sockets.bind(at(address, port), &mut self.random)
        }

        fn deliver(&mut self, from: u16, to: u16, data: &[u8]) -> Result<(), DropReason> {
            let header = header(at(THEM, from), at(US, to), data).unwrap();
            self.sockets.deliver(metadata(), &[&header, data].concat(), |_| true)
        }

        fn received(&mut self, id: SocketId) -> Option<(u16, Vec<u8>)> {
            let mut data = Vec::new();
            let metadata = self.sockets.receive(id, &mut data)?;
            Some((metadata.from.port(), data))
        }
    }

    fn metadata() -> Metadata {
        Metadata { from: at(THEM, 0), to: US, hop_limit: 64, traffic_class: 0 }
    }

    #[test]
    fn a_datagram_goes_to_the_most_special_socket() {
        let mut host = Host::new();
        let any = host.bind(Ipv6Addr::UNSPECIFIED, 53).unwrap();
        host.deliver(1000, 53, b"one").unwrap();
        assert_eq!(host.received(any), Some((1000, b"one".to_vec())));
        host.sockets.connect(any, at(THEM, 1001)).unwrap();
        assert_eq!(host.deliver(1000, 53, b"two"), Err(DropReason::NoSocket));
        host.deliver(1001, 53, b"three").unwrap();
        assert_eq!(host.received(any), Some((1001, b"three".to_vec())));
    }

    #[test]
    fn a_port_is_taken_once() {
        let mut host = Host::new();
        let first = host.bind(US, 53).unwrap();
        assert_eq!(host.bind(Ipv6Addr::UNSPECIFIED, 53), Err(Error::InUse));
        host.bind(THEM, 53).unwrap();
        host.sockets.close(first);
        let port = |host: &mut Host| {
            let id = host.bind(Ipv6Addr::UNSPECIFIED, 0).unwrap();
            host.sockets.local(id).unwrap().port()
        };
        let (a, b) = (port(&mut host), port(&mut host));
        assert!(a != b && EPHEMERAL.contains(&a) && EPHEMERAL.contains(&b));
    }

    #[test]
    fn rfc_8200_8_1_a_checksum_is_there_and_right() {
        let mut host = Host::new();
        host.bind(US, 53).unwrap();
        let header = header(at(THEM, 1), at(US, 53), b"data").unwrap();
        let mut bytes = [&header[..], b"data"].concat();
        bytes[8] ^= 1;
        assert_eq!(host.sockets.deliver(metadata(), &bytes, |_| true), Err(DropReason::Checksum));
        bytes[6..8].fill(0);
        assert_eq!(host.sockets.deliver(metadata(), &bytes, |_| true), Err(DropReason::Checksum));
    }

    #[test]
    fn queues_are_bounded() {
        let mut host = Host::new();
        let id = host.bind(US, 53).unwrap();
        let taken = (0..1000).filter(|_| host.deliver(1, 53, b"x").is_ok()).count();
        assert_eq!(taken, MAX_QUEUED);
        while host.received(id).is_some() {}
        let large = vec![0; 60_000];
        assert_eq!((0..10).filter(|_| host.deliver(1, 53, &large).is_ok()).count(), 4);
    }

    #[test]
    fn an_error_comes_to_the_socket_that_sent_and_to_no_other() {
        let mut host = Host::new();
        let id = host.bind(US, 4000).unwrap();
        let upper = [[0x0f, 0xa0, 0, 53], [0, 8, 0, 0]];
        let report = ErrorReport {
            kind: ErrorKind::Unreachable(4),
            reporter: THEM,
            local: US,
            remote: THEM,
            protocol: protocol::UDP,
            upper: upper.as_flattened(),
        };
        assert!(host.sockets.error(&report, |_| true));
        assert_eq!(host.sockets.take_error(id), Some((ErrorKind::Unreachable(4), at(THEM, 53))));
        assert_eq!(host.sockets.take_error(id), None);
        assert!(!host.sockets.error(&ErrorReport { upper: &[0; 7], ..report }, |_| true));
        assert!(
            !host.sockets.error(&ErrorReport { local: THEM, ..report }, |_| true),
            "from another address"
        );
        host.sockets.connect(id, at(THEM, 54)).unwrap();
        assert!(!host.sockets.error(&report, |_| true), "to another port");
    }

    #[test]
    fn rfc_6437_3_a_flow_keeps_its_label_and_others_have_others() {
        let mut host = Host::new();
        let id = host.bind(US, 4000).unwrap();
        let label = host.sockets.flow_label(id, US, at(THEM, 53));
        assert_ne!(host.sockets.flow_label(id, US, at(THEM, 54)), label);
        assert_eq!(host.sockets.flow_label(id, US, at(THEM, 53)), label);
        assert!(label > 0 && label < 1 << 20);
    }

    proptest! {
        #[test]
        fn any_datagram_is_taken_or_dropped(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut host = Host::new();
            host.bind(US, 53).unwrap();
            let _ = host.sockets.deliver(metadata(), &bytes, |_| true);
        }
    }
}
