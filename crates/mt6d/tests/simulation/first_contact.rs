//! Two nodes that have no session find each other.

use std::collections::HashMap;
use std::time::Duration;

use sidestep_mt6d::keys::PresharedKey;
use sidestep_mt6d::keys::PublicPair;
use sidestep_mt6d::{DropReason, PeerMemory};

use crate::network::{A, B, Firewall, Network, Stream, Translator, hop_prefix, seeds};

const MINUTE: Duration = Duration::from_secs(60);

/// A pair whose clocks are so many seconds apart, none of its nodes started.
fn apart(seed: u64, seconds: i64) -> Network {
    let mut network = Network::pair(seed);
    // Now is any time within an hour, on the world's clock.
    let within_an_hour = (seed as i64 * 97_003) % 3_600_000;
    network.sites[A].clock.wall = within_an_hour;
    network.sites[B].clock.wall = within_an_hour + seconds * 1000;
    network
}

/// The session carries packets in both directions, each once.
fn assert_works(network: &mut Network) {
    let first = network.flows.len();
    for (from, to) in [(A, B), (B, A)] {
        network.send(from, to, Stream::udp().every_ms(20));
    }
    network.run_s(5);
    network.stop();
    network.assert_nothing_wrong();
    for flow in &network.flows[first..] {
        let (lost, sent) = (flow.lost() as f64, flow.sent.len() as f64);
        let expected = network.path.loss * sent;
        assert!(lost <= expected + 5.0 * expected.sqrt(), "{lost} lost of {sent}");
    }
}

#[test]
fn clocks_half_a_minute_apart_do_not_matter() {
    for seed in seeds(12) {
        for seconds in [-30, 0, 30] {
            let mut network = apart(seed, seconds);
            network.start();
            let took = network.establish();
            assert!(took < Duration::from_millis(100), "{took:?}");
            assert_works(&mut network);
        }
    }
}

#[test]
fn clocks_an_hour_apart_take_less_than_a_minute() {
    for seed in seeds(12) {
        for seconds in [-3600, -1800, -300, -61, 61, 900, 3600] {
            let mut network = apart(seed, seconds);
            network.start();
            let took = network.establish();
            assert!(took < MINUTE, "{seconds} s apart: {took:?}");
            assert_works(&mut network);
        }
    }
}

#[test]
fn one_end_alone_has_something_to_say() {
    for seed in seeds(8) {
        for seconds in [0, 30, 3600] {
            let mut network = apart(seed, seconds);
            network.start_site(B);
            // B has given up to reach A by then.
            network.run_s(100);
            network.start_site(A);
            let took = network.establish();
            assert!(took < MINUTE, "{seconds} s apart: {took:?}");
            assert_works(&mut network);
        }
    }
}

#[test]
fn both_begin_at_the_same_instant() {
    for seed in seeds(60) {
        let mut network = Network::pair(seed);
        network.path.delay = 200 + 4_000 * (seed % 16);
        network.path.jitter = 3_000 * (seed % 3);
        network.start();
        network.establish();
        network.run_s(1);
        for (from, to) in [(A, B), (B, A)] {
            network.send(from, to, Stream::udp().every_ms(1));
        }
        network.run_s(6);
        network.assert_all_arrived();
        let (a, b) = (network.status(A), network.status(B));
        assert_eq!(a.lanes[0].local, b.lanes[0].remote, "both use the same session");
        assert_eq!(a.lanes[0].remote, b.lanes[0].local);
        // Beside those of its lanes: of others that are about to be born or have just died, and those of rendezvous.
        let others = network.sites[A].node().endpoints() - a.lanes.len();
        assert!(others <= 12, "{others} endpoints: the other session is gone");
    }
}

