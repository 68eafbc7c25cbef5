//! Traffic that goes on while everything moves.

use std::collections::HashMap;
use std::net::SocketAddrV6;
use std::time::Duration;

use sidestep_mt6d::config::{Rate, Shape};

use crate::network::{A, B, Network, Stream, seeds};

#[test]
fn a_ping_crosses() {
    let mut network = Network::pair(1);
    network.start();
    network.establish();
    network.send(A, B, Stream::ping().every_ms(1000));
    network.run(Duration::from_millis(100));
    network.assert_all_arrived();
}

/// A pair that has a session.
fn established(seed: u64, rotation: u64, lanes: u8) -> Network {
    let mut network = Network::pair(seed);
    network.configure(|peer| {
        peer.rotation = Duration::from_secs(rotation);
        peer.lanes = Some(lanes);
    });
    network.start();
    network.establish();
    network
}

/// Fails unless the same session has been in use for so long, at both ends.
fn assert_one_session(network: &Network, seconds: u64) {
    for site in [A, B] {
        let age = network.status(site).session.expect("there is one").age;
        assert!(age >= Duration::from_secs(seconds), "site {site}: the session is {age:?} old");
    }
}

#[test]
fn nothing_is_lost_over_fifty_rotations() {
    for (rotation, lanes) in [(1, 1), (1, 4), (1, 16), (10, 1), (10, 4), (10, 16)] {
        for seed in seeds(1) {
            let mut network = established(seed, rotation, lanes);
            for (from, to) in [(A, B), (B, A)] {
                network.send(from, to, Stream::udp().every_ms(5 * rotation).flows(20));
                network.send(from, to, Stream::tcp().of(1400).every_ms(17 * rotation).flows(20));
                network.send(from, to, Stream::ping().over_ipv4().every_ms(23 * rotation));
                network.send(from, to, Stream::tcp().of(1300).every_ms(499).batches(20));
            }
            network.run_s(52 * rotation);
            network.assert_all_arrived();
            let status = network.status(A);
            assert!(status.rotations >= 25 * u64::from(lanes), "{} rotations", status.rotations);
            assert!(!status.lanes.is_empty());
            assert_eq!(status.skips, 0);
            assert!(
                status.session.unwrap().age >= Duration::from_secs(50 * rotation),
                "one session all the time"
            );
        }
    }
}

#[test]
fn traffic_in_one_direction_alone_goes_on() {
    for rotation in [1, 10, 60] {
        let mut network = established(3, rotation, 1);
        network.send(A, B, Stream::udp().every_ms(20));
        network.run_s(250);
        network.assert_all_arrived();
        assert_one_session(&network, 250);
    }
}

/// First and last time that datagrams of a size left each source, with its destination.
fn stays(network: &Network, size: usize) -> HashMap<(SocketAddrV6, SocketAddrV6), (u64, u64)> {
    let mut stays = HashMap::new();
    for seen in network.observer.seen.iter().filter(|s| s.length == size) {
        let stay = stays.entry((seen.source, seen.destination)).or_insert((seen.at, seen.at));
        stay.1 = seen.at;
    }
    stays
}

#[test]
fn both_ends_move_and_never_come_back() {
    for (lanes, drift) in [(1, 0), (3, 0), (3, 200)] {
        let mut network = Network::pair(5);
        network.configure(|peer| {
            peer.rotation = Duration::from_secs(1);
            peer.lanes = Some(lanes);
        });
        network.sites[A].clock.drift = drift;
        network.observer.keeps = true;
        network.start();
        network.establish();
        for (from, to) in [(A, B), (B, A)] {
            network.send(from, to, Stream::udp().of(1000).every_ms(2).flows(16));
        }
        network.run_s(100);
        network.assert_all_arrived();

        // An address is used with one port, towards one other endpoint, and then never again.
        for (address, pairs) in network.observer.endpoints() {
            assert_eq!(pairs.len(), 1, "{address} was used for {pairs:?}");
        }
        // 1,000 bytes are in a context after the first packets.
        let stays = stays(&network, 1000 + 39);
        assert!(stays.len() >= 2 * 80 * usize::from(lanes), "{} endpoints", stays.len() / 2);
        let last_packet = stays.values().map(|(_, last)| *last).max().expect("there are some");
        for ((source, destination), (first, last)) in &stays {
            // Five gaps, and a quarter and one more of the mean life.
            assert!(last - first < 6_300_000, "{source} stayed for {} ms", (last - first) / 1000);
            let Some((their_first, their_last)) = stays.get(&(*destination, *source)) else {
                // A lane that began as the traffic ended.
                assert!(
                    *first > last_packet - 1_000_000,
                    "{source} was used in one direction from {first} on"
                );
                continue;
            };
            let between = their_first.saturating_sub(1_000_000)..their_last + 1_000_000;
            assert!(between.contains(first), "in use at {first}, by the other end at {between:?}");
        }
    }
}

