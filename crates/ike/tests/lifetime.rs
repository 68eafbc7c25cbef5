//! What happens to IKE SAs and children that are there (RFC 7296 §1.3, §1.4, §2.1–2.4, §2.8, §2.25).

mod world;

use std::time::Duration;

use ike::config::ChildIndex;
use ike::crypto::group::Group;
use ike::endpoint::MAX_OF_IDENTITY;
use ike::event::{EndReason, Event, Path};
use ike::{DropReason, Transmit};
use world::{Dice, Link, Side, World, config, header, message};

const SOON: Duration = Duration::from_secs(2);
const LATER: Duration = Duration::from_secs(120);

fn rekey_child(world: &mut World, side: Side) {
    let now = world.now;
    let end = world.end(side);
    let (ike, spi) = (end.child().ike, end.child().inbound_spi);
    end.endpoint.rekey_child(now, ike, spi).unwrap();
}

fn rekey_ike(world: &mut World, side: Side) {
    let now = world.now;
    let end = world.end(side);
    let ike = end.ike();
    end.endpoint.rekey_ike(now, ike).unwrap();
}

#[test]
fn a_rekeyed_child_takes_over_and_the_old_one_goes() {
    for (seed, side) in [(1, Side::A), (2, Side::B)] {
        let mut world = World::established(seed);
        let old = (world.a.child().inbound_spi, world.a.child().inbound.encryption.as_bytes().to_vec());
        rekey_child(&mut world, side);
        world.run(SOON);
        world.agree();
        let new = world.a.child();
        assert_ne!((new.inbound_spi, new.inbound.encryption.as_bytes()), (old.0, &old.1[..]));
        assert_eq!(new.suite.group, Some(Group::Curve25519), "with forward secrecy");
        let rekeyed = |event: &Event| matches!(event, Event::ChildRekeyed { old: spi, .. } if *spi == old.0);
        assert_eq!(world.count(Side::A, rekeyed), 1);
    }
}

#[test]
fn a_rekeyed_child_has_the_selectors_of_the_one_before() {
    let mut b = config("b", "a");
    // Two children could carry it: the first one that fits is the wider.
    let narrow = b.peers[0].children[0].clone();
    let mut wide = narrow.clone();
    wide.remote = vec![ike::message::traffic_selector::TrafficSelector::ANY_IPV6];
    b.peers[0].children = vec![narrow, wide];
    let mut a = config("a", "b");
    a.peers[0].children[0].local = vec![ike::message::traffic_selector::TrafficSelector::ANY_IPV6];
    let mut world = World::with(1, a, b);
    world.initiate();
    world.run(SOON);
    let before = world.b.child().remote.clone();
    for side in [Side::A, Side::B] {
        rekey_child(&mut world, side);
        world.run(SOON);
        world.agree();
        assert_eq!(world.b.child().remote, before);
    }
}

#[test]
fn what_is_replaced_stays_until_packets_under_way_have_arrived() {
    let mut world = World::established(1);
    rekey_child(&mut world, Side::A);
    world.run(Duration::from_millis(500));
    world.agree();
    assert_eq!(world.a.children.len(), 2);
    world.run(Duration::from_secs(1));
    world.agree();
    assert_eq!(world.a.children.len(), 1);

    let (now, old) = (world.now, world.a.ike());
    world.a.endpoint.reauthenticate(now, old).unwrap();
    world.run(Duration::from_millis(500));
    world.agree();
    assert_eq!((world.a.ikes.len(), world.a.children.len()), (2, 2));
    world.run(Duration::from_secs(1));
    world.agree();
    assert_eq!((world.a.ikes.len(), world.a.children.len()), (1, 1));
}

#[test]
fn a_child_without_forward_secrecy_is_rekeyed_without_a_key_exchange() {
    let (mut a, mut b) = (config("a", "b"), config("b", "a"));
    for config in [&mut a, &mut b] {
        config.peers[0].children[0].algorithms.groups = Vec::new();
    }
    let mut world = World::with(1, a, b);
    world.initiate();
    world.run(SOON);
    rekey_child(&mut world, Side::B);
    world.run(SOON);
    world.agree();
    assert_eq!(world.a.child().suite.group, None);
}

