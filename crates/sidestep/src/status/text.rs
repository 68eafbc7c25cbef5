//! The status of a gateway as text.

use std::fmt::{self, Write as _};
use std::net::SocketAddr;

use crate::show::text as words;
use control::router_status::{
    Bandwidth, Delay, DelegatedPrefix, DnsOverTls, Dnsmasq, Firewall, FlowOffload, Flows, Forward, Lease,
};
use control::router_status::{Nat64, Network, Peer, PortMapping, Prefix, Shaped, Status, Talker, Tunnel};
use control::router_status::{Uplink, Wait};

/// So many rules of the firewall are shown.
const MOST_RULES: usize = 5;

/// The status as text for a terminal.
pub(crate) fn describe(status: &Status) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_status(&mut text, status);
    text
}

fn write_status(text: &mut String, status: &Status) -> fmt::Result {
    writeln!(
        text,
        "gateway, running for {}, version {}",
        words::duration(status.uptime_seconds),
        status.version
    )?;
    if let Some(prefix) = status.hop_prefix {
        writeln!(text, "  the tunnel hops in {prefix}")?;
    }
    for problem in &status.problems {
        writeln!(text, "  problem: {problem}")?;
    }
    for uplink in &status.uplinks {
        write_uplink(text, status, uplink)?;
    }
    for network in &status.networks {
        write_network(text, status, network)?;
    }
    if let Some(nat64) = &status.nat64 {
        write_nat64(text, nat64)?;
    }
    if let Some(tls) = &status.dns_over_tls {
        write_dns_over_tls(text, tls)?;
    }
    if let Some(flows) = &status.flows {
        let Flows { collector, records, lost, left_out, missed } = flows;
        write!(text, "\nflows to {collector}: {records} records sent, {lost} lost")?;
        if *left_out > 0 {
            write!(text, ", {left_out} left out")?;
        }
        if *missed > 0 {
            write!(text, ", {missed} times connections that ended were missed")?;
        }
        writeln!(text)?;
    }
    if let Some(offload) = &status.flow_offload {
        let FlowOffload { configured, in_force, interfaces, connections } = offload;
        match in_force {
            Some(who) => writeln!(
                text,
                "\nflow offload in {who}: {connections} connections between {}",
                interfaces.join(", ")
            )?,
            None => writeln!(text, "\nflow offload in {configured}: none, connections go the usual way")?,
        }
    }
    if !status.forwards.is_empty() {
        writeln!(text, "\nforwards")?;
    }
    for forward in &status.forwards {
        writeln!(text, "  {}: {}", forward.name, forwarded(forward))?;
    }
    if !status.delegated_prefixes.is_empty() {
        writeln!(text, "\nprefixes of routers behind")?;
    }
    for delegated in &status.delegated_prefixes {
        writeln!(text, "  {}", delegated_to(delegated))?;
    }
    if !status.port_mappings.is_empty() {
        writeln!(text, "\nports that hosts have opened")?;
    }
    for mapping in &status.port_mappings {
        writeln!(text, "  {}", mapped(mapping))?;
    }
    writeln!(text, "\nroutes")?;
    for route in &status.routes {
        let from = route.from.map(|from| format!(" from {from}")).unwrap_or_default();
        let via = route.via.map(|via| format!(" via {via}")).unwrap_or_default();
        match &route.interface {
            Some(interface) => writeln!(text, "  {}{from}{via} at {interface}", route.to)?,
            None => writeln!(text, "  {}{from} unreachable", route.to)?,
        }
    }
    if let Some(firewall) = &status.firewall {
        writeln!(text, "\nfirewall: {}", refused(firewall))?;
        for (_, line) in firewall_lines(firewall) {
            writeln!(text, "  {line}")?;
        }
    }
    writeln!(text, "\nconnections: {}", status.connections)?;
    for host in &status.talkers {
        writeln!(text, "  {}: {}", host.address, carried(host))?;
    }
    if let Some(why) = &status.talkers_incomplete {
        writeln!(text, "  {why}")?;
    }
    if let Some(peer) = status.peers.first() {
        writeln!(text, "\ntunnel {}", peer.tunnel)?;
    }
    for peer in &status.peers {
        writeln!(text, "  peer {}: {}", peer.name, peer_state(peer))?;
    }
    Ok(())
}

/// What is forwarded where, in a line.
fn forwarded(forward: &Forward) -> String {
    let at = match &forward.addresses[..] {
        [] => format!("{}, which has no IPv4 address", forward.uplinks.join(", ")),
        addresses => addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    };
    let port = forward.to_port.map(|port| format!(":{port}")).unwrap_or_default();
    let connections = if forward.connections == 1 { "connection" } else { "connections" };
    format!(
        "{} at {at} to {}{port}, {} {connections}",
        forward.ports.join(", "),
        forward.to,
        forward.connections
    )
}

