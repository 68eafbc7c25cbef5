//! A gateway: its uplinks, its networks, its firewall.

use control::router_status::{Bandwidth, Firewall, Nat64, Network, Status, Tunnel, Uplink};

use crate::catalogue::*;
use crate::page::{Label, Page};

/// `at` is when it was asked, in seconds of Unix time.
pub(crate) fn gateway(page: &mut Page, status: &Status, at: f64) {
    page.add(&GATEWAY_CONNECTIONS, &[], status.connections);
    if let Some(offload) = &status.flow_offload {
        page.add(&GATEWAY_OFFLOADED_CONNECTIONS, &[], offload.connections);
    }
    page.add(&GATEWAY_PROBLEMS, &[], status.problems.len());
    for uplink in &status.uplinks {
        let (name, interface) = (Label::from(&*uplink.name), Label::from(&*uplink.interface));
        add_uplink(page, &[&name, &interface], uplink, at);
        if let Some(bandwidth) = &uplink.bandwidth {
            add_bandwidth(page, [&name, &interface], bandwidth);
        }
        if let Some(tunnel) = &uplink.tunnel {
            add_transition(page, &[&name, &Label::from(&*tunnel.kind)], tunnel);
        }
    }
    if let Some(nat64) = &status.nat64 {
        add_nat64(page, nat64);
    }
    if let Some(flows) = &status.flows {
        for (metric, count) in [
            (&FLOWS_RECORDS, flows.records),
            (&FLOWS_LOST, flows.lost),
            (&FLOWS_LEFT_OUT, flows.left_out),
            (&FLOWS_MISSED, flows.missed),
        ] {
            page.add(metric, &[], count);
        }
    }
    for network in &status.networks {
        let (name, interface) = (Label::from(&*network.name), Label::from(&*network.interface));
        let neighbors =
            status.neighbors.iter().filter(|neighbor| neighbor.interface == network.interface).count();
        add_network(page, &[&name, &interface], network, neighbors);
    }
}

fn add_uplink(page: &mut Page, whose: &[&Label; 2], uplink: &Uplink, at: f64) {
    page.add(&UPLINK_LINK_UP, whose, uplink.link_up);
    page.add(&UPLINK_WORKS, whose, uplink.works);
    if let Some(answered) = uplink.probes_answered {
        page.add(&UPLINK_PROBES_ANSWERED, whose, answered);
    }
    page.add(&UPLINK_ROUTER, whose, uplink.router.is_some());
    page.add(&UPLINK_PREFIXES, whose, uplink.prefixes.len());
    let last = uplink.prefixes.iter().map(|prefix| prefix.valid_seconds).collect::<Option<Vec<_>>>();
    if let Some(seconds) = last.and_then(|all| all.into_iter().max()) {
        page.add(&UPLINK_LEASE_EXPIRY, whose, at + seconds as f64);
    }
    page.add(&UPLINK_WAITING, whose, uplink.waits_for_prefix.as_ref().map_or(0, |wait| wait.seconds));
}

fn add_bandwidth(page: &mut Page, [name, interface]: [&Label; 2], bandwidth: &Bandwidth) {
    for (side, direction) in [(&bandwidth.down, "down"), (&bandwidth.up, "up")] {
        let Some(side) = side else { continue };
        let whose = [name, interface, &Label::from(direction)];
        page.add(&UPLINK_BANDWIDTH, &whose, side.rate_bits / 8);
        page.add(&UPLINK_SHAPED, &whose, side.rate_in_force_bits.unwrap_or(0) / 8);
        page.add(&UPLINK_SHAPED_PACKETS, &whose, side.sent_packets);
        page.add(&UPLINK_SHAPED_DROPPED, &whose, side.dropped_packets);
        page.add(&UPLINK_SHAPED_MARKED, &whose, side.marked_packets);
        page.add(&UPLINK_SHAPED_BACKLOG, &whose, side.backlog_bytes);
        page.add(&UPLINK_SHAPED_DELAY, &whose, side.peak_delay_ms / 1e3);
    }
}

