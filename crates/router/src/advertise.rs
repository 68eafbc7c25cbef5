//! Router advertisements on an inner link (RFC 4861 section 6.2): what they say, and when they are sent.
//!
//! [`Advertiser`] is given what is on offer ([`Offer`]), asked for a packet when its time has come, and given
//! solicitations. Lifetimes follow what they depend on: nothing is promised for longer than the uplink's lease lasts,
//! nor for longer than RFC 9096 has it. What was on offer once and is not any more is advertised with a lifetime of
//! zero, until no host can have it from before: a host that is renumbered does not keep addresses that lead nowhere.

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use ipnet::Ipv6Net;
use wire::ethernet::MacAddress;
use wire::ndp::{AdvertisedOption, Preference, PrefixInformation, RouterAdvertisement};

use crate::lifetime::Lifetime;
use crate::nat64::Prefix;

/// Longest preferred lifetime of a prefix (RFC 9096 section 3.4, ND_PREFERRED_LIMIT).
pub const PREFERRED_LIMIT: Duration = Duration::from_secs(2_700);
/// Longest valid lifetime of a prefix, and how long one that has gone is withdrawn (ND_VALID_LIMIT).
pub const VALID_LIMIT: Duration = Duration::from_secs(5_400);

/// After a change the first advertisements come in quick succession (RFC 4861 section 10).
const INITIAL_ADVERTISEMENTS: u32 = 3;
const INITIAL_INTERVAL: Duration = Duration::from_secs(16);
/// Two advertisements to all nodes are not closer together.
const MINIMUM_DELAY: Duration = Duration::from_secs(3);
/// A solicitation is answered within.
const ANSWER_DELAY: Duration = Duration::from_millis(500);
/// How long hosts keep what a router has told them that ceases to advertise.
const FAREWELL: Duration = Duration::from_secs(10);
/// So many are withdrawn at a time; the oldest make room.
const MOST_WITHDRAWN: usize = 32;

/// How a link is advertised on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Longest time between two advertisements, 4 s to 1800 s; the shortest is a third of it.
    pub interval: Duration,
    /// Hop limit that hosts use.
    pub hop_limit: u8,
    /// Which default router hosts take, of several on the link.
    pub preference: Preference,
    /// Hosts get addresses by DHCPv6.
    pub managed: bool,
    /// Hosts get other settings by DHCPv6.
    pub other_configuration: bool,
}

impl Default for Settings {
    /// The intervals of RFC 4861 section 6.2.1.
    fn default() -> Self {
        Settings {
            interval: Duration::from_secs(600),
            hop_limit: 64,
            preference: Preference::Medium,
            managed: false,
            other_configuration: false,
        }
    }
}

/// What a router has to offer on a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Whether it is a default router, and how long that is certain.
    pub default_router: Option<Lifetime>,
    /// Prefixes of the link.
    pub prefixes: Vec<OfferedPrefix>,
    /// Networks that it leads to, beside the default route.
    pub routes: Vec<OfferedRoute>,
    /// DNS servers.
    pub dns_servers: Vec<Ipv6Addr>,
    /// Domains in which names are looked up.
    pub search_domains: Vec<String>,
    /// Prefix of NAT64.
    pub nat64: Option<Prefix>,
    /// MTU of the link, where hosts have to be told.
    pub mtu: Option<u32>,
}

/// A prefix of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferedPrefix {
    /// The prefix; a /64 if hosts are to make addresses in it.
    pub prefix: Ipv6Net,
    /// New connections use addresses in it. In the past: it is deprecated.
    pub preferred: Lifetime,
    /// Addresses in it work.
    pub valid: Lifetime,
    /// Addresses in it are on the link.
    pub on_link: bool,
    /// Hosts may make addresses in it (RFC 4862).
    pub autonomous: bool,
}

/// A network behind the router (RFC 4191).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferedRoute {
    /// The network.
    pub prefix: Ipv6Net,
    /// Which router hosts take, of several.
    pub preference: Preference,
}

/// What is advertised with a lifetime of zero, because it is not on offer any more.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Withdrawn {
    Prefix(Ipv6Net),
    Route(Ipv6Net),
    DnsServer(Ipv6Addr),
    SearchDomain(String),
    Nat64(Prefix),
}

