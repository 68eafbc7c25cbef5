use std::net::SocketAddrV6;

use linux::netns;
use linux::nft::{self, PrefixDelivery};
use linux::packet::{self, PacketSocket};
use linux::udp::{EndpointOptions, EndpointSocket, MAX_RECEIVE, SendOutcome, SharedSocket};
use wire::checksum::Sum;
use wire::ecn::Ecn;

use crate::network::{Node, Pair, dark, endpoint, eventually, routed_pair};

const AT_A: &str = "[2001:db8:a1::1]:4000";
const HEARD: &str = "[2001:db8:b1::77]:50000";
const UNHEARD: [&str; 2] = ["[2001:db8:b1::77]:50001", "[2001:db8:b1::78]:50000"];

fn shared(node: &Node, capacity: u32, heard: &[&str]) -> SharedSocket {
    let socket = node.run(|| SharedSocket::open(capacity, &EndpointOptions::default()).unwrap());
    for local in heard {
        socket.lookup_table().insert(endpoint(local)).unwrap();
    }
    socket
}

fn open(node: &Node, local: &str, remote: Option<&str>) -> EndpointSocket {
    node.run(|| {
        EndpointSocket::open(endpoint(local), remote.map(endpoint), &EndpointOptions::default()).unwrap()
    })
}

/// Sends to each, and tells to which of them the datagrams were that came to the socket: one at least.
fn arrive(from: &EndpointSocket, to: &[&str], socket: &SharedSocket) -> Vec<SocketAddrV6> {
    for to in to {
        assert_eq!(from.send(b"hello", None, Some(endpoint(to)), 0).unwrap(), SendOutcome::Sent);
    }
    let mut receive = || socket.recv(&mut [0; 100]).unwrap().map(|(_, destination)| destination);
    // It may have to wait for the neighbor, as long as the machine is busy. The others are right behind it.
    let first = eventually(&mut receive);
    std::thread::sleep(std::time::Duration::from_millis(100));
    std::iter::once(first).chain(std::iter::from_fn(receive)).collect()
}

#[test]
fn only_what_is_in_the_table_is_heard_and_with_its_destination() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = routed_pair();
    let socket = shared(&pair.b, 8, &[HEARD]);
    let a = open(&pair.a, AT_A, None);
    let all = [HEARD, UNHEARD[0], UNHEARD[1]];
    assert_eq!(arrive(&a, &all, &socket), [endpoint(HEARD)]);
    socket.lookup_table().insert(endpoint(UNHEARD[1])).unwrap();
    assert_eq!(arrive(&a, &all, &socket), [endpoint(HEARD), endpoint(UNHEARD[1])]);
    assert!(socket.lookup_table().remove(endpoint(HEARD)).unwrap());
    assert!(!socket.lookup_table().remove(endpoint(HEARD)).unwrap());
    assert_eq!(arrive(&a, &all, &socket), [endpoint(UNHEARD[1])]);
    // The sender is in another namespace, which the program is none of the business of.
    let at_a = open(&pair.a, "[2001:db8:a1::2]:1", None);
    assert_eq!(
        open(&pair.a, "[2001:db8:a1::3]:1", None).send(b"x", None, Some(at_a.local()), 0).unwrap(),
        SendOutcome::Sent
    );
    eventually(|| at_a.recv(&mut [0; 10]).unwrap());
}

#[test]
fn batches_ecn_bits_and_sources_come_as_with_a_socket_of_its_own() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = routed_pair();
    let socket = shared(&pair.b, 8, &[HEARD]);
    let a = open(&pair.a, AT_A, Some(HEARD));
    let data: Vec<u8> = (0..20 * 1200 - 7).map(|i: usize| (i / 1200) as u8).collect();
    assert_eq!(a.send(&data, Some(1200), None, 0b10).unwrap(), SendOutcome::Sent);
    let (mut arrived, mut receives, mut buffer) = (Vec::new(), 0, vec![0; MAX_RECEIVE]);
    while arrived.len() < data.len() {
        let (received, destination) = eventually(|| socket.recv(&mut buffer).unwrap());
        assert_eq!(
            (received.source, received.ecn, destination),
            (endpoint(AT_A), Ecn::Ect0, endpoint(HEARD))
        );
        assert_eq!(received.segment_size, received.len.min(1200));
        arrived.extend_from_slice(&buffer[..received.len]);
        receives += 1;
    }
    assert_eq!(arrived, data);
    assert!(receives < 20, "{receives} receives");
}

