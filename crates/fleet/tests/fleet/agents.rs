//! What agents do.

use std::time::Duration;

use fleet::document::{Change, Head, Serial};
use fleet::fleet::Fleet;
use fleet::key::Digest;
use fleet::name::Name;
use fleet::news::{DocumentNews, News};
use fleet::settings::Settings;
use fleet::signed::Signed;
use fleet::site::Site;

use crate::scene::*;
use crate::world::{World, controller};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// A hub with five spokes, and two controllers.
fn hub_and_five() -> (Administrators, World) {
    let mut administrators = Administrators::of(hub_and_spokes());
    let controllers = vec![controller("c1"), controller("c2")];
    administrators.contents.set_settings(Settings {
        policy: hub_and_spokes(),
        controllers,
        ..Settings::default()
    });
    administrators.contents.put(site("hub", "hub", 1));
    for number in 2..=6 {
        administrators.contents.put(site(&format!("s{number}"), "spoke", number));
    }
    let whole = administrators.published();
    let mut world = World::new(whole.clone(), &["c1", "c2"]);
    for (who, _) in whole.sites() {
        // As each was told when it enrolled.
        let mut own = administrators.newcomer();
        take(&mut own, told(&whole, who.as_str()));
        world.add(who.as_str(), own);
    }
    (administrators, world)
}

fn all_have(serial: u64) -> impl Fn(&World) -> bool {
    move |world| world.agents.values().all(|agent| agent.fleet().serial() == Some(Serial(serial)))
}

fn revoke(administrators: &mut Administrators, who: &str, number: u16) -> News {
    let mut gone = member(who, "spoke", number);
    gone.revoked = Some(1_800_000_000);
    administrators.contents.put(Site::new(gone, contact(number)));
    administrators.publish()
}

fn mentions(world: &World, gateway: &str, peer: &str) -> bool {
    world.gateways[&name(gateway)].contains(&format!("\"{peer}\""))
}

#[test]
fn gateways_are_given_their_peers_and_nothing_when_nothing_changes() {
    let (_, mut world) = hub_and_five();
    world.run(10 * SECOND);
    assert_eq!(world.gateways.len(), 6);
    assert!((2..=6).all(|number| mentions(&world, "hub", &format!("s{number}"))));
    assert!(mentions(&world, "s2", "hub") && !mentions(&world, "s2", "s3"));
    world.gateways.clear();
    let before = world.bytes;
    world.run(24 * HOUR);
    assert!(world.gateways.is_empty());
    assert!(world.warnings.is_empty(), "{:?}", world.warnings);
    // A few hundred bytes every five minutes, and to a peer every ten.
    let each = (world.bytes - before) / 6;
    assert!(each < 300_000, "{each} bytes a day for each agent");
}

#[test]
fn a_revoked_site_is_out_at_once() {
    let (mut administrators, mut world) = hub_and_five();
    world.run(10 * SECOND);
    let news = revoke(&mut administrators, "s3", 3);
    world.publish(news);
    assert!(world.run_until(2 * SECOND, |world| !mentions(world, "hub", "s3")));
    assert!(world.run_until(2 * SECOND, |world| !mentions(world, "s3", "hub")));
}

#[test]
fn a_site_that_is_renumbered_is_met_again_by_all() {
    let (_, mut world) = hub_and_five();
    world.run(10 * SECOND);
    let now = world.now;
    let hub = world.agents.get_mut(&name("hub")).unwrap();
    hub.renumbered(Some(contact(0x99)), None, 1_800_000_000, now);
    let is_met = |world: &World| {
        (2..=6).all(|number| world.gateways[&name(&format!("s{number}"))].contains("2001:db8:99::/64"))
    };
    assert!(world.run_until(2 * SECOND, is_met));
    // Said once, it is not said again.
    let now = world.now;
    let hub = world.agents.get_mut(&name("hub")).unwrap();
    hub.renumbered(Some(contact(0x99)), None, 1_900_000_000, now);
    world.run(SECOND);
    let known = world.controllers.fleet().numbers()[&name("hub")];
    assert_eq!(known, (1_800_000_000, 0));
}

#[test]
fn what_is_said_while_no_controller_answers_is_told_to_peers_and_to_controllers_later() {
    let (_, mut world) = hub_and_five();
    world.run(10 * SECOND);
    world.set_up(false);
    world.run(60 * SECOND);
    let now = world.now;
    let spoke = world.agents.get_mut(&name("s2")).unwrap();
    spoke.renumbered(Some(contact(0x99)), None, 1_800_000_000, now);
    assert!(world.run_until(60 * SECOND, |world| world.gateways[&name("hub")].contains("2001:db8:99::/64")));
    assert!(world.controllers.fleet().numbers().is_empty());
    world.set_up(true);
    let is_told = |world: &World| !world.controllers.fleet().numbers().is_empty();
    assert!(world.run_until(120 * SECOND, is_told));
}

