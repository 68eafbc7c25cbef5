//! What sites say of themselves.

use fleet::site::{Site, TunnelKey};

use crate::scene::*;

/// Kiel may take networks of fd01::/16; Bonn may not.
fn two_sites() -> Administrators {
    let mut administrators = Administrators::of(mesh());
    let mut kiel = member("kiel", "spoke", 1);
    kiel.may_take = vec!["fd01::/16".parse().unwrap()];
    administrators.contents.put(Site::new(kiel, contact(1)));
    administrators.contents.put(site("bonn", "spoke", 2));
    administrators
}

fn networks(fleet: &fleet::fleet::Fleet, who: &str) -> Vec<String> {
    let site = fleet.site(&name(who)).unwrap();
    site.member.networks.iter().map(ToString::to_string).collect()
}

#[test]
fn a_site_is_renumbered_by_its_own_word() {
    let mut fleet = two_sites().published();
    let news = contact_notice(&fleet, "kiel", 10, contact(11));
    assert!(take(&mut fleet, news.clone()));
    assert!(!take(&mut fleet, news));
    assert_eq!(hops(&fleet)["kiel"].as_deref(), Some("2001:db8:b::/64"));
    let older = contact_notice(&fleet, "kiel", 9, contact(12));
    assert!(!take(&mut fleet, older));
    assert_eq!(hops(&fleet)["kiel"].as_deref(), Some("2001:db8:b::/64"));
}

#[test]
fn nobody_speaks_for_another() {
    let mut fleet = two_sites().published();
    let notice = fleet::notice::ContactNotice {
        network: fleet.network(),
        site: name("bonn"),
        number: 10,
        contact: contact(66),
    };
    let forged = fleet::signed::Signed::new(&notice, [&signer("kiel")]);
    let news = fleet::news::News { contacts: vec![forged], ..Default::default() };
    assert_eq!(refusal(&mut fleet, news), "a notice of bonn is refused: no such site has signed it");
    let stranger = contact_notice(&fleet, "mallory", 10, contact(66));
    assert_eq!(refusal(&mut fleet, stranger), "a notice of mallory is refused: no such site has signed it");
}

#[test]
fn a_site_takes_networks_within_what_it_was_given() {
    let mut fleet = two_sites().published();
    let news = networks_notice(&fleet, "kiel", 10, &["fd01:5::/32", "fd00:1::/48"]);
    take(&mut fleet, news);
    assert_eq!(networks(&fleet, "kiel"), ["fd01:5::/32", "fd00:1::/48"]);
    for (who, network, why) in [
        ("kiel", "fd00:2::/48", "it may not take fd00:2::/48"),
        ("kiel", "::/0", "it may not take ::/0"),
        ("bonn", "fd01:5::/64", "it may not take fd01:5::/64"),
        ("kiel", "fd01::1/32", "cannot have the network"),
    ] {
        let news = networks_notice(&fleet, who, 11, &[network]);
        let words = refusal(&mut fleet, news);
        assert!(words.contains(why), "{who} {network}: {words}");
    }
    assert_eq!(networks(&fleet, "kiel"), ["fd01:5::/32", "fd00:1::/48"]);
}

#[test]
fn what_is_anothers_cannot_be_taken_by_word() {
    let mut administrators = two_sites();
    let mut trier = member("trier", "spoke", 3);
    trier.may_take = vec!["fd01::/16".parse().unwrap()];
    administrators.contents.put(Site::new(trier, contact(3)));
    let mut fleet = administrators.published();
    let news = networks_notice(&fleet, "kiel", 10, &["fd01:5::/32"]);
    take(&mut fleet, news);
    // Neither the same, nor a part of it, nor around it.
    for network in ["fd01:5::/32", "fd01:5:1::/48", "fd01::/16"] {
        let news = networks_notice(&fleet, "trier", 20, &[network]);
        let words = refusal(&mut fleet, news);
        assert!(words.contains("overlaps fd01:5::/32 of kiel"), "{network}: {words}");
    }
    // Keys neither: not the one that is signed, nor the one that is said.
    let mut moved = contact(1);
    moved.next_key = Some(tunnel_key(31));
    let news = contact_notice(&fleet, "kiel", 10, moved);
    take(&mut fleet, news);
    for key in [1, 31, 2] {
        let mut stolen = contact(3);
        stolen.next_key = Some(tunnel_key(key));
        let news = contact_notice(&fleet, "trier", 20, stolen);
        assert!(refusal(&mut fleet, news).contains("the key of trier is also that of"));
    }
    // Nor does it hop among the hosts of another.
    let mut among = contact(3);
    among.hop_prefix = "fd01:5:0:1::/64".parse().unwrap();
    let news = contact_notice(&fleet, "trier", 20, among);
    assert!(refusal(&mut fleet, news).contains("overlaps the network fd01:5::/32 of kiel"));
    // What was given up is free again.
    let news = networks_notice(&fleet, "kiel", 11, &["fd01:6::/32"]);
    take(&mut fleet, news);
    let news = networks_notice(&fleet, "trier", 20, &["fd01:5::/32"]);
    take(&mut fleet, news);
}

