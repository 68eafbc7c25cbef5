//! Where metrics may be read.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::str::FromStr;

use control::place;

/// An address and a port, or a Unix socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// One address of this machine, never all of them.
    Tcp(SocketAddr),
    /// A path.
    Unix(PathBuf),
}

/// What listens.
#[derive(Debug)]
pub(crate) enum Listener {
    /// At an address.
    Tcp(TcpListener),
    /// At a path.
    Unix(UnixListener),
}

/// Why a text is no place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoPlace {
    /// Something else.
    #[error("is neither ADDRESS:PORT, such as [::1]:9469 or 192.0.2.1:9469, nor unix:PATH with a whole path")]
    Unknown,
    /// All addresses.
    #[error(
        "would answer at every address of this machine, those that a tunnel hops in, too: name one address, such as [::1]:9469"
    )]
    Everywhere,
    /// A group of hosts.
    #[error("is a multicast address: name one of this machine, such as [::1]:9469")]
    Multicast,
}

impl FromStr for Place {
    type Err = NoPlace;

    fn from_str(text: &str) -> Result<Self, NoPlace> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            return if path.is_absolute() { Ok(Place::Unix(path)) } else { Err(NoPlace::Unknown) };
        }
        let address: SocketAddr = text.parse().map_err(|_| NoPlace::Unknown)?;
        match place::judge(address.ip()) {
            Err(place::NoPlace::Everywhere) => Err(NoPlace::Everywhere),
            Err(place::NoPlace::Multicast) => Err(NoPlace::Multicast),
            Ok(()) => Ok(Place::Tcp(address)),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Tcp(address) => write!(f, "{address}"),
            Place::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Place {
    /// Whether programs of this machine alone come to it, by an address: a browser may be led to it.
    pub(crate) fn is_loopback(&self) -> bool {
        matches!(self, Place::Tcp(address) if address.ip().to_canonical().is_loopback())
    }

    /// Its address, where a tunnel could hop.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        match self {
            Place::Tcp(address) => {
                Some(address.ip().to_canonical()).filter(|ip| ip.is_ipv6() && !ip.is_loopback())
            }
            Place::Unix(_) => None,
        }
    }

    /// A Unix socket is for its owner and the group that it gets from its folder, or from this process.
    pub(crate) fn listen(&self) -> io::Result<Listener> {
        Ok(match self {
            Place::Tcp(address) => Listener::Tcp(TcpListener::bind(address)?),
            Place::Unix(path) => {
                control::remove_stale_socket(path)?;
                Listener::Unix(control::listen_to_group(path)?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_one_address_or_a_path() {
        for good in
            ["[::1]:9469", "127.0.0.1:9469", "192.0.2.1:1", "[2001:db8::1]:9469", "unix:/run/x/metrics.sock"]
        {
            assert_eq!(good.parse::<Place>().unwrap().to_string(), good);
        }
        for wildcard in ["[::]:9469", "0.0.0.0:9469", "[::ffff:0.0.0.0]:9469"] {
            assert_eq!(wildcard.parse::<Place>(), Err(NoPlace::Everywhere), "{wildcard}");
        }
        assert_eq!("[ff02::1]:9469".parse::<Place>(), Err(NoPlace::Multicast));
        for bad in ["", ":9469", "9469", "localhost:9469", "[::1]", "unix:", "unix:metrics.sock", "::1:9469x"]
        {
            assert_eq!(bad.parse::<Place>(), Err(NoPlace::Unknown), "{bad}");
        }
    }
}
