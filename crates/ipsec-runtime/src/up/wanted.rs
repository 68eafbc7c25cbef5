//! What a configuration asks of the kernel.

use std::collections::HashSet;
use std::net::IpAddr;

use config::ipsec::{IpsecConfig, Place, Ports};
use ike::config::Mode;
use ike::message::traffic_selector::TrafficSelector;
use ipnet::{IpNet, IpSubnets, Ipv4Subnets, Ipv6Subnets};
use ipsec::level::Level;
use ipsec::policy::{Action, Direction, Rule};

/// What a configuration asks for.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// What is behind the remotes.
    pub(super) networks: HashSet<IpNet>,
    /// Addresses of the device.
    pub(super) addresses: HashSet<IpNet>,
    /// What is protected by transport mode or AH, of what this machine itself sends.
    pub(super) hosts: HashSet<IpNet>,
    /// Where remotes are.
    pub(super) remotes: Vec<IpAddr>,
    /// Networks at this end.
    pub(super) local: HashSet<IpNet>,
    /// Name of the device.
    pub(super) tunnel: String,
    /// UDP ports at this end.
    pub(super) ports: Vec<u16>,
}

impl Wanted {
    /// Of a configuration, and of policies by hand.
    pub(super) fn of(config: &IpsecConfig, by_hand: &[Rule], ports: Ports) -> Self {
        let (mut networks, mut hosts, mut local) =
            <(HashSet<IpNet>, HashSet<IpNet>, HashSet<IpNet>)>::default();
        let address = |remote: &config::ipsec::Remote| match remote.address {
            Some(Place::Address(address)) => Some(address),
            _ => None,
        };
        for (peer, remote) in config.ike.peers.iter().zip(&config.remotes) {
            for child in &peer.children {
                if child.mode == Mode::Transport {
                    hosts.extend(child.remote.iter().flat_map(prefixes));
                    hosts.extend(address(remote).filter(|_| child.remote.is_empty()).map(IpNet::from));
                    continue;
                }
                local.extend(child.local.iter().flat_map(prefixes));
                networks.extend(child.remote.iter().flat_map(prefixes).flat_map(halved));
                if child.remote.is_empty() {
                    networks.extend(peer.assigned.addresses.iter().map(|address| IpNet::from(*address)));
                    networks.extend(&remote.pool);
                }
            }
        }
        let mut remotes: Vec<IpAddr> = config.remotes.iter().filter_map(address).collect();
        for rule in by_hand.iter().filter(|rule| rule.direction == Direction::Out) {
            let Action::Protect { levels, tunnel } = rule.action else { continue };
            let destination = rule.selector.destination.trunc();
            if levels.tunnel_encryption > Level::None {
                networks.extend(halved(destination));
                local.insert(rule.selector.source.trunc());
                remotes.extend(tunnel.map(|(_, there)| there));
            } else {
                hosts.insert(destination);
            }
        }
        Self {
            networks,
            addresses: config.addresses.iter().copied().collect(),
            hosts,
            remotes,
            local,
            tunnel: config.name.clone(),
            ports: vec![ports.ike, ports.nat],
        }
    }
}

/// A default route as two halves, which go before the one that the machine has anyway.
pub(super) fn halved(network: IpNet) -> impl Iterator<Item = IpNet> {
    let length = network.prefix_len().max(1);
    network.trunc().subnets(length).into_iter().flatten()
}

fn prefixes(selector: &TrafficSelector) -> Vec<IpNet> {
    match selector.addresses() {
        (IpAddr::V4(first), IpAddr::V4(last)) => IpSubnets::V4(Ipv4Subnets::new(first, last, 0)).collect(),
        (IpAddr::V6(first), IpAddr::V6(last)) => IpSubnets::V6(Ipv6Subnets::new(first, last, 0)).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_default_route_is_halved() {
        let of = |text: &str| halved(text.parse().unwrap()).map(|net| net.to_string()).collect::<Vec<_>>();
        assert_eq!(of("::/0"), ["::/1", "8000::/1"]);
        assert_eq!(of("0.0.0.0/0"), ["0.0.0.0/1", "128.0.0.0/1"]);
        assert_eq!(of("2001:db8::1/32"), ["2001:db8::/32"]);
        assert_eq!(of("10.0.0.1/32"), ["10.0.0.1/32"]);
    }
}