#[test]
fn a_rekey_in_a_group_that_the_other_end_does_not_want_begins_anew_in_one_that_it_does() {
    let mut b = config("b", "a");
    b.peers[0].children[0].algorithms.groups = vec![Group::P384];
    let mut world = World::with(1, config("a", "b"), b);
    world.initiate();
    world.run(SOON);
    rekey_child(&mut world, Side::A);
    world.run(SOON);
    world.agree();
    assert_eq!(world.a.child().suite.group, Some(Group::P384));
}

#[test]
fn simultaneous_rekeys_of_a_child_leave_one() {
    for seed in 0..80 {
        let mut world = World::established(seed);
        let old = world.a.child().inbound_spi;
        world.link = Link { lost: seed % 4 * 10, repeated: 20, jitter_ms: 100 * (seed % 20), nat: None };
        rekey_child(&mut world, Side::A);
        rekey_child(&mut world, Side::B);
        world.run(LATER);
        world.agree();
        assert_ne!(world.a.child().inbound_spi, old, "seed {seed}");
    }
}

#[test]
fn a_rekeyed_ike_sa_takes_the_children_over_unchanged() {
    for (seed, side) in [(1, Side::A), (2, Side::B)] {
        let mut world = World::established(seed);
        let (ike, child) = (world.a.ike(), world.a.child().inbound_spi);
        rekey_ike(&mut world, side);
        world.run(SOON);
        world.agree();
        assert_ne!(world.a.ike(), ike);
        assert_eq!(world.a.child().inbound_spi, child);
        // Its message IDs begin with zero again (§2.18).
        let before = world.sent.len();
        let (now, new) = (world.now, world.end(side).ike());
        world.end(side).endpoint.check_liveness(now, new).unwrap();
        world.run(SOON);
        assert_eq!(header(&world.sent[before].1), (37, false, 0));
        let down = |event: &Event| matches!(event, Event::IkeDown { reason: EndReason::Replaced, .. });
        assert_eq!((world.count(Side::A, down), world.count(Side::B, down)), (1, 1));

        // The new one works, in both directions, and can be replaced in its turn.
        rekey_child(&mut world, side.other());
        world.run(SOON);
        rekey_ike(&mut world, side.other());
        world.run(SOON);
        rekey_child(&mut world, side);
        world.run(SOON);
        world.agree();
        assert_eq!(world.a.child().ike, world.a.ike());
    }
}

#[test]
fn simultaneous_rekeys_of_an_ike_sa_leave_one() {
    for seed in 0..80 {
        let mut world = World::established(seed);
        let child = world.a.child().inbound_spi;
        world.link = Link { lost: seed % 4 * 10, repeated: 20, jitter_ms: 100 * (seed % 20), nat: None };
        rekey_ike(&mut world, Side::A);
        rekey_ike(&mut world, Side::B);
        world.run(LATER);
        world.agree();
        assert_eq!(world.a.child().inbound_spi, child, "seed {seed}");
        assert_eq!(world.a.child().ike, world.a.ike());
        // Both ends mean the same one.
        rekey_child(&mut world, Side::A);
        world.run(LATER);
        world.agree();
        assert_ne!(world.a.child().inbound_spi, child, "seed {seed}");
    }
}

#[test]
fn an_answer_that_is_lost_for_long_leaves_the_children_where_both_ends_agree() {
    for seed in 0..8 {
        let mut world = World::established(seed);
        let child = world.a.child().inbound_spi;
        rekey_ike(&mut world, Side::A);
        rekey_ike(&mut world, Side::B);
        // One end has both answers, the other one has not for a minute and a half: the old IKE SA must wait for it.
        world.filter = Some(Box::new(|side, sent| side == Side::A && header(sent).0 == 36 && header(sent).1));
        world.run(Duration::from_secs(90));
        world.filter = None;
        world.run(Duration::from_secs(400));
        world.agree();
        assert_eq!(world.a.child().inbound_spi, child, "seed {seed}");
    }
}

