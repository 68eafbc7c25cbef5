//! What goes without UDP, in transport mode, by AH, or by hand.

use ike::crypto::encryption::Integrity;
use ike::negotiation::{ChildAlgorithms, ChildIntegrity, ChildProtocol};
use ipsec::level::Level;
use ipsec::policy::{Action, Rule};
use ipsec::selector::Selector;

use super::*;
use crate::manual::Manual;

/// Hands an end whole packets as its raw sockets would, or those of UDP as its UDP socket would.
pub(super) fn carry(to: &mut End, bytes: &mut [u8], size: usize, now: Instant) {
    for packet in bytes.chunks_mut(size) {
        let (source, destination) = wire::flow::addresses(packet).unwrap();
        let at = 0..packet.len();
        if packet[6] != protocol::UDP {
            to.carrier.receive_packet(packet, at, now, &mut to.inner);
            continue;
        }
        let port = u16::from_be_bytes([packet[40], packet[41]]);
        let received = Received {
            at: 48..packet.len(),
            segment: packet.len() - 48,
            via: Via::Nat,
            local: destination,
            remote: SocketAddr::new(source, port),
            ecn: Ecn::NotEct,
        };
        to.carrier.receive(packet, &received, now, &mut to.inner);
    }
}

fn outer(end: usize) -> std::net::Ipv6Addr {
    match outside(end) {
        IpAddr::V6(address) => address,
        IpAddr::V4(_) => unreachable!(),
    }
}

/// Two ends with raw sockets, whose one child is changed.
fn world(in_udp: bool, change: impl Fn(&mut ChildConfig), levels: Levels) -> World {
    let configs = [0, 1].map(|end| {
        let start = if end == 0 { Start::Always } else { Start::Wait };
        let mut config = config(end, start, PORTS);
        config.remotes[0].encapsulate = in_udp;
        change(&mut config.ike.peers[0].children[0]);
        let (here, there) = (outside(end).into(), outside(1 - end).into());
        let action = Action::Protect { levels, tunnel: None };
        config.child_rules = vec![
            Rule { direction: Direction::Out, selector: Selector::between(here, there), action },
            Rule { direction: Direction::In, selector: Selector::between(there, here), action },
        ];
        config
    });
    World::with(configs, [PORTS; 2], Carrier::with_raw)
}

const TRANSPORT: Levels = Levels { transport_encryption: Level::Require, ..Levels::NONE };

fn transport(child: &mut ChildConfig) {
    *child = ChildConfig::new(Mode::Transport, Vec::new(), Vec::new());
}

/// Sends a packet between the two ends, and returns the protocols of what crossed.
fn crosses(world: &mut World, from: usize) -> Vec<u8> {
    let mut packet = datagram(outer(from), outer(1 - from), 100);
    let end = &mut world.ends[from];
    end.carrier.send(&virtio_net::Header::NONE, &mut packet.clone(), world.now, &mut end.inner);
    let protocols = end.carrier.outbox().batches().map(|(_, bytes)| bytes[6]).collect();
    world.run();
    let arrived = world.arrived(1 - from);
    assert_eq!(arrived.len(), 1, "{:?}", world.drops(1 - from));
    // The hop limit is what a raw socket says it was.
    packet[7] = arrived[0][7];
    assert_eq!(arrived, [packet]);
    protocols
}

#[test]
fn a_tunnel_without_udp_carries_packets_that_are_longer_by_its_header() {
    let mut world = world(false, |_| {}, TRANSPORT);
    assert!(world.is_up(0) && world.is_up(1));
    let packet = datagram(inside(0, 1), inside(1, 9), 700);
    world.send(0, packet.clone());
    assert_eq!(world.arrived(1), [packet]);
    let child = world.ends[0].carrier.children.values().next().unwrap();
    assert_eq!(child.way.via, Via::Raw);
    let in_udp = World::new(Start::Always, [PORTS; 2]).ends[0].carrier.inner_mtu();
    assert_eq!(world.ends[0].carrier.inner_mtu(), in_udp + 8);
}

