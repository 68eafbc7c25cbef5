//! A UDP socket at all addresses of this host, or at one, over both versions of IP: it says which address a datagram was sent
//! to, and sends from the one that it is told.
//!
//! It is a socket of IPv6 in either case, which sees addresses of IPv4 as mapped ones.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use wire::ecn::Ecn;

use super::message::{Message, Sending, leading_int, send_datagram};
use super::outcome::from_the_network;
use super::{
    EndpointOptions, IPV6_PMTUDISC_PROBE, MAX_SEGMENTED_BYTES, MAX_SEGMENTS, Segmentation, SendOutcome,
    keep_to, set_buffers,
};
use crate::error::{Error, Result};
use crate::sockopt::{self, sockaddr_in6};

/// ICMPv6 type of Packet Too Big, and ICMP's type and code of fragmentation needed.
const PACKET_TOO_BIG: (u8, u8) = (2, 0);
const FRAGMENTATION_NEEDED: (u8, u8) = (3, 4);
/// Bytes of what an ICMP message quotes that are looked at: two IP headers' worth, and what follows.
pub(crate) const QUOTED: usize = 64;
/// Not in `libc` under names of IPv6.
const PMTUDISC_DONT: i32 = 0;
/// The least that a link of IPv6 carries (RFC 8200 §5).
const MIN_MTU: i32 = 1280;

/// What one receive brought: one datagram, or several of one sender and one size, one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostReceived {
    /// Bytes in the buffer.
    pub len: usize,
    /// Bytes of each datagram; the last one may be shorter. At least 1.
    pub segment_size: usize,
    /// Who sent it.
    pub source: SocketAddr,
    /// The address of this host that it was sent to.
    pub destination: IpAddr,
    /// The interface that it came in by.
    pub interface: u32,
    /// The ECN codepoint (RFC 3168), the same for all datagrams of the batch.
    pub ecn: Ecn,
}

/// A path is narrower than a datagram that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooBig {
    /// Where the datagram was going.
    pub destination: IpAddr,
    /// What fits.
    pub mtu: u32,
    /// What an ICMP message says that it was, from behind the UDP header on, of raw sockets from the IP header on; `None`:
    /// this host itself says so.
    pub quoted: Option<Vec<u8>>,
}

/// What a control message of an error queue says of a narrow path: its MTU, and whether this host itself says so.
pub(crate) fn too_big(level: i32, kind: i32, data: &[u8]) -> Option<(u32, bool)> {
    let queues = [(libc::IPPROTO_IPV6, libc::IPV6_RECVERR), (libc::IPPROTO_IP, libc::IP_RECVERR)];
    if !queues.contains(&(level, kind)) {
        return None;
    }
    // struct sock_extended_err: errno, origin, type, code, padding, information.
    let &[origin, kind, code] = data.get(4..7)?.first_chunk::<3>()?;
    let is_local = origin == libc::SO_EE_ORIGIN_LOCAL && leading_int(data) == libc::EMSGSIZE;
    let is_icmp =
        origin != libc::SO_EE_ORIGIN_LOCAL && matches!((kind, code), PACKET_TOO_BIG | FRAGMENTATION_NEEDED);
    (is_local || is_icmp).then(|| (data.get(8..).map_or(0, leading_int) as u32, is_local))
}

/// A UDP socket of this host. Non-blocking; add it to a [`crate::event::Poller`].
#[derive(Debug)]
pub struct HostSocket {
    fd: OwnedFd,
    port: u16,
    segmentation: Arc<Segmentation>,
}

