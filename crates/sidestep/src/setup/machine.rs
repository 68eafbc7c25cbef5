//! What this machine says of itself: where it is connected, and what is behind it.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};
use linux::netlink::Netlink;

/// Somewhere in the Internet: how it is reached shows the interface towards it.
const FAR: Ipv6Addr = Ipv6Addr::new(0x2001, 0x4860, 0x4860, 0, 0, 0, 0, 0x8888);

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
