//! What is known of an uplink: its link, its routers (RFC 4861 section 6.3.4), its prefixes, and whether it works.
//!
//! An uplink works if its link is up, a router is known, and the hosts that are probed answer, if there are any.

use std::net::Ipv6Addr;
use std::time::Instant;

use ipnet::Ipv6Net;
use wire::ndp::{AdvertisedOption, Preference, RouterAdvertisement};

use crate::delegation::{Lease, LeasedPrefix};
use crate::lifetime::Lifetime;
use crate::site::{Probing, RouterFrom, Uplink};
use crate::transition::DomainRoute;

/// Routers of one link that are remembered; a flood of others changes nothing.
const MOST_ROUTERS: usize = 16;

/// A router of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Router {
    /// Its link-local address; none at the end of a link between two.
    pub address: Option<Ipv6Addr>,
    /// How much it wants to be taken.
    pub preference: Preference,
    /// How long it is one.
    pub lifetime: Lifetime,
}

/// An uplink as it is.
#[derive(Debug)]
pub struct UplinkState {
    /// Where the router comes from; none where no IPv6 leaves.
    from: Option<RouterFrom>,
    domain_route: Option<DomainRoute>,
    link_up: bool,
    routers: Vec<Router>,
    /// DNS servers of router advertisements.
    dns_servers: Vec<(Ipv6Addr, Lifetime)>,
    static_prefixes: Vec<Ipv6Net>,
    lease: Option<Lease>,
    health: Option<Health>,
}

/// What probes have shown.
#[derive(Debug)]
struct Health {
    probing: Probing,
    works: bool,
    /// Unanswered ones in a row while it works, answered ones in a row while it does not.
    against: u32,
}

impl UplinkState {
    /// An uplink of which nothing is known yet but what is written down.
    pub fn new(uplink: &Uplink, probing: Probing) -> Self {
        UplinkState {
            from: (!uplink.carries_ipv4()).then_some(uplink.router),
            domain_route: None,
            link_up: false,
            routers: Vec::new(),
            dns_servers: Vec::new(),
            static_prefixes: uplink.prefixes.clone(),
            lease: None,
            health: (!uplink.probes.is_empty()).then_some(Health { probing, works: true, against: 0 }),
        }
    }

    /// The link has come up, or gone down. What was heard on it does not count any more: it may lead somewhere else.
    pub fn set_link(&mut self, up: bool) {
        if self.link_up != up {
            self.link_up = up;
            self.routers.clear();
            self.dns_servers.clear();
        }
    }

    /// It leads there alone from now on, or to the Internet.
    pub fn set_domain_route(&mut self, route: Option<DomainRoute>) {
        self.domain_route = route;
    }

    /// Where it leads, if not to the Internet.
    pub fn domain_route(&self) -> Option<DomainRoute> {
        self.domain_route
    }

    /// Whether the link is up.
    pub fn link_up(&self) -> bool {
        self.link_up
    }

    /// A router advertisement has come. Whether it changes anything.
    pub fn handle_advertisement(
        &mut self,
        source: Ipv6Addr,
        content: &RouterAdvertisement,
        now: Instant,
    ) -> bool {
        let before = (self.routers.clone(), self.dns_servers.clone());
        self.expire(now);
        let known = self.routers.iter().position(|router| router.address == Some(source));
        let router = Router {
            address: Some(source),
            preference: content.preference,
            lifetime: Lifetime::from_seconds(content.router_lifetime.into(), now),
        };
        match known {
            Some(place) if content.router_lifetime > 0 => self.routers[place] = router,
            Some(place) => drop(self.routers.remove(place)),
            None if content.router_lifetime > 0 && self.routers.len() < MOST_ROUTERS => {
                self.routers.push(router);
            }
            None => {}
        }
        for option in &content.options {
            if let AdvertisedOption::DnsServers { lifetime, servers } = option {
                self.dns_servers.retain(|(server, _)| !servers.contains(server));
                if *lifetime > 0 {
                    let lifetime = Lifetime::from_seconds(*lifetime, now);
                    self.dns_servers.extend(servers.iter().map(|server| (*server, lifetime)));
                }
            }
        }
        self.dns_servers.truncate(MOST_ROUTERS);
        before != (self.routers.clone(), self.dns_servers.clone())
    }

