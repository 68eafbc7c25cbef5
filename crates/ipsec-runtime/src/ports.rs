//! Which ports IKE is told, and which there are.
//!
//! IKE knows ports 500 and 4500. Where this end has others, say because it may not have those, IKE is told that it has these:
//! the other end then finds that the source is not what was hashed, takes it for a NAT (RFC 7296 §2.23), and so answers to
//! the port that it sees, and wants ESP in UDP. The same is what demands UDP where no NAT is between the ends: a port that
//! this end has not.

use std::net::{IpAddr, SocketAddr};

use config::ipsec::Ports;
use ike::NAT_PORT;
use ike::event::Path;

use crate::outbox::{Via, Way};

/// The port of IKE (RFC 7296 §2).
const IKE_PORT: u16 = 500;
/// What this end is told to have on port 500 where ESP is to be in UDP: any other.
const NOT_IKE_PORT: u16 = 499;

/// Translates.
#[derive(Debug, Default)]
pub(crate) struct PortMap {
    /// Ends whose ports are not the usual ones.
    others: Vec<(IpAddr, Ports)>,
}

impl PortMap {
    /// An end has these ports.
    pub(crate) fn set(&mut self, remote: IpAddr, ports: Ports) {
        self.others.retain(|(address, _)| *address != remote);
        if (ports != Ports { ike: IKE_PORT, nat: NAT_PORT }) {
            self.others.push((remote, ports));
        }
    }

    /// The path of a first message.
    pub(crate) fn first(local: IpAddr, remote: IpAddr) -> Path {
        let local = SocketAddr::new(local, NOT_IKE_PORT);
        Path { local, remote: SocketAddr::new(remote, IKE_PORT) }
    }

    /// What IKE is told of the way of a datagram.
    pub(crate) fn path(&self, way: &Way) -> Path {
        let port = if way.via == Via::Nat { NAT_PORT } else { NOT_IKE_PORT };
        let mut remote = way.remote;
        if let Some(ports) = self.ports_of(remote.ip()) {
            match remote.port() {
                port if port == ports.nat => remote.set_port(NAT_PORT),
                port if port == ports.ike => remote.set_port(IKE_PORT),
                _ => {}
            }
        }
        Path { local: SocketAddr::new(way.local, port), remote }
    }

    /// The way of what IKE sends on a path.
    pub(crate) fn way(&self, path: &Path) -> Way {
        let via = if path.local.port() == NAT_PORT { Via::Nat } else { Via::Ike };
        let mut remote = path.remote;
        if let Some(ports) = self.ports_of(remote.ip()) {
            match remote.port() {
                NAT_PORT => remote.set_port(ports.nat),
                IKE_PORT => remote.set_port(ports.ike),
                _ => {}
            }
        }
        Way { via, local: path.local.ip(), remote }
    }

    fn ports_of(&self, remote: IpAddr) -> Option<Ports> {
        self.others.iter().find(|(address, _)| *address == remote).map(|(_, ports)| *ports)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_ports_are_told_as_the_usual_ones_and_back() {
        let [here, there] = ["2001:db8::1", "2001:db8::2"].map(|text| text.parse().unwrap());
        let mut ports = PortMap::default();
        ports.set(there, Ports { ike: 1500, nat: 14500 });
        for (via, real, told) in [(Via::Ike, 1500, 500), (Via::Nat, 14500, 4500), (Via::Nat, 77, 77)] {
            let way = Way { via, local: here, remote: SocketAddr::new(there, real) };
            let path = ports.path(&way);
            assert_eq!(path.remote.port(), told);
            assert_eq!(ports.way(&path), way);
        }
        let first = PortMap::first(here, there);
        assert_ne!(first.local.port(), 500, "so that the other end finds a NAT");
        assert_eq!(ports.way(&first).remote.port(), 1500);
    }
}
