//! The program and the node do the same to the same packets.

use std::cell::{Cell, RefCell};

use classic::hashed::{Host, Rotation};
use classic::keys::SessionKey;
use classic::profile::{Carry, StreamConfig};
use classic::{Received, UnixTime};
use linux::netns;
use proptest::prelude::*;
use wire::checksum::Sum;

use super::*;
use linux::bpf::verdict;

const LINK: usize = 14;
const NOW: UnixTime = UnixTime::from_secs(1_000_003);

/// Two ends of a stream, and the programs as they would be at the one, with Ethernet.
struct Scene {
    ends: [RefCell<Node>; 2],
    hosts: [Ipv6Addr; 2],
    tables: Tables<Map>,
    program: Program,
    entrance: Program,
}

impl Scene {
    fn new(hop: &NextHop, carry: Carry) -> Self {
        let hosts: [Ipv6Addr; 2] = ["2001:db8:a::1", "2001:db8:b::2"].map(|text| text.parse().unwrap());
        let node = |local: usize| {
            let host = |address| Host { address, mac: None };
            let stream = StreamConfig {
                local: host(hosts[local]),
                remote: host(hosts[1 - local]),
                key: SessionKey::from_bytes([7; 64]),
                cipher: None,
                carry,
                rotation: Rotation::Fixed(10),
                lifetime: 30,
                key_exchange: None,
                outer_mtu: 1500,
            };
            let mut node = Node::new(vec![stream], [1; 32], NOW).unwrap();
            node.handle_timeout(NOW);
            RefCell::new(node)
        };
        let ends = [node(0), node(1)];
        let tables = Tables::create(1, 8, Map::of).unwrap();
        let load = |code| Program::load(ProgramKind::SchedCls, &code).unwrap();
        let program = load(program(&tables, LINK as u8));
        let entrance = load(incoming(&tables, LINK as u8));
        let routes = ends[0].borrow().routes(0).unwrap();
        let (path, flag) = routes.outgoing.unwrap();
        let stream = Stream { number: 0, hosts: (hosts[0], hosts[1]), carry };
        let value = outgoing_value(&stream, hop, &path, flag);
        tables.outgoing.set(&key(hosts[0], hosts[1]), &value).unwrap();
        for path in &routes.incoming {
            let value = incoming_value(&stream, hop, path);
            tables.incoming.set(&key(path.source.address, path.destination.address), &value).unwrap();
        }
        Scene { ends, hosts, tables, program, entrance }
    }

    fn run(&self, packet: &[u8]) -> (i32, Vec<u8>) {
        run(&self.program, [2; 6], packet)
    }

    /// At the external interface.
    fn enter(&self, packet: &[u8]) -> (i32, Vec<u8>) {
        run(&self.entrance, HERE, packet)
    }

    /// The node's outer packet.
    fn outer(&self, from: usize, inner: &[u8]) -> Vec<u8> {
        let mut outer = Vec::new();
        self.ends[from].borrow_mut().send(inner, &mut outer).unwrap();
        outer
    }

