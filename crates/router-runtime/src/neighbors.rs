//! The table of nftables that keeps strangers from filling the neighbor caches of networks (RFC 6583).
//!
//! A packet for an address that nobody has been heard from has the kernel ask for it, and remember that it did: a thousand of
//! them fill its cache, and it forgets hosts that are there. So packets from outside for such addresses are few. Connection
//! tracking, which would know established connections, is not asked: a gateway without a firewall has none, and who is in
//! such a connection has been heard.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use linux::netlink::{Link, Neighbor};
use router::site::Site;

use crate::nat::quoted;

/// The table's name; its family is `ip6`.
pub(crate) const TABLE: &str = "sidestep-neighbors";

/// Links of networks on which the kernel looks for neighbors: it does not at the end of a tunnel.
pub(crate) fn looked_for<'l>(site: &Site, links: &'l [Link]) -> Vec<&'l Link> {
    let is_inner = |link: &&Link| site.networks.iter().any(|network| network.interface == link.name);
    links.iter().filter(is_inner).filter(|link| link.resolves).collect()
}

/// The table as a script of nft; none where nothing is outside, or nobody is looked for. `fixed`: whom the kernel does not
/// ask for.
///
/// Nearly all packets are for somebody who was heard, so that is looked at first.
///
/// Who answers is heard by what the answer is about (its target, 8 octets into the message, which nft 1.0.6 has no word for):
/// its source is link-local where the question's was, as the kernel's is. Who asks is heard by its source.
pub(crate) fn script(site: &Site, inner: &[&Link], fixed: &BTreeSet<Ipv6Addr>) -> Option<String> {
    if site.uplinks.is_empty() || inner.is_empty() {
        return None;
    }
    let outer = quoted(site.uplinks.iter().map(|uplink| uplink.interface.as_str()).collect());
    let inner = quoted(inner.iter().map(|link| link.name.as_str()).collect());
    let fixed: String =
        fixed.iter().map(|address| format!("add element ip6 {TABLE} fixed {{ {address} }}\n")).collect();
    Some(format!(
        "table ip6 {TABLE} {{\n\
         \tset heard {{\n\t\ttype ipv6_addr\n\t\tflags dynamic,timeout\n\t\ttimeout 1h\n\t\tsize 65535\n\t}}\n\
         \tset fixed {{\n\t\ttype ipv6_addr\n\t}}\n\
         \tchain hear {{\n\t\ttype filter hook input priority filter - 10\n\t}}\n\
         \tchain guard {{\n\t\ttype filter hook forward priority filter - 10\n\t}}\n}}\n\
         flush table ip6 {TABLE}\n\
         flush set ip6 {TABLE} fixed\n\
         add rule ip6 {TABLE} hear iifname {{ {inner} }} icmpv6 type nd-neighbor-solicit \
         ip6 saddr != {{ ::, fe80::/10 }} update @heard {{ ip6 saddr }}\n\
         add rule ip6 {TABLE} hear iifname {{ {inner} }} icmpv6 type nd-neighbor-advert \
         update @heard {{ @th,64,128 }}\n\
         add rule ip6 {TABLE} guard iifname {{ {outer} }} oifname {{ {inner} }} \
         rt ip6 nexthop != @heard rt ip6 nexthop != fe80::/10 rt ip6 nexthop != @fixed \
         limit rate over 50/second burst 50 packets counter drop\n{fixed}"
    ))
}

/// What tells the table that these neighbors have been heard already.
pub(crate) fn heard<'n>(neighbors: impl Iterator<Item = &'n Neighbor>) -> String {
    let usable = neighbors.filter(|neighbor| neighbor.usable && !neighbor.fixed).filter_map(address);
    usable.map(|address| format!("add element ip6 {TABLE} heard {{ {address} }}\n")).collect()
}

/// Those that somebody has written down.
pub(crate) fn fixed(neighbors: &[Neighbor]) -> BTreeSet<Ipv6Addr> {
    neighbors.iter().filter(|neighbor| neighbor.fixed).filter_map(address).collect()
}

fn address(neighbor: &Neighbor) -> Option<Ipv6Addr> {
    match neighbor.address {
        IpAddr::V6(address) if !address.is_multicast() && !address.is_unicast_link_local() => Some(address),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use router::site::{Network, RouterFrom, Uplink};

    use super::*;

    fn site() -> Site {
        let uplink = Uplink {
            name: "fibre".into(),
            interface: "wan0".into(),
            router: RouterFrom::Advertisements,
            addresses: Vec::new(),
            prefixes: Vec::new(),
            delegation: None,
            probes: Vec::new(),
            ipv4_router: None,
            masquerade: false,
            tunnel: None,
            bandwidth: None,
        };
        let network = |interface: &str| Network {
            name: interface.into(),
            interface: interface.into(),
            subnet: None,
            host: 1,
            prefixes: Vec::new(),
            ipv4: None,
            advertise: None,
            resolves: false,
            dhcp: None,
            dhcp6: None,
            port_mapping: None,
        };
        Site { uplinks: vec![uplink], networks: vec![network("lan"), network("wg0")], ..Site::default() }
    }

    fn link(name: &str, resolves: bool) -> Link {
        Link { index: 1, name: name.into(), mtu: 1500, mac: None, up: true, running: true, resolves }
    }

    #[test]
    fn a_link_without_neighbor_discovery_is_not_guarded() {
        let site = site();
        let links = [link("wan0", true), link("lan", true), link("wg0", false)];
        let table = script(&site, &looked_for(&site, &links), &BTreeSet::new()).unwrap();
        assert!(table.contains("oifname { \"lan\" }") && !table.contains("wg0"), "{table}");
        let links = [link("wan0", true), link("lan", false), link("wg0", false)];
        assert_eq!(script(&site, &looked_for(&site, &links), &BTreeSet::new()), None);
    }

    #[test]
    fn who_is_written_down_is_known_as_long_as_that_is_so() {
        let site = site();
        let neighbor = |address: &str, fixed| Neighbor {
            index: 1,
            address: address.parse().unwrap(),
            mac: None,
            usable: true,
            confirmed: fixed,
            fixed,
            failed: false,
            own: false,
        };
        let neighbors = [
            neighbor("2001:db8::5", true),
            neighbor("2001:db8::6", false),
            neighbor("fe80::7", true),
            neighbor("ff02::1", true),
            neighbor("192.0.2.1", true),
        ];
        let links = [link("lan", true)];
        let table = script(&site, &looked_for(&site, &links), &fixed(&neighbors)).unwrap();
        assert!(table.ends_with("add element ip6 sidestep-neighbors fixed { 2001:db8::5 }\n"), "{table}");
        assert_eq!(table.matches("add element").count(), 1);
        let heard = heard(neighbors.iter());
        assert!(heard.contains("heard { 2001:db8::6 }") && !heard.contains("fe80"), "{heard}");
    }
}
