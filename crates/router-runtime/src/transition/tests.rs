//! The programs beside `router::transition`: the same packets, refused for the same reasons, the same bytes.

use std::net::{Ipv4Addr, Ipv6Addr};

use linux::bpf::verdict;
use linux::netns;
use proptest::prelude::*;
use router::transition::{Domain, Kind};
use wire::{ipv4, ipv6, protocol};

use super::*;
use programs::transition::{Counts, incoming, outgoing};

const LINK: usize = 14;

/// The programs of one end, as they would be with Ethernet on both sides.
struct Scene {
    end: Endpoint,
    tables: programs::transition::Tables<linux::bpf::Map>,
    incoming: Program,
    outgoing: Program,
}

impl Scene {
    fn new(kind: Kind, local: IpAddr, prefixes: &[Ipv6Net], decapsulates: bool) -> Self {
        let tunnel = Tunnel { kind, over: "lo".into(), local: None, mtu: None, hop_limit: 63 };
        let end = Endpoint::new(&tunnel, local, prefixes).unwrap();
        let tables = programs::transition::Tables::create(linux::bpf::Map::of).unwrap();
        tables.end.set(&[0; 4], &programs::transition::end_value(Some(&end), None)).unwrap();
        let settings = Settings {
            kind: &tunnel.kind,
            hop_limit: 63,
            over: (1, LINK as u8),
            device: (1, LINK as u8),
            decapsulates,
        };
        let load = |code| Program::load(ProgramKind::SchedCls, &code).unwrap();
        let (incoming, outgoing) = (load(incoming(&settings, &tables)), load(outgoing(&settings, &tables)));
        Scene { end, tables, incoming, outgoing }
    }

    fn counts(&self) -> Counts {
        programs::transition::counts(|number| self.tables.counters.sum(&number.to_ne_bytes()).unwrap())
    }

    /// What the program did: the verdict, the packet, and what it counted.
    fn run(&self, program: &Program, ethertype: u16, packet: &[u8]) -> (i32, Vec<u8>, Counts) {
        let mut frame = vec![0; LINK];
        frame[12..].copy_from_slice(&ethertype.to_be_bytes());
        frame.extend(packet);
        let before = self.counts();
        let (verdict, out) = program.test_run(&frame).unwrap();
        let after = self.counts();
        let counted = Counts {
            rx_packets: after.rx_packets - before.rx_packets,
            rx_bytes: after.rx_bytes - before.rx_bytes,
            tx_packets: after.tx_packets - before.tx_packets,
            tx_bytes: after.tx_bytes - before.tx_bytes,
            refused: std::array::from_fn(|number| after.refused[number] - before.refused[number]),
        };
        (verdict, out[LINK..].to_vec(), counted)
    }

    fn agrees_on_incoming(&self, outer: &[u8]) -> Result<(), TestCaseError> {
        let ethertype = if self.end.local.is_ipv6() { 0x86dd } else { 0x0800 };
        let (result, out, counted) = self.run(&self.incoming, ethertype, outer);
        let mut expected = Counts::default();
        // With options it is the kernel's to receive.
        let with_options = self.end.local.is_ipv4() && outer[0] != 0x45;
        match self.end.decapsulate(outer) {
            _ if with_options => prop_assert_eq!((result, &out[..]), (verdict::NEXT, outer)),
            Ok(Some(inner)) => {
                prop_assert_eq!((result, &out), (verdict::REDIRECT, &inner));
                (expected.rx_packets, expected.rx_bytes) = (1, inner.len() as u64);
            }
            Ok(None) => prop_assert_eq!((result, &out[..]), (verdict::NEXT, outer)),
            Err(refusal) => {
                let left = if refusal == Refusal::Stranger { verdict::NEXT } else { verdict::DROP };
                prop_assert_eq!((result, &out[..]), (left, outer));
                expected.refused[refusal as usize] = 1;
            }
        }
        prop_assert_eq!(counted, expected);
        Ok(())
    }

