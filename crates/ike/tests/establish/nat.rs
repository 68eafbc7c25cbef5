//! Ends behind a NAT, and the ports that they use (RFC 7296 §2.11, §2.23).

use std::time::Duration;

use ike::Transmit;
use ike::config::{Mode, PeerIndex};
use ike::event::{Event, Path};
use ike::message::traffic_selector::TrafficSelector;

use crate::SOON;
use crate::world::{Side, World, config};

#[test]
fn an_end_behind_a_nat_moves_to_the_shared_port_and_keeps_the_mapping_alive() {
    let mut world = World::new(1);
    world.link.nat = Some(("2001:db8:ffff::1".parse().unwrap(), 7000));
    world.initiate();
    world.run(SOON);
    world.agree();
    let (at_a, at_b) = (world.a.child(), world.b.child());
    assert!(at_a.nat.local && !at_a.nat.remote && at_b.nat.remote && !at_b.nat.local);
    assert_eq!((at_a.path.local.port(), at_a.path.remote.port()), (4500, 4500));
    assert_eq!(at_b.path.remote, "[2001:db8:ffff::1]:11500".parse().unwrap());
    let auth = &world.sent[2].1;
    assert_eq!((auth.path.local.port(), &auth.payload[..4]), (4500, &[0; 4][..]));

    world.run(Duration::from_secs(100));
    let keepalives = |(side, sent): &&(Side, Transmit)| *side == Side::A && sent.payload == [0xff];
    assert!((4..=6).contains(&world.sent.iter().filter(keepalives).count()));
    assert_eq!((world.a.ikes.len(), world.b.ikes.len()), (1, 1));
}

#[test]
fn an_end_that_wants_udp_has_it_without_a_nat_whoever_begins() {
    for wants in [Side::A, Side::B] {
        let (mut a, mut b) = (config("a", "b"), config("b", "a"));
        let config = if wants == Side::A { &mut a } else { &mut b };
        config.peers[0].encapsulate = true;
        let mut world = World::with(1, a, b);
        world.initiate();
        world.run(SOON);
        world.agree();
        for side in [Side::A, Side::B] {
            let nat = world.end(side).child().nat;
            assert!(nat.is_between() && nat.claimed == (side == wants));
            assert_eq!(world.end(side).child().path.local.port(), 4500);
        }
    }
}

#[test]
fn an_ike_sa_may_begin_on_the_shared_port_of_either_end_and_from_any_port() {
    let (mut a, mut b) = (config("a", "b"), config("b", "a"));
    (a.nat_port, a.peers[0].encapsulate, a.peers[0].nat_port) = (40_000, true, 14_500);
    b.nat_port = 14_500;
    let mut world = World::with(1, a, b);
    let path = Path {
        local: "[2001:db8::a]:40000".parse().unwrap(),
        remote: "[2001:db8::b]:14500".parse().unwrap(),
    };
    let now = world.now;
    world.a.endpoint.initiate(now, PeerIndex(0), path).unwrap();
    world.run(SOON);
    world.agree();
    assert_eq!(world.a.child().path, path);
    assert!(world.a.child().nat.is_between() && world.b.child().nat.is_between());
    assert!(world.sent.iter().all(|(_, sent)| sent.payload.starts_with(&[0; 4])));
}

#[test]
fn a_nat_that_maps_anew_is_followed_by_genuine_requests_alone() {
    let mut world = World::new(1);
    let public = "2001:db8:ffff::1".parse().unwrap();
    world.link.nat = Some((public, 7000));
    world.initiate();
    world.run(SOON);
    world.link.nat = Some((public, 8000));
    let (now, ike) = (world.now, world.a.ike());
    world.a.endpoint.check_liveness(now, ike).unwrap();
    world.run(SOON);
    let moved =
        |event: &Event| matches!(event, Event::PathChanged { path, .. } if path.remote.port() == 12500);
    assert_eq!(world.count(Side::B, moved), 1);

    let (_, replayed) = world
        .sent
        .iter()
        .rev()
        .find(|(side, sent)| *side == Side::A && sent.payload.len() > 9)
        .unwrap()
        .clone();
    let path = Path { local: replayed.path.remote, remote: "[2001:db8:666::1]:4500".parse().unwrap() };
    world.inject(Side::B, path, &replayed.payload);
    assert_eq!(world.count(Side::B, |event| matches!(event, Event::PathChanged { .. })), 1);
}

#[test]
fn transport_mode_through_a_nat_is_between_the_addresses_that_each_end_sees() {
    let (mut a, mut b) = (config("a", "b"), config("b", "a"));
    for config in [&mut a, &mut b] {
        config.peers[0].children[0].mode = Mode::Transport;
        config.peers[0].children[0].local = Vec::new();
        config.peers[0].children[0].remote = Vec::new();
    }
    let mut world = World::with(1, a, b);
    let public = "2001:db8:ffff::1".parse().unwrap();
    world.link.nat = Some((public, 7000));
    world.initiate();
    world.run(SOON);
    let host = |address: &str| [TrafficSelector::host(address.parse().unwrap())];
    for _ in 0..2 {
        let (at_a, at_b) = (world.a.child(), world.b.child());
        assert_eq!((&at_a.local[..], &at_a.remote[..]), (&host("2001:db8::a")[..], &host("2001:db8::b")[..]));
        assert_eq!(at_b.local, host("2001:db8::b"));
        assert_eq!(at_b.remote, [TrafficSelector::host(public)]);
        // The checksums of what A sends are of the addresses that A has.
        let (own, other) = ("2001:db8::a".parse().unwrap(), "2001:db8::b".parse().unwrap());
        assert_eq!(at_b.original_addresses, Some((own, other)));
        assert_eq!(at_a.original_addresses.map(|original| original.0), Some(other));
        let (now, ike, spi) = (world.now, world.b.ike(), world.b.child().inbound_spi);
        world.b.endpoint.rekey_child(now, ike, spi).unwrap();
        world.run(SOON);
    }
}
