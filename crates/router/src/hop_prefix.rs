//! The part of an uplink's prefix that a tunnel hops in: a /64 that no network of the site has.
//!
//! This file and `plan` need each other: that asks for the prefix, and what is in the way is one of its problems.

use std::time::Instant;

use ipnet::Ipv6Net;

use crate::lifetime::Lifetime;
use crate::plan::{Problem, subnet};
use crate::site::{Hops, Site};
use crate::uplink::UplinkState;

/// What the tunnel hops in now: in the first prefix of its uplink that is preferred or, where none is, that is valid, so that
/// it stays where it is until something better is there. None as long as there is none.
pub(crate) fn hop_prefix(
    site: &Site,
    uplinks: &[&UplinkState],
    now: Instant,
    problems: &mut Vec<Problem>,
) -> Option<Ipv6Net> {
    let hops = site.hops.as_ref()?;
    let state = uplinks[site.uplinks.iter().position(|uplink| uplink.name == hops.uplink)?];
    let known: Vec<(Ipv6Net, Lifetime, Lifetime)> = if hops.on_link {
        let on_link = state.heard_prefixes().filter(|known| known.on_link);
        on_link.map(|known| (known.prefix, known.preferred, known.valid)).collect()
    } else {
        state.prefixes().map(|leased| (leased.prefix, leased.preferred, leased.valid)).collect()
    };
    let preferred = known.iter().find(|(_, preferred, _)| !preferred.is_expired(now));
    let (prefix, ..) = *preferred.or_else(|| known.iter().find(|(.., valid)| !valid.is_expired(now)))?;
    if hops.on_link {
        return Some(prefix);
    }
    part(site, hops, prefix)
        .map_err(|why| problems.push(Problem::NoHopPrefix { uplink: hops.uplink.clone(), prefix, why }))
        .ok()
}

