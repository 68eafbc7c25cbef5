//! Forwarded ports, as ssh's `-L` has them: `[BIND:]PORT:HOST:HOSTPORT`, IPv6 addresses in brackets, or with the path of a
//! Unix socket in the place of the port.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use crate::place::Place;
use crate::target::{Target, TargetError};

/// A port here that leads to a host behind the tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forward {
    /// Where clients come to.
    pub listen: Place,
    /// Where they get to.
    pub target: Target,
}

/// What is no forwarded port.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForwardError {
    /// It has not the parts.
    #[error(
        "write [BIND:]PORT:HOST:HOSTPORT or PATH:HOST:HOSTPORT, with IPv6 addresses in brackets, like 8443:www.example:443"
    )]
    Parts,
    /// The address is none.
    #[error("“{0}” is no address to listen at: write one like 127.0.0.1 or [::1]")]
    Bind(String),
    /// The port is none.
    #[error("“{0}” is no port to listen at: write a number up to 65535")]
    Port(String),
    /// The target is none.
    #[error("{0}: write HOST:HOSTPORT at the end, like www.example:443")]
    Target(#[from] TargetError),
}

impl FromStr for Forward {
    type Err = ForwardError;

    fn from_str(text: &str) -> Result<Self, ForwardError> {
        let parts = parts(text).ok_or(ForwardError::Parts)?;
        let (bind, port, host, host_port) = match parts[..] {
            [path, host, host_port] if path.contains('/') => {
                let listen = path.parse().map_err(|_| ForwardError::Parts)?;
                return Ok(Self { listen, target: format!("{host}:{host_port}").parse()? });
            }
            [port, host, host_port] => (None, port, host, host_port),
            [bind, port, host, host_port] => (Some(bind), port, host, host_port),
            _ => return Err(ForwardError::Parts),
        };
        let address = match bind {
            None | Some("localhost") => Ipv4Addr::LOCALHOST.into(),
            Some(bind) => {
                let inside = bind.strip_prefix('[').and_then(|bind| bind.strip_suffix(']')).unwrap_or(bind);
                inside.parse::<IpAddr>().map_err(|_| ForwardError::Bind(bind.to_owned()))?
            }
        };
        let port = port.parse().map_err(|_| ForwardError::Port(port.to_owned()))?;
        Ok(Self {
            listen: SocketAddr::new(address, port).into(),
            target: format!("{host}:{host_port}").parse()?,
        })
    }
}

/// Splits at colons outside brackets.
fn parts(text: &str) -> Option<Vec<&str>> {
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        let end_of_brackets = if rest.starts_with('[') { rest.find(']')? } else { 0 };
        match rest[end_of_brackets..].find(':') {
            Some(colon) => {
                let (part, behind) = rest.split_at(end_of_brackets + colon);
                parts.push(part);
                rest = &behind[1..];
            }
            None => {
                parts.push(rest);
                return Some(parts);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ports_are_forwarded_as_in_ssh() {
        let read = |text: &str| {
            let forward: Forward = text.parse().unwrap();
            (forward.listen.to_string(), forward.target.to_string())
        };
        let is = |listen: &str, target: &str| (listen.to_owned(), target.to_owned());
        assert_eq!(read("8080:www.example:80"), is("127.0.0.1:8080", "www.example:80"));
        assert_eq!(read("localhost:0:10.0.0.1:22"), is("127.0.0.1:0", "10.0.0.1:22"));
        assert_eq!(read("./web.sock:www.example:80"), is("./web.sock", "www.example:80"));
        assert_eq!(read("[::1]:8080:[2001:db8::1]:80"), is("[::1]:8080", "[2001:db8::1]:80"));
        let error = |text: &str| text.parse::<Forward>().unwrap_err().to_string();
        assert!(error("8080").starts_with("write [BIND:]PORT"));
        assert!(error("99999:a:1").contains("“99999” is no port"));
        assert!(error("nowhere:80:a:1").contains("“nowhere” is no address"));
        assert!(error("80:a:0").contains("HOST:HOSTPORT at the end"));
        assert!(error("[::1:80:a:1").starts_with("write"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[\\[\\]:a-z0-9.ä]{0,30}") {
            let _ = text.parse::<Forward>();
        }
    }
}
