//! Bytes arrive complete and equal, whatever the link does.

use std::time::{Duration, Instant};

use wire::tcp::SegmentOptions;

use super::super::{Config, Flow, Secrets, State};
use super::network::{Link, MS, MSS, Network, Ours, User, flow, reversed};

fn bad(seed: u64) -> Link {
    Link {
        rate: 2_000_000,
        queue: 100_000,
        loss: 0.02,
        reorder: (0.05, 15 * MS),
        duplicate: 0.02,
        ..Link::IDEAL
    }
    .with_seeded_delay(seed)
}

impl Link {
    fn with_seeded_delay(self, seed: u64) -> Self {
        Link { delay: Duration::from_millis(1 + seed % 40), ..self }
    }
}

#[test]
fn both_ways_at_once_with_loss_reordering_and_duplication() {
    for seed in 0..40u64 {
        let configs = [Config::new(MSS), Config { nagle: seed.is_multiple_of(2), ..Config::new(1220) }];
        let mut network =
            Network::ours(bad(seed), seed, configs, [User::sends(300_000), User::sends(200_000)]);
        network.transfer(Duration::from_secs(120));
        network.pass(Duration::from_secs(240));
        for index in 0..2 {
            assert_eq!(network.connection(index).state(), State::Closed, "seed {seed}");
            assert_eq!(network.connection(index).error(), None, "seed {seed}");
        }
    }
}

#[test]
fn with_a_small_buffer() {
    for seed in 0..6 {
        let config = Config { max_receive_buffer: 20_000, ecn: false, ..Config::new(700) };
        let users = [User::sends(100_000), User::default()];
        let mut network = Network::ours(bad(seed), seed, [config; 2], users);
        network.transfer(Duration::from_secs(120));
    }
}

#[test]
fn without_some_options_and_without_any() {
    let strips: [fn(&mut SegmentOptions); 4] = [
        |options| options.sack_permitted = false,
        |options| options.timestamps = None,
        |options| options.window_scale = None,
        |options| *options = SegmentOptions::default(),
    ];
    for (seed, strip) in (0..24u64).zip(strips.into_iter().cycle()) {
        let users = [User::sends(100_000), User::sends(50_000)];
        let mut network = Network::ours(bad(seed), seed, [Config::new(MSS); 2], users);
        for pipe in &mut network.pipes {
            pipe.strip = strip;
        }
        network.transfer(Duration::from_secs(240));
    }
}

#[test]
fn a_third_of_all_packets_lost() {
    for seed in 0..5 {
        let link = Link { loss: 0.33, ..bad(seed) };
        let mut network =
            Network::ours(link, seed, [Config::new(MSS); 2], [User::sends(50_000), User::sends(1000)]);
        network.transfer(Duration::from_secs(600));
    }
}

/// Secrets with which a flow that begins at `at` has less than 100 KB to the end of the sequence numbers.
fn secrets_near_the_end(start: Instant, at: Instant, flow: &Flow) -> Secrets {
    let mut keys = (0u128..).map(|key| Secrets::new(key.to_be_bytes(), start));
    keys.find(|secrets| secrets.initial_sequence_number(at, flow).0 > u32::MAX - 100_000).unwrap()
}

#[test]
fn rfc_9293_section_3_4_sequence_numbers_go_around() {
    for seed in 0..5 {
        let (start, config) = (Instant::now(), Config::new(MSS));
        let link = Link { loss: 0.02, reorder: (0.05, 15 * MS), ..Link::IDEAL };
        let ours = secrets_near_the_end(start, start, &flow());
        // The first SYN may be lost; then they begin elsewhere.
        let theirs = secrets_near_the_end(start, start + link.delay, &reversed(flow()));
        let ours = Ours::connecting_with(start, config, User::sends(300_000), &ours);
        let theirs = Ours::listening_with(config, User::sends(300_000), theirs);
        let mut network = Network::new(start, link, seed, [Box::new(ours), Box::new(theirs)]);
        network.transfer(Duration::from_secs(60));
    }
}

#[test]
fn a_cut_of_a_minute_is_survived() {
    let mut network = Network::ours(
        Link { rate: 2_000_000, queue: 100_000, ..Link::IDEAL },
        1,
        [Config::new(MSS); 2],
        [User::sends(2_000_000), User::sends(1_000_000)],
    );
    network.pass(Duration::from_millis(500));
    for pipe in &mut network.pipes {
        pipe.drop = Box::new(|_| true);
    }
    network.pass(Duration::from_secs(60));
    for pipe in &mut network.pipes {
        pipe.drop = Box::new(|_| false);
    }
    let took = network.transfer(Duration::from_secs(120));
    assert!(took < Duration::from_secs(65), "{took:?}");
}

#[test]
fn rfc_8899_section_4_3_a_black_hole_for_full_segments_is_left() {
    let (configs, users) = ([Config::new(MSS); 2], [User::sends(300_000), User::default()]);
    let mut network = Network::ours(Link::IDEAL, 1, configs, users);
    network.pipes[0].drop = Box::new(|packet| packet.bytes.len() > 1240);
    network.transfer(Duration::from_secs(10));
}
