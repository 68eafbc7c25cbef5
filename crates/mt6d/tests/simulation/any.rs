//! Any story at all: what must hold whatever the path and the settings are.

use std::time::Duration;

use mt6d::PeerState;
use mt6d::config::Padding;
use proptest::prelude::*;

use crate::network::{A, B, Network, Stream};

#[derive(Debug, Clone)]
struct Scenario {
    seed: u64,
    rotation: u64,
    lanes: [u8; 2],
    padding: Padding,
    cover: u32,
    keepalive: Option<u64>,
    aes: bool,
    skew: i64,
    drift: [i64; 2],
    delay: u64,
    jitter: u64,
    loss: f64,
    duplicate: f64,
    mtu: usize,
    opening: u64,
    open_fails: f64,
    length: usize,
    ipv4: bool,
}

prop_compose! {
    fn scenario()(
        seed: u64,
        rotation in prop::sample::select(vec![1, 2, 3, 10, 30, 120]),
        lanes in [1u8..=16, 1u8..=16],
        padding in prop::sample::select(vec![Padding::None, Padding::Buckets, Padding::Full]),
        cover in prop::sample::select(vec![0, 0, 3, 40]),
        keepalive in prop::option::of(5u64..60),
        aes: bool,
        skew in -3_700_000i64..=3_700_000,
        drift in [-200i64..=200, -200i64..=200],
        delay in prop::sample::select(vec![100u64, 5_000, 40_000, 150_000, 300_000]),
        jitter in prop::sample::select(vec![0u64, 500, 5_000, 50_000]),
        loss in prop::sample::select(vec![0.0, 0.0, 0.0, 0.01, 0.05, 0.2]),
        duplicate in prop::sample::select(vec![0.0, 0.05]),
        mtu in 1280usize..=1500,
        opening in prop::sample::select(vec![100u64, 10_000, 300_000]),
        open_fails in prop::sample::select(vec![0.0, 0.0, 0.1]),
        length in 80usize..=1212,
        ipv4: bool,
    ) -> Scenario {
        Scenario {
            seed, rotation, lanes, padding, cover, keepalive, aes, skew, drift, delay, jitter, loss, duplicate, mtu,
            opening, open_fails, length, ipv4,
        }
    }
}

fn network(scenario: &Scenario) -> Network {
    let mut network = Network::pair(scenario.seed);
    network.configure(|peer| {
        peer.rotation = Duration::from_secs(scenario.rotation);
        peer.padding = scenario.padding;
        peer.cover = scenario.cover;
        peer.keepalive = scenario.keepalive.map(Duration::from_secs);
    });
    for site in [A, B] {
        network.sites[site].peer(0).lanes = scenario.lanes[site];
        network.sites[site].clock.drift = scenario.drift[site];
        network.sites[site].opening = (50, scenario.opening);
    }
    network.sites[B].config.hardware_aes = scenario.aes;
    network.sites[B].clock.wall = scenario.skew;
    network.path.delay = scenario.delay;
    network.path.jitter = scenario.jitter;
    network.path.duplicate = scenario.duplicate;
    network.path.loss = scenario.loss;
    network.path.mtu = scenario.mtu;
    network
}

fn plays_out(scenario: &Scenario) {
    let mut network = network(scenario);
    network.start();
    network.establish();
    // Until the path MTU is known, and what both began at once is sorted out.
    network.run_s(15);
    for site in [A, B] {
        network.sites[site].open_fails = scenario.open_fails;
    }
    for (from, to) in [(A, B), (B, A)] {
        let stream = Stream::udp().of(scenario.length).every_ms(35).flows(20);
        network.send(from, to, if scenario.ipv4 { stream.over_ipv4() } else { stream });
        network.send(from, to, Stream::tcp().of(scenario.length).every_ms(300).batches(6));
    }
    network.run_s(160);
    network.stop();
    network.assert_nothing_wrong();
    for flow in &network.flows {
        let (lost, sent) = (flow.lost() as f64, flow.sent.len() as f64);
        // Each packet may be two datagrams, and some meet a key or endpoint that a lost message should have told of.
        let expected = 2.0 * scenario.loss * sent;
        assert!(
            lost <= expected * 1.3 + 6.0 * expected.sqrt(),
            "stream {}: {lost} of {sent} lost",
            flow.index
        );
    }
    if scenario.loss == 0.0 {
        assert!(network.status(A).session.expect("there is one").age > Duration::from_secs(160));
    }

    // All is quiet, and as it was before.
    if scenario.cover == 0 && scenario.keepalive.is_none() {
        network.run_s(200);
        let sent = network.observer.count;
        network.run_s(100);
        assert_eq!(network.observer.count, sent);
        for site in [A, B] {
            assert_eq!(network.status(site).state, PeerState::Idle);
            let endpoints = network.sites[site].node().endpoints();
            assert!(endpoints <= 10, "{endpoints} endpoints are left");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn any_story_ends_well(scenario in scenario()) {
        plays_out(&scenario);
    }
}
