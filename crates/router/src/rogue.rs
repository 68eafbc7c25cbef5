//! Routers on an inner link that should not be there: a misconfigured machine, or somebody who wants the traffic of its
//! neighbors (RFC 6104). They cannot be kept from advertising themselves by a gateway beside them, but they are seen.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use ipnet::Ipv6Net;
use wire::ethernet::MacAddress;
use wire::ndp::{AdvertisedOption, RouterAdvertisement};

/// A router counts so long after it was last heard.
const REMEMBERED: Duration = Duration::from_secs(3_600);
/// So many are remembered; the one longest silent makes room.
const MOST: usize = 64;
/// So many are told one by one; more are a flood.
const TOLD: usize = 4;

/// A router that is not ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rogue {
    /// The address that it advertises itself with.
    pub address: Ipv6Addr,
    /// The hardware address that its frames come from.
    pub mac: MacAddress,
    /// Whether it wants to be a default router.
    pub default_router: bool,
    /// Prefixes that it wants hosts to use.
    pub prefixes: Vec<Ipv6Net>,
    /// DNS servers that it wants hosts to use.
    pub dns_servers: Vec<Ipv6Addr>,
    /// When it was last heard.
    pub last_heard: Instant,
}

/// Finds who else advertises itself on a link.
#[derive(Debug, Default)]
pub struct RogueDetector {
    /// Routers that may be there.
    expected: Vec<Ipv6Addr>,
    known: BTreeMap<(Ipv6Addr, MacAddress), Rogue>,
}

impl RogueDetector {
    /// With routers that may be there, by the addresses that they advertise themselves with.
    pub fn new(expected: Vec<Ipv6Addr>) -> Self {
        RogueDetector { expected, known: BTreeMap::new() }
    }

    /// An advertisement of somebody else was heard. Whether [`RogueDetector::problems`] are others now.
    pub fn handle_advertisement(
        &mut self,
        source: Ipv6Addr,
        mac: MacAddress,
        content: &RouterAdvertisement,
        now: Instant,
    ) -> bool {
        if self.expected.contains(&source) {
            return false;
        }
        let mut rogue = Rogue {
            address: source,
            mac,
            default_router: content.router_lifetime > 0,
            prefixes: Vec::new(),
            dns_servers: Vec::new(),
            last_heard: now,
        };
        for option in &content.options {
            match option {
                AdvertisedOption::Prefix(found) => {
                    rogue
                        .prefixes
                        .extend(Ipv6Net::new(found.prefix, found.prefix_length).map(|net| net.trunc()));
                }
                AdvertisedOption::DnsServers { servers, .. } => rogue.dns_servers.extend(servers),
                _ => {}
            }
        }
        let key = (source, mac);
        let told = self.rogues(now).count().min(TOLD + 1);
        if !self.known.contains_key(&key)
            && self.known.len() == MOST
            && let Some((silent, _)) = self.known.iter().min_by_key(|(_, rogue)| rogue.last_heard)
        {
            let silent = *silent;
            self.known.remove(&silent);
        }
        self.known.insert(key, rogue);
        told != self.rogues(now).count().min(TOLD + 1)
    }

    /// All that were heard in the last hour.
    pub fn rogues(&self, now: Instant) -> impl Iterator<Item = &Rogue> {
        self.known.values().filter(move |rogue| now < rogue.last_heard + REMEMBERED)
    }

    /// What there is to say about them, in words that stay the same as long as it does: a flood is one sentence.
    pub fn problems(&self, now: Instant) -> Vec<String> {
        if self.rogues(now).count() > TOLD {
            return vec![format!(
                "more than {TOLD} other machines advertise themselves as routers (`sidestep status` lists them)"
            )];
        }
        let told = |rogue: &Rogue| format!("{} ({}) advertises itself as a router", rogue.address, rogue.mac);
        self.rogues(now).map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::ndp::Preference;

    fn content(router_lifetime: u16) -> RouterAdvertisement {
        RouterAdvertisement {
            hop_limit: 64,
            managed: false,
            other_configuration: false,
            preference: Preference::High,
            router_lifetime,
            reachable_time: 0,
            retransmission_timer: 0,
            options: Vec::new(),
        }
    }

    #[test]
    fn a_stranger_is_a_problem_until_it_has_been_silent_for_an_hour() {
        let start = Instant::now();
        let ours: Ipv6Addr = "fe80::1".parse().unwrap();
        let strange: Ipv6Addr = "fe80::bad".parse().unwrap();
        let mac = MacAddress([2, 0, 0, 0, 0, 9]);
        let mut detector = RogueDetector::new(vec![ours]);
        let mut hear = |source, lifetime, after| {
            let now = start + Duration::from_secs(after);
            detector.handle_advertisement(source, mac, &content(lifetime), now)
        };
        assert!(!hear(ours, 1_800, 0));
        assert!(hear(strange, 1_800, 0));
        assert!(!hear(strange, 0, 20));
        assert!(!hear(strange, 0, 3_000));
        let problems = |after| detector.problems(start + Duration::from_secs(after));
        assert_eq!(problems(3_000), ["fe80::bad (02:00:00:00:00:09) advertises itself as a router"]);
        assert_eq!(problems(6_000).len(), 1);
        assert_eq!(problems(6_601), Vec::<String>::new());
    }

    #[test]
    fn a_flood_of_strangers_takes_no_more_memory_and_is_one_sentence() {
        let start = Instant::now();
        let mut detector = RogueDetector::default();
        let mut changes = 0;
        let mut now = start;
        for number in 0..10_000u16 {
            let source = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, number);
            now = start + Duration::from_millis(u64::from(number));
            changes += u32::from(detector.handle_advertisement(source, MacAddress([2; 6]), &content(1), now));
        }
        assert_eq!((detector.known.len(), changes), (MOST, 5));
        assert_eq!(detector.problems(now).len(), 1);
    }
}