#[test]
fn both_begin_and_much_is_lost_until_they_have_a_session() {
    for seed in seeds(60) {
        for (from, to) in [(A, B), (B, A)] {
            let mut network = Network::pair(seed);
            network.path.delay = 5_000;
            network.path.loss = 0.5;
            network.start();
            network.establish();
            network.run(Duration::from_millis(100 * (seed % 10)));
            network.path.loss = 0.0;
            network.run(Duration::from_millis(500));
            // One has something to say, the other nothing: it is to hear everything.
            network.send(from, to, Stream::udp().every_ms(50));
            network.run_s(20);
            network.assert_all_arrived();
        }
    }
}

#[test]
fn packets_that_came_too_early_wait_for_the_session() {
    for seed in seeds(8) {
        let mut network = apart(seed, 20);
        network.path.delay = 40_000;
        network.start();
        for (from, to) in [(A, B), (B, A)] {
            network.send(from, to, Stream::udp().every_ms(20));
        }
        network.run_s(3);
        network.assert_all_arrived();
    }
}

#[test]
fn loss_delays_it_but_does_not_prevent_it() {
    for seed in seeds(15) {
        for loss in [0.02, 0.1, 0.3] {
            let mut network = apart(seed, 10);
            network.path.loss = loss;
            network.start();
            let took = network.establish();
            assert!(took < MINUTE, "{loss} lost: {took:?}");
            assert_works(&mut network);
        }
    }
}

#[test]
fn a_round_trip_of_600_ms() {
    for seed in seeds(10) {
        let mut network = apart(seed, 30);
        network.configure(|peer| peer.rotation = Duration::from_secs(1));
        network.path.delay = 300_000;
        network.start();
        let took = network.establish();
        assert!(took < Duration::from_secs(3), "{took:?}");
        network.run_s(2);
        for (from, to) in [(A, B), (B, A)] {
            network.send(from, to, Stream::udp().every_ms(10));
        }
        network.run_s(60);
        network.assert_all_arrived();
        let rtt = network.status(A).rtt.expect("measured");
        assert!(rtt.abs_diff(Duration::from_millis(600)) < Duration::from_millis(30), "{rtt:?}");
    }
}

#[test]
fn a_device_without_a_clock() {
    for seed in seeds(6) {
        let mut network = apart(seed, -20 * 86_400);
        network.configure(|peer| peer.clockless = true);
        network.start();
        network.send(A, B, Stream::udp().every_ms(500));
        let both = |n: &Network| n.established(A) && n.established(B);
        network.run_until(3 * MINUTE, both).expect("a session within three minutes");
        network.stop();
        network.flows.clear();
        assert_works(&mut network);
    }
}

#[test]
fn a_device_whose_clock_was_never_set() {
    for seed in seeds(4) {
        let mut network = apart(seed, 0);
        network.configure(|peer| peer.clockless = true);
        // 1970, but it was told an offset in an earlier life.
        network.sites[A].clock.wall = -1_799_999_990_000;
        let offset = network.sites[B].clock.wall - network.sites[A].clock.wall;
        network.start();
        network.send(A, B, Stream::udp().every_ms(500));
        network.run_s(120);
        assert!(!network.established(A), "nobody can know");
        network.kill(A);
        let memory = PeerMemory { clock_offset_ms: Some(offset), ..PeerMemory::default() };
        let keys = PublicPair { own: network.sites[A].key(), peer: network.sites[B].key() };
        network.sites[A].memory = HashMap::from([(keys, memory)]);
        network.start_site(A);
        let took = network.establish();
        assert!(took < Duration::from_secs(1), "{took:?}");
    }
}

