//! One UDP socket that receives at many addresses and ports: for endpoints that are many and seldom spoken to.
//!
//! A BPF program of type `sk_lookup`, attached to the network namespace, gives it every datagram over IPv6 whose
//! destination is in a table, and leaves all others alone. The table comes behind connected sockets and before all
//! others: also where another program listens on the port on all addresses, what is in the table is ours.
//!
//! The socket is bound to an address that is not one of this host, so the table is the only way to it. It is a specific
//! address all the same, which the rules of [`crate::nft`] ask for. Datagrams leave by a raw socket, with headers as the
//! kernel's own UDP makes them: a socket on the endpoint could not be had where somebody else has the port.

use std::hash::{BuildHasher as _, RandomState};
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use wire::checksum::Sum;
use wire::ecn::Ecn;

use super::message::{Message, leading_int, send_packet};
use super::{EndpointOptions, EndpointSocket, IPV6_FREEBIND, IPV6_PMTUDISC_PROBE, Received, SendOutcome};
use crate::bpf::attach::attach_sk_lookup;
use programs::sk_lookup;

use crate::bpf::{Link, Map, MapKind, Program, ProgramKind};
use crate::error::{Context as _, Error, Result};
use crate::sockopt::{self, sockaddr_in6};

/// The prefix that is discarded everywhere (RFC 6666): no host has an address in it.
const NOWHERE: SocketAddrV6 = SocketAddrV6::new(Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0x51de), 0, 0, 0);

/// The longest packet that is sent: one that every link takes.
const MAX_PACKET: usize = wire::ipv6::MIN_MTU;
const HEADERS: usize = wire::ipv6::HEADER_LEN + wire::udp::HEADER_LEN;
/// As [`EndpointSocket`] has it.
const HOP_LIMIT: u8 = 64;

// Not in libc for this target. Option and control message have the same number.
const IPV6_ORIGDSTADDR: i32 = 74;

/// The table of the addresses and ports that `sk_lookup` gives to a [`SharedSocket`]. For any thread.
#[derive(Clone, Debug)]
pub struct SkLookupTable {
    table: Arc<Map>,
}

impl SkLookupTable {
    /// The socket receives what is for `local` from now on. `EEXIST`: it does already; `E2BIG`: the table is full.
    pub fn insert(&self, local: SocketAddrV6) -> Result<()> {
        self.table.insert(&key(local), &[1])
    }

    /// It receives that no more. Returns whether it did.
    pub fn remove(&self, local: SocketAddrV6) -> Result<bool> {
        self.table.remove(&key(local))
    }
}

/// A socket for many addresses and ports. Non-blocking; add it to a [`crate::event::Poller`].
#[derive(Debug)]
pub struct SharedSocket {
    // First, so that nothing is steered to a socket that is gone.
    _link: Link,
    socket: EndpointSocket,
    raw: OwnedFd,
    lookup_table: SkLookupTable,
    labels: FlowLabels,
}

