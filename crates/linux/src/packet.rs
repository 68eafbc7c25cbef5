//! Whole frames, in and out of an interface (AF_PACKET).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::error::{Error, Result};
use crate::sockopt;

/// An instruction of classic BPF: code, jump if true, jump if false, value.
pub type Instruction = (u16, u8, u8, u32);

/// A filter of classic BPF.
pub type Filter = [Instruction];

/// Lets through ICMPv6 neighbor solicitations in Ethernet frames of no VLAN, without extension headers.
pub const NEIGHBOR_SOLICITATIONS: &Filter = &icmpv6(135, 135);

/// Lets through router advertisements, likewise.
pub const ROUTER_ADVERTISEMENTS: &Filter = &icmpv6(134, 134);

/// Lets through router solicitations and advertisements, likewise.
pub const ROUTER_DISCOVERY: &Filter = &icmpv6(133, 134);

/// Lets through all of these, likewise.
pub const SOLICITATIONS_AND_ROUTERS: &Filter = &icmpv6(133, 135);

const fn icmpv6(first: u32, last: u32) -> [(u16, u8, u8, u32); 13] {
    [
        (LOAD_WORD, 0, 0, VLAN_PRESENT),
        (JUMP_IF_EQUAL, 2, 0, 0),
        (LOAD_WORD, 0, 0, VLAN_TAG),
        (JUMP_IF_ANY_BIT, 8, 0, 0xfff),
        (LOAD_HALF, 0, 0, 12), // Ethernet type
        (JUMP_IF_EQUAL, 0, 6, 0x86dd),
        (LOAD_BYTE, 0, 0, 14 + 6), // next header
        (JUMP_IF_EQUAL, 0, 4, 58),
        (LOAD_BYTE, 0, 0, 14 + 40), // ICMPv6 type
        (JUMP_IF_AT_LEAST, 0, 2, first),
        (JUMP_IF_GREATER, 1, 0, last),
        (RETURN, 0, 0, 0x40000),
        (RETURN, 0, 0, 0),
    ]
}

/// Lets through errors of ICMPv4 without IP options, in no VLAN, whatever link header there is.
pub const ICMPV4_ERRORS: &Filter = &[
    (LOAD_WORD, 0, 0, VLAN_PRESENT),
    (JUMP_IF_EQUAL, 2, 0, 0),
    (LOAD_WORD, 0, 0, VLAN_TAG),
    (JUMP_IF_ANY_BIT, 9, 0, 0xfff),
    (LOAD_HALF, 0, 0, PROTOCOL),
    (JUMP_IF_EQUAL, 0, 7, 0x0800),
    (LOAD_HALF, 0, 0, AT_NETWORK + 6), // fragment offset
    (JUMP_IF_ANY_BIT, 5, 0, 0x1fff),
    (LOAD_BYTE, 0, 0, AT_NETWORK + 9), // protocol
    (JUMP_IF_EQUAL, 0, 3, 1),
    (LOAD_BYTE, 0, 0, AT_NETWORK + 20), // type
    (JUMP_IF_EQUAL, 2, 0, 3),
    (JUMP_IF_EQUAL, 1, 0, 11),
    (RETURN, 0, 0, 0),
    (RETURN, 0, 0, 0x40000),
];

/// The same of ICMPv6, without extension headers.
pub const ICMPV6_ERRORS: &Filter = &[
    (LOAD_WORD, 0, 0, VLAN_PRESENT),
    (JUMP_IF_EQUAL, 2, 0, 0),
    (LOAD_WORD, 0, 0, VLAN_TAG),
    (JUMP_IF_ANY_BIT, 6, 0, 0xfff),
    (LOAD_HALF, 0, 0, PROTOCOL),
    (JUMP_IF_EQUAL, 0, 4, 0x86dd),
    (LOAD_BYTE, 0, 0, AT_NETWORK + 6), // next header
    (JUMP_IF_EQUAL, 0, 2, 58),
    (LOAD_BYTE, 0, 0, AT_NETWORK + 40), // type
    (JUMP_IF_AT_LEAST, 0, 1, 128),
    (RETURN, 0, 0, 0),
    (RETURN, 0, 0, 0x40000),
];

/// In the place of an offset: the Ethernet type (SKF_AD_PROTOCOL), the VLAN tag beside the packet and whether there is
/// one (SKF_AD_VLAN_TAG, which may be an old one otherwise); and from where offsets count in the IP header.
pub(crate) const PROTOCOL: u32 = 0xffff_f000;
const VLAN_TAG: u32 = PROTOCOL + 44;
const VLAN_PRESENT: u32 = PROTOCOL + 48;
pub(crate) const AT_NETWORK: u32 = 0xfff0_0000;

const JUMP_IF_ANY_BIT: u16 = 0x45;
pub(crate) const LOAD_WORD: u16 = 0x20;
pub(crate) const LOAD_HALF: u16 = 0x28;
pub(crate) const LOAD_BYTE: u16 = 0x30;
pub(crate) const AND: u16 = 0x54;
pub(crate) const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_GREATER: u16 = 0x25;
pub(crate) const JUMP_IF_AT_LEAST: u16 = 0x35;
pub(crate) const RETURN: u16 = 0x06;

