//! What the kernel should have: the addresses and routes of a site, and what is advertised on its networks, from what is
//! known of its uplinks.
//!
//! It is computed anew whenever something changes, and compared with what is there; so a prefix that goes away takes its
//! addresses, its routes and its advertisements along, whatever made it go.
//!
//! - Each network has one /64 of each prefix of each uplink. A prefix leads to its own uplink only, because no other
//!   provider takes packets from it (RFC 2827): default routes are by source, and where the uplink has gone hosts are
//!   told that there is no route.
//! - Of several uplinks that work hosts prefer the prefix of the first one that has a preferred one for them; the others'
//!   are there and deprecated. When the first one fails, the next one's becomes preferred.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Instant;

use ipnet::{IpNet, Ipv6Net};

use crate::advertise::{Offer, OfferedPrefix, OfferedRoute};
use crate::delegation::LeasedPrefix;
use crate::hop_prefix::hop_prefix;
use crate::lifetime::Lifetime;
use crate::site::{Advertise, DnsServers, Network, RouterFrom, Site, Uplink};
use crate::transition::DomainRoute;
use crate::uplink::UplinkState;
use wire::ndp::Preference;

/// The metric of the route to a network of ours: before those that the kernel makes itself, 256, for addresses of others.
const METRIC_CONNECTED: u32 = 255;
/// The metric of the default route through the first uplink; each further one has [`METRIC_STEP`] more.
const METRIC: u32 = 512;
const METRIC_STEP: u32 = 16;
/// An uplink that does not answer comes behind all that do, and behind what others have set up.
const METRIC_SILENT: u32 = 100_000;
/// What is delegated and not used is unreachable (RFC 7084 WPD-5); every other route goes before.
const METRIC_UNUSED: u32 = u32::MAX - 1;

/// What there should be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Addresses of interfaces.
    pub addresses: Vec<Address>,
    /// Routes.
    pub routes: Vec<Route>,
    /// What is advertised, by the place of the network.
    pub offers: Vec<Option<Offer>>,
    /// What a tunnel hops in; none as long as its uplink has nothing for it.
    pub hop_prefix: Option<Ipv6Net>,
    /// What cannot be had.
    pub problems: Vec<Problem>,
}

/// What is configured and cannot be had now. The text is for whoever runs the gateway.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// An uplink's prefix is too long for the subnet of a network.
    #[error(
        "network {network}: {prefix} of uplink {uplink} has no subnet {subnet}: take a smaller `subnet`, or ask the \
         provider for a shorter prefix"
    )]
    NoSubnet {
        /// The network's name.
        network: String,
        /// The uplink's name.
        uplink: String,
        /// Its prefix.
        prefix: Ipv6Net,
        /// The subnet's number.
        subnet: u64,
    },
    /// A prefix that a provider claims is [not believed](crate::delegated_prefix).
    #[error("uplink {uplink}: its provider delegates {prefix}, which is left out: {why}")]
    RefusedPrefix {
        /// The uplink's name.
        uplink: String,
        /// The prefix.
        prefix: Ipv6Net,
        /// What is wrong with it.
        why: String,
    },
    /// An uplink's prefix has no part for the tunnel.
    #[error(
        "the tunnel cannot hop in {prefix} of uplink {uplink}, {why}: write another number after \"uplink:{uplink}/\", \
         give the networks other subnets, or ask the provider for a shorter prefix"
    )]
    NoHopPrefix {
        /// The uplink's name.
        uplink: String,
        /// Its prefix.
        prefix: Ipv6Net,
        /// What is in the way.
        why: String,
    },
}

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The interface.
    pub interface: String,
    /// The address, with the length of its network.
    pub address: IpNet,
    /// The gateway itself begins no connection from it later.
    pub preferred: Lifetime,
    /// It is gone later.
    pub valid: Lifetime,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// Where it leads.
    pub to: IpNet,
    /// Only for packets from there.
    pub from: Option<Ipv6Net>,
    /// The next hop; without one, senders are told that there is no route.
    pub via: Option<Via>,
    /// Of several the lowest is taken.
    pub metric: u32,
}

impl Route {
    /// Whether its router is one that somebody on a link has told, by an advertisement or in asking for a lease, and nobody has
    /// written down.
    #[must_use]
    pub fn is_learned(&self, site: &Site) -> bool {
        let Some(Via { interface, router: Some(router) }) = &self.via else { return false };
        let is_written = |uplink: &Uplink| match router {
            IpAddr::V4(router) => uplink.ipv4_router == Some(*router),
            IpAddr::V6(router) => uplink.router == RouterFrom::Address(*router),
        };
        let mut uplinks = site.uplinks.iter().filter(|uplink| uplink.interface == *interface);
        let mut routes = site.routes.iter().filter(|route| route.interface == *interface);
        !uplinks.any(is_written) && !routes.any(|route| route.to == self.to && route.via == Some(*router))
    }
}

