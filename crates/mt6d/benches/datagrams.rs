//! What the protocol costs a packet, system calls apart: `cargo bench -p sidestep-mt6d`.
//!
//! Two nodes in one process, joined by copying. A datagram opens but once, so each is sealed anew, outside of what is
//! timed.

#![allow(missing_docs, reason = "benchmarks")]

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddrV6;
use std::ops::Range;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use sidestep_mt6d::config::{NodeConfig, PeerConfig, REKEY_AFTER};
use sidestep_mt6d::endpoint::Place;
use sidestep_mt6d::keys::PrivateKey;
use sidestep_mt6d::schedule::Schedule;
use sidestep_mt6d::{
    Action, Deliver, EndpointId, Epoch, LaneId, Node, Now, Outbox, PeerState, Received, Time, endpoint,
};
use wire::coalesce::{Coalescer, Offloads};
use wire::ecn::Ecn;
use wire::virtio_net;

const SEGMENT: usize = 1_364;
const SEGMENTS: usize = 45;

fn main() {
    divan::main();
}

struct Sink(Coalescer);

impl Deliver for Sink {
    fn packet(&mut self, arena: &[u8], header: &[u8], rest: Range<usize>) {
        self.0.push(arena, header, rest);
    }

    fn whole_packet(&mut self, _: &[u8]) {}
}

struct End {
    node: Node,
    outbox: Outbox,
    sink: Sink,
    endpoints: HashMap<EndpointId, (SocketAddrV6, Option<SocketAddrV6>)>,
}

impl End {
    fn new(own: usize, others: usize, aes: bool) -> Self {
        let key = |n: usize| {
            let mut key = [1; 32];
            key[8..16].copy_from_slice(&n.to_be_bytes());
            PrivateKey::from_bytes(key)
        };
        let hop_prefix = |n: usize| format!("2001:db8:{n:x}::/64").parse().expect("a prefix");
        let inside = |n: usize| vec![format!("fd00:{n:x}::/64").parse().expect("a prefix")];
        let peer = |n: usize| PeerConfig::new(&n.to_string(), key(n).public(), hop_prefix(n), inside(n));
        let config = NodeConfig {
            private_key: key(own),
            previous_key: None,
            hop_prefix: hop_prefix(own),
            link_mtu: 1500,
            hardware_aes: aes,
            addresses: Vec::new(),
            rekey_after: REKEY_AFTER,
            peers: (0..=others).filter(|n| *n != own).map(peer).collect(),
        };
        let offloads = Offloads { tcp4: true, tcp6: true, udp4: true, udp6: true };
        End {
            node: Node::new(config, &HashMap::new(), move || [own as u8; 32], now(0)).expect("a node"),
            outbox: Outbox::new(),
            sink: Sink(Coalescer::new(offloads)),
            endpoints: HashMap::new(),
        }
    }

    /// Does what is due, and tells what it sends.
    fn turn(&mut self, ms: u64) -> Vec<(SocketAddrV6, SocketAddrV6, Vec<u8>)> {
        while let Some(action) = self.node.next_action() {
            match action {
                Action::Open { id, local, remote } => {
                    self.endpoints.insert(id, (local, remote));
                    self.node.opened(id, now(ms));
                }
                Action::Close { id } => drop(self.endpoints.remove(&id)),
                Action::AddRewrite(_)
                | Action::RemoveRewrite(_)
                | Action::Replace { .. }
                | Action::AddMask(_)
                | Action::RemoveMask { .. }
                | Action::Mask { .. } => {}
            }
        }
        // A call serves but a few peers.
        while self.node.deadline() <= now(ms).boot {
            self.node.handle_timeout(now(ms), &mut self.outbox, &mut self.sink);
        }
        let mut sent = Vec::new();
        for (batch, bytes) in self.outbox.batches() {
            let Some((local, remote)) = self.endpoints.get(&batch.endpoint) else { continue };
            let to = batch.to.or(*remote).expect("a destination");
            sent.extend(bytes.chunks(batch.segment).map(|datagram| (*local, to, datagram.to_vec())));
        }
        self.outbox.clear();
        sent
    }

    fn receive(&mut self, (from, to, mut datagram): (SocketAddrV6, SocketAddrV6, Vec<u8>), ms: u64) {
        let heard = |(local, remote): &(SocketAddrV6, Option<SocketAddrV6>)| {
            *local == to && remote.is_none_or(|remote| remote == from)
        };
        let Some(id) = self.endpoints.iter().find(|(_, place)| heard(place)).map(|(id, _)| *id) else {
            return;
        };
        let length = datagram.len();
        let received =
            Received { endpoint: id, source: from, ecn: Ecn::NotEct, at: 0..length, segment: length };
        self.node.receive(&received, &mut datagram, now(ms), &mut self.outbox, &mut self.sink);
        self.sink.0.clear();
    }
}

fn now(ms: u64) -> Now {
    Now { boot: Time::from_micros(1_000_000 + ms * 1_000), unix_ms: 1_800_000_000_000 + ms }
}

