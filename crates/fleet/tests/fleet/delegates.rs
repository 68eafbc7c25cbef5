//! What delegates allow, and what they cannot.

use fleet::authority::{Administrator, Authority, Delegate};
use fleet::document::Serial;
use fleet::fleet::{Fleet, Notices};
use fleet::news::News;
use fleet::notice::{Act, Delegated, DelegatedLines};
use fleet::signed::Signed;
use fleet::site::{Contact, Member, Site};

use crate::scene::*;

/// The help desk adds two kiosks in fd00:100::/24, and takes kiosks out.
fn desk() -> Delegate {
    Delegate {
        name: name("desk"),
        key: signer("desk").public(),
        most: 2,
        roles: vec![name("kiosk")],
        zones: Vec::new(),
        within: vec!["fd00:100::/24".parse().unwrap()],
        may_revoke: true,
    }
}

fn scene() -> (Administrators, Fleet) {
    let mut administrators = Administrators::with(vec![desk()], mesh());
    administrators.contents.put(site("kiel", "hub", 1));
    administrators.contents.put(site("old", "kiosk", 0x150));
    let fleet = administrators.published();
    (administrators, fleet)
}

fn act(fleet: &Fleet, by: &str, act: Act, contact: Option<&Contact>) -> News {
    let serial = fleet.serial().unwrap();
    let signed = Signed::new(&Delegated { network: fleet.network(), serial, act }, [&signer(by)]);
    let contact = contact.map(|contact| fleet::line::Line::new(contact.clone()).text().to_owned());
    News { delegated: vec![DelegatedLines { signed, contact }], ..News::default() }
}

fn add(fleet: &Fleet, by: &str, member: Member, contact: &Contact) -> News {
    let digest = *Site::new(member.clone(), contact.clone()).contact.digest();
    act(fleet, by, Act::Add { member: Box::new(member), contact: digest }, Some(contact))
}

fn revoke(fleet: &Fleet, by: &str, who: &str) -> News {
    act(fleet, by, Act::Revoke { site: name(who), since: 1_800_000_000 }, None)
}

#[test]
fn a_site_is_added_within_limits() {
    let (_, mut fleet) = scene();
    let news = add(&fleet, "desk", member("k1", "kiosk", 0x101), &contact(0x101));
    assert!(take(&mut fleet, news.clone()));
    assert!(!take(&mut fleet, news));
    assert_eq!(hops(&fleet)["k1"].as_deref(), Some("2001:db8:101::/64"));
    // It speaks for itself, as all do.
    let moved = contact_notice(&fleet, "k1", 5, contact(0x111));
    take(&mut fleet, moved);
    assert_eq!(hops(&fleet)["k1"].as_deref(), Some("2001:db8:111::/64"));
}

#[test]
fn limits_hold_whatever_is_signed() {
    let (_, mut fleet) = scene();
    let mut wide = member("k1", "kiosk", 0x101);
    wide.networks = vec!["::/0".parse().unwrap()];
    wide.address = None;
    let mut may_take_all = member("k1", "kiosk", 0x101);
    may_take_all.may_take = vec!["::/0".parse().unwrap()];
    let mut zoned = member("k1", "kiosk", 0x101);
    zoned.zone = Some(name("vault"));
    let mut inside_another = member("k1", "kiosk", 0x101);
    inside_another.networks = vec!["fd00:150:0:7::/64".parse().unwrap()];
    inside_another.address = None;
    let mut revoked = member("k1", "kiosk", 0x101);
    revoked.revoked = Some(1);
    for (member, contact, why) in [
        (member("k1", "hub", 0x101), contact(0x101), "not of the roles and zones that it may add"),
        (zoned, contact(0x101), "not of the roles and zones that it may add"),
        (member("k1", "kiosk", 0x201), contact(0x101), "is in none that it may give"),
        (wide, contact(0x101), "is in none that it may give"),
        (may_take_all, contact(0x101), "is in none that it may give"),
        (member("old", "kiosk", 0x101), contact(0x101), "there is a site old already"),
        (member("k1", "kiosk", 0x150), contact(0x101), "overlaps"),
        (inside_another, contact(0x101), "overlaps fd00:150::/48 of old"),
        (member("k1", "kiosk", 0x101), contact(1), "the key of k1 is also that of kiel"),
        (revoked, contact(0x101), "is revoked as it comes"),
    ] {
        let news = add(&fleet, "desk", member, &contact);
        let words = refusal(&mut fleet, news);
        assert!(words.starts_with("what desk has allowed is refused: ") && words.contains(why), "{words}");
    }
    let news = add(&fleet, "mallory", member("k1", "kiosk", 0x101), &contact(0x101));
    assert_eq!(refusal(&mut fleet, news), "what a delegate is said to have allowed is signed by none");
    // A contact that was not signed.
    let mut news = add(&fleet, "desk", member("k1", "kiosk", 0x101), &contact(0x101));
    news.delegated[0].contact = Some(fleet::line::Line::new(contact(66)).text().to_owned());
    assert!(refusal(&mut fleet, news).contains("the contact is not the one that was signed"));
    // Two, and no third.
    for number in [0x101, 0x102] {
        let news = add(&fleet, "desk", member(&format!("k{number}"), "kiosk", number), &contact(number));
        take(&mut fleet, news);
    }
    let news = add(&fleet, "desk", member("k3", "kiosk", 0x103), &contact(0x103));
    assert!(refusal(&mut fleet, news).contains("it may add 2 sites with one document"));
}

