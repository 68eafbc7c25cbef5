//! The machine that a configuration of a tunnel is for, as it is now: what of the configuration would cut it off its own
//! networks ([`refuse`], [`takes_away`]), or another tunnel off its peers. What only stands in the tunnel's way is in [`crate::obstacles`].

use std::net::IpAddr;

use ipnet::IpNet;
use linux::netlink::{Netlink, Route, Via};

use crate::error::Error;
use crate::kernel;
use crate::kernel::closed::KeptOff;
use crate::obstacles::outer_route;
use config::{Mode, TunnelConfig};

const LOOPBACK: &str = "lo";

/// An address of this machine, with the network that it says is on the link.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Connected {
    interface: String,
    address: IpNet,
}

/// Networks and routers of this machine, without the tunnel's own.
#[derive(Debug, Default)]
struct Surroundings {
    connected: Vec<Connected>,
    routers: Vec<IpAddr>,
    /// What an earlier run has closed, and so has not been refused.
    closed: Vec<IpNet>,
}

/// Refuses what would cut this machine off, or a tunnel that is up.
///
/// # Errors
/// The first such setting, or where the kernel cannot be asked.
pub fn refuse(config: &TunnelConfig) -> Result<(), Error> {
    let mut netlink = Netlink::open()?;
    let node = &config.node;
    if !node.on_link
        && !config.is_classic()
        && let Some(other) = kernel::who_hops_in(node.hop_prefix, &config.tunnel.name, &mut netlink)?
    {
        return Err(Error::HopsAlready(node.hop_prefix, other));
    }
    match Surroundings::look(config, &mut netlink)?.cut_off_by(config) {
        Some(why) => Err(Error::CutsOff(why)),
        None => Ok(()),
    }
}

/// What `up` refuses on this machine as it is now: the same, and interfaces that are not there.
///
/// # Errors
/// The first such setting, or where the kernel cannot be asked.
pub fn refuse_to_start(config: &TunnelConfig) -> Result<(), Error> {
    let mut netlink = Netlink::open()?;
    let node = &config.node;
    if config.external_over.is_none() && netlink.link_by_name(&node.external)?.is_none() {
        return Err(Error::NoInterface(node.external.clone()));
    }
    if let Some(transparent) = &node.transparent
        && netlink.link_by_name(&transparent.internal)?.is_none()
    {
        return Err(Error::NoInternal(transparent.internal.clone()));
    }
    refuse(config)
}

/// Why nothing would reach a client of this machine any more, if it is so: what is for it would go into the tunnel, and does
/// not yet, or would not leave any more. `interface` is by which a link-local address is reached.
///
/// # Errors
/// Where the kernel cannot be asked.
pub fn takes_away(
    config: &TunnelConfig,
    client: IpAddr,
    interface: Option<&str>,
) -> Result<Option<String>, Error> {
    let (mode, external) = (config.node.mode, &config.node.external);
    if mode == Mode::Transparent {
        return Ok(None);
    }
    let mut netlink = Netlink::open()?;
    let link = match interface {
        Some(name) => netlink.link_by_name(name)?,
        None => {
            let hop = netlink.route_to(client)?;
            hop.map(|hop| netlink.link_by_index(hop.index)).transpose()?.flatten()
        }
    };
    let leaves_by = |name: &String| link.as_ref().is_some_and(|link| link.name == *name);
    if mode == Mode::Host && client.is_ipv6() && leaves_by(external) {
        return Ok(Some(format!(
            "mode = \"host\" takes the addresses of {external} away, by which {client} is reached: come by IPv4, or by \
             another interface"
        )));
    }
    let Some(route) = netlink.matched_length(client)?.filter(|_| interface.is_none()) else {
        return Ok(None);
    };
    // A client that is behind a peer already loses nothing by the very route that leads to it.
    let least = if leaves_by(&config.tunnel.name) { route + 1 } else { route };
    // A default route is two routes of one bit.
    let shortest = if mode == Mode::Host { 0 } else { 1 };
    let takes = |prefix: &&IpNet| prefix.contains(&client) && prefix.prefix_len().max(shortest) >= least;
    let peers = config.peers.iter().map(|peer| (peer, peer.allowed_ips.iter().find(takes)));
    let remedy = format!("give {client} a more specific route first");
    if let Some((peer, prefix)) = peers.filter_map(|(peer, prefix)| Some((peer, prefix?))).next() {
        return Ok(Some(format!("allowed_ips of {} has {prefix}: {remedy}", peer.name)));
    }
    let Some(link) = link.filter(|link| link.name == *external) else { return Ok(None) };
    let kept_off = KeptOff::of(config, Some(link.index), &mut netlink)?;
    let prefix = kept_off.and_then(|kept_off| kept_off.keeps_off(client));
    Ok(prefix.map(|prefix| {
        format!(
            "allowed_ips has {prefix}, which neither leaves by {external} nor comes in by it, but for networks of its \
             permanent addresses and your own routes: {remedy}, or {external} such an address"
        )
    }))
}

impl Surroundings {
    fn look(config: &TunnelConfig, netlink: &mut Netlink) -> linux::Result<Self> {
        let mut connected = Vec::new();
        for link in netlink.links()? {
            if [LOOPBACK, &config.tunnel.name].contains(&link.name.as_str()) {
                continue;
            }
            for found in netlink.addresses(link.index)? {
                connected.push(Connected { interface: link.name.clone(), address: found.address });
            }
        }
        let mut routers = Vec::new();
        for peer in &config.peers {
            let hop = outer_route(config, peer.hop_prefix, netlink).ok().flatten();
            routers.extend(hop.and_then(|hop| hop.gateway));
        }
        let is_closed = |route: Route| {
            let closed = matches!(route.via, Via::Unreachable { metric: kernel::closed::METRIC, .. });
            closed.then_some(route.destination)
        };
        let closed = netlink.own_routes()?.into_iter().filter_map(is_closed).collect();
        Ok(Surroundings { connected, routers, closed })
    }

