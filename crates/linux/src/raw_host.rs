//! A raw socket for AH or ESP at all addresses of this host, or at one: whole packets, from their IP header on, many with
//! one call.
//!
//! As long as it is open, the kernel tells nobody that the protocol is unreachable. A kernel with IPsec of its own hands a
//! copy to its own AH or ESP as well, which drops what it has no association for, and tells nobody either.
//!
//! IPv6 hands over what is behind the headers, so that the header before it is made anew here: addresses, traffic class
//! and hop limit are those that arrived, the flow label is 0, and extension headers are gone.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV6};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use wire::ipv6;

use crate::error::{Error, Result};
use crate::sockopt::{self, sockaddr_in6};
use crate::udp::message::{Control, controls, leading_int, put_control};
use crate::udp::{QUOTED, TooBig, too_big};

/// The most packets of one call.
pub const MAX_BATCH: usize = 16;
/// Room that one packet may need, whatever arrives: the longest of IPv6.
pub const SLOT: usize = ipv6::HEADER_LEN + 65_535;

const IPV6_HDRINCL: i32 = 36;
const PMTUDISC_PROBE: i32 = 3;

/// A packet that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawReceived {
    /// Where it is in the buffer.
    pub at: Range<usize>,
    /// The interface that it came in by.
    pub interface: u32,
}

/// A raw socket of one IP version. Non-blocking; add it to a [`crate::event::Poller`].
#[derive(Debug)]
pub struct HostRawSocket {
    fd: OwnedFd,
    protocol: u8,
    is_ipv6: bool,
}

impl HostRawSocket {
    /// Opens one for this protocol of IPv6, or else IPv4, at one address of this host or at all. Needs CAP_NET_RAW.
    ///
    /// # Errors
    /// Without privileges, or where this host has not that address.
    pub fn open(protocol: u8, is_ipv6: bool, local: Option<IpAddr>, buffer: usize) -> Result<Self> {
        let family = if is_ipv6 { libc::AF_INET6 } else { libc::AF_INET };
        let what = "raw socket (needs CAP_NET_RAW)";
        let owned = sockopt::socket(family, libc::SOCK_RAW, protocol.into(), what)?;
        let fd = owned.as_fd();
        let options: &[(i32, i32, &'static str)] = if is_ipv6 {
            &[
                (libc::IPPROTO_IPV6, IPV6_HDRINCL, "setsockopt IPV6_HDRINCL"),
                (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, "setsockopt IPV6_RECVPKTINFO"),
                (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, "setsockopt IPV6_RECVTCLASS"),
                (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, "setsockopt IPV6_RECVHOPLIMIT"),
                (libc::IPPROTO_IPV6, libc::IPV6_RECVERR, "setsockopt IPV6_RECVERR"),
            ]
        } else {
            &[
                (libc::IPPROTO_IP, libc::IP_HDRINCL, "setsockopt IP_HDRINCL"),
                (libc::IPPROTO_IP, libc::IP_PKTINFO, "setsockopt IP_PKTINFO"),
                (libc::IPPROTO_IP, libc::IP_RECVERR, "setsockopt IP_RECVERR"),
            ]
        };
        for (level, option, what) in options {
            sockopt::enable(fd, *level, *option, what)?;
        }
        let (level, option) = if is_ipv6 {
            (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER)
        } else {
            (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER)
        };
        sockopt::set(fd, level, option, &PMTUDISC_PROBE, "setsockopt MTU_DISCOVER")?;
        crate::udp::set_buffers(fd, buffer)?;
        let at = || format!("bind a raw socket of protocol {protocol}");
        match local {
            Some(IpAddr::V6(address)) if is_ipv6 => {
                sockopt::bind(fd, &sockaddr_in6(SocketAddrV6::new(address, 0, 0, 0)), at)?;
            }
            Some(IpAddr::V4(address)) if !is_ipv6 => sockopt::bind(fd, &sockaddr_in(address), at)?,
            _ => {}
        }
        Ok(Self { fd: owned, protocol, is_ipv6 })
    }

    /// Which protocol and IP version it is for.
    #[must_use]
    pub fn kind(&self) -> (u8, bool) {
        (self.protocol, self.is_ipv6)
    }

    /// Sends whole packets, each of `size` bytes but the last, all of them from one address of this host to one other, of this
    /// socket's IP version. What the network does not take is lost, as on the way. Returns how many have left.
    ///
    /// # Errors
    /// Where the socket is no good.
    pub fn send(&self, packets: &[u8], size: usize, from: IpAddr, to: IpAddr) -> Result<usize> {
        let mut left = 0;
        for batch in packets.chunks(size.max(1) * MAX_BATCH) {
            left += match (from, to) {
                (IpAddr::V6(from), IpAddr::V6(to)) => {
                    let mut control = Control::new();
                    let mut information = [0; 20];
                    information[..16].copy_from_slice(&from.octets());
                    let used =
                        put_control(&mut control, 0, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &information);
                    let to = sockaddr_in6(SocketAddrV6::new(to, 0, 0, 0));
                    self.send_batch(batch, size.max(1), &to, &mut control, used)?
                }
                (IpAddr::V4(from), IpAddr::V4(to)) => {
                    let mut control = Control::new();
                    // struct in_pktinfo: an interface or none, the source, and what is only told.
                    let mut information = [0; 12];
                    information[4..8].copy_from_slice(&from.octets());
                    let used = put_control(&mut control, 0, libc::IPPROTO_IP, libc::IP_PKTINFO, &information);
                    self.send_batch(batch, size.max(1), &sockaddr_in(to), &mut control, used)?
                }
                _ => 0,
            };
        }
        Ok(left)
    }

    fn send_batch<T: Copy>(
        &self,
        batch: &[u8],
        size: usize,
        to: &T,
        control: &mut Control,
        control_length: usize,
    ) -> Result<usize> {
        let mut pieces = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MAX_BATCH];
        let mut count = 0;
        for (piece, packet) in pieces.iter_mut().zip(batch.chunks(size)) {
            *piece = libc::iovec { iov_base: packet.as_ptr().cast_mut().cast(), iov_len: packet.len() };
            count += 1;
        }
        // SAFETY: structures of integers and pointers, for which all zeros is a value.
        let mut messages: [libc::mmsghdr; MAX_BATCH] = unsafe { std::mem::zeroed() };
        for (message, piece) in messages.iter_mut().zip(&mut pieces) {
            let header = &mut message.msg_hdr;
            header.msg_name = std::ptr::from_ref(to).cast_mut().cast();
            header.msg_namelen = size_of::<T>() as libc::socklen_t;
            header.msg_iov = std::ptr::from_mut(piece);
            header.msg_iovlen = 1;
            header.msg_control = control.bytes.as_mut_ptr().cast();
            header.msg_controllen = control_length as _;
        }
        let (mut at, mut left) = (0, 0);
        let mut again = true;
        while at < count {
            let rest = &mut messages[at..count];
            // SAFETY: `rest` are as many messages as is said; every pointer in them points to something that lives across the
            // call, with its length beside it; the kernel writes to nothing but `msg_len` of each.
            let sent = unsafe {
                libc::sendmmsg(
                    self.fd.as_raw_fd(),
                    rest.as_mut_ptr(),
                    rest.len() as libc::c_uint,
                    (libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) as _,
                )
            };
            if sent > 0 {
                (at, left) = (at + sent as usize, left + sent as usize);
                continue;
            }
            let error = std::io::Error::last_os_error();
            match error.raw_os_error().unwrap_or(0) {
                libc::EINTR => {}
                libc::EBADF | libc::ENOTSOCK | libc::EFAULT => {
                    return Err(Error::new("sendmmsg by a raw socket", error));
                }
                // The rest is as long, or has no room either.
                libc::EMSGSIZE | libc::EAGAIN => return Ok(left),
                // The first time this may be the news of an ICMP error about an earlier packet.
                _ if again => again = false,
                _ => at += 1,
            }
        }
        Ok(left)
    }

