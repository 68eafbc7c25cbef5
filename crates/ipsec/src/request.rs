//! What an association is wanted for, and who takes part: sockets and daemons, by the numbers that the host gives them.

use std::net::IpAddr;

use crate::association::{Association, Mode, Protocol};
use crate::selector::Traffic;

/// A socket. PF_KEY carries numbers below 2³² − 0x4000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId(pub u64);

/// A key management daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DaemonId(pub u64);

/// A kind of security that a packet can have, each of its own level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Service {
    /// AH in transport mode.
    Authentication,
    /// ESP in transport mode.
    TransportEncryption,
    /// ESP in tunnel mode.
    TunnelEncryption,
}

impl Service {
    /// In the order in which they are applied to a packet that leaves.
    pub const ALL: [Self; 3] = [Self::TransportEncryption, Self::Authentication, Self::TunnelEncryption];

    /// The protocol that does it.
    pub const fn protocol(self) -> Protocol {
        match self {
            Self::Authentication => Protocol::Ah,
            Self::TransportEncryption | Self::TunnelEncryption => Protocol::Esp,
        }
    }

    /// The mode that does it.
    pub const fn mode(self) -> Mode {
        match self {
            Self::TunnelEncryption => Mode::Tunnel,
            Self::Authentication | Self::TransportEncryption => Mode::Transport,
        }
    }
}

/// What an association is wanted for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Request {
    /// To do what.
    pub service: Service,
    /// To which packets.
    pub traffic: Traffic,
    /// Of which socket.
    pub socket: Option<SocketId>,
    /// Whether it must be that socket's own.
    pub is_unique: bool,
    /// Between which gateways, where the policy names them.
    pub tunnel: Option<(IpAddr, IpAddr)>,
}

impl Request {
    /// Whether what is made for one of two wishes is likely to do for both, so that a daemon is asked once: between the same
    /// ends, unless a socket wants its own.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        if self.is_unique || other.is_unique {
            return self == other;
        }
        let ends =
            |request: &Self| request.tunnel.unwrap_or((request.traffic.source, request.traffic.destination));
        self.service == other.service
            && self.tunnel.is_some() == other.tunnel.is_some()
            && ends(self) == ends(other)
    }

    /// Whether an association, of a socket's own or of all, is what is wanted.
    pub fn is_met_by(&self, association: &Association, owner: Option<SocketId>) -> bool {
        let parameters = association.parameters();
        let owner_fits = match owner {
            Some(owner) => Some(owner) == self.socket,
            None => !self.is_unique,
        };
        let ends_fit = match self.service.mode() {
            Mode::Transport => {
                parameters.source == self.traffic.source && parameters.destination == self.traffic.destination
            }
            Mode::Tunnel => {
                self.tunnel.is_none_or(|ends| ends == (parameters.source, parameters.destination))
            }
        };
        association.protocol() == self.service.protocol()
            && parameters.mode == self.service.mode()
            && owner_fits
            && ends_fit
            && association.is_for(&self.traffic)
    }
}