#[test]
fn strangers_never_meet() {
    for case in 0..3 {
        let mut network = Network::pair(29);
        match case {
            0 => network.sites[A].peer(0).preshared_key = Some(PresharedKey::from_bytes([1; 32])),
            1 => network.configure(|p| {
                let byte = p.hop_prefix.network().octets()[7];
                p.preshared_key = Some(PresharedKey::from_bytes([byte; 32]));
            }),
            // A knows B, B does not know A.
            _ => {
                let stranger = Network::new(1, 4).sites[3].key();
                network.sites[B].peer(0).public_key = stranger;
            }
        }
        network.observer.keeps = true;
        network.start();
        network.send(A, B, Stream::udp().every_ms(100));
        network.run_s(300);
        assert!(!network.established(A) && !network.established(B), "case {case}");
        network.stop();
        assert_eq!(network.flows[0].arrivals.len(), 0);
        // Nobody answers: each datagram is a first message, from a rendezvous endpoint to another.
        let from_b = network.observer.seen.iter().filter(|s| hop_prefix(B).contains(s.source.ip())).count();
        assert!(from_b <= 3 * 8, "case {case}: B sent {from_b}");
    }
}

#[test]
fn one_side_behind_a_stateful_firewall() {
    for seed in seeds(6) {
        for (site, seconds) in [(A, 0), (B, 0), (A, 30), (B, -30), (A, 3600)] {
            let mut network = apart(seed, seconds);
            network.configure(|peer| peer.rotation = Duration::from_secs(2));
            network.sites[site].firewall = Some(Firewall::default());
            network.start();
            let took = network.establish();
            assert!(took < MINUTE, "{took:?}");
            network.run_s(1);
            for (from, to) in [(A, B), (B, A)] {
                network.send(from, to, Stream::udp().every_ms(10));
            }
            network.run_s(60);
            network.assert_all_arrived();
        }
    }
}

#[test]
fn both_sides_behind_stateful_firewalls() {
    for seed in seeds(10) {
        for seconds in [0, 20, 30] {
            let mut network = apart(seed, seconds);
            network.configure(|peer| peer.rotation = Duration::from_secs(1));
            network.sites[A].firewall = Some(Firewall::default());
            network.sites[B].firewall = Some(Firewall::default());
            network.start();
            let took = network.establish();
            assert!(took < MINUTE, "{took:?}");
            network.run_s(1);
            for (from, to) in [(A, B), (B, A)] {
                network.send(from, to, Stream::udp().every_ms(10));
            }
            network.run_s(60);
            network.assert_all_arrived();
        }
    }
}

#[test]
fn firewalls_stay_open_through_long_epochs_and_one_way_traffic() {
    for (from, to) in [(A, B), (B, A)] {
        let mut network = Network::pair(31);
        network.configure(|peer| {
            peer.rotation = Duration::from_secs(300);
            peer.lanes = Some(4);
        });
        network.sites[A].firewall = Some(Firewall::default());
        network.sites[B].firewall = Some(Firewall::default());
        network.start();
        network.establish();
        network.run_s(1);
        // One flow keeps to one lane.
        network.send(from, to, Stream::udp().every_ms(100));
        network.run_s(450);
        // The other way, on all lanes.
        network.send(to, from, Stream::udp().every_ms(100).flows(40));
        network.run_s(450);
        network.assert_all_arrived();
    }
}

#[test]
fn a_prefix_translator_that_keeps_host_bits() {
    for site in [A, B] {
        for first in [A, B] {
            let mut network = Network::pair(37);
            network.configure(|peer| {
                peer.rotation = Duration::from_secs(1);
                peer.translated = true;
            });
            let outside = "2001:db8:ffff:1::/64".parse().unwrap();
            network.sites[site].translator = Some(Translator::Prefix { inside: hop_prefix(site), outside });
            network.sites[1 - site].peer(0).hop_prefix = outside;
            network.start_site(first);
            network.run_s(10);
            network.start();
            network.send(A, B, Stream::udp().every_ms(100));
            network.establish();
            network.stop();
            network.flows.clear();
            assert_works(&mut network);
            assert_eq!(network.status(1 - site).hop_prefix, outside);
        }
    }
}

