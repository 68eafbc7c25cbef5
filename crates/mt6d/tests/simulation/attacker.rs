//! Somebody on the path, or anywhere, sends what they like.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::time::Duration;

use ipnet::Ipv6Net;
use proptest::prelude::*;
use sidestep_mt6d::keys::PrivateKey;
use sidestep_mt6d::{DropReason, PeerMemory, PeerState};
use wire::virtio_net;

use crate::network::{A, B, Network, Random, Seen, Stream, hop_prefix, seeds};

/// A pair with traffic in both directions for 150 s: first contact, rotations, a rekey; with an attacker who replays
/// each datagram so many microseconds later, or none.
fn story(seed: u64, replayed_after: Option<u64>) -> Network {
    let mut network = Network::pair(seed);
    network.configure(|peer| {
        peer.rotation = Duration::from_secs(1);
        peer.lanes = Some(2);
    });
    network.path.jitter = 2_000;
    network.observer.keeps = true;
    network.observer.keeps_payloads = true;
    network.replayed_after = replayed_after;
    network.start();
    for (from, to) in [(A, B), (B, A)] {
        network.send(from, to, Stream::udp().every_ms(40).flows(9));
        network.send(from, to, Stream::tcp().of(1300).every_ms(500).batches(8));
    }
    network.run_s(150);
    network
}

#[test]
fn every_datagram_is_replayed_once_and_nobody_takes_notice() {
    for seed in seeds(3) {
        let mut quiet = story(seed, None);
        for after in [5_000, 400_000, 2_500_000, 20_000_000] {
            let mut attacked = story(seed, Some(after));
            assert!(attacked.replays > 10_000);
            // Not one datagram more leaves because of a replay, none less, none other.
            let same = quiet.observer.seen == attacked.observer.seen;
            assert!(same, "replays after {after} us changed what the nodes sent");
            if after < 1_000_000 {
                let replayed =
                    attacked.drops(A, DropReason::Replayed) + attacked.drops(B, DropReason::Replayed);
                let repeated = attacked.drops(A, DropReason::HandshakeRepeated)
                    + attacked.drops(B, DropReason::HandshakeRepeated);
                assert!(replayed > 5_000 && repeated >= 2, "{replayed} replayed, {repeated} repeated");
            }
            attacked.assert_all_arrived();
        }
        quiet.assert_all_arrived();
    }
}

#[test]
fn a_replay_that_overtakes_is_as_good_as_the_original() {
    let mut network = Network::pair(5);
    // The original takes longer than the copy.
    network.path.held_back = (0.5, 30_000);
    network.replayed_after = Some(1_000);
    network.start();
    network.establish();
    network.run_s(2);
    for (from, to) in [(A, B), (B, A)] {
        network.send(from, to, Stream::udp().every_ms(10));
    }
    network.run_s(60);
    network.assert_all_arrived();
}

#[test]
fn a_recorded_first_message_meets_silence_later() {
    for remembers in [true, false] {
        let mut network = Network::pair(7);
        network.observer.keeps = true;
        network.observer.keeps_payloads = true;
        network.start();
        network.establish();
        network.run_s(1);
        let recorded = network.observer.seen.clone();
        network.kill(A);
        network.kill(B);
        if !remembers {
            network.sites[B].memory.clear();
        }
        network.run_s(40);
        network.start_site(B);
        // B tries to reach A for a while.
        network.run_s(100);
        let sent = network.observer.seen.len();
        for seen in &recorded {
            network.forge(seen.source, seen.destination, seen.payload.clone());
        }
        network.run_s(100);
        let answers = network.observer.seen.len() - sent;
        assert_eq!(answers, 0, "remembers: {remembers}");
    }
}

