//! One `sendmsg` or `recvmsg` with its control messages, without allocation.

use std::io;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

use super::error_queue::{ErrorOrigin, QueuedError};
use crate::sockopt::{sockaddr_in6, socket_address};

// Not in libc for this target.
const SO_EE_ORIGIN_LOCAL: u8 = 1;
const SO_EE_ORIGIN_ICMP6: u8 = 3;

/// Control messages of one call. They need the alignment of their header.
#[repr(C, align(8))]
pub(crate) struct Control {
    pub(crate) bytes: [u8; 192],
}

impl Control {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; 192] }
    }
}

/// Bytes of `struct cmsghdr` as the kernel has it: a length (header included), a level, a type.
const CONTROL_HEADER: usize = size_of::<usize>() + 8;

pub(super) fn send_message(
    fd: BorrowedFd<'_>,
    data: &[u8],
    segment_size: Option<u16>,
    to: Option<&libc::sockaddr_in6>,
    traffic_class: u8,
) -> io::Result<()> {
    let mut piece = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
    let mut control = Control { bytes: [0; 192] };
    // SAFETY: a structure of integers and pointers, for which all zeros is a value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut piece;
    header.msg_iovlen = 1;
    if let Some(to) = to {
        header.msg_name = std::ptr::from_ref(to).cast_mut().cast();
        header.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    }
    let mut used = 0;
    if let Some(size) = segment_size {
        used += put_control(&mut control, used, libc::SOL_UDP, libc::UDP_SEGMENT, &size.to_ne_bytes());
    }
    if traffic_class != 0 {
        let value = i32::from(traffic_class).to_ne_bytes();
        used += put_control(&mut control, used, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &value);
    }
    if used > 0 {
        header.msg_control = control.bytes.as_mut_ptr().cast();
        header.msg_controllen = used as _;
    }
    // SAFETY: every pointer in `header` points to something that lives across the call, with its length beside it;
    // the kernel writes to none of it.
    let sent = unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Where a datagram of a [`HostSocket`](super::HostSocket) goes and comes from. Addresses of IPv4 are mapped ones.
pub(super) struct Sending<'a> {
    pub(super) to: &'a libc::sockaddr_in6,
    pub(super) from: Ipv6Addr,
    pub(super) is_ipv4: bool,
    pub(super) traffic_class: u8,
}

/// Sends one datagram, or with a `segment_size` several, from an address of this host.
pub(super) fn send_datagram(
    fd: BorrowedFd<'_>,
    data: &[u8],
    segment_size: Option<u16>,
    sending: &Sending<'_>,
) -> io::Result<()> {
    let mut piece = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
    let mut control = Control { bytes: [0; 192] };
    // struct in6_pktinfo: the address, and an interface or none.
    let mut information = [0; 20];
    information[..16].copy_from_slice(&sending.from.octets());
    let mut used = put_control(&mut control, 0, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &information);
    if let Some(size) = segment_size {
        used += put_control(&mut control, used, libc::SOL_UDP, libc::UDP_SEGMENT, &size.to_ne_bytes());
    }
    if sending.traffic_class != 0 {
        let (level, kind) = if sending.is_ipv4 {
            (libc::IPPROTO_IP, libc::IP_TOS)
        } else {
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)
        };
        let value = i32::from(sending.traffic_class).to_ne_bytes();
        used += put_control(&mut control, used, level, kind, &value);
    }
    // SAFETY: a structure of integers and pointers, for which all zeros is a value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = std::ptr::from_ref(sending.to).cast_mut().cast();
    header.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    header.msg_iov = &raw mut piece;
    header.msg_iovlen = 1;
    header.msg_control = control.bytes.as_mut_ptr().cast();
    header.msg_controllen = used as _;
    // SAFETY: every pointer in `header` points to something that lives across the call, with its length beside it;
    // the kernel writes to none of it.
    let sent = unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sends a whole IPv6 packet by a raw socket. `source` is what routes are chosen by; the packet has it too.
pub(super) fn send_packet(
    fd: BorrowedFd<'_>,
    packet: &[u8],
    to: &libc::sockaddr_in6,
    source: Ipv6Addr,
) -> io::Result<()> {
    let mut piece = libc::iovec { iov_base: packet.as_ptr().cast_mut().cast(), iov_len: packet.len() };
    let mut control = Control { bytes: [0; 192] };
    // struct in6_pktinfo: the address, and an interface or none.
    let mut information = [0; 20];
    information[..16].copy_from_slice(&source.octets());
    let used = put_control(&mut control, 0, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &information);
    // SAFETY: a structure of integers and pointers, for which all zeros is a value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = std::ptr::from_ref(to).cast_mut().cast();
    header.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    header.msg_iov = &raw mut piece;
    header.msg_iovlen = 1;
    header.msg_control = control.bytes.as_mut_ptr().cast();
    header.msg_controllen = used as _;
    // SAFETY: every pointer in `header` points to something that lives across the call, with its length beside it;
    // the kernel writes to none of it.
    let sent = unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Writes a control message at `offset`, and returns how far the next one lies behind it.
pub(crate) fn put_control(
    control: &mut Control,
    offset: usize,
    level: i32,
    kind: i32,
    value: &[u8],
) -> usize {
    let length = CONTROL_HEADER + value.len();
    let fields = length.to_ne_bytes().into_iter().chain(level.to_ne_bytes()).chain(kind.to_ne_bytes());
    for (to, from) in control.bytes[offset..].iter_mut().zip(fields.chain(value.iter().copied())) {
        *to = from;
    }
    length.next_multiple_of(size_of::<usize>())
}

/// One receive: where the bytes go, and the room for who sent them and what the kernel says about them.
pub(super) struct Message<'a> {
    buffer: &'a mut [u8],
    control: Control,
    control_len: usize,
    pub(super) name: Option<SocketAddrV6>,
}