/// In whatever order: each takes what the next one has, and the last gives it up.
#[test]
fn networks_that_sites_pass_on_are_taken_together() {
    let mut administrators = Administrators::of(mesh());
    let sites = ["aachen", "bonn", "celle"];
    for (who, number) in sites.iter().zip(1..) {
        let mut member = member(who, "spoke", number);
        member.may_take = vec!["fd01::/16".parse().unwrap()];
        administrators.contents.put(Site::new(member, contact(number)));
    }
    let mut before = administrators.published();
    let say = |fleet: &fleet::fleet::Fleet, number, networks: [&str; 3]| {
        let mut news = fleet::news::News::default();
        for (who, network) in sites.iter().zip(networks) {
            news.networks.extend(networks_notice(fleet, who, number, &[network]).networks);
        }
        news
    };
    let news = say(&before, 10, ["fd01:1::/32", "fd01:2::/32", "fd01:3::/32"]);
    take(&mut before, news);
    let next = say(&before, 11, ["fd01:2::/32", "fd01:3::/32", "fd01:4::/32"]);
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut fleet = before.clone();
        let networks = order.map(|place| next.networks[place].clone()).to_vec();
        take(&mut fleet, fleet::news::News { networks, ..Default::default() });
        let now = sites.map(|who| self::networks(&fleet, who));
        assert_eq!(now, [["fd01:2::/32"], ["fd01:3::/32"], ["fd01:4::/32"]], "{order:?}");
    }
    // What is not passed on is refused.
    let mut fleet = before.clone();
    let stolen = say(&before, 11, ["fd01:2::/32", "fd01:3::/32", "fd01:3:1::/48"]);
    let taken = fleet.take(stolen);
    assert_eq!(taken.refused.len(), 2, "{:?}", taken.refused);
}

#[test]
fn a_key_that_no_secret_can_be_shared_with_is_refused() {
    let mut fleet = two_sites().published();
    let mut small = contact(1);
    small.next_key = Some(TunnelKey(mt6d::keys::PublicKey::from_bytes([0; 32])));
    let news = contact_notice(&fleet, "kiel", 10, small);
    assert!(refusal(&mut fleet, news).contains("small order"));
}

#[test]
fn notices_outlive_documents_until_the_site_is_another() {
    let mut administrators = two_sites();
    let mut fleet = administrators.published();
    let moved = contact_notice(&fleet, "kiel", 10, contact(11));
    take(&mut fleet, moved.clone());
    administrators.contents.put(site("trier", "spoke", 3));
    take(&mut fleet, administrators.publish());
    assert_eq!(hops(&fleet)["kiel"].as_deref(), Some("2001:db8:b::/64"));
    // Administrators set it back.
    let mut kiel = member("kiel", "spoke", 1);
    kiel.notices_after = 10;
    administrators.contents.put(Site::new(kiel.clone(), contact(1)));
    take(&mut fleet, administrators.publish());
    assert_eq!(hops(&fleet)["kiel"].as_deref(), Some("2001:db8:1::/64"));
    assert!(!take(&mut fleet, moved));
    let later = contact_notice(&fleet, "kiel", 11, contact(12));
    take(&mut fleet, later);
    assert_eq!(hops(&fleet)["kiel"].as_deref(), Some("2001:db8:c::/64"));
    // It is revoked, and has no say.
    kiel.revoked = Some(1_800_000_000);
    administrators.contents.put(Site::new(kiel.clone(), contact(1)));
    take(&mut fleet, administrators.publish());
    let again = contact_notice(&fleet, "kiel", 13, contact(13));
    assert_eq!(refusal(&mut fleet, again.clone()), "a notice of kiel is refused: no such site has signed it");
    // Another machine takes its name: what the first said of itself is nothing to it.
    kiel.revoked = None;
    kiel.notices_after = 0;
    kiel.identity = signer("new kiel").public();
    administrators.contents.put(Site::new(kiel, contact(4)));
    take(&mut fleet, administrators.publish());
    assert_eq!(hops(&fleet)["kiel"].as_deref(), Some("2001:db8:4::/64"));
    assert_eq!(refusal(&mut fleet, again), "a notice of kiel is refused: no such site has signed it");
}

#[test]
fn what_administrators_give_away_is_no_longer_taken_by_word() {
    let mut administrators = two_sites();
    let mut fleet = administrators.published();
    let news = networks_notice(&fleet, "kiel", 10, &["fd01:5::/32"]);
    take(&mut fleet, news);
    let mut trier = member("trier", "spoke", 3);
    trier.networks.push("fd01:5::/32".parse().unwrap());
    administrators.contents.put(Site::new(trier, contact(3)));
    take(&mut fleet, administrators.publish());
    assert_eq!(networks(&fleet, "kiel"), ["fd00:1::/48"]);
    assert_eq!(networks(&fleet, "trier"), ["fd00:3::/48", "fd01:5::/32"]);
}

#[test]
fn a_site_without_memory_is_believed_by_its_clock() {
    assert_eq!(fleet::notice::next_number(0, 1_800_000_000), 1_800_000_000);
    assert_eq!(fleet::notice::next_number(1_800_000_000, 1_700_000_000), 1_800_000_001);
}