/// Where traffic moves from one flow to the next at one instant, the two are linked, whatever their addresses.
#[test]
fn where_one_lane_ends_no_other_begins() {
    let (mut behind, mut later) = (0, 0);
    for seed in 20..28 {
        let mut network = Network::pair(seed);
        network.observer.keeps = true;
        network.start();
        network.establish();
        for (from, to) in [(A, B), (B, A)] {
            network.send(from, to, Stream::udp().of(200).every_ms(20));
        }
        network.run_s(1_000);
        network.assert_all_arrived();
        let mut stays: Vec<_> = stays(&network, 200 + 39).into_values().collect();
        stays.sort_unstable();
        let ends = || stays.iter().map(|(_, last)| *last).filter(|last| *last < network.now - 20_000_000);
        // How many flows begin within a second behind an end, and how many within each of ten other seconds.
        let begins =
            |from: u64, to: u64| stays.iter().filter(|(first, _)| (from..to).contains(first)).count();
        behind += ends().map(|end| begins(end, end + 1_000_000)).sum::<usize>();
        later += (5..15)
            .map(|s| ends().map(|e| begins(e + s * 1_000_000, e + (s + 1) * 1_000_000)).sum::<usize>())
            .sum::<usize>();
    }
    let ratio = behind as f64 / (later as f64 / 10.0);
    assert!(
        (0.8..1.25).contains(&ratio),
        "{ratio} times as many flows begin behind an end as at other times"
    );
}

#[test]
fn nothing_on_the_outside_tells_what_is_inside() {
    for aes in [true, false] {
        let mut network = Network::pair(7);
        network.configure(|peer| peer.rotation = Duration::from_secs(1));
        network.sites[A].config.hardware_aes = aes;
        network.observer.keeps_payloads = true;
        network.observer.keeps = true;
        network.start();
        network.establish();
        for (from, to) in [(A, B), (B, A)] {
            network.send(from, to, Stream::udp().every_ms(50));
            network.send(from, to, Stream::tcp().of(600).every_ms(100));
            network.send(from, to, Stream::ping().over_ipv4().every_ms(100));
        }
        network.run_s(400);
        network.assert_all_arrived();
        assert!(network.status(A).session.unwrap().rekeys >= 2);
        assert_eq!(network.status(A).session.unwrap().cipher == "AES-256-GCM", aes);
        network.observer.assert_payloads_look_random();
    }
}

#[test]
fn sessions_live_for_hours_on_new_keys() {
    for (rotation, lanes, hours) in [(1, 1, 1), (10, 4, 2), (60, 1, 3), (3600, 2, 12)] {
        let mut network = established(11, rotation, lanes);
        for (from, to) in [(A, B), (B, A)] {
            network.send(from, to, Stream::udp().every_ms(200).flows(8));
        }
        network.run_s(hours * 3600);
        network.assert_all_arrived();
        assert_one_session(&network, hours * 3600);
        for site in [A, B] {
            let status = network.status(site);
            let rekeys = status.session.unwrap().rekeys;
            let due = hours * 3600 / rotation.max(120);
            // When they are due is drawn: half as late again at most.
            assert!((due * 2 / 3 - 1..=due).contains(&rekeys), "{rekeys} rekeys of {due}");
        }
    }
}

#[test]
fn a_clock_that_runs_wrong_by_200_millionths_does_not_matter() {
    for (drift_a, drift_b) in [(200, 0), (0, 200), (-200, 200), (200, -200)] {
        let mut network = Network::pair(13);
        network.configure(|peer| peer.rotation = Duration::from_secs(1));
        network.sites[A].clock.drift = drift_a;
        network.sites[B].clock.drift = drift_b;
        network.start();
        network.establish();
        for (from, to) in [(A, B), (B, A)] {
            network.send(from, to, Stream::udp().every_ms(50));
        }
        network.run_s(3600);
        network.assert_all_arrived();
        assert_one_session(&network, 3600);
    }
}

#[test]
fn clocks_stay_together_without_inner_traffic() {
    for (keepalive, shape) in
        [(Some(Duration::from_secs(20)), Shape::None), (None, Shape::Constant(Rate::LEAST))]
    {
        let mut network = Network::pair(17);
        network.configure(|peer| {
            peer.rotation = Duration::from_secs(1);
            (peer.keepalive, peer.shape) = (keepalive, shape);
        });
        network.sites[A].clock.drift = 200;
        network.sites[B].clock.drift = -200;
        network.start();
        network.establish();
        network.run_s(3 * 3600);
        for (from, to) in [(A, B), (B, A)] {
            network.send(from, to, Stream::udp().every_ms(1_000));
        }
        network.run_s(20);
        network.assert_all_arrived();
        assert_one_session(&network, 3 * 3600);
    }
}

#[test]
fn endpoints_and_calls_stay_few() {
    let mut network = established(19, 1, 16);
    network.send(A, B, Stream::udp().every_ms(10).flows(50));
    network.run_s(60);
    let wakeups = network.sites[A].wakeups;
    network.sites[A].most_endpoints = 0;
    network.run_s(60);
    // A lane is open for five seconds, and sixteen are born in each, but by chance; and there are the rendezvous ones.
    let endpoints = network.sites[A].most_endpoints;
    assert!(endpoints <= 8 * 16 + 16, "{endpoints} endpoints");
    let wakeups = (network.sites[A].wakeups - wakeups) / 60;
    assert!(wakeups <= 16 * 8, "{wakeups} calls a second");
}
