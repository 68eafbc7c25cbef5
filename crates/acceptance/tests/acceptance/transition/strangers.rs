//! Packets of our own making, at the outer addresses: fragments, options, and what nobody should believe.

use linux::netns::Namespace;
use linux::raw::RawSocket;
use wire::checksum::Sum;
use wire::{icmpv6, ipv4, ipv6, protocol};

use lab::patience::wait_until;

use super::scene::{INTERNET, TransitionScene};
use super::with_broker;

/// An echo request.
fn echo(source: &str, destination: &str, payload: usize, ecn: u8) -> Vec<u8> {
    let (source, destination) =
        (source.parse().expect("an address"), destination.parse().expect("an address"));
    let mut message = vec![7; 8 + payload];
    message[..4].copy_from_slice(&[icmpv6::ECHO_REQUEST, 0, 0, 0]);
    let sum =
        Sum::pseudo_ipv6(source, destination, message.len() as u32, protocol::ICMPV6) + Sum::of(&message);
    message[2..4].copy_from_slice(&sum.checksum().to_be_bytes());
    let header = ipv6::Header {
        traffic_class: ecn,
        flow_label: 0,
        payload_length: message.len() as u16,
        next_header: protocol::ICMPV6,
        hop_limit: 60,
        source,
        destination,
    };
    [&header.to_bytes()[..], &message].concat()
}

/// A part of an outer packet for the gateway, from somebody.
fn outer(source: &str, (offset, more): (usize, bool), tos: u8, part: &[u8]) -> Vec<u8> {
    let header = ipv4::Header {
        type_of_service: tos,
        total_length: (20 + part.len()) as u16,
        identification: 77,
        dont_fragment: false,
        time_to_live: 60,
        protocol: protocol::IPV6,
        source: source.parse().expect("an address"),
        destination: "198.51.100.7".parse().expect("an address"),
    };
    let mut header = header.to_bytes();
    let field = (offset / 8) as u16 | if more { ipv4::MORE_FRAGMENTS } else { 0 };
    header[6..8].copy_from_slice(&field.to_be_bytes());
    header[10..12].fill(0);
    let sum = Sum::of(&header).checksum();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    [&header[..], part].concat()
}

const WHOLE: (usize, bool) = (0, false);

fn send(scene: &TransitionScene, from: &str, packet: &[u8]) {
    let namespace = Namespace::open(scene.node(from).name()).expect("the namespace");
    let sent = namespace.run(|| RawSocket::ipv4(protocol::IPV6, "wan").expect("a socket").send(packet));
    assert!(sent.expect("the namespace").expect("a packet that leaves"));
}

/// Echo requests that the host has received.
fn requests(scene: &TransitionScene) -> u64 {
    let counters = scene.run("host", &["cat", "/proc/net/snmp6"]);
    let line = counters.lines().find(|line| line.starts_with("Icmp6InEchos ")).expect("a counter");
    line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}

fn drops(scene: &TransitionScene, reason: &str) -> u64 {
    scene.tunnel("gw")["drops"][reason].as_u64().expect("a number")
}

#[test]
fn fragments_and_options_arrive() {
    let Some(scene) = with_broker() else { return };
    let host = scene.address("host", "2001:db8:100:").expect("an address");
    let before = requests(&scene);
    let inner = echo(INTERNET, &host, 1_000, 0);
    let (first, second) = inner.split_at(800);
    send(&scene, "far", &outer("192.0.2.1", (0, true), 0, first));
    send(&scene, "far", &outer("192.0.2.1", (800, false), 0, second));
    wait_until("a packet in two fragments", || requests(&scene) == before + 1);

    let mut with_options = outer("192.0.2.1", WHOLE, 0, &inner);
    with_options.splice(20..20, [1, 1, 1, 0]);
    with_options[0] = 0x46;
    let length = with_options.len() as u16;
    with_options[2..4].copy_from_slice(&length.to_be_bytes());
    with_options[10..12].fill(0);
    let sum = Sum::of(&with_options[..24]).checksum();
    with_options[10..12].copy_from_slice(&sum.to_be_bytes());
    send(&scene, "far", &with_options);
    wait_until("a packet with options", || requests(&scene) == before + 2);

    // What comes in fragments is judged by the same rules.
    let spoofed = drops(&scene, "spoofed");
    let inner = echo("2001:db8:100::99", &host, 1_000, 0);
    let (first, second) = inner.split_at(800);
    send(&scene, "far", &outer("192.0.2.1", (0, true), 0, first));
    send(&scene, "far", &outer("192.0.2.1", (800, false), 0, second));
    wait_until("it is refused", || drops(&scene, "spoofed") == spoofed + 1);
    assert_eq!(requests(&scene), before + 2);
}

#[test]
fn what_nobody_should_believe_is_dropped_and_counted() {
    let Some(scene) = with_broker() else { return };
    let host = scene.address("host", "2001:db8:100:").expect("an address");
    let before = requests(&scene);
    let unreachable = || {
        scene
            .run("gw", &["cat", "/proc/net/snmp"])
            .lines()
            .filter(|line| line.starts_with("Icmp:"))
            .nth(1)
            .map(str::to_owned)
    };
    let told = unreachable();
    for (from, outer_source, inner_source, ecn, reason) in [
        ("relay", "203.0.113.9", INTERNET, 0, "stranger"),
        ("far", "192.0.2.1", "2001:db8:100::5", 0, "spoofed"),
        ("far", "192.0.2.1", "::ffff:10.0.0.1", 0, "source"),
        ("far", "192.0.2.1", "ff0e::1", 0, "source"),
        ("far", "192.0.2.1", "::1", 0, "source"),
        ("far", "192.0.2.1", "fe80::1", 0, "source"),
        ("far", "192.0.2.1", INTERNET, 3, "congestion"),
    ] {
        let dropped = drops(&scene, reason);
        send(&scene, from, &outer(outer_source, WHOLE, ecn, &echo(inner_source, &host, 100, 0)));
        wait_until("a count", || drops(&scene, reason) == dropped + 1);
    }
    let dropped = drops(&scene, "malformed");
    send(&scene, "far", &outer("192.0.2.1", WHOLE, 0, &echo(INTERNET, &host, 100, 0)[..100]));
    wait_until("a count", || drops(&scene, "malformed") == dropped + 1);
    assert_eq!(requests(&scene), before, "nothing came in");
    assert_eq!(unreachable(), told, "nobody was answered");
}
