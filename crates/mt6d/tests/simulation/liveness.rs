//! What a node knows of its peer when a path is cut, in one direction or both, and what it tells of that.

use std::time::Duration;

use sidestep_mt6d::config::{Daily, Rate, Shape};
use sidestep_mt6d::keys::PresharedKey;
use sidestep_mt6d::{Change, Ending, PeerState, Silence};

use crate::network::{A, B, Network, Path, Stream, seeds};

/// The promise: within this time of a cut an end that has traffic, or a peer that keeps the session, knows of it.
const KNOWN_WITHIN: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
enum Traffic {
    None,
    /// In one direction, which nothing but the protocol answers.
    OneWay,
    Both,
}

fn unestablished(seed: u64, keepalive: [Option<u64>; 2], shape: Shape) -> Network {
    let mut network = Network::pair(seed);
    for site in [A, B] {
        let peer = network.sites[site].peer(0);
        peer.keepalive = keepalive[site].map(Duration::from_secs);
        peer.shape = shape;
        network.sites[site].calls_allowed = 10_000;
    }
    network.start();
    network
}

fn pair(seed: u64, keepalive: [Option<u64>; 2], shape: Shape, traffic: Traffic) -> Network {
    let mut network = unestablished(seed, keepalive, shape);
    network.establish();
    match traffic {
        Traffic::None => {}
        Traffic::OneWay => drop(network.send(A, B, Stream::udp().every_ms(200))),
        Traffic::Both => {
            network.send(A, B, Stream::udp().every_ms(200));
            network.send(B, A, Stream::udp().every_ms(200));
        }
    }
    network.run_s(20);
    network
}

fn cut(network: &mut Network, from: usize, to: usize) {
    let path = network.path.clone();
    network.paths.entry((from, to)).or_insert(path).cut = true;
}

fn changes(network: &mut Network, site: usize) -> Vec<Change> {
    let node = network.sites[site].node();
    std::iter::from_fn(|| node.next_event()).map(|event| event.change).collect()
}

fn silent(network: &Network, site: usize) -> Option<Silence> {
    match network.status(site).state {
        PeerState::Silent(silence) => Some(silence),
        _ => None,
    }
}

fn constant() -> Shape {
    Shape::Constant(Rate::from_bytes(25_000).expect("a rate that a shape may have"))
}

/// How many of the peer's datagrams came and did not open, of a peer that is not heard.
fn unopened(network: &mut Network, site: usize) -> u64 {
    let now = network.sites[site].clock.now(network.now);
    network.sites[site]
        .node()
        .unheard(now)
        .map(|peer| peer.unopened)
        .next()
        .expect("a peer that is not heard")
}

#[test]
fn a_cut_is_known_within_five_seconds() {
    let cases = [
        ([Some(10), Some(10)], Shape::None, Traffic::None),
        ([Some(25), None], Shape::None, Traffic::None),
        ([None, None], Shape::None, Traffic::Both),
        ([Some(25), None], Shape::None, Traffic::OneWay),
        ([None, None], constant(), Traffic::None),
    ];
    for seed in seeds(10) {
        for (keepalive, shape, traffic) in cases {
            let mut network = pair(seed, keepalive, shape, traffic);
            network.run(Duration::from_millis(173 * seed));
            network.path_between(A, B, |path| path.cut = true);
            let known = network.run_until(KNOWN_WITHIN, |n| silent(n, A).is_some() && silent(n, B).is_some());
            assert!(known.is_some(), "seed {seed}, keepalive {keepalive:?}, {traffic:?}");
            assert_eq!(silent(&network, A), Some(Silence::NothingComes));
            network.run_s(4);
            network.path_between(A, B, |path| path.cut = false);
            let heard = network.run_until(KNOWN_WITHIN, |n| n.established(A) && n.established(B));
            assert!(heard.is_some(), "seed {seed}, keepalive {keepalive:?}, {traffic:?}: heard again");
        }
    }
}

/// Neither has said yet that it keeps the session, and what was sent may have been answered.
#[test]
fn a_cut_in_the_first_seconds_of_a_session_is_known_too() {
    for seed in seeds(20) {
        for keepalive in [[Some(25), None], [None, Some(25)], [None, None]] {
            let mut network = unestablished(seed, keepalive, Shape::None);
            network.establish();
            network.run(Duration::from_millis(173 * seed));
            network.path_between(A, B, |path| path.cut = true);
            let known = network.run_until(KNOWN_WITHIN, |n| silent(n, A).is_some() && silent(n, B).is_some());
            assert!(known.is_some(), "seed {seed}, keepalive {keepalive:?}");
        }
    }
}