/// How a route leads to its destination.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Via {
    /// The interface.
    pub interface: String,
    /// The next router.
    pub router: Option<IpAddr>,
}

/// What there should be now. `formerly` are prefixes that hosts behind an interface may have from earlier, some of them
/// rightly; packets from the others are answered with an error (RFC 7084, L-14).
pub fn plan(site: &Site, uplinks: &[&UplinkState], formerly: &[(&str, Ipv6Net)], now: Instant) -> Plan {
    let mut plan = Plan::default();
    uplink_routes(site, uplinks, &mut plan);
    plan.routes.extend(site.routes.iter().map(|route| Route {
        to: route.to,
        from: None,
        via: Some(Via { interface: route.interface.clone(), router: route.via }),
        metric: METRIC,
    }));
    // What leads to the translator ends with it. Without one, nothing is sent on that it was to translate.
    for to in site.nat64.iter().flat_map(|nat64| [IpNet::from(nat64.prefix.net()), nat64.pool.into()]) {
        plan.routes.push(Route { to, from: None, via: None, metric: METRIC_UNUSED });
    }
    for uplink in &site.uplinks {
        plan.addresses.extend(uplink.addresses.iter().map(|address| always(&uplink.interface, *address)));
    }
    for network in &site.networks {
        let prefixes = prefixes_of(network, site, uplinks, now, &mut plan.problems);
        plan.addresses.extend(prefixes.iter().map(|leased| Address {
            interface: network.interface.clone(),
            address: IpNet::V6(gateway_address(network, leased.prefix)),
            preferred: leased.preferred,
            valid: leased.valid,
        }));
        plan.addresses.extend(network.ipv4.map(|address| always(&network.interface, address.into())));
        let offer = network.advertise.as_ref().map(|advertise| {
            let translated = site.nat64.as_ref().map(|nat64| nat64.prefix);
            let offered = offer(network, advertise, &prefixes, uplinks);
            let way = translated
                .map(|prefix| OfferedRoute { prefix: prefix.net(), preference: Preference::Medium });
            let routes = offered.routes.into_iter().chain(way).collect();
            Offer { nat64: offered.nat64.or(translated), routes, ..offered }
        });
        plan.offers.push(offer);
    }
    plan.hop_prefix = hop_prefix(site, uplinks, now, &mut plan.problems);
    invalidated_routes(formerly, uplinks, &mut plan);
    link_addresses(site, uplinks, now, &mut plan);
    // First: routers that other routes name are on these networks.
    let connected: Vec<Route> = plan.addresses.iter().filter_map(|address| connected(address, now)).collect();
    plan.routes.splice(..0, connected);
    plan
}

/// The route to the network of an address that ends some time. The kernel's own would stay until then, even if the
/// address is withdrawn before or its network moves to another interface; those of other addresses go with them.
fn connected(address: &Address, now: Instant) -> Option<Route> {
    let is_for_good = (address.preferred, address.valid) == (Lifetime::Infinite, Lifetime::Infinite);
    let is_of_network = address.address.prefix_len() < address.address.max_prefix_len();
    let via = Some(Via { interface: address.interface.clone(), router: None });
    let route = Route { to: address.address.trunc(), from: None, via, metric: METRIC_CONNECTED };
    (!is_for_good && is_of_network && !address.valid.is_expired(now)).then_some(route)
}

/// The /64 with that number in a prefix, if it has so many.
pub fn subnet(prefix: Ipv6Net, number: u64) -> Option<Ipv6Net> {
    let spare = 64u32.checked_sub(prefix.prefix_len().into())?;
    let fits = number.checked_shr(spare).unwrap_or(0) == 0;
    let bits = prefix.network().to_bits() | u128::from(number) << 64;
    fits.then(|| Ipv6Net::new(Ipv6Addr::from_bits(bits), 64).ok()).flatten()
}

/// From a prefix that is no more of the site there is no way.
fn invalidated_routes(formerly: &[(&str, Ipv6Net)], uplinks: &[&UplinkState], plan: &mut Plan) {
    let is_ours = |prefix: &Ipv6Net| {
        let inner = plan.addresses.iter().any(|address| address.address.trunc() == IpNet::V6(*prefix));
        let mut leased = uplinks.iter().flat_map(|state| state.prefixes());
        inner || leased.any(|leased| leased.prefix.contains(prefix))
    };
    // One that has moved from a network to another: hosts of the first are told.
    let gone: BTreeMap<Ipv6Net, &str> = formerly
        .iter()
        .rev()
        .filter(|(_, prefix)| !is_ours(prefix))
        .map(|(at, prefix)| (*prefix, *at))
        .collect();
    for (prefix, interface) in gone {
        plan.routes.extend(no_way_from(prefix, Via { interface: interface.to_owned(), router: None }));
    }
}

