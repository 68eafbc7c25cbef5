//! Nodes that end, come back, sleep, or whose clocks are set.

use std::time::Duration;

use sidestep_mt6d::{DropReason, PeerState};
use wire::{icmpv6, ipv6};

use crate::network::{A, B, Firewall, Network, Stream, host, seeds};

const RESUMES_WITHIN: u64 = 3_000_000;

/// A pair with streams in both directions, for a while.
fn streaming(seed: u64, rotation: u64) -> Network {
    let mut network = Network::pair(seed);
    network.configure(|peer| peer.rotation = Duration::from_secs(rotation));
    network.start();
    network.establish();
    for (from, to) in [(A, B), (B, A)] {
        network.send(from, to, Stream::udp().every_ms(10));
    }
    network.run_s(20);
    network
}

fn assert_resumes(network: &Network, since: u64) {
    for flow in &network.flows {
        let first = flow.first_arrival_since(since).expect("something arrives");
        assert!(first - since <= RESUMES_WITHIN, "stream {} after {} ms", flow.index, (first - since) / 1000);
        let lost = flow.lost_since(since + RESUMES_WITHIN);
        assert_eq!(lost, 0, "stream {}", flow.index);
    }
}

#[test]
fn a_restarted_node_is_back_within_three_seconds() {
    for seed in seeds(10) {
        for remembers in [true, false] {
            for (site, rotation) in [(A, 1), (B, 10)] {
                let mut network = streaming(seed, rotation);
                network.kill(site);
                if !remembers {
                    network.sites[site].memory.clear();
                }
                network.run_s(seed % 10);
                let since = network.now;
                network.start();
                network.run_s(30);
                network.stop();
                assert_resumes(&network, since);
                network.assert_nothing_wrong();
            }
        }
    }
}

/// Both run for a few seconds only when the one restarts, and then the other.
#[test]
fn nodes_that_restart_one_soon_after_the_other_are_back_as_soon() {
    for seed in seeds(10) {
        let mut network = Network::pair(seed);
        network.start();
        network.establish();
        for (from, to) in [(A, B), (B, A)] {
            network.send(from, to, Stream::udp().every_ms(10));
        }
        for site in [A, B, A, B, A] {
            network.run(Duration::from_millis(1_500 + 100 * seed));
            network.kill(site);
            let since = network.now;
            network.start();
            network.run_s(4);
            let arrived = network.flows.iter().filter_map(|flow| flow.first_arrival_since(since)).max();
            assert!(arrived.expect("something arrives") - since <= RESUMES_WITHIN, "site {site}");
        }
        network.stop();
        network.assert_nothing_wrong();
    }
}

#[test]
fn a_restarted_node_that_only_listens_is_back_too() {
    for seed in seeds(10) {
        for (from, to) in [(A, B), (B, A)] {
            let mut network = Network::pair(seed);
            network.start();
            network.establish();
            network.send(from, to, Stream::udp().every_ms(10));
            network.run_s(20);
            network.kill(to);
            let since = network.now;
            network.start();
            network.run_s(30);
            network.stop();
            assert_resumes(&network, since);
            network.assert_nothing_wrong();
        }
    }
}

#[test]
fn a_restarted_node_behind_a_firewall() {
    for seed in seeds(6) {
        for walls in [&[A][..], &[B], &[A, B]] {
            let mut network = Network::pair(seed);
            for wall in walls {
                network.sites[*wall].firewall = Some(Firewall::default());
            }
            network.start();
            network.establish();
            for (from, to) in [(A, B), (B, A)] {
                network.send(from, to, Stream::udp().every_ms(10));
            }
            network.run_s(20);
            network.kill(A);
            let since = network.now;
            network.start();
            network.run_s(60);
            network.stop();
            // Where B's firewall keeps A's first messages out, it is B that must notice; where A's does so too, their
            // tries must meet.
            let limit = match walls {
                [A] => RESUMES_WITHIN,
                [B] => 20_000_000,
                _ => 40_000_000,
            };
            for flow in &network.flows {
                assert_eq!(flow.lost_since(since + limit), 0, "{walls:?}");
            }
            network.assert_nothing_wrong();
        }
    }
}

/// The machine was cloned or restored: from the moment in which it knows, nothing leaves under a key that it may have used.
#[test]
fn a_machine_that_was_cloned_says_no_more_under_its_old_keys() {
    for seed in seeds(6) {
        for site in [A, B] {
            let mut network = streaming(seed, 10);
            network.observer.keeps = true;
            let old: Vec<_> =
                network.sites[site].sockets.values().filter(|s| s.remote.is_some()).copied().collect();
            assert!(!old.is_empty());
            let since = network.now;
            network.with(site, |node, now, _, _| node.forget_sessions(now));
            network.run_s(20);
            let under_old =
                network.observer.seen.iter().filter(|seen| old.iter().any(|s| s.local == seen.source));
            assert_eq!(under_old.count(), 0);
            network.stop();
            assert_resumes(&network, since);
        }
    }
}