#[test]
fn rekeys_of_a_child_and_of_its_ike_sa_at_once_both_succeed_in_the_end() {
    for seed in 0..40 {
        let mut world = World::established(seed);
        let (ike, child) = (world.a.ike(), world.a.child().inbound_spi);
        world.link = Link { lost: 10, repeated: 10, jitter_ms: 500, nat: None };
        rekey_ike(&mut world, Side::A);
        rekey_child(&mut world, Side::B);
        world.run(LATER);
        world.agree();
        assert_ne!((world.a.ike(), world.a.child().inbound_spi), (ike, child), "seed {seed}");
        assert_ne!(world.a.ike(), ike, "seed {seed}");
        assert_ne!(world.a.child().inbound_spi, child, "seed {seed}");
    }
}

#[test]
fn who_is_told_to_come_again_later_does_not_come_at_once() {
    let mut world = World::established(1);
    // Both begin; B is told that A is busy with the IKE SA.
    rekey_ike(&mut world, Side::A);
    rekey_child(&mut world, Side::B);
    world.flush();
    let start = world.now;
    let before = world.sent.len();
    let mut asked = Vec::new();
    while world.now < start + LATER {
        world.run(Duration::from_millis(100));
        let of_b =
            |(side, sent): &&(Side, Transmit)| *side == Side::B && header(sent).0 == 36 && !header(sent).1;
        if asked.len() < world.sent[before..].iter().filter(of_b).count() {
            asked.push(world.now - start);
        }
    }
    assert!(!asked.is_empty() && asked.iter().all(|after| *after > Duration::from_secs(1)), "{asked:?}");
    world.agree();
}

#[test]
fn lifetimes_are_kept_for_days_on_a_lossy_link() {
    for seed in 0..3 {
        let mut world = World::established(seed);
        world.link = Link { lost: 10, repeated: 10, jitter_ms: 300, nat: None };
        world.run(Duration::from_secs(3 * 24 * 3600));
        // Let what may be under way come to its end.
        world.link = Link::default();
        world.run(Duration::from_secs(300));
        assert!(world.count(Side::A, |event| matches!(event, Event::ChildRekeyed { .. })) > 70);
        assert!(world.count(Side::A, |event| matches!(event, Event::IkeRekeyed { .. })) > 17);
        assert_eq!(world.count(Side::A, |event| matches!(event, Event::ChildUp(_))), 1);
        world.agree();
    }
}

#[test]
fn a_further_child_comes_and_goes() {
    let mut world = World::established(1);
    let (now, ike) = (world.now, world.b.ike());
    let first = world.b.child().inbound_spi;
    world.b.endpoint.create_child(now, ike, ChildIndex(0)).unwrap();
    world.run(SOON);
    assert_eq!(world.a.children.len(), 2);
    world.agree();
    let now = world.now;
    world.b.endpoint.delete_child(now, ike, first).unwrap();
    world.run(SOON);
    world.agree();
    assert_ne!(world.b.child().inbound_spi, first);
}

#[test]
fn a_child_that_both_ends_delete_at_once_is_gone_once() {
    let mut world = World::established(1);
    let now = world.now;
    for side in [Side::A, Side::B] {
        let end = world.end(side);
        let (ike, spi) = (end.ike(), end.child().inbound_spi);
        end.endpoint.delete_child(now, ike, spi).unwrap();
    }
    world.run(SOON);
    world.agree();
    assert!(world.a.children.is_empty());
    assert_eq!(world.a.ikes.len(), 1);
}