    /// Receives what there is, up to [`MAX_BATCH`] packets, one behind the other in `buffer`, which has room for one
    /// [`SLOT`] at least. `received` says where they are; nothing, when there is none now.
    ///
    /// # Errors
    /// Where the socket is no good.
    pub fn recv(&self, buffer: &mut [u8], received: &mut Vec<RawReceived>) -> Result<()> {
        received.clear();
        // An ICMP error is reported once, and in place of a packet that may well be there.
        for _ in 0..4 {
            match self.recv_batch(buffer, received) {
                Ok(()) => return Ok(()),
                Err(error) => match error.raw_os_error().unwrap_or(0) {
                    libc::EAGAIN => return Ok(()),
                    libc::EBADF | libc::ENOTSOCK | libc::EFAULT | libc::EINVAL => {
                        return Err(Error::new("recvmmsg from a raw socket", error));
                    }
                    _ => {}
                },
            }
        }
        Ok(())
    }

    fn recv_batch(&self, buffer: &mut [u8], received: &mut Vec<RawReceived>) -> std::io::Result<()> {
        let room = if self.is_ipv6 { ipv6::HEADER_LEN } else { 0 };
        let mut pieces = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MAX_BATCH];
        let mut count = 0;
        for (piece, slot) in pieces.iter_mut().zip(buffer.chunks_exact_mut(SLOT)) {
            let slot = &mut slot[room..];
            *piece = libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: slot.len() };
            count += 1;
        }
        let mut told = [const { Control::new() }; MAX_BATCH];
        let mut names = [sockaddr_in6(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0)); MAX_BATCH];
        // SAFETY: structures of integers and pointers, for which all zeros is a value.
        let mut messages: [libc::mmsghdr; MAX_BATCH] = unsafe { std::mem::zeroed() };
        for (((message, piece), control), name) in
            messages.iter_mut().zip(&mut pieces).zip(&mut told).zip(&mut names)
        {
            let header = &mut message.msg_hdr;
            header.msg_name = std::ptr::from_mut(name).cast();
            header.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
            header.msg_iov = std::ptr::from_mut(piece);
            header.msg_iovlen = 1;
            header.msg_control = control.bytes.as_mut_ptr().cast();
            header.msg_controllen = control.bytes.len() as _;
        }
        // SAFETY: as many messages as is said, at most all of them; every pointer in them points to memory that we may
        // write and that lives across the call, with its length beside it.
        let arrived = unsafe {
            libc::recvmmsg(
                self.fd.as_raw_fd(),
                messages.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        if arrived < 0 {
            return Err(std::io::Error::last_os_error());
        }
        let mut end = 0;
        for (number, message) in messages.iter().take(arrived as usize).enumerate() {
            let start = number * SLOT;
            let length = message.msg_len as usize + room;
            let header = &message.msg_hdr;
            #[allow(clippy::unnecessary_cast, reason = "other C libraries have another type here")]
            let control_length = (header.msg_controllen as usize).min(told[number].bytes.len());
            let info = Information::of(&told[number].bytes[..control_length]);
            if header.msg_flags & libc::MSG_TRUNC != 0 || length > SLOT {
                continue;
            }
            if self.is_ipv6 {
                let header = ipv6::Header {
                    traffic_class: info.traffic_class,
                    flow_label: 0,
                    payload_length: message.msg_len as u16,
                    next_header: self.protocol,
                    hop_limit: info.hop_limit,
                    source: Ipv6Addr::from(names[number].sin6_addr.s6_addr),
                    destination: info.destination,
                };
                buffer[start..start + room].copy_from_slice(&header.to_bytes());
            }
            buffer.copy_within(start..start + length, end);
            received.push(RawReceived { at: end..end + length, interface: info.interface });
            end += length;
        }
        Ok(())
    }

    /// The next narrow path of the error queue; what else is in it is passed over. Read it whenever an event says `error`:
    /// until the queue is empty, every wait returns at once.
    ///
    /// # Errors
    /// Where the socket is no good.
    pub fn recv_too_big(&self) -> Result<Option<TooBig>> {
        loop {
            let mut quoted = [0u8; QUOTED];
            let mut piece = libc::iovec { iov_base: quoted.as_mut_ptr().cast(), iov_len: quoted.len() };
            let mut name = sockaddr_in6(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0));
            let mut control = Control::new();
            // SAFETY: a structure of integers and pointers, for which all zeros is a value.
            let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
            header.msg_name = (&raw mut name).cast();
            header.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
            header.msg_iov = &raw mut piece;
            header.msg_iovlen = 1;
            header.msg_control = control.bytes.as_mut_ptr().cast();
            header.msg_controllen = control.bytes.len() as _;
            let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
            // SAFETY: every pointer in `header` points to memory that we may write and that lives across the call, with its
            // length beside it.
            let result = unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut header, flags) };
            if result < 0 {
                let error = std::io::Error::last_os_error();
                // An error without a message may be pending too; fetching it makes the socket quiet.
                let _ = sockopt::get_int(self.fd.as_fd(), libc::SOL_SOCKET, libc::SO_ERROR, "SO_ERROR");
                return match error.raw_os_error() {
                    Some(libc::EBADF | libc::ENOTSOCK) => {
                        Err(Error::new("recvmsg error queue of a raw socket", error))
                    }
                    _ => Ok(None),
                };
            }
            let length = (header.msg_controllen as usize).min(control.bytes.len());
            let mut mtu = None;
            controls(&control.bytes[..length], |level, kind, data| mtu = mtu.or(too_big(level, kind, data)));
            if let Some((mtu, is_local)) = mtu
                && let Some(destination) = self.address(&name)
            {
                let quoted = (!is_local).then(|| quoted[..QUOTED.min(result as usize)].to_vec());
                return Ok(Some(TooBig { destination, mtu, quoted }));
            }
        }
    }

    fn address(&self, name: &libc::sockaddr_in6) -> Option<IpAddr> {
        match i32::from(name.sin6_family) {
            libc::AF_INET6 => Some(IpAddr::V6(Ipv6Addr::from(name.sin6_addr.s6_addr))),
            // sockaddr_in has its address where sockaddr_in6 has its flow label.
            libc::AF_INET => Some(IpAddr::V4(Ipv4Addr::from(name.sin6_flowinfo.to_ne_bytes()))),
            _ => None,
        }
    }
}

impl AsFd for HostRawSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What the kernel says about a packet.
struct Information {
    destination: Ipv6Addr,
    interface: u32,
    traffic_class: u8,
    hop_limit: u8,
}

impl Information {
    fn of(control: &[u8]) -> Self {
        let mut info =
            Self { destination: Ipv6Addr::UNSPECIFIED, interface: 0, traffic_class: 0, hop_limit: 0 };
        controls(control, |level, kind, data| match (level, kind) {
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                info.destination = data.first_chunk::<16>().map_or(info.destination, |b| Ipv6Addr::from(*b));
                info.interface = data.get(16..).map_or(0, leading_int) as u32;
            }
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => info.interface = leading_int(data) as u32,
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => info.traffic_class = leading_int(data) as u8,
            (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => info.hop_limit = leading_int(data) as u8,
            _ => {}
        });
        info
    }
}

fn sockaddr_in(address: Ipv4Addr) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) },
        sin_zero: [0; 8],
    }
}
