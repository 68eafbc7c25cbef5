//! Packets, fragments and errors: RFC 8200, RFC 4443, RFC 8201.

use std::net::Ipv6Addr;
use std::time::Duration;

use stack::DropReason;
use stack::icmpv6::ErrorKind;
use stack::interface::NoUpper;
use wire::icmp_error::{self, Reason};
use wire::icmpv6::{self, Message};
use wire::ipv6::{Header, Packet};
use wire::ndp::{ALL_NODES, multicast_mac};
use wire::protocol;

use crate::link::{ANY, FAR, Link, MINUTE, SECOND, at, mac};

/// Two hosts with global addresses, and a router.
fn two() -> Link {
    let mut link = Link::new(2);
    link.add_router(1);
    link.run(SECOND * 5);
    link.sent();
    link
}

fn packet(source: Ipv6Addr, destination: Ipv6Addr, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let payload_length = payload.len() as u16;
    let header = Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length,
        next_header,
        hop_limit: 64,
        source,
        destination,
    };
    [&header.to_bytes()[..], payload].concat()
}

/// From a neighbor that is host 1, but says what the test wants.
fn inject(link: &mut Link, next_header: u8, payload: &[u8]) -> Vec<Vec<u8>> {
    let bytes = packet(link.global(1), link.global(0), next_header, payload);
    link.inject(mac(1), mac(0), &bytes);
    link.run(SECOND * 3);
    link.sent()
}

fn error(packets: &[Vec<u8>]) -> Option<(u8, u8, u32)> {
    packets.iter().find_map(|bytes| {
        let message = Message::of_packet(&Packet::parse(bytes).unwrap()).ok()?;
        message.is_error().then(|| (message.message_type(), message.code(), message.body()))
    })
}

#[test]
fn rfc_4443_4_2_echoes_are_answered_also_in_fragments() {
    let mut link = two();
    let them = link.global(1);
    assert!(link.ping(0, them));
    link.replies(0);
    link.hosts[0].ping(link.now, them, 1, 9, &vec![7; 20_000]).unwrap();
    link.run(SECOND);
    assert_eq!(link.replies(0), [(them, 9)]);
    assert!(link.sent().iter().all(|packet| packet.len() <= 1500));
}

#[test]
fn rfc_4443_4_2_an_echo_to_a_group_is_answered_from_an_address() {
    let mut link = two();
    link.hosts[0].ping(link.now, ALL_NODES, 1, 3, b"").unwrap();
    link.run(SECOND);
    let them = link.link_local(1);
    assert_eq!(link.replies(0), [(them, 3)]);
}

#[test]
fn a_datagram_crosses_the_link_and_the_answer_comes_back() {
    let mut link = two();
    let server = link.hosts[1].udp_bind(at(ANY, 53)).unwrap();
    let client = link.hosts[0].udp_bind(at(ANY, 0)).unwrap();
    let to = at(link.global(1), 53);
    link.hosts[0].udp_connect(client, to).unwrap();
    link.hosts[0].udp_send(link.now, client, None, &vec![1; 9000]).unwrap();
    link.run(SECOND);
    let mut data = Vec::new();
    let metadata = link.hosts[1].udp_receive(server, &mut data).unwrap();
    assert_eq!((data.len(), metadata.from.ip(), metadata.hop_limit), (9000, &link.global(0), 64));
    link.hosts[1].udp_send(link.now, server, Some(metadata.from), b"answer").unwrap();
    link.run(SECOND);
    assert!(link.hosts[0].udp_receive(client, &mut data).is_some());
    assert_eq!(data, b"answer");
}

#[test]
fn a_host_talks_to_itself_without_the_link() {
    let mut link = two();
    link.sent();
    let us = link.global(0);
    assert!(link.ping(0, us));
    assert!(link.sent().is_empty());
}

#[test]
fn rfc_4443_3_1_where_nobody_listens_the_sender_is_told() {
    let mut link = two();
    let client = link.hosts[0].udp_bind(at(ANY, 0)).unwrap();
    let to = at(link.global(1), 9);
    link.hosts[0].udp_send(link.now, client, Some(to), b"x").unwrap();
    link.run(SECOND);
    let unreachable = ErrorKind::Unreachable(icmpv6::code::PORT_UNREACHABLE);
    assert_eq!(link.hosts[0].udp_error(client), Some((unreachable, to)));
}

#[test]
fn rfc_8200_4_an_unknown_next_header_is_answered_with_where_it_is() {
    let mut link = two();
    assert_eq!(error(&inject(&mut link, 200, &[0; 8])), Some((4, 1, 6)));
    let options = [200, 0, 1, 4, 0, 0, 0, 0];
    assert_eq!(error(&inject(&mut link, protocol::DESTINATION_OPTIONS, &options)), Some((4, 1, 40)));
    assert_eq!(error(&inject(&mut link, protocol::NO_NEXT_HEADER, &[])), None);
}