/// Controllers answer, and cannot pass on what is said.
#[test]
fn what_a_controller_cannot_keep_is_told_to_peers_and_to_controllers_until_one_does() {
    let (_, mut world) = hub_and_five();
    world.run(10 * SECOND);
    world.without_store = world.are_up.keys().cloned().collect();
    let (now, questions) = (world.now, world.questions);
    let spoke = world.agents.get_mut(&name("s2")).unwrap();
    spoke.renumbered(Some(contact(0x99)), None, 1_800_000_000, now);
    assert!(world.run_until(20 * SECOND, |world| world.gateways[&name("hub")].contains("2001:db8:99::/64")));
    world.run(60 * SECOND);
    assert!(world.controllers.fleet().numbers().is_empty());
    assert!(world.questions - questions < 20, "{} questions", world.questions - questions);
    // One has its store again: it is told, whichever was asked before.
    world.without_store.pop();
    let is_told = |world: &World| !world.controllers.fleet().numbers().is_empty();
    assert!(world.run_until(30 * SECOND, is_told));
    let questions = world.questions;
    world.run(60 * SECOND);
    assert!(world.questions - questions < 10, "{} questions", world.questions - questions);
}

/// Its machine is off when controllers are back; or they lose what they knew.
#[test]
fn what_a_site_has_said_is_told_again_after_a_start_and_now_and_then() {
    let (_, mut world) = hub_and_five();
    world.run(10 * SECOND);
    let before = world.controllers.fleet().clone();
    world.set_up(false);
    let now = world.now;
    let spoke = world.agents.get_mut(&name("s2")).unwrap();
    spoke.renumbered(Some(contact(0x99)), None, 1_800_000_000, now);
    let kept = spoke.fleet().clone();
    world.run(10 * SECOND);
    world.add("s2", kept);
    world.set_up(true);
    let is_told = |world: &World| world.controllers.fleet().numbers().contains_key(&name("s2"));
    assert!(world.run_until(120 * SECOND, is_told));
    // A backup from before.
    world.controllers = fleet::desk::Desk::new(before, 2);
    assert!(!is_told(&world));
    assert!(world.run_until(3 * HOUR, is_told));
}

/// The documents since a backup are lost, and others are made in their place: controllers know another one of the serial that
/// sites have.
#[test]
fn sites_come_over_to_what_is_published_after_a_stale_backup() {
    let (mut administrators, mut world) = hub_and_five();
    world.run(10 * SECOND);
    let mut restored = fleet::desk::Desk::new(world.controllers.fleet().clone(), 2);
    let mut after = administrators.clone();
    for number in [7, 8] {
        administrators.contents.put(site(&format!("s{number}"), "spoke", number));
        world.publish(administrators.publish());
    }
    assert!(world.run_until(60 * SECOND, all_have(3)));
    // As many as are missing, and one more.
    for _ in 0..3 {
        assert_eq!(restored.take(after.publish()).refused, []);
    }
    world.controllers = restored;
    let questions = world.questions;
    assert!(world.run_until(600 * SECOND, all_have(4)));
    world.run(60 * SECOND);
    assert!(world.questions - questions < 100, "{} questions", world.questions - questions);
    assert!(!mentions(&world, "hub", "s7"));
}

#[test]
fn who_is_renumbered_while_no_controller_answers_tells_all_peers_at_once() {
    let mut administrators = Administrators::of(hub_and_spokes());
    let controllers = vec![controller("c1")];
    administrators.contents.set_settings(Settings {
        policy: hub_and_spokes(),
        controllers,
        ..Settings::default()
    });
    for number in 1..=4 {
        administrators.contents.put(site(&format!("hub{number}"), "hub", number));
        administrators.contents.put(site(&format!("s{number}"), "spoke", 10 + number));
    }
    let whole = administrators.published();
    let mut world = World::new(whole.clone(), &["c1"]);
    for (who, _) in whole.sites() {
        let mut own = administrators.newcomer();
        take(&mut own, told(&whole, who.as_str()));
        world.add(who.as_str(), own);
    }
    world.run(10 * SECOND);
    world.set_up(false);
    world.run(60 * SECOND);
    let now = world.now;
    let spoke = world.agents.get_mut(&name("s2")).unwrap();
    spoke.renumbered(Some(contact(0x99)), None, 1_800_000_000, now);
    let is_met = |world: &World| {
        (1..=4).all(|number| world.gateways[&name(&format!("hub{number}"))].contains("2001:db8:99::/64"))
    };
    assert!(world.run_until(2 * SECOND, is_met));
    // Then it waits at one of them again.
    let before = world.bytes;
    world.run(HOUR);
    assert!(world.bytes - before < 200_000, "{} bytes in an hour", world.bytes - before);
}

