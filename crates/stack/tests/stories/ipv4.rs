//! IPv4 beside IPv6: RFC 826, RFC 792, RFC 1122.

use std::net::{Ipv4Addr, Ipv6Addr};

use stack::DropReason;
use stack::icmpv6::ErrorKind;
use stack::interface::{NoUpper, SendError};
use stack::ipv4::Ipv4;
use wire::arp::{Message, Operation};
use wire::ethernet::{self, ETHERTYPE_ARP, ETHERTYPE_IPV4, MacAddress};
use wire::ndp::NeighborAdvertisement;
use wire::{icmp_error, icmpv6};

use crate::hosts::{Segment, TCP};
use crate::link::{ANY, Link, SECOND, at, mac};

fn address(host: u8) -> Ipv6Addr {
    Ipv4Addr::new(192, 0, 2, host).to_ipv6_mapped()
}

/// Two hosts with IPv4; the gateway is not there.
fn two() -> Link {
    let mut link = Link::new(2);
    for (index, host) in link.hosts.iter_mut().enumerate() {
        let net = format!("192.0.2.{}/24", index + 1).parse().unwrap();
        host.set_ipv4(Some(Ipv4 { address: net, gateway: Some(Ipv4Addr::new(192, 0, 2, 254)) }));
    }
    link.run(SECOND * 3);
    link.others.clear();
    link
}

#[test]
fn rfc_826_a_neighbor_is_asked_for_and_then_gets_the_packet() {
    let mut link = two();
    assert!(link.ping(0, address(2)));
    let kinds: Vec<_> =
        link.others.iter().map(|bytes| ethernet::Frame::parse(bytes).unwrap().ethertype()).collect();
    assert_eq!(kinds[..4], [ETHERTYPE_ARP, ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV4]);
    let request = ethernet::Frame::parse(&link.others[0]).unwrap();
    assert_eq!(request.destination(), MacAddress::BROADCAST);
    let message = Message::parse(request.payload()).unwrap();
    assert_eq!((message.operation, message.target), (Operation::Request, Ipv4Addr::new(192, 0, 2, 2)));
    // The other one has learned from the question.
    assert_eq!(link.hosts[1].neighbors().link_layer(address(1)), Some(mac(0)));
}

#[test]
fn rfc_826_what_nobody_asked_for_makes_no_entry_and_our_address_is_ours() {
    let mut link = two();
    for sender in [Ipv4Addr::new(192, 0, 2, 9), Ipv4Addr::new(192, 0, 2, 1)] {
        let lie = Message {
            operation: Operation::Reply,
            sender_link_layer: mac(9),
            sender,
            target_link_layer: mac(0),
            target: Ipv4Addr::new(192, 0, 2, 1),
        };
        let header = ethernet::Header { destination: mac(0), source: mac(9), ethertype: ETHERTYPE_ARP };
        let frame = [&header.to_bytes()[..], &lie.to_bytes()].concat();
        link.hosts[0].receive(link.now, &frame, &mut NoUpper);
    }
    assert!(link.hosts[0].neighbors().is_empty());
    assert_eq!(link.hosts[0].drops().of(DropReason::InvalidDiscovery), 1);
}

#[test]
fn neighbor_discovery_says_nothing_of_ipv4() {
    let mut link = two();
    assert!(link.ping(0, address(2)));
    let us = link.link_local(0);
    let lie = NeighborAdvertisement {
        source: link.link_local(1),
        destination: us,
        target: address(2),
        target_link_layer: mac(9),
        router: false,
        solicited: false,
        r#override: true,
    };
    link.inject(mac(9), mac(0), &lie.to_packet());
    assert_eq!(link.hosts[0].neighbors().link_layer(address(2)), Some(mac(1)));
    assert_eq!(link.hosts[0].drops().of(DropReason::InvalidDiscovery), 1);
}

#[test]
fn datagrams_cross_in_fragments_and_come_to_the_same_sockets() {
    let mut link = two();
    let server = link.hosts[1].udp_bind(at(ANY, 53)).unwrap();
    let client = link.hosts[0].udp_bind(at(ANY, 0)).unwrap();
    link.hosts[0].udp_send(link.now, client, Some(at(address(2), 53)), &[1; 9000]).unwrap();
    link.run(SECOND);
    let mut data = Vec::new();
    let metadata = link.hosts[1].udp_receive(server, &mut data).unwrap();
    assert_eq!((data.len(), *metadata.from.ip(), metadata.to), (9000, address(1), address(2)));
    let largest = link.others.iter().map(Vec::len).max();
    assert!(largest.is_some_and(|largest| largest <= 1514));
}