/// The end whose datagrams are lost hears the other say so.
#[test]
fn a_path_that_is_cut_in_one_direction_is_known_to_both_ends() {
    for seed in seeds(10) {
        for traffic in [Traffic::None, Traffic::OneWay, Traffic::Both] {
            for (from, to) in [(A, B), (B, A)] {
                let shape = if seed % 2 == 0 { Shape::None } else { constant() };
                let mut network = pair(seed, [Some(25), Some(25)], shape, traffic);
                cut(&mut network, from, to);
                let both = |n: &Network| silent(n, A).is_some() && silent(n, B).is_some();
                let known = network.run_until(KNOWN_WITHIN, both);
                assert!(known.is_some(), "seed {seed}, {traffic:?}, {from} to {to}");
                assert_eq!(silent(&network, from), Some(Silence::NothingArrives), "seed {seed}, {traffic:?}");
                assert_eq!(silent(&network, to), Some(Silence::NothingComes), "seed {seed}, {traffic:?}");
            }
        }
    }
}

/// The lanes change meanwhile, and neither end hears on a new one what it could go by.
#[test]
fn a_cut_in_one_direction_stays_known() {
    for seed in seeds(10) {
        for traffic in [Traffic::None, Traffic::OneWay, Traffic::Both] {
            for outage_before in [false, true] {
                let mut network = pair(seed, [Some(10), Some(10)], Shape::None, traffic);
                if outage_before {
                    network.path_between(A, B, |path| path.cut = true);
                    network.run_s(8);
                    network.path_between(A, B, |path| path.cut = false);
                    network.run_s(1);
                }
                cut(&mut network, A, B);
                // Where there was an outage just before, what is heard may be of before it.
                network.run(KNOWN_WITHIN * if outage_before { 2 } else { 1 });
                for _ in 0..150 {
                    network.run(Duration::from_millis(500));
                    for site in [A, B] {
                        assert!(
                            !network.established(site),
                            "seed {seed}, {traffic:?}, {outage_before}, {site}"
                        );
                    }
                }
            }
        }
    }
}

/// Neither loss nor an idle session are taken for silence.
#[test]
fn who_is_there_is_not_called_silent() {
    for seed in seeds(6) {
        for shape in [Shape::None, constant(), Shape::Adaptive(Daily::LEAST)] {
            for (keepalive, traffic, loss) in [
                (None, Traffic::OneWay, 0.05),
                (None, Traffic::None, 0.0),
                (Some(25), Traffic::None, 0.1),
                (Some(3600), Traffic::None, 0.1),
                (Some(25), Traffic::Both, 0.2),
            ] {
                let mut network = pair(seed, [keepalive, None], shape, traffic);
                network.path_between(A, B, |path| {
                    (path.loss, path.delay, path.jitter) = (loss, 300_000, 100_000);
                });
                for site in [A, B] {
                    changes(&mut network, site);
                }
                network.run_s(120);
                for site in [A, B] {
                    let told = changes(&mut network, site);
                    let silent = told.iter().any(|change| matches!(change, Change::Silent { .. }));
                    assert!(!silent, "seed {seed}, {shape:?}, {keepalive:?}, {traffic:?}, {loss}: {told:?}");
                }
            }
        }
    }
}

/// Each change is told once, in order.
#[test]
fn a_session_that_comes_and_goes_is_told_of() {
    let mut network = pair(1, [Some(10), Some(10)], Shape::None, Traffic::Both);
    let told = changes(&mut network, A);
    assert!(matches!(told[..2], [Change::Trying, Change::Established { anew: false }]), "{told:?}");
    assert!(told[2..].iter().all(|change| matches!(change, Change::PathMtu { .. })), "{told:?}");

    network.path_between(A, B, |path| path.cut = true);
    network.run_s(6);
    network.path_between(A, B, |path| path.cut = false);
    network.run_s(6);
    let told = changes(&mut network, A);
    assert!(
        matches!(told[..], [Change::Silent { silence: Silence::NothingComes, .. }, Change::Heard { .. }]),
        "{told:?}"
    );

    // For good: the session is given up, and tries go on.
    network.path_between(A, B, |path| path.cut = true);
    network.run_s(600);
    let told = changes(&mut network, A);
    assert!(
        matches!(told[..], [Change::Silent { .. }, Change::Ended { ending: Ending::Lost, .. }]),
        "{told:?}"
    );
    let status = network.status(A);
    assert_eq!(status.state, PeerState::Handshake);
    let attempts = status.attempts.expect("it is tried");
    assert!(attempts.tries > 5 && attempts.to.is_some(), "{attempts:?}");
    assert!(
        status.last_heard.is_some_and(|heard| heard > Duration::from_secs(590)),
        "{:?}",
        status.last_heard
    );
}

