//! Somebody on the path, or anywhere, sends what they like.

use std::net::SocketAddrV6;
use std::time::Duration;

use proptest::prelude::*;
use sidestep_mt6d::DropReason;
use wire::virtio_net;

use crate::network::{A, B, Network, Random, Seen, Stream, hop_prefix, seeds};

/// A pair with traffic in both directions for 150 s: first contact, rotations, a rekey; with an attacker who replays
/// each datagram so many microseconds later, or none.
fn story(seed: u64, replayed_after: Option<u64>) -> Network {
    let mut network = Network::pair(seed);
    network.configure(|peer| {
        peer.rotation = Duration::from_secs(1);
        peer.lanes = 2;
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