#[test]
fn rfc_1122_3_2_2_1_errors_come_to_the_socket() {
    let mut link = two();
    let client = link.hosts[0].udp_bind(at(ANY, 0)).unwrap();
    let mut told = |to: Ipv6Addr| {
        link.hosts[0].udp_send(link.now, client, Some(at(to, 9)), b"x").unwrap();
        link.run(SECOND * 4);
        link.hosts[0].udp_error(client).map(|(kind, _)| kind)
    };
    assert_eq!(told(address(2)), Some(ErrorKind::Unreachable(icmpv6::code::PORT_UNREACHABLE)));
    let unreachable = Some(ErrorKind::Unreachable(icmpv6::code::ADDRESS_UNREACHABLE));
    assert_eq!(told(address(77)), unreachable);
    assert_eq!(
        told(Ipv4Addr::new(198, 51, 100, 1).to_ipv6_mapped()),
        unreachable,
        "the gateway is not there"
    );
}

#[test]
fn mutated_frames_are_survived() {
    let mut link = two();
    let server = link.hosts[0].udp_bind(at(ANY, 53)).unwrap();
    let client = link.hosts[1].udp_bind(at(ANY, 0)).unwrap();
    link.hosts[1].udp_send(link.now, client, Some(at(address(1), 53)), &[1; 3000]).unwrap();
    link.hosts[1].udp_send(link.now, client, Some(at(address(1), 54)), b"x").unwrap();
    link.hosts[0].udp_send(link.now, server, Some(at(address(2), 99)), b"x").unwrap();
    link.hosts[1].ping(link.now, address(1), 1, 1, b"").unwrap();
    link.run(SECOND);
    let frames = link.others.clone();
    let mut random = fastrand::Rng::with_seed(1);
    let mut out = Vec::new();
    for _ in 0..30_000 {
        let mut bytes = frames[random.usize(0..frames.len())].clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(14..bytes.len());
            bytes[at] = random.u8(..);
        }
        bytes.truncate(if random.u8(0..4) == 0 { random.usize(14..bytes.len()) } else { bytes.len() });
        if bytes.len() >= 34 && bytes[12..14] == [8, 0] {
            bytes[14] = bytes[14] & 0xf | 0x40;
            let header = 14 + (usize::from(bytes[14] & 0xf) * 4).max(20);
            if let Some(header) = bytes.get_mut(14..header) {
                wire::ipv4::write_checksum(header);
            }
        }
        bytes[..6].copy_from_slice(&mac(0).0);
        link.hosts[0].receive(link.now, &bytes, &mut NoUpper);
        while link.hosts[0].poll_transmit(&mut out) {}
    }
    link.run(SECOND * 100);
    link.hosts[1].udp_bind(at(ANY, 7)).unwrap();
    assert!(link.ping(0, address(2)));
}

#[test]
fn without_an_address_there_is_no_ipv4() {
    let mut link = two();
    link.hosts[1].set_ipv4(None);
    assert_eq!(link.hosts[1].ping(link.now, address(1), 1, 1, b""), Err(SendError::NoSource));
    assert!(!link.ping(0, address(2)));
}

#[test]
fn a_host_talks_to_its_own_ipv4_address() {
    let mut link = two();
    assert!(link.ping(0, address(1)));
    assert!(link.others.is_empty());
}

#[test]
fn rfc_1191_3_segments_are_not_fragmented_and_become_as_small_as_a_router_says() {
    for (said, expected) in [(1300, 1300), (100, 576), (0, 576)] {
        let mut segment = Segment::new(2, 0);
        for (index, host) in segment.hosts.iter_mut().enumerate() {
            let net = format!("192.0.2.{}/24", index + 1).parse().unwrap();
            host.interface_mut().set_ipv4(Some(Ipv4 { address: net, gateway: None }));
        }
        let listener = segment.hosts[1].tcp_listen(at(ANY, 80), TCP, 1).unwrap();
        let ours = segment.hosts[0].tcp_connect(segment.now, at(address(2), 80), TCP).unwrap();
        let theirs = segment.accept(listener);
        segment.seen.clear();
        segment.weather.loss = 1.0;
        segment.hosts[0].write(ours, &[7; 5000]).unwrap();
        segment.run(SECOND / 100);
        segment.weather.loss = 0.0;
        let sent = segment.seen.iter().max_by_key(|bytes| bytes.len()).unwrap().clone();
        assert_eq!(sent[14 + 6] & 0xe0, 0x40, "don't fragment");
        let mut error = vec![0; icmp_error::MAX_LEN];
        let router = Ipv4Addr::new(192, 0, 2, 254).into();
        let reason = icmp_error::Reason::PacketTooBig { mtu: said };
        let length = icmp_error::build(reason, router, &sent[14..], &mut error).unwrap();
        let header = ethernet::Header { destination: mac(0), source: mac(9), ethertype: ETHERTYPE_IPV4 };
        let frame = [&header.to_bytes()[..], &error[..length]].concat();
        let now = segment.now;
        segment.hosts[0].receive(now, &frame);
        segment.seen.clear();
        segment.run(SECOND / 10);
        assert_eq!(segment.hosts[1].tcp(theirs).unwrap().readable(), 5000);
        let largest = segment.seen.iter().map(|bytes| bytes.len() - 14).max();
        assert_eq!(largest, Some(expected), "{said}");
    }
}
