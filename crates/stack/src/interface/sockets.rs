//! UDP sockets and echo, as the caller uses them.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::time::Instant;

use ipsec::policy::{Levels, Socket};
use wire::checksum::Sum;
use wire::{icmpv4, icmpv6, protocol};

use super::Interface;
use super::output::{Outgoing, SendError};
use crate::icmpv6::ErrorKind;
use crate::security::{Security, Sender};
use crate::udp::{self, Metadata, SocketId};

/// Why a datagram cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UdpError {
    /// The socket's part of it.
    #[error(transparent)]
    Socket(#[from] udp::Error),
    /// The packet's part of it.
    #[error(transparent)]
    Send(#[from] SendError),
}

impl<S: Security> Interface<S> {
    /// Opens a socket; see [`udp::Sockets::bind`].
    ///
    /// # Errors
    /// When the address and port are taken.
    pub fn udp_bind(&mut self, local: SocketAddrV6) -> Result<SocketId, udp::Error> {
        let id = self.udp.bind(local, &mut self.random)?;
        let policy = Socket { id: self.number_socket(), levels: Levels::NONE, bypasses: false };
        self.udp.set_policy(id, policy)?;
        Ok(id)
    }

    /// A number for a socket of any transport, which no other has had: its part of an [`ipsec::policy::Socket`].
    pub fn number_socket(&mut self) -> ipsec::request::SocketId {
        self.numbered += 1;
        ipsec::request::SocketId(self.numbered)
    }

    /// Asks for security for what a socket sends and receives, beside what the system asks for. For what is sent from now
    /// on, and what is delivered from now on.
    ///
    /// # Errors
    /// When the socket is closed.
    pub fn udp_set_levels(&mut self, id: SocketId, levels: Levels) -> Result<(), udp::Error> {
        let policy = self.udp.policy(id).ok_or(udp::Error::Closed)?;
        self.udp.set_policy(id, Socket { levels, ..policy })
    }

    /// From now on sockets may bypass security, if they ask for it. The host decides that, not who uses a socket: it is for
    /// a host whose key management daemon speaks through it.
    pub fn permit_bypass(&mut self) {
        self.may_bypass = true;
    }

    /// Whether sockets may bypass security.
    pub fn permits_bypass(&self) -> bool {
        self.may_bypass
    }

    /// Lets a socket past the system's levels and rules (but not past a rule that discards), and past its own. For the
    /// socket of a key management daemon alone, who speaks before there are associations.
    ///
    /// # Errors
    /// When the socket is closed, or the host does not [permit](Self::permit_bypass) it.
    pub fn udp_bypass_security(&mut self, id: SocketId) -> Result<(), udp::Error> {
        if !self.may_bypass {
            return Err(udp::Error::NotPermitted);
        }
        let policy = self.udp.policy(id).ok_or(udp::Error::Closed)?;
        self.udp.set_policy(id, Socket { bypasses: true, ..policy })
    }

    /// What the policy knows of a socket: its number, as key management daemons are told it, and its levels.
    pub fn udp_policy(&self, id: SocketId) -> Option<Socket> {
        self.udp.policy(id)
    }

    /// From now on only what comes from there is taken, and what is sent without destination goes there.
    ///
    /// # Errors
    /// When the socket is closed.
    pub fn udp_connect(&mut self, id: SocketId, remote: SocketAddrV6) -> Result<(), udp::Error> {
        self.udp.connect(id, remote)
    }

    /// Closes a socket.
    pub fn udp_close(&mut self, id: SocketId) {
        self.udp.close(id);
    }

    /// Sends a datagram, to where the socket is connected if `to` is not given. To groups it goes one hop far.
    ///
    /// # Errors
    /// See [`UdpError`].
    pub fn udp_send(
        &mut self,
        now: Instant,
        id: SocketId,
        to: Option<SocketAddrV6>,
        data: &[u8],
    ) -> Result<(), UdpError> {
        let to = self.udp.destination(id, to)?;
        let local = self.udp.local(id).ok_or(udp::Error::Closed)?;
        let bound = Some(*local.ip()).filter(|address| !address.is_unspecified());
        let chosen = bound.or_else(|| self.source_for(now, *to.ip())).ok_or(SendError::NoSource)?;
        let from = SocketAddrV6::new(chosen, local.port(), 0, 0);
        let header = udp::header(from, to, data)?;
        let outgoing = Outgoing {
            source: Some(chosen),
            destination: *to.ip(),
            protocol: protocol::UDP,
            hop_limit: to.ip().is_multicast().then_some(1),
            traffic_class: 0,
            flow_label: self.udp.flow_label(id, chosen, to),
        };
        let policy = self.udp.policy(id);
        Ok(self.send_for(now, &outgoing, &[&header, data], Sender::Own(policy.as_ref()))?)
    }

    /// The next datagram of a socket: it is put in place of what is in `out`.
    pub fn udp_receive(&mut self, id: SocketId, out: &mut Vec<u8>) -> Option<Metadata> {
        self.udp.receive(id, out)
    }

    /// Whether [`Interface::udp_receive`] or [`Interface::udp_error`] has something to say.
    pub fn udp_is_readable(&self, id: SocketId) -> bool {
        self.udp.is_readable(id)
    }

    /// The address and port that a socket has.
    pub fn udp_local(&self, id: SocketId) -> Option<SocketAddrV6> {
        self.udp.local(id)
    }

    /// The last error about something that a socket has sent, and where to; then it is forgotten.
    pub fn udp_error(&mut self, id: SocketId) -> Option<(ErrorKind, SocketAddrV6)> {
        self.udp.take_error(id)
    }

    /// Sends an echo request. The answer comes as [`super::Event::EchoReply`].
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn ping(
        &mut self,
        now: Instant,
        to: Ipv6Addr,
        identifier: u16,
        sequence: u16,
        data: &[u8],
    ) -> Result<(), SendError> {
        let source = self.source_for(now, to).ok_or(SendError::NoSource)?;
        let is_ipv4 = to.to_ipv4_mapped().is_some();
        let (message_type, protocol) = if is_ipv4 {
            (icmpv4::ECHO_REQUEST, protocol::ICMPV4)
        } else {
            (icmpv6::ECHO_REQUEST, protocol::ICMPV6)
        };
        let mut header = [message_type, 0, 0, 0, 0, 0, 0, 0];
        header[4..6].copy_from_slice(&identifier.to_be_bytes());
        header[6..].copy_from_slice(&sequence.to_be_bytes());
        let length = (header.len() + data.len()) as u32;
        // ICMP has no pseudo-header (RFC 792).
        let pseudo =
            if is_ipv4 { Sum::default() } else { Sum::pseudo_ipv6(source, to, length, protocol::ICMPV6) };
        let checksum = (pseudo + Sum::of(&header) + Sum::of(data)).checksum();
        header[2..4].copy_from_slice(&checksum.to_be_bytes());
        self.pinged = Some((to, identifier));
        let outgoing = Outgoing {
            source: Some(source),
            destination: to,
            protocol,
            hop_limit: None,
            traffic_class: 0,
            flow_label: 0,
        };
        self.send(now, &outgoing, &[&header, data])
    }
}