/// A router on one link.
#[derive(Debug)]
pub struct Advertiser {
    settings: Settings,
    mac: MacAddress,
    offer: Offer,
    /// What has gone, and until when that is advertised.
    withdrawn: Vec<(Withdrawn, Instant)>,
    /// How many of the first, quick advertisements are still to come.
    initial: u32,
    last: Option<Instant>,
    next: Instant,
}

impl Advertiser {
    /// A router that begins to advertise now. `formerly` are prefixes which it may have offered in an earlier life.
    pub fn new(settings: Settings, mac: MacAddress, formerly: &[Ipv6Net], now: Instant) -> Self {
        let gone = |prefix: &Ipv6Net| (Withdrawn::Prefix(*prefix), now + VALID_LIMIT);
        Advertiser {
            settings,
            mac,
            offer: Offer::default(),
            withdrawn: formerly.iter().map(gone).collect(),
            initial: INITIAL_ADVERTISEMENTS,
            last: None,
            next: now,
        }
    }

    /// Something else is on offer from now on. That is advertised at once, and if more than lifetimes has changed, several
    /// times.
    pub fn set_offer(&mut self, offer: Offer, now: Instant) {
        if offer == self.offer {
            return;
        }
        let deprecated = |offer: &Offer| {
            offer
                .prefixes
                .iter()
                .map(|offered| (offered.prefix, offered.preferred.is_expired(now)))
                .collect::<Vec<_>>()
        };
        if items(&offer) != items(&self.offer)
            || deprecated(&offer) != deprecated(&self.offer)
            || offer.default_router.is_some() != self.offer.default_router.is_some()
            || offer.mtu != self.offer.mtu
        {
            self.initial = INITIAL_ADVERTISEMENTS;
        }
        let until = now + VALID_LIMIT;
        let (old, new) = (items(&self.offer), items(&offer));
        self.withdrawn.retain(|(item, _)| !new.contains(item));
        self.withdrawn.extend(old.into_iter().filter(|item| !new.contains(item)).map(|item| (item, until)));
        let excess = self.withdrawn.len().saturating_sub(MOST_WITHDRAWN);
        self.withdrawn.drain(..excess);
        self.offer = offer;
        self.next = self.next.min(self.not_before(now));
    }

    /// Prefixes that hosts may have from here: to be given to [`Advertiser::new`] in the next life.
    pub fn known_prefixes(&self) -> Vec<Ipv6Net> {
        let gone = self.withdrawn.iter().filter_map(|(item, _)| match item {
            Withdrawn::Prefix(prefix) => Some(*prefix),
            _ => None,
        });
        self.offer.prefixes.iter().map(|offered| offered.prefix).chain(gone).collect()
    }

    /// A host has solicited an advertisement: it is answered within half a second, but not before three seconds after
    /// the last one (RFC 4861 section 6.2.6). All solicitations until then have one answer, to all nodes.
    pub fn handle_solicitation(&mut self, now: Instant, random: u32) {
        let answer = self.not_before(now) + part(ANSWER_DELAY, random);
        self.next = self.next.min(answer);
    }

    /// When [`Advertiser::poll`] wants to be called.
    pub fn deadline(&self) -> Instant {
        self.next
    }

    /// What is to be sent to all nodes now, if it is time.
    pub fn poll(&mut self, now: Instant, random: u32) -> Option<RouterAdvertisement> {
        if now < self.next {
            return None;
        }
        self.withdrawn.retain(|(_, until)| *until > now);
        let shortest = (self.settings.interval / 3).max(MINIMUM_DELAY);
        let mut interval = shortest + part(self.settings.interval.saturating_sub(shortest), random);
        if self.initial > 0 {
            self.initial -= 1;
            interval = interval.min(INITIAL_INTERVAL);
        }
        (self.last, self.next) = (Some(now), now + interval);
        Some(self.content(now))
    }

