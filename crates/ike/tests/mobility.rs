//! An initiator that moves (MOBIKE, RFC 4555).

mod world;

use std::time::Duration;

use ike::event::{Event, Path};
use world::{Link, Side, World, config};

const SOON: Duration = Duration::from_secs(2);

fn mobile(seed: u64) -> World {
    let (mut a, mut b) = (config("a", "b"), config("b", "a"));
    (a.peers[0].mobile, b.peers[0].mobile) = (true, true);
    let mut world = World::with(seed, a, b);
    world.initiate();
    world.run(SOON);
    world.agree();
    world
}

fn elsewhere() -> Path {
    Path { local: "[2001:db8:2::a]:4500".parse().unwrap(), remote: "[2001:db8::b]:4500".parse().unwrap() }
}

#[test]
fn an_initiator_that_may_move_is_on_the_shared_port_from_the_beginning() {
    let world = mobile(1);
    assert_eq!(world.a.child().path.local.port(), 4500);
    assert!(!world.a.child().nat.is_between());
}

#[test]
fn both_ends_follow_an_initiator_that_moves_on_a_lossy_link() {
    for seed in 0..20 {
        let mut world = mobile(seed);
        world.link = Link { lost: 20, repeated: 20, jitter_ms: 300, nat: None };
        let (now, ike) = (world.now, world.a.ike());
        world.a.endpoint.rekey_ike(now, ike).unwrap();
        world.a.endpoint.move_to(now, ike, elsewhere()).unwrap();
        world.run(Duration::from_secs(60));
        world.agree();
        let back = Path { local: elsewhere().remote, remote: elsewhere().local };
        let moved =
            |to: Path| move |event: &Event| matches!(event, Event::PathChanged { path, .. } if *path == to);
        assert_eq!(world.count(Side::A, moved(elsewhere())), 1, "seed {seed}");
        assert_eq!(world.count(Side::B, moved(back)), 1, "seed {seed}");
        // What B asks from now on reaches A.
        let (now, ike) = (world.now, world.b.ike());
        world.b.endpoint.check_liveness(now, ike).unwrap();
        world.run(Duration::from_secs(60));
        assert_eq!(world.sent.iter().rev().find(|(side, _)| *side == Side::B).unwrap().1.path, back);
    }
}

#[test]
fn a_nat_at_the_new_place_is_found() {
    let mut world = mobile(1);
    world.link.nat = Some(("2001:db8:ffff::1".parse().unwrap(), 7000));
    let (now, ike) = (world.now, world.a.ike());
    world.a.endpoint.move_to(now, ike, elsewhere()).unwrap();
    world.run(SOON);
    let natted = |event: &Event| matches!(event, Event::PathChanged { nat, .. } if nat.is_between());
    assert_eq!((world.count(Side::A, natted), world.count(Side::B, natted)), (1, 1));
}

#[test]
fn a_responder_does_not_move_and_neither_does_who_has_not_agreed_to_it() {
    let mut world = mobile(1);
    let (now, ike) = (world.now, world.b.ike());
    assert!(world.b.endpoint.move_to(now, ike, elsewhere()).is_err());
    let mut world = World::established(1);
    let (now, ike) = (world.now, world.a.ike());
    assert!(world.a.endpoint.move_to(now, ike, elsewhere()).is_err());
}

#[test]
fn a_copy_of_a_request_from_elsewhere_moves_nothing() {
    let mut world = mobile(1);
    let (now, ike) = (world.now, world.a.ike());
    world.a.endpoint.move_to(now, ike, elsewhere()).unwrap();
    world.run(SOON);
    let (_, request) = world.sent.iter().rev().find(|(side, _)| *side == Side::A).unwrap().clone();
    let stolen = Path { local: request.path.remote, remote: "[2001:db8:666::1]:4500".parse().unwrap() };
    let before = world.b.events.len();
    world.inject(Side::B, stolen, &request.payload);
    assert_eq!(world.b.events.len(), before);
}