#[test]
fn a_deleted_ike_sa_takes_its_children_along_at_both_ends() {
    for both in [false, true] {
        let mut world = World::established(1);
        let (now, at_a, at_b) = (world.now, world.a.ike(), world.b.ike());
        world.a.endpoint.delete_ike(now, at_a).unwrap();
        if both {
            world.b.endpoint.delete_ike(now, at_b).unwrap();
        }
        world.run(SOON);
        assert!(world.a.ikes.is_empty() && world.b.ikes.is_empty());
        assert!(world.a.children.is_empty() && world.b.children.is_empty());
        world.run(LATER);
        assert_eq!(
            (world.a.endpoint.deadline(), world.b.endpoint.deadline()),
            (None, None),
            "nothing is left"
        );
    }
}

#[test]
fn what_was_asked_during_a_rekey_is_done_on_the_new_ike_sa() {
    let mut world = World::established(1);
    let (now, ike) = (world.now, world.a.ike());
    world.a.endpoint.rekey_ike(now, ike).unwrap();
    world.a.endpoint.create_child(now, ike, ChildIndex(0)).unwrap();
    world.a.endpoint.delete_ike(now, ike).unwrap();
    world.run(LATER);
    let came = world.count(Side::B, |event| matches!(event, Event::ChildUp(_)));
    assert_eq!(came, 2);
    assert!(world.a.ikes.is_empty() && world.b.ikes.is_empty());
    assert!(world.a.children.is_empty() && world.b.children.is_empty());
}

#[test]
fn a_lost_answer_is_repeated_from_the_stored_one() {
    let mut world = World::established(1);
    let mut lost = 0;
    world.filter = Some(Box::new(move |side, sent| {
        let loses = side == Side::B && header(sent).1 && lost < 3;
        lost += u32::from(loses);
        loses
    }));
    rekey_child(&mut world, Side::A);
    world.run(Duration::from_secs(30));
    world.agree();
    let answers = world.sent.iter().filter(|(side, sent)| *side == Side::B && header(sent) == (36, true, 2));
    let answers: Vec<_> = answers.map(|(_, sent)| sent.payload.clone()).collect();
    assert_eq!(answers.len(), 4);
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    assert_eq!(world.count(Side::B, |event| matches!(event, Event::ChildRekeyed { .. })), 1);
}

#[test]
fn a_replayed_request_of_the_past_is_ignored() {
    let mut world = World::established(1);
    for _ in 0..3 {
        rekey_child(&mut world, Side::A);
        world.run(SOON);
    }
    let of_a = |(side, sent): &&(Side, Transmit)| *side == Side::A && header(sent).0 == 36;
    let past: Vec<_> = world.sent.iter().filter(of_a).map(|(_, sent)| sent.clone()).collect();
    let (sent, events) = (world.sent.len(), world.b.events.len());
    for old in &past {
        let path = Path { local: old.path.remote, remote: old.path.local };
        world.inject(Side::B, path, &old.payload);
    }
    assert_eq!((world.sent.len(), world.b.events.len()), (sent, events));
    assert_eq!(world.b.endpoint.drops().of(DropReason::OutsideWindow), past.len() as u64);
}

#[test]
fn silence_is_asked_about_and_no_answer_ends_the_ike_sa() {
    let mut world = World::established(1);
    let before = world.sent.len();
    world.run(Duration::from_secs(100));
    assert!(world.sent.len() > before, "liveness is checked");
    world.agree();
    assert_eq!(world.a.ikes.len(), 1);
    world.filter = Some(Box::new(|_, _| true));
    world.run(Duration::from_secs(400));
    for side in [Side::A, Side::B] {
        let down = |event: &Event| matches!(event, Event::IkeDown { reason: EndReason::NoAnswer, .. });
        assert_eq!(world.count(side, down), 1);
        assert!(world.end(side).children.is_empty());
    }
}

