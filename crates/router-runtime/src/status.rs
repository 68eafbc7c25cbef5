//! What a router says about itself: [`control::router_status`], filled.

use std::net::IpAddr;
use std::time::Instant;

use control::router_status::{
    Address, Bandwidth, Forward, Nat64, Neighbor, Network, PortMapping, Prefix, Rogue, Route, Status, Tunnel,
    Uplink, Wait,
};
use ipnet::Ipv6Net;
use router::firewall::service::Service;
use router::lifetime::Lifetime;
use router::nat64::Prefix as TranslatorPrefix;
use router::pcp::{Internal, Mapping};

use super::router::Router;
use super::{dhcp6, nat, nat64, network, transition, uplink};

impl Router {
    /// The status now.
    pub(super) fn status(&mut self, now: Instant) -> Status {
        let uplinks = uplinks(self, now);
        let addresses = self.plan.addresses.iter().map(|address| Address {
            interface: address.interface.clone(),
            address: address.address,
            preferred_seconds: seconds(address.preferred, now),
            valid_seconds: seconds(address.valid, now),
        });
        let routes = self.plan.routes.iter().map(|route| Route {
            to: route.to,
            from: route.from,
            interface: route.via.as_ref().map(|via| via.interface.clone()),
            via: route.via.as_ref().and_then(|via| via.router),
            metric: route.metric,
        });
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: now.saturating_duration_since(self.started).as_secs(),
            uplinks,
            networks: self.networks.iter().map(|interface| network(self, interface, now)).collect(),
            addresses: addresses.collect(),
            routes: routes.collect(),
            nat64: translator(self),
            flows: self.flows.status(),
            flow_offload: self.kernel.offload.status(&self.site),
            hop_prefix: self.plan.hop_prefix,
            problems: self.problems.clone(),
            neighbors: neighbors(self),
            forwards: forwards(self),
            port_mappings: port_mappings(self, now),
            delegated_prefixes: self.dhcp6.status(now),
            dns_over_tls: self.stubby.status(&self.site),
            // The kernel and the tunnel tell the rest: see `traffic`.
            firewall: None,
            connections: 0,
            talkers: Vec::new(),
            talkers_incomplete: None,
            peers: Vec::new(),
        }
    }
}

fn uplinks(router: &mut Router, now: Instant) -> Vec<Uplink> {
    let kernel = &mut router.kernel;
    let all = router.uplinks.iter().map(|interface| {
        let carrier = router.tunnels.iter().find(|tunnel| tunnel.is_of(&interface.uplink));
        let mut uplink = uplink(interface, carrier, now);
        let bandwidth = kernel.shaping.status(&interface.uplink, &router.links, &mut kernel.netlink);
        let delay = router.lines.status(&interface.uplink, now);
        uplink.bandwidth = bandwidth.map(|bandwidth| Bandwidth { delay, ..bandwidth });
        uplink
    });
    all.collect()
}

fn uplink(interface: &uplink::Interface, carrier: Option<&transition::Interface>, now: Instant) -> Uplink {
    let state = &interface.state;
    let prefixes = state.prefixes().map(|leased| prefix(leased.prefix, leased.preferred, leased.valid, now));
    Uplink {
        name: interface.uplink.name.clone(),
        interface: interface.uplink.interface.clone(),
        link_up: state.link_up(),
        works: state.works(),
        probes_answered: (!interface.uplink.probes.is_empty()).then(|| state.answers()),
        router: state.router().and_then(|router| router.address),
        router_seconds: state.router().and_then(|router| seconds(router.lifetime, now)),
        prefixes: prefixes.collect(),
        waits_for_prefix: interface.waits_for_prefix().map(|wait| Wait {
            seconds: now.saturating_duration_since(wait.since).as_secs(),
            status: wait.status.map(|status| status.to_string()),
            why: wait.why,
        }),
        dns_servers: state.dns_servers(),
        tunnel: carrier.map(tunnel),
        // The kernel tells.
        bandwidth: None,
    }
}

fn tunnel(interface: &transition::Interface) -> Tunnel {
    let traffic = interface.traffic();
    let (rx_packets, rx_bytes) = traffic.rx;
    let (tx_packets, tx_bytes) = traffic.tx;
    Tunnel {
        kind: interface.tunnel.kind.name().to_owned(),
        over: interface.tunnel.over.clone(),
        local: interface.end.as_ref().map(|end| end.local),
        remote: interface.end.as_ref().map_or(&interface.tunnel.kind, |end| &end.kind).remote(),
        plat_prefix: interface.end.as_ref().and_then(|end| end.kind.plat()).map(TranslatorPrefix::net),
        plat_from: interface.plat_from().map(str::to_owned),
        mtu: interface.mtu,
        rx_packets,
        rx_bytes,
        tx_packets,
        tx_bytes,
        drops: traffic.refused.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
    }
}

