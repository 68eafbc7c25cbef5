//! What the ends of tunnels carry, and what they refuse.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use wire::ecn::Ecn;
use wire::{ipv4, ipv6, protocol};

use super::*;

fn address<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

fn end(kind: Kind, local: &str, prefixes: &[&str]) -> Endpoint {
    let tunnel = Tunnel { kind, over: "eth0".into(), local: None, mtu: None, hop_limit: 64 };
    let prefixes: Vec<_> = prefixes.iter().map(|prefix| address(prefix)).collect();
    Endpoint::new(&tunnel, address(local), &prefixes).unwrap()
}

fn broker() -> (Endpoint, Endpoint) {
    let kind = |remote| Kind::SixInFour { remote: address(remote) };
    let here = end(kind("192.0.2.1"), "198.51.100.7", &["2001:db8:100::/48"]);
    (here, end(kind("198.51.100.7"), "192.0.2.1", &[]))
}

fn six_to_four(local: &str, relay: Option<&str>) -> Endpoint {
    end(Kind::Automatic(Domain::six_to_four(relay.map(address))), local, &[])
}

fn six_rd(local: &str) -> Endpoint {
    let domain = Domain::six_rd(address("2001:db8::/32"), 8, address("10.0.0.1")).unwrap();
    end(Kind::Automatic(domain), local, &[])
}

fn ipv6_packet(source: &str, destination: &str, payload: usize) -> Vec<u8> {
    let header = ipv6::Header {
        traffic_class: 0xb8,
        flow_label: 5,
        payload_length: payload as u16,
        next_header: protocol::NO_NEXT_HEADER,
        hop_limit: 63,
        source: address(source),
        destination: address(destination),
    };
    [&header.to_bytes()[..], &vec![7; payload]].concat()
}

fn ipv4_packet(source: &str, destination: &str, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let header = ipv4::Header {
        type_of_service: 0,
        total_length: (20 + payload.len()) as u16,
        identification: 1,
        dont_fragment: true,
        time_to_live: 60,
        protocol,
        source: address(source),
        destination: address(destination),
    };
    [&header.to_bytes()[..], payload].concat()
}

fn carried(from: &Endpoint, inner: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut out = Vec::new();
    from.encapsulate(inner, 9, &mut out).map(|()| out)
}

/// What an end makes of an inner packet that somebody has sent to it.
fn heard(end: &Endpoint, source: &str, inner: &[u8]) -> Result<Option<Vec<u8>>, Refusal> {
    let IpAddr::V4(local) = end.local else { panic!("an end of IPv4") };
    end.decapsulate(&ipv4_packet(source, &local.to_string(), protocol::IPV6, inner))
}

#[test]
fn what_one_end_carries_the_other_gets() {
    let (here, there) = broker();
    for size in [0, 1, 1240, 1241, 1440] {
        let inner = ipv6_packet("2001:db8:100::5", "2001:db8:ffff::1", size);
        let outer = carried(&here, &inner).unwrap();
        let header = ipv4::Packet::parse(&outer).unwrap();
        assert_eq!((header.source(), header.destination()), (address("198.51.100.7"), address("192.0.2.1")));
        assert_eq!((header.type_of_service(), header.time_to_live(), header.protocol()), (0xb8, 64, 41));
        // RFC 4213 section 3.2.2: what every path with IPv6 takes may be cut.
        assert_eq!(header.dont_fragment(), size > 1240);
        assert!(header.has_valid_checksum());
        assert_eq!(there.decapsulate(&outer), Ok(Some(inner)));
        assert_eq!(here.decapsulate(&outer), Ok(None), "a packet to somebody else");
    }
}

