//! The machine that a configuration of a tunnel is for, as it is now: what of the configuration would cut it off its own
//! networks ([`refuse`]), and what would keep the tunnel from working ([`warnings`]).

use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

use ipnet::{IpNet, Ipv6Net};
use linux::netlink::{Netlink, NextHop, Route, Via};
use linux::sysctl;
use serde_json::Value;

use crate::error::Error;
use crate::kernel;
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

/// Refuses what would cut this machine off.
///
/// # Errors
/// The first such setting, or where the kernel cannot be asked.
pub fn refuse(config: &TunnelConfig) -> Result<(), Error> {
    let mut netlink = Netlink::open()?;
    match Surroundings::look(config, &mut netlink)?.cut_off_by(config) {
        Some(why) => Err(Error::CutsOff(why)),
        None => Ok(()),
    }
}

/// Why nothing would reach a client of this machine any more, if it is so: what is for it would go into the tunnel.
///
/// # Errors
/// Where the kernel cannot be asked.
pub fn takes_away(config: &TunnelConfig, client: IpAddr) -> Result<Option<String>, Error> {
    let mut netlink = Netlink::open()?;
    if config.node.mode != Mode::Routed {
        return Ok(None);
    }
    let Some(route) = netlink.matched_length(client)? else { return Ok(None) };
    // A default route is two routes of one bit.
    let takes = |prefix: &&IpNet| prefix.contains(&client) && prefix.prefix_len().max(1) >= route;
    let peers = config.peers.iter().map(|peer| (peer, peer.allowed_ips.iter().find(takes)));
    let taken = peers.filter_map(|(peer, prefix)| Some((peer, prefix?))).next();
    Ok(taken.map(|(peer, prefix)| {
        format!("allowed_ips of {} has {prefix}: give {client} a more specific route first", peer.name)
    }))
}

/// What keeps the tunnel from working as the machine is now; `routes` where the same file makes a router of it. What
/// cannot be found out is passed over.
#[must_use]
pub fn warnings(config: &TunnelConfig, routes: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    if config.node.mode == Mode::Routed && !routes {
        let prefixes = || config.peers.iter().flat_map(|peer| &peer.allowed_ips);
        let families = [
            ("IPv6", "ipv6/conf/all/forwarding", prefixes().any(|prefix| prefix.addr().is_ipv6())),
            ("IPv4", "ipv4/ip_forward", prefixes().any(|prefix| prefix.addr().is_ipv4())),
        ];
        for (family, name, wanted) in families {
            if wanted && sysctl::read_global(name).is_ok_and(|value| value == "0") {
                let key = name.replace('/', ".");
                warnings.push(format!(
                    "this machine does not forward {family}: only itself can use the tunnel \
                     (sysctl -w net.{key}=1)"
                ));
            }
        }
    }
    if let Some(transparent) = &config.node.transparent
        && !Path::new("/sys/class/net").join(&transparent.internal).exists()
    {
        warnings.push(format!("it has no interface {} now", transparent.internal));
    }
    if config.node.mode == Mode::Routed
        && let Some(ruleset) = linux::nft::ruleset().ok().and_then(|text| serde_json::from_str(&text).ok())
    {
        warnings.extend(closed_by(&ruleset, config));
    }
    if let Ok(mut netlink) = Netlink::open()
        && config.node.mode == Mode::Routed
    {
        for peer in &config.peers {
            match outer_route(config, peer.hop_prefix, &mut netlink) {
                Ok(Some(hop)) if hop.local => warnings.push(format!(
                    "hop_prefix {} of {} is this machine's own: it cannot be reached",
                    peer.hop_prefix, peer.name
                )),
                Ok(None) => warnings.push(format!(
                    "this machine has no route to {}, where {} hops",
                    peer.hop_prefix, peer.name
                )),
                Ok(Some(_)) | Err(_) => {}
            }
        }
    }
    warnings
}