fn translator(router: &Router) -> Option<Nat64> {
    let configured = router.site.nat64.as_ref()?;
    let counts = router.translator.as_ref().map(nat64::Interface::counts).unwrap_or_default();
    Some(Nat64 {
        prefix: configured.prefix.net(),
        pool: configured.pool,
        hosts: counts.hosts,
        works: router.translator.is_some(),
        to_ipv4_packets: counts.to_ipv4_packets,
        to_ipv4_bytes: counts.to_ipv4_bytes,
        to_ipv6_packets: counts.to_ipv6_packets,
        to_ipv6_bytes: counts.to_ipv6_bytes,
        drops: nat64::refused(&counts).map(|(name, count)| (name.to_owned(), count)).collect(),
    })
}

fn network(router: &Router, interface: &network::Interface, now: Instant) -> Network {
    let offer = interface.offer();
    let prefixes = offer.iter().flat_map(|offer| &offer.prefixes);
    let prefixes = prefixes.map(|offered| prefix(offered.prefix, offered.preferred, offered.valid, now));
    let rogues = interface.rogues.rogues(now).map(|rogue| Rogue {
        address: rogue.address,
        mac: rogue.mac.to_string(),
        default_router: rogue.default_router,
        prefixes: rogue.prefixes.clone(),
        dns_servers: rogue.dns_servers.clone(),
        heard_seconds_ago: now.saturating_duration_since(rogue.last_heard).as_secs(),
    });
    Network {
        name: interface.network.name.clone(),
        interface: interface.network.interface.clone(),
        link_up: interface.link_up,
        advertises: offer.is_some(),
        default_router: offer.is_some_and(|offer| offer.default_router.is_some()),
        prefixes: prefixes.collect(),
        dns_servers: offer.map(|offer| offer.dns_servers.clone()).unwrap_or_default(),
        advertisements_sent: interface.sent,
        solicitations_received: interface.solicited,
        rogue_routers: rogues.collect(),
        dnsmasq: router.dnsmasqs.status(&router.site, &interface.network),
        dhcp6: dhcp6::status_of(&interface.network, &router.plan),
        port_mappings: interface.network.port_mapping.map(|_| {
            let own = router.port_mapping.mappings().filter(|(_, of)| of.network == interface.network.name);
            own.count() as u64
        }),
    }
}

/// What is forwarded, and where that is reached now.
fn forwards(router: &mut Router) -> Vec<Forward> {
    let now = router.kernel.uplinks_now(&router.site, &router.links).unwrap_or_default();
    let forward = |forward: &router::forward::Forward| {
        let through = router.site.uplinks.iter().zip(&now);
        let through = through.filter(|(uplink, _)| nat::is_through(forward, uplink));
        Forward {
            name: forward.name.clone(),
            uplinks: forward.uplinks.iter().map(|through| through.name.clone()).collect(),
            addresses: through.flat_map(|(_, now)| now.addresses.clone()).collect(),
            ports: forward.ports.iter().map(|ports| Service::from(*ports).to_string()).collect(),
            to: forward.to.into(),
            to_port: forward.to_port,
            connections: 0,
        }
    };
    router.site.forwards.iter().map(forward).collect()
}

/// What hosts have asked for.
fn port_mappings(router: &Router, now: Instant) -> Vec<PortMapping> {
    let external = router.port_mapping.external();
    let mapping = |(internal, mapping): (&Internal, &Mapping)| PortMapping {
        network: mapping.network.clone(),
        protocol: internal.transport.to_string(),
        address: internal.address,
        port: internal.port,
        external_address: match internal.address {
            IpAddr::V4(_) => external.map(IpAddr::V4),
            own => Some(own),
        },
        external_port: mapping.external_port,
        from: mapping
            .peers
            .iter()
            .map(|(net, port)| match port {
                0 => net.to_string(),
                port => format!("{net} port {port}"),
            })
            .collect(),
        asked_by: if mapping.nonce.is_some() { "PCP" } else { "NAT-PMP" }.to_owned(),
        seconds: mapping.seconds(now).into(),
    };
    router.port_mapping.mappings().map(mapping).collect()
}

/// Who is on the inner links, as far as the kernel knows.
fn neighbors(router: &mut Router) -> Vec<Neighbor> {
    let mut neighbors = Vec::new();
    for network in &router.networks {
        let interface = &network.network.interface;
        let index = crate::link::index_of(&router.links, interface);
        let found = index.and_then(|index| router.kernel.netlink.neighbors(index).ok()).unwrap_or_default();
        neighbors.extend(found.into_iter().filter_map(|neighbor| {
            let mac = neighbor.mac.filter(|_| !neighbor.address.is_multicast())?.to_string();
            Some(Neighbor { interface: interface.clone(), address: neighbor.address, mac })
        }));
    }
    neighbors.sort_by_key(|neighbor| neighbor.address);
    neighbors
}

fn prefix(prefix: Ipv6Net, preferred: Lifetime, valid: Lifetime, now: Instant) -> Prefix {
    Prefix { prefix, preferred_seconds: seconds(preferred, now), valid_seconds: seconds(valid, now) }
}

fn seconds(lifetime: Lifetime, now: Instant) -> Option<u64> {
    lifetime.remaining(now).map(|left| left.as_secs())
}