impl SharedSocket {
    /// A socket that receives nothing yet, and at `capacity` addresses and ports at most, in the network namespace of this
    /// thread. The kernel keeps 16 bytes for each of the capacity, and about 64 for each in the table.
    ///
    /// An error says why this kernel cannot do it, or this process may not: then each address takes a socket of its own.
    pub fn open(capacity: u32, options: &EndpointOptions) -> Result<Self> {
        at_least_linux_5_19()?;
        let socket = EndpointSocket::open(NOWHERE, None, options)?;
        let fd = socket.as_fd();
        sockopt::enable(fd, libc::IPPROTO_IPV6, IPV6_ORIGDSTADDR, "setsockopt IPV6_RECVORIGDSTADDR")?;
        // ICMPv6 errors about what it sent would find it by the table; nobody wants to know.
        sockopt::set(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, &0i32, "setsockopt IPV6_RECVERR")?;
        let raw = open_raw()?;
        super::keep_to(raw.as_fd(), options.interface)?;
        let table = Map::create(MapKind::Hash, sk_lookup::KEY, 1, capacity)?;
        let sockets = Map::create(MapKind::Sockets, 4, 8, 1)?;
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&fd) as u64;
        sockets.set(&0u32.to_ne_bytes(), &descriptor.to_ne_bytes())?;
        let link =
            attach_sk_lookup(&Program::load(ProgramKind::SkLookup, &sk_lookup::program(&table, &sockets))?)?;
        let lookup_table = SkLookupTable { table: Arc::new(table) };
        Ok(Self { _link: link, socket, raw, lookup_table, labels: FlowLabels::of_this_namespace() })
    }

    /// The table of where it receives.
    #[must_use]
    pub fn lookup_table(&self) -> &SkLookupTable {
        &self.lookup_table
    }

    /// Keeps it to another interface, as [`EndpointSocket::keep_to`].
    pub fn keep_to(&self, interface: u32) -> Result<()> {
        self.socket.keep_to(interface)?;
        super::keep_to(self.raw.as_fd(), Some(interface))
    }

    /// Receives as [`EndpointSocket::recv`], and tells which address and port the datagrams were sent to.
    pub fn recv(&self, buffer: &mut [u8]) -> Result<Option<(Received, SocketAddrV6)>> {
        let mut message = Message::new(buffer);
        let len = match message.receive(self.socket.as_fd(), 0) {
            Ok(len) => len,
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => {
                return Ok(None);
            }
            Err(error) => return Err(Error::new("recvmsg on the shared socket", error)),
        };
        let (mut segment_size, mut ecn, mut destination) = (len, Ecn::NotEct, None);
        message.for_each_control(|level, kind, data| match (level, kind) {
            (libc::SOL_UDP, libc::UDP_GRO) => segment_size = leading_int(data) as usize,
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => ecn = Ecn::from_bits(leading_int(data) as u8),
            (libc::IPPROTO_IPV6, IPV6_ORIGDSTADDR) => destination = socket_address_in(data),
            _ => {}
        });
        let Some((source, destination)) = message.name.zip(destination) else { return Ok(None) };
        let segment_size = segment_size.clamp(1, len.max(1));
        Ok(Some((Received { len, segment_size, source, ecn }, destination)))
    }

    /// Sends one datagram from an address and port. `traffic_class` is the whole field: ECN in its two low bits.
    pub fn send(
        &self,
        from: SocketAddrV6,
        to: SocketAddrV6,
        data: &[u8],
        traffic_class: u8,
    ) -> Result<SendOutcome> {
        let mut buffer = [0; MAX_PACKET];
        let Some(packet) = buffer.get_mut(..HEADERS + data.len()) else { return Ok(SendOutcome::TooLong) };
        write_packet(packet, from, to, data, traffic_class, self.labels.label(from, to));
        // The socket has no port: the destination's is in the packet.
        let to = sockaddr_in6(SocketAddrV6::new(*to.ip(), 0, 0, to.scope_id()));
        let Err(error) = send_packet(self.raw.as_fd(), packet, &to, *from.ip()) else {
            return Ok(SendOutcome::Sent);
        };
        match error.raw_os_error().unwrap_or(0) {
            libc::EAGAIN => Ok(SendOutcome::WouldBlock(0)),
            libc::ENOBUFS | libc::ENOMEM | libc::EINTR => Ok(SendOutcome::Dropped),
            libc::EMSGSIZE => Ok(SendOutcome::TooLong),
            number @ (libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EADDRNOTAVAIL) => {
                Ok(SendOutcome::Unreachable(number))
            }
            libc::EPERM => Ok(SendOutcome::Refused),
            number @ libc::EACCES => Ok(SendOutcome::Reported(number)),
            _ => Err(Error::new(format!("sendmsg from {from} by the raw socket"), error)),
        }
    }
}

impl AsFd for SharedSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Before, a process without CAP_BPF could not change a map where `kernel.unprivileged_bpf_disabled` is set.
fn at_least_linux_5_19() -> Result<()> {
    let names = nix::sys::utsname::uname().context(|| "uname")?;
    let release = names.release().to_string_lossy();
    let mut numbers = release.split(['.', '-', '+']).map(|part| part.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= (5, 19) {
        return Ok(());
    }
    Err(Error::other("a socket shared by many endpoints", format!("needs Linux 5.19, this is {release}")))
}

fn open_raw() -> Result<OwnedFd> {
    let raw = sockopt::socket(
        libc::AF_INET6,
        libc::SOCK_RAW,
        libc::IPPROTO_RAW,
        "socket for raw IPv6 (needs CAP_NET_RAW)",
    )?;
    let (fd, ipv6) = (raw.as_fd(), libc::IPPROTO_IPV6);
    sockopt::enable(fd, ipv6, IPV6_FREEBIND, "setsockopt IPV6_FREEBIND (needs Linux 4.15)")?;
    sockopt::enable(fd, ipv6, libc::IPV6_DONTFRAG, "setsockopt IPV6_DONTFRAG")?;
    sockopt::set(fd, ipv6, libc::IPV6_MTU_DISCOVER, &IPV6_PMTUDISC_PROBE, "setsockopt IPV6_MTU_DISCOVER")?;
    // It would hear protocol 255: as little as can be.
    sockopt::set(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, &0i32, "setsockopt SO_RCVBUF")?;
    Ok(raw)
}

fn key(local: SocketAddrV6) -> [u8; sk_lookup::KEY] {
    let mut key = [0; sk_lookup::KEY];
    key[..16].copy_from_slice(&local.ip().octets());
    key[16..].copy_from_slice(&u32::from(local.port()).to_ne_bytes());
    key
}

/// Flow labels as the kernel gives them to datagrams of UDP sockets: another with each flow, always the same with one.
#[derive(Debug)]
struct FlowLabels {
    on: bool,
    stateless: bool,
    secret: RandomState,
}

impl FlowLabels {
    /// As Documentation/networking/ip-sysctl.rst has it for sockets that ask for nothing.
    fn of_this_namespace() -> Self {
        let setting = |name| {
            let path = format!("/proc/sys/net/ipv6/{name}");
            std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u8>().ok())
        };
        Self {
            on: matches!(setting("auto_flowlabels"), None | Some(1 | 3)),
            stateless: setting("flowlabel_state_ranges") == Some(1),
            secret: RandomState::new(),
        }
    }

    fn label(&self, from: SocketAddrV6, to: SocketAddrV6) -> u32 {
        if !self.on {
            return 0;
        }
        let label = self.secret.hash_one((from.ip(), from.port(), to.ip(), to.port())) as u32 & 0xf_ffff;
        if self.stateless { label | 0x8_0000 } else { label }
    }
}

