//! Packets of one protocol, as the kernel's own stack receives them, put together again if they came in fragments; and
//! packets to send whose headers are ours.

use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn, SockaddrIn6, recv, recvmsg, sendmsg};
use wire::{ipv4, ipv6};

use crate::error::{Error, Result};
use crate::sockopt;

/// A socket for packets of one protocol at one interface. Non-blocking. As long as it is open, the kernel does not tell
/// anybody that the protocol is unreachable.
#[derive(Debug)]
pub struct RawSocket {
    fd: OwnedFd,
    /// Of IPv6, which protocol: the kernel hands over what is behind the headers.
    ipv6: Option<u8>,
}

impl RawSocket {
    /// Opens a socket for this protocol of IPv4 at the interface of that name.
    pub fn ipv4(protocol: u8, interface: &str) -> Result<Self> {
        let what = "socket of raw IPv4 (needs CAP_NET_RAW)";
        let fd = sockopt::socket(libc::AF_INET, libc::SOCK_RAW, protocol.into(), what)?;
        sockopt::enable(fd.as_fd(), libc::IPPROTO_IP, libc::IP_HDRINCL, "setsockopt IP_HDRINCL")?;
        Self::at(interface, fd, None)
    }

    /// The same for IPv6.
    pub fn ipv6(protocol: u8, interface: &str) -> Result<Self> {
        let what = "socket of raw IPv6 (needs CAP_NET_RAW)";
        let fd = sockopt::socket(libc::AF_INET6, libc::SOCK_RAW, protocol.into(), what)?;
        for (option, what) in [
            (libc::IPV6_HDRINCL, "setsockopt IPV6_HDRINCL"),
            (libc::IPV6_RECVTCLASS, "setsockopt IPV6_RECVTCLASS"),
            (libc::IPV6_RECVPKTINFO, "setsockopt IPV6_RECVPKTINFO"),
        ] {
            sockopt::enable(fd.as_fd(), libc::IPPROTO_IPV6, option, what)?;
        }
        Self::at(interface, fd, Some(protocol))
    }

    fn at(interface: &str, fd: OwnedFd, ipv6: Option<u8>) -> Result<Self> {
        let mut name = [0u8; libc::IFNAMSIZ];
        let length = interface.len().min(libc::IFNAMSIZ - 1);
        name[..length].copy_from_slice(&interface.as_bytes()[..length]);
        let what = "setsockopt SO_BINDTODEVICE";
        sockopt::set(fd.as_fd(), libc::SOL_SOCKET, libc::SO_BINDTODEVICE, &name, what)?;
        Ok(Self { fd, ipv6 })
    }

    /// The next packet, from its IP header on, and its length; of IPv6 with a header without extensions. `None` when
    /// there is none now.
    pub fn recv(&self, buffer: &mut [u8]) -> Result<Option<usize>> {
        let received = match self.ipv6 {
            None => recv(self.fd.as_raw_fd(), buffer, MsgFlags::empty()),
            Some(protocol) => self.recv_ipv6(protocol, buffer),
        };
        match received {
            Ok(length) => Ok(Some(length)),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
            Err(error) => Err(Error::new("receive from a raw socket", error)),
        }
    }

    fn recv_ipv6(&self, protocol: u8, buffer: &mut [u8]) -> nix::Result<usize> {
        let (room, payload) = buffer.split_at_mut(ipv6::HEADER_LEN.min(buffer.len()));
        let mut control = nix::cmsg_space!([u8; 20], i32);
        let mut pieces = [IoSliceMut::new(payload)];
        let message =
            recvmsg::<SockaddrIn6>(self.fd.as_raw_fd(), &mut pieces, Some(&mut control), MsgFlags::empty())?;
        let mut header = ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            payload_length: u16::try_from(message.bytes).map_err(|_| Errno::EMSGSIZE)?,
            next_header: protocol,
            hop_limit: 0,
            source: message.address.map_or(Ipv6Addr::UNSPECIFIED, |source| source.ip()),
            destination: Ipv6Addr::UNSPECIFIED,
        };
        for told in message.cmsgs()? {
            match told {
                ControlMessageOwned::Ipv6PacketInfo(info) => {
                    header.destination = Ipv6Addr::from(info.ipi6_addr.s6_addr);
                }
                ControlMessageOwned::Ipv6TClass(class) => header.traffic_class = class as u8,
                _ => {}
            }
        }
        let length = room.len() + message.bytes;
        if let Some(room) = room.first_chunk_mut() {
            *room = header.to_bytes();
        }
        Ok(length)
    }

    /// Sends a packet, from its IP header on, to the destination in it. `false` where it did not leave: it is too large,
    /// there is no way, or no room.
    pub fn send(&self, packet: &[u8]) -> Result<bool> {
        let (fd, pieces) = (self.fd.as_raw_fd(), [IoSlice::new(packet)]);
        let sent = if self.ipv6.is_some() {
            let Ok(header) = ipv6::Packet::parse(packet) else { return Ok(false) };
            let to = SockaddrIn6::from(SocketAddrV6::new(header.destination(), 0, 0, 0));
            sendmsg(fd, &pieces, &[], MsgFlags::empty(), Some(&to))
        } else {
            let Ok(header) = ipv4::Packet::parse(packet) else { return Ok(false) };
            let to = SockaddrIn::from(SocketAddrV4::new(header.destination(), 0));
            sendmsg(fd, &pieces, &[], MsgFlags::empty(), Some(&to))
        };
        match sent {
            Ok(_) => Ok(true),
            Err(error @ (Errno::EBADF | Errno::EINVAL)) => Err(Error::new("send by a raw socket", error)),
            Err(_) => Ok(false),
        }
    }
}

impl AsFd for RawSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