#[test]
fn a_broker_tunnel_hears_nobody_else_and_no_impossible_source() {
    let (here, _) = broker();
    let inner = ipv6_packet("2001:db8:ffff::1", "2001:db8:100::5", 9);
    assert_eq!(heard(&here, "192.0.2.1", &inner), Ok(Some(inner.clone())));
    assert_eq!(heard(&here, "192.0.2.2", &inner), Err(Refusal::Stranger));
    for (source, destination, refusal) in [
        ("ff02::1", "2001:db8:100::5", Refusal::Source),
        ("::1", "2001:db8:100::5", Refusal::Source),
        ("::", "2001:db8:100::5", Refusal::Source),
        ("::ffff:10.0.0.1", "2001:db8:100::5", Refusal::Source),
        ("::10.0.0.1", "2001:db8:100::5", Refusal::Source),
        ("fe80::1", "2001:db8:100::5", Refusal::Source),
        ("2001:db8:100::6", "2001:db8:100::5", Refusal::Spoofed),
        ("2001:db8:ffff::1", "::1", Refusal::Destination),
    ] {
        let inner = ipv6_packet(source, destination, 9);
        assert_eq!(heard(&here, "192.0.2.1", &inner), Err(refusal), "{source} to {destination}");
    }
    let on_link = ipv6_packet("fe80::1", "fe80::2", 0);
    assert_eq!(heard(&here, "192.0.2.1", &on_link), Ok(Some(on_link.clone())));
}

#[test]
fn what_is_cut_short_or_has_a_wrong_checksum_is_malformed() {
    let (here, _) = broker();
    let inner = ipv6_packet("2001:db8:ffff::1", "2001:db8:100::5", 9);
    for wrong in [&inner[..48], &inner[..39], &[]] {
        assert_eq!(heard(&here, "192.0.2.1", wrong), Err(Refusal::Malformed));
    }
    let longer = [&inner[..], &[0]].concat();
    assert_eq!(heard(&here, "192.0.2.1", &longer), Err(Refusal::Malformed));
    let mut outer = ipv4_packet("192.0.2.1", "198.51.100.7", protocol::IPV6, &inner);
    outer[10] ^= 1;
    assert_eq!(here.decapsulate(&outer), Err(Refusal::Malformed));
    outer[10] ^= 1;
    outer[6] = 0x20;
    assert_eq!(here.decapsulate(&outer), Ok(None), "a fragment");
}

#[test]
fn congestion_outside_is_told_inside_or_the_packet_is_lost() {
    let (here, _) = broker();
    for inside in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
        let mut inner = ipv6_packet("2001:db8:ffff::1", "2001:db8:100::5", 0);
        wire::ecn::set(&mut inner, inside);
        for outside in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
            let outer = Outer { source: address("192.0.2.1"), ecn: outside };
            let expected = wire::ecn::decapsulate(outside, inside).map_err(|_| Refusal::Congestion);
            let result = here.accept(outer, &inner).map(|inner| wire::ecn::get(&inner).unwrap());
            assert_eq!(result, expected);
        }
    }
}

#[test]
fn in_6to4_the_address_says_whose_packet_it_is() {
    let (here, there) = (six_to_four("192.0.2.1", None), six_to_four("198.51.100.7", None));
    let inner = ipv6_packet("2002:c000:201::5", "2002:c633:6407:1::9", 9);
    assert_eq!(there.decapsulate(&carried(&here, &inner).unwrap()), Ok(Some(inner)));
    for (source, destination, refusal) in [
        ("2001:db8::1", "2002:c633:6407:1::9", Refusal::Source),
        ("2002:c000:202::1", "2002:c633:6407:1::9", Refusal::Source),
        ("2002:c000:201::5", "2002:0a00:0001::1", Refusal::Destination),
        ("2002:c000:201::5", "2002:c000:201:1::1", Refusal::Destination),
        ("2002:c000:201::5", "2002:7f00:0001::1", Refusal::Destination),
        ("2002:c000:201::5", "2001:db8::1", Refusal::NoWay),
        ("fe80::1", "ff02::16", Refusal::Multicast),
    ] {
        assert_eq!(
            carried(&here, &ipv6_packet(source, destination, 0)),
            Err(refusal),
            "{source} {destination}"
        );
    }
}

