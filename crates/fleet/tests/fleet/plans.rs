//! What follows for each gateway, in several topologies.

use std::collections::BTreeMap;

use fleet::fleet::Fleet;
use fleet::name::Name;
use fleet::plan::{Plan, way};
use fleet::settings::{Policy, Reach, Selector};
use fleet::site::Site;
use proptest::prelude::*;

use crate::scene::*;

/// The networks behind each peer.
fn behind(fleet: &Fleet, who: &str) -> BTreeMap<String, Vec<String>> {
    let of = |peer: fleet::plan::PlannedPeer| {
        let mut networks: Vec<_> = peer.networks().collect();
        networks.sort();
        (peer.name.to_string(), networks.iter().map(ToString::to_string).collect())
    };
    Plan::of(fleet, &name(who)).peers.into_iter().map(of).collect()
}

fn map(peers: &[(&str, &[&str])]) -> BTreeMap<String, Vec<String>> {
    let of = |(name, networks): &(&str, &[&str])| {
        ((*name).to_owned(), networks.iter().map(|network| (*network).to_owned()).collect())
    };
    peers.iter().map(of).collect()
}

fn fleet_of(policy: Policy, sites: Vec<Site>) -> Fleet {
    let mut administrators = Administrators::of(policy);
    for site in sites {
        administrators.contents.put(site);
    }
    administrators.published()
}

#[test]
fn spokes_meet_the_hub_and_reach_each_other_through_it() {
    let sites = vec![site("hub", "hub", 1), site("kiel", "spoke", 2), site("bonn", "spoke", 3)];
    let fleet = fleet_of(hub_and_spokes(), sites);
    assert_eq!(behind(&fleet, "kiel"), map(&[("hub", &["fd00:1::/48", "fd00:3::/48"])]));
    assert_eq!(behind(&fleet, "hub"), map(&[("bonn", &["fd00:3::/48"]), ("kiel", &["fd00:2::/48"])]));
    let way = way(&fleet, &name("kiel"), &name("bonn")).unwrap();
    assert_eq!(way, [&name("kiel"), &name("hub"), &name("bonn")]);
}

#[test]
fn in_a_mesh_all_are_peers() {
    let fleet = fleet_of(mesh(), (1..=5).map(|number| site(&format!("s{number}"), "site", number)).collect());
    let expected: &[(&str, &[&str])] = &[
        ("s2", &["fd00:2::/48"]),
        ("s3", &["fd00:3::/48"]),
        ("s4", &["fd00:4::/48"]),
        ("s5", &["fd00:5::/48"]),
    ];
    assert_eq!(behind(&fleet, "s1"), map(expected));
}

#[test]
fn regions_have_hubs_of_their_own() {
    let in_region = |who: &str, role: &str, number, region: &str| {
        let mut member = member(who, role, number);
        member.region = Some(name(region));
        Site::new(member, contact(number))
    };
    let mut policy = hub_and_spokes();
    policy.links[0].same_region = true;
    let sites = vec![
        in_region("hub-n", "hub", 1, "north"),
        in_region("hub-s", "hub", 2, "south"),
        in_region("kiel", "spoke", 3, "north"),
        in_region("ulm", "spoke", 4, "south"),
    ];
    let fleet = fleet_of(policy, sites);
    assert_eq!(behind(&fleet, "kiel"), map(&[("hub-n", &["fd00:1::/48", "fd00:2::/48", "fd00:4::/48"])]));
    let expected: &[(&str, &[&str])] =
        &[("hub-s", &["fd00:2::/48", "fd00:4::/48"]), ("kiel", &["fd00:3::/48"])];
    assert_eq!(behind(&fleet, "hub-n"), map(expected));
}

#[test]
fn who_may_not_reach_whom_has_no_networks_of_it() {
    let mut policy = hub_and_spokes();
    policy.reach = vec![Reach { from: role("spoke"), to: role("hub") }];
    let sites = vec![site("hub", "hub", 1), site("kiel", "spoke", 2), site("bonn", "spoke", 3)];
    let fleet = fleet_of(policy, sites);
    // The agent of the other spoke answers, its networks do not.
    assert_eq!(behind(&fleet, "kiel"), map(&[("hub", &["fd00:1::/48", "fd00:3::1/128"])]));
    assert_eq!(behind(&fleet, "hub"), map(&[("bonn", &["fd00:3::/48"]), ("kiel", &["fd00:2::/48"])]));
}

#[test]
fn who_is_revoked_is_nobodys_peer_and_has_none() {
    let mut gone = member("bonn", "spoke", 3);
    gone.revoked = Some(1_800_000_000);
    let sites = vec![site("hub", "hub", 1), site("kiel", "spoke", 2), Site::new(gone, contact(3))];
    let fleet = fleet_of(hub_and_spokes(), sites);
    assert_eq!(behind(&fleet, "hub"), map(&[("kiel", &["fd00:2::/48"])]));
    assert_eq!(Plan::of(&fleet, &name("bonn")), Plan::default());
    assert_eq!(Plan::of(&fleet, &name("mallory")), Plan::default());
}

