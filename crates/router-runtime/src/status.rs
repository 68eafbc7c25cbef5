//! What a gateway says about itself; the field names are a contract.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Instant;

use gateway::until::Until;
use ipnet::{IpNet, Ipv6Net};
use serde::{Deserialize, Serialize};

use super::traffic::{Firewall, Peer, Talker};
use super::{Router, network, tunnel, uplink};

/// The answer to `sidestep status`. Lifetimes are in seconds; null where there is no end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    pub version: String,
    pub uptime_seconds: u64,
    pub uplinks: Vec<Uplink>,
    pub networks: Vec<Network>,
    pub addresses: Vec<Address>,
    pub routes: Vec<Route>,
    pub neighbors: Vec<Neighbor>,
    /// Null where none is applied.
    #[serde(default)]
    pub firewall: Option<Firewall>,
    /// Connections that the kernel follows now, also those of the gateway itself.
    #[serde(default)]
    pub connections: u64,
    /// Of the hosts behind the gateway those that carry most, by their present connections.
    #[serde(default)]
    pub talkers: Vec<Talker>,
    /// Why there is less of them than there could be.
    #[serde(default)]
    pub talkers_incomplete: Option<String>,
    /// Those of the tunnel in the same configuration.
    #[serde(default)]
    pub peers: Vec<Peer>,
    /// What could not be done, or not be had.
    pub problems: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Uplink {
    pub name: String,
    pub interface: String,
    pub link_up: bool,
    /// Whether it leads to the Internet, as far as is known.
    pub works: bool,
    /// Null where no host is probed.
    pub probes_answered: Option<bool>,
    pub router: Option<Ipv6Addr>,
    pub router_seconds: Option<u64>,
    pub prefixes: Vec<Prefix>,
    /// Null where none is asked for, or one was given.
    pub waits_for_prefix: Option<Wait>,
    pub dns_servers: Vec<Ipv6Addr>,
    /// Null where it is none.
    pub tunnel: Option<Tunnel>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Wait {
    pub seconds: u64,
    /// What a server has answered, by the name of RFC 8415; null where none has.
    pub status: Option<String>,
    /// In words.
    pub why: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tunnel {
    /// `6in4`, `6to4`, `6rd`, `4in6`.
    pub kind: String,
    pub over: String,
    /// Null where the interface below has no address for it.
    pub local: Option<IpAddr>,
    /// The other end; of 6to4 and 6rd the relay.
    pub remote: Option<IpAddr>,
    /// The largest inner packet.
    pub mtu: u32,
    pub rx_packets: u64,
    pub rx_bytes: u64,
    pub tx_packets: u64,
    pub tx_bytes: u64,
    /// Packets that were not carried, by reason.
    pub drops: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Prefix {
    pub prefix: Ipv6Net,
    pub preferred_seconds: Option<u64>,
    pub valid_seconds: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Network {
    pub name: String,
    pub interface: String,
    pub link_up: bool,
    pub advertises: bool,
    /// Whether hosts are told that it leads out.
    pub default_router: bool,
    pub prefixes: Vec<Prefix>,
    pub dns_servers: Vec<Ipv6Addr>,
    pub advertisements_sent: u64,
    pub solicitations_received: u64,
    /// Routers that should not be there, heard in the last hour.
    pub rogue_routers: Vec<Rogue>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rogue {
    pub address: Ipv6Addr,
    pub mac: String,
    pub default_router: bool,
    pub prefixes: Vec<Ipv6Net>,
    pub dns_servers: Vec<Ipv6Addr>,
    pub heard_seconds_ago: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Address {
    pub interface: String,
    pub address: IpNet,
    pub preferred_seconds: Option<u64>,
    pub valid_seconds: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Route {
    pub to: IpNet,
    /// Only for packets from there.
    pub from: Option<Ipv6Net>,
    /// Null where senders are told that there is no way.
    pub interface: Option<String>,
    pub via: Option<IpAddr>,
    pub metric: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Neighbor {
    pub interface: String,
    pub address: IpAddr,
    pub mac: String,
}

impl Status {
    /// The gateway's own addresses at an interface.
    pub fn addresses_at(&self, interface: &str) -> Vec<IpNet> {
        let addresses = self.addresses.iter().filter(|address| address.interface == interface);
        addresses.map(|address| address.address).collect()
    }
}

/// The status now.
pub(super) fn status(router: &mut Router, now: Instant) -> Status {
    let addresses = router.plan.addresses.iter().map(|address| Address {
        interface: address.interface.clone(),
        address: address.address,
        preferred_seconds: seconds(address.preferred, now),
        valid_seconds: seconds(address.valid, now),
    });
    let routes = router.plan.routes.iter().map(|route| Route {
        to: route.to,
        from: route.from,
        interface: route.via.as_ref().map(|via| via.interface.clone()),
        via: route.via.as_ref().and_then(|via| via.router),
        metric: route.metric,
    });
    Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_seconds: now.saturating_duration_since(router.started).as_secs(),
        uplinks: router
            .uplinks
            .iter()
            .map(|port| uplink(port, router.tunnels.iter().find(|tunnel| tunnel.is_of(&port.uplink)), now))
            .collect(),
        networks: router.networks.iter().map(|port| network(port, now)).collect(),
        addresses: addresses.collect(),
        routes: routes.collect(),
        problems: router.problems.clone(),
        neighbors: neighbors(router),
        // The kernel and the tunnel tell the rest: see `traffic`.
        firewall: None,
        connections: 0,
        talkers: Vec::new(),
        talkers_incomplete: None,
        peers: Vec::new(),
    }
}

fn uplink(port: &uplink::Port, carrier: Option<&tunnel::Port>, now: Instant) -> Uplink {
    let state = &port.state;
    let prefixes = state.prefixes().map(|leased| prefix(leased.prefix, leased.preferred, leased.valid, now));
    Uplink {
        name: port.uplink.name.clone(),
        interface: port.uplink.interface.clone(),
        link_up: state.link_up(),
        works: state.works(),
        probes_answered: (!port.uplink.probes.is_empty()).then(|| state.answers()),
        router: state.router().and_then(|router| router.address),
        router_seconds: state.router().and_then(|router| seconds(router.until, now)),
        prefixes: prefixes.collect(),
        waits_for_prefix: port.waits().map(|wait| Wait {
            seconds: now.saturating_duration_since(wait.since).as_secs(),
            status: wait.status.map(|status| status.to_string()),
            why: wait.why,
        }),
        dns_servers: state.dns_servers(),
        tunnel: carrier.map(tunnel),
    }
}

fn tunnel(port: &tunnel::Port) -> Tunnel {
    let crossed = port.crossed();
    let (rx_packets, rx_bytes) = crossed.rx;
    let (tx_packets, tx_bytes) = crossed.tx;
    Tunnel {
        kind: port.tunnel.kind.name().to_owned(),
        over: port.tunnel.over.clone(),
        local: port.end.as_ref().map(|end| end.local),
        remote: port.tunnel.kind.remote(),
        mtu: port.mtu,
        rx_packets,
        rx_bytes,
        tx_packets,
        tx_bytes,
        drops: crossed.refused.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
    }
}

fn network(port: &network::Port, now: Instant) -> Network {
    let offer = port.offer();
    let prefixes = offer.iter().flat_map(|offer| &offer.prefixes);
    let prefixes = prefixes.map(|offered| prefix(offered.prefix, offered.preferred, offered.valid, now));
    let rogues = port.rogues.rogues(now).map(|rogue| Rogue {
        address: rogue.address,
        mac: rogue.mac.to_string(),
        default_router: rogue.leads_out,
        prefixes: rogue.prefixes.clone(),
        dns_servers: rogue.dns_servers.clone(),
        heard_seconds_ago: now.saturating_duration_since(rogue.heard).as_secs(),
    });
    Network {
        name: port.network.name.clone(),
        interface: port.network.interface.clone(),
        link_up: port.link_up,
        advertises: offer.is_some(),
        default_router: offer.is_some_and(|offer| offer.leads_out.is_some()),
        prefixes: prefixes.collect(),
        dns_servers: offer.map(|offer| offer.dns_servers.clone()).unwrap_or_default(),
        advertisements_sent: port.sent,
        solicitations_received: port.solicited,
        rogue_routers: rogues.collect(),
    }
}

/// Who is on the inner links, as far as the kernel knows.
fn neighbors(router: &mut Router) -> Vec<Neighbor> {
    let mut neighbors = Vec::new();
    for port in &router.networks {
        let interface = &port.network.interface;
        let index = super::kernel::index_of(&router.links, interface);
        let found = index.and_then(|index| router.kernel.netlink.neighbors(index).ok()).unwrap_or_default();
        neighbors.extend(found.into_iter().filter_map(|neighbor| {
            let mac = neighbor.mac.filter(|_| !neighbor.address.is_multicast())?.to_string();
            Some(Neighbor { interface: interface.clone(), address: neighbor.address, mac })
        }));
    }
    neighbors.sort_by_key(|neighbor| neighbor.address);
    neighbors
}

fn prefix(prefix: Ipv6Net, preferred: Until, valid: Until, now: Instant) -> Prefix {
    Prefix { prefix, preferred_seconds: seconds(preferred, now), valid_seconds: seconds(valid, now) }
}

fn seconds(until: Until, now: Instant) -> Option<u64> {
    until.left(now).map(|left| left.as_secs())
}