#[test]
fn a_delegate_takes_out_what_it_deals_with() {
    let (_, mut fleet) = scene();
    let news = revoke(&fleet, "desk", "kiel");
    assert!(refusal(&mut fleet, news).contains("not of the roles and zones that it may take out"));
    let news = revoke(&fleet, "desk", "old");
    take(&mut fleet, news);
    assert!(fleet.site(&name("old")).unwrap().member.is_revoked());
    let news = contact_notice(&fleet, "old", 5, contact(0x151));
    assert!(refusal(&mut fleet, news).contains("no such site has signed it"));
    let news = add(&fleet, "desk", member("old", "kiosk", 0x151), &contact(0x151));
    assert!(refusal(&mut fleet, news).contains("there is a site old already"));
}

/// What is told and kept has no order but that of digests, which is another for each of these.
#[test]
fn a_site_that_comes_and_goes_under_one_document_is_told_and_remembered() {
    for number in 0x101..0x111 {
        let (administrators, mut fleet) = scene();
        let news = add(&fleet, "desk", member("k1", "kiosk", number), &contact(number));
        take(&mut fleet, news);
        let news = revoke(&fleet, "desk", "k1");
        take(&mut fleet, news);
        let (authorities, news) = fleet.memory();
        let restored = Fleet::restore(fleet.network(), &authorities, news).expect("what was kept");
        let mut newcomer = administrators.newcomer();
        let news = fleet.all_news(&newcomer.have(), Notices::All);
        take(&mut newcomer, news);
        for other in [restored, newcomer] {
            assert_eq!(other.have(), fleet.have());
            assert!(other.site(&name("k1")).unwrap().member.is_revoked());
        }
    }
}

#[test]
fn the_next_document_decides() {
    let (mut administrators, mut fleet) = scene();
    for number in [0x101, 0x102] {
        let news = add(&fleet, "desk", member(&format!("k{number}"), "kiosk", number), &contact(number));
        take(&mut fleet, news);
    }
    let stale = add(&fleet, "desk", member("k3", "kiosk", 0x103), &contact(0x103));
    // One of them is taken into it.
    administrators.contents.put(site("k257", "kiosk", 0x101));
    take(&mut fleet, administrators.publish());
    assert_eq!(fleet.serial(), Some(Serial(2)));
    assert_eq!(fleet.sites().keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["k257", "kiel", "old"]);
    // What goes with the last document is nothing to this one.
    assert!(!take(&mut fleet, stale));
    assert_eq!(fleet.sites().len(), 3);
}

#[test]
fn who_is_no_delegate_any_more_has_allowed_nothing() {
    let (_, mut fleet) = scene();
    let news = add(&fleet, "desk", member("k1", "kiosk", 0x101), &contact(0x101));
    take(&mut fleet, news);
    let news = authority_of(&fleet, Vec::new());
    take(&mut fleet, news);
    assert_eq!(fleet.site(&name("k1")).map(|_| ()), None);
}

