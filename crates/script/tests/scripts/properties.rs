//! What holds for any packet and any script over it.

use proptest::prelude::*;
use script::checksum::Layout;
use script::packet::Packet;
use script::vm::{Limits, Script};
use wire::checksum::TransportChecksum;

use crate::host::{Bench, checksums_are_right, frame, ipv4, ipv6, tcp, udp};

fn a_packet() -> impl Strategy<Value = Packet> {
    let payload = proptest::collection::vec(any::<u8>(), 0..60);
    (payload, 0usize..9, proptest::collection::vec(any::<u16>(), 0..3)).prop_map(|(payload, kind, vlan)| {
        let udp = udp(1000, 2000, &payload);
        let tcp = tcp(1000, 2000, 0x18, &[2, 4, 5, 0xb4], &payload);
        let behind = |next: u8, rest: &[u8]| [&[next, 0, 1, 4, 0, 0, 0, 0], rest].concat();
        let first_fragment = |next: u8, rest: &[u8]| [&[next, 0, 0, 0, 0, 0, 0, 1], rest].concat();
        let icmp = [&[128, 0, 0, 0], &payload[..]].concat();
        match kind {
            0 => frame(0x0800, &vlan, &ipv4(17, &udp)),
            1 => frame(0x0800, &vlan, &ipv4(6, &tcp)),
            2 => frame(0x0800, &vlan, &ipv4(1, &icmp)),
            3 => frame(0x86dd, &vlan, &ipv6(17, &udp)),
            4 => frame(0x86dd, &vlan, &ipv6(6, &tcp)),
            5 => frame(0x86dd, &vlan, &ipv6(58, &icmp)),
            6 => frame(0x86dd, &vlan, &ipv6(0, &behind(60, &behind(6, &tcp)))),
            7 => frame(0x86dd, &vlan, &ipv6(44, &first_fragment(17, &udp))),
            _ => frame(0x86dd, &vlan, &ipv6(43, &[&[17, 0, 0, 0, 0, 0, 0, 0], &udp[..]].concat())),
        }
    })
}

/// The octets that say where what is, and so which checksum covers what, and the checksums.
fn frozen(bytes: &[u8]) -> Vec<usize> {
    let Some(layout) = Layout::of_frame(bytes) else { return (0..bytes.len()).collect() };
    let mut frozen: Vec<_> = (12..layout.network).collect();
    let fixed: &[usize] = if layout.version == 4 { &[0, 2, 3, 6, 7, 9, 10, 11] } else { &[0, 4, 5, 6] };
    frozen.extend(fixed.iter().map(|at| layout.network + at));
    if let Some(transport) = layout.transport {
        frozen.extend(layout.header_end..transport.start);
        frozen.extend([transport.checksum, transport.checksum + 1]);
        if transport.protocol == 17 {
            frozen.extend([transport.start + 4, transport.start + 5]);
        }
    }
    frozen
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn checksums_after_random_writes_are_those_computed_anew(
        packet in a_packet(),
        writes in proptest::collection::vec((any::<u16>(), proptest::collection::vec(any::<u8>(), 1..40)), 1..20),
    ) {
        let mut packet = packet;
        prop_assert!(checksums_are_right(packet.bytes()));
        let frozen = frozen(packet.bytes());
        let mut body = String::new();
        for (at, octets) in writes {
            let at = usize::from(at) % packet.bytes().len();
            let end = packet.bytes().len().min(at + octets.len());
            // Octets that say where what is keep their values; the write goes over them all the same, but not over
            // a checksum, which would be taken as it is.
            let layout = Layout::of_frame(packet.bytes()).expect("an IP packet");
            let ranges = |field: usize| at < field + 2 && field < end;
            if layout.version == 4 && ranges(layout.network + 10)
                || layout.transport.is_some_and(|transport| ranges(transport.checksum)) {
                continue;
            }
            let mut octets = octets[..end - at].to_vec();
            for &place in frozen.iter().filter(|place| (at..end).contains(place)) {
                octets[place - at] = packet.bytes()[place];
            }
            let text: String = octets.iter().map(|octet| format!("\\x{octet:02x}")).collect();
            body.push_str(&format!("p:raw({at}, {}):set('{text}')\n", octets.len()));
        }
        Bench::body(&body).pass(&mut packet);
        prop_assert!(checksums_are_right(packet.bytes()), "{}", body);
    }

    #[test]
    fn no_view_of_random_octets_makes_anything_panic(
        mut bytes in proptest::collection::vec(any::<u8>(), 14..200),
        ethertype in prop_oneof![Just(0x0800u16), Just(0x86dd), Just(0x0806), Just(0x8100), any::<u16>()],
        first in prop_oneof![Just(0x45u8), Just(0x60), Just(0x4f), any::<u8>()],
        next in prop_oneof![Just(6u8), Just(17), Just(1), Just(58), Just(0), Just(44), any::<u8>()],
    ) {
        bytes[12..14].copy_from_slice(&ethertype.to_be_bytes());
        for (at, value) in [(14, first), (20, next), (23, next)] {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        let mut packet = Packet::of_frame(bytes, TransportChecksum::Complete);
        everything().pass(&mut packet);
    }

    #[test]
    fn checksums_stay_right_while_packets_grow_and_shrink(
        packet in a_packet(),
        steps in proptest::collection::vec((any::<u16>(), 0u8..10, any::<bool>()), 1..20),
    ) {
        let mut packet = packet;
        let layout = Layout::of_frame(packet.bytes()).expect("an IP packet");
        // Between the IP header and that of the transport, fields that say where what is are the script's.
        let first = layout.transport.map_or(layout.header_end, |transport| {
            transport.start + match transport.protocol { 6 => 20, 17 => 8, _ => 4 }
        });
        let room = packet.bytes().len() - first;
        let mut body = String::new();
        for (at, pairs, grows) in steps {
            let (at, count) = (first + usize::from(at) % (room + 1), usize::from(pairs) * 2);
            let method = if grows { "grow" } else { "shrink" };
            // What is refused must change nothing.
            body.push_str(&format!("pcall(p.{method}, p, {at}, {count})\n"));
        }
        Bench::body(&body).pass(&mut packet);
        prop_assert!(checksums_are_right(packet.bytes()), "{}", body);
    }
}

/// Looks into every protocol within every other, gets and sets each field, grows and shrinks the packet.
fn everything() -> Bench {
    let mut source = String::from("local DEPTH, PROTOCOLS = 4, {\n");
    for protocol in script::vm::builtin_protocols().expect("the declarations are right").iter() {
        source.push_str(&format!("{{ protocol = {}, fields = {{", protocol.name));
        for field in &protocol.fields {
            source.push_str(&format!("{{ {:?}, {:?} }},", field.name, field.kind().name()));
        }
        source.push_str("} },\n");
    }
    source.push_str("}\n");
    source.push_str(include_str!("everything.lua"));
    let limits = Limits { instructions: 50_000_000, ..Limits::default() };
    Bench::with(Script::new("everything.lua", &source), limits)
}
