//! Hosts and routers that ask by DHCPv6 ([`router::dhcp6`]): a socket at each network where they get anything.
//!
//! As for ports that hosts ask for, a socket is bound to its network's interface. What was given away is remembered with the
//! uplinks' leases; the routes to it are planned with all others.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Instant;

use control::router_status as status;
use ipnet::{IpNet, Ipv6Net};
use linux::event::{Interest, Poller};
use linux::netlink::{Link as KernelLink, Netlink};
use linux::udp::{EndpointOptions, HostSocket, Segmentation};
use router::advertise::VALID_LIMIT;
use router::delegation::LeasedPrefix;
use router::dhcp6::{Delegated, Link, Pool, Server};
use router::plan::{Address, Plan, Route, Via, no_way_from};
use router::site::{Network, Site};
use router::uplink::UplinkState;
use wire::dhcpv6::{ALL_SERVERS, SERVER_PORT};

use crate::link::{BATCH, index_of};
use crate::random::Uuid;

/// Tokens of the sockets, beside those of interfaces and of port mapping.
const FIRST_TOKEN: u64 = 1 << 33;
/// No message is longer that fits the smallest link of IPv6.
const LONGEST: usize = 1_500;
/// What leads to a router behind comes behind what is connected.
const METRIC: u32 = 512;
/// Of so many parts that the uplinks have lost hosts behind are told, of the last ones.
const MOST_LOST: usize = 256;

/// The server and its sockets.
pub(super) struct Dhcp6 {
    server: Server,
    /// Parts that routers behind have, and the ways there, as they were planned last.
    parts: Vec<(Ipv6Net, Via)>,
    /// Such as uplinks have lost since, until no host behind can have them any more.
    lost: Vec<(Ipv6Net, Via, Instant)>,
    sockets: Vec<Socket>,
    next_token: u64,
}

struct Socket {
    network: String,
    index: u32,
    token: u64,
    socket: HostSocket,
}

impl Dhcp6 {
    /// Goes on with what was given away.
    pub(super) fn new(uuid: &Uuid, leases: Vec<Delegated>) -> Self {
        let duid = [&[0, 4][..], uuid].concat();
        Dhcp6 {
            server: Server::new(duid, leases),
            parts: Vec::new(),
            lost: Vec::new(),
            sockets: Vec::new(),
            next_token: FIRST_TOKEN,
        }
    }

    /// What was given away.
    pub(super) fn leases(&self) -> &[Delegated] {
        self.server.leases()
    }