#[test]
fn both_nodes_restart() {
    for seed in seeds(10) {
        for remember in [true, false] {
            let mut network = streaming(seed, 1);
            network.kill(A);
            network.run_s(seed % 3);
            network.kill(B);
            if !remember {
                network.sites[A].memory.clear();
                network.sites[B].memory.clear();
            }
            network.run_s(seed % 7);
            let since = network.now;
            network.start();
            network.run_s(20);
            network.stop();
            assert_resumes(&network, since);
            network.assert_nothing_wrong();
        }
    }
}

#[test]
fn a_node_that_restarts_again_and_again() {
    let mut network = streaming(3, 1);
    for n in 0..20 {
        network.kill(B);
        network.run(Duration::from_millis(200 * n));
        let since = network.now;
        network.start();
        network.run_s(4);
        for flow in &network.flows {
            let first = flow.first_arrival_since(since).expect("something arrives");
            assert!(first - since <= RESUMES_WITHIN);
        }
    }
    network.stop();
    network.assert_nothing_wrong();
    let endpoints = network.sites[A].node().endpoints();
    assert!(endpoints < 45, "{endpoints} endpoints are left");
}

#[test]
fn a_wall_clock_that_is_set_by_an_hour_costs_nothing() {
    for seed in seeds(3) {
        for hours in [-1, 1, 24 * 400] {
            let mut network = streaming(seed, 1);
            network.sites[A].clock.wall += hours * 3_600_000;
            network.run_s(60);
            network.sites[A].clock.wall -= hours * 3_600_000;
            network.run_s(100);
            network.assert_all_arrived();
            assert!(network.status(A).session.unwrap().age > Duration::from_secs(160));
        }
    }
}

/// By what the peer knew of the clock before, first messages would be of before its restart, for half an hour.
#[test]
fn a_peer_restarts_after_a_clock_was_set_back_and_hears_of_it_again_at_once() {
    for seed in seeds(6) {
        let mut network = Network::pair(seed);
        network.start();
        network.send(A, B, Stream::udp().every_ms(100));
        network.run_s(20);
        network.sites[A].clock.wall -= 942_000;
        // What says so is held up for almost a second, and is right all the same; 5 s are for what told of it before.
        network.path.delay = 900_000;
        network.run_s(20);
        let offset = network.status(B).clock_offset_ms.expect("a difference");
        assert!(offset.abs_diff(-942_000 + 5_000) < 200, "{offset}");
        network.path.delay = 300;
        network.kill(B);
        network.run_s(34);
        network.start();
        network.run_s(2);
        // B tries for a minute after its start; then the first word is A's.
        network.suspend(A);
        network.run_s(400);
        network.resume(A);
        network.run_s(1);
        let both = |n: &Network| n.established(A) && n.established(B);
        let took = network.run_until(Duration::from_secs(300), both).expect("a session");
        assert!(took < Duration::from_secs(90), "{took:?}");
    }
}

#[test]
fn a_session_ends_and_another_begins_while_a_clock_is_an_hour_off() {
    let mut network = streaming(2, 1);
    network.stop();
    network.sites[A].clock.wall += 3_600_000;
    network.run_s(200);
    assert_eq!(network.status(A).state, PeerState::Idle);
    // Each knows the other's clock from before; A's has been set since, and B does not know.
    for (from, to) in [(B, A), (A, B)] {
        network.flows.clear();
        network.send(from, to, Stream::udp().every_ms(1000));
        let both = |n: &Network| n.established(A) && n.established(B);
        let took = network.run_until(Duration::from_secs(60), both).expect("a session within a minute");
        assert!(took < Duration::from_secs(25), "{took:?}");
        network.stop();
        network.run_s(200);
    }
}

#[test]
fn a_node_that_slept_for_ten_minutes() {
    for seed in seeds(6) {
        for sleeper in [A, B] {
            let mut network = streaming(seed, 1);
            network.suspend(sleeper);
            network.run_s(600);
            let since = network.now;
            network.resume(sleeper);
            network.run_s(20);
            network.stop();
            assert_resumes(&network, since);
            network.assert_nothing_wrong();
        }
    }
}

