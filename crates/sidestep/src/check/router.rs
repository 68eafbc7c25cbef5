//! What a configuration of a gateway leads to, in plain words.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use router::site::{DnsServers, Network, RouterFrom, Site, StaticRoute, Uplink};

use router::firewall::Policy;
use router::firewall::service::Service;
use router::forward::Forward;
use router::hosts::Upstream;
use router::transition::Kind;

use config::RouterConfig;
use router_runtime::firewall::compiled;

use crate::firewall;
use crate::show::text as words;
use crate::ssh;

/// What `sidestep up` would do with this configuration, as a gateway.
pub(crate) fn describe(file: &Path, gateway: &RouterConfig) -> String {
    let site = &gateway.site;
    let Site { uplinks, networks, routes, forwards, .. } = site;
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{} is valid. As a gateway, `sidestep up` would do this:\n", file.display());
    if let Some(rules) = &gateway.firewall {
        text += "Firewall\n";
        text += &firewall::describe(rules, &compiled(rules));
    }
    for uplink in uplinks {
        let _ = write_uplink(&mut text, uplink);
    }
    for network in networks {
        let _ = write_network(&mut text, network);
        let policy = gateway.firewall.as_ref().map(|firewall| &firewall.policy);
        let _ = write_served(&mut text, site, network, policy);
    }
    for route in routes {
        let _ = write_route(&mut text, route);
    }
    for forward in forwards {
        let _ = write_forward(&mut text, forward);
    }
    if let Some(flows) = &site.flows {
        let interval = words::duration(flows.interval.as_secs());
        let _ = writeln!(
            text,
            "Flows     tell {} what hosts of the networks send and receive, of what goes on every {interval} (IPFIX)",
            flows.collector
        );
    }
    if let Some(offload) = site.flow_offload {
        let _ = writeln!(
            text,
            "Offload   packets of known connections between uplinks and networks by {}, where the kernel can",
            offload.name()
        );
    }
    for script in &gateway.scripts {
        let _ = super::script::write(&mut text, script);
    }
    let uplinks = uplinks.iter().map(|uplink| match &uplink.tunnel {
        Some(tunnel) => &tunnel.over,
        None => &uplink.interface,
    });
    let others = networks.iter().map(|network| &network.interface);
    let others = others.chain(routes.iter().map(|route| &route.interface));
    let needed: BTreeSet<_> = uplinks.chain(others).collect();
    for interface in needed {
        if !Path::new("/sys/class/net").join(interface).exists() {
            let _ = writeln!(text, "\nThere is no interface {interface} yet (`ip link` lists them).");
        }
    }
    if let Some(closed) = gateway.firewall.as_ref().and_then(|firewall| ssh::closed_by(firewall, file)) {
        let _ =
            writeln!(text, "\nMachine   WARNING: {closed}, or begin with `sidestep up FILE --confirm 60s`");
    }
    text
}

fn write_uplink(text: &mut String, uplink: &Uplink) -> std::fmt::Result {
    let router = match uplink.router {
        RouterFrom::Advertisements => "the router that advertises itself".to_owned(),
        RouterFrom::Address(address) => format!("router {address}"),
        RouterFrom::PointToPoint => "the other end of the link".to_owned(),
    };
    writeln!(text, "Uplink    {}: to the Internet through {router} at {}", uplink.name, uplink.interface)?;
    if let Some(tunnel) = &uplink.tunnel {
        let kind = tunnel.kind.name();
        let standard = match tunnel.kind {
            Kind::Clat { .. } => "an address of its own".to_owned(),
            _ => format!("the address of {}", tunnel.over),
        };
        let local = tunnel.local.map_or(standard, |local| local.to_string());
        let remote = match (&tunnel.kind, tunnel.kind.remote()) {
            (Kind::Automatic(_), Some(relay)) => format!("; packets beyond its domain go to {relay}"),
            (Kind::Clat { plat: Some(plat) }, _) => format!(" to {plat}"),
            (Kind::Clat { plat: None }, _) => {
                " to the prefix that routers advertise, or its name tells".to_owned()
            }
            (Kind::FourInSix { remote: None }, _) => " to the AFTR that DHCPv6 names".to_owned(),
            (_, Some(remote)) => format!(" to {remote}"),
            (_, None) => "; it reaches nothing beyond its domain".to_owned(),
        };
        writeln!(
            text,
            "          create {}: {kind} over {} from {local}{remote}",
            uplink.interface, tunnel.over
        )?;
    }
    for prefix in &uplink.prefixes {
        writeln!(text, "          {prefix} is routed here")?;
    }
    if let Some(delegation) = uplink.delegation {
        let length = delegation.length.map(|length| format!(", a /{length} if possible")).unwrap_or_default();
        writeln!(text, "          ask for prefixes by DHCPv6{length}")?;
    }
    if !uplink.probes.is_empty() {
        let hosts: Vec<_> = uplink.probes.iter().map(ToString::to_string).collect();
        writeln!(text, "          it counts as working while one of these answers: {}", hosts.join(", "))?;
    }
    if let Some(bandwidth) = &uplink.bandwidth {
        let sides = [(bandwidth.down_least, bandwidth.down, "in"), (bandwidth.up_least, bandwidth.up, "out")];
        let sides = sides.into_iter().filter_map(|(least, most, side)| {
            let least = least.map(|least| format!("{} to ", words::rate(least as f64))).unwrap_or_default();
            Some(format!("{least}{} {side}", words::rate(most? as f64)))
        });
        writeln!(text, "          keep queues short by CAKE: {}", sides.collect::<Vec<_>>().join(", "))?;
        if bandwidth.limits().is_some() {
            let host = bandwidth.reflector.map_or("its router".to_owned(), |host| host.to_string());
            writeln!(text, "          between two rates it follows how long {host} takes to answer")?;
        }
    }
    if uplink.masquerade {
        writeln!(text, "          masquerade IPv4 with the address of {}", uplink.interface)?;
    }
    Ok(())
}

