//! The status of a gateway as text.

use std::fmt::{self, Write as _};

use super::status::{Network, Prefix, Status, Tunnel, Uplink};

/// The status as text for a terminal.
pub(super) fn describe(status: &Status) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_status(&mut text, status);
    text
}

fn write_status(text: &mut String, status: &Status) -> fmt::Result {
    writeln!(text, "gateway, running for {}, version {}", span(status.uptime_seconds), status.version)?;
    for problem in &status.problems {
        writeln!(text, "  problem: {problem}")?;
    }
    for uplink in &status.uplinks {
        write_uplink(text, uplink)?;
    }
    for network in &status.networks {
        write_network(text, status, network)?;
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
    Ok(())
}

fn write_uplink(text: &mut String, uplink: &Uplink) -> fmt::Result {
    let state = match uplink {
        Uplink { works: true, .. } => "works",
        Uplink { link_up: false, .. } => "no link",
        Uplink { probes_answered: Some(false), .. } => "no probe is answered",
        _ => "no router",
    };
    writeln!(text, "\nuplink {} at {}: {state}", uplink.name, uplink.interface)?;
    if let Some(tunnel) = &uplink.tunnel {
        write_tunnel(text, tunnel)?;
    }
    if let Some(router) = uplink.router {
        let until = uplink.router_seconds.map(|left| format!(", for {}", span(left))).unwrap_or_default();
        writeln!(text, "  router: {router}{until}")?;
    }
    write_prefixes(text, &uplink.prefixes)?;
    write_list(text, "DNS servers", &uplink.dns_servers)
}

fn write_tunnel(text: &mut String, tunnel: &Tunnel) -> fmt::Result {
    let local = tunnel.local.map_or("no address".to_owned(), |local| local.to_string());
    let remote = tunnel.remote.map(|remote| format!(" to {remote}")).unwrap_or_default();
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

fn write_network(text: &mut String, status: &Status, network: &Network) -> fmt::Result {
    let link = if network.link_up { "link up" } else { "no link" };
    writeln!(text, "\nnetwork {} at {}: {link}", network.name, network.interface)?;
    let addresses = status.addresses.iter().filter(|address| address.interface == network.interface);
    write_list(text, "addresses", &addresses.map(|address| address.address).collect::<Vec<_>>())?;
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
    for rogue in &network.rogue_routers {
        let prefixes: Vec<_> = rogue.prefixes.iter().map(ToString::to_string).collect();
        writeln!(
            text,
            "  ROGUE ROUTER: {} ({}), prefixes: {}, heard {} ago",
            rogue.address,
            rogue.mac,
            prefixes.join(", "),
            span(rogue.heard_seconds_ago)
        )?;
    }
    let neighbors = status.neighbors.iter().filter(|neighbor| neighbor.interface == network.interface);
    for neighbor in neighbors {
        writeln!(text, "  neighbor: {} {}", neighbor.address, neighbor.mac)?;
    }
    Ok(())
}

fn write_prefixes(text: &mut String, prefixes: &[Prefix]) -> fmt::Result {
    for prefix in prefixes {
        let lasts = match (prefix.preferred_seconds, prefix.valid_seconds) {
            (None, None) => String::new(),
            (Some(0), None) => ", deprecated".to_owned(),
            (Some(0), Some(valid)) => format!(", deprecated, for {}", span(valid)),
            (_, None) => String::new(),
            (None, Some(valid)) => format!(", for {}", span(valid)),
            (Some(preferred), Some(valid)) => {
                format!(", preferred for {}, for {}", span(preferred), span(valid))
            }
        };
        writeln!(text, "  prefix: {}{lasts}", prefix.prefix)?;
    }
    Ok(())
}

fn write_list(text: &mut String, what: &str, list: &[impl ToString]) -> fmt::Result {
    if list.is_empty() {
        return Ok(());
    }
    let list: Vec<_> = list.iter().map(ToString::to_string).collect();
    writeln!(text, "  {what}: {}", list.join(", "))
}

/// A time in its two largest units.
fn span(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}
