//! Stories of two nodes in virtual time: rotations, key exchanges, and what a path and clocks do to them.
//!
//! Everything follows from a seed, which a failing test names.

mod network;
mod path_mtu;

use classic::KeyState;
use classic::cipher::Cipher;
use classic::hashed::Rotation;
use classic::profile::{Carry, KeyExchange};
use network::{Path, Setup, World};

const CIPHERS: [Option<Cipher>; 3] = [None, Some(Cipher::Aes256Cbc), Some(Cipher::Aes128Cbc)];
const RANDOMISED: Rotation = Rotation::Randomised { spread: 20, least: 5 };

/// Key exchanges far enough apart for randomised intervals of up to 24 s.
const SLOW: Option<KeyExchange> = Some(KeyExchange { interval: 200, window: 20 });

#[test]
fn nothing_is_lost_across_rotations_and_key_exchanges() {
    let modes = CIPHERS.map(|cipher| (cipher, Carry::Encapsulate));
    for (seed, (cipher, carry)) in modes.into_iter().chain([(None, Carry::Rewrite)]).enumerate() {
        for (rotation, key_exchange) in
            [(Rotation::Fixed(10), Setup::new(0).key_exchange), (RANDOMISED, SLOW)]
        {
            let mut world =
                World::new(Setup { cipher, carry, rotation, key_exchange, ..Setup::new(seed as u64) });
            world.run(800, 100);
            world.run(1, 0);
            assert_eq!(world.lost_by_the_protocol(), [0, 0], "seed {seed}, {rotation:?}");
            assert!(world.delivered.iter().all(|d| d.values().all(|copies| *copies == 1)));
            let adopted = world.keys_adopted();
            assert!(adopted[0] >= 2 && adopted[0] == adopted[1], "{adopted:?}, seed {seed}");
            assert_eq!(world.stored[0], world.stored[1]);
            assert!(world.addresses_seen.len() > 2 * 800 / 25, "{}", world.addresses_seen.len());
            assert!(world.most_open <= 16, "{} routes at once", world.most_open);
            // Two ends may begin an exchange within one delay of the path; nothing else is ever dropped.
            let drops = [world.drops(0), world.drops(1)].concat();
            assert!(drops.iter().all(|(reason, _)| *reason == "offer_collision"), "{drops:?}");
        }
    }
}

#[test]
fn clocks_may_differ_by_most_of_an_interval() {
    for (seed, skew) in [[9_000, 0], [-9_000, 0], [-4_000, 4_500]].into_iter().enumerate() {
        let mut world = World::new(Setup { skew, ..Setup::new(seed as u64) });
        // A node has no route of the interval before its start.
        world.run(10, 0);
        world.run(600, 40);
        world.run(1, 0);
        assert_eq!(world.lost_by_the_protocol(), [0, 0], "skew {skew:?}");
        assert!(world.keys_adopted()[0] >= 2);
    }
}

#[test]
fn a_poor_path_loses_what_it_loses_and_no_more() {
    for seed in 0..6 {
        let rotation = if seed % 2 == 0 { Rotation::Fixed(10) } else { RANDOMISED };
        let cipher = CIPHERS[seed as usize % 3];
        let mut world =
            World::new(Setup { cipher, rotation, key_exchange: SLOW, skew: [700, -600], ..Setup::new(seed) });
        world.run(24, 0);
        world.path = Path::POOR;
        world.run(1200, 100);
        world.run(1, 0);
        assert_eq!(world.lost_by_the_protocol(), [0, 0], "seed {seed}");
        assert!(world.keys_adopted()[0] >= 2, "seed {seed}");
        assert_eq!(world.stored[0], world.stored[1], "seed {seed}");
    }
}

#[test]
fn keys_are_exchanged_without_traffic() {
    for seed in 0..6 {
        let mut world = World::new(Setup::new(seed));
        world.path.loss = [200, 200];
        world.run(1200, 0);
        assert!(world.keys_adopted()[0] >= 2, "seed {seed}: {:?}", world.keys_adopted());
        world.path = Path::CLEAN;
        world.run(150, 0);
        assert_eq!(world.stored[0], world.stored[1], "seed {seed}");
    }
}

