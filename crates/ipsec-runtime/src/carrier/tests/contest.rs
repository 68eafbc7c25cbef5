//! Two programs with one identity, in the eyes of the end that they talk with and in their own.

use super::*;

fn told(events: &[Event]) -> Vec<&str> {
    let mut told = Vec::new();
    for event in events {
        if let Event::Contested { what, .. } = event {
            told.push(what.as_str());
        }
    }
    told
}

/// The first end is another program from now on: another process, at another port.
fn replaced_by_another(world: &mut World, number: u16) {
    let ports = Ports { ike: 0, nat: 40_000 + number };
    let config = config(0, Start::Always, PORTS);
    world.ends[0].carrier = Carrier::new(&config, ports, Repeatable(1000 + u64::from(number)), world.now);
    world.run();
}

#[test]
fn an_identity_that_comes_from_elsewhere_soon_is_told_of_once() {
    let mut world = World::new(Start::Always, [FREE, PORTS]);
    for number in 1..5 {
        world.pass(10);
        replaced_by_another(&mut world, number);
        assert!(world.is_up(1));
    }
    let told = told(&world.ends[1].events);
    assert_eq!(told.len(), 1, "{told:?}");
    for part in ["0.example", "40001", "40000", "10 s"] {
        assert!(told[0].contains(part), "{part} in {}", told[0]);
    }
}

#[test]
fn a_restart_after_a_while_or_at_the_same_place_is_not_told_of() {
    let mut world = World::new(Start::Always, [FREE, PORTS]);
    world.pass(10);
    replaced_by_another(&mut world, 0);
    assert_eq!(world.ends[1].carrier.conversations[0].established.len(), 1);
    world.pass(121);
    replaced_by_another(&mut world, 1);
    assert!(world.is_up(1));
    assert!(told(&world.ends[1].events).is_empty());
}

#[test]
fn an_end_that_is_forgotten_again_and_again_says_so_once() {
    let mut world = World::new(Start::Always, [PORTS; 2]);
    let packet = datagram(inside(0, 1), inside(1, 9), 10);
    for number in 0..6 {
        assert_eq!(told(&world.ends[0].events).len(), usize::from(number > 2), "after {number}");
        let config = config(1, Start::Wait, PORTS);
        world.ends[1].carrier = Carrier::new(&config, PORTS, Repeatable(100 + number), world.now);
        for _ in 0..20 {
            world.send(0, packet.clone());
            world.pass(1);
        }
        assert!(world.is_up(1));
    }
}
