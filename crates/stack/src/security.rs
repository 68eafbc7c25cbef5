//! Where security goes: policy and associations are behind [`Security`], and the rest of the stack knows no more of them.
//! [`Ipsec`](crate::ipsec::Ipsec) is there to be used, [`NoSecurity`] to do without.
//!
//! What leaves is protected as it will be on the wire, before it is fragmented; what arrives is opened after it is whole
//! again, and the result is parsed like a packet that has just come. Before an upper layer gets a packet, the policy is
//! asked whether it was protected well enough for the socket that it is for; before a socket hears of an ICMP error, whether
//! the error was.
//!
//! What a socket asks for is an [`ipsec::policy::Socket`]: a small value that a transport passes with each packet, and gives
//! out for each that comes ([`Upper::socket`](crate::interface::Upper::socket)).
//!
//! Two kinds of packets bypass all that. Messages of neighbor discovery and multicast listeners never leave the link, and
//! without them no association can be made. What a host sends to itself never leaves the host.
//!
//! Fragments out of a tunnel are put together only with others that came with the same protection. An answer that repeats
//! what came encrypted, such as an ICMP error, goes back encrypted or not at all.

use std::ops::Range;
use std::time::Instant;

use ipsec::policy::Socket;
use ipsec::request::SocketId;
use ipsec::selector::Traffic;

use crate::icmpv6::ErrorReport;

/// The packet must not be sent or is not believed: to a socket, `EIPSEC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("security forbids the packet, or is not there")]
pub struct Refused;

/// For whom a packet is sent.
#[derive(Debug, Clone, Copy)]
pub enum Sender<'a> {
    /// This host, or a socket of it.
    Own(Option<&'a Socket>),
    /// A stranger, who gets an answer: nobody is asked for an association, and the packet does not wait. Else strangers
    /// could make daemons ask, and use up the room of those who wait.
    Stranger {
        /// It repeats what came encrypted, and goes back encrypted or not at all.
        secret: bool,
        /// The socket that answers, if one does.
        socket: Option<&'a Socket>,
    },
}

impl Sender<'_> {
    /// An answer of the host.
    pub const STRANGER: Self = Sender::Stranger { secret: false, socket: None };
}

/// What becomes of a packet that is to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Protected {
    /// It is sent: this part of the buffer.
    Send(Range<usize>),
    /// It waits for an association: [`Security::next_released`].
    Waits,
}

/// What a UDP datagram is to security.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Datagram {
    /// A socket's.
    Plain,
    /// It carries protected octets, which [`Security::open`] opens (RFC 3948).
    Protected,
    /// It was sent to keep a NAT's state alive, and says nothing (RFC 3948 §2.3).
    Keepalive,
}

/// What protection costs on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overhead {
    /// Octets that are added before a packet, if it is known what protects it: so much room saves [`Security::protect`] a
    /// copy.
    pub front: Option<usize>,
    /// Octets that are added at most.
    pub octets: usize,
    /// The other end of the tunnel, if there is one: packets go there, and are as large as the path there allows.
    pub far_end: Option<std::net::IpAddr>,
}

/// Protects packets, opens them, and says which need it.
pub trait Security {
    /// What a received packet was protected by, gathered over all its layers.
    type Protection: Default;

    /// Whether the policy is interested in sockets: else nobody has to look for them.
    const HAS_POLICY: bool = true;
    /// Octets of room before a packet that save [`Security::protect`] a copy.
    const HEADROOM: usize = 0;

    /// Applies the policy to a whole packet that is to be sent: what is in the buffer from `start` on, which may grow at both
    /// ends.
    ///
    /// # Errors
    /// When the policy forbids it, or wants protection that cannot be had.
    fn protect(
        &mut self,
        now: Instant,
        packet: &mut Vec<u8>,
        start: usize,
        sender: Sender<'_>,
    ) -> Result<Protected, Refused>;

    /// Whether packets of a kind leave as they are, without protection. Only such are left to a device to be cut into
    /// segments.
    fn passes(&self, now: Instant, traffic: &Traffic, socket: Option<&Socket>) -> bool;

    /// Whether packets of a kind may leave, now or once there is what protects them, which is asked for.
    ///
    /// # Errors
    /// When the policy forbids them, or wants protection that cannot be had.
    fn prepare(&mut self, _: Instant, _: &Traffic, _: Option<&Socket>) -> Result<(), Refused> {
        Ok(())
    }

    /// Opens the first ESP or AH header of a whole packet, in place. What is left is a packet without it, or the one that
    /// was inside, in this part of the buffer. Adds to `protection`, or takes from it what was not meant for what is left.
    ///
    /// # Errors
    /// When no association opens it.
    fn open(
        &mut self,
        now: Instant,
        packet: &mut [u8],
        protection: &mut Self::Protection,
    ) -> Result<Range<usize>, Refused>;

    /// What a UDP datagram is, header included. What is wrong with it is for UDP to say.
    fn datagram(&self, _: &[u8]) -> Datagram {
        Datagram::Plain
    }

    /// Whether the policy lets a packet of this kind in with this protection, to this socket or to the host.
    fn admits(&mut self, traffic: &Traffic, protection: &Self::Protection, socket: Option<&Socket>) -> bool;

    /// A number of 7 bits for what a packet was protected by, and 0 for nothing: fragments with different ones are not of
    /// the same packet.
    fn class(&self, protection: &Self::Protection) -> u8;

    /// Whether an ICMP error about ESP or AH, also in UDP, is about something that was sent.
    fn has_sent(&self, report: &ErrorReport<'_>) -> bool;

    /// What protection costs packets of a kind.
    fn overhead(&self, now: Instant, traffic: &Traffic, socket: Option<&Socket>) -> Overhead;

    /// A socket is closed: what was made for it alone is no longer needed.
    fn close_socket(&mut self, _: SocketId) {}

    /// When [`Security::handle_timeout`] and [`Security::next_released`] have something to do.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Does what is due.
    fn handle_timeout(&mut self, _: Instant) {}

    /// Puts the next packet into `packet` that waited and is to be sent now, from the policy on; and whose it is.
    fn next_released(&mut self, _: &mut Vec<u8>) -> Option<Option<Socket>> {
        None
    }
}

/// No security: nothing is protected, and what others have protected cannot be opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSecurity;

impl Security for NoSecurity {
    type Protection = ();

    const HAS_POLICY: bool = false;

    fn protect(
        &mut self,
        _: Instant,
        packet: &mut Vec<u8>,
        start: usize,
        _: Sender<'_>,
    ) -> Result<Protected, Refused> {
        Ok(Protected::Send(start..packet.len()))
    }

    fn passes(&self, _: Instant, _: &Traffic, _: Option<&Socket>) -> bool {
        true
    }

    fn open(&mut self, _: Instant, _: &mut [u8], (): &mut ()) -> Result<Range<usize>, Refused> {
        Err(Refused)
    }

    fn admits(&mut self, _: &Traffic, (): &(), _: Option<&Socket>) -> bool {
        true
    }

    fn class(&self, (): &()) -> u8 {
        0
    }

    fn has_sent(&self, _: &ErrorReport<'_>) -> bool {
        false
    }

    fn overhead(&self, _: Instant, _: &Traffic, _: Option<&Socket>) -> Overhead {
        Overhead::default()
    }
}
