//! What a gateway refuses, and a site that says too much: the others notice nothing.

use std::time::Duration;

use fleet::agent::Outcome;
use fleet::name::Name;
use fleet::site::Site;

use crate::scene::*;
use crate::world::World;

const SECOND: Duration = Duration::from_secs(1);

/// A hub with five spokes, of which s2 may take networks.
fn world() -> (Administrators, World) {
    let mut administrators = Administrators::of(hub_and_spokes());
    administrators.contents.put(site("hub", "hub", 1));
    for number in 2..=6 {
        let mut member = member(&format!("s{number}"), "spoke", number);
        if number == 2 {
            member.may_take = vec!["2001:db8::/32".parse().unwrap()];
        }
        administrators.contents.put(Site::new(member, contact(number)));
    }
    let whole = administrators.published();
    let mut world = World::new(whole.clone(), &[]);
    for (who, _) in whole.sites() {
        world.add(who.as_str(), whole.clone());
    }
    world.run(10 * SECOND);
    world.given.clear();
    (administrators, world)
}

/// A gateway refuses whatever has this in it; the answer points to it, or to nothing.
fn refuse(world: &mut World, bad: &'static str, is_named: bool) {
    world.refuses = Some(Box::new(move |_, text| {
        let line = text.lines().position(|line| !line.starts_with('#') && line.contains(bad))? + 1;
        Some(match is_named {
            true => format!("error: no\n  --> /var/lib/x/peers.toml:{line}:5\n   |\n"),
            false => "the kernel says no".to_owned(),
        })
    }));
}

/// What a site says reaches another, whoever brings it.
fn say(world: &mut World, to: &str, news: fleet::news::News) {
    let now = world.now;
    world.agents.get_mut(&name(to)).unwrap().told(&name("hub"), news, now);
}

fn lacks(text: &str, networks: &[u16]) -> Vec<u16> {
    networks.iter().copied().filter(|number| !text.contains(&format!("\"fd00:{number:x}::/48\""))).collect()
}

fn left_out(site: &str) -> impl Fn(&&(Name, Outcome)) -> bool {
    let site = name(site);
    move |(_, outcome)| matches!(outcome, Outcome::LeftOut { site: found, .. } if *found == site)
}

#[test]
fn a_site_that_a_gateway_refuses_is_left_out_and_nobody_else() {
    for is_named in [true, false] {
        let (mut administrators, mut world) = world();
        refuse(&mut world, "2001:db8:99::/64", is_named);
        // Two others change at the same moment; all of it comes at once.
        let fleet = world.agents[&name("hub")].fleet().clone();
        let mut news = contact_notice(&fleet, "s2", 1, contact(0x99));
        for number in [3, 4] {
            let more = contact_notice(&fleet, &format!("s{number}"), 1, contact(0x90 + number));
            news.contacts.extend(more.contacts);
        }
        say(&mut world, "hub", news);
        world.run(5 * SECOND);
        let given = world.gateways[&name("hub")].clone();
        assert!(given.contains("2001:db8:93::/64") && given.contains("2001:db8:94::/64"), "{given}");
        assert!(!given.contains("\"2001:db8:99::/64\"") && given.contains("# s2 is left out"), "{given}");
        assert_eq!(world.outcomes.iter().filter(left_out("s2")).count(), 1, "{:?}", world.outcomes);
        // Nobody lost his place meanwhile, not even by what was only tried.
        for (_, text) in world.given.iter().filter(|(who, _)| *who == name("hub")) {
            assert_eq!(lacks(text, &[2, 3, 4, 5, 6]), [0; 0], "{text}");
        }
        // Another site still comes in, and one still goes.
        administrators.contents.put(site("s7", "spoke", 7));
        let mut gone = member("s6", "spoke", 6);
        gone.revoked = Some(1);
        administrators.contents.put(Site::new(gone, contact(6)));
        let news = administrators.publish();
        say(&mut world, "hub", news);
        world.run(5 * SECOND);
        assert_eq!(lacks(&world.gateways[&name("hub")], &[2, 3, 4, 5, 6, 7]), [6]);
        assert_eq!(world.outcomes.iter().filter(left_out("s2")).count(), 1, "it is said once");
        // When the gateway takes it, it has it.
        world.refuses = None;
        world.run(700 * SECOND);
        assert!(world.gateways[&name("hub")].contains("\"2001:db8:99::/64\""));
        assert!(world.outcomes.iter().any(|(_, outcome)| *outcome == Outcome::Back(name("s2"))));
    }
}