    /// The final advertisement of an interface that ceases to advertise. RFC 4861 section 6.2.5 has a router lifetime of zero
    /// in it, and hosts are without a way out at once; a router that is only started anew comes back within [`FAREWELL`],
    /// and they have noticed nothing. Prefixes stay valid as long as they were: what is behind them may go on working, or
    /// another router takes over.
    pub fn cease(&self, now: Instant) -> RouterAdvertisement {
        let last = FAREWELL.as_secs() as u16;
        let mut content = self.content(now);
        content.router_lifetime = content.router_lifetime.min(last);
        for option in &mut content.options {
            match option {
                AdvertisedOption::Prefix(information) => {
                    information.preferred_lifetime = information.preferred_lifetime.min(last.into());
                }
                AdvertisedOption::Route { lifetime, .. }
                | AdvertisedOption::DnsServers { lifetime, .. }
                | AdvertisedOption::SearchDomains { lifetime, .. } => {
                    *lifetime = (*lifetime).min(last.into());
                }
                AdvertisedOption::Nat64Prefix { lifetime, .. } => *lifetime = (*lifetime).min(last),
                _ => {}
            }
        }
        content
    }

    fn not_before(&self, now: Instant) -> Instant {
        self.last.map_or(now, |last| now.max(last + MINIMUM_DELAY))
    }

    /// How long a host believes what it is not told again: three intervals, of which two may be lost.
    fn lifetime(&self) -> Duration {
        self.settings.interval * 3
    }

    fn content(&self, now: Instant) -> RouterAdvertisement {
        let router_lifetime = match self.offer.default_router {
            Some(lifetime) => seconds(lifetime, self.lifetime(), now).min(9_000) as u16,
            None => 0,
        };
        let mut options = vec![AdvertisedOption::SourceLinkLayer(self.mac)];
        options.extend(self.offer.mtu.map(AdvertisedOption::Mtu));
        options.extend(self.offer.prefixes.iter().map(|offered| {
            let valid_lifetime = seconds(offered.valid, VALID_LIMIT, now);
            AdvertisedOption::Prefix(PrefixInformation {
                prefix: offered.prefix.network(),
                prefix_length: offered.prefix.prefix_len(),
                on_link: offered.on_link,
                autonomous: offered.autonomous,
                valid_lifetime,
                preferred_lifetime: seconds(offered.preferred, PREFERRED_LIMIT, now).min(valid_lifetime),
            })
        }));
        let lifetime = self.lifetime().as_secs() as u32;
        options.extend(self.offer.routes.iter().map(|route| AdvertisedOption::Route {
            prefix: route.prefix.network(),
            prefix_length: route.prefix.prefix_len(),
            preference: route.preference,
            lifetime,
        }));
        if !self.offer.dns_servers.is_empty() {
            options.push(AdvertisedOption::DnsServers { lifetime, servers: self.offer.dns_servers.clone() });
        }
        if !self.offer.search_domains.is_empty() {
            let domains = self.offer.search_domains.clone();
            options.push(AdvertisedOption::SearchDomains { lifetime, domains });
        }
        options.extend(self.offer.nat64.map(|prefix| nat64_option(prefix, lifetime as u16)));
        options.extend(self.withdrawn.iter().map(|(item, _)| gone(item)));
        RouterAdvertisement {
            hop_limit: self.settings.hop_limit,
            managed: self.settings.managed,
            other_configuration: self.settings.other_configuration,
            preference: if router_lifetime == 0 { Preference::Medium } else { self.settings.preference },
            router_lifetime,
            reachable_time: 0,
            retransmission_timer: 0,
            options,
        }
    }
}

fn items(offer: &Offer) -> Vec<Withdrawn> {
    let prefixes = offer.prefixes.iter().map(|offered| Withdrawn::Prefix(offered.prefix));
    let routes = offer.routes.iter().map(|route| Withdrawn::Route(route.prefix));
    let servers = offer.dns_servers.iter().map(|server| Withdrawn::DnsServer(*server));
    let domains = offer.search_domains.iter().cloned().map(Withdrawn::SearchDomain);
    let nat64 = offer.nat64.into_iter().map(Withdrawn::Nat64);
    prefixes.chain(routes).chain(servers).chain(domains).chain(nat64).collect()
}