    /// What DHCPv6 has brought.
    pub fn set_lease(&mut self, lease: Option<Lease>) {
        self.lease = lease;
    }

    /// A probe was answered, or not in time. Whether the uplink works now and did not, or the other way round.
    pub fn handle_probe(&mut self, answered: bool) -> bool {
        let Some(health) = &mut self.health else { return false };
        if answered == health.works {
            health.against = 0;
            return false;
        }
        health.against += 1;
        let enough = if answered { health.probing.answered } else { health.probing.lost };
        if health.against < enough {
            return false;
        }
        (health.works, health.against) = (answered, 0);
        true
    }

    /// When something that is known ends.
    pub fn deadline(&self) -> Option<Instant> {
        let routers = self.routers.iter().filter_map(|router| router.lifetime.end());
        routers.chain(self.dns_servers.iter().filter_map(|(_, lifetime)| lifetime.end())).min()
    }

    /// Forgets what has ended. Whether there was something.
    pub fn expire(&mut self, now: Instant) -> bool {
        let before = (self.routers.len(), self.dns_servers.len());
        self.routers.retain(|router| !router.lifetime.is_expired(now));
        self.dns_servers.retain(|(_, lifetime)| !lifetime.is_expired(now));
        before != (self.routers.len(), self.dns_servers.len())
    }

    /// The router to take, if the link is up. Of several, the most preferred one; of these, the one known longest, so
    /// that advertisements do not make it change to and fro.
    pub fn router(&self) -> Option<Router> {
        if !self.link_up || self.domain_route.is_some() {
            return None;
        }
        let fixed =
            |address| Router { address, preference: Preference::Medium, lifetime: Lifetime::Infinite };
        match self.from? {
            RouterFrom::Address(address) => Some(fixed(Some(address))),
            RouterFrom::PointToPoint => Some(fixed(None)),
            RouterFrom::Advertisements => {
                let best = self.routers.iter().map(|router| router.preference).max()?;
                self.routers.iter().find(|router| router.preference == best).copied()
            }
        }
    }

    /// Whether the hosts that are probed answer; true where none are.
    pub fn answers(&self) -> bool {
        self.health.as_ref().is_none_or(|health| health.works)
    }

    /// Whether it leads to the Internet, as far as is known.
    pub fn works(&self) -> bool {
        (self.router().is_some() || self.from.is_none() && self.link_up) && self.answers()
    }

    /// Whether IPv6 gets to the Internet through it.
    pub fn leads_ipv6(&self) -> bool {
        self.works() && self.router().is_some()
    }

    /// Prefixes that lead here: those that are written down, and leased ones.
    pub fn prefixes(&self) -> impl Iterator<Item = LeasedPrefix> {
        let always = |prefix: &Ipv6Net| LeasedPrefix {
            prefix: prefix.trunc(),
            preferred: Lifetime::Infinite,
            valid: Lifetime::Infinite,
        };
        let leased = self.lease.iter().flat_map(|lease| lease.prefixes.iter().copied());
        self.static_prefixes.iter().map(always).chain(leased)
    }

    /// DNS servers of this uplink, each once.
    pub fn dns_servers(&self) -> Vec<Ipv6Addr> {
        let leased = self.lease.iter().flat_map(|lease| lease.dns_servers.iter().copied());
        let mut servers = Vec::new();
        for server in self.dns_servers.iter().map(|(server, _)| *server).chain(leased) {
            if !servers.contains(&server) {
                servers.push(server);
            }
        }
        servers
    }
}
