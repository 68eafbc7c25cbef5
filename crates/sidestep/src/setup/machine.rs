//! What this machine says of itself: where it is connected, and what is behind it.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};
use linux::netlink::Netlink;

/// Somewhere in the Internet: how it is reached shows the interface towards it.
const FAR: Ipv6Addr = Ipv6Addr::new(0x2001, 0x4860, 0x4860, 0, 0, 0, 0, 0x8888);

/// A network that this machine is in, other than by its external interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Inner {
    /// The network.
    pub(super) network: IpNet,
    /// This machine's address in it.
    pub(super) address: IpAddr,
}

/// The interface that the default route leaves by.
pub(super) fn external() -> Option<String> {
    let mut netlink = Netlink::open().ok()?;
    let hop = netlink.route_to(FAR.into()).ok()??;
    Some(netlink.link_by_index(hop.index).ok()??.name)
}

/// The interfaces that there are, in words, if none has this name.
pub(super) fn missing(name: &str) -> Option<String> {
    let links = Netlink::open().ok()?.links().ok()?;
    let is_there = links.iter().any(|link| link.name == name);
    (!is_there).then(|| links.into_iter().map(|link| link.name).collect::<Vec<_>>().join(", "))
}

/// Where this machine has an address in this prefix, and which.
pub(super) fn within(prefix: Ipv6Net) -> Option<(String, IpAddr)> {
    let mut netlink = Netlink::open().ok()?;
    netlink.links().ok()?.into_iter().find_map(|link| {
        let addresses = netlink.addresses(link.index).ok()?;
        let mut found = addresses.into_iter().map(|found| found.address.addr());
        let found = found.find(|address| IpNet::V6(prefix).contains(address))?;
        Some((link.name, found))
    })
}

/// Networks behind this machine: those of its interfaces but `external`, loopback and tunnels' own.
pub(super) fn inner(external: &str) -> Vec<Inner> {
    let Ok(mut netlink) = Netlink::open() else { return Vec::new() };
    let mut found = Vec::new();
    for link in netlink.links().unwrap_or_default() {
        // A device without a hardware address is a tunnel, not a network.
        if link.name == external || link.name == "lo" || link.mac.is_none() {
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
