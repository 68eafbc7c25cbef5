//! Prefixes of an uplink's own link, as its routers advertise them (RFC 4861 section 6.3.4, RFC 4862 section 5.5.3).
//!
//! The kernel would take all that anybody advertises; a flood of them fills its routing table. Here they are few, and
//! those of the router that is taken come first.

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use ipnet::Ipv6Net;
use wire::ndp::PrefixInformation;

use crate::lifetime::Lifetime;

/// Prefixes of one link that are remembered.
const MOST: usize = 8;
/// What nobody has signed makes no lifetime shorter than this.
const TWO_HOURS: Duration = Duration::from_secs(7_200);

/// A prefix of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkPrefix {
    /// The prefix.
    pub prefix: Ipv6Net,
    /// Who advertised it last; the router that is taken, if that one does.
    pub router: Ipv6Addr,
    /// Its addresses are neighbors.
    pub on_link: bool,
    /// Whoever is on the link makes an address in it.
    pub autonomous: bool,
    /// New connections use an address in it.
    pub preferred: Lifetime,
    /// An address in it works.
    pub valid: Lifetime,
}

/// The prefixes of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkPrefixes(Vec<LinkPrefix>);

impl LinkPrefixes {
    /// A router advertises this one. `taken` is the router that packets go to; for its prefixes others make room.
    pub(crate) fn handle(
        &mut self,
        router: Ipv6Addr,
        found: &PrefixInformation,
        taken: Option<Ipv6Addr>,
        now: Instant,
    ) {
        let Ok(prefix) = Ipv6Net::new(found.prefix, found.prefix_length).map(|prefix| prefix.trunc()) else {
            return;
        };
        // A shorter one would make neighbors of half the Internet.
        let is_sane = prefix.prefix_len() >= 64
            && !prefix.network().is_unicast_link_local()
            && !prefix.network().is_multicast()
            && !prefix.network().is_loopback()
            && found.preferred_lifetime <= found.valid_lifetime;
        let autonomous = found.autonomous && prefix.prefix_len() == 64;
        if !is_sane || !(found.on_link || autonomous) {
            return;
        }
        let valid = Lifetime::from_seconds(found.valid_lifetime, now);
        let preferred = Lifetime::from_seconds(found.preferred_lifetime, now);
        if let Some(known) = self.0.iter_mut().find(|known| known.prefix == prefix) {
            // What the router says that is taken, no other one changes.
            if Some(known.router) == taken && Some(router) != taken {
                return;
            }
            known.valid = not_cut_short(known.valid, valid, now);
            (known.router, known.preferred) = (router, preferred.min(known.valid));
            // What is on the link for one router is so for all; silence about it says nothing (RFC 4861 section 4.6.2).
            known.on_link |= found.on_link;
            known.autonomous |= autonomous;
            return;
        }
        if valid.is_expired(now) {
            return;
        }
        if self.0.len() == MOST {
            let yields = |known: &LinkPrefix| Some(known.router) != taken;
            match self.0.iter().position(yields) {
                Some(place) if Some(router) == taken => drop(self.0.remove(place)),
                _ => return,
            }
        }
        self.0.push(LinkPrefix { prefix, router, on_link: found.on_link, autonomous, preferred, valid });
    }

    /// The link was down, and may lead somewhere else: what is not heard again within this time ends.
    pub(crate) fn doubt(&mut self, until: Lifetime) {
        for known in &mut self.0 {
            (known.preferred, known.valid) = (known.preferred.min(until), known.valid.min(until));
        }
    }