/// Two nodes with a session; when it is, in milliseconds.
fn connected(others: usize, aes: bool) -> (End, End, u64) {
    let (mut a, mut b) = (End::new(0, others, aes), End::new(1, 1, aes));
    let (header, mut first) = packet(1, 64);
    for ms in (0..30_000).step_by(5) {
        // What the addresses are is told after a few packets.
        if ms >= 10_000 && ms % 1_000 == 0 {
            a.node.send(&header, &mut first, now(ms), &mut a.outbox, &mut a.sink);
        }
        for datagram in a.turn(ms) {
            b.receive(datagram, ms);
        }
        for datagram in b.turn(ms) {
            a.receive(datagram, ms);
        }
        // Long enough for path MTU discovery to have ended.
        if ms == 20_000 && a.node.status(now(ms)).any(|peer| peer.state == PeerState::Established) {
            return (a, b, ms);
        }
    }
    panic!("no session");
}

/// A GSO packet of TCP, or one UDP datagram.
fn packet(segments: usize, length: usize) -> (virtio_net::Header, Vec<u8>) {
    let address = |n: u16| std::net::Ipv6Addr::new(0xfd00, n, 0, 0, 0, 0, 0, 1).octets();
    let tcp = segments > 1;
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, if tcp { 6 } else { 17 }, 64];
    packet.extend(address(0));
    packet.extend(address(1));
    if !tcp {
        let total = ((8 + length) as u16).to_be_bytes();
        packet[4..6].copy_from_slice(&total);
        packet.extend([0x10, 0x92, 0x10, 0x93, total[0], total[1], 0xff, 0xff]);
        packet.resize(48 + length, 0);
        return (virtio_net::Header::NONE, packet);
    }
    packet.extend([0x10, 0x92, 0x10, 0x93, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    packet.resize(60 + segments * length, 0x5a);
    let header = virtio_net::Header {
        flags: virtio_net::NEEDS_CSUM,
        gso_type: virtio_net::GSO_TCPV6,
        hdr_len: 60,
        gso_size: length as u16,
        csum_start: 40,
        csum_offset: 16,
    };
    (header, packet)
}

/// From GSO packet to sealed datagrams.
#[divan::bench(args = [true, false])]
fn send_64_kb(bencher: Bencher, aes: bool) {
    let (mut a, _, ms) = connected(1, aes);
    let (header, mut packet) = packet(SEGMENTS, SEGMENT);
    bencher.counter(ItemsCount::new(SEGMENTS)).bench_local(|| {
        a.node.send(&header, &mut packet, now(ms), &mut a.outbox, &mut a.sink);
        assert!(a.outbox.len() > SEGMENTS * SEGMENT);
        a.outbox.clear();
    });
}

/// One small datagram, with so many peers.
#[divan::bench(args = [1, 10_000])]
fn send_64_bytes(bencher: Bencher, peers: usize) {
    let (mut a, _, ms) = connected(peers, true);
    let (header, mut packet) = packet(1, 64);
    bencher.bench_local(|| {
        a.node.send(&header, &mut packet, now(ms), &mut a.outbox, &mut a.sink);
        a.outbox.clear();
    });
}

/// From sealed datagrams to a GSO packet.
#[divan::bench(args = [true, false])]
fn receive_64_kb(bencher: Bencher, aes: bool) {
    let (mut a, b, ms) = connected(1, aes);
    let (header, packet) = packet(SEGMENTS, SEGMENT);
    let b = RefCell::new(b);
    bencher
        .counter(ItemsCount::new(SEGMENTS))
        .with_inputs(|| {
            a.node.send(&header, &mut packet.clone(), now(ms), &mut a.outbox, &mut a.sink);
            let (batch, bytes) = a.outbox.batches().last().expect("datagrams");
            let (local, remote) = a.endpoints[&batch.endpoint];
            let (segment, arena, remote) = (batch.segment, bytes.to_vec(), remote.expect("connected"));
            assert_eq!(arena.len(), SEGMENTS * segment, "one batch");
            a.outbox.clear();
            let b = b.borrow();
            let place = b.endpoints.iter().find(|(_, place)| **place == (remote, Some(local)));
            let endpoint = *place.expect("its other end").0;
            let at = 0..arena.len();
            (Received { endpoint, source: local, ecn: Ecn::NotEct, at, segment }, arena)
        })
        .bench_local_refs(|(received, arena)| {
            let mut b = b.borrow_mut();
            let End { node, outbox, sink, .. } = &mut *b;
            node.receive(received, arena, now(ms), outbox, sink);
            assert_eq!(sink.0.packets().len(), 1);
            sink.0.clear();
        });
}

/// Address and port of a lane.
#[divan::bench]
fn derive_endpoint() -> SocketAddrV6 {
    let prefix = "2001:db8::/64".parse().expect("a prefix");
    endpoint::derive(black_box(&[7; 32]), prefix, black_box(Place::Lane(LaneId(4_711))))
}

/// When an epoch begins.
#[divan::bench]
fn derive_start() -> i64 {
    Schedule::new(black_box([7; 32]), 10_000).start(black_box(Epoch(4_711)))
}