/// An attacker who is faster than the path copies what passes, from a port of its own and from a prefix of its own.
#[test]
fn copies_from_elsewhere_are_not_in_the_way_and_get_no_answer() {
    for seed in seeds(20) {
        let mut network = Network::pair(seed);
        network.path.delay = 20_000;
        network.observer.keeps = true;
        network.observer.keeps_payloads = true;
        let bad: Ipv6Net = "2001:db8:bad:1::/64".parse().unwrap();
        network.start();
        let mut copied = 0;
        for _ in 0..200 {
            network.run(Duration::from_millis(5));
            let seen: Vec<Seen> = network.observer.seen[copied..].to_vec();
            copied += seen.len();
            for Seen { source, destination, payload, .. } in seen {
                let host = u128::from(*source.ip()) & u128::from(bad.hostmask());
                let elsewhere = Ipv6Addr::from(u128::from(bad.network()) | host);
                let from_elsewhere = SocketAddrV6::new(elsewhere, source.port(), 0, 0);
                let from_another_port = SocketAddrV6::new(*source.ip(), source.port() ^ 1, 0, 0);
                for copy in [from_another_port, from_elsewhere] {
                    network.forge(copy, destination, payload.clone());
                }
            }
        }
        assert!(network.established(A) && network.established(B), "within a second");
        assert!(network.observer.seen.iter().all(|seen| !bad.contains(seen.destination.ip())));
        assert!(
            network.drops(A, DropReason::SourceRewritten) + network.drops(B, DropReason::SourceRewritten) > 1
        );
        for site in [A, B] {
            assert_eq!(network.status(site).hop_prefix, hop_prefix(1 - site));
        }
    }
}

/// B is told whatever somebody likes who has its private key, here by an A whose clock and prefix are wrong; but nobody
/// confirms.
#[test]
fn what_nobody_confirms_leaves_nothing_behind() {
    for seed in seeds(10) {
        let mut network = Network::pair(seed);
        network.sites[A].clock.wall = 50_000;
        network.path_between(A, B, |path| path.delay = 1_000);
        network.paths.get_mut(&(B, A)).expect("the path").cut = true;
        network.start();
        network.send(A, B, Stream::udp().every_ms(100));
        network.run_s(9);
        assert_eq!(network.status(B).state, PeerState::Handshake, "it has answered");
        let now = network.sites[B].clock.now(network.now);
        let memory = network.sites[B].node().memory(now).next().map(|(_, memory)| memory).unwrap_or_default();
        assert_eq!(memory.accepted, PeerMemory::default().accepted);
        assert_eq!((memory.clock_offset_ms, memory.hop_prefix), (None, None));
        // The true peer is not locked out: as soon as it can be heard, there is a session.
        network.paths.get_mut(&(B, A)).expect("the path").cut = false;
        network.establish();
        let now = network.sites[B].clock.now(network.now);
        let memory = network.sites[B].node().memory(now).next().expect("of A").1;
        let offset = memory.clock_offset_ms.expect("learned");
        assert!(offset.abs_diff(50_000) < 5_000, "{offset}");
    }
}

/// Whoever has a peer's key has a bounded number of handshakes answered.
#[test]
fn a_peer_that_begins_again_and_again_is_answered_so_often() {
    for seed in seeds(4) {
        let mut network = Network::pair(seed);
        network.start();
        network.establish();
        let before = network.status(B).handshakes;
        for _ in 0..200 {
            network.kill(A);
            network.start_site(A);
            network.run(Duration::from_millis(50));
        }
        let answered = network.status(B).handshakes - before;
        let refused = network.drops(B, DropReason::HandshakeLimit);
        assert!(answered <= 8 + 10, "{answered} handshakes in 10 s");
        assert!(refused >= 50, "{refused} of 200 refused");
        network
            .run_until(Duration::from_secs(30), |network| network.established(A) && network.established(B));
    }
}

/// The same in a session, with new keys.
#[test]
fn a_peer_that_wants_new_keys_again_and_again_gets_some() {
    let mut network = Network::pair(1);
    network.sites[A].config.rekey_after = Duration::from_millis(1);
    network.start();
    network.establish();
    network.send(A, B, Stream::udp().every_ms(20));
    network.run_s(60);
    let rekeys = network.status(B).session.expect("a session").rekeys;
    assert!((1..=4 + 60 / 5).contains(&rekeys), "{rekeys} rekeys in a minute");
    network.stop();
    network.assert_all_arrived();
}