    /// Forgets what has ended. Whether there was something.
    pub(crate) fn expire(&mut self, now: Instant) -> bool {
        let before = self.0.len();
        self.0.retain(|known| !known.valid.is_expired(now));
        before != self.0.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &LinkPrefix> {
        self.0.iter()
    }
}

/// What remains of a lifetime that is to be `new` (RFC 4862 section 5.5.3 e): a forged advertisement cannot take an
/// address away.
fn not_cut_short(old: Lifetime, new: Lifetime, now: Instant) -> Lifetime {
    let least = Lifetime::Until(now + TWO_HOURS);
    if new > least || new > old { new } else { old.min(least) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn information(prefix: &str, lifetime: u32) -> PrefixInformation {
        let net: Ipv6Net = prefix.parse().unwrap();
        PrefixInformation {
            prefix: net.addr(),
            prefix_length: net.prefix_len(),
            on_link: true,
            autonomous: true,
            valid_lifetime: lifetime,
            preferred_lifetime: lifetime,
        }
    }

    fn router(number: u16) -> Ipv6Addr {
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, number)
    }

    #[test]
    fn a_flood_takes_no_more_room_and_yields_to_the_router_that_is_taken() {
        let now = Instant::now();
        let mut prefixes = LinkPrefixes::default();
        for number in 2..1_000 {
            let prefix = format!("2001:db8:{number:x}::/64");
            prefixes.handle(router(number), &information(&prefix, 3_600), Some(router(1)), now);
        }
        assert_eq!(prefixes.0.len(), MOST);
        prefixes.handle(router(1), &information("2001:db8:1::/64", 3_600), Some(router(1)), now);
        assert_eq!((prefixes.0.len(), prefixes.0[MOST - 1].router), (MOST, router(1)));
        prefixes.handle(router(9), &information("2001:db8:9999::/64", 3_600), Some(router(1)), now);
        assert_eq!(prefixes.0[MOST - 1].router, router(1));
    }

    #[test]
    fn a_forged_advertisement_does_not_take_an_address_away() {
        let now = Instant::now();
        let mut prefixes = LinkPrefixes::default();
        let valid = |prefixes: &LinkPrefixes| prefixes.0[0].valid.remaining(now).unwrap().as_secs();
        for (seconds, expected) in
            [(86_400, 86_400), (0, 7_200), (60, 7_200), (7_201, 7_201), (90_000, 90_000)]
        {
            prefixes.handle(router(1), &information("2001:db8:1::/64", seconds), None, now);
            assert_eq!(valid(&prefixes), expected, "{seconds}");
        }
        let mut short = LinkPrefixes::default();
        short.handle(router(1), &information("2001:db8:1::/64", 600), None, now);
        short.handle(router(1), &information("2001:db8:1::/64", 1), None, now);
        assert_eq!(
            (valid(&short), short.0[0].preferred),
            (600, Lifetime::Until(now + Duration::from_secs(1)))
        );
    }

    #[test]
    fn what_would_make_neighbors_of_others_is_not_taken() {
        let now = Instant::now();
        let mut prefixes = LinkPrefixes::default();
        for prefix in ["2000::/3", "::/0", "fe80::/64", "ff02::/64", "2001:db8::/48", "::1/128"] {
            prefixes.handle(router(1), &information(prefix, 3_600), None, now);
        }
        let backwards =
            PrefixInformation { preferred_lifetime: 7_200, ..information("2001:db8:1::/64", 3_600) };
        prefixes.handle(router(1), &backwards, None, now);
        assert_eq!(prefixes.0, []);
        let long = PrefixInformation { on_link: false, ..information("2001:db8:1::/80", 3_600) };
        prefixes.handle(router(1), &long, None, now);
        assert_eq!(prefixes.0, [], "nobody makes an address in a /80");
    }

    proptest! {
        #[test]
        fn they_are_few_whatever_comes(
            heard in proptest::collection::vec((0..20u16, any::<u128>(), 0..=128u8, any::<u32>(), any::<u32>()), 0..200),
        ) {
            let now = Instant::now();
            let mut prefixes = LinkPrefixes::default();
            for (source, bits, prefix_length, preferred_lifetime, valid_lifetime) in heard {
                let found = PrefixInformation {
                    prefix: Ipv6Addr::from_bits(bits),
                    prefix_length,
                    on_link: bits & 1 == 0,
                    autonomous: bits & 2 == 0,
                    valid_lifetime,
                    preferred_lifetime,
                };
                prefixes.handle(router(source), &found, Some(router(1)), now);
                prop_assert!(prefixes.0.len() <= MOST);
                prop_assert!(prefixes.0.iter().all(|known| known.preferred <= known.valid));
            }
        }
    }
}