#[test]
fn two_hosts_talk_in_transport_mode_with_and_without_udp() {
    for (in_udp, expected) in [(false, protocol::ESP), (true, protocol::UDP)] {
        let mut world = world(in_udp, transport, TRANSPORT);
        assert!(world.is_up(0) && world.is_up(1));
        for from in [0, 1, 0] {
            assert_eq!(crosses(&mut world, from), [expected]);
        }
        assert!(world.drops(0).is_empty() && world.drops(1).is_empty());
        let child = &world.ends[1].carrier.report(world.now)[0].children[0];
        assert_eq!((child.rx_packets, child.tx_packets), (2, 1));
        assert!(child.heard_ms.is_some());
    }
}

#[test]
fn two_hosts_talk_by_ah_and_keep_talking_when_keys_are_replaced() {
    for integrity in [Integrity::HmacSha256.into(), ChildIntegrity::AesGmac128, ChildIntegrity::AesGmac256] {
        let ah = |child: &mut ChildConfig| {
            transport(child);
            child.algorithms = ChildAlgorithms {
                protocol: ChildProtocol::Ah,
                encryption: Vec::new(),
                integrity: vec![integrity],
                ..ChildAlgorithms::default()
            };
        };
        let levels = Levels { authentication: Level::Require, ..Levels::NONE };
        // AH goes without UDP whatever the ends want for ESP.
        let mut world = world(true, ah, levels);
        for _ in 0..70 {
            assert_eq!(crosses(&mut world, 0), [protocol::AUTHENTICATION]);
            assert_eq!(crosses(&mut world, 1), [protocol::AUTHENTICATION]);
            world.pass(60);
        }
        assert!(world.drops(0).is_empty() && world.drops(1).is_empty());
    }
}

#[test]
fn what_came_by_a_tunnel_does_not_pass_for_a_host_that_is_protected() {
    // The child is a tunnel from anywhere; the rules demand transport mode of the ends themselves.
    let all = |child: &mut ChildConfig| {
        let any = || vec![TrafficSelector::prefix("::".parse().unwrap(), 0)];
        *child = ChildConfig::new(Mode::Tunnel, any(), any());
    };
    let mut world = world(false, all, TRANSPORT);
    let id = world.ends[0].carrier.children.values().next().unwrap().outbound_id;
    let packet = datagram(outer(0), outer(1), 100);
    let end = &mut world.ends[0];
    let way = end.carrier.children.values().next().unwrap().way;
    let association = end.carrier.engine.get_mut(id).unwrap();
    let size = ipsec::tunnel_payload::sealed_length(association, packet.len()).unwrap();
    let (outer, esp) = end.carrier.outbox.datagram(&way, 0, 40 + size).split_at_mut(40);
    whole::write_outer(&way, 0, size, outer);
    ipsec::tunnel_payload::seal(association, [&packet, &[]], esp, world.now).unwrap();
    world.run();
    assert!(world.arrived(1).is_empty());
    assert_eq!(world.drops(1), ["not_encrypted"]);
}

const KEYS: [&str; 2] = [
    "-E rijndael-cbc 0x000102030405060708090a0b0c0d0e0f \
     -A hmac-sha256 0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
    "-A hmac-sha256 0xf00102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
];