#[test]
fn connected_sockets_come_before_it_and_sockets_on_every_address_behind() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = routed_pair();
    let wildcard = open(&pair.b, "[::]:50000", None);
    let connected = open(&pair.b, "[2001:db8:b1::79]:50002", Some(AT_A));
    let socket = shared(&pair.b, 8, &[HEARD, "[2001:db8:b1::79]:50002"]);
    let a = open(&pair.a, AT_A, None);
    let sent = [HEARD, UNHEARD[1], "[2001:db8:b1::79]:50002"];
    assert_eq!(arrive(&a, &sent, &socket), [endpoint(HEARD)]);
    assert!(wildcard.recv(&mut [0; 10]).unwrap().is_some());
    assert!(wildcard.recv(&mut [0; 10]).unwrap().is_none());
    assert!(connected.recv(&mut [0; 10]).unwrap().is_some());
    // Who else writes to the connected one's address and port is heard.
    let other = open(&pair.a, "[2001:db8:a1::2]:4000", None);
    assert_eq!(arrive(&other, &sent[2..], &socket), [endpoint(sent[2])]);
    // And answers leave from a port that somebody else has.
    assert_eq!(socket.send(endpoint(HEARD), a.local(), b"back", 0b11).unwrap(), SendOutcome::Sent);
    let received = eventually(|| a.recv(&mut [0; 10]).unwrap());
    assert_eq!((received.source, received.ecn, received.len), (endpoint(HEARD), Ecn::Ce, 4));
}

#[test]
fn two_of_them_in_a_namespace_do_not_meet_and_each_goes_alone() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = routed_pair();
    let first = shared(&pair.b, 8, &[HEARD]);
    let second = shared(&pair.b, 8, &[UNHEARD[0]]);
    let a = open(&pair.a, AT_A, None);
    assert_eq!(arrive(&a, &[HEARD, UNHEARD[0]], &first), [endpoint(HEARD)]);
    assert_eq!(arrive(&a, &[], &second), [endpoint(UNHEARD[0])]);
    drop(first);
    assert_eq!(arrive(&a, &[HEARD, UNHEARD[0]], &second), [endpoint(UNHEARD[0])]);
    // What it heard is anybody's again.
    let own = open(&pair.b, HEARD, None);
    a.send(b"x", None, Some(own.local()), 0).unwrap();
    eventually(|| own.recv(&mut [0; 10]).unwrap());
}

#[test]
fn a_dark_prefix_stays_dark_but_for_what_is_heard() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = routed_pair();
    pair.b.run(|| {
        nft::darken(&dark("mt6d0", "2001:db8:b1::/64", PrefixDelivery::Routed, &[]), "").unwrap();
    });
    let socket = shared(&pair.b, 8, &[HEARD]);
    let a = open(&pair.a, AT_A, None);
    assert_eq!(arrive(&a, &[HEARD, UNHEARD[0], UNHEARD[1]], &socket), [endpoint(HEARD)]);
    // No echo, no port unreachable, no reset, at heard addresses as at others.
    let index = pair.a.link().index;
    let capture = pair.a.run(|| PacketSocket::open(index, &packet::PacketOptions::default()).unwrap());
    for address in ["2001:db8:b1::77", "2001:db8:b1::78"] {
        assert!(!pair.a.sh(&format!("ping -6 -c 1 -W 0.3 {address}")).0);
        pair.a.run(|| {
            for port in [50_000, 50_001] {
                let to = std::net::SocketAddr::new(address.parse().unwrap(), port);
                let patience = std::time::Duration::from_millis(200);
                assert!(std::net::TcpStream::connect_timeout(&to, patience).is_err());
                std::net::UdpSocket::bind("[::]:0").unwrap().send_to(b"x", to).unwrap();
            }
        });
    }
    let mut frame = [0; 2000];
    while let Some(length) = capture.recv(&mut frame).unwrap() {
        let neighbor_discovery = frame[20] == 58 && (133..=136).contains(&frame[54]);
        assert!(length < 55 || frame[20] == 0 || neighbor_discovery, "{:?}", &frame[..length]);
    }
    // What is sent is not tracked either.
    assert_eq!(socket.send(endpoint(HEARD), a.local(), b"back", 0).unwrap(), SendOutcome::Sent);
    eventually(|| a.recv(&mut [0; 10]).unwrap());
    let tracked = pair.b.sh("cat /proc/sys/net/netfilter/nf_conntrack_count");
    assert!(!tracked.0 || tracked.1.trim() == "0", "{}", tracked.1);
}

/// The next frame that is UDP over IPv6.
fn next_udp(capture: &PacketSocket) -> Vec<u8> {
    let mut frame = [0; 2000];
    eventually(|| {
        let length = capture.recv(&mut frame).unwrap()?;
        (length > 62 && frame[20] == 17).then(|| frame[..length].to_vec())
    })
}

