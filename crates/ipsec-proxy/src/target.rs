//! Where a client wants to go.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// The longest name (RFC 1035 §2.3.4), without the dot at its end.
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// Where a client wants to go: a host and a port that is not 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The host.
    pub host: Destination,
    /// The port.
    pub port: u16,
}

/// A host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// By its address.
    Address(IpAddr),
    /// By its name, which is asked for inside the tunnel.
    Name(Name),
}

/// A name that can be asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name(String);

/// What is no target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// It has no port, or port 0.
    #[error("a port from 1 to 65535 is missing")]
    Port,
    /// It has no host, or none whose name could be asked for.
    #[error("the host is neither an address nor a name")]
    Host,
}

impl Target {
    /// One at an address.
    ///
    /// # Errors
    /// [`TargetError::Port`].
    pub fn at(address: IpAddr, port: u16) -> Result<Self, TargetError> {
        Self::new(Destination::Address(address), port)
    }

    /// One by name; an address that is written out is none.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn named(host: &str, port: u16) -> Result<Self, TargetError> {
        Self::new(host.parse()?, port)
    }

    fn new(host: Destination, port: u16) -> Result<Self, TargetError> {
        if port == 0 {
            return Err(TargetError::Port);
        }
        Ok(Self { host, port })
    }
}

impl FromStr for Target {
    type Err = TargetError;

    /// `host:port`, IPv6 addresses in brackets.
    fn from_str(text: &str) -> Result<Self, TargetError> {
        let (host, port) = text.rsplit_once(':').ok_or(TargetError::Port)?;
        // A sign is a number's, not a port's.
        if !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(TargetError::Port);
        }
        let port = port.parse().map_err(|_| TargetError::Port)?;
        if let Some(inside) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            let address: Ipv6Addr = inside.parse().map_err(|_| TargetError::Host)?;
            return Self::at(address.into(), port);
        }
        if host.contains(':') {
            return Err(TargetError::Host);
        }
        Self::named(host, port)
    }
}

impl FromStr for Destination {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        match text.parse() {
            Ok(address) => Ok(Self::Address(address)),
            Err(_) => text.parse().map(Self::Name),
        }
    }
}

impl FromStr for Name {
    type Err = TargetError;

    /// Letters, digits, hyphens and underscores in labels. What ends in a number would be an address (RFC 1123 §2.1), and one
    /// that is written in an unusual way is not guessed at.
    fn from_str(text: &str) -> Result<Self, TargetError> {
        let text = text.strip_suffix('.').unwrap_or(text);
        let is_label = |label: &str| {
            (1..=MAX_LABEL).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        };
        let last = text.rsplit('.').next().unwrap_or_default();
        let is_number = last.bytes().all(|byte| byte.is_ascii_digit());
        if text.len() > MAX_NAME || is_number || !text.split('.').all(is_label) {
            return Err(TargetError::Host);
        }
        Ok(Self(text.to_ascii_lowercase()))
    }
}

impl Name {
    /// In small letters, without a dot at its end.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Destination::Address(address) => SocketAddr::new(*address, self.port).fmt(f),
            Destination::Name(name) => write!(f, "{}:{}", name.0, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_and_names_have_ports() {
        for right in ["192.0.2.1:80", "[2001:db8::1]:443", "www.example:80", "a_b-c.example:1"] {
            assert_eq!(right.parse::<Target>().unwrap().to_string(), right);
        }
        assert_eq!("WWW.Example.:80".parse::<Target>().unwrap().to_string(), "www.example:80");
        for wrong in [
            "",
            ":",
            "a",
            "a:",
            "a:0",
            "a:65536",
            "a:+1",
            ":80",
            "2001:db8::1:80",
            "[2001:db8::1:80",
            "a..b:80",
            ".:80",
            "0x7f.1:80",
            "127.1:80",
            "2130706433:80",
            "a b:80",
            "a\0:80",
            "ä.example:80",
        ] {
            assert!(wrong.parse::<Target>().is_err(), "{wrong}");
        }
        assert!("x".repeat(64).parse::<Name>().is_err());
        assert!(["x".repeat(63).as_str(); 4].join(".").parse::<Name>().is_err());
    }

    proptest! {
        #[test]
        fn whatever_is_read_is_written_and_read_as_the_same(text in "[\\[]?[a-zA-Z0-9:._-]{0,30}[\\]]?:[0-9]{1,5}") {
            if let Ok(target) = text.parse::<Target>() {
                prop_assert_eq!(target.to_string().parse(), Ok(target));
            }
        }
    }
}