#[test]
fn what_no_way_leads_to_and_who_cannot_be_met_are_named() {
    let policy = Policy { relays: Vec::new(), ..hub_and_spokes() };
    let mut administrators = Administrators::of(policy);
    for site in [site("hub", "hub", 1), site("kiel", "spoke", 2), site("bonn", "spoke", 3)] {
        administrators.contents.put(site);
    }
    let whole = administrators.published();
    assert_eq!(Plan::of(&whole, &name("kiel")).unreachable, [name("bonn")]);
    // What Bonn was told is not enough for Kiel.
    let mut fleet = administrators.newcomer();
    take(&mut fleet, told(&whole, "mallory"));
    assert_eq!(Plan::of(&fleet, &name("kiel")).unmet, [name("hub")]);
}

#[test]
fn peers_are_a_file_that_a_gateway_takes() {
    let mut moving = contact(2);
    moving.next_key = Some(tunnel_key(22));
    let kiel = Site::new(member("kiel", "spoke", 2), moving);
    let fleet = fleet_of(hub_and_spokes(), vec![site("hub", "hub", 1), kiel]);
    let text = fleet::peers::text(&Plan::of(&fleet, &name("hub")));
    let expected = format!(
        "{}\n[[peer]]\nname        = \"kiel\"\npublic_key  = \"{}\"\nnext_public_key = \"{}\"\n\
         hop_prefix  = \"2001:db8:2::/64\"\nallowed_ips = [\n    \"fd00:2::/48\", # kiel\n]\nkeepalive   = \"25s\"\n",
        fleet::peers::OURS,
        String::from(tunnel_key(2)),
        String::from(tunnel_key(22)),
    );
    assert_eq!(text, expected);
}

#[test]
fn a_firewall_is_told_who_opens_connections_and_which_zones_there_are() {
    let in_zone = |who: &str, number, zone: &str| {
        let mut member = member(who, "spoke", number);
        member.zone = Some(name(zone));
        Site::new(member, contact(number))
    };
    let zones = |zone: &str| Selector { zones: vec![name(zone)], ..Selector::default() };
    let reach = vec![Reach { from: zones("office"), to: Selector::default() }];
    let policy = Policy { reach, ..hub_and_spokes() };
    let sites = vec![site("hub", "hub", 1), in_zone("kiel", 2, "office"), in_zone("bonn", 3, "sensors")];
    let fleet = fleet_of(policy, sites);
    let told = |who: &str| {
        let text = fleet::peers::text(&Plan::of(&fleet, &name(who)));
        text.split_once("[reach]\n").map(|(_, reach)| reach.to_owned()).unwrap_or_default()
    };
    assert_eq!(
        told("kiel"),
        "own         = [\"fd00:2::/48\"]\nserves      = [\"[fd00:2::1]:4161\"]\n\
         agents      = [\n    \"fd00:3::1\", # bonn\n    \"fd00:1::1\", # hub\n]\n\
         answers_only = [\n    \"fd00:3::/48\", # bonn\n    \"fd00:1::/48\", # hub\n]\n\
         asks_only   = [\n]\n\n[reach.zones]\n\"sensors\"   = [\n    \"fd00:3::/48\", # bonn\n]\n"
    );
    // Kiel may ask Bonn, which only answers it; the hub asks nobody.
    let bonn = told("bonn");
    assert!(
        bonn.contains("asks_only   = [\n    \"fd00:1::1/128\", # hub\n    \"fd00:2::/48\", # kiel\n]"),
        "{bonn}"
    );
    assert!(bonn.contains("answers_only = [\n    \"fd00:1::1/128\", # hub\n]"), "{bonn}");
}

/// Sites in three regions, of which some relay, and links of any kind between them.
fn any_fleet() -> impl Strategy<Value = Fleet> {
    let one = (0..3usize, 0..3usize);
    let links = proptest::collection::vec(((0..3usize), (0..3usize), any::<bool>()), 1..4);
    (proptest::collection::vec(one, 2..14), links, any::<bool>()).prop_map(|(sites, links, two_relay)| {
        let roles = ["hub", "middle", "spoke"];
        let links = links.into_iter().map(|(one, other, same_region)| fleet::settings::Link {
            same_region,
            ..link(role(roles[one]), role(roles[other]))
        });
        let mut relays = vec![role("hub")];
        relays.extend(two_relay.then(|| role("middle")));
        let policy = Policy { links: links.collect(), relays, reach: Vec::new() };
        let sites = sites.into_iter().zip(1..).map(|((of_role, region), number)| {
            let mut member = member(&format!("s{number}"), roles[of_role], number);
            member.region = Some(name(["north", "south", "west"][region]));
            Site::new(member, contact(number))
        });
        fleet_of(policy, sites.collect())
    })
}