/// Whoever is there by this way, and sends from a prefix that is no more of the site, is answered with an error: what comes
/// from where nothing leads to is dropped, and nobody would know where the error is to go.
#[must_use]
pub fn no_way_from(prefix: Ipv6Net, via: Via) -> [Route; 2] {
    [
        Route { to: prefix.into(), from: None, via: Some(via), metric: METRIC_UNUSED },
        Route { to: Ipv6Net::default().into(), from: Some(prefix), via: None, metric: METRIC_UNUSED },
    ]
}

/// The gateway's own addresses on the links of its uplinks, and what is a neighbor there. A prefix of a network of ours, or
/// of one behind a tunnel, is none of theirs, whatever somebody advertises.
fn link_addresses(site: &Site, uplinks: &[&UplinkState], now: Instant, plan: &mut Plan) {
    let overlap = |a: &IpNet, b: &IpNet| a.contains(b) || b.contains(a);
    let inner: Vec<IpNet> = plan.addresses.iter().map(|address| address.address.trunc()).collect();
    for (uplink, state) in site.uplinks.iter().zip(uplinks) {
        for (own, known) in state.link_prefixes() {
            let prefix = IpNet::V6(known.prefix);
            // The link itself may well be within a larger network behind a tunnel.
            let is_taken = inner.iter().any(|inner| overlap(inner, &prefix))
                || site.elsewhere.iter().any(|elsewhere| prefix.contains(elsewhere));
            if is_taken || known.valid.is_expired(now) {
                continue;
            }
            // An address whose network is on the link has the route of `connected`.
            let length = if known.on_link { known.prefix.prefix_len() } else { 128 };
            let own = own.and_then(|own| Ipv6Net::new(own, length).ok());
            let via = Some(Via { interface: uplink.interface.clone(), router: None });
            let route = Route { to: prefix, from: None, via, metric: METRIC_CONNECTED };
            plan.routes.extend((known.on_link && own.is_none()).then_some(route));
            plan.addresses.extend(own.map(|own| Address {
                interface: uplink.interface.clone(),
                address: own.into(),
                preferred: known.preferred,
                valid: known.valid,
            }));
        }
    }
}

fn always(interface: &str, address: IpNet) -> Address {
    Address {
        interface: interface.to_owned(),
        address,
        preferred: Lifetime::Infinite,
        valid: Lifetime::Infinite,
    }
}

fn gateway_address(network: &Network, prefix: Ipv6Net) -> Ipv6Net {
    let host = u128::from(network.host) & prefix.hostmask().to_bits();
    let address = Ipv6Addr::from_bits(prefix.network().to_bits() | host);
    Ipv6Net::new(address, prefix.prefix_len()).unwrap_or(prefix)
}

fn uplink_routes(site: &Site, uplinks: &[&UplinkState], plan: &mut Plan) {
    let everywhere = IpNet::V6(Ipv6Net::default());
    for (place, (uplink, state)) in site.uplinks.iter().zip(uplinks).enumerate() {
        let silent = if state.is_silent() { METRIC_SILENT } else { 0 };
        let metric = METRIC + METRIC_STEP * place as u32 + silent;
        let via = |router: Option<IpAddr>| Some(Via { interface: uplink.interface.clone(), router });
        // IPv4 through IPv6 has no IPv6 of its own; 6to4 without a relay, and a relay of 6rd, reach their domain alone.
        if uplink.carries_ipv4() && state.link_up() {
            let to = IpNet::V4(ipnet::Ipv4Net::default());
            plan.routes.push(Route { to, from: None, via: via(None), metric });
        }
        if let (Some(DomainRoute { prefix, any_source }), true) = (state.domain_route(), state.link_up()) {
            let route = |from| Route { to: prefix.into(), from, via: via(None), metric };
            match any_source {
                true => plan.routes.push(route(None)),
                false => plan.routes.extend(state.prefixes().map(|leased| route(Some(leased.prefix)))),
            }
        }
        let router = state.router().map(|router| router.address.map(IpAddr::V6));
        plan.routes.extend(router.map(|router| Route {
            to: everywhere,
            from: None,
            via: via(router),
            metric,
        }));
        for leased in state.prefixes() {
            let unused = Route { to: leased.prefix.into(), from: None, via: None, metric: METRIC_UNUSED };
            // Below the default route, which goes with its device, also when this process is killed: what is left then
            // for other sources leads to other providers.
            let nowhere =
                Route { to: everywhere, from: Some(leased.prefix), via: None, metric: METRIC_UNUSED };
            let default = router.map(|router| Route { via: via(router), metric, ..nowhere.clone() });
            plan.routes.extend([unused, nowhere].into_iter().chain(default));
        }
        if let Some(ipv4_router) = uplink.ipv4_router.filter(|_| state.link_up()) {
            let everywhere = IpNet::V4(ipnet::Ipv4Net::default());
            plan.routes.push(Route {
                to: everywhere,
                from: None,
                via: via(Some(IpAddr::V4(ipv4_router))),
                metric,
            });
        }
    }
}