/// The /64 of a prefix that is the tunnel's, or why there is none.
fn part(site: &Site, hops: &Hops, prefix: Ipv6Net) -> Result<Ipv6Net, String> {
    let taken = |number: u64| {
        let own = subnet(prefix, number);
        let has = |network: &&crate::site::Network| {
            network.subnet == Some(number) || network.prefixes.iter().any(|p| Some(*p) == own)
        };
        site.networks.iter().find(has).map(|network| &network.name)
    };
    let Some(spare) = 64u32.checked_sub(prefix.prefix_len().into()) else {
        return Err("which is longer than a /64".to_owned());
    };
    let last = 1u64.checked_shl(spare).map_or(u64::MAX, |count| count - 1);
    let number = match hops.number {
        Some(number) if number > last => return Err(format!("which has no subnet {number}")),
        Some(number) => number,
        // Networks have the first ones.
        None => (0..=last)
            .rev()
            .take(site.networks.len() + 1)
            .find(|number| taken(*number).is_none())
            .unwrap_or(0),
    };
    match taken(number) {
        Some(network) => Err(format!("of which network {network} has subnet {number}")),
        None => subnet(prefix, number).ok_or_else(|| format!("which has no subnet {number}")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::delegation::{Lease, LeasedPrefix};
    use crate::site::{Delegation, Network, Probing, RouterFrom, Uplink};

    fn net(text: &str) -> Ipv6Net {
        text.parse().unwrap()
    }

    fn site(subnets: &[u64], number: Option<u64>) -> Site {
        let uplink = Uplink {
            name: "fibre".into(),
            interface: "eth0".into(),
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
        let network = |subnet: &u64| Network {
            name: format!("lan{subnet}"),
            interface: format!("lan{subnet}"),
            subnet: Some(*subnet),
            host: 1,
            prefixes: vec![net("fd00:1::/64")],
            ipv4: None,
            advertise: None,
            resolves: false,
            dhcp: None,
            dhcp6: None,
            port_mapping: None,
        };
        let hops = Some(Hops { uplink: "fibre".into(), number, on_link: false });
        let networks = subnets.iter().map(network).collect();
        Site { uplinks: vec![uplink], networks, hops, ..Site::default() }
    }

    fn hops_in(site: &Site, leased: &[(&str, Lifetime, Lifetime)]) -> (Option<Ipv6Net>, Vec<String>) {
        let mut state = UplinkState::new(&site.uplinks[0], Probing::default());
        let prefixes = leased
            .iter()
            .map(|(prefix, preferred, valid)| LeasedPrefix {
                prefix: net(prefix),
                preferred: *preferred,
                valid: *valid,
            })
            .collect();
        state.set_lease((!leased.is_empty()).then(|| Lease {
            iaid: 1,
            server: vec![0; 10],
            prefixes,
            renew: Lifetime::Infinite,
            rebind: Lifetime::Infinite,
            dns_servers: Vec::new(),
            aftr: None,
        }));
        let mut problems = Vec::new();
        let found = hop_prefix(site, &[&state], Instant::now(), &mut problems);
        (found, problems.iter().map(ToString::to_string).collect())
    }

    const FOR_GOOD: (Lifetime, Lifetime) = (Lifetime::Infinite, Lifetime::Infinite);

    #[test]
    fn without_a_number_it_is_the_last_that_no_network_has() {
        for (prefix, subnets, expected) in [
            ("2001:db8:1000::/56", &[0, 1][..], "2001:db8:1000:ff::/64"),
            ("2001:db8:1000::/56", &[0, 255, 254], "2001:db8:1000:fd::/64"),
            ("2001:db8:1000::/62", &[3, 2, 1], "2001:db8:1000::/64"),
            ("2001:db8:1000::/64", &[], "2001:db8:1000::/64"),
            ("2001:db8::/32", &[0], "2001:db8:ffff:ffff::/64"),
        ] {
            let found = hops_in(&site(subnets, None), &[(prefix, FOR_GOOD.0, FOR_GOOD.1)]);
            assert_eq!(found, (Some(net(expected)), vec![]), "{prefix} {subnets:?}");
        }
        let found = hops_in(&site(&[], Some(7)), &[("2001:db8:1000::/60", FOR_GOOD.0, FOR_GOOD.1)]);
        assert_eq!(found.0, Some(net("2001:db8:1000:7::/64")));
    }

    #[test]
    fn what_does_not_fit_is_said() {
        for (prefix, subnets, number, said) in [
            ("2001:db8:1000::/60", &[0][..], Some(16), "which has no subnet 16"),
            ("2001:db8:1000::/60", &[0, 7], Some(7), "network lan7 has subnet 7"),
            ("2001:db8:1000::/64", &[0], None, "network lan0 has subnet 0"),
            ("2001:db8:1000::/72", &[], None, "longer than a /64"),
        ] {
            let (found, problems) = hops_in(&site(subnets, number), &[(prefix, FOR_GOOD.0, FOR_GOOD.1)]);
            assert!(found.is_none() && problems.len() == 1 && problems[0].contains(said), "{problems:?}");
        }
    }

    #[test]
    fn it_stays_in_a_prefix_until_another_is_preferred() {
        let (site, later) = (site(&[0], Some(9)), Lifetime::Until(Instant::now() + Duration::from_secs(60)));
        let (old, new) = ("2001:db8:1000::/56", "2001:db8:3000::/56");
        let at = |text| Some(net(text));
        assert_eq!(hops_in(&site, &[]), (None, vec![]), "there is none yet, which is no fault");
        assert_eq!(hops_in(&site, &[(old, later, later)]).0, at("2001:db8:1000:9::/64"));
        assert_eq!(hops_in(&site, &[(old, Lifetime::Expired, later)]).0, at("2001:db8:1000:9::/64"));
        assert_eq!(
            hops_in(&site, &[(old, Lifetime::Expired, later), (new, later, later)]).0,
            at("2001:db8:3000:9::/64")
        );
        assert_eq!(hops_in(&site, &[(old, Lifetime::Expired, Lifetime::Expired)]).0, None);
    }
}
