//! Echo requests (RFC 4443 section 4) out of one interface, to see whether hosts behind it answer.

use std::io::IoSlice;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrIn6};

use crate::error::{Error, Result};
use crate::sockopt;

const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;
const HEADER_LEN: usize = 8;
/// Of `ICMP6_FILTER`: one bit for each type, set where it is not let through.
const FILTER_LEN: usize = 8;

/// A socket for echo requests and replies of one interface. Non-blocking.
#[derive(Debug)]
pub struct EchoSocket {
    fd: OwnedFd,
    identifier: u16,
}

impl EchoSocket {
    /// Opens a socket at the interface of that name. `identifier` tells its replies from others'.
    pub fn open(interface: &str, identifier: u16) -> Result<Self> {
        let owned = sockopt::socket(
            libc::AF_INET6,
            libc::SOCK_RAW,
            libc::IPPROTO_ICMPV6,
            "socket ICMPv6 (needs CAP_NET_RAW)",
        )?;
        let fd = owned.as_fd();
        let mut filter = [u32::MAX; FILTER_LEN];
        filter[usize::from(ECHO_REPLY / 32)] &= !(1 << (ECHO_REPLY % 32));
        sockopt::set(fd, libc::IPPROTO_ICMPV6, ICMP6_FILTER, &filter, "setsockopt ICMP6_FILTER")?;
        let mut name = [0u8; libc::IFNAMSIZ];
        let length = interface.len().min(libc::IFNAMSIZ - 1);
        name[..length].copy_from_slice(&interface.as_bytes()[..length]);
        sockopt::set(fd, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, &name, "setsockopt SO_BINDTODEVICE")?;
        Ok(Self { fd: owned, identifier })
    }

    /// Sends a request, from an address of this host, or from what the kernel chooses: if the interface has none, one of
    /// any other. `false` where it did not leave: there is no address to send from, no way, or no room.
    pub fn send(&self, to: Ipv6Addr, from: Option<Ipv6Addr>, sequence: u16) -> Result<bool> {
        let mut message = [0; HEADER_LEN];
        message[0] = ECHO_REQUEST;
        message[4..6].copy_from_slice(&self.identifier.to_be_bytes());
        message[6..8].copy_from_slice(&sequence.to_be_bytes());
        let address = SockaddrIn6::from(SocketAddrV6::new(to, 0, 0, 0));
        let source = from.map(|from| libc::in6_pktinfo {
            ipi6_addr: libc::in6_addr { s6_addr: from.octets() },
            ipi6_ifindex: 0,
        });
        let source = source.as_ref().map(ControlMessage::Ipv6PacketInfo);
        let (fd, message) = (self.fd.as_raw_fd(), [IoSlice::new(&message)]);
        // The kernel computes the checksum.
        match nix::sys::socket::sendmsg(fd, &message, source.as_slice(), MsgFlags::empty(), Some(&address)) {
            Ok(_) => Ok(true),
            // A lookup that finds no way, or no address, fails in several ways; no request leaves in any of them.
            Err(nix::errno::Errno::EBADF) => {
                Err(Error::new(format!("send an echo request to {to}"), nix::errno::Errno::EBADF))
            }
            Err(_) => Ok(false),
        }
    }

    /// The next reply to one of our requests: from whom, and its sequence number. `None` when there is none now.
    pub fn recv(&self) -> Result<Option<(Ipv6Addr, u16)>> {
        let mut buffer = [0; 64];
        loop {
            let received = nix::sys::socket::recvfrom::<SockaddrIn6>(self.fd.as_raw_fd(), &mut buffer);
            let (length, source) = match received {
                Ok(received) => received,
                Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => return Ok(None),
                // An error that came back for a request: it is as good as no reply.
                Err(nix::errno::Errno::EHOSTUNREACH | nix::errno::Errno::ENETUNREACH) => continue,
                Err(error) => return Err(Error::new("recvfrom ICMPv6", error)),
            };
            let Some(header) = buffer[..length].first_chunk::<HEADER_LEN>() else { continue };
            let [kind, _, _, _, a, b, c, d] = *header;
            if kind == ECHO_REPLY && u16::from_be_bytes([a, b]) == self.identifier {
                return Ok(source.map(|source| (source.ip(), u16::from_be_bytes([c, d]))));
            }
        }
    }
}

/// Of `linux/icmpv6.h`; not in the crate `libc`.
const ICMP6_FILTER: i32 = 1;

impl AsFd for EchoSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