#[test]
fn reauthentication_makes_a_new_ike_sa_and_then_deletes_the_old_one() {
    let mut world = World::established(1);
    let (now, old) = (world.now, world.a.ike());
    world.a.endpoint.reauthenticate(now, old).unwrap();
    world.run(SOON);
    world.agree();
    assert_ne!(world.a.ike(), old);
    let position = |is: &dyn Fn(&Event) -> bool| world.a.events.iter().rposition(is).unwrap();
    let up = position(&|event| matches!(event, Event::ChildUp(_)));
    let down = position(&|event| matches!(event, Event::ChildDown { .. }));
    assert!(up < down, "the child is there without a break");
}

#[test]
fn random_and_mutated_datagrams_never_end_an_ike_sa() {
    let mut world = World::established(1);
    rekey_child(&mut world, Side::A);
    world.run(SOON);
    rekey_ike(&mut world, Side::B);
    world.run(SOON);
    let samples = world.sent.clone();
    let (ike, child) = (world.a.ike(), world.a.child().inbound_spi);
    let mut dice = Dice(11);
    for round in 0..30_000 {
        let (side, sample) = &samples[dice.below(samples.len() as u64) as usize];
        let mut bytes = sample.payload.clone();
        if round % 10 == 0 {
            ike::random::Random::fill(&mut dice, &mut bytes[16..]);
        } else {
            for _ in 0..=dice.below(3) {
                let at = dice.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << dice.below(8);
            }
        }
        if dice.below(5) == 0 {
            bytes.truncate(dice.below(bytes.len() as u64 + 1) as usize);
        }
        let path = Path { local: sample.path.remote, remote: sample.path.local };
        world.inject(side.other(), path, &bytes);
        if round % 1000 == 0 {
            world.run(Duration::from_millis(100));
        }
    }
    world.run(LATER);
    world.agree();
    assert_eq!((world.a.ike(), world.a.child().inbound_spi), (ike, child));
    rekey_child(&mut world, Side::B);
    world.run(SOON);
    world.agree();
}

#[test]
fn requests_of_an_ike_sa_that_has_ended_are_answered_once_more_and_then_not() {
    let mut world = World::established(1);
    let (now, ike) = (world.now, world.a.ike());
    let mut lost = false;
    world.filter = Some(Box::new(move |side, _| side == Side::B && !std::mem::replace(&mut lost, true)));
    world.a.endpoint.delete_ike(now, ike).unwrap();
    world.run(Duration::from_secs(10));
    let deleted = |event: &Event| matches!(event, Event::IkeDown { reason: EndReason::Deleted, .. });
    assert_eq!(world.count(Side::A, deleted), 1);
    let _ = message(&world.sent[0].1);
}

#[test]
fn a_child_that_cannot_be_replaced_ends_at_both_ends() {
    let (mut a, mut b) = (config("a", "b"), config("b", "a"));
    a.peers[0].children[0].algorithms.groups = vec![Group::P256];
    b.peers[0].children[0].algorithms.groups = vec![Group::P384];
    for config in [&mut a, &mut b] {
        config.peers[0].children[0].algorithms.groups_required = true;
    }
    let mut world = World::with(1, a, b);
    world.initiate();
    world.run(Duration::from_secs(3600));
    world.agree();
    assert_eq!(world.a.children.len(), 1);
    world.run(Duration::from_secs(700));
    world.agree();
    assert!(world.a.children.is_empty());
    assert_eq!(world.a.ikes.len(), 1, "the IKE SA has nothing to do with it");
}

#[test]
fn a_clock_that_jumps_by_days_ends_what_is_too_old_and_nothing_panics() {
    for jump in [60, 1800, 4000, 86_400, 10 * 86_400] {
        let mut world = World::established(jump);
        world.now += Duration::from_secs(jump);
        world.run(Duration::from_secs(600));
        world.agree();
        // A new beginning works whatever was before.
        world.initiate();
        world.run(SOON);
        world.agree();
        assert!(!world.a.children.is_empty(), "after {jump} s");
    }
}

