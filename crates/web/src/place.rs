//! Where the page is: not where everybody could come, not where addresses hop, and in the clear on this machine alone.

use std::net::{IpAddr, SocketAddr, TcpListener};

use ipnet::Ipv6Net;

use crate::error::Error;

/// Listens there, if the page may be there.
pub(crate) fn listen(
    listen: SocketAddr,
    encrypted: bool,
    hopping: &[(String, Ipv6Net)],
) -> Result<TcpListener, Error> {
    judge(listen, encrypted)?;
    if let Some((tunnel, prefix)) = hopping.iter().find(|(_, prefix)| is_in(listen, *prefix)) {
        return Err(Error::Hopping { listen, prefix: *prefix, tunnel: tunnel.clone() });
    }
    let about = |source| Error::Listen { listen, source };
    let listener = TcpListener::bind(listen).map_err(about)?;
    listener.set_nonblocking(true).map_err(about)?;
    Ok(listener)
}

fn judge(listen: SocketAddr, encrypted: bool) -> Result<(), Error> {
    let address = listen.ip().to_canonical();
    if address.is_unspecified() {
        return Err(Error::EveryAddress(listen));
    }
    if !address.is_loopback() && !encrypted {
        return Err(Error::InTheClear(listen));
    }
    Ok(())
}

/// Whether a hopping prefix has this address.
pub(crate) fn is_in(listen: SocketAddr, prefix: Ipv6Net) -> bool {
    matches!(listen.ip(), IpAddr::V6(address) if prefix.contains(&address))
}

/// Which names the page answers to. A page of another site that resolves its own name to this machine (DNS rebinding) comes
/// with that name, and gets nothing.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    names: Vec<String>,
}

impl Names {
    pub(crate) fn new(listen: SocketAddr, given: &[String]) -> Names {
        let mut names: Vec<String> = given.iter().map(|name| name.to_ascii_lowercase()).collect();
        // By `ssh -L` somebody comes to loopback by any of its names, at any port.
        if listen.ip().is_loopback() {
            names.extend(["localhost", "127.0.0.1", "[::1]"].map(str::to_owned));
        }
        names.push(match listen.ip() {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        });
        Names { names }
    }

    /// Whether a `Host` header names this page.
    pub(crate) fn has(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            // What is behind the last colon of a bare `[::1]` is no port.
            Some((name, port)) if !port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit()) => {
                name
            }
            _ => host,
        };
        self.names.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(address: &str, encrypted: bool) -> String {
        let hopping = [("mt6d0".to_owned(), "2001:db8:a1::/64".parse().unwrap())];
        listen(address.parse().unwrap(), encrypted, &hopping).unwrap_err().to_string()
    }

    #[test]
    fn it_is_neither_everywhere_nor_where_addresses_hop_nor_open_to_others_in_the_clear() {
        for everywhere in ["[::]:0", "0.0.0.0:0", "[::ffff:0.0.0.0]:0"] {
            assert!(refused(everywhere, true).contains("every address"), "{everywhere}");
        }
        assert!(refused("[2001:db8:a1::5]:443", true).contains("hopping prefix 2001:db8:a1::/64 of mt6d0"));
        for open in ["192.0.2.1:443", "[2001:db8::1]:443", "[::ffff:192.0.2.1]:443"] {
            assert!(refused(open, false).contains("--certificate"), "{open}");
        }
        listen("127.0.0.1:0".parse().unwrap(), false, &[]).unwrap();
    }

    #[test]
    fn only_its_own_names_are_answered_to() {
        let names = Names::new("[::1]:8641".parse().unwrap(), &["Gateway.example".to_owned()]);
        for own in
            ["[::1]:8641", "[::1]", "localhost:1", "127.0.0.1:8641", "gateway.example", "GATEWAY.example:443"]
        {
            assert!(names.has(own), "{own}");
        }
        for other in
            ["", "evil.example", "localhost.evil.example:8641", "[::2]:8641", "::1", "[::1]:x", "localhost:"]
        {
            assert!(!names.has(other), "{other}");
        }
        let outside = Names::new("192.0.2.1:443".parse().unwrap(), &[]);
        assert!(outside.has("192.0.2.1:443") && !outside.has("localhost:443"));
    }
}