#[test]
fn a_short_sleep_is_over_at_once() {
    for seconds in [2, 8, 14, 30, 70] {
        let mut network = streaming(5, 1);
        network.suspend(B);
        network.run_s(seconds);
        let since = network.now;
        network.resume(B);
        let opens = network.sites[B].opens;
        network.run_s(1);
        // Those of the 20 lanes that are open on average, not one for each that it slept through.
        let opens = network.sites[B].opens - opens;
        assert!(opens <= 42, "{opens} endpoints asked for");
        network.run_s(20);
        network.stop();
        for flow in &network.flows {
            assert_eq!(flow.lost_since(since + 50_000), 0, "after {seconds} s");
        }
        network.assert_nothing_wrong();
    }
}

#[test]
fn a_path_that_was_cut() {
    for seconds in [5, 14, 40, 100, 500] {
        let mut network = streaming(7, 1);
        network.path_between(A, B, |path| path.cut = true);
        network.run_s(seconds);
        network.path_between(A, B, |path| path.cut = false);
        let since = network.now;
        network.run_s(120);
        network.stop();
        for flow in &network.flows {
            let first = flow.first_arrival_since(since).expect("something arrives");
            // A minute is the longest pause between two tries.
            assert!(first - since <= 75_000_000, "after {seconds} s: {} ms", (first - since) / 1000);
            if seconds < 60 {
                assert!(first - since <= 50_000, "the session was kept");
            }
        }
        network.assert_nothing_wrong();
    }
}

/// What the tries were for is there again: they neither go on, nor are they counted for the next outage.
#[test]
fn a_session_that_is_heard_again_ends_the_tries() {
    for keepalive in [None, Some(Duration::from_secs(10))] {
        let mut network = Network::pair(21);
        network.configure(|peer| peer.keepalive = keepalive);
        network.start();
        network.establish();
        for (from, to) in [(A, B), (B, A)] {
            network.send(from, to, Stream::udp().every_ms(100));
        }
        for _ in 0..5 {
            let handshakes = network.status(A).handshakes;
            network.run_s(60);
            assert_eq!(network.status(A).handshakes, handshakes, "none while all is well");
            network.path_between(A, B, |path| path.cut = true);
            network.run_s(25);
            let tried = network.status(A).attempts.expect("it is tried").tries;
            assert!((2..=4).contains(&tried), "{tried} tries in ten seconds");
            network.path_between(A, B, |path| path.cut = false);
            network.run_s(2);
            for site in [A, B] {
                assert!(network.status(site).attempts.is_none(), "site {site}, keepalive {keepalive:?}");
            }
        }
        network.assert_nothing_wrong();
    }
}

#[test]
fn one_direction_of_the_path_is_cut() {
    for (from, to) in [(A, B), (B, A)] {
        let mut network = streaming(9, 1);
        network.paths.insert((from, to), crate::network::Path { cut: true, ..Default::default() });
        network.run_s(100);
        network.paths.clear();
        let since = network.now;
        network.run_s(100);
        network.stop();
        for flow in &network.flows {
            let first = flow.first_arrival_since(since).expect("something arrives");
            assert!(first - since <= 75_000_000);
        }
        network.assert_nothing_wrong();
    }
}

#[test]
fn idle_sessions_end_and_their_endpoints_close() {
    for rotation in [1, 10, 600] {
        let mut network = Network::pair(11);
        network.configure(|peer| {
            peer.rotation = Duration::from_secs(rotation);
            peer.lanes = Some(4);
        });
        network.start();
        network.establish();
        network.send(A, B, Stream::udp().every_ms(10));
        network.run_s(5);
        network.stop();
        network.run_s(150);
        assert!(network.established(A) && network.established(B));
        network.run_s(40);
        for site in [A, B] {
            assert_eq!(network.status(site).state, PeerState::Idle);
            let endpoints = network.sites[site].node().endpoints();
            assert!(endpoints <= 6 + 3, "{endpoints} endpoints, more than the rendezvous ones");
            assert_eq!(network.sites[site].sockets.len(), endpoints);
        }
        // Silence.
        let sent = network.observer.count;
        network.run_s(3600);
        assert_eq!(network.observer.count, sent);
        // And it begins anew.
        network.flows.clear();
        network.send(A, B, Stream::udp().every_ms(10));
        network.run_s(5);
        network.assert_all_arrived();
    }
}

#[test]
fn a_keepalive_keeps_the_session() {
    let mut network = Network::pair(13);
    network.configure(|peer| peer.keepalive = Some(Duration::from_secs(20)));
    network.sites[A].firewall = Some(Firewall::default());
    network.sites[B].firewall = Some(Firewall::default());
    network.start();
    network.establish();
    network.run_s(1000);
    for (from, to) in [(A, B), (B, A)] {
        network.send(from, to, Stream::udp().every_ms(10));
    }
    network.run_s(5);
    network.assert_all_arrived();
    assert!(network.status(A).session.unwrap().age > Duration::from_secs(1000));
}