    fn agrees_on_outgoing(&self, inner: &[u8]) -> Result<(), TestCaseError> {
        let ethertype = if self.end.local.is_ipv6() { 0x0800 } else { 0x86dd };
        let (result, out, counted) = self.run(&self.outgoing, ethertype, inner);
        let mut expected = Counts::default();
        let mut outer = Vec::new();
        match self.end.encapsulate(inner, 0, &mut outer) {
            Ok(()) => {
                // What it draws by lot.
                if self.end.local.is_ipv4() {
                    let identification = u16::from_be_bytes([out[4], out[5]]);
                    self.end.encapsulate(inner, identification, &mut outer).unwrap();
                }
                prop_assert_eq!((result, &out), (verdict::REDIRECT, &outer));
                (expected.tx_packets, expected.tx_bytes) = (1, inner.len() as u64);
            }
            Err(refusal) => {
                prop_assert_eq!((result, &out[..]), (verdict::DROP, inner));
                expected.refused[refusal as usize] = 1;
            }
        }
        prop_assert_eq!(counted, expected);
        Ok(())
    }
}

fn address<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

fn kinds() -> Vec<(Kind, IpAddr, Vec<Ipv6Net>)> {
    let six_to_four = |relay: Option<&str>| Kind::Automatic(Domain::six_to_four(relay.map(address)));
    let six_rd = Kind::Automatic(Domain::six_rd(address("2001:db8::/32"), 8, address("10.0.0.1")).unwrap());
    let broker = Kind::SixInFour { remote: address("192.0.2.1") };
    let own = vec![address("2001:db8:100::/48"), address("2001:db8:200::/56")];
    vec![
        (broker.clone(), address("198.51.100.7"), own),
        (broker, address("198.51.100.7"), Vec::new()),
        (six_to_four(None), address("198.51.100.7"), Vec::new()),
        (six_to_four(Some("192.88.99.1")), address("198.51.100.7"), Vec::new()),
        (six_rd.clone(), address("10.100.100.1"), Vec::new()),
        (six_rd, address("10.0.0.1"), Vec::new()),
        (Kind::FourInSix { remote: Some(address("2001:db8::2")) }, address("2001:db8::1"), Vec::new()),
    ]
}

/// Addresses that mean something to some end, and others.
fn ipv4_address() -> impl Strategy<Value = Ipv4Addr> {
    let known = [
        "198.51.100.7",
        "192.0.2.1",
        "192.0.2.9",
        "10.0.0.1",
        "10.100.100.1",
        "10.7.0.9",
        "192.88.99.1",
        "127.0.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "172.31.0.1",
        "172.32.0.1",
        "192.168.3.4",
        "100.127.0.1",
    ];
    prop_oneof![
        4 => prop::sample::select(known.map(address::<Ipv4Addr>).to_vec()),
        1 => any::<u32>().prop_map(Ipv4Addr::from_bits),
    ]
}

fn ipv6_address() -> impl Strategy<Value = Ipv6Addr> {
    let known = [
        "::",
        "::1",
        "::ffff:10.0.0.1",
        "::10.0.0.1",
        "ff02::1",
        "fe80::1",
        "febf:ffff::1",
        "fec0::1",
        "fd00::1",
        "2001:db8:100::5",
        "2001:db8:100:ffff::1",
        "2001:db8:200:ff::1",
        "2001:db8:200:100::1",
        "2001:db8::1",
        "2001:db8::2",
        "2001:500::1",
        "64:ff9b::1",
        "2001:db8:6464:100::1",
        "2001:db8:700:900::1",
    ];
    prop_oneof![
        4 => prop::sample::select(known.map(address::<Ipv6Addr>).to_vec()),
        3 => (ipv4_address(), any::<u64>()).prop_map(|(inside, rest)| {
            Ipv6Addr::from_bits(0x2002 << 112 | u128::from(inside.to_bits()) << 80 | u128::from(rest))
        }),
        2 => (ipv4_address(), any::<u64>()).prop_map(|(inside, rest)| {
            let low = u128::from(inside.to_bits() & 0xff_ffff);
            Ipv6Addr::from_bits(0x2001_0db8 << 96 | low << 72 | u128::from(rest))
        }),
        1 => any::<u128>().prop_map(Ipv6Addr::from_bits),
    ]
}

