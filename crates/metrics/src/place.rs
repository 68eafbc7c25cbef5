//! Where metrics may be read.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::str::FromStr;

use ipnet::Ipv6Net;

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
        match address.ip().to_canonical() {
            ip if ip.is_unspecified() => Err(NoPlace::Everywhere),
            ip if ip.is_multicast() => Err(NoPlace::Multicast),
            _ => Ok(Place::Tcp(address)),
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
    /// Whether it is a path, which no browser comes to.
    pub(crate) fn is_path(&self) -> bool {
        matches!(self, Place::Unix(_))
    }

    /// Whether no tunnel will ever hop there.
    pub(crate) fn is_local(&self) -> bool {
        self.global_address().is_none()
    }

    fn global_address(&self) -> Option<Ipv6Addr> {
        match self {
            Place::Tcp(address) => match address.ip().to_canonical() {
                IpAddr::V6(address) if !address.is_loopback() => Some(address),
                _ => None,
            },
            Place::Unix(_) => None,
        }
    }

    /// The first of these prefixes that contains it.
    pub(crate) fn inside(&self, prefixes: &[Ipv6Net]) -> Option<Ipv6Net> {
        let address = self.global_address()?;
        prefixes.iter().copied().find(|prefix| prefix.contains(&address))
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

    #[test]
    fn no_address_that_a_tunnel_hops_in() {
        let prefixes = ["2001:db8:a1::/64".parse().unwrap(), "2001:db8:a2::/64".parse().unwrap()];
        let place = |text: &str| text.parse::<Place>().unwrap();
        for inside in ["[2001:db8:a1::5]:9469", "[2001:db8:a2:0:ffff::1]:1"] {
            assert!(place(inside).inside(&prefixes).is_some(), "{inside}");
        }
        for outside in ["[2001:db8:a::1]:9469", "[::1]:9469", "192.0.2.1:9469", "unix:/run/x.sock"] {
            assert!(place(outside).inside(&prefixes).is_none(), "{outside}");
        }
    }
}