proptest! {
    /// A gateway takes packets of a site only from the peer that it would send packets to that site through: so the way back is
    /// the way there, and every gateway on it agrees.
    #[test]
    fn a_packet_and_its_answer_take_the_same_way(fleet in any_fleet()) {
        let names: Vec<Name> = fleet.sites().into_keys().cloned().collect();
        let first = |at: &Name, to: &Name| {
            let plan = Plan::of(&fleet, at);
            let network = fleet.site(to).unwrap().member.networks[0];
            let has = |peer: &&fleet::plan::PlannedPeer| peer.networks().any(|one| *one == network);
            let peers: Vec<_> = plan.peers.iter().filter(has).map(|peer| peer.name.clone()).collect();
            assert!(peers.len() <= 1, "{at}: {to} is behind {peers:?}");
            peers.into_iter().next()
        };
        for from in &names {
            for to in names.iter().filter(|to| *to != from) {
                let there = way(&fleet, from, to);
                let mut back = way(&fleet, to, from);
                if let Some(way) = &mut back {
                    way.reverse();
                }
                prop_assert_eq!(&there, &back);
                let Some(way) = there else {
                    prop_assert_eq!(first(from, to), None);
                    continue;
                };
                for pair in way.windows(2) {
                    prop_assert_eq!(first(pair[0], to), Some(pair[1].clone()));
                    prop_assert_eq!(first(pair[1], from), Some(pair[0].clone()));
                }
                let relays = &fleet.settings().unwrap().policy;
                for between in &way[1..way.len() - 1] {
                    prop_assert!(relays.is_relay(&fleet.site(between).unwrap().member));
                }
            }
        }
    }
}

#[test]
fn ways_are_spread_over_hubs() {
    let hubs = (1..=4).map(|number| site(&format!("hub{number}"), "hub", number));
    let spokes = (10..60).map(|number| site(&format!("s{number}"), "spoke", number));
    let fleet = fleet_of(hub_and_spokes(), hubs.chain(spokes).collect());
    let mut carried = BTreeMap::new();
    for from in (10..60).step_by(5) {
        for to in (10..60).filter(|to| *to != from) {
            let way = way(&fleet, &name(&format!("s{from}")), &name(&format!("s{to}"))).unwrap();
            *carried.entry(way[1].clone()).or_insert(0) += 1;
        }
    }
    // Of 490 ways each of four has some.
    assert!(carried.len() == 4 && carried.values().all(|ways| *ways > 40), "{carried:?}");
}

#[test]
fn a_selector_selects_by_all_that_it_says() {
    let mut kiel = member("kiel", "spoke", 1);
    kiel.zone = Some(name("office"));
    let selector = |zone: &str| Selector { zones: vec![name(zone)], ..role("spoke") };
    assert!(selector("office").selects(&kiel) && !selector("guests").selects(&kiel));
    assert!(Selector::default().selects(&kiel));
    kiel.zone = None;
    assert!(!selector("office").selects(&kiel));
}

/// What is explained is what gateways do: packets pass where each of the two has the other's networks behind a peer.
#[test]
fn what_passes_is_explained_by_the_rule_the_way_and_the_networks() {
    use fleet::explain::{Explanation, Verdict, site_of};
    let reach = |from: Selector, to: Selector| Reach { from, to };
    let mut policy = hub_and_spokes();
    policy.reach = vec![
        reach(Selector { sites: vec![name("kiel")], ..Selector::default() }, Selector::default()),
        reach(Selector::of_role(name("hub")), Selector::of_role(name("spoke"))),
    ];
    let sites = ["hub", "kiel", "bonn", "graz"];
    let made = sites
        .iter()
        .zip(1..)
        .map(|(who, number)| site(who, if *who == "hub" { "hub" } else { "spoke" }, number));
    let fleet = fleet_of(policy, made.collect());
    let said = Explanation::of(&fleet, &name("kiel"), &name("bonn")).unwrap();
    assert!(matches!(said.verdict, Verdict::Allowed { number: 1, .. }), "{said:?}");
    assert_eq!(said.back, Verdict::Refused);
    let way: Vec<_> =
        said.way.as_ref().unwrap().iter().map(|hop| (hop.from.as_str(), hop.to.as_str())).collect();
    assert_eq!(way, [("kiel", "hub"), ("hub", "bonn")]);
    assert!(said.way.as_ref().unwrap().iter().all(|hop| hop.number == 1));
    assert!(Explanation::of(&fleet, &name("kiel"), &name("nobody")).is_none());
    for one in sites {
        for other in sites.iter().filter(|other| **other != one) {
            let passes = Explanation::of(&fleet, &name(one), &name(other)).unwrap().passes();
            let has = |who: &str, of: &str| {
                let networks = &fleet.site(&name(of)).unwrap().member.networks;
                let behind = behind(&fleet, who);
                networks
                    .iter()
                    .all(|network| behind.values().flatten().any(|one| *one == network.to_string()))
            };
            assert_eq!(passes, has(one, other) && has(other, one), "{one} and {other}");
        }
    }
    let (name, network) = site_of(&fleet, "fd00:3::1".parse().unwrap()).unwrap();
    assert_eq!((name.as_str(), network.to_string().as_str()), ("bonn", "fd00:3::/48"));
    assert_eq!(site_of(&fleet, "2001:db8::1".parse().unwrap()), None);
}
