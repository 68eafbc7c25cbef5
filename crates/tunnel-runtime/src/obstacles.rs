//! What stands in a tunnel's way on this machine as it is now: nothing that would do harm ([`crate::surroundings`]), but what
//! keeps packets from crossing, or may, with what to do about it.

use std::net::{IpAddr, Ipv6Addr};

use config::{Mode, TunnelConfig};
use ipnet::Ipv6Net;
use linux::netlink::{Link, Netlink, NextHop};
use linux::{features, sysctl};

use crate::firewall::{ClosedChain, closed_by};

/// Something that stands in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// In one word.
    pub code: &'static str,
    /// In one sentence, with the command that mends it.
    pub says: String,
    /// Whether it keeps packets from crossing for certain.
    pub certain: bool,
}

/// All that is found; `routes` where the same file makes a router of the machine. What cannot be found out is passed over.
#[must_use]
pub fn find(config: &TunnelConfig, routes: bool) -> Vec<Obstacle> {
    let mut found = Vec::new();
    let routed = config.node.mode == Mode::Routed;
    if routed && !routes {
        found.extend(not_forwarding(config));
    }
    if let Ok(mut netlink) = Netlink::open()
        && !is_to_be_made(config, &mut netlink)
    {
        found.extend(interfaces(config, &mut netlink));
        if routed {
            found.extend(outer_routes(config, &mut netlink));
        }
    }
    if routed
        && let Some(ruleset) = linux::nft::ruleset().ok().and_then(|text| serde_json::from_str(&text).ok())
    {
        let obstacle = |ClosedChain { code, says, certain }| Obstacle { code, says, certain };
        found.extend(closed_by(&ruleset, config).into_iter().map(obstacle));
    }
    found.extend(resolver(config));
    found
}

fn not_forwarding(config: &TunnelConfig) -> Vec<Obstacle> {
    let mut found = Vec::new();
    let prefixes = || config.peers.iter().flat_map(|peer| &peer.allowed_ips);
    let families = [
        (
            "IPv6",
            "not_forwarding_ipv6",
            "ipv6/conf/all/forwarding",
            prefixes().any(|prefix| prefix.addr().is_ipv6()),
        ),
        ("IPv4", "not_forwarding_ipv4", "ipv4/ip_forward", prefixes().any(|prefix| prefix.addr().is_ipv4())),
    ];
    for (family, code, name, wanted) in families {
        if wanted && sysctl::read_global(name).is_ok_and(|value| value == "0") {
            let key = name.replace('/', ".");
            let says = format!(
                "this machine does not forward {family}: only itself can use the tunnel (sysctl -w net.{key}=1)"
            );
            found.push(Obstacle { code, says, certain: true });
        }
    }
    found
}

/// Whether the external interface is made by the same file, and not there yet.
fn is_to_be_made(config: &TunnelConfig, netlink: &mut Netlink) -> bool {
    config.external_over.is_some()
        && netlink.link_by_name(&config.node.external).is_ok_and(|link| link.is_none())
}

/// What is wrong with the interfaces that the file names.
fn interfaces(config: &TunnelConfig, netlink: &mut Netlink) -> Vec<Obstacle> {
    let node = &config.node;
    let internal = node.transparent.as_ref().map(|transparent| transparent.internal.as_str());
    let mut found = Vec::new();
    for name in [node.external.as_str()].into_iter().chain(internal) {
        let Ok(link) = netlink.link_by_name(name) else { continue };
        found.extend(interface(name, link.as_ref(), netlink));
    }
    if !config.wraps.is_empty()
        && let Ok(Some(external)) = netlink.link_by_name(&node.external)
        && let Some(says) = merging(external.index, netlink)
    {
        found.push(Obstacle { code: "merges_datagrams", says, certain: false });
    }
    found
}

/// Whether datagrams that come in are put together though no socket has asked for it, with what to do about it: by an interface,
/// or by one below it. What is masked has none that could ask, and the tunnel's own on the same lane are not told from it then.
pub(crate) fn merging(external: u32, netlink: &mut Netlink) -> Option<String> {
    const ALL: &str = "rx-gro";
    let below = netlink.link_and_below(external).unwrap_or_default();
    below.iter().find_map(|Link { name, .. }| {
        let active = features::active(name, &[ALL, "rx-gro-list", "rx-udp-gro-forwarding"]).ok()?;
        let (_, merging) = active.split_first().filter(|(first, merging)| **first == ALL && !merging.is_empty())?;
        let off: String = merging.iter().map(|feature| format!(" {feature} off")).collect();
        Some(format!(
            "{name} puts datagrams together that come in ({}), so that masked ones cannot be told from the tunnel's own: \
             ethtool -K {name}{off}, then restart the tunnel",
            merging.join(", ")
        ))
    })
}