#[test]
fn in_6to4_nobody_sends_in_anothers_name() {
    let here = six_to_four("192.0.2.1", None);
    let with_relay = six_to_four("192.0.2.1", Some("192.88.99.1"));
    for (outer, source, destination, refusal) in [
        ("198.51.100.7", "2002:c633:6408::1", "2002:c000:201::5", Refusal::Spoofed),
        ("10.0.0.1", "2002:0a00:0001::1", "2002:c000:201::5", Refusal::Spoofed),
        ("192.0.2.1", "2002:c000:201::1", "2002:c000:201::5", Refusal::Spoofed),
        ("198.51.100.7", "2002:c633:6407::1", "2002:c633:6408::1", Refusal::Destination),
        ("198.51.100.7", "2002:c633:6407::1", "2001:db8::1", Refusal::Destination),
        ("198.51.100.7", "2001:db8::1", "2002:c000:201::5", Refusal::Stranger),
    ] {
        let inner = ipv6_packet(source, destination, 0);
        assert_eq!(heard(&here, outer, &inner), Err(refusal), "{outer}: {source} to {destination}");
        assert_eq!(heard(&with_relay, outer, &inner), Err(refusal), "{outer}: {source} to {destination}");
    }
    let native = ipv6_packet("2001:db8::1", "2002:c000:201::5", 0);
    assert_eq!(heard(&here, "192.88.99.1", &native), Err(Refusal::Stranger));
    assert_eq!(heard(&with_relay, "192.88.99.1", &native), Ok(Some(native.clone())));
    let through = carried(&with_relay, &ipv6_packet("2002:c000:201::5", "2001:db8::1", 0)).unwrap();
    assert_eq!(ipv4::Packet::parse(&through).unwrap().destination(), Ipv4Addr::new(192, 88, 99, 1));
    let link_local = ipv6_packet("fe80::1", "2002:c000:201::5", 0);
    assert_eq!(heard(&with_relay, "192.88.99.1", &link_local), Err(Refusal::Source));
}

#[test]
fn customers_of_6rd_reach_each_other_and_the_internet_through_the_relay() {
    let (one, other, relay) = (six_rd("10.100.100.1"), six_rd("10.7.0.9"), six_rd("10.0.0.1"));
    assert!(relay.is_relay() && !one.is_relay());
    let direct = ipv6_packet("2001:db8:6464:101::5", "2001:db8:0700:0900::1", 0);
    let outer = carried(&one, &direct).unwrap();
    assert_eq!(ipv4::Packet::parse(&outer).unwrap().destination(), Ipv4Addr::new(10, 7, 0, 9));
    assert_eq!(other.decapsulate(&outer), Ok(Some(direct)));

    let out = ipv6_packet("2001:db8:6464:101::5", "2001:500::1", 0);
    assert_eq!(relay.decapsulate(&carried(&one, &out).unwrap()), Ok(Some(out)));
    let back = ipv6_packet("2001:500::1", "2001:db8:6464:101::5", 0);
    assert_eq!(one.decapsulate(&carried(&relay, &back).unwrap()), Ok(Some(back.clone())));
    // From a customer who is not the relay; and with a customer's address by way of the relay.
    assert_eq!(heard(&one, "10.7.0.9", &back), Err(Refusal::Stranger));
    let spoofed = ipv6_packet("2001:db8:0700:0900::1", "2001:db8:6464:101::5", 0);
    assert_eq!(heard(&one, "10.0.0.1", &spoofed), Err(Refusal::Spoofed));
    let out = ipv6_packet("2001:db8:0700:0900::1", "2001:500::1", 0);
    assert_eq!(heard(&relay, "10.9.9.9", &out), Err(Refusal::Spoofed));
}

#[test]
fn ipv4_crosses_ipv6_also_behind_an_encapsulation_limit() {
    let kind = |remote| Kind::FourInSix { remote: Some(address(remote)) };
    let (here, there) =
        (end(kind("2001:db8::2"), "2001:db8::1", &[]), end(kind("2001:db8::1"), "2001:db8::2", &[]));
    let inner = ipv4_packet("192.0.0.2", "203.0.113.1", protocol::UDP, &[1, 2, 3]);
    let outer = carried(&here, &inner).unwrap();
    assert_eq!(outer.len(), 40 + inner.len());
    assert_eq!(there.decapsulate(&outer), Ok(Some(inner.clone())));
    assert_eq!(here.decapsulate(&outer), Ok(None));

    let mut limited = outer[..40].to_vec();
    limited[5] += 8;
    limited[6] = protocol::DESTINATION_OPTIONS;
    limited.extend([4, 0, 4, 1, 4, 1, 1, 0]);
    limited.extend(&inner);
    assert_eq!(there.decapsulate(&limited), Ok(Some(inner)));

    for (source, destination, refusal) in [
        ("127.0.0.1", "203.0.113.1", Refusal::Source),
        ("224.0.0.1", "203.0.113.1", Refusal::Source),
        ("192.0.0.2", "127.0.0.1", Refusal::Destination),
        ("192.0.0.2", "255.255.255.255", Refusal::Destination),
    ] {
        let mut spoofed = outer[..40].to_vec();
        spoofed.extend(ipv4_packet(source, destination, protocol::UDP, &[1, 2, 3]));
        assert_eq!(there.decapsulate(&spoofed), Err(refusal));
    }
    let mut stranger = outer;
    stranger[23] = 9;
    assert_eq!(there.decapsulate(&stranger), Err(Refusal::Stranger));
}