prop_compose! {
    fn ipv6_packet()(
        traffic_class: u8, source in ipv6_address(), destination in ipv6_address(),
        payload in prop_oneof![any_payload(), prop::collection::vec(any::<u8>(), 0..3), prop::collection::vec(any::<u8>(), 1200..1400)],
        wrong in prop::option::weighted(0.1, any::<u16>()), version in prop::option::weighted(0.05, 0u8..16),
    ) -> Vec<u8> {
        let header = ipv6::Header {
            traffic_class,
            flow_label: 0x12345,
            payload_length: wrong.unwrap_or(payload.len() as u16),
            next_header: protocol::UDP,
            hop_limit: 9,
            source,
            destination,
        };
        let mut packet = [&header.to_bytes()[..], &payload].concat();
        if let Some(version) = version {
            packet[0] = packet[0] & 0xf | version << 4;
        }
        packet
    }
}

prop_compose! {
    fn ipv4_packet(protocol: impl Strategy<Value = u8>, payload: impl Strategy<Value = Vec<u8>>)(
        type_of_service: u8, source in ipv4_address(), destination in ipv4_address(), dont_fragment: bool, protocol in protocol,
        payload in payload, longer in prop::option::weighted(0.1, 0u16..40), damage in prop::option::weighted(0.1, (0usize..20, 1u8..)),
    ) -> Vec<u8> {
        let header = ipv4::Header {
            type_of_service,
            total_length: (20 + payload.len()) as u16 + longer.unwrap_or(0),
            identification: 7,
            dont_fragment,
            time_to_live: 9,
            protocol,
            source,
            destination,
        };
        let mut packet = [&header.to_bytes()[..], &payload].concat();
        if let Some((place, bits)) = damage {
            packet[place] ^= bits;
        }
        packet
    }
}

fn any_payload() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 20..60)
}

/// What comes in to an end: mostly from and to those that it is about.
fn outer(end: &Endpoint) -> BoxedStrategy<Vec<u8>> {
    match end.local {
        IpAddr::V4(local) => {
            let protocol = prop_oneof![9 => Just(protocol::IPV6), 1 => any::<u8>()];
            let packet = ipv4_packet(protocol, ipv6_packet());
            // From whom the inner address says, every other time, and to us, nearly always.
            (packet, any::<bool>(), prop::bool::weighted(0.95), any::<bool>())
                .prop_map(move |(mut packet, consistent, to_us, to_delegated)| {
                    let automatic = packet.get(20 + 8..20 + 16).map(<[u8]>::to_vec);
                    if let (true, Some(source)) = (consistent, automatic) {
                        match source[..2] {
                            [0x20, 0x02] => packet[12..16].copy_from_slice(&source[2..6]),
                            _ => packet[12..16].copy_from_slice(&[10, source[4], source[5], source[6]]),
                        }
                    }
                    if to_us {
                        packet[16..20].copy_from_slice(&local.octets());
                    }
                    if to_delegated && packet.len() >= 60 {
                        packet[20 + 24..20 + 31].copy_from_slice(&[0x20, 0x02, 198, 51, 100, 7, 0]);
                        if local.octets()[0] == 10 {
                            packet[20 + 24..20 + 31].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8, 100, 100, 1]);
                        }
                    }
                    packet[10..12].fill(0);
                    let sum = wire::checksum::Sum::of(&packet[..20]).checksum();
                    packet[10..12].copy_from_slice(&sum.to_be_bytes());
                    packet
                })
                .boxed()
        }
        IpAddr::V6(local) => {
            let inner = prop_oneof![ipv4_packet(any::<u8>(), any_payload()), any_payload()];
            let header = (any::<u8>(), ipv6_address(), prop::bool::weighted(0.9), prop::bool::weighted(0.9));
            (header, inner, prop::option::weighted(0.1, any::<u8>()))
                .prop_map(move |((traffic_class, stranger, known, to_us), inner, next_header)| {
                    let remote = address("2001:db8::2");
                    let header = ipv6::Header {
                        traffic_class,
                        flow_label: 0,
                        payload_length: inner.len() as u16,
                        next_header: next_header
                            .filter(|next| *next != protocol::DESTINATION_OPTIONS)
                            .unwrap_or(4),
                        hop_limit: 60,
                        source: if known { remote } else { stranger },
                        destination: if to_us { local } else { stranger },
                    };
                    [&header.to_bytes()[..], &inner].concat()
                })
                .boxed()
        }
    }
}

