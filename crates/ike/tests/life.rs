//! An end that has lost its memory, and one that is configured anew.

mod world;

use std::time::Duration;

use ike::Endpoint;
use ike::config::{ChildConfig, ChildIndex, KeptPeer, Mode, PeerIndex};
use ike::event::{EndReason, Event, Path};
use ike::message::Header;
use ike::message::builder::Builder;
use ike::numbers::{ExchangeType, IkeSpi, MessageId, NotifyType, Spi};
use world::{Dice, Link, Side, World, config, header, peer, prefix};

const SOON: Duration = Duration::from_secs(2);

fn is_silent(event: &Event) -> bool {
    matches!(event, Event::Silent { .. })
}

/// The other end is killed, and begins anew.
fn forget_all(world: &mut World) {
    world.b.endpoint = Endpoint::new(config("b", "a"), Dice(77));
    world.b.ikes.clear();
    world.b.children.clear();
}

fn hint(spi: Spi) -> Vec<u8> {
    let mut payloads = Builder::new();
    payloads.notify(NotifyType::INVALID_SPI, &spi.0.to_be_bytes());
    payloads.finish(&Header {
        initiator_spi: IkeSpi::ZERO,
        responder_spi: IkeSpi::ZERO,
        exchange: ExchangeType::INFORMATIONAL,
        from_initiator: true,
        is_response: false,
        message_id: MessageId::ZERO,
    })
}

#[test]
fn an_end_that_has_lost_its_memory_is_found_out_in_seconds_and_deleted_only_for_a_new_beginning() {
    let mut world = World::established(1);
    forget_all(&mut world);
    let (now, old, spi) = (world.now, world.a.ike(), world.a.child().outbound_spi);
    // What it receives of the child makes it say so.
    let path = world.path();
    let to_a = Path { local: path.remote, remote: path.local };
    world.b.endpoint.saw_unknown_spi(now, to_a, spi, 100);
    world.run(SOON);
    assert_eq!((world.count(Side::A, is_silent), world.a.ike()), (1, old));
    assert!(world.a.endpoint.is_silent(old));

    world.initiate();
    world.run(SOON);
    assert_eq!(world.a.ikes.len(), 2);
    world.a.endpoint.abandon(world.now, old);
    world.run(SOON);
    world.agree();
}

#[test]
fn a_forged_hint_makes_an_end_ask_once_and_nothing_else() {
    let mut world = World::established(1);
    let spi = world.a.child().outbound_spi;
    let (path, before) = (world.path(), world.sent.len());
    let elsewhere = Path { remote: "[2001:db8:666::1]:500".parse().unwrap(), ..path };
    world.inject(Side::A, elsewhere, &hint(spi));
    world.inject(Side::A, path, &hint(Spi(spi.0 ^ 1)));
    assert_eq!(world.sent.len(), before);
    for _ in 0..100 {
        world.inject(Side::A, path, &hint(spi));
        world.run(Duration::from_millis(50));
    }
    let asked: Vec<_> = world.sent[before..].iter().filter(|(side, _)| *side == Side::A).collect();
    assert_eq!(asked.iter().map(|(_, sent)| header(sent).0).collect::<Vec<_>>(), [37]);
    assert_eq!(world.count(Side::A, is_silent), 0);
    world.agree();
}

#[test]
fn silence_is_told_of_after_some_seconds_once_and_forgotten_with_an_answer() {
    let mut world = World::established(1);
    let (now, ike) = (world.now, world.a.ike());
    world.link = Link { lost: 100, ..Link::default() };
    world.a.endpoint.check_liveness(now, ike).unwrap();
    world.run(Duration::from_secs(6));
    assert_eq!(world.count(Side::A, is_silent), 0);
    world.run(Duration::from_secs(20));
    assert_eq!(world.count(Side::A, is_silent), 1);
    world.link = Link::default();
    world.run(Duration::from_secs(40));
    assert!(!world.a.endpoint.is_silent(ike));
    world.agree();
}