/// An ICMPv4 message about a packet, of which so many bytes are quoted.
fn icmpv4_error(kind: u8, code: u8, body: u32, about: &[u8], quoted: usize) -> Vec<u8> {
    let mut message =
        [&[kind, code, 0, 0][..], &body.to_be_bytes(), &about[..quoted.min(about.len())]].concat();
    let sum = wire::checksum::Sum::of(&message).checksum();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    ipv4_packet(
        "203.0.113.7",
        &ipv4::Packet::parse(about).unwrap().source().to_string(),
        protocol::ICMPV4,
        &message,
    )
}

/// Source, destination, type, code and the second four bytes of an ICMPv6 message whose checksum is right.
fn read_icmpv6(packet: &[u8]) -> (Ipv6Addr, Ipv6Addr, [u8; 2], u32, Vec<u8>) {
    let packet = ipv6::Packet::parse(packet).unwrap();
    let message = wire::icmpv6::Message::of_packet(&packet).unwrap();
    let sum = packet.pseudo_header(packet.payload_length().into(), protocol::ICMPV6);
    assert!((sum + wire::checksum::Sum::of(packet.payload())).is_valid());
    let code = [packet.payload()[0], packet.payload()[1]];
    (packet.source(), packet.destination(), code, message.body(), packet.payload()[8..].to_vec())
}

const US: &str = "2001:db8:1::2";

#[test]
fn fragmentation_needed_outside_is_packet_too_big_inside() {
    let (here, _) = broker();
    let inner = ipv6_packet("2001:db8:100::5", "2001:db8:ffff::1", 1400);
    let outer = carried(&here, &inner).unwrap();
    for (said, told) in [(1400, 1380), (1300, 1280), (576, 1280), (0, 1280), (1480, 1460)] {
        let heard = here.handle_icmp_error(&icmpv4_error(3, 4, said, &outer, 1500), address(US)).unwrap();
        assert_eq!(heard.path_mtu, Some((address("192.0.2.1"), told)));
        let (source, destination, code, mtu, quoted) = read_icmpv6(&heard.answer.unwrap());
        assert_eq!((source, destination), (address(US), address("2001:db8:100::5")));
        assert_eq!((code, mtu), ([2, 0], told));
        assert_eq!(quoted, inner[..1232]);
    }
    // As little as RFC 792 asks for: the path is known, and the next packet is answered by the device.
    let heard = here.handle_icmp_error(&icmpv4_error(3, 4, 1400, &outer, 28), address(US)).unwrap();
    assert_eq!((heard.path_mtu, heard.answer), (Some((address("192.0.2.1"), 1380)), None));
}

#[test]
fn other_errors_are_address_unreachable() {
    let (here, _) = broker();
    let outer = carried(&here, &ipv6_packet("2001:db8:100::5", "2001:db8:ffff::1", 100)).unwrap();
    for (kind, code) in [(3, 0), (3, 1), (3, 2), (3, 13), (11, 0)] {
        let heard = here.handle_icmp_error(&icmpv4_error(kind, code, 0, &outer, 68), address(US)).unwrap();
        assert_eq!(heard.path_mtu, None);
        let (_, destination, code, _, _) = read_icmpv6(&heard.answer.unwrap());
        assert_eq!((destination, code), (address("2001:db8:100::5"), [1, 3]));
    }
}

