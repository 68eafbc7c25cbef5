//! Whole IP packets, sent as this host's own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use wire::segment::Segmenter;
use wire::virtio_net;

use crate::error::{Error, Result};
use crate::sockopt;

/// Raw sockets for packets with their IP header, marked so that rules can tell them. What is sent goes through the hooks
/// `output` and `postrouting`, and by the routing table.
#[derive(Debug)]
pub struct Sender {
    ipv4: OwnedFd,
    ipv6: OwnedFd,
    /// The only interface that they send through, if there is one.
    through: Option<u32>,
}

impl Sender {
    /// Opens the sockets; all that they send has this mark (`meta mark` of nft).
    pub fn open(mark: u32) -> Result<Self> {
        let open = |family| {
            let owned =
                sockopt::socket(family, libc::SOCK_RAW, libc::IPPROTO_RAW, "raw socket (needs CAP_NET_RAW)")?;
            let what = "setsockopt SO_MARK (needs CAP_NET_ADMIN)";
            sockopt::set(owned.as_fd(), libc::SOL_SOCKET, libc::SO_MARK, &mark, what)?;
            Ok(owned)
        };
        // IPPROTO_RAW says that the header is included, see raw(7).
        Ok(Self { ipv4: open(libc::AF_INET)?, ipv6: open(libc::AF_INET6)?, through: None })
    }

    /// The same, for packets that leave through the interface of this index, by the routes that lead there.
    pub fn through(mark: u32, interface: u32) -> Result<Self> {
        let sender = Self::open(mark)?;
        for socket in [&sender.ipv4, &sender.ipv6] {
            bind_to(socket.as_fd(), interface)?;
        }
        Ok(Self { through: Some(interface), ..sender })
    }

    /// Sends a packet that begins with an IP header. A link-local destination is looked for on the link of `interface`
    /// (an index; 0: none). One of TCP that is too long for the path is a GSO packet, and is segmented so that its segments
    /// fit.
    ///
    /// # Errors
    /// The kernel's: no route, too long for the path, a full queue. And ours, where it may go [through](Self::through)
    /// one interface only and is for many: then no neighbor would be its next.
    pub fn send(&self, packet: &[u8], interface: u32) -> Result<()> {
        match self.send_whole(packet, interface)? {
            Err(nix::Error::EMSGSIZE) => match self.send_segments(packet, interface)? {
                true => Ok(()),
                false => Err(Error::new("send a packet on a raw socket", nix::Error::EMSGSIZE)),
            },
            sent => sent.map_err(|error| Error::new("send a packet on a raw socket", error)),
        }
    }

    /// Sends the segments of a GSO packet; false if it is none.
    fn send_segments(&self, packet: &[u8], interface: u32) -> Result<bool> {
        let (gso_type, mtu) = (gso_type(packet), path_mtu(packet, self.through)?);
        let header = |gso_size| virtio_net::Header { gso_type, gso_size, ..virtio_net::Header::NONE };
        let mut packet = packet.to_vec();
        let headers = Segmenter::new(&header(1), &mut packet).map_or(mtu, |segmenter| segmenter.head_len());
        let Ok(size @ 1..) = u16::try_from(mtu.saturating_sub(headers)) else { return Ok(false) };
        let Ok(mut segments) = Segmenter::new(&header(size), &mut packet) else { return Ok(false) };
        let mut whole = Vec::with_capacity(mtu);
        while let Some(segment) = segments.next() {
            whole.clear();
            whole.extend_from_slice(segment.head);
            whole.extend_from_slice(segment.payload);
            let sent = self.send_whole(&whole, interface)?;
            sent.map_err(|error| Error::new("send a segment on a raw socket", error))?;
        }
        Ok(true)
    }

    /// What the kernel says; an error of ours if the packet is none.
    fn send_whole(&self, packet: &[u8], interface: u32) -> Result<nix::Result<()>> {
        let for_many = || Error::other("send a packet through an interface", "it is for a multicast address");
        Ok(match packet {
            [first, ..] if first >> 4 == 4 && packet.len() >= 20 => {
                let octets: [u8; 4] = packet[16..20].try_into().unwrap_or_default();
                if self.through.is_some() && Ipv4Addr::from(octets).is_multicast() {
                    return Err(for_many());
                }
                send_to(
                    &self.ipv4,
                    packet,
                    &nix::sys::socket::SockaddrIn::from(std::net::SocketAddrV4::new(octets.into(), 0)),
                )
            }
            [first, ..] if first >> 4 == 6 && packet.len() >= 40 => {
                let octets: [u8; 16] = packet[24..40].try_into().unwrap_or_default();
                let destination = Ipv6Addr::from(octets);
                if self.through.is_some() && destination.is_multicast() {
                    return Err(for_many());
                }
                let link_local = destination.is_unicast_link_local() || destination.is_multicast();
                let scope = if link_local { interface } else { 0 };
                let address = std::net::SocketAddrV6::new(destination, 0, 0, scope);
                send_to(&self.ipv6, packet, &nix::sys::socket::SockaddrIn6::from(address))
            }
            _ => return Err(Error::other("send a packet", "it begins with no IP header")),
        })
    }
}

/// The segmentation of TCP over the packet's IP version.
fn gso_type(packet: &[u8]) -> u8 {
    if packet[0] >> 4 == 4 { virtio_net::GSO_TCPV4 } else { virtio_net::GSO_TCPV6 }
}

/// Octets that the way to the packet's destination carries, by the routing table. The packet has a whole IP header.
fn path_mtu(packet: &[u8], through: Option<u32>) -> Result<usize> {
    let (level, option, any, to): (_, _, IpAddr, IpAddr) = if packet[0] >> 4 == 4 {
        let octets: [u8; 4] = packet[16..20].try_into().unwrap_or_default();
        (libc::IPPROTO_IP, libc::IP_MTU, [0u8; 4].into(), octets.into())
    } else {
        let octets: [u8; 16] = packet[24..40].try_into().unwrap_or_default();
        (libc::IPPROTO_IPV6, libc::IPV6_MTU, Ipv6Addr::UNSPECIFIED.into(), octets.into())
    };
    let failed = |error| Error::new("look for the way to a packet's destination", error);
    let socket = UdpSocket::bind((any, 0)).map_err(failed)?;
    through.map_or(Ok(()), |interface| bind_to(socket.as_fd(), interface))?;
    // Nothing is sent: the kernel looks the route up.
    socket.connect((to, 9)).map_err(failed)?;
    let mtu = sockopt::get_int(socket.as_fd(), level, option, "getsockopt IP_MTU")?;
    Ok(usize::try_from(mtu).unwrap_or(0))
}

/// Has a socket send through this interface only.
fn bind_to(fd: BorrowedFd<'_>, interface: u32) -> Result<()> {
    let what = "setsockopt SO_BINDTOIFINDEX (needs CAP_NET_RAW)";
    sockopt::set(fd, libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX, &interface, what)
}

fn send_to(fd: &OwnedFd, packet: &[u8], to: &impl nix::sys::socket::SockaddrLike) -> nix::Result<()> {
    nix::sys::socket::sendto(fd.as_raw_fd(), packet, to, nix::sys::socket::MsgFlags::empty()).map(drop)
}