impl HostSocket {
    /// Opens a socket on `port`, 0 for any that is free, at one address of this host or at all.
    ///
    /// `EADDRINUSE` means that another program holds the port, `EACCES` that it takes privileges.
    pub fn open(local: Option<IpAddr>, port: u16, options: &EndpointOptions) -> Result<Self> {
        let owned = sockopt::socket(libc::AF_INET6, libc::SOCK_DGRAM, 0, "socket for UDP")?;
        let fd = owned.as_fd();
        let ipv6 = libc::IPPROTO_IPV6;
        sockopt::set(fd, ipv6, libc::IPV6_V6ONLY, &0i32, "setsockopt IPV6_V6ONLY")?;
        for (level, option, what) in [
            (ipv6, libc::IPV6_RECVPKTINFO, "setsockopt IPV6_RECVPKTINFO"),
            (ipv6, libc::IPV6_RECVTCLASS, "setsockopt IPV6_RECVTCLASS"),
            (ipv6, libc::IPV6_RECVERR, "setsockopt IPV6_RECVERR"),
            (ipv6, libc::IPV6_DONTFRAG, "setsockopt IPV6_DONTFRAG"),
            (libc::IPPROTO_IP, libc::IP_RECVTOS, "setsockopt IP_RECVTOS"),
            (libc::IPPROTO_IP, libc::IP_RECVERR, "setsockopt IP_RECVERR"),
        ] {
            sockopt::enable(fd, level, option, what)?;
        }
        // Nothing is cut into fragments; what is too long is an error that names the path's MTU.
        let probe = &IPV6_PMTUDISC_PROBE;
        sockopt::set(fd, ipv6, libc::IPV6_MTU_DISCOVER, probe, "setsockopt IPV6_MTU_DISCOVER")?;
        sockopt::set(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, probe, "setsockopt IP_MTU_DISCOVER")?;
        set_buffers(fd, options.buffer)?;
        keep_to(fd, options.interface)?;
        let address = local.map_or(Ipv6Addr::UNSPECIFIED, mapped);
        let bound = SocketAddrV6::new(address, port, 0, 0);
        sockopt::bind(fd, &sockaddr_in6(bound), || match local {
            Some(local) => format!("bind UDP {}", SocketAddr::new(local, port)),
            None => format!("bind UDP port {port}"),
        })?;
        if options.receive_offload {
            // Linux 5.0; without it every datagram comes by itself.
            let _ = sockopt::enable(fd, libc::SOL_UDP, libc::UDP_GRO, "UDP_GRO");
        }
        let port = sockopt::local_port(fd)?;
        Ok(Self { fd: owned, port, segmentation: Arc::clone(&options.segmentation) })
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Receives what is sent to a group at an interface as well.
    pub fn join(&self, group: Ipv6Addr, interface: u32) -> Result<()> {
        let request = libc::ipv6_mreq {
            ipv6mr_multiaddr: libc::in6_addr { s6_addr: group.octets() },
            ipv6mr_interface: interface,
        };
        let ipv6 = libc::IPPROTO_IPV6;
        sockopt::set(
            self.fd.as_fd(),
            ipv6,
            libc::IPV6_ADD_MEMBERSHIP,
            &request,
            "setsockopt IPV6_ADD_MEMBERSHIP",
        )
    }

    /// Sends `data`: one datagram, or as many as it takes, all of `segment_size` but the last. `traffic_class` is the whole
    /// field, or the type of service: ECN in its two low bits.
    pub fn send(
        &self,
        data: &[u8],
        segment_size: usize,
        from: IpAddr,
        to: SocketAddr,
        traffic_class: u8,
    ) -> Result<SendOutcome> {
        let sending = Sending {
            to: &sockaddr_in6(match to {
                SocketAddr::V6(to) => to,
                SocketAddr::V4(to) => SocketAddrV6::new(to.ip().to_ipv6_mapped(), to.port(), 0, 0),
            }),
            from: mapped(from),
            is_ipv4: to.is_ipv4(),
            traffic_class,
        };
        if data.len() <= segment_size {
            return self.send_outcome(data, None, &sending);
        }
        let fits = data.len() <= MAX_SEGMENTED_BYTES && data.len() <= MAX_SEGMENTS * segment_size;
        let size = u16::try_from(segment_size).ok().filter(|_| fits && self.segmentation.is_on());
        let Some(size) = size else { return self.send_singly(data, segment_size, &sending) };
        match self.send_outcome(data, Some(size), &sending) {
            // EIO: the device computes no checksums. EINVAL: as that, or the segment is longer than the MTU.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL)) => {
                let outcome = self.send_singly(data, segment_size, &sending)?;
                if outcome != SendOutcome::TooLong {
                    self.segmentation.refused();
                }
                Ok(outcome)
            }
            result => result,
        }
    }