/// How a packet socket is set up.
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketOptions<'a> {
    /// Which frames to receive; all without one.
    pub filter: Option<&'a Filter>,
    /// Receive nothing. A socket that receives is asked about every frame of the interface, whatever its filter says:
    /// a router pays for that with each packet that it forwards. See [`crate::icmp_tap`].
    pub only_sends: bool,
    /// Let all multicast through the interface's own filter. Nothing announces it: no group is joined.
    pub all_multicast: bool,
    /// Let everything through the interface's own filter.
    pub promiscuous: bool,
    /// Receive what this host sends, too.
    pub outgoing: bool,
    /// Frames carry a 10-byte virtio-net header in front, in both directions, so that GSO packets and frames
    /// whose checksum is still to be computed survive.
    pub vnet_header: bool,
    /// What is sent has this mark (`meta mark` of nft; needs CAP_NET_ADMIN); 0: none.
    pub mark: u32,
}

/// A socket that receives and sends the frames of one interface. Non-blocking.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    index: u32,
}

impl PacketSocket {
    /// Opens a socket on the interface of that index.
    pub fn open(index: u32, options: &PacketOptions<'_>) -> Result<Self> {
        // Protocol 0: nothing is received before the filter is in place and the socket is bound.
        let owned =
            sockopt::socket(libc::AF_PACKET, libc::SOCK_RAW, 0, "socket AF_PACKET (needs CAP_NET_RAW)")?;
        let fd = owned.as_fd();
        attach_filter(fd, options.filter.unwrap_or(&[]))?;
        if !options.outgoing {
            sockopt::enable(
                fd,
                libc::SOL_PACKET,
                libc::PACKET_IGNORE_OUTGOING,
                "setsockopt PACKET_IGNORE_OUTGOING (needs Linux 4.20)",
            )?;
        }
        if options.vnet_header {
            sockopt::enable(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, "setsockopt PACKET_VNET_HDR")?;
        }
        if options.mark != 0 {
            let what = "setsockopt SO_MARK (needs CAP_NET_ADMIN)";
            sockopt::set(fd, libc::SOL_SOCKET, libc::SO_MARK, &options.mark, what)?;
        }
        let address = sockaddr_ll(index, if options.only_sends { 0 } else { libc::ETH_P_ALL as u16 });
        sockopt::bind(fd, &address, || format!("bind AF_PACKET to link {index}"))?;
        if options.all_multicast {
            add_membership(fd, index, libc::PACKET_MR_ALLMULTI)?;
        }
        if options.promiscuous {
            add_membership(fd, index, libc::PACKET_MR_PROMISC)?;
        }
        Ok(Self { fd: owned, index })
    }

    /// The interface.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The next frame, and its length. `None` when there is none now.
    pub fn recv(&self, buffer: &mut [u8]) -> Result<Option<usize>> {
        match nix::sys::socket::recv(self.fd.as_raw_fd(), buffer, nix::sys::socket::MsgFlags::empty()) {
            Ok(length) => Ok(Some(length)),
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => Ok(None),
            Err(error) => Err(Error::new(format!("recv AF_PACKET on link {}", self.index), error)),
        }
    }

    /// Sends a frame. `false` when the interface's queue is full, and the frame was not sent.
    pub fn send(&self, frame: &[u8]) -> Result<bool> {
        match nix::sys::socket::send(self.fd.as_raw_fd(), frame, nix::sys::socket::MsgFlags::empty()) {
            Ok(_) => Ok(true),
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR | nix::errno::Errno::ENOBUFS) => {
                Ok(false)
            }
            Err(error) => Err(Error::new(format!("send AF_PACKET on link {}", self.index), error)),
        }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn attach_filter(fd: BorrowedFd<'_>, filter: &Filter) -> Result<()> {
    if filter.is_empty() {
        return Ok(());
    }
    let mut instructions: Vec<libc::sock_filter> =
        filter.iter().map(|&(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k }).collect();
    let program = libc::sock_fprog { len: instructions.len() as u16, filter: instructions.as_mut_ptr() };
    sockopt::set(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program, "setsockopt SO_ATTACH_FILTER")
}

fn add_membership(fd: BorrowedFd<'_>, index: u32, kind: i32) -> Result<()> {
    let request =
        libc::packet_mreq { mr_ifindex: index as i32, mr_type: kind as u16, mr_alen: 0, mr_address: [0; 8] };
    sockopt::set(
        fd,
        libc::SOL_PACKET,
        libc::PACKET_ADD_MEMBERSHIP,
        &request,
        "setsockopt PACKET_ADD_MEMBERSHIP",
    )
}

fn sockaddr_ll(index: u32, protocol: u16) -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        sll_ifindex: index as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}