    /// A packet of a host with a checksum that is right, where its protocol has one.
    fn inner(&self, from: usize, next_header: u8, first: [u8; 8], transport: &[u8]) -> Vec<u8> {
        let (source, destination) = (self.hosts[from], self.hosts[1 - from]);
        let mut packet = first.to_vec();
        packet[0] = 0x60 | packet[0] & 0xf;
        packet[4..6].copy_from_slice(&(transport.len() as u16).to_be_bytes());
        packet[6] = next_header;
        packet.extend(source.octets());
        packet.extend(destination.octets());
        packet.extend(transport);
        let at = 40
            + match next_header {
                protocol::TCP => 16,
                protocol::UDP => {
                    packet[44..46].copy_from_slice(&(transport.len() as u16).to_be_bytes());
                    6
                }
                protocol::ICMPV6 => 2,
                _ => return packet,
            };
        packet[at..at + 2].fill(0);
        let pseudo = Sum::pseudo_ipv6(source, destination, transport.len() as u32, next_header);
        let sum = (pseudo + Sum::of(&packet[40..])).udp_checksum();
        packet[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        packet
    }
}

/// The link address of the interface that test runs take.
const HERE: [u8; 6] = [0; 6];

fn run(program: &Program, destination: [u8; 6], packet: &[u8]) -> (i32, Vec<u8>) {
    let mut frame = vec![2; LINK];
    frame[..6].copy_from_slice(&destination);
    frame[12..].copy_from_slice(&0x86dd_u16.to_be_bytes());
    frame.extend(packet);
    let (verdict, out) = program.test_run(&frame).unwrap();
    // A packet that is sent on gets the next device's.
    if verdict == verdict::NEXT {
        assert_eq!(out[..LINK], frame[..LINK]);
    }
    (verdict, out[LINK..].to_vec())
}

fn forwarded(interface: u32) -> NextHop {
    NextHop { interface, neighbor: "fe80::1".parse().ok(), mtu: 1500 }
}

fn transport() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let protocols = prop::sample::select(vec![protocol::TCP, protocol::UDP, protocol::ICMPV6]);
    (protocols, prop::collection::vec(any::<u8>(), 20..1444)).prop_map(|(next_header, mut bytes)| {
        match next_header {
            // Not the beginning of a connection.
            protocol::TCP => bytes[13] &= !2,
            // No error.
            protocol::ICMPV6 => bytes[0] |= 0x80,
            _ => {}
        }
        (next_header, bytes)
    })
}

/// Packets of both hosts, in both directions, through the program and through the node.
fn compare(carry: Carry) {
    if !netns::available_to_tests() {
        return;
    }
    let (scene, here) = (Scene::new(&forwarded(1), carry), Scene::new(&forwarded(0), carry));
    let count = Cell::new(0);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(2_000));
    let cases = (transport(), any::<[u8; 8]>());
    let result = runner.run(&cases, |((next_header, bytes), first)| {
        let mut first = first;
        first[7] = first[7].max(2);
        let inner = scene.inner(0, next_header, first, &bytes);
        let outer = scene.outer(0, &inner);
        prop_assert_eq!(scene.run(&inner), (verdict::REDIRECT, outer));

        let inner = scene.inner(1, next_header, first, &bytes);
        let outer = scene.outer(1, &inner);
        let mut received = Vec::new();
        let outcome = scene.ends[0].borrow_mut().receive(&outer, NOW, &mut received);
        prop_assert_eq!(outcome, Received::Packet { stream: 0 });
        prop_assert_eq!(here.run(&outer), (verdict::REDIRECT, received.clone()));
        // One that is forwarded has a hop behind it.
        received[7] -= 1;
        prop_assert_eq!(scene.run(&outer), (verdict::REDIRECT, received.clone()));
        prop_assert_eq!(scene.enter(&outer), (verdict::REDIRECT, received));
        // What is for this host comes from the device, what goes out goes by it, and other stations have theirs.
        prop_assert_eq!(here.enter(&outer), (verdict::NEXT, outer.clone()));
        prop_assert_eq!(scene.enter(&inner), (verdict::NEXT, inner));
        prop_assert_eq!(run(&scene.entrance, [2; 6], &outer), (verdict::NEXT, outer));
        count.set(count.get() + 1);
        Ok(())
    });
    result.unwrap();
    let counted = scene.tables.counters.sum(&[0; 4]).unwrap();
    assert_eq!([counted[0], counted[2]], [count.get(), 2 * count.get()]);
}

#[test]
fn what_the_program_makes_is_what_the_node_makes() {
    compare(Carry::Encapsulate);
}

#[test]
fn addresses_that_the_program_replaces_are_those_that_the_node_replaces() {
    compare(Carry::Rewrite);
}

#[test]
fn replaced_addresses_leave_errors_and_the_key_exchange_to_the_daemon() {
    if !netns::available_to_tests() {
        return;
    }
    let scene = Scene::new(&forwarded(1), Carry::Rewrite);
    let first = [0, 0, 0, 0, 0, 0, 0, 64];
    let error = scene.inner(0, protocol::ICMPV6, first, &[1; 60]);
    let empty = scene.outer(1, &scene.inner(1, protocol::UDP, first, &[0; 8]));
    let from_peer = scene.outer(1, &scene.inner(1, protocol::ICMPV6, first, &[4; 60]));
    let options = scene.outer(1, &scene.inner(1, protocol::DESTINATION_OPTIONS, first, &[17; 88]));
    for packet in [error, empty, from_peer, options] {
        assert_eq!(scene.run(&packet), (verdict::NEXT, packet.clone()), "{packet:02x?}");
    }
    // What has no checksum is taken, too; and the beginning of a connection has nothing to be told.
    let esp = scene.inner(0, protocol::ESP, first, &[5; 40]);
    assert_eq!(scene.run(&esp), (verdict::REDIRECT, scene.outer(0, &esp)));
    let mut syn = [5; 40];
    syn[13] = 2;
    assert_eq!(scene.run(&scene.inner(0, protocol::TCP, first, &syn)).0, verdict::REDIRECT);
}