/// What a host has asked for, in a line.
fn mapped(mapping: &PortMapping) -> String {
    let at = match mapping.external_address {
        Some(address) if address == mapping.address => String::new(),
        Some(address) => format!(" at {address}"),
        None => " at no address".to_owned(),
    };
    let from =
        if mapping.from.is_empty() { String::new() } else { format!(" from {}", mapping.from.join(", ")) };
    format!(
        "{}/{}{at} to {}{from}, by {}, for {}",
        mapping.protocol,
        mapping.external_port,
        SocketAddr::new(mapping.address, mapping.port),
        mapping.asked_by,
        words::duration(mapping.seconds)
    )
}

/// What the firewall has refused, in a line.
pub(crate) fn refused(firewall: &Firewall) -> String {
    format!(
        "{} packets dropped, {} rejected; {} of them by default",
        firewall.dropped_packets, firewall.rejected_packets, firewall.refused_by_default_packets
    )
}

/// What else it has counted, the rules, then what is decided by default; and whether that lets packets pass.
pub(crate) fn firewall_lines(firewall: &Firewall) -> Vec<(bool, String)> {
    let line = |what: &str, verdict: &Option<String>, packets: u64, bytes: u64| {
        let verdict = verdict.as_deref().unwrap_or("other");
        let bytes = words::bytes(bytes as f64);
        (verdict == "accept", format!("{packets:>10}  {bytes:>9}  {verdict:<6}  {what}"))
    };
    let rules = firewall.rules.iter().take(MOST_RULES);
    let rules = rules.map(|rule| {
        let comment = if rule.comment.is_empty() { String::new() } else { format!(" ({})", rule.comment) };
        line(&format!("rule {}{comment}", rule.number), &rule.verdict, rule.packets, rule.bytes)
    });
    let defaults = firewall.defaults.iter();
    let defaults = defaults.map(|by| line(&by.reason, &by.verdict, by.packets, by.bytes));
    rules.chain(defaults).collect()
}

fn carried(host: &Talker) -> String {
    let connections = if host.connections == 1 { "connection" } else { "connections" };
    let bytes = match (host.sent_bytes, host.received_bytes) {
        (Some(sent), Some(received)) => {
            format!(", {} sent, {} received", words::bytes(sent as f64), words::bytes(received as f64))
        }
        _ => String::new(),
    };
    format!("{} {connections}{bytes}", host.connections)
}

/// A peer in a line.
pub(crate) fn peer_state(peer: &Peer) -> String {
    let rtt = peer.rtt_ms.map(|rtt| format!(", round trip {}", words::milliseconds(rtt)));
    format!(
        "{}{}, {} sent, {} received",
        words::state(peer.state),
        rtt.unwrap_or_default(),
        words::bytes(peer.sent_bytes as f64),
        words::bytes(peer.received_bytes as f64)
    )
}

/// What an uplink lacks, or that it works.
pub(crate) const fn uplink_state(uplink: &Uplink) -> &'static str {
    match uplink {
        Uplink { works: true, .. } => "works",
        Uplink { link_up: false, .. } => "no link",
        Uplink { probes_answered: Some(false), .. } => "no probe is answered",
        _ => "no router",
    }
}

fn write_uplink(text: &mut String, status: &Status, uplink: &Uplink) -> fmt::Result {
    writeln!(text, "\nuplink {} at {}: {}", uplink.name, uplink.interface, uplink_state(uplink))?;
    if let Some(tunnel) = &uplink.tunnel {
        write_tunnel(text, tunnel)?;
    }
    write_list(text, "addresses", &status.addresses_at(&uplink.interface))?;
    if let Some(router) = uplink.router {
        let until =
            uplink.router_seconds.map(|left| format!(", for {}", words::duration(left))).unwrap_or_default();
        writeln!(text, "  router: {router}{until}")?;
    }
    if let Some(bandwidth) = &uplink.bandwidth {
        write_list(text, "bandwidth", &bandwidth_in_words(bandwidth))?;
        if let Some(delay) = &bandwidth.delay {
            writeln!(text, "  rates follow {}", delay_in_words(delay))?;
        }
    }
    write_prefixes(text, &uplink.prefixes)?;
    if let Some(wait) = &uplink.waits_for_prefix {
        writeln!(text, "  prefix: {}", waits(wait))?;
    }
    write_list(text, "DNS servers", &uplink.dns_servers)
}

