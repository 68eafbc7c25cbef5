//! Where the page is: not where everybody could come, not where addresses hop, and in the clear on this machine alone.

use std::net::{IpAddr, SocketAddr, TcpListener};

use control::place::{self, NoPlace};
use control::tunnel_status::Status;

use crate::error::Error;

/// Listens there, if the page may be there.
pub(crate) fn listen(listen: SocketAddr, encrypted: bool, tunnels: &[Status]) -> Result<TcpListener, Error> {
    judge(listen, encrypted)?;
    refuse_hopping(listen, tunnels)?;
    let about = |source| Error::Listen { listen, source };
    let listener = TcpListener::bind(listen).map_err(about)?;
    listener.set_nonblocking(true).map_err(about)?;
    Ok(listener)
}

fn judge(listen: SocketAddr, encrypted: bool) -> Result<(), Error> {
    match place::judge(listen.ip()) {
        Err(NoPlace::Everywhere) => Err(Error::EveryAddress(listen)),
        Err(NoPlace::Multicast) => Err(Error::Multicast(listen)),
        Ok(()) if !encrypted && !listen.ip().to_canonical().is_loopback() => Err(Error::InTheClear(listen)),
        Ok(()) => Ok(()),
    }
}

/// # Errors
/// Where one of these tunnels, or a peer of it, hops there.
pub(crate) fn refuse_hopping<'a>(
    listen: SocketAddr,
    tunnels: impl IntoIterator<Item = &'a Status>,
) -> Result<(), Error> {
    match place::hopped_in(listen.ip(), tunnels) {
        Some((status, prefix)) => Err(Error::Hopping { listen, prefix, tunnel: status.tunnel.clone() }),
        None => Ok(()),
    }
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
        let address = listen.ip().to_canonical();
        // By `ssh -L` somebody comes to loopback by any of its names, at any port.
        if address.is_loopback() {
            names.extend(["localhost", "127.0.0.1", "[::1]"].map(str::to_owned));
        }
        names.extend([listen.ip(), address].map(|address| match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        }));
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
        let tunnel = control::tunnel_status::example();
        listen(address.parse().unwrap(), encrypted, &[tunnel]).unwrap_err().to_string()
    }

    #[test]
    fn it_is_neither_everywhere_nor_where_addresses_hop_nor_open_to_others_in_the_clear() {
        for everywhere in ["[::]:0", "0.0.0.0:0", "[::ffff:0.0.0.0]:0"] {
            assert!(refused(everywhere, true).contains("every address"), "{everywhere}");
        }
        assert!(refused("[ff02::1]:443", true).contains("multicast"));
        for (hops, prefix) in
            [("[2001:db8:a1::5]:443", "2001:db8:a1::/64"), ("[2001:db8:b1::5]:443", "2001:db8:b1::/64")]
        {
            assert!(refused(hops, true).contains(&format!("hopping prefix {prefix} of mt6d0")), "{hops}");
        }
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
        let mapped = Names::new("[::ffff:192.0.2.1]:443".parse().unwrap(), &[]);
        assert!(mapped.has("192.0.2.1:443") && mapped.has("[::ffff:192.0.2.1]:443"));
    }
}
