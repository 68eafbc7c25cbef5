//! Bytes arrive complete and equal, whatever the link does.

use std::time::Duration;

use super::super::{Config, State};
use super::network::{Link, MS, MSS, Network, User};

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
    for seed in 0..20 {
        let configs = [Config::new(MSS), Config { nagle: seed % 2 == 0, ..Config::new(1220) }];
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
fn without_gso_and_without_options() {
    for seed in 0..6 {
        let config = Config { max_receive_buffer: 20_000, ecn: false, ..Config::new(700) };
        let mut network =
            Network::ours(bad(seed), seed, [config; 2], [User::sends(100_000), User::default()]);
        network.transfer(Duration::from_secs(120));
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