/// The next authority, with these delegates.
fn authority_of(fleet: &Fleet, delegates: Vec<Delegate>) -> News {
    let administrators =
        ["ada", "ben"].map(|who| Administrator { name: name(who), key: signer(who).public() });
    let authority = Authority {
        version: fleet.chain().current().version + 1,
        network: Some(fleet.network()),
        threshold: 2,
        administrators: administrators.to_vec(),
        delegates,
    };
    let signed = Signed::new(&authority, &["ada", "ben"].map(signer));
    News { authorities: vec![signed], ..News::default() }
}

/// Otherwise who keeps the document back that comes with an authority brings back who was taken out.
#[test]
fn who_was_taken_out_is_out_until_the_next_document_whoever_is_a_delegate() {
    let narrow = Delegate { roles: vec![name("camera")], ..desk() };
    for delegates in [Vec::new(), vec![narrow], vec![Delegate { may_revoke: false, ..desk() }]] {
        let (_, mut fleet) = scene();
        let (out, authority) = (revoke(&fleet, "desk", "old"), authority_of(&fleet, delegates));
        take(&mut fleet, out.clone());
        take(&mut fleet, authority.clone());
        let (authorities, kept) = fleet.memory();
        let restored = Fleet::restore(fleet.network(), &authorities, kept).expect("what was kept");
        // In the other order, and all at once.
        let mut late = scene().1;
        take(&mut late, authority);
        take(&mut late, out);
        let mut newcomer = scene().1;
        let news = fleet.all_news(&newcomer.have(), Notices::All);
        take(&mut newcomer, news);
        for one in [&fleet, &restored, &late, &newcomer] {
            assert!(one.site(&name("old")).unwrap().member.is_revoked());
            assert_eq!(one.have(), fleet.have());
        }
    }
}

/// With the site that it took out goes what took it out: others are not told what they would refuse.
#[test]
fn nothing_is_left_of_a_site_that_came_and_went_and_may_not_come() {
    let (_, mut fleet) = scene();
    let news = add(&fleet, "desk", member("k1", "kiosk", 0x101), &contact(0x101));
    take(&mut fleet, news);
    let news = revoke(&fleet, "desk", "k1");
    take(&mut fleet, news);
    let news = authority_of(&fleet, Vec::new());
    take(&mut fleet, news);
    assert_eq!(fleet.have().delegated, None);
}

/// Others are told how a site is met, or not, as they may know it: that could have kept a collision from being seen.
#[test]
fn how_a_site_is_met_is_judged_whenever_it_is_told() {
    let (_, mut fleet) = scene();
    let whole = add(&fleet, "desk", member("k1", "kiosk", 0x101), &contact(1));
    let mut first = whole.clone();
    first.delegated[0].contact = None;
    take(&mut fleet, first);
    assert!(refusal(&mut fleet, whole).contains("the key of k1 is also that of kiel"));
    let (authorities, news) = fleet.memory();
    let restored = Fleet::restore(fleet.network(), &authorities, news).expect("what was kept");
    assert_eq!(restored.have(), fleet.have());
    // One that collides with nothing is learned.
    let whole = add(&fleet, "desk", member("k2", "kiosk", 0x102), &contact(0x102));
    let mut first = whole.clone();
    first.delegated[0].contact = None;
    take(&mut fleet, first);
    take(&mut fleet, whole);
    assert_eq!(hops(&fleet)["k2"].as_deref(), Some("2001:db8:102::/64"));
}

/// An authority with lower limits takes nothing back, and what was kept is not all refused for that.
#[test]
fn what_was_within_limits_that_were_lowered_keeps_nobody_from_starting() {
    let (_, mut fleet) = scene();
    for number in [0x101, 0x102] {
        let news = add(&fleet, "desk", member(&format!("k{number}"), "kiosk", number), &contact(number));
        take(&mut fleet, news);
    }
    let news = authority_of(&fleet, vec![Delegate { most: 1, ..desk() }]);
    take(&mut fleet, news);
    let (authorities, news) = fleet.memory();
    let restored = Fleet::restore(fleet.network(), &authorities, news).expect("what was kept");
    assert_eq!(restored.serial(), fleet.serial());
    assert!(restored.site(&name("kiel")).is_some());
}