#[test]
fn a_site_behind_a_hub_does_not_take_the_hub_along() {
    for is_named in [true, false] {
        let (_, mut world) = world();
        refuse(&mut world, "2001:db8:f1::/64", is_named);
        let fleet = world.agents[&name("s3")].fleet().clone();
        say(&mut world, "s3", networks_notice(&fleet, "s2", 1, &["fd00:2::/48", "2001:db8:f1::/64"]));
        world.run(5 * SECOND);
        let given = &world.gateways[&name("s3")];
        assert!(
            given.contains("name        = \"hub\"") && !given.contains("\"2001:db8:f1::/64\""),
            "{given}"
        );
        assert_eq!(lacks(given, &[1, 2, 4, 5, 6]), [0; 0], "{given}");
    }
}

#[test]
fn what_a_gateway_took_before_and_refuses_by_now_goes_and_nothing_else() {
    let (mut administrators, mut world) = world();
    // Somebody has given the hub's machine a network of its own that is that of s4.
    refuse(&mut world, "\"fd00:4::/48\"", true);
    administrators.contents.put(site("s7", "spoke", 7));
    let news = administrators.publish();
    say(&mut world, "hub", news);
    world.run(5 * SECOND);
    assert_eq!(lacks(&world.gateways[&name("hub")], &[2, 3, 4, 5, 6, 7]), [4]);
    assert!(world.outcomes.iter().any(|outcome| left_out("s4")(&outcome)));
}

#[test]
fn what_is_no_sites_fault_is_laid_to_none() {
    let (mut administrators, mut world) = world();
    world.refuses = Some(Box::new(|_, _| Some("mt6d0.toml is broken".to_owned())));
    administrators.contents.put(site("s7", "spoke", 7));
    let news = administrators.publish();
    say(&mut world, "hub", news);
    world.run(100 * SECOND);
    let of_hub = |world: &World| -> Vec<Outcome> {
        let of_hub = world.outcomes.iter().filter(|(who, _)| *who == name("hub"));
        of_hub.map(|(_, outcome)| outcome.clone()).collect()
    };
    assert_eq!(of_hub(&world), [Outcome::Refused("mt6d0.toml is broken".to_owned())]);
    assert_eq!(lacks(&world.gateways[&name("hub")], &[2, 3, 4, 5, 6, 7]), [7], "what it had is in the file");
    world.refuses = None;
    world.run(40 * SECOND);
    assert_eq!(lacks(&world.gateways[&name("hub")], &[2, 3, 4, 5, 6, 7]), [0; 0]);
    assert_eq!(of_hub(&world).last(), Some(&Outcome::Takes));
}

#[test]
fn a_gateway_that_does_not_run_begins_with_what_it_has_taken() {
    let (_, mut world) = world();
    let fleet = world.agents[&name("hub")].fleet().clone();
    refuse(&mut world, "2001:db8:99::/64", true);
    world.absent.push(name("hub"));
    say(&mut world, "hub", contact_notice(&fleet, "s2", 1, contact(0x99)));
    world.run(10 * SECOND);
    let given = &world.gateways[&name("hub")];
    assert!(!given.contains("2001:db8:99::/64") && given.contains("\"2001:db8:2::/64\""), "{given}");
    world.absent.clear();
    world.agents.get_mut(&name("hub")).unwrap().gateway_is_there();
    world.run(5 * SECOND);
    assert!(world.outcomes.iter().any(|outcome| left_out("s2")(&outcome)));
}