/// AH around ESP, by hand.
fn by_hand(end: usize) -> Manual {
    let [a, b] = [outside(0), outside(1)];
    let (here, there) = (outside(end), outside(1 - end));
    let [esp, ah] = KEYS;
    let text = format!(
        "add {a} {b} esp 0x1000 -r 64 {esp};\nadd {b} {a} esp 0x1001 {esp};\nadd {a} {b} ah 0x1002 {ah};\n\
         add {b} {a} ah 0x1003 {ah};\n\
         spdadd {here} {there} any -P out ipsec esp/transport//require ah/transport//require;\n\
         spdadd {there} {here} any -P in ipsec esp/transport//require ah/transport//require;\n"
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    Manual::read(file.path()).unwrap()
}

#[test]
fn keys_by_hand_need_no_ike_and_each_flipped_bit_is_refused() {
    let configs = [0, 1].map(|end| {
        let mut config = config(end, Start::Wait, PORTS);
        config.ike.peers.clear();
        config.remotes.clear();
        config
    });
    let mut world = World::with(configs, [PORTS; 2], Carrier::with_raw);
    for end in [0, 1] {
        let now = world.now;
        world.ends[end].carrier.load(by_hand(end), now).unwrap();
    }
    for from in [0, 1] {
        assert_eq!(crosses(&mut world, from), [protocol::AUTHENTICATION]);
    }
    let end = &mut world.ends[0];
    let mut packet = datagram(outer(0), outer(1), 10);
    end.carrier.send(&virtio_net::Header::NONE, &mut packet, world.now, &mut end.inner);
    let sealed: Vec<u8> = end.carrier.outbox().batches().next().unwrap().1.to_vec();
    end.carrier.outbox().clear();
    // Routers may change the traffic class, the flow label and the hop limit, and nothing else.
    let fixed = (8 * 4..8 * 7).chain(8 * 8..8 * sealed.len());
    for bit in fixed {
        let mut changed = sealed.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let (now, length) = (world.now, changed.len());
        let end = &mut world.ends[1];
        end.carrier.receive_packet(&mut changed, 0..length, now, &mut end.inner);
    }
    assert!(world.arrived(1).is_empty());
    let (now, length) = (world.now, sealed.len());
    for _ in 0..2 {
        let end = &mut world.ends[1];
        end.carrier.receive_packet(&mut sealed.clone(), 0..length, now, &mut end.inner);
    }
    assert_eq!(world.arrived(1).len(), 1, "it is genuine, once");
    // Who takes an association away takes the way away.
    let end = &mut world.ends[0];
    end.carrier.keys().0.flush(None);
    end.carrier.keys_changed(0, now, &mut end.inner);
    world.send(0, datagram(outer(0), outer(1), 10));
    assert!(world.arrived(1).is_empty());
    assert_eq!(world.drops(0), ["not_keyed"]);
}

#[test]
fn a_child_whose_association_somebody_deletes_is_made_anew() {
    let mut world = world(false, |_| {}, TRANSPORT);
    let (now, end) = (world.now, &mut world.ends[0]);
    end.carrier.keys().0.flush(None);
    end.carrier.keys_changed(0, now, &mut end.inner);
    world.run();
    assert!(world.ends.iter().all(|end| end.carrier.children.is_empty()));
    let packet = datagram(inside(0, 1), inside(1, 9), 100);
    world.send(0, packet.clone());
    assert_eq!(world.arrived(1), [packet]);
}

#[test]
fn no_packet_makes_it_panic() {
    let mut world = world(false, transport, TRANSPORT);
    let spi = world.ends[1].carrier.children.keys().next().unwrap().to_be_bytes();
    let mut random = Repeatable(7);
    for length in (0..200).chain([1500, 65_000]) {
        for next in [protocol::ESP, protocol::AUTHENTICATION, protocol::UDP, 0] {
            let mut bytes = datagram(outer(0), outer(1), length);
            let front = bytes.len() - length - 8;
            random.fill(&mut bytes[front..]);
            bytes[6] = next;
            if length % 2 == 0 {
                bytes[front..].iter_mut().zip(spi).for_each(|(to, from)| *to = from);
            }
            if length % 5 == 0 {
                random.fill(&mut bytes);
            }
            let (now, all) = (world.now, bytes.len());
            let end = &mut world.ends[1];
            for at in [0..all, 0..all / 2, all / 3..all, 0..0] {
                end.carrier.receive_packet(&mut bytes.clone(), at, now, &mut end.inner);
            }
        }
    }
    world.run();
    assert!(world.arrived(1).is_empty());
    assert_eq!(crosses(&mut world, 0), [protocol::ESP]);
}
