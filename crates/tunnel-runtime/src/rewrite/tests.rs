//! What the programs make of packets: addresses replaced, checksums right, nothing else changed.

use linux::bpf::{Program, ProgramKind, verdict};
use linux::netns;
use proptest::prelude::*;
use wire::checksum::Sum;
use wire::{icmpv6, ipv6, protocol};

use super::*;

const LINK: usize = 14;
const TUN: u32 = 1;

/// Both programs as they would be at one end, with Ethernet, and a pair of hosts that they know.
struct Scene {
    tables: Tables<Map>,
    outgoing: Program,
    incoming: Program,
    rewrite: Rewrite,
}

impl Scene {
    fn new(hop: Option<NextHop>) -> Self {
        let address = |text: &str| text.parse::<Ipv6Addr>().unwrap();
        let rewrite = Rewrite {
            inner: (address("2001:db8:a::1"), address("2001:db8:b::2")),
            outer: (address("2001:db8:a1::1234:5678"), address("2001:db8:b1:0:9abc::def0")),
        };
        let tables = Tables::create(2, 4, Map::of).unwrap();
        let load = |code| Program::load(ProgramKind::SchedCls, &code).unwrap();
        let (outgoing, incoming) =
            (load(program::outgoing(&tables, LINK as u8)), load(program::incoming(&tables, LINK as u8, TUN)));
        let Rewrite { inner, outer } = rewrite;
        if let Some(hop) = &hop {
            let value = outgoing_value(inner, outer, 1, hop);
            tables.outgoing.set(&key(inner.0, inner.1), &value).unwrap();
        }
        let value = incoming_value(&rewrite, 1, &hop.unwrap_or(NextHop::LOCAL));
        tables.incoming.set(&key(outer.1, outer.0), &value).unwrap();
        Scene { tables, outgoing, incoming, rewrite }
    }

    fn run(program: &Program, packet: &[u8]) -> (i32, Vec<u8>) {
        let mut frame = vec![2; LINK];
        frame[12..].copy_from_slice(&0x86dd_u16.to_be_bytes());
        frame.extend(packet);
        let (verdict, out) = program.test_run(&frame).unwrap();
        assert_eq!(out[..LINK], frame[..LINK]);
        (verdict, out[LINK..].to_vec())
    }
}

fn directly() -> Option<NextHop> {
    Some(NextHop { interface: 1, neighbor: "fe80::1".parse().ok(), mtu: 1500 })
}

/// A packet with the checksum that is right.
fn packet(
    (source, destination): Inner,
    next_header: u8,
    hop_limit: u8,
    label: u32,
    transport: &[u8],
) -> Vec<u8> {
    let header = ipv6::Header {
        traffic_class: 0x2e,
        flow_label: label & 0xf_ffff,
        payload_length: transport.len() as u16,
        next_header,
        hop_limit,
        source,
        destination,
    };
    let mut packet = [&header.to_bytes()[..], transport].concat();
    let at = match next_header {
        protocol::TCP => 56,
        protocol::UDP => {
            packet[44..46].copy_from_slice(&(transport.len() as u16).to_be_bytes());
            46
        }
        protocol::ICMPV6 => 42,
        _ => return packet,
    };
    packet[at..at + 2].fill(0);
    let pseudo = Sum::pseudo_ipv6(source, destination, transport.len() as u32, next_header);
    let sum = pseudo + Sum::of(&packet[40..]);
    let sum = if next_header == protocol::UDP { sum.udp_checksum() } else { sum.checksum() };
    packet[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    packet
}

fn swapped((one, other): Inner) -> Inner {
    (other, one)
}

fn transport() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let protocols = prop::sample::select(vec![protocol::TCP, protocol::UDP, protocol::ICMPV6, protocol::ESP]);
    (protocols, prop::collection::vec(any::<u8>(), 20..1460)).prop_map(|(next_header, mut bytes)| {
        if next_header == protocol::ICMPV6 {
            bytes[0] |= 0x80; // no error
        }
        (next_header, bytes)
    })
}

/// The two ways of zero are one where a checksum has been changed (RFC 1624).
fn same(one: &[u8], other: &[u8]) -> bool {
    let plain = |packet: &[u8]| {
        let mut packet = packet.to_vec();
        let at = [(protocol::TCP, 56), (protocol::ICMPV6, 42)].iter().find(|(n, _)| *n == packet[6]);
        if let Some((_, at)) = at
            && packet[*at..at + 2] == [0xff; 2]
        {
            packet[*at..at + 2].fill(0);
        }
        packet
    };
    plain(one) == plain(other)
}