#[test]
fn a_day_without_controllers_changes_nothing() {
    let (mut administrators, mut world) = hub_and_five();
    world.run(10 * SECOND);
    let before = world.gateways.clone();
    world.set_up(false);
    world.run(24 * HOUR);
    assert_eq!(world.gateways, before);
    // They are there again, with something new.
    let news = revoke(&mut administrators, "s3", 3);
    world.publish(news);
    world.set_up(true);
    assert!(world.run_until(2 * 60 * SECOND, all_have(2)));
}

#[test]
fn peers_tell_what_controllers_do_not() {
    let (mut administrators, mut world) = hub_and_five();
    world.run(10 * SECOND);
    world.set_up(false);
    world.run(60 * SECOND);
    // One has it from the administrators themselves.
    let news = revoke(&mut administrators, "s3", 3);
    let now = world.now;
    world.agents.get_mut(&name("s5")).unwrap().told(&name("hub"), news, now);
    assert!(world.run_until(10 * 60 * SECOND, all_have(2)));
}

#[test]
fn controllers_that_keep_something_back_do_not_keep_it_from_everybody() {
    let (mut administrators, mut world) = hub_and_five();
    world.run(10 * SECOND);
    // They answer, and say nothing of the next document; one site has it from elsewhere.
    let news = revoke(&mut administrators, "s3", 3);
    let now = world.now;
    world.agents.get_mut(&name("s5")).unwrap().told(&name("hub"), news, now);
    assert!(world.run_until(2 * HOUR, all_have(2)));
}

#[test]
fn a_site_that_was_away_comes_back_with_what_it_had() {
    let (mut administrators, mut world) = hub_and_five();
    world.run(10 * SECOND);
    let away = world.agents.remove(&name("s2")).unwrap();
    let (authorities, memory) = away.fleet().memory();
    let memory = serde_json::to_string(&memory).unwrap();
    for number in 10..100 {
        administrators.contents.put(site(&format!("s{number}"), "spoke", number));
        let news = administrators.publish();
        world.publish(news);
    }
    world.run(HOUR);
    let news = serde_json::from_str(&memory).unwrap();
    let fleet = Fleet::restore(away.fleet().network(), &authorities, news).unwrap();
    assert_eq!(fleet.have(), away.fleet().have());
    world.add("s2", fleet);
    assert!(world.run_until(2 * SECOND, all_have(91)));
}

#[test]
fn a_controller_that_lies_inserts_nobody_and_is_told_of() {
    let (mut administrators, mut world) = hub_and_five();
    world.run(10 * SECOND);
    administrators.contents.put(site("mallory", "hub", 66));
    administrators.signers = vec!["mallory", "eve"];
    let forged = administrators.publish();
    let now = world.now;
    // What an agent is answered, by whoever it is, is taken like this.
    world.agents.get_mut(&name("s2")).unwrap().told(&name("hub"), forged, now);
    world.run(SECOND);
    assert!(!mentions(&world, "s2", "mallory"));
    assert!(
        world.warnings.iter().any(|warning| warning.contains("0 administrators")),
        "{:?}",
        world.warnings
    );
}