#[test]
fn rfc_8200_4_2_an_unknown_option_to_a_group_is_answered_if_it_wants_that() {
    let mut link = two();
    for (option, answer) in [(0x9e, Some((4, 2, 42))), (0xde, None), (0x5e, None)] {
        let payload = [protocol::NO_NEXT_HEADER, 0, option, 0, 0, 0, 0, 0];
        let bytes = packet(link.link_local(1), ALL_NODES, protocol::DESTINATION_OPTIONS, &payload);
        link.inject(mac(1), multicast_mac(ALL_NODES), &bytes);
        link.run(SECOND * 3);
        let sent = link.sent();
        let from_0: Vec<_> = sent
            .into_iter()
            .filter(|sent| Packet::parse(sent).unwrap().source() == link.link_local(0))
            .collect();
        assert_eq!(error(&from_0), answer, "{option:x}");
    }
}

#[test]
fn rfc_5095_a_routing_header_of_type_0_is_refused() {
    let mut link = two();
    let mut payload = vec![protocol::UDP, 2, 0, 1, 0, 0, 0, 0];
    payload.extend(FAR.octets());
    assert_eq!(error(&inject(&mut link, protocol::ROUTING, &payload)), Some((4, 0, 42)));
}

#[test]
fn rfc_8200_4_5_a_packet_that_stays_in_pieces_is_reported_with_its_first() {
    let mut link = two();
    let payload = [&[protocol::UDP, 0, 0, 1, 0, 0, 0, 7][..], &[9; 16]].concat();
    assert_eq!(error(&inject(&mut link, protocol::FRAGMENT, &payload)), None);
    link.run(Duration::from_secs(58));
    let sent = link.sent();
    assert_eq!(error(&sent), Some((3, 1, 0)));
    let report = sent.iter().find(|bytes| bytes[40] == 3).unwrap();
    assert_eq!(report[48..], packet(link.global(1), link.global(0), protocol::FRAGMENT, &payload));
    assert_eq!(link.hosts[0].drops().of(DropReason::ReassemblyTimeout), 1);
}

#[test]
fn rfc_4443_2_4_e_nobody_is_told_about_errors_groups_and_strangers() {
    let mut link = two();
    let (us, them) = (link.global(0), link.global(1));
    let mut error_packet = vec![0; icmp_error::MAX_LEN];
    let datagram = packet(us, them, protocol::UDP, &[0, 1, 0, 2, 0, 8, 0, 0]);
    let length = icmp_error::build(Reason::NoRoute, them.into(), &datagram, &mut error_packet).unwrap();
    let mut unknown_error = error_packet[..length].to_vec();
    unknown_error[6] = 200;
    let of_group = packet("ff02::1".parse().unwrap(), us, 200, &[]);
    let of_nobody = packet(Ipv6Addr::UNSPECIFIED, us, 200, &[]);
    let to_group = packet(them, ALL_NODES, 200, &[]);
    for bytes in [&error_packet[..length], &of_group, &of_nobody, &to_group] {
        link.inject(mac(1), mac(0), bytes);
    }
    // A packet to us in a frame to all.
    let bytes = packet(them, us, 200, &[]);
    link.inject(mac(1), multicast_mac(ALL_NODES), &bytes);
    link.run(SECOND * 3);
    assert_eq!(error(&link.sent()), None);
}

#[test]
fn rfc_4443_2_4_f_a_flood_is_answered_ten_times() {
    let mut link = two();
    let bytes = packet(link.global(1), link.global(0), 200, &[]);
    for _ in 0..1000 {
        link.inject(mac(1), mac(0), &bytes);
    }
    assert_eq!(link.count(icmpv6::PARAMETER_PROBLEM), 10);
    assert_eq!(link.hosts[0].drops().of(DropReason::RateLimit), 990);
}

/// What a router says of a datagram that host 0 has sent.
fn too_big(link: &mut Link, sent: &[u8], mtu: u32) {
    let mut out = vec![0; icmp_error::MAX_LEN];
    let router = link.routers[0].mac;
    let reporter = "2001:db8:7::1".parse::<Ipv6Addr>().unwrap();
    let length = icmp_error::build(Reason::PacketTooBig { mtu }, reporter.into(), sent, &mut out).unwrap();
    link.inject(router, mac(0), &out[..length]);
}