/// What was recorded comes again, now and later.
fn none_makes_a_session(network: &mut Network, site: usize, recorded: &[Seen]) {
    for pause in [10, 1_000, 2_000, 5_000, 20_000, 40_000] {
        network.run(Duration::from_millis(pause));
        for seen in recorded {
            network.forge(seen.source, seen.destination, seen.payload.clone());
        }
        network.run(Duration::from_millis(5));
        let sessions = network.sites[site].asked.values().filter(|socket| socket.remote.is_some()).count();
        assert_eq!(sessions, 0, "{pause} ms later");
    }
}

/// All that A ever sent comes again when B has restarted, at once and later; A is away.
#[test]
fn after_a_restart_no_recorded_first_message_makes_a_session() {
    for seed in seeds(8) {
        let mut network = Network::pair(seed);
        network.observer.keeps = true;
        network.observer.keeps_payloads = true;
        network.start();
        network.establish();
        network.run_s(20 + seed % 7);
        // A moves, and comes back: first messages that led to sessions, late in B's run.
        network.move_to(A, "2001:db8:c000::/64".parse().unwrap());
        network.run_s(3);
        network.move_to(A, hop_prefix(A));
        network.run_s(3);
        assert_eq!(network.status(B).hop_prefix, hop_prefix(A));
        // The last ones B answers no more.
        network.path_between(A, B, |path| path.cut = true);
        network.kill(A);
        network.start_site(A);
        network.run_s(5);
        network.kill(A);
        network.kill(B);
        let recorded: Vec<Seen> = network
            .observer
            .seen
            .iter()
            .filter(|s| hop_prefix(B).contains(s.destination.ip()))
            .cloned()
            .collect();
        network.run(Duration::from_millis(100 * seed));
        network.start_site(B);
        none_makes_a_session(&mut network, B, &recorded);
        assert!(network.drops(B, DropReason::HandshakeOld) >= 3);
    }
}

/// All that B ever sent comes again when A has taken its key away and has it back, and knows no nonce of that pair any more.
#[test]
fn after_keys_come_back_no_recorded_first_message_is_answered() {
    for seed in seeds(8) {
        let mut network = Network::pair(seed);
        network.observer.keeps = true;
        network.observer.keeps_payloads = true;
        network.start();
        network.establish();
        network.run_s(10);
        network.move_to(B, "2001:db8:c000::/64".parse().unwrap());
        network.run_s(3);
        let recorded: Vec<Seen> = network
            .observer
            .seen
            .iter()
            .filter(|s| hop_prefix(A).contains(s.destination.ip()))
            .cloned()
            .collect();
        network.kill(B);
        let key = network.sites[A].config.private_key.clone();
        for key in [PrivateKey::from_bytes([100; 32]), key] {
            network.sites[A].config.private_key = key;
            network.reconfigure(A);
            network.run(Duration::from_millis(100));
        }
        none_makes_a_session(&mut network, A, &recorded);
        assert!(network.drops(A, DropReason::HandshakeOld) >= 1);
    }
}

/// Sends datagrams to every open endpoint of every site, from its peer if it has one; none may be answered.
fn assail(network: &mut Network, mut datagram: impl FnMut(&mut Random) -> Vec<u8>) {
    let mut random = Random::new(network.seed);
    for _ in 0..200 {
        for site in [A, B] {
            let mut sockets: Vec<_> = network.sites[site].sockets.values().copied().collect();
            sockets.sort_by_key(|s| s.local);
            for socket in sockets {
                let stranger = SocketAddrV6::new("2001:db8:bad::1".parse().unwrap(), 4711, 0, 0);
                let payload = datagram(&mut random);
                network.forge(socket.remote.unwrap_or(stranger), socket.local, payload);
            }
        }
        network.run(Duration::from_millis(50));
    }
}

fn assert_unmoved(mut network: Network, mut quiet: Network) {
    quiet.run(Duration::from_micros(network.now - quiet.now));
    let addresses = |n: &Network| -> Vec<Seen> { n.observer.seen.clone() };
    assert!(addresses(&network) == addresses(&quiet), "what was sent depends on forged datagrams");
    network.assert_all_arrived();
}