/// Each direction that is given, with what shaping costs, or that it is not done.
fn bandwidth_in_words(bandwidth: &Bandwidth) -> Vec<String> {
    let sides = [(&bandwidth.down, "down"), (&bandwidth.up, "up")];
    let sides = sides.into_iter().filter_map(|(side, direction)| Some((side.as_ref()?, direction)));
    let in_words = |(side, direction): (&Shaped, &str)| {
        let state = match side.rate_in_force_bits {
            None => "not shaped".to_owned(),
            Some(_) => format!("packets wait {:.1} ms, {} dropped", side.peak_delay_ms, side.dropped_packets),
        };
        format!(
            "{} {direction} ({state})",
            words::rate(side.rate_in_force_bits.unwrap_or(side.rate_bits) as f64)
        )
    };
    sides.map(in_words).collect()
}

fn delay_in_words(delay: &Delay) -> String {
    match (delay.reflector, delay.usual_ms.zip(delay.newest_ms)) {
        (None, _) => "nobody: there is no router to ask".to_owned(),
        (Some(host), None) => format!("{host}, which does not answer"),
        (Some(host), Some((usual, newest))) => {
            format!("{host}, which answers in {newest:.1} ms, usually {usual:.1} ms")
        }
    }
}

fn write_tunnel(text: &mut String, tunnel: &Tunnel) -> fmt::Result {
    let local = tunnel.local.map_or("no address".to_owned(), |local| local.to_string());
    let remote = tunnel.remote.map(|remote| remote.to_string());
    let by = if tunnel.plat_from.as_deref() == Some("names") { " (RFC 7050)" } else { "" };
    let remote = remote.or_else(|| tunnel.plat_prefix.map(|prefix| format!("{prefix}{by}")));
    let remote = remote.map(|remote| format!(" to {remote}")).unwrap_or_default();
    writeln!(text, "  tunnel: {} over {}, {local}{remote}, MTU {}", tunnel.kind, tunnel.over, tunnel.mtu)?;
    writeln!(
        text,
        "  carried: {} packets in ({} bytes), {} out ({} bytes)",
        tunnel.rx_packets, tunnel.rx_bytes, tunnel.tx_packets, tunnel.tx_bytes
    )?;
    let drops = tunnel.drops.iter().filter(|(_, count)| **count > 0);
    write_list(
        text,
        "not carried",
        &drops.map(|(reason, count)| format!("{reason} {count}")).collect::<Vec<_>>(),
    )
}

fn write_nat64(text: &mut String, nat64: &Nat64) -> fmt::Result {
    let state = if nat64.works { "" } else { ": does not work" };
    writeln!(text, "\nNAT64 at {}, hosts in {}{state}", nat64.prefix, nat64.pool)?;
    writeln!(
        text,
        "  translated: {} packets to IPv4 ({} bytes), {} to IPv6 ({} bytes); hosts: {}",
        nat64.to_ipv4_packets, nat64.to_ipv4_bytes, nat64.to_ipv6_packets, nat64.to_ipv6_bytes, nat64.hosts
    )?;
    let drops = nat64.drops.iter().filter(|(_, count)| **count > 0);
    let drops: Vec<_> = drops.map(|(reason, count)| format!("{reason} {count}")).collect();
    write_list(text, "not translated", &drops)
}

fn write_network(text: &mut String, status: &Status, network: &Network) -> fmt::Result {
    let link = if network.link_up { "link up" } else { "no link" };
    writeln!(text, "\nnetwork {} at {}: {link}", network.name, network.interface)?;
    write_list(text, "addresses", &status.addresses_at(&network.interface))?;
    if network.advertises {
        let leads = if network.default_router { "default router" } else { "no default router" };
        writeln!(
            text,
            "  advertised: {leads}, {} sent, {} solicited",
            network.advertisements_sent, network.solicitations_received
        )?;
        write_prefixes(text, &network.prefixes)?;
        write_list(text, "DNS servers", &network.dns_servers)?;
    }
    if let Some(dnsmasq) = &network.dnsmasq {
        write_dnsmasq(text, dnsmasq)?;
    }
    if let Some(dhcp6) = &network.dhcp6 {
        if let Some(length) = dhcp6.delegates {
            writeln!(text, "  DHCPv6: routers get a /{length}")?;
        }
        for host in &dhcp6.hosts {
            write_list(text, &format!("DHCPv6 host {}", host.name), &host.addresses)?;
        }
    }
    for rogue in &network.rogue_routers {
        let prefixes: Vec<_> = rogue.prefixes.iter().map(ToString::to_string).collect();
        writeln!(
            text,
            "  ROGUE ROUTER: {} ({}), prefixes: {}, heard {} ago",
            rogue.address,
            rogue.mac,
            prefixes.join(", "),
            words::duration(rogue.heard_seconds_ago)
        )?;
    }
    let neighbors = status.neighbors.iter().filter(|neighbor| neighbor.interface == network.interface);
    for neighbor in neighbors {
        writeln!(text, "  neighbor: {} {}", neighbor.address, neighbor.mac)?;
    }
    Ok(())
}