    /// When [`Dhcp6::plan`] has something to take back.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.server.deadline()
    }

    /// Adds the routes to routers behind to what is planned, and ends what is over.
    pub(super) fn plan(&mut self, site: &Site, uplinks: &[&UplinkState], plan: &mut Plan, now: Instant) {
        self.server.set_pool(Pool::new(site, uplinks, plan));
        self.server.retain(|_| true, now);
        let mut parts = Vec::new();
        for lease in self.server.leases() {
            let Some(network) = network_of(lease, site) else { continue };
            let router = Some(IpAddr::V6(lease.router));
            let via = Via { interface: network.interface.clone(), router };
            parts.extend(self.server.prefixes(lease, now).iter().map(|part| (part.prefix, via.clone())));
        }
        plan.routes.extend(parts.iter().map(|(part, via)| Route {
            to: (*part).into(),
            from: None,
            via: Some(via.clone()),
            metric: METRIC,
        }));
        let before = std::mem::replace(&mut self.parts, parts);
        self.lost.extend(before.into_iter().map(|(part, via)| (part, via, now + VALID_LIMIT)));
        self.lost.retain(|(part, via, until)| {
            let is_there = site.networks.iter().any(|network| network.interface == via.interface);
            let mut had = uplinks.iter().flat_map(|state| state.prefixes());
            let is_had = had.any(|leased| leased.prefix.contains(part))
                || plan.addresses.iter().any(|own| IpNet::V6(*part).contains(&own.address));
            *until > now && is_there && !is_had
        });
        self.lost.drain(..self.lost.len().saturating_sub(MOST_LOST));
        let lost = self.lost.iter();
        plan.routes.extend(lost.flat_map(|(part, via, _)| no_way_from(*part, via.clone())));
    }

    /// Listens where hosts and routers may ask, as the site and the links are now, and forgets what no network gives. Only
    /// once a configuration is in force: one that is refused takes nothing away. What cannot be done is returned.
    pub(super) fn follow(
        &mut self,
        site: &Site,
        links: &[KernelLink],
        poller: &Poller,
        now: Instant,
    ) -> Vec<String> {
        let wanted =
            |network: &Network| network.dhcp6.as_ref().and_then(|_| index_of(links, &network.interface));
        let (stay, go): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.sockets).into_iter().partition(|socket| {
                let network = site.networks.iter().find(|network| network.name == socket.network);
                network.and_then(wanted) == Some(socket.index)
            });
        self.sockets = stay;
        self.server.retain(|lease| network_of(lease, site).is_some(), now);
        go.iter().for_each(|socket| drop(poller.remove(&socket.socket)));
        let mut problems = Vec::new();
        for network in &site.networks {
            let Some(index) = wanted(network) else { continue };
            if self.sockets.iter().any(|socket| socket.network == network.name) {
                continue;
            }
            match Socket::open(network, index, self.next_token, poller) {
                Ok(socket) => self.sockets.push(socket),
                Err(error) => problems
                    .push(format!("network {}: hosts get no answers by DHCPv6: {error}", network.name)),
            }
            self.next_token += 1;
        }
        problems
    }

    /// Whether the descriptor of this number is one of these.
    pub(super) fn owns(&self, token: u64) -> bool {
        self.sockets.iter().any(|socket| socket.token == token)
    }

    /// There is something to read. Whether what was given away is something else now.
    pub(super) fn handle_readable(
        &mut self,
        token: u64,
        site: &Site,
        plan: &Plan,
        netlink: &mut Netlink,
        now: Instant,
    ) -> bool {
        let Some(socket) = self.sockets.iter().find(|socket| socket.token == token) else { return false };
        while let Ok(Some(_)) = socket.socket.recv_too_big() {}
        let found = site.networks.iter().position(|network| network.name == socket.network);
        let Some((place, network)) = found.map(|place| (place, &site.networks[place])) else { return false };
        let Some(settings) = &network.dhcp6 else { return false };
        let prefixes = prefixes_of(network, &plan.addresses);
        let offer = plan.offers.get(place).and_then(Option::as_ref);
        let addresses = netlink.addresses(socket.index).unwrap_or_default();
        let own: Vec<_> = addresses.iter().filter_map(|found| ipv6(found.address.addr())).collect();
        let link = Link {
            network: &network.name,
            settings,
            prefixes: &prefixes,
            dns_servers: offer.map_or(&[][..], |offer| &offer.dns_servers),
            own: &own,
        };
        let before = self.server.leases().to_vec();
        let mut buffer = [0; LONGEST];
        for _ in 0..BATCH {
            let Ok(Some(received)) = socket.socket.recv(&mut buffer) else { break };
            let Some(source) = ipv6(received.source.ip()) else { continue };
            let datagram = &buffer[..received.len];
            if let Some(answer) = self.server.handle(datagram, source, &link, now) {
                // Whoever does not get it asks again.
                let own = Ipv6Addr::UNSPECIFIED.into();
                let _ = socket.socket.send(&answer, answer.len(), own, received.source, 0);
            }
        }
        self.server.leases() != before
    }

    /// What was given away, for the status.
    pub(super) fn status(&self, now: Instant) -> Vec<status::DelegatedPrefix> {
        let told = |lease: &Delegated| status::DelegatedPrefix {
            network: lease.network.clone(),
            router: lease.router,
            duid: hexadecimal(&lease.duid),
            prefixes: self
                .server
                .prefixes(lease, now)
                .iter()
                .map(|part| status::Prefix {
                    prefix: part.prefix,
                    preferred_seconds: part.preferred.remaining(now).map(|left| left.as_secs()),
                    valid_seconds: part.valid.remaining(now).map(|left| left.as_secs()),
                })
                .collect(),
            seconds: lease.expires.saturating_duration_since(now).as_secs(),
        };
        let mut all: Vec<_> = self.server.leases().iter().map(told).collect();
        all.sort_by(|a, b| (&a.network, a.router, &a.duid).cmp(&(&b.network, b.router, &b.duid)));
        all
    }
}