fn write_packet(
    packet: &mut [u8],
    from: SocketAddrV6,
    to: SocketAddrV6,
    data: &[u8],
    traffic_class: u8,
    flow_label: u32,
) {
    let length = (wire::udp::HEADER_LEN + data.len()) as u16;
    let outer = wire::ipv6::Header {
        traffic_class,
        flow_label,
        payload_length: length,
        next_header: wire::protocol::UDP,
        hop_limit: HOP_LIMIT,
        source: *from.ip(),
        destination: *to.ip(),
    };
    let mut udp =
        wire::udp::Header { source_port: from.port(), destination_port: to.port(), length, checksum: 0 };
    let pseudo = Sum::pseudo_ipv6(*from.ip(), *to.ip(), length.into(), wire::protocol::UDP);
    udp.checksum = (pseudo + Sum::of(&udp.to_bytes()) + Sum::of(data)).udp_checksum();
    let (headers, payload) = packet.split_at_mut(HEADERS);
    headers[..wire::ipv6::HEADER_LEN].copy_from_slice(&outer.to_bytes());
    headers[wire::ipv6::HEADER_LEN..].copy_from_slice(&udp.to_bytes());
    payload.copy_from_slice(data);
}

/// Reads `struct sockaddr_in6`: family, port, flow information, address, scope.
fn socket_address_in(data: &[u8]) -> Option<SocketAddrV6> {
    let port = u16::from_be_bytes(data.get(2..4)?.try_into().ok()?);
    let address: [u8; 16] = data.get(8..24)?.try_into().ok()?;
    Some(SocketAddrV6::new(Ipv6Addr::from(address), port, 0, 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn packets_parse_to_what_they_were_made_of(
            data in prop::collection::vec(any::<u8>(), 0..MAX_PACKET - HEADERS), from: u128, to: u128,
            ports: (u16, u16), traffic_class: u8, flow_label in 0u32..1 << 20,
        ) {
            let end = |address: u128, port| SocketAddrV6::new(Ipv6Addr::from(address), port, 0, 0);
            let mut packet = vec![0; HEADERS + data.len()];
            write_packet(&mut packet, end(from, ports.0), end(to, ports.1), &data, traffic_class, flow_label);
            let outer = wire::ipv6::Packet::parse(&packet).unwrap();
            prop_assert_eq!((outer.traffic_class(), outer.flow_label()), (traffic_class, flow_label));
            prop_assert_eq!((u128::from(outer.source()), u128::from(outer.destination())), (from, to));
            let udp = wire::udp::Datagram::parse(outer.payload()).unwrap();
            prop_assert_eq!((udp.source_port(), udp.destination_port()), ports);
            prop_assert_eq!(udp.payload(), data.as_slice());
            let length = outer.payload().len() as u32;
            let sum = outer.pseudo_header(length, wire::protocol::UDP) + Sum::of(outer.payload());
            prop_assert!(sum.is_valid() && udp.checksum() != 0);
        }

        #[test]
        fn a_flow_keeps_its_label(port: u16) {
            let labels = FlowLabels { on: true, stateless: true, secret: RandomState::new() };
            let (from, to) = (SocketAddrV6::new(Ipv6Addr::LOCALHOST, port, 0, 0), NOWHERE);
            prop_assert_eq!(labels.label(from, to), labels.label(from, to));
            prop_assert!((0x8_0000..0x10_0000).contains(&labels.label(from, to)));
            prop_assert_eq!(FlowLabels { on: false, ..labels }.label(from, to), 0);
        }
    }
}