/// What is not on offer any more, with lifetimes of zero (RFC 9096 section 3.5 for prefixes). The prefix stays on the
/// link, since addresses in it may still be in use there.
fn gone(item: &Withdrawn) -> AdvertisedOption {
    match item {
        Withdrawn::Prefix(prefix) => AdvertisedOption::Prefix(PrefixInformation {
            prefix: prefix.network(),
            prefix_length: prefix.prefix_len(),
            on_link: true,
            autonomous: true,
            valid_lifetime: 0,
            preferred_lifetime: 0,
        }),
        Withdrawn::Route(prefix) => AdvertisedOption::Route {
            prefix: prefix.network(),
            prefix_length: prefix.prefix_len(),
            preference: Preference::Medium,
            lifetime: 0,
        },
        Withdrawn::DnsServer(server) => AdvertisedOption::DnsServers { lifetime: 0, servers: vec![*server] },
        Withdrawn::SearchDomain(domain) => {
            AdvertisedOption::SearchDomains { lifetime: 0, domains: vec![domain.clone()] }
        }
        Withdrawn::Nat64(prefix) => nat64_option(*prefix, 0),
    }
}

fn nat64_option(prefix: Prefix, lifetime: u16) -> AdvertisedOption {
    let net = prefix.net();
    AdvertisedOption::Nat64Prefix { prefix: net.network(), prefix_length: net.prefix_len(), lifetime }
}

/// Whole seconds that are left, `limit` at most.
fn seconds(lifetime: Lifetime, limit: Duration, now: Instant) -> u32 {
    lifetime.remaining(now).unwrap_or(limit).min(limit).as_secs() as u32
}