/// What leaves by an end.
fn inner(end: &Endpoint) -> BoxedStrategy<Vec<u8>> {
    match end.local {
        IpAddr::V4(local) => (ipv6_packet(), any::<bool>())
            .prop_map(move |(mut packet, of_ours)| {
                if of_ours {
                    packet[8..14].copy_from_slice(&[0x20, 0x02, 198, 51, 100, 7]);
                    if local.octets()[0] == 10 {
                        packet[8..15].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8, 100, 100, 1]);
                    }
                }
                packet
            })
            .boxed(),
        IpAddr::V6(_) => ipv4_packet(any::<u8>(), any_payload()).boxed(),
    }
}

fn each_agrees(decapsulates: bool, cases: u32) {
    if !netns::available_to_tests() {
        return;
    }
    for (kind, local, prefixes) in kinds() {
        let scene = Scene::new(kind.clone(), local, &prefixes, decapsulates);
        let runner = || proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(cases));
        let incoming = runner().run(&outer(&scene.end), |packet| scene.agrees_on_incoming(&packet));
        incoming.unwrap_or_else(|error| panic!("in, {kind:?}: {error}"));
        let outgoing = runner().run(&inner(&scene.end), |packet| scene.agrees_on_outgoing(&packet));
        outgoing.unwrap_or_else(|error| panic!("out, {kind:?}: {error}"));
        let counts = scene.counts();
        assert!(counts.rx_packets > 0 && counts.tx_packets > 0, "{kind:?}: nothing has crossed: {counts:?}");
    }
}

#[test]
fn the_programs_do_with_random_packets_what_the_rules_say() {
    each_agrees(true, 1_500);
}

#[test]
fn kernels_before_6_3_take_the_outer_header_off_by_another_way() {
    each_agrees(false, 1_500);
}

#[test]
fn without_an_address_nothing_leaves_and_nothing_is_taken() {
    if !netns::available_to_tests() {
        return;
    }
    let (kind, local, prefixes) = kinds().remove(0);
    let scene = Scene::new(kind, local, &prefixes, true);
    scene.tables.end.set(&[0; 4], &programs::transition::end_value(None, None)).unwrap();
    let packet = [&[0x60, 0, 0, 0, 0, 0, 59, 64][..], &[0x20; 32]].concat();
    let (result, _, counted) = scene.run(&scene.outgoing, 0x86dd, &packet);
    assert_eq!((result, counted.refused[Refusal::NoWay as usize]), (verdict::DROP, 1));
    let mut outer = Vec::new();
    scene.end.encapsulate(&packet, 1, &mut outer).unwrap();
    outer[12..16].copy_from_slice(&[192, 0, 2, 1]);
    outer[16..20].copy_from_slice(&[198, 51, 100, 7]);
    assert_eq!(scene.run(&scene.incoming, 0x0800, &outer).0, verdict::NEXT);
}

#[test]
fn the_first_address_that_the_kind_can_use_is_taken_and_kept() {
    let kind = Kind::Automatic(Domain::six_to_four(None));
    let mut tunnel = Tunnel { kind, over: "lo".into(), local: None, mtu: None, hop_limit: 63 };
    let address = |text: &str, deprecated| Address {
        index: 1,
        address: text.parse().unwrap(),
        tentative: false,
        duplicate: false,
        global: true,
        deprecated,
        permanent: true,
    };
    let found = [
        address("2001:db8::1/64", false),
        address("198.51.100.7/24", true),
        address("192.168.1.1/24", false),
        address("198.51.100.8/24", false),
        address("198.51.100.9/24", false),
    ];
    let local = |tunnel: &Tunnel, found: &[Address], before: Option<&str>| {
        let before = before.map(|before| before.parse().unwrap());
        end_at(tunnel, &[], found, before).map(|end| end.local.to_string())
    };
    assert_eq!(local(&tunnel, &found, None).unwrap(), "198.51.100.8", "192.168.1.1 is private");
    assert_eq!(local(&tunnel, &found, Some("198.51.100.9")).unwrap(), "198.51.100.9");
    assert_eq!(local(&tunnel, &found[..4], Some("198.51.100.9")).unwrap(), "198.51.100.8");
    assert_eq!(local(&tunnel, &found[..3], None).unwrap(), "198.51.100.7", "better than none");
    assert_eq!(local(&tunnel, &found[2..3], None), None);
    tunnel.local = Some([203, 0, 113, 1].into());
    assert_eq!(local(&tunnel, &found, None).unwrap(), "203.0.113.1");
}
