//! What is known of an uplink: its link, its routers (RFC 4861 section 6.3.4), its prefixes, and whether it works.
//!
//! An uplink works if its link is up, a router is known that answers neighbor solicitations, and the hosts that are probed
//! answer through it, if there are any.

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use ipnet::Ipv6Net;
use wire::ndp::{AdvertisedOption, Preference, RouterAdvertisement};

use crate::advertised::Advertised;
use crate::delegation::{Lease, LeasedPrefix};
use crate::lifetime::Lifetime;
use crate::link_prefix::{LinkPrefix, LinkPrefixes};
use crate::nat64::Prefix;
use crate::site::{Probing, RouterFrom, Uplink};
use crate::transition::DomainRoute;

/// Routers of one link that are remembered; a flood of others changes nothing.
const MOST_ROUTERS: usize = 16;
/// Address resolution takes three seconds to find nobody (RFC 4861 section 7.2.2), and somebody less.
const FOUND_OUT: Duration = Duration::from_secs(5);
/// How long a router that was there before is waited for, once the link is up: as long as it is solicited (RFC 4861
/// section 10: three times, four seconds each), and once more.
const SOLICITED: Duration = Duration::from_secs(16);

/// Whether a router answers neighbor solicitations (RFC 4861 section 7.3). In the order in which routers are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reachability {
    /// It does not answer.
    Unreachable,
    /// It has not been asked for long enough.
    Unknown,
    /// It has answered.
    Reachable,
}

/// A router of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Router {
    /// Its link-local address; none at the end of a link between two.
    pub address: Option<Ipv6Addr>,
    /// How much it wants to be taken.
    pub preference: Preference,
    /// How long it is one.
    pub lifetime: Lifetime,
    /// Whether it is there.
    pub reachability: Reachability,
    /// It was there at some time.
    has_answered: bool,
    /// When it was heard of first, if that was in an advertisement.
    heard: Option<Instant>,
    /// No probe that went to it was answered, in this round of trying them all.
    silent: bool,
}

impl Router {
    fn new(address: Option<Ipv6Addr>, lifetime: Lifetime) -> Self {
        let reachability = if address.is_some() { Reachability::Unknown } else { Reachability::Reachable };
        let preference = Preference::Medium;
        Router {
            address,
            preference,
            lifetime,
            reachability,
            has_answered: false,
            heard: None,
            silent: false,
        }
    }
}

/// An uplink as it is.
#[derive(Debug)]
pub struct UplinkState {
    /// No IPv6 leaves through it.
    carries_ipv4: bool,
    domain_route: Option<DomainRoute>,
    link_up: bool,
    routers: Vec<Router>,
    dns_servers: Advertised<Ipv6Addr>,
    /// Prefixes of translators to IPv4, of any length.
    nat64: Advertised<Prefix>,
    link_prefixes: LinkPrefixes,
    interface_identifier: Option<u64>,
    static_prefixes: Vec<Ipv6Net>,
    lease: Option<Lease>,
    /// Of the leased prefixes, those that are in use, and those that are not believed.
    believed: Vec<Ipv6Net>,
    refused: Vec<Ipv6Net>,
    health: Option<Health>,
}

/// What probes have shown.
#[derive(Debug)]
struct Health {
    probing: Probing,
    works: bool,
    /// The router that the last probe went to.
    through: Option<Ipv6Addr>,
    /// In a row, of those that went to it.
    lost: u32,
    answered: u32,
}

impl UplinkState {
    /// An uplink of which nothing is known yet but what is written down.
    pub fn new(uplink: &Uplink, probing: Probing) -> Self {
        let fixed = match uplink.router {
            _ if uplink.carries_ipv4() => None,
            RouterFrom::Advertisements => None,
            RouterFrom::Address(address) => Some(Router::new(Some(address), Lifetime::Infinite)),
            RouterFrom::PointToPoint => Some(Router::new(None, Lifetime::Infinite)),
        };
        let health = Health { probing, works: true, through: None, lost: 0, answered: 0 };
        UplinkState {
            carries_ipv4: uplink.carries_ipv4(),
            domain_route: None,
            link_up: false,
            routers: fixed.into_iter().collect(),
            dns_servers: Advertised::default(),
            nat64: Advertised::default(),
            link_prefixes: LinkPrefixes::default(),
            interface_identifier: None,
            static_prefixes: uplink.prefixes.clone(),
            lease: None,
            believed: Vec::new(),
            refused: Vec::new(),
            health: (!uplink.probes.is_empty()).then_some(health),
        }
    }

