//! Neighbors: RFC 4861 §7.

use std::net::Ipv6Addr;

use stack::DropReason;
use stack::icmpv6::ErrorKind;
use stack::interface::Event;
use stack::neighbor::State;
use wire::icmpv6;
use wire::ipv6::Packet;
use wire::ndp::{self, Message, NeighborAdvertisement, solicited_node};

use crate::link::{ANY, Link, SECOND, at, icmp_type, mac};

fn two() -> Link {
    let mut link = Link::new(2);
    link.run(SECOND * 3);
    link.sent();
    link
}

#[test]
fn rfc_4861_7_2_2_a_neighbor_is_asked_for_in_its_group_and_then_gets_the_packet() {
    let mut link = two();
    let (us, them) = (link.link_local(0), link.link_local(1));
    assert!(link.ping(0, them));
    let sent = link.sent();
    let first = Packet::parse(&sent[0]).unwrap();
    assert_eq!((first.source(), first.destination()), (us, solicited_node(them)));
    let Message::NeighborSolicitation { target, source_link_layer, .. } = ndp::parse(&first).unwrap() else {
        panic!("no solicitation");
    };
    assert_eq!((target, source_link_layer), (them, Some(mac(0))));
    let answer = Packet::parse(&sent[1]).unwrap();
    assert_eq!((answer.source(), answer.destination()), (them, us));
    assert!(matches!(
        ndp::parse(&answer).unwrap(),
        Message::NeighborAdvertisement { solicited: true, r#override: true, router: false, .. }
    ));
    let kinds: Vec<_> = sent[2..4].iter().map(|packet| icmp_type(packet).unwrap()).collect();
    assert_eq!(kinds, [icmpv6::ECHO_REQUEST, icmpv6::ECHO_REPLY]);
}

#[test]
fn rfc_4861_7_2_2_who_sent_to_a_neighbor_that_is_not_there_is_told() {
    let mut link = two();
    let nobody: Ipv6Addr = "fe80::dead".parse().unwrap();
    let socket = link.hosts[0].udp_bind(at(ANY, 0)).unwrap();
    link.hosts[0].udp_send(link.now, socket, Some(at(nobody, 9)), b"x").unwrap();
    link.run(SECOND * 2);
    assert_eq!(link.hosts[0].udp_error(socket), None);
    link.run(SECOND * 2);
    assert_eq!(link.count(icmpv6::NEIGHBOR_SOLICITATION), 3);
    let unreachable = ErrorKind::Unreachable(icmpv6::code::ADDRESS_UNREACHABLE);
    assert_eq!(link.hosts[0].udp_error(socket), Some((unreachable, at(nobody, 9))));
}

#[test]
fn rfc_4861_7_2_2_who_pings_a_neighbor_that_is_not_there_is_told() {
    let mut link = two();
    let (us, nobody): (_, Ipv6Addr) = (link.link_local(0), "fe80::dead".parse().unwrap());
    while link.hosts[0].poll_event().is_some() {}
    link.hosts[0].ping(link.now, nobody, 7, 1, b"").unwrap();
    link.run(SECOND * 4);
    let kind = ErrorKind::Unreachable(icmpv6::code::ADDRESS_UNREACHABLE);
    let error = Event::EchoError { from: us, kind, identifier: 7, sequence: 1 };
    assert_eq!(link.hosts[0].poll_event(), Some(error));
}

#[test]
fn rfc_4861_7_3_3_a_neighbor_that_answers_no_more_is_asked_directly_and_forgotten() {
    let mut link = two();
    let them = link.link_local(1);
    assert!(link.ping(0, them));
    assert!(matches!(link.hosts[0].neighbors().state(them), Some(State::Reachable { .. })));
    link.run(SECOND * 60);
    assert_eq!(link.hosts[0].neighbors().state(them), Some(State::Stale));
    link.unplugged.push(1);
    link.sent();
    link.hosts[0].ping(link.now, them, 1, 1, b"").unwrap();
    link.run(SECOND * 4);
    assert!(matches!(link.hosts[0].neighbors().state(them), Some(State::Delay { .. })));
    link.run(SECOND * 2);
    assert!(matches!(link.hosts[0].neighbors().state(them), Some(State::Probe { .. })));
    link.run(SECOND * 3);
    assert_eq!(link.hosts[0].neighbors().state(them), None);
    let probes = link
        .seen
        .iter()
        .filter(|(to, packet)| *to == mac(1) && icmp_type(packet) == Some(icmpv6::NEIGHBOR_SOLICITATION));
    assert_eq!(probes.count(), 3);
}

#[test]
fn rfc_4861_7_3_1_with_hints_of_a_transport_nobody_is_asked() {
    let mut link = two();
    let them = link.link_local(1);
    assert!(link.ping(0, them));
    link.sent();
    for _ in 0..30 {
        link.run(SECOND * 10);
        link.hosts[0].ping(link.now, them, 1, 1, b"").unwrap();
        link.hosts[0].confirm(link.now, them);
    }
    let ours = link.link_local(0);
    let asked = link.seen.iter().filter(|(_, packet)| {
        icmp_type(packet) == Some(icmpv6::NEIGHBOR_SOLICITATION)
            && Packet::parse(packet).unwrap().source() == ours
    });
    assert_eq!(asked.count(), 0);
}

#[test]
fn rfc_4861_7_3_3_a_neighbor_with_a_new_address_is_found_again() {
    let mut link = two();
    let (us, them) = (link.link_local(0), link.link_local(1));
    assert!(link.ping(0, them));
    let said = NeighborAdvertisement {
        source: them,
        destination: us,
        target: them,
        target_link_layer: mac(77),
        router: false,
        solicited: false,
        r#override: true,
    };
    link.inject(mac(77), mac(0), &said.to_packet());
    assert_eq!(link.hosts[0].neighbors().link_layer(them), Some(mac(77)));
    assert_eq!(link.hosts[0].neighbors().state(them), Some(State::Stale));
    // It was a lie: within eight seconds the neighbor is asked, forgotten, and found.
    link.hosts[0].ping(link.now, them, 1, 1, b"").unwrap();
    link.run(SECOND * 9);
    assert!(link.ping(0, them));
}

#[test]
fn rfc_6980_an_advertisement_in_a_fragment_is_not_believed() {
    let mut link = two();
    let (us, them) = (link.link_local(0), link.link_local(1));
    assert!(link.ping(0, them));
    let answer = NeighborAdvertisement::answer(us, them, mac(77), false).to_packet();
    let mut atomic = answer[..40].to_vec();
    atomic[4..7].copy_from_slice(&[0, 40, 44]);
    atomic.extend([58, 0, 0, 0, 0, 0, 0, 1]);
    atomic.extend(&answer[40..]);
    link.inject(mac(77), mac(0), &atomic);
    assert_eq!(link.hosts[0].neighbors().link_layer(them), Some(mac(1)));
    assert_eq!(link.hosts[0].drops().of(DropReason::InvalidDiscovery), 1);
    // In two fragments.
    for (offset, part) in [(1u16, &answer[40..56]), (16, &answer[56..])] {
        let mut fragment = answer[..40].to_vec();
        fragment[4..7].copy_from_slice(&[0, 8 + part.len() as u8, 44]);
        fragment.extend([58, 0]);
        fragment.extend(offset.to_be_bytes());
        fragment.extend([0, 0, 0, 2]);
        fragment.extend(part);
        link.inject(mac(77), mac(0), &fragment);
    }
    assert_eq!(link.hosts[0].neighbors().link_layer(them), Some(mac(1)));
    assert_eq!(link.hosts[0].drops().of(DropReason::InvalidDiscovery), 2);
}

#[test]
fn rfc_4861_7_1_a_message_that_a_router_has_forwarded_is_not_believed() {
    let mut link = two();
    let (us, them) = (link.link_local(0), link.link_local(1));
    let mut answer = NeighborAdvertisement::answer(us, them, mac(77), false).to_packet();
    answer[7] = 254;
    link.inject(mac(77), mac(0), &answer);
    assert_eq!(link.hosts[0].drops().of(DropReason::InvalidDiscovery), 1);
}
