//! Where a remote is, and from which address of this host it is reached.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};

use config::ipsec::Place;

use crate::carrier::{Ends, NotReached};

/// Asks the resolver, if the remote has a name, and the kernel's routes. The resolver may take its time.
pub fn ends(local: Option<IpAddr>, place: &Place) -> Result<Ends, NotReached> {
    let mut why = NotReached("it has no address".to_owned());
    for remote in addresses(place)? {
        match local {
            Some(local) if local.is_ipv4() == remote.is_ipv4() => return Ok(Ends { local, remote }),
            Some(local) => why = NotReached(format!("{remote} is of another IP version than {local}")),
            None => match source_towards(remote) {
                Ok(local) => return Ok(Ends { local, remote }),
                Err(error) => why = NotReached(format!("{remote}: {error}")),
            },
        }
    }
    Err(why)
}

/// Asks the resolver, if the remote has a name.
pub fn addresses(place: &Place) -> Result<Vec<IpAddr>, NotReached> {
    match place {
        Place::Address(address) => Ok(vec![*address]),
        Place::Name(name) => {
            let found = (name.as_str(), ike::NAT_PORT).to_socket_addrs();
            let found = found.map_err(|error| NotReached(format!("{name}: {error}")))?;
            Ok(found.map(|address| address.ip()).collect())
        }
    }
}

/// The address that a socket gets which is connected: nothing is sent.
pub(crate) fn source_towards(remote: IpAddr) -> std::io::Result<IpAddr> {
    let any: IpAddr =
        if remote.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
    socket.connect(SocketAddr::new(remote, ike::NAT_PORT))?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_is_reached_from_itself_and_nobody_from_the_other_version() {
        let localhost = IpAddr::from([127, 0, 0, 1]);
        let found = ends(None, &Place::Address(localhost)).unwrap();
        assert_eq!(found, Ends { local: localhost, remote: localhost });
        let error = ends(Some(Ipv6Addr::LOCALHOST.into()), &Place::Address(localhost)).unwrap_err();
        assert!(error.0.contains("another IP version"), "{error:?}");
        assert!(ends(None, &Place::Name("no.such.name.invalid".to_owned())).is_err());
    }
}