/// A part of `whole`, evenly distributed as `random` is.
fn part(whole: Duration, random: u32) -> Duration {
    whole.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);

    fn net(text: &str) -> Ipv6Net {
        text.parse().unwrap()
    }

    fn offer(prefix: &str) -> Offer {
        let prefixes = vec![OfferedPrefix {
            prefix: net(prefix),
            preferred: Lifetime::Infinite,
            valid: Lifetime::Infinite,
            on_link: true,
            autonomous: true,
        }];
        Offer { default_router: Some(Lifetime::Infinite), prefixes, ..Offer::default() }
    }

    fn advertiser(now: Instant) -> Advertiser {
        Advertiser::new(Settings::default(), MAC, &[], now)
    }

    fn prefix(content: &RouterAdvertisement, prefix: &str) -> Option<(u32, u32)> {
        content.options.iter().find_map(|option| match option {
            AdvertisedOption::Prefix(found) if found.prefix == net(prefix).addr() => {
                Some((found.preferred_lifetime, found.valid_lifetime))
            }
            _ => None,
        })
    }

    #[test]
    fn the_first_three_come_quickly_and_then_every_few_minutes() {
        let start = Instant::now();
        let mut advertiser = advertiser(start);
        advertiser.set_offer(offer("2001:db8:1::/64"), start);
        let mut times = Vec::new();
        for _ in 0..6 {
            let now = advertiser.deadline();
            advertiser.poll(now, u32::MAX).unwrap();
            times.push(now.duration_since(start).as_secs());
        }
        assert_eq!(times, [0, 16, 32, 48, 648, 1248]);
    }

    #[test]
    fn solicitations_have_one_answer_soon_but_not_too_soon() {
        let start = Instant::now();
        let mut advertiser = advertiser(start);
        for _ in 0..5 {
            let now = advertiser.deadline();
            advertiser.poll(now, u32::MAX).unwrap();
        }
        let last = advertiser.last.unwrap();
        let later = last + Duration::from_secs(100);
        advertiser.handle_solicitation(later, u32::MAX / 2);
        assert!(advertiser.deadline() <= later + ANSWER_DELAY);
        let answered = advertiser.deadline();
        advertiser.poll(answered, 0).unwrap();
        advertiser.handle_solicitation(answered + Duration::from_secs(1), 0);
        advertiser.handle_solicitation(answered + Duration::from_secs(2), u32::MAX);
        assert_eq!(advertiser.deadline(), answered + MINIMUM_DELAY);
    }

    #[test]
    fn a_prefix_that_went_is_advertised_with_lifetimes_of_zero_for_90_minutes() {
        let start = Instant::now();
        let mut advertiser = advertiser(start);
        advertiser.set_offer(offer("2001:db8:1::/64"), start);
        assert_eq!(prefix(&advertiser.poll(start, 0).unwrap(), "2001:db8:1::/64"), Some((2_700, 5_400)));
        let later = start + Duration::from_secs(10);
        advertiser.set_offer(offer("2001:db8:2::/64"), later);
        assert_eq!(advertiser.deadline(), later, "renumbering is advertised at once");
        let content = advertiser.poll(later, 0).unwrap();
        assert_eq!(prefix(&content, "2001:db8:1::/64"), Some((0, 0)));
        assert_eq!(prefix(&content, "2001:db8:2::/64"), Some((2_700, 5_400)));
        assert_eq!(advertiser.known_prefixes(), [net("2001:db8:2::/64"), net("2001:db8:1::/64")]);
        let content = advertiser.poll(later + VALID_LIMIT, 0).unwrap();
        assert_eq!(prefix(&content, "2001:db8:1::/64"), None);
    }

    #[test]
    fn a_prefix_that_comes_back_is_not_gone() {
        let start = Instant::now();
        let mut advertiser = Advertiser::new(Settings::default(), MAC, &[net("2001:db8:1::/64")], start);
        assert_eq!(prefix(&advertiser.content(start), "2001:db8:1::/64"), Some((0, 0)));
        advertiser.set_offer(offer("2001:db8:1::/64"), start);
        assert_eq!(prefix(&advertiser.content(start), "2001:db8:1::/64"), Some((2_700, 5_400)));
        assert_eq!(advertiser.content(start).options.len(), 2);
    }

    #[test]
    fn nothing_is_promised_beyond_the_lease() {
        let start = Instant::now();
        let mut advertiser = advertiser(start);
        let mut offer = offer("2001:db8:1::/64");
        offer.default_router = Some(Lifetime::Until(start + Duration::from_secs(900)));
        offer.prefixes[0].preferred = Lifetime::Until(start + Duration::from_secs(300));
        offer.prefixes[0].valid = Lifetime::Until(start + Duration::from_secs(600));
        advertiser.set_offer(offer, start);
        let after = |seconds| advertiser.content(start + Duration::from_secs(seconds));
        assert_eq!((after(0).router_lifetime, prefix(&after(0), "2001:db8:1::/64")), (900, Some((300, 600))));
        assert_eq!(
            (after(400).router_lifetime, prefix(&after(400), "2001:db8:1::/64")),
            (500, Some((0, 200)))
        );
        assert_eq!((after(999).router_lifetime, prefix(&after(999), "2001:db8:1::/64")), (0, Some((0, 0))));
    }

    #[test]
    fn the_final_advertisement_takes_the_default_route_back_unless_there_is_a_next_one_soon() {
        let start = Instant::now();
        let mut advertiser = advertiser(start);
        advertiser.set_offer(offer("2001:db8:1::/64"), start);
        let content = advertiser.cease(start);
        assert_eq!((content.router_lifetime, prefix(&content, "2001:db8:1::/64")), (10, Some((10, 5_400))));
        advertiser.set_offer(Offer::default(), start);
        let content = advertiser.cease(start);
        assert_eq!((content.router_lifetime, prefix(&content, "2001:db8:1::/64")), (0, Some((0, 0))));
    }

    proptest! {
        #[test]
        fn two_advertisements_are_three_seconds_apart_whatever_happens(
            events in proptest::collection::vec((0..4u8, 0..5_000u64, any::<u32>()), 1..200),
        ) {
            let mut now = Instant::now();
            let mut advertiser = advertiser(now);
            let mut last = None;
            for (event, wait, random) in events {
                now += Duration::from_millis(wait);
                match event {
                    0 => advertiser.set_offer(offer(&format!("2001:db8:{}::/64", random % 4)), now),
                    1 => advertiser.handle_solicitation(now, random),
                    _ => {}
                }
                if advertiser.poll(now, random).is_some() {
                    prop_assert!(last.is_none_or(|last| now >= last + MINIMUM_DELAY));
                    last = Some(now);
                }
                prop_assert!(advertiser.deadline() <= now + advertiser.settings.interval);
            }
        }
    }
}