fn write_dns_over_tls(text: &mut String, tls: &DnsOverTls) -> fmt::Result {
    writeln!(text, "\nDNS over TLS\n  stubby: {}", runs(tls.runs, tls.why.as_deref(), tls.restarts))?;
    for server in &tls.servers {
        let state = match (&server.why, server.works) {
            (Some(why), _) => why,
            (None, Some(true)) => "works",
            (None, _) => "not asked yet",
        };
        writeln!(text, "  server: {} ({}): {state}", server.address, server.name)?;
    }
    Ok(())
}

/// How a program beside the gateway is.
fn runs(runs: bool, why: Option<&str>, restarts: u64) -> String {
    let runs = why.unwrap_or(if runs { "runs" } else { "is being started" });
    match restarts {
        0 => runs.to_owned(),
        1 => format!("{runs}, was started anew once"),
        times => format!("{runs}, was started anew {times} times"),
    }
}

fn write_dnsmasq(text: &mut String, dnsmasq: &Dnsmasq) -> fmt::Result {
    writeln!(text, "  dnsmasq: {}", runs(dnsmasq.runs, dnsmasq.why.as_deref(), dnsmasq.restarts))?;
    if let Some(domain) = &dnsmasq.domain {
        writeln!(text, "  names: *.{domain}")?;
    }
    if let (Some(range), Some(addresses)) = (&dnsmasq.range, dnsmasq.addresses) {
        writeln!(text, "  DHCP: {range}, {addresses} addresses, {} leased", dnsmasq.leases.len())?;
    }
    for lease in &dnsmasq.leases {
        writeln!(text, "  lease: {}", leased(lease))?;
    }
    Ok(())
}

/// What a router behind has, in a line.
pub(crate) fn delegated_to(delegated: &DelegatedPrefix) -> String {
    let prefixes: Vec<_> = delegated.prefixes.iter().map(|prefix| prefix.prefix.to_string()).collect();
    let prefixes = if prefixes.is_empty() { "nothing now".to_owned() } else { prefixes.join(", ") };
    let left = words::duration(delegated.seconds);
    format!("{prefixes} to {} in {}, for {left} ({})", delegated.router, delegated.network, delegated.duid)
}

/// A lease in a line.
pub(crate) fn leased(lease: &Lease) -> String {
    let name = lease.name.as_deref().unwrap_or("without a name");
    let fixed = if lease.fixed { ", fixed" } else { "" };
    let left = lease.seconds.map(|left| format!(", for {}", words::duration(left))).unwrap_or_default();
    format!("{} {} {name}{fixed}{left}", lease.address, lease.mac)
}

fn write_prefixes(text: &mut String, prefixes: &[Prefix]) -> fmt::Result {
    for prefix in prefixes {
        writeln!(text, "  prefix: {}{}", prefix.prefix, lasts(prefix))?;
    }
    Ok(())
}

/// How long a prefix lasts, as what follows its name.
pub(crate) fn lasts(prefix: &Prefix) -> String {
    match (prefix.preferred_seconds, prefix.valid_seconds) {
        (Some(0), None) => ", deprecated".to_owned(),
        (Some(0), Some(valid)) => format!(", deprecated, valid for {}", words::duration(valid)),
        (_, None) => String::new(),
        (None, Some(valid)) => format!(", valid for {}", words::duration(valid)),
        (Some(preferred), Some(valid)) => {
            format!(", preferred for {}, valid for {}", words::duration(preferred), words::duration(valid))
        }
    }
}

/// That there is no prefix yet, in the place of one.
pub(crate) fn waits(wait: &Wait) -> String {
    format!("none yet, after {} of DHCPv6 requests: {}", words::duration(wait.seconds), wait.why)
}

fn write_list(text: &mut String, what: &str, list: &[impl ToString]) -> fmt::Result {
    if list.is_empty() {
        return Ok(());
    }
    let list: Vec<_> = list.iter().map(ToString::to_string).collect();
    writeln!(text, "  {what}: {}", list.join(", "))
}