#[test]
fn a_peer_that_ends_begins_anew_or_moves_is_told_of() {
    let mut network = pair(2, [Some(10), Some(10)], Shape::None, Traffic::Both);
    changes(&mut network, A);
    network.kill(B);
    network.start();
    network.run_s(10);
    let told = changes(&mut network, A);
    assert!(told.contains(&Change::Established { anew: true }), "{told:?}");

    let to = "2001:db8:b9::/64".parse().expect("a prefix");
    let from = network.sites[B].config.hop_prefix;
    network.move_to(B, to);
    network.run_s(10);
    let told = changes(&mut network, A);
    assert!(told.contains(&Change::Moved { from, to }), "{told:?}");
}

/// So that nobody blames a firewall of the host for what the path does: in a session, and when that is lost.
#[test]
fn what_the_path_alters_is_told_from_what_does_not_come() {
    for seed in seeds(4) {
        let mut network = pair(seed, [Some(10), Some(10)], Shape::None, Traffic::None);
        let path = network.path.clone();
        network.paths.insert((B, A), Path { alters: true, ..path });
        let known = network.run_until(KNOWN_WITHIN, |n| silent(n, A).is_some() && silent(n, B).is_some());
        assert!(known.is_some(), "seed {seed}");
        let before = unopened(&mut network, A);
        network.run_s(5);
        assert!(unopened(&mut network, A) > before, "seed {seed}");
        assert_eq!(unopened(&mut network, B), 0, "seed {seed}: nobody alters what comes to B");
        let lost = network.run_until(Duration::from_secs(600), |n| n.status(A).state == PeerState::Handshake);
        assert!(lost.is_some(), "seed {seed}");
        let before = unopened(&mut network, A);
        network.run_s(90);
        assert!(unopened(&mut network, A) > before, "seed {seed}: first messages");
        cut(&mut network, B, A);
        network.run_s(1);
        let before = unopened(&mut network, A);
        network.run_s(90);
        assert_eq!(unopened(&mut network, A), before, "seed {seed}");
    }
}

/// With another key a node is elsewhere: nothing comes to an endpoint that could not be opened.
#[test]
fn another_key_is_not_taken_for_a_path_that_alters() {
    for seed in seeds(4) {
        let mut network = Network::pair(seed);
        network.configure(|peer| peer.keepalive = Some(Duration::from_secs(10)));
        network.sites[A].peer(0).preshared_key = Some(PresharedKey::from_bytes([9; 32]));
        network.start();
        network.run_s(200);
        for site in [A, B] {
            assert_eq!(network.status(site).state, PeerState::Handshake, "seed {seed}");
            assert_eq!(unopened(&mut network, site), 0, "seed {seed}");
        }
    }
}

/// The peer was to be reached, and was heard again by itself: tries until then say nothing of whether it can be reached later.
#[test]
fn a_session_is_not_given_up_for_tries_of_an_earlier_outage() {
    for seed in seeds(50) {
        let mut network = pair(seed, [Some(10), Some(10)], Shape::None, Traffic::None);
        for outage in 0..3 {
            let [from, to] = if outage == 1 { [A, B] } else { [B, A] };
            cut(&mut network, from, to);
            for site in [A, B] {
                let name = network.status(site).name.to_string();
                network.with(site, |node, now, _, _| assert!(node.reach(&name, now)));
                network.run_s(8 + seed % 20);
            }
            network.path_between(A, B, |path| path.cut = false);
            let heard = network.run_until(KNOWN_WITHIN, |n| n.established(A) && n.established(B));
            assert!(heard.is_some(), "seed {seed}");
        }
        network.path_between(A, B, |path| path.cut = true);
        network.run_s(25);
        for site in [A, B] {
            assert!(silent(&network, site).is_some(), "seed {seed}: {site} has given its session up");
        }
    }
}
