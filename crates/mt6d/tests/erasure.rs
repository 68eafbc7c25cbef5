//! Keys are gone from memory when their session is: whatever 32 bytes of this process open a datagram that was sent under
//! them is a copy. The process has the allocator that the program has, which wipes what it frees.

use std::alloc::System;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use ring::aead::quic::{AES_256, HeaderProtectionKey};
use sidestep_mt6d::config::{NodeConfig, PeerConfig, REKEY_AFTER};
use sidestep_mt6d::keys::PrivateKey;
use sidestep_mt6d::{Action, Deliver, EndpointId, Node, Now, Outbox, Received, Time};
use wire::ecn::Ecn;
use zeroizing_alloc::ZeroAlloc;

#[global_allocator]
static ALLOCATOR: ZeroAlloc<System> = ZeroAlloc(System);

struct Nothing;

impl Deliver for Nothing {
    fn packet(&mut self, _: &[u8], _: &[u8], _: Range<usize>) {}
    fn whole_packet(&mut self, _: &[u8]) {}
}

type Socket = (EndpointId, std::net::SocketAddrV6, Option<std::net::SocketAddrV6>);

/// Two nodes and their sockets; what crossed between endpoints that are connected, the first of each.
struct Pair {
    nodes: [Node; 2],
    sockets: [Vec<Socket>; 2],
    firsts: HashMap<EndpointId, Vec<u8>>,
}

fn now(ms: u64) -> Now {
    Now { boot: Time::from_micros(1_000_000 + ms * 1000), unix_ms: 1_800_000_000_000 + ms }
}

fn node(own: usize) -> Node {
    let key = |n: usize| PrivateKey::from_bytes([0x51 + n as u8; 32]);
    let hop_prefix = |n: usize| format!("2001:db8:{n:x}::/64").parse().expect("a prefix");
    let inside = vec!["fd00::/64".parse().expect("a prefix")];
    let config = NodeConfig {
        private_key: key(own),
        previous_key: None,
        hop_prefix: hop_prefix(own),
        link_mtu: 1500,
        hardware_aes: true,
        addresses: Vec::new(),
        rekey_after: REKEY_AFTER,
        peers: vec![PeerConfig::new("peer", key(1 - own).public(), hop_prefix(1 - own), inside)],
    };
    Node::new(config, &HashMap::new(), move || [0x61 + own as u8; 32], now(0)).expect("a good configuration")
}

impl Pair {
    fn run(&mut self, from: u64, to: u64) {
        let mut outbox = Outbox::new();
        for ms in from..to {
            for at in [0, 1] {
                outbox.clear();
                self.nodes[at].handle_timeout(now(ms), &mut outbox, &mut Nothing);
                self.act(at, ms);
                self.carry(at, ms, &outbox);
            }
        }
    }

    fn act(&mut self, at: usize, ms: u64) {
        while let Some(action) = self.nodes[at].next_action() {
            match action {
                Action::Open { id, local, remote } => {
                    self.sockets[at].push((id, local, remote));
                    self.nodes[at].opened(id, now(ms));
                }
                Action::Close { id } => self.sockets[at].retain(|socket| socket.0 != id),
                other => panic!("{other:?}"),
            }
        }
    }

    fn carry(&mut self, from: usize, ms: u64, outbox: &Outbox) {
        let to = 1 - from;
        for (batch, bytes) in outbox.batches() {
            let Some(&(_, source, remote)) = self.sockets[from].iter().find(|s| s.0 == batch.endpoint) else {
                continue;
            };
            for datagram in bytes.chunks(batch.segment) {
                if remote.is_some() {
                    self.firsts.entry(batch.endpoint).or_insert_with(|| datagram.to_vec());
                }
                let destination = remote.or(batch.to).expect("somewhere");
                let Some(&(endpoint, ..)) = self.sockets[to].iter().find(|s| s.1 == destination) else {
                    continue;
                };
                let mut arena = datagram.to_vec();
                let received =
                    Received { endpoint, source, ecn: Ecn::NotEct, at: 0..arena.len(), segment: arena.len() };
                let mut answers = Outbox::new();
                self.nodes[to].receive(&received, &mut arena, now(ms), &mut answers, &mut Nothing);
                self.act(to, ms);
                self.carry(to, ms, &answers);
            }
        }
    }
}

/// Whether a key opens a datagram that has counter 0 and is an opener, or a session's confirmation: the first block of
/// AES-256 in counter mode, whose mask of header protection is the same cipher.
fn opens(key: &[u8], datagram: &[u8]) -> bool {
    const FIRST_BLOCK: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
    let key = HeaderProtectionKey::new(&AES_256, key).expect("32 bytes");
    let mask = key.new_mask(&FIRST_BLOCK).expect("16 bytes");
    let plain: Vec<u8> = mask.iter().zip(&datagram[4..]).map(|(a, b)| a ^ b).collect();
    plain == [0, 1, 0, 0, 0] || plain == [0, 2, 0, 8, 0]
}

/// How many times a key of one of these datagrams is in the memory of this process.
fn copies(datagrams: &[Vec<u8>]) -> usize {
    let memory = File::open("/proc/self/mem").expect("our own memory");
    let maps = BufReader::new(File::open("/proc/self/maps").expect("our own memory"));
    let ranges: Vec<Range<u64>> = maps
        .lines()
        .map_while(Result::ok)
        .filter(|line| line.split(' ').nth(1).is_some_and(|access| access.starts_with("rw")))
        .filter_map(|line| {
            let (start, end) = line.split(' ').next()?.split_once('-')?;
            Some(u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?)
        })
        .collect();
    let mut page = vec![0; (1 << 16) + 32];
    let own = page.as_ptr() as u64..page.as_ptr() as u64 + page.len() as u64;
    let mut found = 0;
    for range in ranges {
        for start in range.clone().step_by(1 << 16) {
            let length = ((range.end - start) as usize).min(page.len());
            if memory.read_exact_at(&mut page[..length], start).is_err() {
                continue;
            }
            for (at, window) in page[..length].windows(32).enumerate().step_by(4).take(1 << 14) {
                // Keys have no zeros to speak of, and what was read here is a copy of what is elsewhere.
                let zeros = window.iter().filter(|byte| **byte == 0).count();
                if zeros < 8 && !own.contains(&(start + at as u64)) {
                    found += datagrams.iter().filter(|datagram| opens(window, datagram)).count();
                }
            }
        }
    }
    page.fill(0);
    found
}

#[test]
fn the_keys_of_a_session_that_is_over_are_nowhere() {
    let mut pair = Pair { nodes: [node(0), node(1)], sockets: Default::default(), firsts: HashMap::new() };
    pair.run(0, 3_000);
    let firsts: Vec<Vec<u8>> = pair.firsts.values().cloned().collect();
    assert!(firsts.len() >= 2, "both have sent");
    let during = copies(&firsts);
    drop(pair);
    let after = copies(&firsts);
    // The one in each key, at both ends, which seal and open with it.
    assert!(during >= 2, "{during} copies while the session lasts: the search finds nothing");
    assert!(during <= 8 && after == 0, "{during} copies while the session lasts, {after} when it is over");
}
