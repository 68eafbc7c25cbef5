//! What is in the table that keeps what the tunnel is to carry off other interfaces, whatever routes and rules there are:
//! see [`linux::inside`].

use std::collections::HashSet;
use std::net::IpAddr;

use ipnet::IpNet;
use linux::inside::Inside;
use linux::netlink::{Address, Netlink};

use super::wanted::Wanted;

/// Longest prefix that is a default route, or part of one.
const PART_OF_DEFAULT: u8 = 3;
/// Networks of neighbors that count, at most: anybody on a link can advertise some.
const MAX_NEAR: usize = 32;
/// The script that makes the table for what is behind the tunnel, with the networks of this machine as they are now.
pub(super) fn script(
    wanted: &Wanted,
    behind: &HashSet<IpNet>,
    netlink: &mut Netlink,
) -> linux::Result<String> {
    Ok(inside(wanted, behind, &addresses(&wanted.tunnel, netlink)?).render())
}

/// Addresses of all interfaces but the tunnel's.
fn addresses(tunnel: &str, netlink: &mut Netlink) -> linux::Result<Vec<Address>> {
    let own = netlink.link_by_name(tunnel)?.map(|link| link.index);
    let mut all = netlink.all_addresses()?;
    all.retain(|address| Some(address.index) != own && !address.address.addr().is_loopback());
    Ok(all)
}

/// What of a machine with these addresses is to stay inside. Networks at this end that are behind a remote, too, are those that
/// the configuration names, and those that somebody has given an interface for good: what a router has advertised, or a
/// DHCP server given, anybody on the link could have. Where all is behind a remote, private networks of such addresses
/// count: they are nobody's but their link's.
fn inside(wanted: &Wanted, behind: &HashSet<IpNet>, addresses: &[Address]) -> Inside {
    let mut behind: Vec<IpNet> = behind.iter().map(IpNet::trunc).collect();
    behind.sort();
    let (all, particular): (Vec<IpNet>, Vec<IpNet>) =
        behind.iter().copied().partition(|net| net.prefix_len() <= PART_OF_DEFAULT);
    let network = |address: &Address| address.address.trunc();
    let lasting = addresses.iter().filter(|address| address.permanent).map(network);
    let lasting: Vec<IpNet> = lasting.chain(wanted.local.iter().map(IpNet::trunc)).collect();
    let leased = addresses.iter().filter(|address| !address.permanent && is_private(address.address.addr()));
    let within = |nets: &[IpNet], net: &IpNet| nets.iter().any(|outer| outer != net && outer.contains(net));
    let here = lasting.iter().filter(|net| within(&particular, net));
    let mut here: Vec<IpNet> = here.flat_map(|net| without(*net, &particular)).collect();
    let leased: Vec<IpNet> = leased.map(network).take(MAX_NEAR).collect();
    let mut near: Vec<IpNet> = lasting.into_iter().chain(leased).filter(|net| within(&all, net)).collect();
    for nets in [&mut here, &mut near] {
        nets.sort();
        nets.dedup();
    }
    let ports = wanted.ports.iter().copied().filter(|port| *port != 0).collect();
    Inside { tunnel: wanted.tunnel.clone(), behind, here, near, ports }
}

/// What is left of a network without those within it.
fn without(net: IpNet, holes: &[IpNet]) -> Vec<IpNet> {
    if holes.contains(&net) {
        return Vec::new();
    }
    if !holes.iter().any(|hole| net.contains(hole)) {
        return vec![net];
    }
    let halves = net.subnets(net.prefix_len() + 1).into_iter().flatten();
    halves.flat_map(|half| without(half, holes)).collect()
}

/// Of a network that is its link's alone.
fn is_private(address: IpAddr) -> bool {
    match address {
        // RFC 1918, and what providers share (RFC 6598).
        IpAddr::V4(v4) => v4.is_private() || (v4.octets()[0] == 100 && v4.octets()[1] & 0xc0 == 64),
        // RFC 4193.
        IpAddr::V6(v6) => v6.segments()[0] & 0xfe00 == 0xfc00,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| net(text)).collect()
    }

    fn address(text: &str, permanent: bool) -> Address {
        let (tentative, duplicate, deprecated, global) = (false, false, false, true);
        Address { index: 2, address: net(text), tentative, duplicate, global, deprecated, permanent }
    }

    fn of(behind: &[&str], local: &[&str], addresses: &[Address]) -> Inside {
        let wanted = Wanted {
            tunnel: "t".to_owned(),
            ports: vec![500, 4500],
            local: nets(local).into_iter().collect(),
            ..Wanted::default()
        };
        inside(&wanted, &nets(behind).into_iter().collect(), addresses)
    }

    #[test]
    fn what_a_neighbor_can_give_an_interface_is_not_here() {
        let addresses =
            [address("10.1.0.1/16", true), address("10.2.0.7/24", false), address("2001:db8:5::7/64", false)];
        let inside = of(&["10.0.0.0/8", "2001:db8::/32"], &[], &addresses);
        assert_eq!((inside.here, inside.near), (nets(&["10.1.0.0/16"]), vec![]));
    }

    #[test]
    fn where_all_is_behind_a_remote_private_networks_are_near() {
        let addresses = [address("192.168.0.7/24", false), address("2001:db8:5::7/64", false)];
        let inside = of(&["::/1", "8000::/1", "0.0.0.0/1", "128.0.0.0/1"], &["2001:db8:a::/64"], &addresses);
        assert_eq!(inside.here, []);
        assert_eq!(inside.near, nets(&["192.168.0.0/24", "2001:db8:a::/64"]));
    }

    #[test]
    fn the_longest_prefix_decides_whether_a_network_is_here() {
        let inside = of(&["10.0.0.0/8", "10.5.1.0/24"], &["10.5.0.0/22"], &[]);
        assert_eq!(inside.here, nets(&["10.5.0.0/24", "10.5.2.0/23"]));
    }
}