/// It may have read its file already when it is found to be absent.
#[test]
fn a_gateway_that_is_starting_is_not_left_without_peers() {
    let (mut administrators, mut world) = world();
    world.absent.push(name("newcomer"));
    administrators.contents.put(Site::new(member("newcomer", "spoke", 7), contact(7)));
    world.add("newcomer", administrators.published());
    world.run(3 * SECOND);
    assert_eq!(lacks(&world.gateways[&name("newcomer")], &[1]), [0; 0]);
    world.run(10 * SECOND);
    let of_newcomer = world.given.iter().filter(|(who, _)| *who == name("newcomer"));
    let told: Vec<&String> = of_newcomer.map(|(_, text)| text).collect();
    assert!(!told.is_empty() && told.iter().all(|text| lacks(text, &[1]).is_empty()), "{told:?}");
    // After a while one that has never taken anything begins with nothing.
    assert_eq!(lacks(&world.gateways[&name("newcomer")], &[1]), [1]);
    world.absent.clear();
    world.agents.get_mut(&name("newcomer")).unwrap().gateway_is_there();
    world.run(SECOND);
    assert_eq!(lacks(&world.gateways[&name("newcomer")], &[1]), [0; 0]);
}

#[test]
fn what_could_not_be_written_is_written_later() {
    let (_, mut world) = world();
    let fleet = world.agents[&name("hub")].fleet().clone();
    world.unwritable.push(name("hub"));
    say(&mut world, "hub", contact_notice(&fleet, "s2", 1, contact(0x99)));
    world.run(5 * SECOND);
    assert!(!world.gateways[&name("hub")].contains("2001:db8:99::/64"));
    world.unwritable.clear();
    world.run(40 * SECOND);
    assert!(world.gateways[&name("hub")].contains("2001:db8:99::/64"));
}

#[test]
fn a_site_that_says_something_new_all_the_time_is_heard_now_and_then() {
    let (_, mut world) = world();
    let fleet = world.agents[&name("hub")].fleet().clone();
    for number in 1..=3000_u16 {
        say(&mut world, "hub", contact_notice(&fleet, "s2", u64::from(number), contact(0x1000 + number)));
        world.run(SECOND / 50);
    }
    let changes = world.given.iter().filter(|(who, _)| *who == name("hub")).count();
    assert!((2..=10).contains(&changes), "{changes} changes in a minute");
    // Another is heard at once meanwhile, and in the end the last word counts.
    say(&mut world, "hub", contact_notice(&fleet, "s3", 1, contact(0x99)));
    world.run(2 * SECOND);
    assert!(world.gateways[&name("hub")].contains("\"2001:db8:99::/64\""));
    world.run(60 * SECOND);
    let last = format!("\"2001:db8:{:x}::/64\"", 0x1000 + 3000);
    assert!(world.gateways[&name("hub")].contains(&last));
    // A list of them is no way around it, nor is what somebody else has signed.
    world.given.clear();
    let mut news = fleet::news::News::default();
    for number in 4000..=4500_u16 {
        news.contacts.extend(contact_notice(&fleet, "s2", u64::from(number), contact(number)).contacts);
    }
    let mut forged = contact_notice(&fleet, "s2", 9_000_000, contact(0x66));
    forged.contacts = vec![fleet::signed::Signed::new(&forged.contacts[0].read().unwrap(), [&signer("eve")])];
    news.contacts.extend(forged.contacts);
    say(&mut world, "hub", news);
    world.run(600 * SECOND);
    let changes = world.given.iter().filter(|(who, _)| *who == name("hub")).count();
    assert!(changes <= 8, "{changes} changes by one list");
    assert!(world.gateways[&name("hub")].contains(&format!("\"2001:db8:{:x}::/64\"", 4500)));
}