#[test]
fn addresses_are_replaced_and_checksums_stay_right() {
    if !netns::available_to_tests() {
        return;
    }
    let (scene, indirect) = (Scene::new(directly()), Scene::new(None));
    let Rewrite { inner, outer } = scene.rewrite;
    let count = std::cell::Cell::new(0);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(2_000));
    let cases = (transport(), any::<u32>(), any::<u8>());
    let result = runner.run(&cases, |((next_header, bytes), label, hop_limit)| {
        let with = |addresses, hop_limit| packet(addresses, next_header, hop_limit, label, &bytes);
        let (result, out) = Scene::run(&scene.outgoing, &with(inner, hop_limit));
        prop_assert_eq!(result, verdict::REDIRECT);
        prop_assert!(same(&out, &with(outer, hop_limit)));

        let from_peer = with(swapped(outer), hop_limit);
        // One that cannot be forwarded is the stack's to refuse.
        let left = if hop_limit < 2 { hop_limit } else { hop_limit - 1 };
        for (scene, left) in [(&scene, left), (&indirect, hop_limit)] {
            let (result, out) = Scene::run(&scene.incoming, &from_peer);
            prop_assert_eq!(result, verdict::REDIRECT);
            prop_assert!(same(&out, &with(swapped(inner), left)));
        }
        count.set(count.get() + 1);
        Ok(())
    });
    result.unwrap();
    let sums = scene.tables.counters.sum(&1u32.to_ne_bytes()).unwrap();
    assert_eq!([sums[0], sums[2]], [count.get(); 2]);
}

#[test]
fn errors_from_the_path_get_the_true_addresses_also_in_what_they_quote() {
    if !netns::available_to_tests() {
        return;
    }
    let scene = Scene::new(directly());
    let Rewrite { inner, outer } = scene.rewrite;
    let router: Ipv6Addr = "2001:db8:ff::1".parse().unwrap();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(1_000));
    let cases = (transport(), 1u8..=127, any::<u32>(), 40usize..1400);
    let result = runner.run(&cases, |((next_header, bytes), kind, info, quoted)| {
        let error = |addresses, destination| {
            let invoking = packet(addresses, next_header, 9, info, &bytes);
            // As much as a router quotes; the checksum in there is that of the packet as it was outside.
            let outside = packet(outer, next_header, 9, info, &bytes);
            let mut quote = outside[..quoted.min(outside.len())].to_vec();
            quote[..40].copy_from_slice(&invoking[..40]);
            let message = [&[kind, 3, 0, 0], &info.to_be_bytes()[..], &quote].concat();
            packet((router, destination), protocol::ICMPV6, 60, info, &message)
        };
        let (result, out) = Scene::run(&scene.incoming, &error(outer, outer.0));
        prop_assert_eq!(result, verdict::REDIRECT);
        prop_assert!(same(&out, &error(inner, inner.0)));
        // About somebody else's packets, or to somebody else.
        for strange in [error(swapped(outer), outer.0), error(outer, outer.1), error(inner, inner.0)] {
            prop_assert_eq!(Scene::run(&scene.incoming, &strange), (verdict::NEXT, strange));
        }
        Ok(())
    });
    result.unwrap();
}

#[test]
fn all_else_stays_as_it_is() {
    if !netns::available_to_tests() {
        return;
    }
    let scene = Scene::new(directly());
    let Rewrite { inner, outer } = scene.rewrite;
    let long = [7; 48];
    let mut unchecked = packet(inner, protocol::UDP, 64, 0, &long);
    unchecked[46..48].fill(0);
    let mut short = packet(inner, protocol::UDP, 64, 0, &long);
    short.push(0);
    let mut error = long;
    error[0] = icmpv6::DESTINATION_UNREACHABLE;
    let mut outgoing = vec![
        packet(swapped(inner), protocol::UDP, 64, 0, &long),
        packet(inner, protocol::AUTHENTICATION, 64, 0, &long),
        packet(inner, protocol::FRAGMENT, 64, 0, &long),
        packet(inner, protocol::DESTINATION_OPTIONS, 64, 0, &long),
        packet(inner, protocol::ICMPV6, 64, 0, &error),
        packet(inner, protocol::UDP, 64, 0, &[1; 1461]),
        unchecked,
        short,
    ];
    let mut ipv4 = vec![0x45; 60];
    ipv4[2..4].copy_from_slice(&60u16.to_be_bytes());
    outgoing.push(ipv4);
    for packet in &outgoing {
        assert_eq!(Scene::run(&scene.outgoing, packet), (verdict::NEXT, packet.clone()), "{packet:02x?}");
    }
    let incoming = [
        packet(outer, protocol::UDP, 64, 0, &long),
        packet((outer.1, inner.0), protocol::UDP, 64, 0, &long),
        packet(swapped(outer), protocol::AUTHENTICATION, 64, 0, &long),
        packet(swapped(outer), protocol::ICMPV6, 64, 0, &error),
        packet(swapped(outer), protocol::ICMPV6, 64, 0, &error[..8]),
        packet(swapped(inner), protocol::UDP, 64, 0, &long),
    ];
    for packet in &incoming {
        assert_eq!(Scene::run(&scene.incoming, packet), (verdict::NEXT, packet.clone()), "{packet:02x?}");
    }
}