#[test]
fn rfc_8201_4_a_path_that_carries_less_gets_smaller_fragments_for_ten_minutes() {
    let mut link = two();
    let client = link.hosts[0].udp_bind(at(ANY, 0)).unwrap();
    let send = |link: &mut Link| {
        link.routers[0].forwarded.clear();
        link.hosts[0].udp_send(link.now, client, Some(at(FAR, 9)), &[1; 1400]).unwrap();
        link.run(SECOND);
        link.routers[0].forwarded.clone()
    };
    let sent = send(&mut link);
    assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), [1448]);
    // Not about what we have sent.
    let mut other = sent[0].clone();
    other[41] ^= 1;
    too_big(&mut link, &other, 1300);
    too_big(&mut link, &sent[0], 1279);
    assert_eq!(send(&mut link).len(), 1);
    assert_eq!(link.hosts[0].drops().of(DropReason::UnrelatedError), 1);
    too_big(&mut link, &sent[0], 1300);
    let lengths: Vec<_> = send(&mut link).iter().map(Vec::len).collect();
    assert!(lengths.len() == 2 && lengths[0] <= 1300, "{lengths:?}");
    assert_eq!(link.hosts[0].udp_error(client), Some((ErrorKind::PacketTooBig(1300), at(FAR, 9))));
    assert_eq!(link.hosts[0].largest_payload(link.now, FAR), 1260);
    link.run(MINUTE * 10);
    assert_eq!(send(&mut link).len(), 1);
}

#[test]
fn rfc_4443_2_4_a_an_error_that_nobody_knows_comes_to_the_socket_and_other_messages_are_dropped() {
    let mut link = two();
    let (us, them) = (link.global(0), link.global(1));
    let client = link.hosts[0].udp_bind(at(Ipv6Addr::UNSPECIFIED, 0)).unwrap();
    link.hosts[0].udp_send(link.now, client, Some(at(them, 9)), b"hello").unwrap();
    link.run(SECOND);
    let sent = link.sent();
    let quoted = sent.iter().find(|packet| packet[6] == protocol::UDP).unwrap();
    let mut say = |message_type| {
        let mut message = [&[message_type, 7, 0, 0, 0, 0, 0, 0], &quoted[..]].concat();
        let sum = wire::checksum::Sum::pseudo_ipv6(them, us, message.len() as u32, protocol::ICMPV6)
            + wire::checksum::Sum::of(&message);
        message[2..4].copy_from_slice(&sum.checksum().to_be_bytes());
        link.inject(mac(1), mac(0), &packet(them, us, protocol::ICMPV6, &message));
        link.hosts[0].udp_error(client)
    };
    say(1);
    assert_eq!(say(200), None, "2.4 b");
    assert_eq!(say(100), Some((ErrorKind::Unknown(100, 7), at(them, 9))));
}

#[test]
fn rfc_8200_4_5_and_rfc_7112_who_cuts_the_headers_is_told_but_not_about_an_error() {
    let mut link = two();
    let (us, them) = (link.global(0), link.global(1));
    assert!(link.ping(0, them));
    let mut told = |protocol: u8, data: &[u8]| {
        let fragment = [&[protocol, 0, 0, 1, 0, 0, 0, 7], data].concat();
        link.sent();
        link.inject(mac(1), mac(0), &packet(them, us, protocol::FRAGMENT, &fragment));
        let sent = link.sent();
        sent.first().map(|error| (error[40], error[41], error[44..48].to_vec()))
    };
    let incomplete = Some((icmpv6::PARAMETER_PROBLEM, 3, vec![0; 4]));
    assert_eq!(told(protocol::TCP, &[0; 16]), incomplete);
    // Options that go on in the next fragment.
    assert_eq!(told(protocol::DESTINATION_OPTIONS, &[protocol::UDP, 9, 1, 4, 0, 0, 0, 0]), incomplete);
    assert_eq!(told(protocol::ICMPV6, &[]), None);
    assert_eq!(link.hosts[0].drops().of(DropReason::IncompleteHeaderChain), 2);
}

#[test]
fn impossible_addresses_are_dropped() {
    let mut link = two();
    let (us, them) = (link.global(0), link.global(1));
    for (source, destination) in [
        ("ff02::1".parse().unwrap(), us),
        (Ipv6Addr::LOCALHOST, us),
        (them, Ipv6Addr::LOCALHOST),
        (them, Ipv6Addr::UNSPECIFIED),
        (them, "ff01::1".parse().unwrap()),
        (us, us),
    ] {
        let bytes = packet(source, destination, protocol::UDP, &[0; 8]);
        link.inject(mac(1), mac(0), &bytes);
    }
    assert_eq!(link.hosts[0].drops().of(DropReason::ImpossibleAddress), 6);
    let before = link.hosts[0].drops().of(DropReason::NotForUs);
    let bytes = packet(them, FAR, protocol::UDP, &[0; 8]);
    link.inject(mac(1), mac(0), &bytes);
    assert_eq!(link.hosts[0].drops().of(DropReason::NotForUs), before + 1, "a host forwards nothing");
}

#[test]
fn frames_for_others_are_not_looked_at() {
    let mut link = two();
    let before = link.hosts[0].drops().of(DropReason::NotForUs);
    link.hosts[0].receive(link.now, &[0; 13], &mut NoUpper);
    let bytes = packet(link.global(1), link.global(0), 200, &[]);
    link.inject(mac(1), mac(1), &bytes);
    assert_eq!(link.hosts[0].drops().of(DropReason::NotForUs), before + 1);
    assert_eq!(link.hosts[0].drops().of(DropReason::Malformed), 1);
}
