//! Socket options and addresses, as the kernel wants them.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::error::{Error, Result};

/// A new socket, closed on exec and non-blocking.
pub(crate) fn socket(family: i32, kind: i32, protocol: i32, what: &'static str) -> Result<OwnedFd> {
    // SAFETY: takes integers, returns a descriptor or -1.
    let fd = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, protocol) };
    if fd < 0 {
        return Err(Error::last(what));
    }
    // SAFETY: a descriptor just made, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets an option whose value is a plain structure or integer.
pub(crate) fn set<T: Copy>(
    fd: BorrowedFd<'_>,
    level: i32,
    option: i32,
    value: &T,
    what: &'static str,
) -> Result<()> {
    // SAFETY: pointer and length describe `value`, which lives across the call; the kernel only reads it.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(Error::last(what)) } else { Ok(()) }
}

/// An integer option's value.
pub(crate) fn get_int(fd: BorrowedFd<'_>, level: i32, option: i32, what: &'static str) -> Result<i32> {
    let mut value: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, the size of `value`.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            option,
            std::ptr::from_mut(&mut value).cast(),
            &raw mut length,
        )
    };
    if result < 0 { Err(Error::last(what)) } else { Ok(value) }
}

/// Sets an integer option to 1.
pub(crate) fn enable(fd: BorrowedFd<'_>, level: i32, option: i32, what: &'static str) -> Result<()> {
    set(fd, level, option, &1i32, what)
}

/// Binds a socket to an address of its family; `T` is that family's `sockaddr`.
pub(crate) fn bind<T: Copy>(fd: BorrowedFd<'_>, address: &T, what: impl FnOnce() -> String) -> Result<()> {
    // SAFETY: pointer and length describe `address`, which lives across the call; the kernel only reads it.
    let result = unsafe {
        libc::bind(fd.as_raw_fd(), std::ptr::from_ref(address).cast(), size_of::<T>() as libc::socklen_t)
    };
    if result < 0 { Err(Error::last(what())) } else { Ok(()) }
}

/// Connects a socket to an address of its family; `T` is that family's `sockaddr`.
pub(crate) fn connect<T: Copy>(fd: BorrowedFd<'_>, address: &T, what: impl FnOnce() -> String) -> Result<()> {
    // SAFETY: pointer and length describe `address`, which lives across the call; the kernel only reads it.
    let result = unsafe {
        libc::connect(fd.as_raw_fd(), std::ptr::from_ref(address).cast(), size_of::<T>() as libc::socklen_t)
    };
    if result < 0 { Err(Error::last(what())) } else { Ok(()) }
}

/// The port that a socket of IPv6 is bound to.
pub(crate) fn local_port(fd: BorrowedFd<'_>) -> Result<u16> {
    let mut address = sockaddr_in6(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0));
    let mut length = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, the size of `address`.
    let result = unsafe {
        libc::getsockname(fd.as_raw_fd(), std::ptr::from_mut(&mut address).cast(), &raw mut length)
    };
    if result < 0 { Err(Error::last("getsockname")) } else { Ok(u16::from_be(address.sin6_port)) }
}

/// The kernel's form of an IPv6 socket address.
pub(crate) fn sockaddr_in6(address: SocketAddrV6) -> libc::sockaddr_in6 {
    libc::sockaddr_in6 {
        sin6_family: libc::AF_INET6 as libc::sa_family_t,
        sin6_port: address.port().to_be(),
        sin6_flowinfo: address.flowinfo(),
        sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
        sin6_scope_id: address.scope_id(),
    }
}

/// An IPv6 socket address from the kernel's form. The flow label is left out: it is not part of who somebody is.
pub(crate) fn socket_address(raw: &libc::sockaddr_in6) -> SocketAddrV6 {
    SocketAddrV6::new(
        Ipv6Addr::from(raw.sin6_addr.s6_addr),
        u16::from_be(raw.sin6_port),
        0,
        raw.sin6_scope_id,
    )
}