impl Socket {
    fn open(network: &Network, index: u32, token: u64, poller: &Poller) -> linux::Result<Self> {
        let segmentation = Arc::new(Segmentation::off());
        let options = EndpointOptions {
            buffer: 1 << 17,
            receive_offload: false,
            flow_label: true,
            interface: Some(index),
            segmentation,
        };
        let socket = HostSocket::open(None, SERVER_PORT, &options)?;
        socket.join(ALL_SERVERS, index)?;
        poller.add(&socket, token, Interest::Readable)?;
        Ok(Socket { network: network.name.clone(), index, token, socket })
    }
}

/// The network that a lease is of, as long as that gives any.
fn network_of<'s>(lease: &Delegated, site: &'s Site) -> Option<&'s Network> {
    let network = site.networks.iter().find(|network| network.name == lease.network)?;
    network.dhcp6.as_ref()?.delegate.map(|_| network)
}

/// What a network gives hosts of the configuration by DHCPv6, or routers behind it; null where neither.
pub(super) fn status_of(network: &Network, plan: &Plan) -> Option<status::Dhcp6> {
    let settings = network.dhcp6.as_ref()?;
    let prefixes = prefixes_of(network, &plan.addresses);
    let host = |host: &router::dhcp6::FixedHost| status::Dhcp6Host {
        name: host.name.clone(),
        addresses: prefixes.iter().filter_map(|leased| host.address_in(leased.prefix)).collect(),
    };
    Some(status::Dhcp6 { delegates: settings.delegate, hosts: settings.hosts.iter().map(host).collect() })
}

/// The prefixes in which hosts of a network are to be found by their names: those that they are to use now. Where there is none,
/// as while no uplink works, those that they still have.
pub(super) fn prefixes_of_names(network: &Network, addresses: &[Address], now: Instant) -> Vec<Ipv6Net> {
    let mut prefixes = prefixes_of(network, addresses);
    prefixes.retain(|leased| !leased.valid.is_expired(now));
    let is_preferred = |leased: &LeasedPrefix| !leased.preferred.is_expired(now);
    if prefixes.iter().any(is_preferred) {
        prefixes.retain(is_preferred);
    }
    prefixes.into_iter().map(|leased| leased.prefix).collect()
}

/// The prefixes that hosts of a network have addresses in, where the gateway has these itself.
fn prefixes_of(network: &Network, addresses: &[Address]) -> Vec<LeasedPrefix> {
    let here = addresses.iter().filter(|address| address.interface == network.interface);
    let of_ipv6 = here.filter_map(|address| match address.address {
        IpNet::V6(net) => {
            let (preferred, valid) = (address.preferred, address.valid);
            Some(LeasedPrefix { prefix: net.trunc(), preferred, valid })
        }
        IpNet::V4(_) => None,
    });
    of_ipv6.collect()
}