fn write_network(text: &mut String, network: &Network) -> std::fmt::Result {
    write!(text, "Network   {} at {}", network.name, network.interface)?;
    match network.subnet {
        Some(number) => writeln!(text, ": subnet {number} of each prefix")?,
        None => writeln!(text)?,
    }
    for prefix in &network.prefixes {
        writeln!(text, "          {prefix}, always")?;
    }
    if let Some(ipv4) = network.ipv4 {
        writeln!(text, "          {ipv4} for IPv4")?;
    }
    let Some(advertise) = &network.advertise else {
        return writeln!(text, "          nothing is advertised there");
    };
    let dns = match &advertise.dns_servers {
        DnsServers::FromUplinks => "those of the uplinks".to_owned(),
        DnsServers::Gateway => "the gateway itself".to_owned(),
        DnsServers::Fixed(servers) if servers.is_empty() => "none".to_owned(),
        DnsServers::Fixed(servers) => servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    };
    writeln!(text, "          advertise the prefixes; DNS servers: {dns}")
}

/// What hosts of a network ask the gateway for.
fn write_served(
    text: &mut String,
    site: &Site,
    network: &Network,
    policy: Option<&Policy>,
) -> std::fmt::Result {
    if let Some(dhcp) = &network.dhcp {
        let lease = words::duration(dhcp.lease.as_secs());
        writeln!(
            text,
            "          lease hosts IPv4 addresses from {} to {} for {lease}",
            dhcp.first, dhcp.last
        )?;
        for host in &dhcp.hosts {
            writeln!(text, "          {} has {} ({})", host.name, host.address, host.mac)?;
        }
    }
    if let (Some(domain), Some(resolver)) = (site.domain_of(network), &site.resolver) {
        let upstream = match &resolver.upstream {
            Upstream::Uplinks => "those that the uplinks announce".to_owned(),
            Upstream::Servers(servers) => {
                servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            }
            Upstream::Tls(servers) => {
                let servers: Vec<_> =
                    servers.iter().map(|server| format!("{} ({})", server.place, server.name)).collect();
                format!("{} by TLS", servers.join(", "))
            }
        };
        writeln!(
            text,
            "          resolve names: hosts here are HOST.{domain}; others are asked of {upstream}"
        )?;
        let others: Vec<_> =
            site.known_to(network, policy).filter_map(|other| site.domain_of(other)).collect();
        if !others.is_empty() {
            writeln!(text, "          and, as in this network, of {}", others.join(", "))?;
        }
    }
    if let Some(dhcp6) = &network.dhcp6 {
        if let Some(length) = dhcp6.delegate {
            writeln!(
                text,
                "          delegate a /{length} of each uplink's prefix to routers that ask (DHCPv6)"
            )?;
        }
        for host in &dhcp6.hosts {
            let low = std::net::Ipv6Addr::from_bits(host.host.into());
            writeln!(text, "          {} has {low} in each prefix (DHCPv6)", host.name)?;
        }
    }
    if let Some(limits) = &network.port_mapping {
        writeln!(
            text,
            "          open ports from {} on for hosts that ask (PCP, NAT-PMP): {} for each, {} at the longest",
            limits.lowest_port,
            limits.per_host,
            words::duration(limits.longest.as_secs())
        )?;
    }
    Ok(())
}

fn write_route(text: &mut String, route: &StaticRoute) -> std::fmt::Result {
    let via = route.via.map(|via| format!(" via {via}")).unwrap_or_default();
    writeln!(text, "Route     {}{via} at {}", route.to, route.interface)
}

fn write_forward(text: &mut String, forward: &Forward) -> std::fmt::Result {
    let ports: Vec<_> = forward.ports.iter().map(|ports| Service::from(*ports).to_string()).collect();
    let uplinks: Vec<_> = forward.uplinks.iter().map(|through| through.name.as_str()).collect();
    write!(
        text,
        "Forward   {}: {} at the address of {} to {forward}",
        forward.name,
        ports.join(", "),
        uplinks.join(", ")
    )?;
    match &forward.sources[..] {
        [] => writeln!(text),
        sources => {
            let sources: Vec<_> = sources.iter().map(ToString::to_string).collect();
            writeln!(text, ", from {} only", sources.join(", "))
        }
    }
}