#[test]
fn a_kept_session_comes_back_by_itself() {
    let mut network = Network::pair(15);
    network.configure(|peer| peer.keepalive = Some(Duration::from_secs(20)));
    network.start();
    network.establish();
    network.kill(B);
    network.run_s(2000);
    network.start();
    network.establish();
    network.run_s(100);
    assert!(network.established(A) && network.established(B));
}

/// The ICMPv6 errors that a site's hosts got since a time: type and code.
fn unreachables(network: &Network, site: usize, since: u64) -> usize {
    let errors = network.sites[site].errors.iter().filter(|(at, _)| *at >= since);
    let mut count = 0;
    for (_, error) in errors {
        let packet = ipv6::Packet::parse(error).expect("a packet");
        let message = icmpv6::Message::of_packet(&packet).expect("with a right checksum");
        assert_eq!(message.message_type(), icmpv6::DESTINATION_UNREACHABLE);
        assert_eq!(packet.destination(), host(site, 1, false));
        let quoted = ipv6::Packet::parse(message.payload()).expect("the packet it is about");
        assert_eq!(quoted.source(), host(site, 1, false));
        for address in [packet.source(), packet.destination(), quoted.source(), quoted.destination()] {
            assert!(address.octets().starts_with(&[0xfd]), "no outer address inside: {address}");
        }
        count += 1;
    }
    count
}

#[test]
fn senders_learn_that_the_peer_is_gone() {
    let mut network = streaming(17, 10);
    network.kill(B);
    let gone = network.now;
    network.run_s(300);
    assert_eq!(unreachables(&network, A, 0) - unreachables(&network, A, gone), 0, "not while it was there");
    let first = network.sites[A].errors[0].0 - gone;
    assert!((15_000_000..60_000_000).contains(&first), "after {} s", first / 1_000_000);
    // And go on to learn it, at a limited rate.
    let lately = unreachables(&network, A, network.now - 100_000_000);
    assert!((4_000..=5_100).contains(&lately), "{lately} in 100 s");
    assert_eq!(network.status(A).state, PeerState::Handshake);
    network.observer.count = 0;
    network.run_s(300);
    assert!(network.observer.count < 40, "{} datagrams to nobody in 300 s", network.observer.count);
}

#[test]
fn senders_learn_that_a_peer_was_never_there() {
    let mut network = Network::pair(19);
    network.start_site(A);
    network.send(A, B, Stream::udp().every_ms(100));
    network.run_s(60);
    assert!(unreachables(&network, A, 0) > 100);
    assert!(network.drops(A, DropReason::NoSession) > 100);
    network.start();
    network.establish();
    network.run_s(1);
    let since = network.now;
    network.run_s(10);
    network.stop();
    assert_eq!(network.flows[0].lost_since(since), 0);
    network.assert_nothing_wrong();
}

#[test]
fn a_node_that_ends_says_so() {
    let mut network = streaming(21, 10);
    network.with(B, |node, now, outbox, _| node.end(now, outbox));
    assert_eq!(network.sites[B].node().endpoints(), 0);
    assert!(network.sites[B].sockets.is_empty() && network.sites[B].asked.is_empty());
    network.kill(B);
    network.run(Duration::from_millis(100));
    assert_eq!(network.status(A).state, PeerState::Handshake, "A knows, and tries anew");
    // Three tries take up to 18 s.
    network.run_s(18);
    assert!(!network.sites[A].errors.is_empty(), "A's hosts are told");
}

/// What leaves by itself tells no session from another, nor one moment of it: pauses are drawn.
#[test]
fn what_keeps_a_session_has_no_beat() {
    let mut network = Network::pair(31);
    network.configure(|peer| peer.keepalive = Some(Duration::from_secs(25)));
    network.observer.keeps = true;
    network.start();
    network.establish();
    network.run_s(3_600);
    network.assert_nothing_wrong();
    let times: Vec<u64> = network.observer.seen.iter().map(|seen| seen.at).collect();
    // For no period of a second to a minute the times have a common phase.
    for period in (1_000..60_000).step_by(100) {
        let (mut x, mut y) = (0.0, 0.0);
        for at in &times {
            let phase = (*at as f64 / 1_000.0 / f64::from(period)).fract() * std::f64::consts::TAU;
            (x, y) = (x + phase.cos(), y + phase.sin());
        }
        let together = f64::hypot(x, y) / times.len() as f64;
        assert!(together < 0.2, "{together} of {} have the phase of {period} ms", times.len());
    }
}