fn ipv6(address: IpAddr) -> Option<Ipv6Addr> {
    match address {
        IpAddr::V6(address) => Some(address),
        IpAddr::V4(_) => None,
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use router::delegation::Lease;
    use router::dhcp6::Settings;
    use router::lifetime::Lifetime;
    use router::site::{Delegation, Probing, RouterFrom, Uplink};

    use super::*;

    const ROUTER: &str = "fe80::7";

    fn site() -> Site {
        let uplink = Uplink {
            name: "fibre".into(),
            interface: "wan0".into(),
            router: RouterFrom::Advertisements,
            addresses: Vec::new(),
            prefixes: Vec::new(),
            delegation: Some(Delegation::default()),
            probes: Vec::new(),
            ipv4_router: None,
            masquerade: false,
            tunnel: None,
            bandwidth: None,
        };
        let network = Network {
            name: "lan".into(),
            interface: "lan0".into(),
            subnet: Some(0),
            host: 1,
            prefixes: Vec::new(),
            ipv4: None,
            advertise: None,
            resolves: false,
            dhcp: None,
            dhcp6: Some(Settings { delegate: Some(60), hosts: Vec::new() }),
            port_mapping: None,
        };
        Site { uplinks: vec![uplink], networks: vec![network], ..Site::default() }
    }

    /// The routes to and from parts of routers behind, where the uplink has this prefix.
    fn routes(dhcp6: &mut Dhcp6, site: &Site, prefix: &str, now: Instant) -> Vec<String> {
        let mut state = UplinkState::new(&site.uplinks[0], Probing::default());
        let (preferred, valid) = (Lifetime::Infinite, Lifetime::Infinite);
        let leased = LeasedPrefix { prefix: prefix.parse().expect("a prefix"), preferred, valid };
        state.set_lease(Some(Lease {
            iaid: 1,
            server: Vec::new(),
            prefixes: vec![leased],
            renew: Lifetime::Infinite,
            rebind: Lifetime::Infinite,
            dns_servers: Vec::new(),
            aftr: None,
        }));
        let mut plan = Plan::default();
        dhcp6.plan(site, &[&state], &mut plan, now);
        let told = |route: &Route| match (&route.via, route.from) {
            (Some(via), None) => {
                assert_eq!(via.router, ROUTER.parse().ok());
                let is_used = if route.metric == METRIC { "" } else { " for errors" };
                format!("to {}{is_used}", route.to)
            }
            (None, Some(from)) => format!("none from {from}"),
            _ => format!("{route:?}"),
        };
        plan.routes.iter().map(told).collect()
    }

    #[test]
    fn hosts_behind_a_router_are_told_of_a_withdrawn_prefix_as_long_as_they_can_have_it() {
        let (site, start) = (site(), Instant::now());
        let lease = Delegated {
            network: "lan".into(),
            duid: vec![0, 4, 7],
            iaid: 1,
            router: ROUTER.parse().expect("an address"),
            number: 16,
            length: 60,
            expires: start + 3 * VALID_LIMIT,
        };
        let mut dhcp6 = Dhcp6::new(&[5; 16], vec![lease]);
        let mut routes_at =
            |prefix: &str, seconds| routes(&mut dhcp6, &site, prefix, start + Duration::from_secs(seconds));
        assert_eq!(routes_at("2001:db8:100::/56", 0), ["to 2001:db8:100:10::/60"]);
        let renumbered = [
            "to 2001:db8:200:10::/60",
            "to 2001:db8:100:10::/60 for errors",
            "none from 2001:db8:100:10::/60",
        ];
        assert_eq!(routes_at("2001:db8:200::/56", 10), renumbered);
        assert_eq!(routes_at("2001:db8:200::/56", 5_409), renumbered);
        assert_eq!(routes_at("2001:db8:200::/56", 5_410), renumbered[..1]);
        // There and back: it leads there again, and not from the other one.
        assert_eq!(
            routes_at("2001:db8:100::/56", 5_420),
            [
                "to 2001:db8:100:10::/60",
                "to 2001:db8:200:10::/60 for errors",
                "none from 2001:db8:200:10::/60"
            ]
        );
        // A provider that renumbers all the time fills no memory.
        for number in 0..400 {
            routes_at(&format!("2001:db8:{:x}::/56", 0x1000 + number), 5_430);
        }
        assert_eq!(routes_at("2001:db8:ff00::/56", 5_430).len(), 1 + 2 * MOST_LOST);
    }
}