    /// The first setting that cuts the machine off, in words.
    fn cut_off_by(&self, config: &TunnelConfig) -> Option<String> {
        let node = &config.node;
        if node.mode == Mode::Routed && !node.on_link && !config.peers.is_empty() {
            let prefix = IpNet::V6(node.hop_prefix);
            let remedy =
                "add `on_link = true` if it is the prefix of a link, or have another prefix routed here";
            if let Some(Connected { interface, address }) =
                self.networks().find(|found| prefix.contains(&found.address))
            {
                return Some(format!(
                    "[node] hop_prefix = \"{prefix}\": it contains the network of {interface}, where this machine \
                     is {}; routers and hosts there could no longer be reached: {remedy}",
                    address.addr()
                ));
            }
            if let Some(router) = self.routers.iter().find(|router| prefix.contains(*router)) {
                return Some(format!(
                    "[node] hop_prefix = \"{prefix}\": it contains this machine's router, {router}, which could no \
                     longer be reached: {remedy}"
                ));
            }
        }
        if node.mode != Mode::Routed {
            return None;
        }
        for peer in &config.peers {
            // What was behind the peer before: a neighbor that advertises it as a network of the link keeps no tunnel down.
            for prefix in peer.allowed_ips.iter().filter(|prefix| !self.closed.contains(&prefix.trunc())) {
                // A shorter prefix does no harm: the network's own route is more specific.
                let within = |found: &&Connected| found.address.contains(prefix);
                let reaches = |found: &&Connected| {
                    prefix.contains(&found.address.addr())
                        || self.routers.iter().any(|router| prefix.contains(router))
                };
                if let Some(Connected { interface, address }) = self.networks().filter(within).find(reaches) {
                    return Some(format!(
                        "allowed_ips of {} has {prefix}, which is of the network of {interface}, where this machine \
                         is {}: what is there would be looked for behind the peer: remove it",
                        peer.name,
                        address.addr()
                    ));
                }
            }
        }
        None
    }

    /// Those with others on the link.
    fn networks(&self) -> impl Iterator<Item = &Connected> {
        self.connected.iter().filter(|found| found.address.prefix_len() < found.address.max_prefix_len())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(hop_prefix: &str, on_link: bool, allowed_ips: &str) -> TunnelConfig {
        let text = format!(
            "[node]\nprivate_key = \"yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\"\nexternal = \"eth0\"\n\
             hop_prefix = \"{hop_prefix}\"\non_link = {on_link}\n[[peer]]\nname = \"site-b\"\n\
             public_key = \"xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\"\nhop_prefix = \"2001:db8:b1::/64\"\n\
             allowed_ips = [{allowed_ips}]\n"
        );
        let no_file = |_: &Path| Err(config::KeyFileError::Missing);
        config::parse(&text, Path::new("a.toml"), &no_file).unwrap().tunnel.unwrap()
    }

    fn surroundings() -> Surroundings {
        let connected = [
            ("eth0", "2001:db8:5::10/64"),
            ("eth0", "fe80::1/64"),
            ("eth1", "fd00:1::1/64"),
            ("eth1", "192.168.1.1/24"),
            ("eth2", "2001:db8:77::1/128"),
        ]
        .map(|(interface, address)| Connected {
            interface: interface.into(),
            address: address.parse().unwrap(),
        });
        let routers = vec!["2001:db8:6::1".parse().unwrap()];
        Surroundings { connected: connected.into(), routers, closed: Vec::new() }
    }

    #[test]
    fn what_cuts_off_is_told_and_the_rest_is_not() {
        let all = "\"::/0\", \"0.0.0.0/0\", \"fd00::/8\", \"192.168.0.0/16\", \"2001:db8:b::/64\"";
        for (hop_prefix, on_link, allowed_ips, said) in [
            ("2001:db8:a1::/64", false, all, None),
            (
                "2001:db8:5::/64",
                false,
                all,
                Some("contains the network of eth0, where this machine is 2001:db8:5::10"),
            ),
            ("2001:db8:5::/64", true, all, None),
            // Its router is there, and no address of its own.
            ("2001:db8:6::/64", false, all, Some("contains this machine's router, 2001:db8:6::1")),
            // One that is routed to it beside an address for it alone.
            ("2001:db8:77::/64", false, all, None),
            (
                "2001:db8:a1::/64",
                false,
                "\"fd00:1::/64\"",
                Some("fd00:1::/64, which is of the network of eth1"),
            ),
            ("2001:db8:a1::/64", false, "\"192.168.1.0/25\"", Some("where this machine is 192.168.1.1")),
            // A host of the network that has gone to the other side.
            ("2001:db8:a1::/64", false, "\"192.168.1.77/32\", \"fd00:1::77/128\"", None),
        ] {
            let found = surroundings().cut_off_by(&config(hop_prefix, on_link, allowed_ips));
            match (found, said) {
                (None, None) => {}
                (Some(found), Some(said)) => assert!(found.contains(said), "{found}"),
                (found, said) => panic!("{hop_prefix} {allowed_ips}: {found:?}, not {said:?}"),
            }
        }
        // An earlier run carried it, so that the network is of somebody who says so.
        let earlier = Surroundings { closed: vec!["fd00:1::/64".parse().unwrap()], ..surroundings() };
        assert_eq!(earlier.cut_off_by(&config("2001:db8:a1::/64", false, "\"fd00:1::/64\"")), None);
    }
}