fn add_transition(page: &mut Page, whose: &[&Label; 2], tunnel: &Tunnel) {
    for (metric, count) in [
        (&TRANSITION_RECEIVED_PACKETS, tunnel.rx_packets),
        (&TRANSITION_RECEIVED, tunnel.rx_bytes),
        (&TRANSITION_SENT_PACKETS, tunnel.tx_packets),
        (&TRANSITION_SENT, tunnel.tx_bytes),
    ] {
        page.add(metric, whose, count);
    }
    for (reason, count) in &tunnel.drops {
        page.add(&TRANSITION_DROPPED, &[whose[0], whose[1], &Label::from(reason.as_str())], *count);
    }
}

fn add_nat64(page: &mut Page, nat64: &Nat64) {
    for (metric, count) in [
        (&NAT64_HOSTS, nat64.hosts),
        (&NAT64_TO_IPV4_PACKETS, nat64.to_ipv4_packets),
        (&NAT64_TO_IPV4, nat64.to_ipv4_bytes),
        (&NAT64_TO_IPV6_PACKETS, nat64.to_ipv6_packets),
        (&NAT64_TO_IPV6, nat64.to_ipv6_bytes),
    ] {
        page.add(metric, &[], count);
    }
    for (reason, count) in &nat64.drops {
        page.add(&NAT64_DROPPED, &[&Label::from(reason.as_str())], *count);
    }
}

fn add_network(page: &mut Page, whose: &[&Label; 2], network: &Network, neighbors: usize) {
    page.add(&NETWORK_LINK_UP, whose, network.link_up);
    page.add(&NETWORK_DEFAULT_ROUTER, whose, network.default_router);
    page.add(&NETWORK_PREFIXES, whose, network.prefixes.len());
    page.add(&NETWORK_NEIGHBORS, whose, neighbors);
    if let Some(dnsmasq) = &network.dnsmasq {
        page.add(&NETWORK_DNSMASQ_RUNS, whose, dnsmasq.runs);
        page.add(&NETWORK_DNSMASQ_RESTARTS, whose, dnsmasq.restarts);
        if let Some(addresses) = dnsmasq.addresses {
            page.add(&NETWORK_LEASES, whose, dnsmasq.leases.len());
            page.add(&NETWORK_LEASE_ADDRESSES, whose, addresses);
        }
    }
    if let Some(mappings) = network.port_mappings {
        page.add(&NETWORK_PORT_MAPPINGS, whose, mappings);
    }
    page.add(&NETWORK_ADVERTISEMENTS, whose, network.advertisements_sent);
    page.add(&NETWORK_SOLICITATIONS, whose, network.solicitations_received);
    page.add(&NETWORK_ROGUE_ROUTERS, whose, network.rogue_routers.len());
}

/// What the firewall has counted, of every rule.
pub(crate) fn firewall(page: &mut Page, firewall: Option<&Firewall>) {
    let Some(firewall) = firewall else { return };
    let verdict = |verdict: &Option<String>| Label::from(verdict.as_deref().unwrap_or("none"));
    for rule in &firewall.rules {
        let of = [&Label::from(rule.number.to_string()), &verdict(&rule.verdict)];
        page.add(&FIREWALL_RULE_PACKETS, &of, rule.packets);
        page.add(&FIREWALL_RULE, &of, rule.bytes);
    }
    for fallback in &firewall.defaults {
        let of = [&Label::from(&*fallback.reason), &verdict(&fallback.verdict)];
        page.add(&FIREWALL_DEFAULT_PACKETS, &of, fallback.packets);
        page.add(&FIREWALL_DEFAULT, &of, fallback.bytes);
    }
    for pair in &firewall.pairs {
        let of = [&Label::from(&*pair.from), &Label::from(&*pair.to)];
        page.add(&FIREWALL_PAIR_PACKETS, &of, pair.packets);
        page.add(&FIREWALL_PAIR, &of, pair.bytes);
    }
}
