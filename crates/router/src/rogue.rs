//! Routers on an inner link that should not be there: a misconfigured machine, or somebody who wants the traffic of its
//! neighbors (RFC 6104). They cannot be kept from advertising themselves by a gateway beside them, but they are seen.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use ipnet::Ipv6Net;
use wire::ethernet::MacAddress;
use wire::ndp::{AdvertisedOption, RouterAdvertisement};

/// The same router is reported again after.
const AGAIN: Duration = Duration::from_secs(3_600);
/// So many are remembered; the one longest silent makes room.
const MOST: usize = 64;

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
    known: BTreeMap<(Ipv6Addr, MacAddress), (Rogue, Instant)>,
}

impl RogueDetector {
    /// With routers that may be there, by the addresses that they advertise themselves with.
    pub fn new(expected: Vec<Ipv6Addr>) -> Self {
        RogueDetector { expected, known: BTreeMap::new() }
    }

    /// An advertisement of somebody else was heard. Returns the router if it is to be reported: it is new, wants something
    /// else than before, or was reported an hour ago.
    pub fn handle_advertisement(
        &mut self,
        source: Ipv6Addr,
        mac: MacAddress,
        content: &RouterAdvertisement,
        now: Instant,
    ) -> Option<&Rogue> {
        if self.expected.contains(&source) {
            return None;
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
        if !self.known.contains_key(&key) && self.known.len() == MOST {
            let silent =
                self.known.iter().min_by_key(|(_, (rogue, _))| rogue.last_heard).map(|(key, _)| *key)?;
            self.known.remove(&silent);
        }
        let reported = match self.known.get(&key) {
            Some((before, reported))
                if now < *reported + AGAIN && (Rogue { last_heard: now, ..before.clone() }) == rogue =>
            {
                Some(*reported)
            }
            _ => None,
        };
        self.known.insert(key, (rogue, reported.unwrap_or(now)));
        let (rogue, _) = self.known.get(&key)?;
        reported.is_none().then_some(rogue)
    }

    /// All that were heard in the last hour.
    pub fn rogues(&self, now: Instant) -> impl Iterator<Item = &Rogue> {
        self.known.values().map(|(rogue, _)| rogue).filter(move |rogue| now < rogue.last_heard + AGAIN)
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
    fn a_stranger_is_reported_once_an_hour_and_when_it_wants_something_else() {
        let start = Instant::now();
        let ours: Ipv6Addr = "fe80::1".parse().unwrap();
        let strange: Ipv6Addr = "fe80::bad".parse().unwrap();
        let mac = MacAddress([2, 0, 0, 0, 0, 9]);
        let mut detector = RogueDetector::new(vec![ours]);
        let mut report = |source, lifetime, after| {
            detector
                .handle_advertisement(source, mac, &content(lifetime), start + Duration::from_secs(after))
                .is_some()
        };
        assert!(!report(ours, 1_800, 0));
        assert!(report(strange, 1_800, 0));
        assert!(!report(strange, 1_800, 10));
        assert!(report(strange, 0, 20), "it is no default router any more");
        assert!(!report(strange, 0, 30));
        assert!(report(strange, 0, 3_621));
        assert_eq!(detector.rogues(start + Duration::from_secs(3_700)).count(), 1);
        assert_eq!(detector.rogues(start + Duration::from_secs(9_000)).count(), 0);
    }

    #[test]
    fn a_flood_of_strangers_takes_no_more_memory() {
        let start = Instant::now();
        let mut detector = RogueDetector::default();
        for number in 0..1_000u16 {
            let source = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, number);
            let now = start + Duration::from_millis(u64::from(number));
            assert!(detector.handle_advertisement(source, MacAddress([2; 6]), &content(1), now).is_some());
        }
        assert_eq!(detector.known.len(), MOST);
    }
}