#[test]
fn what_is_not_the_programs_stays_as_it_is() {
    if !netns::available_to_tests() {
        return;
    }
    let scene = Scene::new(&forwarded(1), Carry::Encapsulate);
    let long = [5; 40];
    let syn = |flags| {
        let mut bytes = long;
        bytes[13] = flags;
        bytes
    };
    let first = [0, 0, 0, 0, 0, 0, 0, 64];
    let udp = scene.inner(0, protocol::UDP, first, &long);
    let change = |at: usize, byte: u8| {
        let mut packet = udp.clone();
        packet[at] = byte;
        packet
    };
    let mut unchecked = udp.clone();
    unchecked[46..48].fill(0);
    let mut outgoing = vec![
        scene.inner(0, protocol::TCP, first, &syn(2)),
        scene.inner(0, protocol::ESP, first, &long),
        scene.inner(0, protocol::FRAGMENT, first, &long),
        scene.inner(0, protocol::DESTINATION_OPTIONS, first, &long),
        scene.inner(0, protocol::ICMPV6, first, &long[..4]),
        unchecked,
        // Another length than it says, another host, too large.
        change(5, 39),
        change(45, 1),
        change(39, 9),
        scene.inner(0, protocol::UDP, first, &vec![1; 1445]),
    ];
    outgoing.push([&udp[..], &[0]].concat());

    let inner = scene.inner(1, protocol::UDP, first, &long);
    let right = scene.outer(1, &inner);
    assert_eq!(scene.run(&right).0, verdict::REDIRECT);
    let changed = |at: usize, bits: u8| {
        let mut packet = right.clone();
        packet[at] ^= bits;
        packet
    };
    let exhausted = scene.inner(1, protocol::UDP, [0, 0, 0, 0, 0, 0, 0, 1], &long);
    let esp = scene.inner(1, protocol::ESP, first, &long);
    // The flag, both ports, next header, an option, a nibble that is not 6, lengths, the inner checksum.
    let mut incoming: Vec<Vec<u8>> =
        [(40, 0x80), (41, 1), (43, 1), (6, 1), (48, 0x10), (53, 1), (45, 1), (23, 1), (39, 1)]
            .map(|(at, bits)| changed(at, bits))
            .into();
    let mut zero = right.clone();
    zero[46..48].fill(0);
    incoming.extend([zero, scene.outer(1, &exhausted), scene.outer(1, &esp), right[..60].to_vec()]);
    incoming.push([&right[..], &[0]].concat());
    for packet in outgoing.iter().chain(&incoming) {
        assert_eq!(scene.run(packet), (verdict::NEXT, packet.clone()), "{packet:02x?}");
        assert_eq!(scene.enter(packet), (verdict::NEXT, packet.clone()), "{packet:02x?}");
    }
}

proptest! {
    #[test]
    fn a_map_is_made_what_is_wanted(rounds in prop::collection::vec(prop::collection::hash_map(0u8..20, any::<u8>(), 0..12), 0..6)) {
        if !netns::available_to_tests() {
            return Ok(());
        }
        let map = Map::create(linux::bpf::MapKind::Hash, KEY, INCOMING, 64).unwrap();
        let mut written = Written::<INCOMING>::default();
        for round in rounds {
            written.change(round.iter().map(|(k, v)| ([*k; KEY], [*v; INCOMING])).collect(), &map);
            for k in 0..20 {
                let found = map.lookup(&[k; KEY]).unwrap().map(|value| value[0]);
                prop_assert_eq!(found, round.get(&k).copied());
            }
        }
    }
}