#[test]
fn an_end_behind_a_nat_that_has_forgotten_it_is_found_again_by_a_question() {
    let (mut a, mut b) = (config("a", "b"), config("b", "a"));
    (a.peers[0].mobile, b.peers[0].mobile) = (true, true);
    let mut world = World::with(1, a, b);
    let public = |host: u16| std::net::IpAddr::from([0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, host]);
    world.link.nat = Some((public(1), 7000));
    world.initiate();
    world.run(SOON);
    let moved = |event: &Event| matches!(event, Event::PathChanged { .. });
    let (now, ike) = (world.now, world.a.ike());
    world.a.endpoint.check_liveness(now, ike).unwrap();
    world.run(SOON);
    assert_eq!((world.count(Side::A, moved), world.count(Side::B, moved)), (0, 0), "nothing has changed");
    world.link.nat = Some((public(1), 9000));
    let now = world.now;
    world.a.endpoint.check_liveness(now, ike).unwrap();
    world.run(SOON);
    assert_eq!((world.count(Side::A, moved), world.count(Side::B, moved)), (0, 1));
    let at_b = world.b.endpoint.path(world.b.ike()).unwrap();
    assert_eq!(at_b.remote.port(), 4500 + 9000);
}

#[test]
fn what_is_configured_as_before_goes_on_under_another_number_and_the_rest_is_deleted() {
    let further =
        || ChildConfig::new(Mode::Tunnel, vec![prefix("fd01:a::", 32)], vec![prefix("fd01:b::", 32)]);
    let back = || ChildConfig::new(Mode::Tunnel, vec![prefix("fd01:b::", 32)], vec![prefix("fd01:a::", 32)]);
    let (mut a, mut b) = (config("a", "b"), config("b", "a"));
    a.peers[0].children.push(further());
    b.peers[0].children.push(back());
    let mut world = World::with(1, a, b);
    world.initiate();
    world.run(SOON);
    let (now, ike) = (world.now, world.a.ike());
    world.a.endpoint.create_child(now, ike, ChildIndex(1)).unwrap();
    world.run(SOON);
    assert_eq!(world.a.children.len(), 2);

    // Another peer comes before it; the first child goes.
    let mut new = config("a", "b");
    new.peers[0].children = vec![further()];
    new.peers.insert(0, peer("a", "c"));
    let kept = KeptPeer { peer: PeerIndex(1), children: vec![None, Some(ChildIndex(0))] };
    world.a.endpoint.reconfigure(world.now, new.clone(), &[Some(kept)]);
    world.run(SOON);
    world.agree();
    assert_eq!((world.a.ike(), world.a.children.len()), (ike, 1));
    assert_eq!(world.a.child().local, further().local);
    // It lives on, with a rekey of either end.
    let (now, spi) = (world.now, world.a.child().inbound_spi);
    world.a.endpoint.rekey_child(now, ike, spi).unwrap();
    world.run(Duration::from_secs(5));
    world.agree();
    assert_ne!(world.a.child().inbound_spi, spi);
    assert_eq!((world.a.child().peer, world.a.child().child), (PeerIndex(1), ChildIndex(0)));

    // The peer goes, and is told.
    new.peers.truncate(1);
    world.a.endpoint.reconfigure(
        world.now,
        new,
        &[Some(KeptPeer { peer: PeerIndex(0), children: vec![Some(ChildIndex(0))] }), None],
    );
    world.run(SOON);
    assert!(world.a.ikes.is_empty() && world.b.ikes.is_empty());
    let deleted = |event: &Event| matches!(event, Event::IkeDown { reason: EndReason::DeletedByPeer, .. });
    assert_eq!(world.count(Side::B, deleted), 1);
}

#[test]
fn an_attempt_with_what_changed_is_given_up_and_one_with_what_did_not_goes_on() {
    for (kept, comes_about) in [(vec![Some(ChildIndex(0))], true), (vec![None], false)] {
        let mut world = World::new(1);
        world.initiate();
        let kept = KeptPeer { peer: PeerIndex(0), children: kept };
        world.a.endpoint.reconfigure(world.now, config("a", "b"), &[Some(kept)]);
        world.run(SOON);
        assert_eq!(world.a.ikes.len(), usize::from(comes_about));
        let given_up = |event: &Event| matches!(event, Event::InitiationFailed { .. });
        assert_eq!(world.count(Side::A, given_up), usize::from(!comes_about));
    }
}
