//! Ports of uplinks that lead to a host inside (IPv4, which is translated; an IPv6 host has an address of its own).
//!
//! What comes in by an uplink, to an address that its interface has, gets the host's address as its destination; so does
//! what hosts inside send to that address (hairpin). The firewall lets in what was translated and nothing else, by a rule
//! that comes behind those of the file.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use crate::firewall::address::Address;
use crate::firewall::service::Service;

/// Ports that lead to a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Its name, unique among them.
    pub name: String,
    /// Uplinks that it is reached through, which masquerade; one at least.
    pub uplinks: Vec<Through>,
    /// Protocols and ports at the gateway; one at least.
    pub ports: Vec<Ports>,
    /// The host.
    pub to: Ipv4Addr,
    /// The port there, where it is another than at the gateway; there is one port of each protocol then.
    pub to_port: Option<u16>,
    /// The interface of the network that the host is reached through.
    pub towards: String,
    /// Who may use it, by IPv4 address; everybody where empty.
    pub sources: Vec<Address>,
    /// Whether its first packets are logged.
    pub log: bool,
}

/// An uplink that something is reached through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Through {
    /// The uplink's name.
    pub name: String,
    /// Its interface.
    pub interface: String,
}

/// Ports of one protocol, from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// TCP or UDP.
    pub protocol: u8,
    /// The first.
    pub first: u16,
    /// The last; the first where there is one alone.
    pub last: u16,
}

impl From<Ports> for Service {
    fn from(Ports { protocol, first, last }: Ports) -> Self {
        Service::Ports(protocol, first, last)
    }
}

impl Ports {
    /// Those that both have.
    #[must_use]
    pub fn shared(self, other: Ports) -> Option<Ports> {
        let (first, last) = (self.first.max(other.first), self.last.min(other.last));
        (self.protocol == other.protocol && first <= last).then_some(Ports { first, last, ..self })
    }
}

impl Forward {
    /// The port at the host of a packet to this port of the gateway, if it is forwarded.
    #[must_use]
    pub fn takes(&self, source: IpAddr, protocol: u8, port: u16) -> Option<u16> {
        let meant = Ports { protocol, first: port, last: port };
        let is_meant = self.ports.iter().any(|ports| ports.shared(meant).is_some());
        let may = source.is_ipv4()
            && (self.sources.is_empty() || self.sources.iter().any(|sources| sources.contains(source)));
        (is_meant && may).then(|| self.to_port.unwrap_or(port))
    }

    /// Ports of an uplink that both would take from the same source.
    #[must_use]
    pub fn clash(&self, other: &Forward) -> Option<Ports> {
        let same_uplink = self.uplinks.iter().any(|through| other.uplinks.contains(through));
        let meet = |source: &Address| other.sources.iter().any(|theirs| source.overlaps(theirs));
        let same_source =
            self.sources.is_empty() || other.sources.is_empty() || self.sources.iter().any(meet);
        let mut shared =
            self.ports.iter().flat_map(|own| other.ports.iter().map(|theirs| own.shared(*theirs)));
        shared.find_map(|shared| shared.filter(|_| same_uplink && same_source))
    }
}

/// Where it leads, as the configuration has it.
impl fmt::Display for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to)?;
        self.to_port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forward(ports: &[(u8, u16, u16)], uplink: &str, source: Option<&str>) -> Forward {
        let ports = ports.iter().map(|(protocol, first, last)| Ports {
            protocol: *protocol,
            first: *first,
            last: *last,
        });
        Forward {
            name: "web".to_owned(),
            uplinks: vec![Through { name: uplink.to_owned(), interface: uplink.to_owned() }],
            ports: ports.collect(),
            to: Ipv4Addr::new(192, 168, 1, 5),
            to_port: None,
            towards: "eth1".to_owned(),
            sources: source.map(|source| source.parse().unwrap()).into_iter().collect(),
            log: false,
        }
    }

    #[test]
    fn two_clash_where_one_packet_would_be_for_both() {
        let web = forward(&[(6, 80, 80), (6, 443, 443)], "fibre", None);
        let clash = |other: &Forward| web.clash(other).map(Service::from).map(|service| service.to_string());
        let range = forward(&[(6, 400, 500)], "fibre", None);
        assert_eq!(clash(&range).as_deref(), Some("tcp/443"));
        assert_eq!(clash(&forward(&[(17, 443, 443)], "fibre", None)), None);
        assert_eq!(clash(&forward(&[(6, 443, 443)], "cable", None)), None);
        let (here, there) = (Some("198.51.100.0/25"), Some("198.51.100.128/25"));
        let from = |source| forward(&[(6, 443, 443)], "fibre", source);
        assert!(from(here).clash(&from(there)).is_none() && from(here).clash(&from(here)).is_some());
        assert!(web.clash(&from(here)).is_some());
    }

    #[test]
    fn a_packet_is_taken_by_port_and_source() {
        let game = forward(&[(17, 27_015, 27_020)], "fibre", Some("198.51.100.0/24"));
        let takes = |source: &str, protocol, port| game.takes(source.parse().unwrap(), protocol, port);
        assert_eq!(takes("198.51.100.7", 17, 27_020), Some(27_020));
        assert_eq!(takes("198.51.100.7", 17, 27_021), None);
        assert_eq!(takes("198.51.100.7", 6, 27_020), None);
        assert_eq!(takes("203.0.113.7", 17, 27_020), None);
        assert_eq!(takes("2001:db8::7", 17, 27_020), None);
        let moved = Forward { to_port: Some(8_443), ..forward(&[(6, 443, 443)], "fibre", None) };
        assert_eq!(moved.takes("2.2.2.2".parse().unwrap(), 6, 443), Some(8_443));
        assert_eq!(moved.to_string(), "192.168.1.5:8443");
    }
}