#[test]
fn ends_that_start_at_the_same_instant_agree() {
    let key_exchange = Some(KeyExchange { interval: 120, window: 0 });
    for seed in 0..6 {
        let mut world = World::new(Setup { key_exchange, ..Setup::new(seed) });
        world.path.loss = [100, 100];
        world.path.delay = (1, 3000);
        world.run(1000, 100);
        world.run(5, 0);
        assert_eq!(world.lost_by_the_protocol(), [0, 0], "seed {seed}");
        assert!(world.keys_adopted()[0] >= 5, "seed {seed}: {:?}", world.keys_adopted());
        assert_eq!(world.stored[0], world.stored[1], "seed {seed}");
    }
}

#[test]
fn no_change_without_agreement() {
    for deaf in [0, 1] {
        let mut world = World::new(Setup::new(4));
        let before = world.stored.clone();
        // One direction carries nothing: offers are heard and never acknowledged, or the other way round.
        world.path.loss[deaf] = 1000;
        world.run(600, 100);
        assert_eq!(world.stored, before);
        world.path = Path::CLEAN;
        world.run(1, 0);
        world.forget();
        world.run(60, 100);
        world.run(1, 0);
        assert_eq!(world.lost_by_the_protocol(), [0, 0]);
        world.run(300, 100);
        assert_eq!(world.stored[0], world.stored[1]);
        assert!(world.keys_adopted()[0] >= 1);
    }
}

/// The path breaks at any instant of an exchange, and comes back after the change.
#[test]
fn an_outage_at_any_instant_of_an_exchange_is_survived() {
    for begin in (50..140).step_by(7) {
        for outage in [7, 40, 200] {
            let mut world = World::new(Setup::new(begin));
            world.run(begin, 100);
            world.path.loss = [1000, 1000];
            world.run(outage, 100);
            world.path = Path::CLEAN;
            // Undecided ends find each other at the next boundaries.
            world.run(45, 100);
            world.run(1, 0);
            world.forget();
            world.run(60, 100);
            world.run(1, 0);
            assert_eq!(world.lost_by_the_protocol(), [0, 0], "from {begin} s for {outage} s");
            assert_eq!(world.stored[0], world.stored[1], "from {begin} s for {outage} s");
        }
    }
}

#[test]
fn whatever_is_lost_both_ends_come_together_again() {
    for seed in 100..130 {
        let mut world = World::new(Setup { skew: [2_000, 0], ..Setup::new(seed) });
        world.path = Path { loss: [700, 600], duplicates: 100, delay: (1, 4000) };
        world.run(700 + seed, if seed % 2 == 0 { 500 } else { 0 });
        world.path = Path::CLEAN;
        world.run(300, 100);
        world.run(5, 0);
        world.forget();
        world.run(300, 100);
        world.run(1, 0);
        assert_eq!(world.lost_by_the_protocol(), [0, 0], "seed {seed}");
        assert_eq!(world.stored[0], world.stored[1], "seed {seed}");
    }
}

#[test]
fn a_node_that_starts_anew_has_its_stored_key() {
    for seed in 0..30 {
        let mut world = World::new(Setup::new(seed));
        // Also in the middle of an exchange.
        world.run(40 + 3 * seed, 100);
        world.restart(seed as usize % 2);
        world.run(45, 100);
        world.run(1, 0);
        world.forget();
        world.run(300, 100);
        world.run(1, 0);
        // The peer may have known that this node has the new key, which was not stored yet: it sends under it until
        // it hears otherwise.
        let lost = world.lost_by_the_protocol();
        assert!(lost[0] + lost[1] <= 2, "{lost:?}, seed {seed}");
        assert_eq!(world.stored[0], world.stored[1], "seed {seed}");
    }
}

#[test]
fn a_clock_that_is_set_comes_back() {
    let mut world = World::new(Setup { key_exchange: None, ..Setup::new(1) });
    world.run(30, 100);
    for skew in [-3_600_000, 5_000, 7_200_000, 0] {
        world.set_clock(0, skew);
        world.run(20, 100);
    }
    world.run(30, 100);
    world.run(1, 0);
    world.forget();
    world.run(100, 100);
    world.run(1, 0);
    assert_eq!(world.lost_by_the_protocol(), [0, 0]);
}

#[test]
fn states_are_shown() {
    let mut world = World::new(Setup::new(1));
    let mut seen = Vec::new();
    for _ in 0..1500 {
        world.run(1, 0);
        for node in [0, 1] {
            let state = world.key_state(node);
            if !seen.contains(&state) {
                seen.push(state);
            }
        }
    }
    for state in [KeyState::Idle, KeyState::Agreed, KeyState::Confirmed, KeyState::Undecided] {
        assert!(seen.contains(&state), "{state:?} never seen: {seen:?}");
    }
}
