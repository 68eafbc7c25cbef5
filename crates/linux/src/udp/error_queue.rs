//! What a socket's error queue tells (recvmsg with MSG_ERRQUEUE).

use std::net::{Ipv6Addr, SocketAddrV6};

/// Where an error of the error queue comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorOrigin {
    /// This host: a datagram that was longer than the interface's MTU.
    Local,
    /// An ICMPv6 message from somewhere. Nothing authenticates it.
    Icmpv6,
}

/// An error that concerns a datagram that was sent, with the beginning of what the datagram held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedError {
    /// Who made the error.
    pub origin: ErrorOrigin,
    /// ICMPv6 type (RFC 4443); 0 for a local error.
    pub icmp_type: u8,
    /// ICMPv6 code; 0 for a local error.
    pub icmp_code: u8,
    /// For Packet Too Big and for local errors the MTU, for Parameter Problem the pointer.
    pub info: u32,
    /// Bytes of the datagram's UDP payload in the buffer, as far as the message quoted it.
    pub len: usize,
    /// Where the datagram was going.
    pub destination: SocketAddrV6,
    /// Who sent the ICMPv6 message.
    pub offender: Option<Ipv6Addr>,
}