#[test]
fn errors_about_what_is_not_ours_are_nothing() {
    let (here, there) = broker();
    let inner = ipv6_packet("2001:db8:100::5", "2001:db8:ffff::1", 100);
    let outer = carried(&here, &inner).unwrap();
    let error = icmpv4_error(3, 4, 1400, &outer, 1500);
    assert_eq!(there.handle_icmp_error(&error, address(US)), None, "to somebody else");
    let mut damaged = error.clone();
    damaged[25] ^= 1;
    assert_eq!(here.handle_icmp_error(&damaged, address(US)), None, "a wrong checksum");
    let quench = icmpv4_error(4, 0, 0, &outer, 1500);
    assert_eq!(here.handle_icmp_error(&quench, address(US)), None);
    for (place, value) in [(9, protocol::UDP), (12, 1), (19, 9)] {
        let mut other = outer.clone();
        other[place] = value;
        let mut error = icmpv4_error(3, 4, 1400, &other, 1500);
        error[16..20].copy_from_slice(&[198, 51, 100, 7]);
        assert_eq!(here.handle_icmp_error(&error, address(US)), None, "byte {place} of the quoted header");
    }
    // No error about an error.
    let mut icmp = ipv6_packet("2001:db8:100::5", "2001:db8:ffff::1", 100);
    icmp[6] = protocol::ICMPV6;
    icmp[40] = 1;
    let outer = carried(&here, &icmp).unwrap();
    assert_eq!(
        here.handle_icmp_error(&icmpv4_error(3, 1, 0, &outer, 1500), address(US)).unwrap().answer,
        None
    );
}

#[test]
fn too_big_outside_is_fragmentation_needed_inside_where_ipv4_is_carried() {
    let here = end(Kind::FourInSix { remote: Some(address("2001:db8::2")) }, "2001:db8::1", &[]);
    let inner = ipv4_packet("192.0.0.2", "203.0.113.1", protocol::UDP, &[7; 1000]);
    let outer = carried(&here, &inner).unwrap();
    let mut out = [0; wire::icmp_error::MAX_LEN];
    for (reason, expected) in [
        (wire::icmp_error::Reason::PacketTooBig { mtu: 1400 }, ([3, 4], 1360)),
        (wire::icmp_error::Reason::PacketTooBig { mtu: 1000 }, ([3, 4], 1240)),
        (wire::icmp_error::Reason::NoRoute, ([3, 1], 0)),
        (wire::icmp_error::Reason::HopLimitExceeded, ([3, 1], 0)),
    ] {
        let length = wire::icmp_error::build(reason, address("2001:db8::77"), &outer, &mut out).unwrap();
        let heard = here.handle_icmp_error(&out[..length], address("192.0.0.8")).unwrap();
        assert_eq!(heard.path_mtu.map_or(0, |(_, mtu)| mtu), expected.1);
        let answer = heard.answer.unwrap();
        let packet = ipv4::Packet::parse(&answer).unwrap();
        assert_eq!((packet.source(), packet.destination()), (address("192.0.0.8"), address("192.0.0.2")));
        assert!(packet.has_valid_checksum() && wire::checksum::Sum::of(packet.payload()).is_valid());
        let message = wire::icmpv4::Message::parse(packet.payload()).unwrap();
        assert_eq!(([message.message_type(), message.code()], message.body()), expected);
        assert_eq!(message.payload(), &inner[..548]);
    }
}

proptest! {
    #[test]
    fn arbitrary_packets_do_no_harm(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..120),
        first in prop::sample::select(vec![0x45u8, 0x46, 0x60]),
    ) {
        if let Some(byte) = bytes.first_mut() { *byte = first; }
        let kind = Kind::FourInSix { remote: Some(Ipv6Addr::LOCALHOST) };
        for end in [broker().0, six_to_four("192.0.2.1", None), six_rd("10.0.0.1"), end(kind, "::2", &[])] {
            let _ = end.decapsulate(&bytes);
            let _ = end.accept(Outer { source: address("192.0.2.1"), ecn: Ecn::Ce }, &bytes);
            let _ = carried(&end, &bytes);
            for from in [address::<IpAddr>(US), address("192.0.0.8")] {
                let _ = end.handle_icmp_error(&bytes, from);
            }
        }
    }

    #[test]
    fn what_comes_from_the_domain_has_its_senders_address(outer: u32, source: u128) {
        let end = six_to_four("192.0.2.1", Some("192.88.99.1"));
        let source = Ipv6Addr::from_bits(source >> 16 | 0x2002 << 112);
        let inner = ipv6_packet(&source.to_string(), "2002:c000:201::5", 0);
        let outer = Ipv4Addr::from_bits(outer);
        let accepted = heard(&end, &outer.to_string(), &inner);
        let IpAddr::V6(source) = IpAddr::V6(source) else { unreachable!() };
        prop_assert_eq!(accepted.is_ok(), source.segments()[1..3] == [(outer.to_bits() >> 16) as u16, outer.to_bits() as u16]);
    }
}
