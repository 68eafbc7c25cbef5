//! Where clients come to: a port, or a socket in the file system.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where clients come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// An address and port of TCP.
    Port(SocketAddr),
    /// A Unix socket, for whoever may open its file: its owner, and root.
    Socket(PathBuf),
}

/// What is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "write an address and a port, like 127.0.0.1:1080 or [::1]:1080, or the path of a socket, like ./proxy.sock"
)]
pub struct NoPlace;

impl Place {
    /// The folder that a socket's file is in.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        match self {
            Self::Port(_) => None,
            Self::Socket(path) => Some(path.parent().unwrap_or(Path::new("")).to_owned()),
        }
    }
}

impl From<SocketAddr> for Place {
    fn from(address: SocketAddr) -> Self {
        Self::Port(address)
    }
}

impl FromStr for Place {
    type Err = NoPlace;

    fn from_str(text: &str) -> Result<Self, NoPlace> {
        if text.contains('/') && !text.ends_with('/') {
            return Ok(Self::Socket(text.into()));
        }
        text.parse().map(Self::Port).map_err(|_| NoPlace)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(address) => address.fmt(f),
            Self::Socket(path) => path.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_slash_is_a_path() {
        for right in ["127.0.0.1:1080", "[::1]:1080", "./proxy.sock", "/run/user/7/proxy"] {
            assert_eq!(right.parse::<Place>().unwrap().to_string(), right);
        }
        for wrong in ["", "1080", "proxy.sock", "localhost:1080", "/run/", "/"] {
            assert!(wrong.parse::<Place>().is_err(), "{wrong}");
        }
    }
}
