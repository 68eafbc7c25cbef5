//! Which delegated prefixes are believed. A provider says what it routes here, and nobody checks that it may: one that claims
//! what others have, or nearly everything, would take it away from hosts that use another uplink.
//!
//! What it claims elsewhere within these bounds is believed: the gateway cannot know whose addresses these are.

use ipnet::{IpNet, Ipv6Net};

use crate::plan::Problem;
use crate::site::Site;
use crate::uplink::UplinkState;

/// Sites get a /48 to a /64 (RFC 6177, RFC 7084 section 4.3), and nobody behind a provider more than registries give a
/// provider; of less a network has no /64.
const SHORTEST: u8 = 32;
const LONGEST: u8 = 64;
/// Addresses of sites: what IANA gives out (RFC 4291 section 2.4), and unique local ones (RFC 4193), which a router of
/// another site may delegate.
const GLOBAL_UNICAST: u16 = 0x2000;
const UNIQUE_LOCAL: u16 = 0xfc00;

/// Has each uplink use those of its leased prefixes that are believed, and returns the others, with why. What another uplink
/// has had before stays with it; of two that have had neither, the first in the file takes it.
pub fn sort_out(site: &Site, uplinks: &mut [&mut UplinkState]) -> Vec<Problem> {
    let fixed = uplinks.iter().enumerate();
    let mut taken: Vec<(usize, Ipv6Net)> =
        fixed.flat_map(|(place, state)| state.fixed_prefixes().map(move |prefix| (place, prefix))).collect();
    let mut problems = Vec::new();
    let mut refused = vec![Vec::new(); uplinks.len()];
    for had_before in [true, false] {
        for (place, state) in uplinks.iter().enumerate() {
            for prefix in state.leased_prefixes().filter(|prefix| state.has_had(prefix) == had_before) {
                match refusal(site, (place, prefix), &taken) {
                    None => taken.push((place, prefix)),
                    Some(why) => {
                        let uplink = site.uplinks.get(place).map(|uplink| uplink.name.clone());
                        let uplink = uplink.unwrap_or_default();
                        problems.push(Problem::RefusedPrefix { uplink, prefix, why });
                        refused[place].push(prefix);
                    }
                }
            }
        }
    }
    for (state, refused) in uplinks.iter_mut().zip(refused) {
        state.refuse_prefixes(refused);
    }
    problems
}

