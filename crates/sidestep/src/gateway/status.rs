//! What a gateway says about itself; the field names are a contract.

use std::time::Instant;

use gateway::until::Until;
use ipnet::Ipv6Net;
use serde_json::{Value, json};

use super::{Router, network, uplink};

/// The whole status, for `sidestep status --json`.
pub(super) fn status(router: &mut Router, now: Instant) -> Value {
    let uplinks: Vec<_> = router.uplinks.iter().map(|port| uplink(port, now)).collect();
    let networks: Vec<_> = router.networks.iter().map(|port| network(port, now)).collect();
    let routes: Vec<_> = router.plan.routes.iter().map(route).collect();
    let addresses: Vec<_> = router
        .plan
        .addresses
        .iter()
        .map(|address| {
            json!({
                "interface": address.interface,
                "address": address.address,
                "preferred_seconds": seconds(address.preferred, now),
                "valid_seconds": seconds(address.valid, now),
            })
        })
        .collect();
    json!({
        "uplinks": uplinks,
        "networks": networks,
        "addresses": addresses,
        "routes": routes,
        "neighbors": neighbors(router),
        "problems": router.problems,
        "kernel_changes": router.kernel.steps().len(),
    })
}

fn uplink(port: &uplink::Port, now: Instant) -> Value {
    let state = &port.state;
    let prefixes: Vec<_> =
        state.prefixes().map(|leased| prefix(leased.prefix, leased.preferred, leased.valid, now)).collect();
    json!({
        "name": port.uplink.name,
        "interface": port.uplink.interface,
        "link_up": state.link_up(),
        "works": state.works(),
        "probes_answered": (!port.uplink.probes.is_empty()).then(|| state.answers()),
        "router": state.router().and_then(|router| router.address),
        "router_seconds": state.router().and_then(|router| seconds(router.until, now)),
        "prefixes": prefixes,
        "dns_servers": state.dns_servers(),
    })
}

fn network(port: &network::Port, now: Instant) -> Value {
    let offer = port.offer();
    let prefixes: Vec<_> = offer
        .iter()
        .flat_map(|offer| &offer.prefixes)
        .map(|offered| prefix(offered.prefix, offered.preferred, offered.valid, now))
        .collect();
    let rogues: Vec<_> = port
        .rogues
        .rogues(now)
        .map(|rogue| {
            json!({
                "address": rogue.address,
                "mac": rogue.mac.to_string(),
                "default_router": rogue.leads_out,
                "prefixes": rogue.prefixes,
                "heard_seconds_ago": now.saturating_duration_since(rogue.heard).as_secs(),
            })
        })
        .collect();
    json!({
        "name": port.network.name,
        "interface": port.network.interface,
        "link_up": port.link_up,
        "advertises": offer.is_some(),
        "default_router": offer.is_some_and(|offer| offer.leads_out.is_some()),
        "prefixes": prefixes,
        "dns_servers": offer.map(|offer| &offer.dns_servers),
        "advertisements_sent": port.sent,
        "solicitations_received": port.solicited,
        "rogue_routers": rogues,
    })
}

fn route(route: &gateway::plan::Route) -> Value {
    json!({
        "to": route.to,
        "from": route.from,
        "interface": route.via.as_ref().map(|via| &via.interface),
        "via": route.via.as_ref().and_then(|via| via.router),
        "unreachable": route.via.is_none(),
        "metric": route.metric,
    })
}

/// Who is on the inner links, as far as the kernel knows.
fn neighbors(router: &mut Router) -> Vec<Value> {
    let mut neighbors = Vec::new();
    for port in &router.networks {
        let interface = &port.network.interface;
        let index = super::kernel::index_of(&router.links, interface);
        let found = index.and_then(|index| router.kernel.netlink.neighbors(index).ok()).unwrap_or_default();
        neighbors.extend(found.into_iter().filter_map(|neighbor| {
            let mac = neighbor.mac?;
            Some(json!({ "interface": interface, "address": neighbor.address, "mac": mac.to_string() }))
        }));
    }
    neighbors
}

fn prefix(prefix: Ipv6Net, preferred: Until, valid: Until, now: Instant) -> Value {
    json!({
        "prefix": prefix,
        "preferred_seconds": seconds(preferred, now),
        "valid_seconds": seconds(valid, now),
    })
}

/// None for what has no end.
fn seconds(until: Until, now: Instant) -> Option<u64> {
    until.left(now).map(|left| left.as_secs())
}
