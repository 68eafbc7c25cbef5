//! Networks behind this machine: those that it is in, but for the one towards the Internet.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::netlink::{Netlink, Port};

/// A network that this machine is in, other than by its external interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inner {
    /// The network.
    pub network: IpNet,
    /// This machine's address in it.
    pub address: IpAddr,
}

/// Networks behind this machine: those of its interfaces but `external`, loopback, tunnels' own, and the bridges of containers
/// and virtual machines: others have the same ones, 172.17.0.0/16 for example.
#[must_use]
pub fn networks(external: &str) -> Vec<Inner> {
    let Ok(mut netlink) = Netlink::open() else { return Vec::new() };
    let mut found = Vec::new();
    let bridges = netlink.bridges().unwrap_or_default();
    for link in netlink.links().unwrap_or_default() {
        // A device without a hardware address is a tunnel, not a network.
        if link.name == external || link.name == "lo" || link.mac.is_none() {
            continue;
        }
        if bridges.get(&link.index).is_some_and(|ports| is_within(&link.name, ports)) {
            continue;
        }
        for address in netlink.addresses(link.index).unwrap_or_default() {
            let network = address.address;
            let is_local = matches!(network.addr(), IpAddr::V6(address) if address.is_unicast_link_local());
            if !is_local && network.prefix_len() < network.max_prefix_len() {
                found.push(Inner { network: network.trunc(), address: network.addr() });
            }
        }
    }
    found.dedup_by_key(|inner| inner.network);
    found
}

/// Whether a bridge with these ports leads to nothing but what runs on this machine. One without a port yet tells by its name
/// alone: those that Docker, Podman, libvirt, LXC, LXD and Incus give.
fn is_within(name: &str, ports: &[Port]) -> bool {
    if !ports.is_empty() {
        return ports.iter().all(|port| *port == Port::OfThisMachine);
    }
    let of_docker = |id: &str| id.len() == 12 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_numbered = |kind: &str| {
        let number = name.strip_prefix(kind);
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    name.strip_prefix("br-").is_some_and(of_docker)
        || ["docker", "podman", "cni-podman", "virbr", "lxcbr", "lxdbr", "incusbr"]
            .into_iter()
            .any(is_numbered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridge_that_leads_out_is_a_network_and_one_of_containers_is_none() {
        let (inside, out) = (Port::OfThisMachine, Port::Other);
        for (name, ports, expected) in [
            ("docker0", &[][..], true),
            ("br-0123456789ab", &[], true),
            ("virbr1", &[], true),
            ("br-lan", &[], false),
            ("eth1", &[], false),
            ("docker", &[], false),
            ("whatever", &[inside, inside], true),
            ("br-lan", &[out, inside], false),
            ("virbr0", &[inside, out], false),
        ] {
            assert_eq!(is_within(name, ports), expected, "{name} {ports:?}");
        }
    }
}