    /// Sends a datagram that the way does not carry in one piece: fragments leave, of 1280 bytes in IPv6, of what the kernel
    /// believes that the way carries in IPv4, where routers may cut, too.
    pub fn send_in_fragments(
        &self,
        data: &[u8],
        from: IpAddr,
        to: SocketAddr,
        traffic_class: u8,
    ) -> Result<SendOutcome> {
        let may_be_cut = |may: bool| {
            let discovery = if may { PMTUDISC_DONT } else { IPV6_PMTUDISC_PROBE };
            for (level, option, value) in [
                (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, discovery),
                (libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, i32::from(!may)),
                (libc::IPPROTO_IPV6, libc::IPV6_MTU, if may { MIN_MTU } else { 0 }),
                (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, discovery),
            ] {
                sockopt::set(self.fd.as_fd(), level, option, &value, "setsockopt MTU_DISCOVER")?;
            }
            Ok(())
        };
        may_be_cut(true)?;
        let sent = self.send(data, data.len(), from, to, traffic_class);
        may_be_cut(false)?;
        sent
    }

    /// Receives one datagram, or several of one sender with offload. `None` when there is nothing now.
    pub fn recv(&self, buffer: &mut [u8]) -> Result<Option<HostReceived>> {
        // An ICMP error is reported once, and in place of a datagram that may well be there.
        for _ in 0..4 {
            let mut message = Message::new(buffer);
            let len = match message.receive(self.fd.as_fd(), 0) {
                Ok(len) => len,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(None),
                    Some(libc::EINTR) => continue,
                    Some(number) if from_the_network(number) => continue,
                    _ => return Err(Error::new(format!("recvmsg on UDP port {}", self.port), error)),
                },
            };
            let (mut segment_size, mut ecn, mut destination, mut interface) = (len, Ecn::NotEct, None, 0);
            message.for_each_control(|level, kind, data| match (level, kind) {
                (libc::SOL_UDP, libc::UDP_GRO) => segment_size = leading_int(data) as usize,
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => ecn = Ecn::from_bits(leading_int(data) as u8),
                (libc::IPPROTO_IP, libc::IP_TOS) => {
                    ecn = Ecn::from_bits(data.first().copied().unwrap_or(0));
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    destination = data.first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets));
                    interface = data.get(16..).map_or(0, leading_int) as u32;
                }
                _ => {}
            });
            let Some((source, destination)) = message.name.zip(destination) else { return Ok(None) };
            return Ok(Some(HostReceived {
                len,
                segment_size: segment_size.clamp(1, len.max(1)),
                source: SocketAddr::new(source.ip().to_canonical(), source.port()),
                destination: destination.to_canonical(),
                interface,
                ecn,
            }));
        }
        Ok(None)
    }

    /// The next narrow path of the error queue; what else is in it is passed over. Read it whenever an event says `error`:
    /// until the queue is empty, every wait returns at once.
    pub fn recv_too_big(&self) -> Result<Option<TooBig>> {
        let mut quoted = [0; QUOTED];
        loop {
            let mut message = Message::new(&mut quoted);
            let length = match message.receive(self.fd.as_fd(), libc::MSG_ERRQUEUE) {
                Ok(length) => length,
                Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => {
                    // An error without a message may be pending too; fetching it makes the socket quiet.
                    let _ = sockopt::get_int(self.fd.as_fd(), libc::SOL_SOCKET, libc::SO_ERROR, "SO_ERROR");
                    return Ok(None);
                }
                Err(error) => {
                    return Err(Error::new(format!("recvmsg error queue of UDP port {}", self.port), error));
                }
            };
            let mut mtu = None;
            message.for_each_control(|level, kind, data| mtu = mtu.or(too_big(level, kind, data)));
            if let (Some((mtu, is_local)), Some(destination)) = (mtu, message.name) {
                let destination = destination.ip().to_canonical();
                let quoted = (!is_local).then(|| quoted[..length.min(QUOTED)].to_vec());
                return Ok(Some(TooBig { destination, mtu, quoted }));
            }
        }
    }

    fn send_singly(&self, data: &[u8], size: usize, sending: &Sending<'_>) -> Result<SendOutcome> {
        SendOutcome::of_each(data, size, |datagram| self.send_outcome(datagram, None, sending))
    }

    fn send_outcome(
        &self,
        data: &[u8],
        segment_size: Option<u16>,
        sending: &Sending<'_>,
    ) -> Result<SendOutcome> {
        match SendOutcome::of(|| send_datagram(self.fd.as_fd(), data, segment_size, sending)) {
            Ok(outcome) => Ok(outcome),
            // The source is no address of this host any more.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && segment_size.is_none() => {
                Ok(SendOutcome::Unreachable(libc::EINVAL))
            }
            Err(error) => Err(Error::new(format!("sendmsg from UDP port {}", self.port), error)),
        }
    }
}