fn prepared(seed: u64) -> Network {
    let mut network = Network::pair(seed);
    network.configure(|peer| peer.rotation = Duration::from_secs(1));
    network.observer.keeps = true;
    network.observer.keeps_payloads = true;
    network.start();
    network.establish();
    for (from, to) in [(A, B), (B, A)] {
        network.send(from, to, Stream::udp().every_ms(20));
    }
    network.run_s(2);
    network
}

#[test]
fn random_datagrams_are_not_answered() {
    for seed in seeds(2) {
        let mut network = prepared(seed);
        assail(&mut network, |random| {
            let length = random.between(0, 1500);
            (0..length).map(|_| random.next() as u8).collect()
        });
        let drops = network.status(A).drops;
        for reason in [DropReason::TooShort, DropReason::NotAuthentic, DropReason::NotForUs] {
            assert!(drops.of(reason) > 10, "{}: {}", reason.name(), drops.of(reason));
        }
        assert_unmoved(network, prepared(seed));
    }
}

#[test]
fn changed_and_truncated_datagrams_are_not_answered() {
    for seed in seeds(2) {
        let mut network = prepared(seed);
        let genuine = network.observer.seen.clone();
        // Genuine ones, changed, to where they belong and to everywhere else.
        assail(&mut network, |random| {
            let mut payload = genuine[random.between(0, genuine.len() as u64 - 1) as usize].payload.clone();
            match random.between(0, 2) {
                0 => payload.truncate(random.between(0, payload.len() as u64 - 1) as usize),
                1 => payload.push(0),
                _ => {
                    let at = random.between(0, payload.len() as u64 - 1) as usize;
                    payload[at] ^= 1 << random.between(0, 7);
                }
            }
            payload
        });
        assert_unmoved(network, prepared(seed));
    }
}

#[test]
fn datagrams_to_other_addresses_meet_nobody() {
    let mut network = prepared(3);
    let stranger = SocketAddrV6::new("2001:db8:bad::1".parse().unwrap(), 4711, 0, 0);
    let known: Vec<_> = network.sites[A].sockets.keys().copied().collect();
    for local in known {
        let other_port = SocketAddrV6::new(*local.ip(), local.port() ^ 1, 0, 0);
        network.forge(stranger, other_port, vec![0; 100]);
        if hop_prefix(A).contains(local.ip()) {
            network.forge(stranger, local, vec![0; 100]);
        }
    }
    network.run_s(1);
    assert_unmoved(network, prepared(3));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Bytes that a fuzzer may choose, at live endpoints and at the TUN device.
    #[test]
    fn no_bytes_make_a_node_panic(
        datagrams in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..20),
        packets in proptest::collection::vec(
            (any::<[u8; virtio_net::LEN]>(), 0u8..4, proptest::collection::vec(any::<u8>(), 0..200)), 1..40),
    ) {
        let mut network = prepared(9);
        for payload in datagrams {
            let sockets: Vec<_> = network.sites[A].sockets.values().copied().collect();
            for socket in sockets {
                let from = socket.remote.unwrap_or(socket.local);
                network.forge(from, socket.local, payload.clone());
            }
        }
        for (header, version, mut packet) in packets {
            // Most look like packets to the peer's hosts.
            if let Some(start) = packet.first_chunk_mut::<40>() {
                match version {
                    0 => {}
                    1 => {
                        start[0] = 0x45;
                        start[16..20].copy_from_slice(&[10, 0, B as u8, 1]);
                    }
                    _ => {
                        start[0] = 0x60;
                        start[24..32].copy_from_slice(&[0xfd, 0, 0, 0, 0, 0, 0, B as u8]);
                    }
                }
            }
            let header = virtio_net::Header::from_bytes(&header);
            let header = if version == 3 { virtio_net::Header::NONE } else { header };
            network.inject(A, header, packet);
        }
        network.run_s(1);
        network.assert_all_arrived();
    }
}