#[test]
fn a_peer_that_forgets_again_and_again_keeps_a_bounded_number_of_ike_sas() {
    let mut world = World::established(1);
    // What it says about having no other IKE SA is lost on it: each beginning is next to the others.
    for _ in 0..3 * MAX_OF_IDENTITY {
        world.initiate();
        world.run(SOON);
    }
    assert!(world.b.ikes.len() <= MAX_OF_IDENTITY);
    let (newest, oldest) = (world.a.ikes.last().copied(), world.a.ikes.first().copied());
    let child = world.a.children.values().find(|child| Some(child.ike) == newest).unwrap();
    assert!(world.b.children.contains_key(&child.outbound_spi), "the newest is there");
    let child = world.a.children.values().find(|child| Some(child.ike) == oldest).unwrap();
    assert!(!world.b.children.contains_key(&child.outbound_spi), "the oldest is not");
}

#[test]
fn an_ike_sa_that_is_replaced_without_end_leaves_a_bounded_number_behind() {
    let mut world = World::established(1);
    // Deletes of those that were replaced do not arrive.
    for _ in 0..3 * MAX_OF_IDENTITY {
        let (now, ike) = (world.now, world.a.child().ike);
        world.a.endpoint.rekey_ike(now, ike).unwrap();
        world.filter = None;
        world.run(Duration::from_millis(30));
        world.filter = Some(Box::new(|side, sent| side == Side::A && header(sent).0 == 37));
        world.run(Duration::from_millis(30));
        assert!(world.b.ikes.len() <= MAX_OF_IDENTITY);
    }
    assert_eq!(world.a.child().outbound_spi, world.b.child().inbound_spi);
}

/// What an end does of its own accord.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Act {
    CreateChild,
    RekeyChild,
    DeleteChild,
    RekeyIke,
    DeleteIke,
    Reauthenticate,
    Liveness,
}

#[test]
fn whatever_both_ends_do_at_once_they_agree_on_what_came_of_it() {
    let acts = [
        Act::CreateChild,
        Act::RekeyChild,
        Act::DeleteChild,
        Act::RekeyIke,
        Act::DeleteIke,
        Act::Reauthenticate,
        Act::Liveness,
    ];
    for (seed, (at_a, at_b)) in (0..).zip(acts.iter().flat_map(|a| acts.map(|b| (*a, b)))) {
        for lost in [0, 15, 30] {
            let mut world = World::established(seed * 3 + lost);
            world.link = Link { lost, repeated: 20, jitter_ms: 40 * (seed % 10), nat: None };
            for (side, act) in [(Side::A, at_a), (Side::B, at_b)] {
                // Only who has begun can begin anew: the other end would not know where to.
                let now = world.now;
                let end = world.end(side);
                let (ike, spi) = (end.child().ike, end.child().inbound_spi);
                match act {
                    Act::CreateChild => end.endpoint.create_child(now, ike, ChildIndex(0)).unwrap(),
                    Act::RekeyChild => end.endpoint.rekey_child(now, ike, spi).unwrap(),
                    Act::DeleteChild => end.endpoint.delete_child(now, ike, spi).unwrap(),
                    Act::RekeyIke => end.endpoint.rekey_ike(now, ike).unwrap(),
                    Act::DeleteIke => end.endpoint.delete_ike(now, ike).unwrap(),
                    Act::Reauthenticate => drop(end.endpoint.reauthenticate(now, ike).unwrap()),
                    Act::Liveness => end.endpoint.check_liveness(now, ike).unwrap(),
                }
            }
            world.run(LATER);
            world.link = Link::default();
            world.run(Duration::from_secs(900));
            world.agree();
            let ends = [at_a, at_b].contains(&Act::DeleteIke);
            // Two beginnings at once are two IKE SAs, and so is one that the end of what it replaces has overtaken.
            let anew = (at_a, at_b) == (Act::Reauthenticate, Act::Reauthenticate);
            assert!(ends || anew || world.a.ikes.len() == 1, "{at_a:?} and {at_b:?}: {:?}", world.a.ikes);
        }
    }
}