/// Why a prefix is not believed of the uplink at this place.
fn refusal(site: &Site, (place, prefix): (usize, Ipv6Net), taken: &[(usize, Ipv6Net)]) -> Option<String> {
    let first = prefix.network().segments()[0];
    let is_local = first & 0xfe00 == UNIQUE_LOCAL;
    if first & 0xe000 != GLOBAL_UNICAST && !is_local {
        return Some("these are no addresses of hosts".to_owned());
    }
    if !(SHORTEST..=LONGEST).contains(&prefix.prefix_len()) {
        return Some(format!("no site has such a prefix, only those from /{SHORTEST} to /{LONGEST}"));
    }
    let overlap = |other: &Ipv6Net| other.contains(&prefix) || prefix.contains(other);
    if let Some((other, theirs)) = taken.iter().find(|(other, theirs)| *other != place && overlap(theirs)) {
        let other = site.uplinks.get(*other).map_or("", |uplink| uplink.name.as_str());
        return Some(format!("uplink {other} has {theirs}"));
    }
    for network in &site.networks {
        // Somebody may have written down a part of what is delegated; but no provider gives what is of this site alone.
        let is_in_the_way = |own: &&Ipv6Net| own.contains(&prefix) || is_local && prefix.contains(*own);
        if let Some(own) = network.prefixes.iter().find(is_in_the_way) {
            return Some(format!("network {} has {own}", network.name));
        }
    }
    // The site's own prefix may well be within a larger network that its peers lead to.
    let elsewhere = site.elsewhere.iter().find(|elsewhere| IpNet::V6(prefix).contains(*elsewhere));
    elsewhere.map(|elsewhere| format!("{elsewhere} is behind a peer of the tunnel"))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use proptest::prelude::*;

    use super::*;
    use crate::delegation::{Lease, LeasedPrefix};
    use crate::lifetime::Lifetime;
    use crate::site::{Network, Probing, RouterFrom, Uplink};

    fn net(text: &str) -> Ipv6Net {
        text.parse().unwrap()
    }

    fn site() -> Site {
        let uplink = |name: &str, prefixes: &[&str]| Uplink {
            name: name.into(),
            interface: name.into(),
            router: RouterFrom::Advertisements,
            addresses: Vec::new(),
            prefixes: prefixes.iter().map(|prefix| net(prefix)).collect(),
            delegation: Some(crate::site::Delegation::default()),
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
            prefixes: vec![net("fd00:1:0:1::/64"), net("2001:db8:c00:7::/64")],
            ipv4: None,
            advertise: None,
            resolves: false,
            dhcp: None,
            dhcp6: None,
            port_mapping: None,
        };
        let elsewhere = ["::/0", "2001:db8:e00::/48", "10.0.0.0/8"].map(|net| net.parse().unwrap()).to_vec();
        let uplinks =
            vec![uplink("fibre", &[]), uplink("cable", &[]), uplink("broker", &["2001:db8:100::/48"])];
        Site { uplinks, networks: vec![network], elsewhere, ..Site::default() }
    }

    fn states(site: &Site) -> Vec<UplinkState> {
        site.uplinks.iter().map(|uplink| UplinkState::new(uplink, Probing::default())).collect()
    }

    fn lease(prefixes: &[Ipv6Net]) -> Lease {
        let endless = |prefix: &Ipv6Net| LeasedPrefix {
            prefix: *prefix,
            preferred: Lifetime::Infinite,
            valid: Lifetime::Infinite,
        };
        Lease {
            iaid: 1,
            server: Vec::new(),
            prefixes: prefixes.iter().map(endless).collect(),
            renew: Lifetime::Infinite,
            rebind: Lifetime::Infinite,
            dns_servers: Vec::new(),
            aftr: None,
        }
    }

    fn sorted(site: &Site, states: &mut [UplinkState]) -> Vec<String> {
        let problems = sort_out(site, &mut states.iter_mut().collect::<Vec<_>>());
        problems.iter().map(ToString::to_string).collect()
    }

    fn used(state: &UplinkState) -> Vec<String> {
        state.prefixes().map(|leased| leased.prefix.to_string()).collect()
    }

    #[test]
    fn what_no_provider_has_to_give_is_left_out() {
        let site = site();
        for (claimed, why) in [
            ("2000::/3", "no site has such a prefix"),
            ("::/0", "no addresses of hosts"),
            ("2001:db8::/31", "no site has such a prefix"),
            ("2001:db8:ffff::53/128", "no site has such a prefix"),
            ("fe80::/64", "no addresses of hosts"),
            ("ff0e::/48", "no addresses of hosts"),
            ("64:ff9b::/48", "no addresses of hosts"),
            ("::ffff:0:0/64", "no addresses of hosts"),
            ("fd00:1:0:1::/64", "network lan has fd00:1:0:1::/64"),
            ("fd00:1::/48", "network lan has fd00:1:0:1::/64"),
            ("2001:db8:c00:7::/64", "network lan has 2001:db8:c00:7::/64"),
            ("2001:db8:e00::/48", "2001:db8:e00::/48 is behind a peer of the tunnel"),
            ("2001:db8:100:5::/64", "uplink broker has 2001:db8:100::/48"),
            ("2001:db8::/32", "uplink broker has 2001:db8:100::/48"),
        ] {
            let mut states = states(&site);
            states[1].set_lease(Some(lease(&[net(claimed), net("2001:db8:b00::/56")])));
            let problems = sorted(&site, &mut states);
            assert_eq!(used(&states[1]), ["2001:db8:b00::/56"], "{claimed}");
            let [problem] = problems.as_slice() else { panic!("{claimed}: {problems:?}") };
            assert!(problem.starts_with("uplink cable: ") && problem.contains(why), "{problem}");
        }
        for claimed in ["2001:db8:c00::/56", "2002:c000:201::/48", "fd00:2::/60", "2001:db8:f00::/64"] {
            let mut states = states(&site);
            states[1].set_lease(Some(lease(&[net(claimed)])));
            assert_eq!(sorted(&site, &mut states), [""; 0]);
            assert_eq!(used(&states[1]), [claimed]);
        }
    }

    #[test]
    fn who_has_had_a_prefix_keeps_it() {
        let site = site();
        let prefix = net("2001:db8:a00::/56");
        for (first, second) in [(0, 1), (1, 0)] {
            let mut states = states(&site);
            states[first].set_lease(Some(lease(&[prefix])));
            assert_eq!(sorted(&site, &mut states), [""; 0]);
            states[second].set_lease(Some(lease(&[net("2001:db8:a00:10::/60")])));
            // Renewed, too.
            states[first].set_lease(Some(lease(&[prefix])));
            for _ in 0..2 {
                assert_eq!(sorted(&site, &mut states).len(), 1);
                assert_eq!((used(&states[first]).len(), used(&states[second]).len()), (1, 0));
            }
            // Once that is gone, the other is believed.
            states[first].set_lease(None);
            assert_eq!(sorted(&site, &mut states), [""; 0]);
            assert_eq!(used(&states[second]), ["2001:db8:a00:10::/60"]);
        }
        // At a start all are new.
        let mut states = states(&site);
        [0, 1].into_iter().for_each(|place| states[place].set_lease(Some(lease(&[prefix]))));
        sorted(&site, &mut states);
        assert_eq!((used(&states[0]).len(), used(&states[1]).len()), (1, 0));
    }

    fn claim() -> impl Strategy<Value = Ipv6Net> {
        let near = (any::<u16>(), 28..=72u8)
            .prop_map(|(bits, length)| (0x2001_0db8 << 96 | u128::from(bits) << 72, length));
        let far = (any::<u128>(), 0..=128u8);
        let local =
            (0..4u128, 40..=68u8).prop_map(|(bits, length)| (0xfd00_0001_0000 << 80 | bits << 64, length));
        prop_oneof![near, far, local]
            .prop_map(|(bits, length)| Ipv6Net::new(Ipv6Addr::from_bits(bits), length).unwrap().trunc())
    }

    proptest! {
        #[test]
        fn whatever_is_claimed_nobody_loses_anything(
            rounds in proptest::collection::vec((0..3usize, proptest::collection::vec(claim(), 0..4)), 1..12)
        ) {
            let site = site();
            let mut states = states(&site);
            for (place, claims) in rounds {
                let before: Vec<_> = states.iter().map(used).collect();
                states[place].set_lease(Some(lease(&claims)));
                sorted(&site, &mut states);
                for (other, before) in before.iter().enumerate().filter(|(other, _)| *other != place) {
                    let now = used(&states[other]);
                    prop_assert!(before.iter().all(|had| now.contains(had)), "{before:?} {now:?}");
                }
                let all: Vec<(usize, Ipv6Net)> = states.iter().enumerate()
                    .flat_map(|(place, state)| state.prefixes().map(move |leased| (place, leased.prefix)))
                    .collect();
                prop_assert!(all.contains(&(2, net("2001:db8:100::/48"))));
                for (place, prefix) in &all {
                    prop_assert!((32..=64).contains(&prefix.prefix_len()));
                    let is_apart = |other: &Ipv6Net| !other.contains(prefix) && !prefix.contains(other);
                    prop_assert!(all.iter().all(|(other, theirs)| other == place || is_apart(theirs)));
                    prop_assert!(is_apart(&net("fd00:1:0:1::/64")));
                }
            }
        }
    }
}