impl<'a> Message<'a> {
    pub(super) fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, control: Control { bytes: [0; 192] }, control_len: 0, name: None }
    }

    pub(super) fn receive(&mut self, fd: BorrowedFd<'_>, flags: i32) -> io::Result<usize> {
        let mut name = sockaddr_in6(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0));
        name.sin6_family = 0;
        let mut piece = libc::iovec { iov_base: self.buffer.as_mut_ptr().cast(), iov_len: self.buffer.len() };
        // SAFETY: a structure of integers and pointers, for which all zeros is a value.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_name = (&raw mut name).cast();
        header.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
        header.msg_iov = &raw mut piece;
        header.msg_iovlen = 1;
        header.msg_control = self.control.bytes.as_mut_ptr().cast();
        header.msg_controllen = self.control.bytes.len() as _;
        // SAFETY: every pointer in `header` points to memory that we may write and that lives across the call,
        // with its length beside it.
        let received = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, flags | libc::MSG_DONTWAIT) };
        if received < 0 {
            return Err(io::Error::last_os_error());
        }
        self.control_len = (header.msg_controllen as usize).min(self.control.bytes.len());
        if name.sin6_family == libc::AF_INET6 as libc::sa_family_t {
            self.name = Some(socket_address(&name));
        }
        Ok(received as usize)
    }

    /// Calls `each` with level, type and data of every control message that came.
    pub(super) fn for_each_control(&self, each: impl FnMut(i32, i32, &[u8])) {
        controls(&self.control.bytes[..self.control_len], each);
    }
}

/// Calls `each` with level, type and data of every control message.
pub(crate) fn controls(mut rest: &[u8], mut each: impl FnMut(i32, i32, &[u8])) {
    while let Some((header, _)) = rest.split_first_chunk::<CONTROL_HEADER>() {
        let Some((length, fields)) = header.split_first_chunk() else { return };
        let length = usize::from_ne_bytes(*length);
        let Some(data) = rest.get(CONTROL_HEADER..length) else { return };
        each(leading_int(fields), leading_int(&fields[4..]), data);
        rest = rest.get(length.next_multiple_of(size_of::<usize>())..).unwrap_or_default();
    }
}

/// The integer at the beginning of the bytes, 0 if they are too few.
pub(crate) fn leading_int(bytes: &[u8]) -> i32 {
    bytes.first_chunk().map_or(0, |first| i32::from_ne_bytes(*first))
}

/// Reads `struct sock_extended_err`, behind which stands the address of who sent the ICMPv6 message.
pub(super) fn parse_extended_error(data: &[u8], error: &mut QueuedError) {
    const EXTENDED_ERROR: usize = 16;
    let Some((extended, offender)) = data.split_at_checked(EXTENDED_ERROR) else { return };
    match extended[4] {
        SO_EE_ORIGIN_ICMP6 => {
            error.origin = ErrorOrigin::Icmpv6;
            error.icmp_type = extended[5];
            error.icmp_code = extended[6];
            // struct sockaddr_in6: family, port, flow information, address.
            if leading_family(offender) == libc::AF_INET6 as u16 {
                error.offender = offender
                    .get(8..24)
                    .and_then(|bytes| <[u8; 16]>::try_from(bytes).ok())
                    .map(Ipv6Addr::from);
            }
        }
        SO_EE_ORIGIN_LOCAL => error.origin = ErrorOrigin::Local,
        _ => {}
    }
    error.info = leading_int(&extended[8..]) as u32;
}

fn leading_family(bytes: &[u8]) -> u16 {
    bytes.first_chunk().map_or(0, |first| u16::from_ne_bytes(*first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn control_messages_are_read_as_they_were_written() {
        let mut message = Message::new(&mut []);
        let mut used = put_control(&mut message.control, 0, 17, 104, &1200u16.to_ne_bytes());
        used += put_control(&mut message.control, used, 41, 67, &3i32.to_ne_bytes());
        message.control_len = used;
        let mut read = Vec::new();
        message.for_each_control(|level, kind, data| read.push((level, kind, data.to_vec())));
        assert_eq!(read, [(17, 104, 1200u16.to_ne_bytes().to_vec()), (41, 67, 3i32.to_ne_bytes().to_vec())]);
    }

    proptest! {
        #[test]
        fn any_control_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..=192)) {
            let mut message = Message::new(&mut []);
            message.control.bytes[..bytes.len()].copy_from_slice(&bytes);
            message.control_len = bytes.len();
            let mut error = QueuedError {
                origin: ErrorOrigin::Local,
                icmp_type: 0,
                icmp_code: 0,
                info: 0,
                len: 0,
                destination: SocketAddrV6::new(Ipv6Addr::LOCALHOST, 1, 0, 0),
                offender: None,
            };
            message.for_each_control(|_, _, data| parse_extended_error(data, &mut error));
            parse_extended_error(&bytes, &mut error);
        }
    }
}