impl AsFd for HostSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::MAX_RECEIVE;

    #[test]
    fn it_says_where_to_and_answers_from_there_in_both_versions() {
        let socket = HostSocket::open(None, 0, &EndpointOptions::default()).unwrap();
        assert_ne!(socket.port(), 0);
        for (here, other) in [("127.0.0.2", "127.0.0.1"), ("::1", "::1")] {
            let [here, other]: [IpAddr; 2] = [here, other].map(|text| text.parse().unwrap());
            let peer = std::net::UdpSocket::bind(SocketAddr::new(other, 0)).unwrap();
            peer.send_to(b"ping", SocketAddr::new(here, socket.port())).unwrap();
            let mut buffer = [0; 100];
            let received = socket.recv(&mut buffer).unwrap().unwrap();
            assert_eq!((received.len, received.destination), (4, here));
            assert_eq!(received.source, peer.local_addr().unwrap());
            let outcome = socket.send(b"pong", 4, received.destination, received.source, 0b10).unwrap();
            assert_eq!(outcome, SendOutcome::Sent);
            assert_eq!(peer.recv_from(&mut buffer).unwrap().1, SocketAddr::new(here, socket.port()));
        }
    }

    #[test]
    fn a_batch_arrives_whole_with_its_congestion_marks() {
        let options = EndpointOptions::default();
        for address in ["127.0.0.1", "::1"] {
            let address: IpAddr = address.parse().unwrap();
            let [a, b] = [(); 2].map(|()| HostSocket::open(Some(address), 0, &options).unwrap());
            let data: Vec<u8> = (0..10_000u32).map(|i| i as u8).collect();
            let to = SocketAddr::new(address, b.port());
            assert_eq!(a.send(&data, 1200, address, to, 0b11).unwrap(), SendOutcome::Sent);
            let (mut arrived, mut buffer) = (Vec::new(), vec![0; MAX_RECEIVE]);
            while let Some(received) = b.recv(&mut buffer).unwrap() {
                assert_eq!((received.ecn, received.interface), (Ecn::Ce, 1));
                arrived.extend_from_slice(&buffer[..received.len]);
            }
            assert_eq!(arrived, data);
        }
    }

    #[test]
    fn a_source_that_this_host_has_not_is_no_failure() {
        let socket = HostSocket::open(None, 0, &EndpointOptions::default()).unwrap();
        for (from, to) in [("192.0.2.7", "127.0.0.1:9"), ("2001:db8::7", "[::1]:9")] {
            let outcome = socket.send(b"x", 1, from.parse().unwrap(), to.parse().unwrap(), 0).unwrap();
            assert!(!matches!(outcome, SendOutcome::TooLong), "{outcome:?}");
        }
    }
}