/// The prefixes of a network: its own, and a /64 of each of an uplink's.
fn prefixes_of(
    network: &Network,
    site: &Site,
    uplinks: &[&UplinkState],
    now: Instant,
    problems: &mut Vec<Problem>,
) -> Vec<LeasedPrefix> {
    let own = network.prefixes.iter().map(|prefix| LeasedPrefix {
        prefix: prefix.trunc(),
        preferred: Lifetime::Infinite,
        valid: Lifetime::Infinite,
    });
    let mut prefixes: Vec<LeasedPrefix> = own.collect();
    let Some(number) = network.subnet else { return prefixes };
    let mut of_uplinks = Vec::new();
    for (place, (uplink, state)) in site.uplinks.iter().zip(uplinks).enumerate() {
        for leased in state.prefixes() {
            match subnet(leased.prefix, number) {
                Some(prefix) => of_uplinks.push((place, LeasedPrefix { prefix, ..leased })),
                None => problems.push(Problem::NoSubnet {
                    network: network.name.clone(),
                    uplink: uplink.name.clone(),
                    prefix: leased.prefix,
                    subnet: number,
                }),
            }
        }
    }
    // One that works and has nothing for this network leaves hosts the next one's.
    let usable = |(place, leased): &&(usize, LeasedPrefix)| {
        uplinks[*place].leads_ipv6() && !leased.preferred.is_expired(now)
    };
    let taken = of_uplinks.iter().find(usable).map(|(place, _)| *place);
    prefixes.extend(of_uplinks.into_iter().map(|(place, leased)| match taken {
        Some(taken) if taken != place => LeasedPrefix { preferred: Lifetime::Expired, ..leased },
        // Where no uplink works all is as it was: hosts need not change before there is something better.
        _ => leased,
    }));
    prefixes
}

fn offer(
    network: &Network,
    advertise: &Advertise,
    prefixes: &[LeasedPrefix],
    uplinks: &[&UplinkState],
) -> Offer {
    let working = || uplinks.iter().filter(|state| state.leads_ipv6());
    // Where 6to4 leads nowhere else, hosts are told of it all the same.
    let domains = uplinks.iter().filter(|state| state.link_up()).filter_map(|state| state.domain_route());
    let domains = domains.filter(|route| !route.any_source).map(|route| route.prefix);
    let default_router = working().filter_map(|state| state.router().map(|router| router.lifetime)).max();
    let dns_servers = match &advertise.dns_servers {
        DnsServers::Fixed(servers) => servers.clone(),
        DnsServers::Gateway => {
            let usable = prefixes.iter().rev().max_by_key(|leased| (leased.preferred, leased.valid));
            usable.map(|leased| gateway_address(network, leased.prefix).addr()).into_iter().collect()
        }
        DnsServers::FromUplinks => {
            let servers = working().flat_map(|state| state.dns_servers());
            let mut servers: Vec<_> = servers.filter(reached_from_elsewhere).collect();
            let mut seen = Vec::new();
            servers.retain(|server| {
                !seen.contains(server) && {
                    seen.push(*server);
                    true
                }
            });
            servers
        }
    };
    Offer {
        default_router,
        prefixes: prefixes
            .iter()
            .map(|leased| OfferedPrefix {
                prefix: leased.prefix,
                preferred: leased.preferred,
                valid: leased.valid,
                on_link: true,
                autonomous: leased.prefix.prefix_len() == 64,
            })
            .collect(),
        routes: advertise
            .routes
            .iter()
            .copied()
            .chain(domains)
            .map(|prefix| OfferedRoute { prefix, preference: Preference::Medium })
            .collect(),
        dns_servers,
        search_domains: advertise.search_domains.clone(),
        nat64: advertise.nat64,
        mtu: advertise.mtu,
    }
}