/// Tables that drop by default what the tunnel needs, and have no rule that names it. Whether a rule that names it accepts
/// it is not known.
fn closed_by(ruleset: &Value, config: &TunnelConfig) -> Vec<String> {
    let objects = || ruleset["nftables"].as_array().into_iter().flatten();
    let table = |object: &Value| (object["family"].clone(), object["table"].clone());
    let mut found = Vec::new();
    for chain in objects().map(|object| &object["chain"]).filter(|chain| chain["policy"] == "drop") {
        let (prefix, tunnel) = (config.node.hop_prefix.trunc(), &config.tunnel.name);
        let own = chain["table"].as_str().is_some_and(|table| table.starts_with("sidestep-"));
        let concerns = matches!(chain["family"].as_str(), Some("ip6" | "inet")) && !own;
        let (named, rule) = match chain["hook"].as_str() {
            // As nft lists it, with the length of the prefix apart.
            Some("input") if concerns && !config.is_classic() => {
                (prefix.network().to_string(), format!("`ip6 daddr {prefix} udp dport 1024-65535 accept`"))
            }
            Some("forward") if concerns => {
                (tunnel.clone(), format!("`iifname \"{tunnel}\" accept` and `oifname \"{tunnel}\" accept`"))
            }
            _ => continue,
        };
        let text = Value::String(named.clone()).to_string();
        let rules = objects().map(|object| &object["rule"]).filter(|rule| table(rule) == table(chain));
        if !rules.map(Value::to_string).any(|rule| rule.contains(&text)) {
            let word = |key: &str| chain[key].as_str().unwrap_or_default().to_owned();
            found.push(format!(
                "chain {} of the table `{} {}` drops what no rule accepts, and none names {named}: the tunnel \
                 needs {rule}",
                word("name"),
                word("family"),
                word("table"),
            ));
        }
    }
    found
}

/// How datagrams for a peer leave: where another route leads into the tunnel, or nowhere without it, by the external
/// interface.
fn outer_route(
    config: &TunnelConfig,
    prefix: Ipv6Net,
    netlink: &mut Netlink,
) -> linux::Result<Option<NextHop>> {
    let there = IpAddr::V6(host_in(prefix.network()));
    match netlink.route_to(there)? {
        None => match netlink.link_by_name(&config.node.external)? {
            Some(external) => netlink.route_through(external.index, there),
            None => Ok(None),
        },
        found => Ok(found),
    }
}

/// An address of a prefix other than the first, which belongs to all its routers (RFC 4291, 2.6.1).
fn host_in(network: Ipv6Addr) -> Ipv6Addr {
    (u128::from(network) | 1).into()
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
    fn a_firewall_that_drops_by_default_is_to_name_the_tunnel() {
        let chain = |hook: &str, policy: &str| {
            serde_json::json!({"chain": {
                "family": "inet", "table": "filter", "name": hook, "hook": hook, "policy": policy}})
        };
        let rule = |right: Value| {
            serde_json::json!({"rule": {"family": "inet", "table": "filter", "chain": "of-mine", "expr": [
                {"match": {"op": "==", "left": {"meta": {"key": "x"}}, "right": right}}, {"accept": null}]}})
        };
        let prefix = || rule(serde_json::json!({"prefix": {"addr": "2001:db8:a1::", "len": 64}}));
        let config = config("2001:db8:a1::/64", false, "\"2001:db8:b::/64\"");
        for (objects, closed) in [
            (vec![], 0),
            (vec![chain("input", "accept"), chain("forward", "accept"), chain("output", "drop")], 0),
            (vec![chain("input", "drop"), chain("forward", "drop")], 2),
            (vec![chain("input", "drop"), chain("forward", "drop"), prefix()], 1),
            (vec![chain("input", "drop"), chain("forward", "drop"), prefix(), rule("mt6d0".into())], 0),
        ] {
            let found = closed_by(&serde_json::json!({"nftables": objects}), &config);
            assert_eq!(found.len(), closed, "{found:?}");
        }
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