fn interface(name: &str, link: Option<&Link>, netlink: &mut Netlink) -> Option<Obstacle> {
    let Some(link) = link else {
        let others: Vec<_> =
            netlink.links().into_iter().flatten().map(|link| link.name).filter(|name| name != "lo").collect();
        let says = format!("this machine has no interface {name} now: there are {}", others.join(", "));
        return Some(Obstacle { code: "interface_missing", says, certain: true });
    };
    if !link.up {
        return Some(Obstacle {
            code: "interface_down",
            says: format!("the interface {name} is down (ip link set {name} up)"),
            certain: true,
        });
    }
    if !link.running {
        return Some(Obstacle {
            code: "no_carrier",
            says: format!(
                "the interface {name} has no carrier: look at its cable, or at what is at the other end"
            ),
            certain: true,
        });
    }
    if sysctl::read(name, "disable_ipv6").is_ok_and(|value| value == "1") {
        let says = format!("IPv6 is off at {name} (sysctl -w net.ipv6.conf.{name}.disable_ipv6=0)");
        return Some(Obstacle { code: "ipv6_off", says, certain: true });
    }
    if link.mtu < 1280 {
        let says = format!("{name} has MTU {}, and IPv6 needs 1280 (ip link set {name} mtu 1500)", link.mtu);
        return Some(Obstacle { code: "interface_mtu", says, certain: true });
    }
    None
}

/// What is wrong with the ways to peers.
fn outer_routes(config: &TunnelConfig, netlink: &mut Netlink) -> Vec<Obstacle> {
    let mut found = Vec::new();
    let external = netlink.link_by_name(&config.node.external).ok().flatten();
    for peer in &config.peers {
        let (prefix, name) = (peer.hop_prefix, &peer.name);
        let (code, says) = match outer_route(config, prefix, netlink) {
            Ok(Some(hop)) if hop.local => (
                "own_prefix",
                format!("hop_prefix {prefix} of {name} is this machine's own: it cannot be reached"),
            ),
            Ok(None) => (
                "no_route",
                format!("this machine has no route to {prefix}, where {name} hops{}", lost_default(config)),
            ),
            Ok(Some(hop)) if external.as_ref().is_some_and(|external| external.index != hop.index) => {
                let by = netlink
                    .link_by_index(hop.index)
                    .ok()
                    .flatten()
                    .map_or("another interface".to_owned(), |link| link.name);
                if by == config.tunnel.name {
                    continue;
                }
                let external = &config.node.external;
                (
                    "other_interface",
                    format!(
                        "what is for {prefix}, where {name} hops, leaves by {by}, and [node] external is {external}: write that interface there, or look at `ip -6 route get {}`",
                        host_in(prefix.network())
                    ),
                )
            }
            Ok(Some(_)) | Err(_) => continue,
        };
        found.push(Obstacle { code, says, certain: true });
    }
    found
}

/// Linux ignores router advertisements once it forwards, and so loses the default route that it had from one.
fn lost_default(config: &TunnelConfig) -> String {
    let external = &config.node.external;
    let forwards = sysctl::read_global("ipv6/conf/all/forwarding").is_ok_and(|value| value == "1");
    let ignores = sysctl::read(external, "accept_ra").is_ok_and(|value| value == "1");
    if forwards && ignores {
        format!(
            "; it forwards, and so ignores router advertisements (sysctl -w net.ipv6.conf.{external}.accept_ra=2)"
        )
    } else {
        " (ip -6 route)".to_owned()
    }
}

/// A resolver behind a peer whose name is to be found by it would be one that is never reached; one that is behind any peer
/// is reached only as long as there is a session.
fn resolver(config: &TunnelConfig) -> Option<Obstacle> {
    let text = std::fs::read_to_string("/etc/resolv.conf").ok()?;
    let servers = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    let servers: Vec<IpAddr> = servers.filter_map(|server| server.trim().parse().ok()).collect();
    let behind = |server: &IpAddr| {
        config
            .peers
            .iter()
            .find(|peer| peer.allowed_ips.iter().any(|net| net.prefix_len() > 0 && net.contains(server)))
    };
    let peer = servers.iter().map(behind).reduce(Option::and).flatten()?;
    let says = format!(
        "all name servers of this machine are behind {}: without a session no name is found (/etc/resolv.conf)",
        peer.name
    );
    Some(Obstacle { code: "resolver_behind_peer", says, certain: false })
}

/// How datagrams for a peer leave: where another route leads into the tunnel, or nowhere without it, by the external
/// interface.
pub(crate) fn outer_route(
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
pub(crate) fn host_in(network: Ipv6Addr) -> Ipv6Addr {
    (u128::from(network) | 1).into()
}
