//! What each member is told, and what not.

use fleet::desk::Desk;
use fleet::exchange::Question;
use fleet::fleet::{Fleet, Notices, Old};
use fleet::name::Name;
use fleet::news::{Have, News};
use fleet::settings::{Policy, Settings};
use fleet::signed::Signed;

use crate::scene::*;

fn hub_and_two() -> Administrators {
    let mut administrators = Administrators::of(hub_and_spokes());
    administrators.contents.put(site("hub", "hub", 1));
    administrators.contents.put(site("kiel", "spoke", 2));
    administrators.contents.put(site("bonn", "spoke", 3));
    administrators
}

fn shown(news: &News) -> String {
    serde_json::to_string(news).unwrap()
}

#[test]
fn a_spoke_learns_where_it_and_the_hub_are() {
    let mut administrators = hub_and_two();
    let whole = administrators.published();
    let mut kiel = administrators.newcomer();
    let news = told(&whole, "kiel");
    assert!(
        !shown(&news).contains("2001:db8:3::/64") && !shown(&news).contains(&String::from(tunnel_key(3)))
    );
    take(&mut kiel, news);
    let expected = [("bonn", None), ("hub", Some("2001:db8:1::/64")), ("kiel", Some("2001:db8:2::/64"))];
    let known = hops(&kiel);
    assert_eq!(known.len(), 3);
    for (name, prefix) in expected {
        assert_eq!(known[name].as_deref(), prefix, "{name}");
    }
    // It verified the whole document by that.
    assert_eq!(kiel.have(), whole.have());
}

#[test]
fn who_is_no_member_is_told_no_prefix() {
    let mut administrators = hub_and_two();
    let mut gone = member("bonn", "spoke", 3);
    gone.revoked = Some(1_800_000_000);
    administrators.contents.put(fleet::site::Site::new(gone, contact(3)));
    let whole = administrators.published();
    for who in ["mallory", "bonn"] {
        let news = told(&whole, who);
        assert!(!shown(&news).contains("2001:db8:"), "{who}");
        let mut theirs = administrators.newcomer();
        take(&mut theirs, news);
        assert_eq!(hops(&theirs)["hub"], None);
    }
}

#[test]
fn a_change_is_told_as_what_is_different() {
    let mut administrators = hub_and_two();
    let mut whole = administrators.published();
    let mut kiel = administrators.newcomer();
    take(&mut kiel, told(&whole, "kiel"));
    let old = kiel.document().unwrap().clone();
    for number in 10..200 {
        administrators.contents.put(site(&format!("s{number}"), "spoke", number));
    }
    administrators.contents.remove(&name("bonn"));
    take(&mut whole, administrators.publish());
    let first = whole.news_for(
        &name("kiel"),
        &kiel.have(),
        Some(Old { document: &old, different: None }),
        Notices::All,
    );
    take(&mut kiel, first);
    assert_eq!(kiel.have(), whole.have());
    let old = kiel.document().unwrap().clone();
    administrators.contents.put(site("s10", "spoke", 1000));
    take(&mut whole, administrators.publish());
    let change = whole.news_for(
        &name("kiel"),
        &kiel.have(),
        Some(Old { document: &old, different: None }),
        Notices::All,
    );
    assert!(shown(&change).len() < 1500, "{} bytes", shown(&change).len());
    assert!(take(&mut kiel, change));
    assert_eq!(kiel.have(), whole.have());
    assert!(kiel.site(&name("bonn")).is_none());
    // Who knows all is told nothing.
    let nothing = whole.news_for(
        &name("kiel"),
        &kiel.have(),
        Some(Old { document: &old, different: None }),
        Notices::After(&kiel.numbers()),
    );
    assert_eq!(nothing, News::default());
}

/// It would ask again at once, and be told the same.
#[test]
fn who_is_ahead_is_told_nothing_older_and_waits() {
    let mut administrators = hub_and_two();
    let behind = Desk::new(administrators.published(), 1);
    let mut ahead = behind.fleet().clone();
    administrators.contents.remove(&name("bonn"));
    take(&mut ahead, administrators.publish());
    let since = behind.answer(&name("kiel"), &Question { have: ahead.have(), since: None }, false).unwrap();
    assert_eq!(since.news, News::default());
    let question = Question { have: ahead.have(), since: Some(since.since) };
    assert_eq!(behind.answer(&name("kiel"), &question, false), None);
}