/// The next document, as a later version of sidestep writes it: its settings say something more.
fn of_a_later_version(administrators: &Administrators) -> News {
    let mut json = serde_json::to_value(administrators.contents.complete()).unwrap();
    let settings = json["settings"].as_str().unwrap().replacen('{', r#"{"later":1,"#, 1);
    json["settings"] = settings.into();
    let digest = |line: &serde_json::Value| Digest::of(line.as_str().unwrap().as_bytes());
    let sites = json["sites"].as_array().unwrap();
    let lines = sites.iter().flat_map(|site| [digest(&site["member"]), digest(&site["contact"])]);
    let digests: Vec<Digest> = std::iter::once(digest(&json["settings"])).chain(lines).collect();
    let contents = Digest::of_all(&digests);
    let head = Head { contents, ..administrators.head(administrators.serial + 1) };
    let change: Change = serde_json::from_value(json).unwrap();
    let head = Signed::new(&head, [&signer("ada"), &signer("ben")]);
    News { document: Some(DocumentNews { head, change }), ..News::default() }
}

#[test]
fn a_document_that_is_not_understood_is_asked_for_with_pauses_and_told_of_once() {
    let (mut administrators, mut world) = hub_and_five();
    world.run(10 * SECOND);
    world.says = Some(of_a_later_version(&administrators));
    let before = world.questions;
    let is_too_often = |world: &World| world.questions - before > 6 * 100;
    assert!(!world.run_until(HOUR, is_too_often), "{} questions", world.questions - before);
    let is_of_it = |warning: &&String| warning.contains("unknown field `later`");
    let warnings = world.warnings.iter().filter(is_of_it).count();
    assert!((6..=12).contains(&warnings), "{:?}", world.warnings);
    // What they do understand is taken, a pause later at the latest.
    world.says = None;
    let news = revoke(&mut administrators, "s3", 3);
    world.publish(news);
    assert!(world.run_until(100 * SECOND, all_have(2)));
    // After that there is no pause.
    let news = revoke(&mut administrators, "s4", 4);
    world.publish(news);
    assert!(world.run_until(SECOND, all_have(3)));
}

#[test]
fn who_is_told_again_what_is_known_asks_again_with_pauses() {
    let (administrators, mut world) = hub_and_five();
    world.run(10 * SECOND);
    world.says = Some(News { document: Some(administrators.document(1)), ..News::default() });
    let before = world.questions;
    let is_too_often = |world: &World| world.questions - before > 6 * 100;
    assert!(!world.run_until(HOUR, is_too_often), "{} questions", world.questions - before);
    assert!(world.warnings.is_empty(), "{:?}", world.warnings);
}

#[test]
fn who_pushes_what_was_not_signed_makes_nobody_ask_others_for_all() {
    let (mut administrators, mut world) = hub_and_five();
    world.run(10 * SECOND);
    let head = administrators.document(1).head;
    administrators.contents.remove(&name("s6"));
    let forged = DocumentNews { head, change: administrators.contents.complete() };
    let forged = News { document: Some(forged), ..News::default() };
    world.warnings.clear();
    for _ in 0..3600 {
        let now = world.now;
        world.agents.get_mut(&name("hub")).unwrap().told(&name("s2"), forged.clone(), now);
        world.run(SECOND);
    }
    assert_eq!(world.wholes, 0);
    assert!((1..=2).contains(&world.warnings.len()), "{:?}", world.warnings);
}

#[test]
fn documents_in_a_row_are_one_change_of_the_gateway() {
    let (mut administrators, mut world) = hub_and_five();
    world.run(10 * SECOND);
    let applied = |world: &mut World| {
        let before = world.gateways.insert(name("hub"), String::new());
        before.is_some_and(|text| !text.is_empty())
    };
    applied(&mut world);
    let mut changes = 0;
    for number in 10..60 {
        administrators.contents.put(site(&format!("s{number}"), "spoke", number));
        let news = administrators.publish();
        world.publish(news);
        world.run(SECOND / 10);
        changes += u32::from(applied(&mut world));
    }
    world.run(2 * SECOND);
    changes += u32::from(applied(&mut world));
    assert!((2..=8).contains(&changes), "{changes} changes in five seconds");
}

#[test]
fn agents_do_not_come_back_all_at_once() {
    let mut administrators = Administrators::of(mesh());
    administrators.contents.set_settings(Settings {
        policy: fleet::settings::Policy::default(),
        controllers: vec![controller("c1")],
        ..Settings::default()
    });
    let names: Vec<Name> = (0..200).map(|number| name(&format!("s{number}"))).collect();
    for (number, who) in (1..).zip(&names) {
        administrators.contents.put(site(who.as_str(), "spoke", number));
    }
    let whole = administrators.published();
    let mut world = World::new(whole.clone(), &["c1"]);
    for who in &names {
        world.add(who.as_str(), whole.clone());
    }
    world.run(10 * SECOND);
    world.set_up(false);
    world.run(HOUR);
    world.set_up(true);
    let before = world.questions;
    let mut most = 0;
    let mut last = before;
    for _ in 0..120 {
        world.run(SECOND);
        // The first question of each after the pause is the next one too, since it waits.
        most = most.max(world.questions - last);
        last = world.questions;
    }
    assert!(last - before >= 200, "all of them are back");
    assert!(most <= 30, "{most} of 200 in one second");
}
