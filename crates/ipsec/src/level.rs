//! How much security a socket, a rule or the system wants: a level for each service. What they come to together is
//! [policy](crate::policy).

use crate::request::{Service, SocketId};

/// How much a service is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Level {
    /// Not at all.
    #[default]
    None = 0,
    /// Where it can be had.
    Use = 1,
    /// Both ways.
    Require = 2,
    /// Both ways, with an association of the socket's own.
    Unique = 3,
}

impl Level {
    /// The level of this number, as in a socket option.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::None),
            1 => Some(Self::Use),
            2 => Some(Self::Require),
            3 => Some(Self::Unique),
            _ => None,
        }
    }
}

/// A level for each service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Levels {
    /// That of AH.
    pub authentication: Level,
    /// That of ESP in transport mode.
    pub transport_encryption: Level,
    /// That of ESP in tunnel mode.
    pub tunnel_encryption: Level,
}

impl Levels {
    /// Nothing is wanted.
    pub const NONE: Self = Self {
        authentication: Level::None,
        transport_encryption: Level::None,
        tunnel_encryption: Level::None,
    };

    /// The stricter of both, for each service.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        Self {
            authentication: self.authentication.max(other.authentication),
            transport_encryption: self.transport_encryption.max(other.transport_encryption),
            tunnel_encryption: self.tunnel_encryption.max(other.tunnel_encryption),
        }
    }

    /// That of a service.
    pub const fn of(self, service: Service) -> Level {
        match service {
            Service::Authentication => self.authentication,
            Service::TransportEncryption => self.transport_encryption,
            Service::TunnelEncryption => self.tunnel_encryption,
        }
    }
}

/// What a socket asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Socket {
    /// Which it is.
    pub id: SocketId,
    /// Its levels.
    pub levels: Levels,
    /// Whether it is a key management daemon's.
    pub bypasses: bool,
}