#[test]
fn a_change_of_something_else_is_refused_and_the_whole_taken() {
    let mut administrators = hub_and_two();
    let mut whole = administrators.published();
    let old = whole.document().unwrap().clone();
    administrators.contents.put(site("trier", "spoke", 4));
    take(&mut whole, administrators.publish());
    let mut late = administrators.newcomer();
    let have = Have { authority: 1, serial: Some(old.head.serial), delegated: None };
    let news =
        whole.news_for(&name("kiel"), &have, Some(Old { document: &old, different: None }), Notices::All);
    assert_eq!(refusal(&mut late, news), "document 2 is told as a change of one that is not known here");
    take(&mut late, told(&whole, "kiel"));
    assert_eq!(late.have(), whole.have());
}

#[test]
fn a_new_tunnel_brings_what_was_withheld() {
    let mut administrators = hub_and_two();
    let mut whole = administrators.published();
    let mut kiel = administrators.newcomer();
    take(&mut kiel, told(&whole, "kiel"));
    // Bonn moves, which is nothing to Kiel …
    let moved = contact_notice(&whole, "bonn", 10, contact(33));
    take(&mut whole, moved);
    let numbers = kiel.numbers();
    assert_eq!(whole.news_for(&name("kiel"), &kiel.have(), None, Notices::After(&numbers)), News::default());
    // … until they have a tunnel.
    let old = kiel.document().unwrap().clone();
    administrators.contents.set_settings(Settings { policy: mesh(), ..Settings::default() });
    take(&mut whole, administrators.publish());
    let nobody = std::collections::BTreeSet::new();
    let news = whole.news_for(
        &name("kiel"),
        &kiel.have(),
        Some(Old { document: &old, different: None }),
        Notices::Of(&nobody),
    );
    take(&mut kiel, news);
    assert_eq!(hops(&kiel)["bonn"].as_deref(), Some("2001:db8:21::/64"));
}

#[test]
fn what_is_withheld_is_told_to_who_has_the_document_already() {
    let mut administrators = hub_and_two();
    let whole = administrators.published();
    let mut fleet = administrators.newcomer();
    take(&mut fleet, told(&whole, "kiel"));
    // A second view of the same document adds to the first, and takes nothing away.
    assert!(take(&mut fleet, told(&whole, "bonn")));
    assert!(!take(&mut fleet, told(&whole, "kiel")));
    let known: Vec<bool> = hops(&fleet).values().map(Option::is_some).collect();
    assert_eq!(known, [true, true, true]);
}

/// Otherwise whoever may know more could have a site keep a document that nobody has signed, and that it refuses when it starts.
#[test]
fn who_tells_more_of_a_document_takes_no_signatures_away() {
    let mut administrators = hub_and_two();
    let whole = administrators.published();
    let mut fleet = administrators.newcomer();
    take(&mut fleet, told(&whole, "kiel"));
    let mut more = told(&whole, "bonn");
    let document = more.document.as_mut().unwrap();
    document.head = Signed::new(&document.head.read().unwrap(), []);
    assert!(take(&mut fleet, more));
    let (authorities, news) = fleet.memory();
    let again = Fleet::restore(fleet.network(), &authorities, news).expect("what was kept");
    assert_eq!(hops(&again), hops(&fleet));
}

#[test]
fn a_policy_of_nothing_shows_nobody() {
    let mut administrators = Administrators::of(Policy::default());
    administrators.contents.put(site("kiel", "spoke", 1));
    administrators.contents.put(site("bonn", "spoke", 2));
    let whole = administrators.published();
    let mut kiel = administrators.newcomer();
    take(&mut kiel, told(&whole, "kiel"));
    let seen: Vec<Name> = kiel
        .sites()
        .into_iter()
        .filter(|(_, site)| site.contact.is_some())
        .map(|(name, _)| name.clone())
        .collect();
    assert_eq!(seen, [name("kiel")]);
}
