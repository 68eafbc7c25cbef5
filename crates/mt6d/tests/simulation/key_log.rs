//! What a key log opens of what was recorded on the path, and what it does not.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddrV6;
use std::time::Duration;

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{ChaCha20Poly1305, Nonce};
use ring::aead::{self, LessSafeKey, UnboundKey, quic};

use crate::network::{A, B, Network, Stream, hop_prefix, seeds};

/// The cipher of a lane, and its keys: of data, of counters.
type LaneKeys = (String, Vec<u8>, Vec<u8>);

/// What the lines of a log say.
#[derive(Default)]
struct Log {
    lines: BTreeSet<String>,
    sessions: BTreeSet<(String, String)>,
    /// Cipher, data key, header key.
    lanes: HashMap<(SocketAddrV6, SocketAddrV6), LaneKeys>,
    /// Associated data and key, by the nonce.
    envelopes: HashMap<Vec<u8>, (Vec<u8>, Vec<u8>)>,
    contexts: usize,
}

impl Log {
    fn of(network: &mut Network, site: usize) -> Self {
        let mut log = Log::default();
        while let Some(line) = network.sites[site].node().next_key_log_line() {
            let fields: Vec<&str> = line.strip_suffix('\n').expect("a line").split(' ').collect();
            let bytes = |at: usize| hex::decode(fields[at]).expect("bytes");
            let endpoint = |at: usize| {
                SocketAddrV6::new(
                    fields[at].parse().expect("an address"),
                    fields[at + 1].parse().expect("a port"),
                    0,
                    0,
                )
            };
            match fields[0] {
                "SESSION" => {
                    log.sessions.insert((fields[1].to_owned(), fields[3].to_owned()));
                }
                "LANE" => {
                    let keys = (fields[4].to_owned(), bytes(9), bytes(10));
                    log.lanes.insert((endpoint(5), endpoint(7)), keys);
                }
                "CONTEXT" => log.contexts += 1,
                "ENVELOPE" => {
                    log.envelopes.insert(bytes(1), (bytes(2), bytes(3)));
                }
                other => panic!("{other}"),
            }
            log.lines.insert(line.to_string());
        }
        log
    }

    /// What a datagram has inside.
    fn open(&self, from: SocketAddrV6, to: SocketAddrV6, datagram: &[u8]) -> Option<Vec<u8>> {
        if let Some((aad, key)) = datagram.get(..24).and_then(|nonce| self.envelopes.get(nonce)) {
            let nonce = [&[0; 4], &datagram[16..24]].concat();
            let cipher = ChaCha20Poly1305::new_from_slice(key).expect("a key");
            return cipher.decrypt(Nonce::from_slice(&nonce), Payload { msg: &datagram[24..], aad }).ok();
        }
        let (cipher, data, header) = self.lanes.get(&(from, to))?;
        let (aead, mask) = match cipher.as_str() {
            "AES-256-GCM" => (&aead::AES_256_GCM, &quic::AES_256),
            "ChaCha20-Poly1305" => (&aead::CHACHA20_POLY1305, &quic::CHACHA20),
            other => panic!("{other}"),
        };
        let mask =
            quic::HeaderProtectionKey::new(mask, header).expect("a key").new_mask(&datagram[4..20]).ok()?;
        let mut nonce = [0; 12];
        (0..4).for_each(|i| nonce[8 + i] = datagram[i] ^ mask[i]);
        let mut sealed = datagram[4..].to_vec();
        let key = LessSafeKey::new(UnboundKey::new(aead, data).expect("a key"));
        let nonce = aead::Nonce::assume_unique_for_key(nonce);
        key.open_in_place(nonce, aead::Aad::empty(), &mut sealed).ok().map(|inner| inner.to_vec())
    }
}

/// A pair that logs its keys from the start, or not, with its traffic over some rotations and rekeys.
fn recorded(seed: u64, logs: bool) -> Network {
    let mut network = Network::pair(seed);
    network.configure(|peer| peer.rotation = Duration::from_secs(2));
    for site in &mut network.sites {
        site.config.rekey_after = Duration::from_secs(20);
        site.config.hardware_aes = seed.is_multiple_of(2);
    }
    (network.observer.keeps, network.observer.keeps_payloads) = (true, true);
    network.start();
    if logs {
        for site in [A, B] {
            network.with(site, |node, now, _, _| node.log_keys(now));
        }
    }
    network.send(A, B, Stream::udp().every_ms(200).flows(4));
    network.send(B, A, Stream::ping().over_ipv4().every_ms(500));
    network.establish();
    network.run_s(60);
    network.assert_all_arrived();
    network
}

#[test]
fn all_that_was_recorded_opens_with_the_log_of_its_sender_and_nearly_all_with_that_of_the_other() {
    for seed in seeds(4) {
        let mut network = recorded(seed, true);
        assert!(network.status(A).session.expect("there is one").rekeys > 0);
        let mut missing = 0;
        let (at_a, at_b) = (Log::of(&mut network, A), Log::of(&mut network, B));
        for log in [&at_a, &at_b] {
            assert!(log.lanes.len() > 50 && log.contexts > 0 && !log.envelopes.is_empty());
        }
        // A first message may cross another: who has a session by then never opens the answer. Its sender could.
        for seen in &network.observer.seen {
            let opens = |log: &Log| log.open(seen.source, seen.destination, &seen.payload).is_some();
            let of_a = hop_prefix(A).contains(seen.source.ip());
            assert!(opens(if of_a { &at_a } else { &at_b }), "{seen:?}");
            missing += u64::from(!opens(if of_a { &at_b } else { &at_a }));
        }
        assert!(missing <= network.observer.count / 20, "{missing} of {}", network.observer.count);
        // Both ends call a session the same, and the peer by its name.
        let sessions =
            |log: &Log| log.sessions.iter().map(|(label, _)| label.clone()).collect::<BTreeSet<_>>();
        assert_eq!(sessions(&at_a), sessions(&at_b));
        assert!(at_a.sessions.iter().all(|(_, peer)| peer == "site-1"));
        // A datagram that was changed opens no more.
        let seen = network.observer.seen.last().expect("there are some");
        let mut changed = seen.payload.clone();
        *changed.last_mut().expect("it has bytes") ^= 1;
        assert_eq!(at_a.open(seen.source, seen.destination, &changed), None);
    }
}

#[test]
fn nothing_is_logged_unasked_and_nothing_changes_where_it_is() {
    for seed in seeds(2) {
        let (mut silent, logging) = (recorded(seed, false), recorded(seed, true));
        assert!(silent.sites[A].node().next_key_log_line().is_none());
        assert!(silent.observer.seen == logging.observer.seen, "the same datagrams leave at the same times");
    }
}

#[test]
fn a_line_opens_its_lane_alone_and_a_log_that_begins_later_nothing_from_before() {
    let mut network = recorded(2, false);
    let before = network.observer.seen.len();
    network.with(A, |node, now, _, _| node.log_keys(now));
    network.send(A, B, Stream::udp().every_ms(200));
    network.run_s(60);
    let log = Log::of(&mut network, A);
    let opens =
        |seen: &crate::network::Seen| log.open(seen.source, seen.destination, &seen.payload).is_some();
    let (earlier, later) = network.observer.seen.split_at(before);
    assert_eq!(earlier.iter().filter(|seen| opens(seen)).count(), 0);
    assert!(later.iter().filter(|seen| opens(seen)).count() > later.len() / 2);
    assert!(log.envelopes.is_empty() && log.sessions.is_empty(), "the session began before");
}