/// Whether hosts of another link can ask it: a link-local DNS server is one for its own link (RFC 8106 section 5.1).
fn reached_from_elsewhere(server: &Ipv6Addr) -> bool {
    !(server.is_unicast_link_local()
        || server.is_loopback()
        || server.is_unspecified()
        || server.is_multicast())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{plan as plan_of, *};
    use crate::delegation::Lease;
    use crate::site::{Probing, StaticRoute};
    use crate::transition::{Domain, Kind, Tunnel};
    use crate::uplink::Reachability;
    use proptest::prelude::*;
    use wire::ndp::{AdvertisedOption, RouterAdvertisement};

    fn net(text: &str) -> Ipv6Net {
        text.parse().unwrap()
    }

    fn uplink(name: &str, prefix: &str) -> Uplink {
        Uplink {
            name: name.into(),
            interface: name.into(),
            router: RouterFrom::Advertisements,
            addresses: Vec::new(),
            prefixes: vec![net(prefix)],
            delegation: None,
            probes: vec!["2001:db8:ffff::1".parse().unwrap()],
            ipv4_router: None,
            masquerade: false,
            tunnel: None,
            bandwidth: None,
        }
    }

    fn site() -> Site {
        let network = Network {
            name: "lan".into(),
            interface: "lan0".into(),
            subnet: Some(2),
            host: 1,
            prefixes: vec![net("fd00:1::/64")],
            ipv4: Some("192.168.1.1/24".parse().unwrap()),
            advertise: Some(Advertise { dns_servers: DnsServers::Gateway, ..Advertise::default() }),
            resolves: false,
            dhcp: None,
            dhcp6: None,
            port_mapping: None,
        };
        let uplinks = vec![uplink("fibre", "2001:db8:a00::/56"), uplink("cable", "2001:db8:b00::/56")];
        Site { uplinks, networks: vec![network], routes: Vec::new(), ..Site::default() }
    }

    fn plan(site: &Site, uplinks: &[UplinkState]) -> Plan {
        plan_of(site, &uplinks.iter().collect::<Vec<_>>(), &[], Instant::now())
    }

    /// The same site, whose first uplink is a tunnel of this kind.
    fn over_tunnel(kind: Kind) -> Site {
        let mut site = site();
        let tunnel = Tunnel { kind, over: "eth0".into(), local: None, mtu: None, hop_limit: 64 };
        site.uplinks[0].tunnel = Some(tunnel);
        site.uplinks[0].router = RouterFrom::PointToPoint;
        site
    }

    #[test]
    fn ipv4_in_ipv6_is_a_way_for_ipv4_and_no_uplink_for_hosts_of_ipv6() {
        let site = over_tunnel(Kind::FourInSix { remote: Some(Ipv6Addr::LOCALHOST) });
        let mut states = states(&site);
        states[0].set_link(true, Instant::now());
        assert!(states[0].works() && !states[0].leads_ipv6());
        let plan = plan(&site, &states);
        let everywhere = IpNet::V4(ipnet::Ipv4Net::default());
        let via = Some(Via { interface: "fibre".into(), router: None });
        assert!(plan.routes.contains(&Route { to: everywhere, from: None, via, metric: METRIC }));
        assert_eq!(route(&plan, None), None);
        assert_eq!(plan.offers[0].as_ref().unwrap().default_router, None);
    }

    #[test]
    fn a_domain_without_a_way_out_is_reached_from_its_own_prefix_alone() {
        let site = over_tunnel(Kind::Automatic(Domain::six_to_four(None)));
        let mut states = states(&site);
        states[0].set_link(true, Instant::now());
        for any_source in [false, true] {
            let domain = net("2002::/16");
            states[0].set_domain_route(Some(DomainRoute { prefix: domain, any_source }));
            assert!(!states[0].works());
            let plan = plan(&site, &states);
            let to_domain: Vec<_> = plan.routes.iter().filter(|route| route.to == domain.into()).collect();
            let from = (!any_source).then(|| net("2001:db8:a00::/56"));
            assert_eq!(to_domain.iter().map(|route| route.from).collect::<Vec<_>>(), [from]);
            assert_eq!(route(&plan, Some("2001:db8:a00::/56")).unwrap().via, None);
            let told: Vec<_> =
                plan.offers[0].as_ref().unwrap().routes.iter().map(|route| route.prefix).collect();
            assert_eq!(told, if any_source { vec![] } else { vec![domain] });
        }
    }

    fn states(site: &Site) -> Vec<UplinkState> {
        site.uplinks.iter().map(|uplink| UplinkState::new(uplink, Probing::default())).collect()
    }

    fn advertisement(router_lifetime: u16) -> RouterAdvertisement {
        RouterAdvertisement {
            hop_limit: 64,
            managed: false,
            other_configuration: false,
            preference: Preference::Medium,
            router_lifetime,
            reachable_time: 0,
            retransmission_timer: 0,
            options: Vec::new(),
        }
    }

    fn comes_up(state: &mut UplinkState, now: Instant) {
        state.set_link(true, now);
        assert!(state.handle_advertisement("fe80::1".parse().unwrap(), &advertisement(1_800), now));
    }

    /// The prefixes on offer, and whether each is preferred.
    fn offered(plan: &Plan, now: Instant) -> Vec<(String, bool)> {
        let offer = plan.offers[0].as_ref().unwrap();
        let shown =
            |offered: &OfferedPrefix| (offered.prefix.to_string(), !offered.preferred.is_expired(now));
        offer.prefixes.iter().map(shown).collect()
    }

    fn route<'a>(plan: &'a Plan, from: Option<&str>) -> Option<&'a Route> {
        let everywhere = |route: &&Route| route.to == IpNet::V6(Ipv6Net::default());
        let found = plan.routes.iter().filter(everywhere).filter(|route| route.from == from.map(net));
        found.min_by_key(|route| route.metric)
    }

    #[test]
    fn a_route_is_learned_unless_its_router_is_written_down() {
        let (mut site, now) = (site(), Instant::now());
        site.routes.push(StaticRoute {
            to: "2001:db8:c::/48".parse().unwrap(),
            via: Some("fe80::1".parse().unwrap()),
            interface: "fibre".into(),
        });
        let mut states = states(&site);
        comes_up(&mut states[0], now);
        let learned = |site: &Site| {
            let plan = plan(site, &states);
            let learned = plan.routes.into_iter().filter(|route| route.is_learned(site));
            learned.map(|route| route.from.is_some()).collect::<Vec<_>>()
        };
        assert_eq!(learned(&site), [false, true], "both default routes, and no other");
        site.uplinks[0].router = RouterFrom::Address("fe80::1".parse().unwrap());
        assert!(learned(&site).is_empty());
    }

    #[test]
    fn without_an_uplink_prefixes_stay_and_nobody_is_led_out() {
        let site = site();
        let plan = plan(&site, &states(&site));
        let now = Instant::now();
        let expected = [("fd00:1::/64", true), ("2001:db8:a00:2::/64", true), ("2001:db8:b00:2::/64", true)];
        assert_eq!(offered(&plan, now), expected.map(|(prefix, preferred)| (prefix.to_owned(), preferred)));
        assert_eq!(plan.offers[0].as_ref().unwrap().default_router, None);
        assert_eq!(route(&plan, None), None);
        assert_eq!(route(&plan, Some("2001:db8:a00::/56")).unwrap().via, None);
        let addresses: Vec<_> = plan.addresses.iter().map(|address| address.address.to_string()).collect();
        let expected = ["fd00:1::1/64", "2001:db8:a00:2::1/64", "2001:db8:b00:2::1/64", "192.168.1.1/24"];
        assert_eq!(addresses, expected);
    }

    #[test]
    fn hosts_change_to_the_second_uplink_when_the_first_fails_and_back() {
        let (site, now) = (site(), Instant::now());
        let mut states = states(&site);
        comes_up(&mut states[0], now);
        comes_up(&mut states[1], now);
        let preferred = |states: &[UplinkState]| {
            offered(&plan(&site, states), now).iter().map(|(_, preferred)| *preferred).collect::<Vec<_>>()
        };
        assert_eq!(preferred(&states), [true, true, false]);
        assert_eq!(route(&plan(&site, &states), None).unwrap().via.as_ref().unwrap().interface, "fibre");
        states[0].begin_probe();
        for _ in 0..2 {
            assert!(!states[0].handle_probe(false));
        }
        assert!(states[0].handle_probe(false), "the third lost probe decides");
        assert_eq!(preferred(&states), [true, false, true]);
        let after = plan(&site, &states);
        assert_eq!(route(&after, None).unwrap().via.as_ref().unwrap().interface, "cable");
        assert_eq!(
            route(&after, Some("2001:db8:a00::/56")).unwrap().via.as_ref().unwrap().interface,
            "fibre"
        );
        for _ in 0..3 {
            states[0].handle_probe(true);
        }
        assert_eq!(preferred(&states), [true, true, false]);
        states[0].set_link(false, now);
        assert_eq!(preferred(&states), [true, false, true]);
        assert_eq!(route(&plan(&site, &states), Some("2001:db8:a00::/56")).unwrap().via, None);
    }

    /// A device goes with the process that has made it, or when somebody deletes it, and takes its routes along.
    #[test]
    fn without_its_uplinks_interface_a_prefix_leads_nowhere() {
        let (site, now) =
            (over_tunnel(Kind::SixInFour { remote: std::net::Ipv4Addr::LOCALHOST }), Instant::now());
        let mut states = states(&site);
        states[0].set_link(true, now);
        comes_up(&mut states[1], now);
        let mut plan = plan(&site, &states);
        let at = |interface: &str| Some(Via { interface: interface.into(), router: None });
        assert_eq!(route(&plan, Some("2001:db8:a00::/56")).unwrap().via, at("fibre"));
        plan.routes.retain(|route| route.via.as_ref().is_none_or(|via| via.interface != "fibre"));
        assert_eq!(route(&plan, None).unwrap().via.as_ref().unwrap().interface, "cable");
        assert_eq!(route(&plan, Some("2001:db8:a00::/56")).unwrap().via, None);
    }

    #[test]
    fn an_uplink_without_a_preferred_prefix_for_a_network_leaves_it_the_next_ones() {
        let (mut site, now) = (site(), Instant::now());
        site.uplinks[0].prefixes.clear();
        let mut states = states(&site);
        comes_up(&mut states[0], now);
        comes_up(&mut states[1], now);
        let other = ("2001:db8:b00:2::/64".to_owned(), true);
        assert_eq!(offered(&plan(&site, &states), now)[1..], *std::slice::from_ref(&other));
        let old = |preferred| Lease {
            iaid: 1,
            server: Vec::new(),
            prefixes: vec![LeasedPrefix {
                prefix: net("2001:db8:a00::/56"),
                preferred,
                valid: Lifetime::Infinite,
            }],
            renew: Lifetime::Infinite,
            rebind: Lifetime::Infinite,
            dns_servers: Vec::new(),
            aftr: None,
        };
        states[0].set_lease(Some(old(Lifetime::Until(now))));
        let ended = ("2001:db8:a00:2::/64".to_owned(), false);
        assert_eq!(offered(&plan(&site, &states), now)[1..], [ended, other]);
        states[0].set_lease(Some(old(Lifetime::Until(now + Duration::from_secs(60)))));
        let preferred = offered(&plan(&site, &states), now).into_iter().map(|(_, preferred)| preferred);
        assert_eq!(preferred.collect::<Vec<_>>(), [true, true, false]);
    }

    #[test]
    fn a_leased_prefix_takes_the_route_to_its_network_along() {
        let (mut site, now) = (site(), Instant::now());
        site.uplinks[0].prefixes.clear();
        let mut states = states(&site);
        let routed = |states: &[UplinkState]| {
            let plan = plan(&site, states);
            let on_lan = |route: &&Route| route.via.as_ref().is_some_and(|via| via.interface == "lan0");
            plan.routes.iter().filter(on_lan).map(|route| route.to.to_string()).collect::<Vec<_>>()
        };
        assert!(routed(&states).is_empty(), "the kernel has those of addresses for good");
        let until = Lifetime::Until(now + Duration::from_secs(3_600));
        let prefix = LeasedPrefix { prefix: net("2001:db8:a00::/56"), preferred: until, valid: until };
        let lease = Lease {
            iaid: 1,
            server: Vec::new(),
            prefixes: vec![prefix],
            renew: Lifetime::Infinite,
            rebind: Lifetime::Infinite,
            dns_servers: Vec::new(),
            aftr: None,
        };
        states[0].set_lease(Some(lease));
        assert_eq!(routed(&states), ["2001:db8:a00:2::/64"]);
        states[0].set_lease(None);
        assert!(routed(&states).is_empty());
    }

    #[test]
    fn a_prefix_that_was_withdrawn_is_answered_for() {
        let site = site();
        let states = states(&site);
        let states: Vec<_> = states.iter().collect();
        let ours = ["2001:db8:a00:2::/64", "2001:db8:a00:3::/64", "fd00:1::/64"].map(net);
        let gone = net("2001:db8:c00:2::/64");
        let formerly: Vec<_> = ours.iter().chain([&gone]).map(|prefix| ("lan0", *prefix)).collect();
        let plan = plan_of(&site, &states, &formerly, Instant::now());
        let to = |prefix: Ipv6Net| plan.routes.iter().find(move |route| route.to == prefix.into());
        assert_eq!(to(gone).and_then(|route| route.via.as_ref()).unwrap().interface, "lan0");
        let answered =
            |prefix| plan.routes.iter().any(|route| route.from == Some(prefix) && route.via.is_none());
        assert!(answered(gone));
        assert!(!ours.iter().any(|prefix| answered(*prefix)), "they are still ours");
    }

    #[test]
    fn what_is_advertised_on_an_uplink_is_no_network_of_ours() {
        let (site, now) = (site(), Instant::now());
        let mut states = states(&site);
        let option = |prefix: &str| {
            AdvertisedOption::Prefix(wire::ndp::PrefixInformation {
                prefix: net(prefix).addr(),
                prefix_length: net(prefix).prefix_len(),
                on_link: true,
                autonomous: true,
                valid_lifetime: 3_600,
                preferred_lifetime: 3_600,
            })
        };
        let options =
            ["2001:db8:a00:2::/64", "fd00:1::8000:0:0:0/65", "2001:db8:ff::/64"].map(option).to_vec();
        states[0].set_link(true, now);
        states[0].set_interface_identifier(Some(7));
        let content = RouterAdvertisement { options, ..advertisement(1_800) };
        states[0].handle_advertisement("fe80::1".parse().unwrap(), &content, now);
        let plan = plan(&site, &states);
        let at_uplink = plan.addresses.iter().filter(|address| address.interface == "fibre");
        assert_eq!(
            at_uplink.map(|address| address.address.to_string()).collect::<Vec<_>>(),
            ["2001:db8:ff::7/64"]
        );
        let neighbors = |route: &&Route| route.via == Some(Via { interface: "fibre".into(), router: None });
        let neighbors = plan.routes.iter().filter(neighbors).map(|route| route.to.to_string());
        assert_eq!(neighbors.collect::<Vec<_>>(), ["2001:db8:ff::/64"]);
    }

    #[test]
    fn dns_servers_that_only_the_gateway_can_ask_are_not_passed_on() {
        let (mut site, now) = (site(), Instant::now());
        site.networks[0].advertise = Some(Advertise::default());
        let mut states = states(&site);
        let servers = ["fe80::1", "::1", "::", "ff02::fb", "2001:db8:ffff::53"];
        let option = AdvertisedOption::DnsServers {
            lifetime: 600,
            servers: servers.map(|server| server.parse().unwrap()).to_vec(),
        };
        states[0].set_link(true, now);
        let content = RouterAdvertisement { options: vec![option], ..advertisement(1_800) };
        assert!(states[0].handle_advertisement("fe80::1".parse().unwrap(), &content, now));
        let told = plan(&site, &states).offers[0].as_ref().unwrap().dns_servers.clone();
        assert_eq!(told, ["2001:db8:ffff::53".parse::<Ipv6Addr>().unwrap()]);
    }

    #[test]
    fn a_router_that_is_silent_too_long_is_none() {
        let (site, now) = (site(), Instant::now());
        let mut states = states(&site);
        comes_up(&mut states[0], now);
        let end = now + Duration::from_secs(1_800);
        assert_eq!(states[0].deadline(), Some(end));
        assert!(!states[0].expire(end - Duration::from_secs(1)));
        assert!(states[0].expire(end) && !states[0].works());
    }

    #[test]
    fn a_router_keeps_its_place_until_a_preferred_one_comes() {
        let (site, now) = (site(), Instant::now());
        let mut state = UplinkState::new(&site.uplinks[0], Probing::default());
        comes_up(&mut state, now);
        let second = "fe80::2".parse().unwrap();
        assert!(!state.handle_advertisement(second, &advertisement(1_800), now), "another is taken");
        assert!(!state.handle_advertisement("fe80::1".parse().unwrap(), &advertisement(1_800), now));
        assert_eq!(state.router().unwrap().address, Some("fe80::1".parse().unwrap()));
        let preferred = RouterAdvertisement { preference: Preference::High, ..advertisement(1_800) };
        state.handle_advertisement(second, &preferred, now);
        assert_ne!(state.router().unwrap().address, Some(second), "nor until it answers");
        state.set_reachability(second, Reachability::Reachable);
        assert_eq!(state.router().unwrap().address, Some(second));
        state.handle_advertisement(second, &advertisement(0), now);
        assert_eq!(state.router().unwrap().address, Some("fe80::1".parse().unwrap()));
    }

    #[test]
    fn a_prefix_without_that_subnet_is_a_problem_in_words() {
        let mut site = site();
        site.networks[0].subnet = Some(256);
        let plan = plan(&site, &states(&site));
        assert_eq!(plan.problems.len(), 2);
        assert!(plan.problems[0].to_string().contains("2001:db8:a00::/56 of uplink fibre has no subnet 256"));
    }

    proptest! {
        #[test]
        fn subnets_are_distinct_and_within(bits: u128, length in 0..=128u8, a: u64, b: u64) {
            let prefix = Ipv6Net::new(Ipv6Addr::from_bits(bits), length).unwrap().trunc();
            let (first, second) = (subnet(prefix, a), subnet(prefix, b));
            for found in [first, second].into_iter().flatten() {
                prop_assert!(prefix.contains(&found) && found.prefix_len() == 64);
            }
            prop_assert!(first.is_none() || first != second || a == b);
            prop_assert_eq!(subnet(prefix, 0).is_some(), length <= 64);
        }
    }
}