#[test]
fn a_prefix_translator_that_one_end_was_not_told_of() {
    let outside = "2001:db8:ffff:1::/64".parse().unwrap();
    for told in [false, true] {
        let mut network = Network::pair(39);
        network.sites[A].translator = Some(Translator::Prefix { inside: hop_prefix(A), outside });
        network.configure(|peer| peer.translated = told);
        network.start();
        network.send(A, B, Stream::udp().every_ms(100));
        network.run_s(30);
        assert_eq!(network.established(A) && network.established(B), told);
        if told {
            network.stop();
            assert_works(&mut network);
            assert_eq!(network.status(B).hop_prefix, outside, "B uses what it sees");
        } else {
            assert!(network.drops(B, DropReason::SourceRewritten) >= 1);
            assert_eq!(network.status(B).hop_prefix, hop_prefix(A), "B believes nothing");
        }
    }
}

#[test]
fn rewritten_ports_and_host_bits_are_detected() {
    let mut network = Network::pair(41);
    let outside = "2001:db8:ffff:1::1".parse().unwrap();
    network.sites[A].translator = Some(Translator::Masquerade { outside, states: HashMap::new() });
    network.start();
    network.send(A, B, Stream::udp().every_ms(100));
    network.run_s(30);
    assert!(!network.established(A) && !network.established(B));
    assert!(network.drops(B, DropReason::SourceRewritten) >= 1);
}

#[test]
fn a_node_that_moves_takes_its_sessions_along() {
    for seed in seeds(8) {
        for mover in [A, B] {
            let mut network = Network::pair(seed);
            network.start();
            network.establish();
            for (from, to) in [(A, B), (B, A)] {
                network.send(from, to, Stream::udp().every_ms(10));
            }
            network.run_s(10);
            for n in 0..3 {
                let at = network.now;
                network.move_to(mover, format!("2001:db8:c{n:03x}::/64").parse().unwrap());
                network.run_s(20);
                for flow in &network.flows {
                    let lost = flow.lost_since(at);
                    // 10 ms each: what is lost is what went to the old prefix until the handshake was done.
                    assert!(lost <= 6, "{lost} lost after the move");
                }
            }
            network.stop();
            network.assert_nothing_wrong();
        }
    }
}

#[test]
fn a_node_that_moves_to_a_prefix_of_another_length() {
    let mut network = Network::pair(43);
    network.start();
    network.establish();
    for prefix in ["2001:db8:c000::/48", "2001:db8:d000:1:2:3::/96", "2001:db8:e000::/56"] {
        network.move_to(A, prefix.parse().unwrap());
        network.run_s(3);
        assert_eq!(network.status(B).hop_prefix, prefix.parse().unwrap());
        assert_works(&mut network);
    }
}

/// Nobody answers: an observer sees first messages alone.
#[test]
fn no_first_message_looks_like_another() {
    for seed in seeds(6) {
        let mut network = Network::pair(seed);
        (network.observer.keeps, network.observer.keeps_payloads) = (true, true);
        network.start_site(A);
        network.send(A, B, Stream::udp().every_ms(20));
        network.run_s(600);
        let mut tries: HashMap<_, Vec<_>> = HashMap::new();
        for seen in &network.observer.seen {
            assert!((216..=1200).contains(&seen.payload.len()), "seed {seed}: {}", seen.payload.len());
            tries.entry(seen.source).or_default().push(seen);
        }
        let (mut pauses, mut copies) = (Vec::new(), 0);
        for seen in tries.values() {
            for pair in seen.windows(2) {
                pauses.push(pair[1].at - pair[0].at);
                copies += usize::from(pair[0].length == pair[1].length);
                let [one, other] = [&pair[0].payload, &pair[1].payload];
                assert!(!one.windows(8).any(|bytes| other.windows(8).any(|b| b == bytes)), "seed {seed}");
            }
        }
        assert!(pauses.len() > 20, "{}", pauses.len());
        assert!(copies <= 2, "{copies} of {} are of the same size as the one before", pauses.len());
        let all = pauses.len();
        pauses.sort_unstable();
        pauses.dedup();
        assert_eq!(pauses.len(), all, "two pauses are the same");
    }
}