    /// This router was there in an earlier life: it is one again until solicitations have gone unanswered.
    pub fn remember_router(&mut self, address: Ipv6Addr, now: Instant) {
        let router = Router::new(Some(address), Lifetime::Until(now + SOLICITED));
        self.routers.push(Router { has_answered: true, ..router });
    }

    /// The link has come up, or gone down. It may lead somewhere else then: what was heard on it counts only until
    /// solicitations have gone unanswered.
    pub fn set_link(&mut self, up: bool, now: Instant) {
        if self.link_up == up {
            return;
        }
        self.link_up = up;
        let until = Lifetime::Until(now + SOLICITED);
        for router in self.routers.iter_mut().filter(|router| router.lifetime != Lifetime::Infinite) {
            *router = Router {
                preference: router.preference,
                has_answered: router.has_answered,
                heard: router.heard,
                ..Router::new(router.address, router.lifetime.min(until))
            };
        }
        self.dns_servers.doubt(until);
        self.nat64.doubt(until);
        self.link_prefixes.doubt(until);
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

    /// A router advertisement has come. Whether it changes anything that is made of it: not the routers that could be taken.
    pub fn handle_advertisement(
        &mut self,
        source: Ipv6Addr,
        content: &RouterAdvertisement,
        now: Instant,
    ) -> bool {
        let known = |state: &Self| {
            let nat64: Vec<_> = state.nat64_prefixes().collect();
            (state.router(), state.dns_servers(), nat64, state.link_prefixes.clone())
        };
        let before = known(self);
        self.expire(now);
        let lifetime = Lifetime::from_seconds(content.router_lifetime.into(), now);
        let place = self.routers.iter().position(|router| router.address == Some(source));
        match place {
            Some(place) if content.router_lifetime == 0 => drop(self.routers.remove(place)),
            Some(place) => {
                let router = &mut self.routers[place];
                (router.preference, router.lifetime) = (content.preference, lifetime);
            }
            None if content.router_lifetime > 0 && self.has_room(now) => {
                let router = Router::new(Some(source), lifetime);
                self.routers.push(Router { preference: content.preference, heard: Some(now), ..router });
            }
            None => {}
        }
        let taken = self.chosen().and_then(|place| self.routers[place].address);
        for option in &content.options {
            match option {
                AdvertisedOption::DnsServers { lifetime, servers } => {
                    let lifetime = Lifetime::from_seconds(*lifetime, now);
                    for server in servers {
                        self.dns_servers.handle(source, (*server, lifetime), taken, now);
                    }
                }
                AdvertisedOption::Prefix(found) => self.link_prefixes.handle(source, found, taken, now),
                AdvertisedOption::Nat64Prefix { prefix, prefix_length, lifetime } => {
                    let Ok(net) = Ipv6Net::new(*prefix, *prefix_length) else { continue };
                    let Ok(prefix) = Prefix::new(net) else { continue };
                    let lifetime = Lifetime::from_seconds((*lifetime).into(), now);
                    self.nat64.handle(source, (prefix, lifetime), taken, now);
                }
                _ => {}
            }
        }
        self.expire(now);
        before != known(self)
    }

    /// Whether one more router can be remembered: of others than the one that is taken, one that has never answered makes room,
    /// if nobody is there, or nothing is known of it after a while. Each had the time to be found out about, in spite of a
    /// flood. Such as have answered make room only where there are no others.
    fn has_room(&mut self, now: Instant) -> bool {
        if self.routers.len() < MOST_ROUTERS {
            return true;
        }
        let taken = self.chosen();
        let others = || self.routers.iter().enumerate().filter(|(place, _)| Some(*place) != taken);
        let is_dead = |router: &Router| router.reachability == Reachability::Unreachable;
        let had_time =
            |router: &Router| router.heard.is_some_and(|heard| now.duration_since(heard) >= FOUND_OUT);
        let place = if self.routers.iter().all(|router| router.has_answered) {
            others().find(|(_, router)| is_dead(router))
        } else {
            others().find(|(_, router)| !router.has_answered && (is_dead(router) || had_time(router)))
        };
        let place = place.map(|(place, _)| place);
        place.map(|place| self.routers.remove(place)).is_some()
    }

    /// Routers whose neighbor entries are to be looked at.
    pub fn router_addresses(&self) -> impl Iterator<Item = Ipv6Addr> {
        self.routers.iter().filter_map(|router| router.address)
    }

    /// What neighbor unreachability detection has found out about a router. Whether that was not known.
    pub fn set_reachability(&mut self, address: Ipv6Addr, reachability: Reachability) -> bool {
        let found = self.routers.iter_mut().find(|router| router.address == Some(address));
        found.is_some_and(|router| {
            router.has_answered |= reachability == Reachability::Reachable;
            std::mem::replace(&mut router.reachability, reachability) != reachability
        })
    }

    /// The low 64 bits of the gateway's own addresses on the link, once it has any.
    pub fn set_interface_identifier(&mut self, identifier: Option<u64>) {
        self.interface_identifier = identifier;
    }

    /// Addresses that the gateway gives itself on the link (RFC 4862), and what is on the link beside them, while it is up.
    pub fn link_prefixes(&self) -> impl Iterator<Item = (Option<Ipv6Addr>, LinkPrefix)> {
        self.heard_prefixes().filter(|_| self.link_up).map(|known| {
            let identifier = self.interface_identifier.filter(|_| known.autonomous);
            let bits = |identifier| known.prefix.network().to_bits() | u128::from(identifier);
            (identifier.map(bits).map(Ipv6Addr::from_bits), known)
        })
    }

    /// Prefixes of the link until they end, also while it is down. New connections use those that the router in use has
    /// advertised: it need not let others out (RFC 8028).
    pub fn heard_prefixes(&self) -> impl Iterator<Item = LinkPrefix> {
        let taken = self.chosen_address();
        self.link_prefixes.iter().map(move |known| {
            let preferred = if Some(known.router) == taken { known.preferred } else { Lifetime::Expired };
            LinkPrefix { preferred, ..*known }
        })
    }

    /// What another uplink has heard of prefixes at the same interface, which this one takes the place of.
    pub fn hear_as(&mut self, other: &UplinkState) {
        self.link_prefixes = other.link_prefixes.clone();
    }

    /// What DHCPv6 has brought.
    pub fn set_lease(&mut self, lease: Option<Lease>) {
        self.lease = lease;
    }

    /// Prefixes that are written down.
    pub(crate) fn fixed_prefixes(&self) -> impl Iterator<Item = Ipv6Net> {
        self.static_prefixes.iter().map(Ipv6Net::trunc)
    }

    /// Prefixes that are leased, whether they are believed or not.
    pub fn leased_prefixes(&self) -> impl Iterator<Item = Ipv6Net> {
        self.lease.iter().flat_map(|lease| lease.prefixes.iter().map(|leased| leased.prefix))
    }

    /// Whether it has been in use.
    pub(crate) fn has_had(&self, prefix: &Ipv6Net) -> bool {
        self.believed.contains(prefix)
    }

    /// Uses its leased prefixes but for these.
    pub(crate) fn refuse_prefixes(&mut self, refused: Vec<Ipv6Net>) {
        self.believed = self.leased_prefixes().filter(|prefix| !refused.contains(prefix)).collect();
        self.refused = refused;
    }

    /// A probe goes out, to the router that is taken now.
    pub fn begin_probe(&mut self) {
        let through = self.chosen_address();
        if let Some(health) = self.health.as_mut().filter(|health| health.through != through) {
            (health.through, health.answered, health.lost) = (through, 0, 0);
        }
    }

    /// The probe was answered, or not in time: several that were not have the next router tried, and when none is left the
    /// uplink does not work. One that went to another router than is taken now tells nothing. Whether it works now and did
    /// not, or the other way round, or takes another router.
    pub fn handle_probe(&mut self, answered: bool) -> bool {
        let through = self.chosen_address();
        let Some(health) = self.health.as_mut().filter(|health| health.through == through) else {
            return false;
        };
        if answered {
            (health.answered, health.lost) = (health.answered.saturating_add(1), 0);
            let works = health.works || health.answered >= health.probing.answered;
            let changed = works != health.works;
            health.works = works;
            if let Some(place) = self.chosen() {
                self.routers[place].silent = false;
            }
            return changed;
        }
        (health.answered, health.lost) = (0, health.lost + 1);
        if health.lost < health.probing.lost {
            return false;
        }
        health.lost = 0;
        let before = self.chosen();
        let has_next = self.try_next_router();
        let health = self.health.as_mut().filter(|health| !has_next && health.works);
        let failed = health.map(|health| health.works = false).is_some();
        failed || before != self.chosen()
    }

    /// Nothing comes back through the router that is taken, so that another one is. Whether it is one that has not been
    /// tried since the last answer.
    fn try_next_router(&mut self) -> bool {
        let Some(place) = self.chosen() else { return false };
        self.routers[place].silent = true;
        let is_untried = |router: &Router| !router.silent && router.reachability != Reachability::Unreachable;
        if self.routers.iter().any(is_untried) {
            return true;
        }
        // All over again, with another than this one.
        for (other, router) in self.routers.iter_mut().enumerate() {
            router.silent = other == place;
        }
        false
    }

    /// When something that is known ends.
    pub fn deadline(&self) -> Option<Instant> {
        let routers = self.routers.iter().map(|router| router.lifetime);
        let prefixes = self.link_prefixes.iter().map(|known| known.valid);
        let named = self.dns_servers.lifetimes().chain(self.nat64.lifetimes());
        routers.chain(named).chain(prefixes).filter_map(Lifetime::end).min()
    }

    /// Forgets what has ended. Whether there was something.
    pub fn expire(&mut self, now: Instant) -> bool {
        let before = self.routers.len();
        self.routers.retain(|router| !router.lifetime.is_expired(now));
        self.dns_servers.expire(now)
            | self.nat64.expire(now)
            | self.link_prefixes.expire(now)
            | (before != self.routers.len())
    }

    /// The router to take, if the link is up: of those that answer (RFC 4861 section 6.3.6) the most preferred one; of
    /// these, the one known longest, so that advertisements do not make it change to and fro. If none answers, it is one
    /// of them all the same.
    pub fn router(&self) -> Option<Router> {
        if !self.link_up || self.domain_route.is_some() {
            return None;
        }
        self.chosen().map(|place| self.routers[place])
    }

    fn chosen_address(&self) -> Option<Ipv6Addr> {
        self.chosen().and_then(|place| self.routers[place].address)
    }

    fn chosen(&self) -> Option<usize> {
        let rank = |router: &Router| {
            // What has not answered yet can want whatever it likes.
            let is_there = router.reachability == Reachability::Reachable;
            let preference = if is_there { router.preference } else { Preference::Low };
            let may_lead_out = router.reachability != Reachability::Unreachable;
            (may_lead_out, !router.silent, router.reachability, preference)
        };
        let best = self.routers.iter().map(rank).max()?;
        self.routers.iter().position(|router| rank(router) == best)
    }

    /// Whether the hosts that are probed answer; true where none are.
    pub fn answers(&self) -> bool {
        self.health.as_ref().is_none_or(|health| health.works)
    }

    /// Whether nothing comes back through it, as far as is known.
    pub fn is_silent(&self) -> bool {
        let is_dead = |router: Router| router.reachability == Reachability::Unreachable;
        !self.answers() || self.router().is_some_and(is_dead)
    }

    /// Whether it leads to the Internet, as far as is known.
    pub fn works(&self) -> bool {
        (self.router().is_some() || self.carries_ipv4 && self.link_up) && !self.is_silent()
    }

    /// Whether IPv6 gets to the Internet through it.
    pub fn leads_ipv6(&self) -> bool {
        self.works() && self.router().is_some()
    }

    /// Prefixes that lead here: those that are written down, and leased ones, unless they are [not
    /// believed](crate::delegated_prefix).
    pub fn prefixes(&self) -> impl Iterator<Item = LeasedPrefix> {
        let always = |prefix: &Ipv6Net| LeasedPrefix {
            prefix: prefix.trunc(),
            preferred: Lifetime::Infinite,
            valid: Lifetime::Infinite,
        };
        let leased = self.lease.iter().flat_map(|lease| lease.prefixes.iter().copied());
        let leased = leased.filter(|leased| !self.refused.contains(&leased.prefix));
        self.static_prefixes.iter().map(always).chain(leased)
    }

    /// The name of the provider's AFTR, as it has come by DHCPv6 (RFC 6334).
    pub fn aftr_name(&self) -> Option<&str> {
        self.lease.as_ref().and_then(|lease| lease.aftr.as_deref())
    }

    /// Where the provider translates to IPv4, as the router that is taken has it (RFC 8781).
    pub fn nat64_prefixes(&self) -> impl Iterator<Item = Prefix> {
        self.nat64.of(self.chosen_address())
    }

    /// DNS servers of this uplink, each once: those of the router that is taken, and leased ones.
    pub fn dns_servers(&self) -> Vec<Ipv6Addr> {
        let leased = self.lease.iter().flat_map(|lease| lease.dns_servers.iter().copied());
        let mut servers = Vec::new();
        for server in self.dns_servers.of(self.chosen_address()).chain(leased) {
            if !servers.contains(&server) {
                servers.push(server);
            }
        }
        servers
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wire::ndp::PrefixInformation;

    use super::*;

    fn uplink(probes: &[&str]) -> Uplink {
        Uplink {
            name: "fibre".into(),
            interface: "eth0".into(),
            router: RouterFrom::Advertisements,
            addresses: Vec::new(),
            prefixes: Vec::new(),
            delegation: None,
            probes: probes.iter().map(|host| host.parse().unwrap()).collect(),
            ipv4_router: None,
            masquerade: false,
            tunnel: None,
            bandwidth: None,
        }
    }

    fn state(probes: &[&str], now: Instant) -> UplinkState {
        let mut state = UplinkState::new(&uplink(probes), Probing::default());
        state.set_link(true, now);
        state
    }

    fn address(number: u16) -> Ipv6Addr {
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, number)
    }

    fn content(preference: Preference, router_lifetime: u16) -> RouterAdvertisement {
        RouterAdvertisement {
            hop_limit: 64,
            managed: false,
            other_configuration: false,
            preference,
            router_lifetime,
            reachable_time: 0,
            retransmission_timer: 0,
            options: Vec::new(),
        }
    }

    fn prefix(number: u16) -> AdvertisedOption {
        AdvertisedOption::Prefix(PrefixInformation {
            prefix: Ipv6Addr::new(0x2001, 0xdb8, number, 0, 0, 0, 0, 0),
            prefix_length: 64,
            on_link: true,
            autonomous: true,
            valid_lifetime: 3_600,
            preferred_lifetime: 1_800,
        })
    }

    fn taken(state: &UplinkState) -> Option<Ipv6Addr> {
        state.router().and_then(|router| router.address)
    }

    #[test]
    fn a_router_that_does_not_answer_is_not_preferred_however_much_it_wants_to_be() {
        let now = Instant::now();
        let mut state = state(&[], now);
        state.handle_advertisement(address(1), &content(Preference::Low, 1_800), now);
        assert!(state.set_reachability(address(1), Reachability::Reachable));
        assert!(!state.set_reachability(address(1), Reachability::Reachable));
        state.handle_advertisement(address(0xbad), &content(Preference::High, 1_800), now);
        assert_eq!(taken(&state), Some(address(1)), "it has not answered yet");
        state.set_reachability(address(0xbad), Reachability::Unreachable);
        assert_eq!((taken(&state), state.works()), (Some(address(1)), true));
        state.set_reachability(address(0xbad), Reachability::Reachable);
        assert_eq!(taken(&state), Some(address(0xbad)), "of those that answer the most preferred one");
        state.set_reachability(address(0xbad), Reachability::Unreachable);
        state.set_reachability(address(1), Reachability::Unreachable);
        assert_eq!((taken(&state).is_some(), state.works(), state.is_silent()), (true, false, true));
    }

    #[test]
    fn a_written_down_router_that_does_not_answer_is_an_uplink_that_does_not_work() {
        let now = Instant::now();
        let written = Uplink { router: RouterFrom::Address(address(1)), ..uplink(&[]) };
        let mut state = UplinkState::new(&written, Probing::default());
        state.set_link(true, now);
        assert!(state.works());
        state.set_reachability(address(1), Reachability::Unreachable);
        assert_eq!((taken(&state), state.works()), (Some(address(1)), false));
    }

    /// One that goes out and is answered, or not.
    fn probe(state: &mut UplinkState, answered: bool) -> bool {
        state.begin_probe();
        state.handle_probe(answered)
    }

    #[test]
    fn probes_try_every_router_before_the_uplink_has_failed() {
        let now = Instant::now();
        let mut state = state(&["2001:db8:ffff::1"], now);
        for (number, preference) in [(1, Preference::Low), (2, Preference::Medium), (3, Preference::High)] {
            state.handle_advertisement(address(number), &content(preference, 1_800), now);
            state.set_reachability(address(number), Reachability::Reachable);
        }
        let lose = |state: &mut UplinkState| (0..3).map(|_| probe(state, false)).collect::<Vec<_>>();
        // The most preferred one forwards nothing.
        assert_eq!(taken(&state), Some(address(3)));
        assert_eq!(lose(&mut state), [false, false, true]);
        assert_eq!((taken(&state), state.works()), (Some(address(2)), true));
        assert!(!probe(&mut state, true));
        state.handle_advertisement(address(3), &content(Preference::High, 1_800), now);
        assert_eq!(taken(&state), Some(address(2)), "it stays with what works");
        // Nor do the others: then the uplink has failed, and they are tried one after the other.
        lose(&mut state);
        assert_eq!((taken(&state), state.works()), (Some(address(1)), true));
        lose(&mut state);
        assert_eq!((taken(&state), state.works()), (Some(address(3)), false));
        lose(&mut state);
        assert_eq!(taken(&state), Some(address(2)));
        assert_eq!([0; 3].map(|_| probe(&mut state, true)), [false, false, true]);
        assert_eq!((taken(&state), state.works()), (Some(address(2)), true));
    }

    #[test]
    fn an_answer_through_a_router_that_was_left_says_nothing_of_the_next() {
        let now = Instant::now();
        let mut state = state(&["2001:db8:ffff::1"], now);
        state.handle_advertisement(address(1), &content(Preference::Low, 1_800), now);
        assert!([0; 3].map(|_| probe(&mut state, false))[2] && !state.works());
        assert_eq!([0; 2].map(|_| probe(&mut state, true)), [false, false]);
        state.begin_probe();
        state.handle_advertisement(address(2), &content(Preference::High, 1_800), now);
        state.set_reachability(address(2), Reachability::Reachable);
        assert_eq!(taken(&state), Some(address(2)));
        assert!(!state.handle_probe(true), "it went to the other");
        assert_eq!([0; 3].map(|_| probe(&mut state, true)), [false, false, true]);
    }

    #[test]
    fn the_last_router_stays_until_solicitations_have_gone_unanswered() {
        let start = Instant::now();
        let mut state = state(&[], start);
        state.handle_advertisement(address(1), &content(Preference::Medium, 1_800), start);
        let later = start + Duration::from_secs(60);
        state.set_link(false, later);
        assert_eq!(taken(&state), None);
        state.set_link(true, later);
        assert_eq!((taken(&state), state.works()), (Some(address(1)), true));
        assert_eq!(state.deadline(), Some(later + SOLICITED));
        assert!(state.expire(later + SOLICITED));
        assert_eq!(taken(&state), None);

        state.remember_router(address(2), later);
        assert_eq!(taken(&state), Some(address(2)));
        state.handle_advertisement(address(2), &content(Preference::Medium, 1_800), later);
        assert!(!state.expire(later + SOLICITED));
    }

    #[test]
    fn own_addresses_are_preferred_in_the_prefix_of_the_router_in_use() {
        let now = Instant::now();
        let mut state = state(&[], now);
        let with = |number| RouterAdvertisement {
            options: vec![prefix(number)],
            ..content(Preference::Medium, 1_800)
        };
        state.handle_advertisement(address(1), &with(1), now);
        state.handle_advertisement(address(0xbad), &with(0xbad), now);
        assert!(state.link_prefixes().all(|(own, _)| own.is_none()), "no interface identifier yet");
        state.set_interface_identifier(Some(0x200_00ff_fe00_0001));
        let own: Vec<_> = state
            .link_prefixes()
            .map(|(own, known)| (own.unwrap().to_string(), !known.preferred.is_expired(now)))
            .collect();
        let expected = [("2001:db8:1:0:200:ff:fe00:1", true), ("2001:db8:bad:0:200:ff:fe00:1", false)];
        assert_eq!(own, expected.map(|(own, preferred)| (own.to_owned(), preferred)));
        state.set_link(false, now);
        assert_eq!(state.link_prefixes().count(), 0);
        let heard = |state: &UplinkState| {
            state.heard_prefixes().map(|known| !known.preferred.is_expired(now)).collect::<Vec<_>>()
        };
        assert_eq!(heard(&state), [true, false], "what hops there waits for the link");

        // Another in its place, that has not heard its routers yet.
        let mut other = UplinkState::new(&uplink(&[]), Probing::default());
        other.hear_as(&state);
        assert_eq!(heard(&other), [false, false]);
        let later = now + SOLICITED;
        assert!(other.expire(later) && state.expire(later));
        assert_eq!((other.heard_prefixes().count(), state.heard_prefixes().count()), (0, 0));
    }

    #[test]
    fn a_router_that_does_not_answer_makes_room_for_another() {
        let now = Instant::now();
        let mut state = state(&[], now);
        for number in 1..=100 {
            state.handle_advertisement(address(number), &content(Preference::Medium, 1_800), now);
        }
        assert_eq!(state.router_addresses().count(), MOST_ROUTERS);
        state.set_reachability(address(7), Reachability::Unreachable);
        state.handle_advertisement(address(999), &content(Preference::Medium, 1_800), now);
        assert!(state.router_addresses().any(|known| known == address(999)));
        assert!(!state.router_addresses().any(|known| known == address(7)));
        assert_eq!(state.router_addresses().count(), MOST_ROUTERS);
        // Of those that nothing is known of one yields, once it had the time to be found out about.
        let is_known =
            |state: &UplinkState, number| state.router_addresses().any(|known| known == address(number));
        for (seconds, is_heard) in [(1, false), (5, true)] {
            let later = now + Duration::from_secs(seconds);
            state.handle_advertisement(address(1_000), &content(Preference::Medium, 1_800), later);
            assert_eq!(is_known(&state, 1_000), is_heard, "after {seconds} s");
        }
        assert!(is_known(&state, 999), "it was heard of later than others");
    }

    #[test]
    fn a_router_that_was_there_is_remembered_while_it_is_silent() {
        let now = Instant::now();
        let mut state = state(&[], now);
        state.handle_advertisement(address(1), &content(Preference::Medium, 1_800), now);
        state.set_reachability(address(1), Reachability::Reachable);
        for number in 2..=1_000 {
            state.handle_advertisement(address(number), &content(Preference::High, 1_800), now);
            // It restarts, and nobody is at the addresses of the others.
            state.set_reachability(address(1), Reachability::Unreachable);
            state.set_reachability(address(number), Reachability::Unreachable);
        }
        assert_eq!(state.router_addresses().count(), MOST_ROUTERS);
        state.set_reachability(address(1), Reachability::Reachable);
        assert_eq!(taken(&state), Some(address(1)));
    }

    proptest! {
        #[test]
        fn whatever_happens_little_is_remembered_and_a_router_that_answers_goes_first(
            events in proptest::collection::vec((0..6u8, 0..24u16, any::<u32>(), 0..30_000u64), 0..300),
        ) {
            let mut now = Instant::now();
            let mut state = state(&["2001:db8:ffff::1"], now);
            for (event, number, random, wait) in events {
                now += Duration::from_millis(wait);
                match event {
                    0 | 1 => {
                        let preference = [Preference::Low, Preference::Medium, Preference::High][random as usize % 3];
                        let options = vec![prefix(number), prefix((random >> 8) as u16)];
                        let content = RouterAdvertisement { options, ..content(preference, (random >> 16) as u16) };
                        state.handle_advertisement(address(number), &content, now);
                    }
                    2 => {
                        let all = [Reachability::Unreachable, Reachability::Unknown, Reachability::Reachable];
                        state.set_reachability(address(number), all[random as usize % 3]);
                    }
                    3 => drop(probe(&mut state, random & 1 == 0)),
                    4 => state.set_link(random & 3 != 0, now),
                    _ => drop(state.expire(now)),
                }
                prop_assert!(state.routers.len() <= MOST_ROUTERS && state.link_prefixes().count() <= 8);
                let answers = |router: &Router| router.reachability != Reachability::Unreachable;
                if let Some(router) = state.router() {
                    prop_assert!(answers(&router) || !state.routers.iter().any(answers));
                }
                prop_assert_eq!(state.router().is_some(), state.link_up && !state.routers.is_empty());
                state.expire(now);
                prop_assert!(state.deadline().is_none_or(|at| at > now));
            }
        }
    }
}
