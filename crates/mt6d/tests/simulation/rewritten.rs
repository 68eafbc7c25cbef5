//! Addresses that are replaced: whatever happens, whoever sends with some has a peer that takes them.

use std::time::Duration;

use proptest::prelude::*;

use crate::network::{A, B, Network, Path, Stream, seeds};

fn pair(seed: u64, rotation: u64, lanes: u8) -> Network {
    let mut network = Network::pair(seed);
    network.configure(|peer| {
        peer.rotation = Duration::from_secs(rotation);
        peer.lanes = Some(lanes);
        peer.rewrite = true;
    });
    network
}

fn both_ways(network: &mut Network, stream: &Stream) {
    for (from, to) in [(A, B), (B, A)] {
        network.send(from, to, stream.clone());
    }
}

#[test]
fn all_arrives_whole_from_the_second_second_on() {
    for (rotation, lanes) in [(1, 1), (10, 4), (60, 1)] {
        for seed in seeds(3) {
            let mut network = pair(seed, rotation, lanes);
            network.start();
            network.establish();
            both_ways(&mut network, &Stream::udp().every_ms(20).hosts(5));
            both_ways(&mut network, &Stream::tcp().of(1500).every_ms(70).batches(8));
            network.run_s(5);
            let (before, sent) = (network.rewritten, network.observer.count);
            let handshakes = network.status(A).handshakes;
            network.run_s(400);
            network.assert_all_arrived();
            // All hundred of UDP a second and their GSO packets; of datagrams, only what a session says.
            assert!(network.rewritten - before >= 400 * 100, "{}", network.rewritten - before);
            assert!(network.observer.count - sent < 400 * 12, "{}", network.observer.count - sent);
            let status = network.status(A);
            assert!(
                status.rewrites
                    && status.rewritten.tx_packets > 20_000
                    && status.rewritten.rx_packets > 20_000
            );
            assert_eq!(status.handshakes, handshakes, "the session goes on");
            assert!(status.session.expect("there is one").rekeys >= 2);
        }
    }
}

#[test]
fn one_end_alone_replaces_nothing() {
    let mut network = pair(1, 1, 1);
    network.sites[B].peer(0).rewrite = false;
    network.start();
    network.establish();
    both_ways(&mut network, &Stream::udp());
    network.run_s(20);
    network.assert_all_arrived();
    assert_eq!(network.rewritten, 0);
    assert!(!network.status(A).rewrites);
}

#[test]
fn ipv4_stays_in_the_tunnel() {
    let mut network = pair(2, 1, 1);
    network.start();
    network.establish();
    both_ways(&mut network, &Stream::udp().over_ipv4());
    network.run_s(20);
    network.assert_all_arrived();
    assert_eq!(network.rewritten, 0);
}

#[test]
fn more_pairs_than_a_session_keeps_take_turns() {
    let mut network = pair(3, 10, 1);
    network.start();
    network.establish();
    let flow = network.send(A, B, Stream::udp().every_ms(2).hosts(900));
    for round in 0..4 {
        network.run_s(40);
        network.flows[flow].paused = true;
        network.run_s(1);
        network.flows[flow].shift_hosts(900);
        network.flows[flow].paused = false;
        assert!(network.rewritten > 5_000 * (round + 1), "round {round}: {}", network.rewritten);
    }
    network.run_s(40);
    network.assert_all_arrived();
}

#[test]
fn two_hosts_replace_their_addresses_from_the_start() {
    let mut network = pair(4, 1, 1);
    for (site, host) in [(A, "fd00:0:0:1::1/128"), (B, "fd00::1/128")] {
        network.sites[site].peer(0).allowed_ips = vec![host.parse().unwrap()];
    }
    network.start();
    network.establish();
    network.run_s(2);
    both_ways(&mut network, &Stream::udp());
    network.run_s(20);
    network.assert_all_arrived();
    assert!(network.rewritten >= 2 * 2_000);
}

#[test]
fn a_peer_that_was_restarted_is_found_again() {
    for seed in seeds(6) {
        let mut network = pair(seed, [1, 10][seed as usize % 2], 1);
        network.start();
        network.establish();
        both_ways(&mut network, &Stream::udp());
        network.run_s(20);
        network.kill(B);
        network.run_s(1);
        network.start();
        network.run_s(15);
        let (since, before) = (network.now, network.rewritten);
        network.run_s(60);
        network.stop();
        network.assert_nothing_wrong();
        for flow in &network.flows {
            assert_eq!(flow.lost_since(since), 0, "stream {}", flow.index);
        }
        assert!(network.rewritten - before > 10_000);
    }
}

#[test]
fn a_silent_peer_is_noticed() {
    let mut network = pair(5, 1, 1);
    network.start();
    network.establish();
    network.send(A, B, Stream::udp());
    network.run_s(20);
    network.path.cut = true;
    network.run_s(300);
    assert!(!network.sites[A].errors.is_empty(), "senders are told");
    network.path.cut = false;
    network.run_s(90);
    let since = network.now;
    network.run_s(20);
    network.stop();
    assert_eq!(network.flows[0].lost_since(since), 0);
}

#[test]
fn a_node_that_moves_takes_its_pairs_along() {
    let mut network = pair(6, 1, 1);
    network.start();
    network.establish();
    both_ways(&mut network, &Stream::udp());
    network.run_s(20);
    network.move_to(A, "2001:db8:c001::/64".parse().unwrap());
    network.run_s(20);
    let (since, before) = (network.now, network.rewritten);
    network.run_s(20);
    network.stop();
    for flow in &network.flows {
        assert_eq!(flow.lost_since(since), 0, "stream {}", flow.index);
    }
    assert!(network.rewritten - before > 3_000);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn only_what_the_path_loses_is_lost(
        seed: u64,
        rotation in prop::sample::select(vec![1u64, 2, 10]),
        lanes in 1u8..=4,
        drift in [-200i64..=200, -200i64..=200],
        delay in prop::sample::select(vec![100u64, 5_000, 150_000, 300_000]),
        jitter in prop::sample::select(vec![0u64, 5_000, 50_000]),
        loss in prop::sample::select(vec![0.0, 0.02, 0.2]),
        open_fails in prop::sample::select(vec![0.0, 0.1]),
    ) {
        let mut network = pair(seed, rotation, lanes);
        network.path = Path { delay, jitter, loss, ..Path::default() };
        for site in [A, B] {
            network.sites[site].clock.drift = drift[site];
            network.sites[site].config.rekey_after = Duration::from_secs(30);
        }
        network.start();
        network.establish();
        network.run_s(15);
        for site in [A, B] {
            network.sites[site].open_fails = open_fails;
        }
        both_ways(&mut network, &Stream::udp().every_ms(35).hosts(4));
        network.run_s(160);
        network.stop();
        network.assert_nothing_wrong();
        for flow in &network.flows {
            let (lost, sent) = (flow.lost() as f64, flow.sent.len() as f64);
            let expected = loss * sent;
            prop_assert!(lost <= expected * 1.3 + 6.0 * expected.sqrt(), "{lost} of {sent} lost");
        }
        prop_assert!(network.rewritten > 4_000);
    }
}
