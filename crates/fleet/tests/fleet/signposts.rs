//! Sites that were away while all moved.

use std::time::Duration;

use fleet::document::Serial;
use fleet::key::Digest;
use fleet::settings::Settings;
use fleet::signpost::{Signpost, name as name_of};

use crate::scene::*;
use crate::world::{World, controller};

const SECOND: Duration = Duration::from_secs(1);
const DOMAIN: &str = "r7.example.net";

/// A hub with a spoke, whose only controller is c1; it moves to where c9 is, and the hub is not reached.
fn moved() -> (Administrators, World) {
    let mut administrators = Administrators::of(hub_and_spokes());
    let at = |place: &str| Settings {
        signposts: Some(DOMAIN.to_owned()),
        policy: hub_and_spokes(),
        controllers: vec![controller(place)],
    };
    administrators.contents.set_settings(at("c1"));
    administrators.contents.put(site("hub", "hub", 1));
    administrators.contents.put(site("kiel", "spoke", 2));
    let old = administrators.published();
    administrators.contents.set_settings(at("c9"));
    let mut new = old.clone();
    take(&mut new, administrators.publish());
    let mut world = World::new(new, &["c9"]);
    let mut own = administrators.newcomer();
    take(&mut own, told(&old, "kiel"));
    world.add("kiel", own);
    (administrators, world)
}

fn signpost(administrators: &Administrators, serial: u64, place: &str, by: &str) -> (String, String) {
    let kiel = signer("kiel").public();
    let certificate = Digest::of(place.as_bytes());
    let post = Signpost { serial: Serial(serial), certificate, place: format!("{place}.example:4160") };
    let text = post.seal(&signer(by), kiel, [7; 24]).unwrap();
    (name_of(administrators.chain.network(), kiel, 0, DOMAIN), text)
}

fn is_there(world: &World) -> bool {
    world.agents[&name("kiel")].fleet().serial() == Some(Serial(2))
}

#[test]
fn a_site_that_reaches_nobody_is_led_to_where_controllers_are() {
    let (administrators, mut world) = moved();
    assert!(!world.run_until(600 * SECOND, is_there), "there is no signpost yet");
    // Not often: each question shows to who runs the name server.
    let asked = world.looked_up.len();
    assert!((2..=12).contains(&asked), "{asked} times in ten minutes");
    world.names.push(signpost(&administrators, 2, "c9", "ada"));
    assert!(world.run_until(600 * SECOND, is_there));
    // Who is answered asks no name any more.
    let asked = world.looked_up.len();
    world.run(3600 * SECOND);
    assert_eq!(world.looked_up.len(), asked);
}

#[test]
fn a_signpost_of_somebody_else_or_an_old_one_leads_nowhere() {
    let (administrators, mut world) = moved();
    // One that another site made, which knows all public keys.
    world.names.push(signpost(&administrators, 9, "c9", "hub"));
    assert!(!world.run_until(900 * SECOND, is_there));
    // An old one is put back: the site asks there in vain, and loses nothing by it.
    world.names = vec![signpost(&administrators, 1, "c1", "ben")];
    let before = world.gateways.clone();
    assert!(!world.run_until(900 * SECOND, is_there));
    assert_eq!(world.gateways, before);
    world.names = vec![signpost(&administrators, 2, "c9", "ben")];
    assert!(world.run_until(900 * SECOND, is_there));
}

#[test]
fn a_site_that_is_answered_looks_nothing_up() {
    let (administrators, mut world) = moved();
    world.are_up.insert(name("c1"), true);
    world.names.push(signpost(&administrators, 2, "c9", "ada"));
    world.run(3600 * SECOND);
    assert!(is_there(&world) && world.looked_up.is_empty());
}
