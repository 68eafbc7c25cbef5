//! What the host's errors are to a caller who knows those of the standard library.

use std::io::{self, ErrorKind};

use stack::host::{ConnectError, ListenError, Stale, WriteError};
use stack::icmpv6;
use stack::interface::{SendError, UdpError};
use stack::{tcp, udp};

/// Security that the socket or the system asks for is not to be had: `EIPSEC` of NRL's sockets. Nothing was sent in clear.
/// It is inside of an [`io::Error`]: see [`is_security`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no security association as socket or system ask for it (EIPSEC)")]
pub struct NoSecurityAssociation;

/// Whether a call failed for want of security.
pub fn is_security(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.downcast_ref::<NoSecurityAssociation>().is_some())
}

pub(crate) fn of_security() -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, NoSecurityAssociation)
}

pub(crate) fn of_connecting(error: ConnectError) -> io::Error {
    let kind = match error {
        ConnectError::Destination => ErrorKind::InvalidInput,
        ConnectError::NoSource => ErrorKind::AddrNotAvailable,
        ConnectError::NoPort => ErrorKind::AddrInUse,
        ConnectError::Security => return of_security(),
        ConnectError::NotPermitted => ErrorKind::PermissionDenied,
    };
    io::Error::new(kind, error)
}

pub(crate) fn of_listening(error: ListenError) -> io::Error {
    let kind = match error {
        ListenError::Local => ErrorKind::InvalidInput,
        ListenError::InUse => ErrorKind::AddrInUse,
        ListenError::NotPermitted => ErrorKind::PermissionDenied,
    };
    io::Error::new(kind, error)
}

pub(crate) fn of_connection(error: tcp::Error) -> io::Error {
    let kind = match error {
        tcp::Error::Refused => ErrorKind::ConnectionRefused,
        tcp::Error::Reset => ErrorKind::ConnectionReset,
        tcp::Error::TimedOut => ErrorKind::TimedOut,
        tcp::Error::Unreachable => ErrorKind::HostUnreachable,
        tcp::Error::Security => return of_security(),
        _ => ErrorKind::ConnectionAborted,
    };
    io::Error::new(kind, error)
}

pub(crate) fn of_udp(error: UdpError) -> io::Error {
    let kind = match error {
        UdpError::Socket(error) => return of_socket(error),
        UdpError::Send(SendError::Security) => return of_security(),
        UdpError::Send(SendError::TooLong) => ErrorKind::InvalidInput,
        UdpError::Send(SendError::NoSource) => ErrorKind::AddrNotAvailable,
        UdpError::Send(SendError::Dropped(stack::DropReason::NoRoute)) => ErrorKind::NetworkUnreachable,
        UdpError::Send(SendError::Dropped(_)) => ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

pub(crate) fn of_socket(error: udp::Error) -> io::Error {
    let kind = match error {
        udp::Error::InUse => ErrorKind::AddrInUse,
        udp::Error::Closed => ErrorKind::NotConnected,
        udp::Error::NotPermitted => ErrorKind::PermissionDenied,
        udp::Error::NoDestination | udp::Error::TooLong => ErrorKind::InvalidInput,
    };
    io::Error::new(kind, error)
}

/// What somebody on the way, or the other end, has said of a datagram.
pub(crate) fn of_icmp(kind: icmpv6::ErrorKind) -> io::Error {
    use wire::icmpv6::code;
    match kind {
        icmpv6::ErrorKind::Unreachable(code::PORT_UNREACHABLE) => ErrorKind::ConnectionRefused,
        icmpv6::ErrorKind::Unreachable(code::NO_ROUTE) => ErrorKind::NetworkUnreachable,
        _ => ErrorKind::HostUnreachable,
    }
    .into()
}

pub(crate) fn of_writing(error: WriteError) -> io::Error {
    match error {
        WriteError::Stale(stale) => of_stale(stale),
        WriteError::Security => of_security(),
    }
}

pub(crate) fn of_stale(_: Stale) -> io::Error {
    ErrorKind::NotConnected.into()
}
