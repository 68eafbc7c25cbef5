//! Whole IP packets, sent as this host's own.

use std::net::Ipv6Addr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::error::{Error, Result};
use crate::sockopt;

/// Raw sockets for packets with their IP header, marked so that rules can tell them. What is sent goes through the hooks
/// `output` and `postrouting`, and by the routing table.
#[derive(Debug)]
pub struct Sender {
    ipv4: OwnedFd,
    ipv6: OwnedFd,
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
        Ok(Self { ipv4: open(libc::AF_INET)?, ipv6: open(libc::AF_INET6)? })
    }

    /// Sends a packet that begins with an IP header. A link-local destination is looked for on the link of `interface`
    /// (an index; 0: none).
    ///
    /// # Errors
    /// The kernel's: no route, too long for the path, a full queue.
    pub fn send(&self, packet: &[u8], interface: u32) -> Result<()> {
        let sent = match packet {
            [first, ..] if first >> 4 == 4 && packet.len() >= 20 => {
                let octets: [u8; 4] = packet[16..20].try_into().unwrap_or_default();
                send_to(
                    &self.ipv4,
                    packet,
                    &nix::sys::socket::SockaddrIn::from(std::net::SocketAddrV4::new(octets.into(), 0)),
                )
            }
            [first, ..] if first >> 4 == 6 && packet.len() >= 40 => {
                let octets: [u8; 16] = packet[24..40].try_into().unwrap_or_default();
                let destination = Ipv6Addr::from(octets);
                let link_local = destination.is_unicast_link_local() || destination.is_multicast();
                let scope = if link_local { interface } else { 0 };
                let address = std::net::SocketAddrV6::new(destination, 0, 0, scope);
                send_to(&self.ipv6, packet, &nix::sys::socket::SockaddrIn6::from(address))
            }
            _ => return Err(Error::other("send a packet", "it begins with no IP header")),
        };
        sent.map_err(|error| Error::new("send a packet on a raw socket", error))
    }
}

fn send_to(fd: &OwnedFd, packet: &[u8], to: &impl nix::sys::socket::SockaddrLike) -> nix::Result<()> {
    nix::sys::socket::sendto(fd.as_raw_fd(), packet, to, nix::sys::socket::MsgFlags::empty()).map(drop)
}