fn headers_are_those_of_a_socket(pair: &Pair, from: &str, to: &str) {
    for (auto, ranges) in [(1, 0), (1, 1), (0, 0), (2, 1)] {
        pair.b.must(&format!("echo {auto} > /proc/sys/net/ipv6/auto_flowlabels"));
        pair.b.must(&format!("echo {ranges} > /proc/sys/net/ipv6/flowlabel_state_ranges"));
        let (from, to) = (endpoint(from), endpoint(to));
        let index = pair.a.link().index;
        let capture = pair.a.run(|| PacketSocket::open(index, &packet::PacketOptions::default()).unwrap());
        let socket = pair.b.run(|| SharedSocket::open(8, &EndpointOptions::default()).unwrap());
        let own = pair.b.run(|| EndpointSocket::open(from, None, &EndpointOptions::default()).unwrap());
        for traffic_class in [0, 0b11] {
            assert_eq!(own.send(b"the same", None, Some(to), traffic_class).unwrap(), SendOutcome::Sent);
            let theirs = next_udp(&capture);
            let mut labels = Vec::new();
            for _ in 0..2 {
                assert_eq!(socket.send(from, to, b"the same", traffic_class).unwrap(), SendOutcome::Sent);
                let ours = next_udp(&capture);
                let label = |frame: &[u8]| wire::ipv6::Packet::parse(&frame[14..]).unwrap().flow_label();
                labels.push(label(&ours));
                // All of Ethernet, IPv6 and UDP, but the flow label and the checksum: a device may be left to compute
                // that, and on a veth nobody does.
                let rest = |frame: &[u8]| [&frame[..15], &frame[18..60], &frame[62..]].concat();
                assert_eq!(rest(&ours), rest(&theirs));
                assert_eq!(ours[15] >> 4, theirs[15] >> 4, "traffic class");
                for label in [label(&ours), label(&theirs)] {
                    assert_eq!(label != 0, auto == 1);
                    assert!(label == 0 || ranges == 0 || label & 0x8_0000 != 0, "{label:x}");
                }
                let payload = &ours[54..];
                let outer = wire::ipv6::Packet::parse(&ours[14..]).unwrap();
                let sum = outer.pseudo_header(payload.len() as u32, 17) + Sum::of(payload);
                assert!(sum.is_valid());
            }
            assert_eq!(labels[0], labels[1]);
        }
    }
}

#[test]
fn what_it_sends_has_the_headers_of_a_socket_of_its_own() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = routed_pair();
    headers_are_those_of_a_socket(&pair, HEARD, AT_A);
    // And on one link with the other.
    pair.b.must("ip route add local 2001:db8:1::77/128 dev lo");
    headers_are_those_of_a_socket(&pair, "[2001:db8:1::77]:50000", "[2001:db8:1::a]:4000");
}

#[test]
fn routes_that_depend_on_the_source_are_followed() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = routed_pair();
    pair.b.must("ip route del 2001:db8:a1::/64");
    pair.b.must("ip -6 rule add from 2001:db8:b1::/64 lookup 77");
    pair.b.must("ip route add 2001:db8:a1::/64 via 2001:db8:1::a table 77");
    let socket = shared(&pair.b, 8, &[HEARD]);
    let a = open(&pair.a, AT_A, None);
    assert_eq!(socket.send(endpoint(HEARD), a.local(), b"x", 0).unwrap(), SendOutcome::Sent);
    eventually(|| a.recv(&mut [0; 10]).unwrap());
    let elsewhere = endpoint("[2001:db8:1::77]:1");
    assert!(matches!(socket.send(elsewhere, a.local(), b"x", 0).unwrap(), SendOutcome::Unreachable(_)));
    assert_eq!(socket.send(endpoint(HEARD), a.local(), &[0; 1233], 0).unwrap(), SendOutcome::TooLong);
}

#[test]
fn there_may_be_many_and_no_more_than_were_asked_for() {
    if !netns::available_to_tests() {
        return;
    }
    const MANY: u16 = 20_000;
    let pair = routed_pair();
    let socket = shared(&pair.b, MANY.into(), &[]);
    let nth = |n: u16| SocketAddrV6::new(format!("2001:db8:b1::{n:x}").parse().unwrap(), 1024 + n, 0, 0);
    for n in 0..MANY {
        socket.lookup_table().insert(nth(n)).unwrap();
    }
    let full = socket.lookup_table().insert(nth(MANY)).unwrap_err();
    assert_eq!(full.raw_os_error(), Some(7), "{full}");
    let a = open(&pair.a, AT_A, None);
    let some: Vec<SocketAddrV6> = (0..MANY).step_by(999).map(nth).collect();
    let names: Vec<String> = some.iter().map(ToString::to_string).collect();
    assert_eq!(arrive(&a, &names.iter().map(String::as_str).collect::<Vec<_>>(), &socket), some);
    assert!(socket.lookup_table().insert(nth(8)).unwrap_err().already_exists());
    assert!(socket.lookup_table().remove(nth(7)).unwrap());
    socket.lookup_table().insert(nth(MANY)).unwrap();
}
