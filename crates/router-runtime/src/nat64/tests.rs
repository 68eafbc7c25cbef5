//! The program beside packets that are made for both versions: each has to become the other.

mod clat;

use std::net::{Ipv4Addr, Ipv6Addr};

use linux::bpf::verdict;
use linux::netns;
use proptest::prelude::*;
use router::nat64::{LENGTHS, Prefix};
use wire::checksum::Sum;

use super::*;

const LINK: usize = 14;
const HOST: &str = "2001:db8:1::5";
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const ROUTER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);

thread_local! {
    /// The translator's.
    static PREFIX: std::cell::Cell<Prefix> = const { std::cell::Cell::new(Prefix::WELL_KNOWN) };
}

fn six(address: Ipv4Addr) -> Ipv6Addr {
    PREFIX.get().embed(address)
}

/// Prefixes of all lengths, and the well-known one; each is that of the test while it is looked at.
fn prefixes() -> impl Iterator<Item = Prefix> {
    let of_length = |length| format!("3fff:122:344:567::/{length}").parse().unwrap();
    let all = LENGTHS.map(|length| Prefix::new(of_length(length)).unwrap());
    all.into_iter().chain([Prefix::WELL_KNOWN]).inspect(|prefix| PREFIX.set(*prefix))
}

fn host() -> Ipv6Addr {
    HOST.parse().unwrap()
}

/// The program as it would be with Ethernet.
struct Scene {
    tables: nat64::Tables<Map>,
    program: Program,
    /// The host's address of the pool.
    pool: Ipv4Addr,
}

impl Scene {
    fn new() -> Self {
        Self::with_pool("198.18.0.0/16")
    }

    fn with_pool(pool: &str) -> Self {
        Self::for_host(pool, host())
    }

    /// The pool has an address for this host.
    fn for_host(pool: &str, host: Ipv6Addr) -> Self {
        let nat64 = Nat64 { prefix: PREFIX.get(), pool: pool.parse().unwrap() };
        let tables = nat64::Tables::create(nat64.pool, Map::of).unwrap();
        let settings =
            Settings { nat64: &nat64, device: (1, LINK as u8), secret: [0x1234_5678_9abc, 77 << 40] };
        let program = Program::load(ProgramKind::SchedCls, &translator(&settings, &tables)).unwrap();
        let mut scene = Scene { tables, program, pool: Ipv4Addr::UNSPECIFIED };
        scene.pool = scene.address_of(host).unwrap();
        assert!(nat64.pool.contains(&scene.pool), "{}", scene.pool);
        scene
    }

    /// The address that this host gets, by a packet that it sends.
    fn address_of(&self, host: Ipv6Addr) -> Result<Ipv4Addr, Refusal> {
        let packet = Packet { source: host, ..Packet::of(Upper::Udp(vec![1, 2, 3])) };
        let out = self.run(6, &packet.six(six(SERVER)))?;
        Ok(Ipv4Addr::new(out[12], out[13], out[14], out[15]))
    }

    /// What becomes of a packet.
    fn run(&self, version: u8, packet: &[u8]) -> Result<Vec<u8>, Refusal> {
        let mut frame = vec![0; LINK];
        frame[12..].copy_from_slice(if version == 6 { &[0x86, 0xdd] } else { &[8, 0] });
        frame.extend(packet);
        let counts = || nat64::counts(|number| self.tables.counters.sum(&number.to_ne_bytes()).unwrap());
        let before = counts();
        let (result, out) = self.program.test_run(&frame).unwrap();
        let after = counts();
        match result {
            verdict::REDIRECT => {
                let translated = match version {
                    6 => after.to_ipv4_packets - before.to_ipv4_packets,
                    _ => after.to_ipv6_packets - before.to_ipv6_packets,
                };
                assert_eq!(translated, 1);
                Ok(out[LINK..].to_vec())
            }
            verdict::DROP => {
                let why = Refusal::ALL
                    .into_iter()
                    .find(|refusal| after.refused[*refusal as usize] > before.refused[*refusal as usize]);
                Err(why.expect("a reason that is counted"))
            }
            left => panic!("verdict {left}"),
        }
    }
}

/// What is behind a header.
#[derive(Clone, Debug)]
enum Upper {
    Tcp(Vec<u8>),
    Udp(Vec<u8>),
    Echo {
        request: bool,
        rest: Vec<u8>,
    },
    Other(Vec<u8>),
    /// ICMPv6 and ICMP: type, code and what is behind the checksum; and what they quote.
    Error {
        six: (u8, u8, u32),
        four: (u8, u8, u32),
        quoted: Box<Packet>,
    },
}

/// A packet, the same in both versions.
#[derive(Clone, Debug)]
struct Packet {
    source: Ipv6Addr,
    traffic_class: u8,
    hop_limit: u8,
    upper: Upper,
    /// Offset and length of what is in this fragment, and its number.
    fragment: Option<(usize, usize, u16)>,
}

impl Packet {
    fn of(upper: Upper) -> Self {
        Packet { source: host(), traffic_class: 0, hop_limit: 64, upper, fragment: None }
    }

    fn protocol(&self, six: bool) -> u8 {
        match self.upper {
            Upper::Tcp(_) => protocol::TCP,
            Upper::Udp(_) => protocol::UDP,
            Upper::Other(_) => 50,
            Upper::Echo { .. } | Upper::Error { .. } => {
                if six {
                    protocol::ICMPV6
                } else {
                    1
                }
            }
        }
    }

    fn six(&self, to: Ipv6Addr) -> Vec<u8> {
        self.six_from(self.source, to)
    }

    fn six_from(&self, from: Ipv6Addr, to: Ipv6Addr) -> Vec<u8> {
        let protocol = self.protocol(true);
        let message = self.message(true, |length| Sum::pseudo_ipv6(from, to, length, protocol));
        let (next, payload) = match self.fragment {
            None => (protocol, message),
            Some((offset, length, id)) => {
                let end = (offset + length).min(message.len());
                let more = u16::from(end < message.len());
                let mut header = vec![protocol, 0];
                header.extend((offset as u16 | more).to_be_bytes());
                header.extend(u32::from(id).to_be_bytes());
                header.extend(&message[offset..end]);
                (44, header)
            }
        };
        let header = wire::ipv6::Header {
            traffic_class: self.traffic_class,
            flow_label: 0,
            payload_length: payload.len() as u16,
            next_header: next,
            hop_limit: self.hop_limit,
            source: from,
            destination: to,
        };
        [&header.to_bytes()[..], &payload].concat()
    }

    fn four(&self, from: Ipv4Addr, to: Ipv4Addr, quoted: bool) -> Vec<u8> {
        let protocol = self.protocol(false);
        let message = self.message(false, |length| match protocol {
            1 => Sum::default(),
            _ => Sum::pseudo_ipv4(from, to, length as u16, protocol),
        });
        let (id, field, payload) = match self.fragment {
            None => (0, u16::from(quoted || message.len() + 20 > 1260) << 14, message),
            Some((offset, length, id)) => {
                let end = (offset + length).min(message.len());
                let more = u16::from(end < message.len());
                (id, (offset as u16 / 8) | (more << 13), message[offset..end].to_vec())
            }
        };
        let header = wire::ipv4::Header {
            type_of_service: self.traffic_class,
            total_length: 20 + payload.len() as u16,
            identification: id,
            dont_fragment: false,
            time_to_live: self.hop_limit,
            protocol,
            source: from,
            destination: to,
        };
        let mut header = header.to_bytes();
        header[6..8].copy_from_slice(&field.to_be_bytes());
        wire::ipv4::write_checksum(&mut header);
        [&header[..], &payload].concat()
    }

    /// What is behind the header, with a checksum that is right.
    fn message(&self, six: bool, pseudo: impl Fn(u32) -> Sum) -> Vec<u8> {
        let (place, mut bytes) = match &self.upper {
            Upper::Tcp(rest) => (
                16,
                [&[0x12, 0x34, 0, 80, 1, 2, 3, 4, 5, 6, 7, 8, 0x50, 0x10, 1, 0, 0, 0, 0, 0], &rest[..]]
                    .concat(),
            ),
            Upper::Udp(rest) => {
                (6, [&[0x12, 0x34, 0, 53, 0, 8 + rest.len() as u8, 0, 0], &rest[..]].concat())
            }
            Upper::Other(rest) => return rest.clone(),
            Upper::Echo { request, rest } => {
                let kind = match (six, request) {
                    (true, true) => 128,
                    (true, false) => 129,
                    (false, true) => 8,
                    (false, false) => 0,
                };
                (2, [&[kind, 0, 0, 0, 1, 2, 3, 4], &rest[..]].concat())
            }
            Upper::Error { six: of_six, four, quoted } => {
                let (kind, code, word) = if six { *of_six } else { *four };
                // About a packet from the host to the server, or the other way round: as it was on this side.
                let (host_four, server) = QUOTED.with(std::cell::Cell::get);
                let from_host = quoted.source == host();
                let inner = match (six, from_host) {
                    (true, true) => quoted.six_from(host(), super::tests::six(server)),
                    (true, false) => quoted.six_from(super::tests::six(server), host()),
                    (false, true) => quoted.four(host_four, server, true),
                    (false, false) => quoted.four(server, host_four, true),
                };
                // Checksums that it quotes stay as they are: of IPv6, here.
                let mut inner = inner;
                if let Upper::Udp(_) = quoted.upper {
                    let header = if six { 40 } else { 20 };
                    inner[header + 6..header + 8].copy_from_slice(&[0xab, 0xcd]);
                }
                if let Upper::Echo { .. } = quoted.upper {
                    let header = if six { 40 } else { 20 };
                    inner[header + 2..header + 4].copy_from_slice(&[0xab, 0xcd]);
                }
                (2, [&[kind, code, 0, 0], &word.to_be_bytes()[..], &inner].concat())
            }
        };
        let sum = pseudo(bytes.len() as u32) + Sum::of(&bytes);
        let sum = if matches!(self.upper, Upper::Udp(_)) { sum.udp_checksum() } else { sum.checksum() };
        bytes[place..place + 2].copy_from_slice(&sum.to_be_bytes());
        bytes
    }
}

thread_local! {
    /// Addresses of IPv4 of the host and the server of packets that are quoted.
    static QUOTED: std::cell::Cell<(Ipv4Addr, Ipv4Addr)> = const { std::cell::Cell::new((SERVER, SERVER)) };
}

/// What is drawn by lot is taken over.
fn with_identification(mut expected: Vec<u8>, out: &[u8]) -> Vec<u8> {
    if expected[6..8] == [0, 0] || expected[6..8] == [0x40, 0] {
        expected[4..6].copy_from_slice(&out[4..6]);
        wire::ipv4::write_checksum(&mut expected[..20]);
    }
    expected
}

fn any_upper() -> impl Strategy<Value = Upper> {
    let bytes = |most| prop::collection::vec(any::<u8>(), 0..most);
    prop_oneof![
        bytes(1400).prop_map(Upper::Tcp),
        bytes(200).prop_map(Upper::Udp),
        (any::<bool>(), bytes(300)).prop_map(|(request, rest)| Upper::Echo { request, rest }),
        bytes(200).prop_map(Upper::Other),
    ]
}

prop_compose! {
    fn any_packet()(
        traffic_class: u8, hop_limit in 1u8.., upper in any_upper(),
        fragment in prop::option::weighted(0.3, (0usize..20, 1usize..20, any::<u16>())),
    ) -> Packet {
        let mut packet = Packet { traffic_class, hop_limit, upper, ..Packet::of(Upper::Other(Vec::new())) };
        let length = packet.message(true, |_| Sum::default()).len();
        // A first fragment has the header of what it is of. One of ICMP has no checksum of its own to tell.
        let least = 24;
        packet.fragment = fragment
            .map(|(offset, length, id)| (8 * offset, (8 * length).max(least), id))
            .filter(|(offset, size, _)| *offset < length && (*offset > 0 || *size < length))
            .filter(|(offset, ..)| *offset >= least || *offset == 0 && !matches!(packet.upper, Upper::Echo { .. }));
        packet
    }
}

#[test]
fn headers_are_those_of_the_other_version_and_checksums_hold() {
    if !netns::available_to_tests() {
        return;
    }
    for prefix in prefixes() {
        let scene = Scene::new();
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(400));
        let agrees = |packet: Packet| {
            let out = scene.run(6, &packet.six(six(SERVER)));
            let out = out.map_err(|refusal| TestCaseError::fail(format!("to IPv4: {refusal:?}")))?;
            let expected = with_identification(packet.four(scene.pool, SERVER, false), &out);
            prop_assert_eq!(same_sum(&out), same_sum(&expected), "to IPv4");
            let out = scene.run(4, &packet.four(SERVER, scene.pool, false));
            let out = out.map_err(|refusal| TestCaseError::fail(format!("to IPv6: {refusal:?}")))?;
            prop_assert_eq!(same_sum(&out), same_sum(&packet.six_from(six(SERVER), host())), "to IPv6");
            Ok(())
        };
        runner.run(&any_packet(), agrees).unwrap_or_else(|error| panic!("{prefix}: {error}"));
    }
}

/// RFC 6052 section 2.4, by the program itself.
#[test]
fn addresses_in_prefixes_of_all_lengths_are_those_of_the_rfc() {
    if !netns::available_to_tests() {
        return;
    }
    let server = Ipv4Addr::new(192, 0, 2, 33);
    for (prefix, embedded) in [
        ("2001:db8::/32", "2001:db8:c000:221::"),
        ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
        ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
        ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
        ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
        ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
        ("64:ff9b::/96", "64:ff9b::192.0.2.33"),
    ] {
        PREFIX.set(Prefix::new(prefix.parse().unwrap()).unwrap());
        let embedded: Ipv6Addr = embedded.parse().unwrap();
        let host = "3fff:1::5".parse().unwrap();
        let scene = Scene::for_host("198.18.0.0/16", host);
        let udp = || Packet { source: host, ..Packet::of(Upper::Udp(vec![1, 2, 3])) };
        let out = scene.run(6, &udp().six(embedded)).expect("a packet of IPv4");
        assert_eq!(out[16..20], server.octets(), "{prefix}");
        let out = scene.run(4, &udp().four(server, scene.pool, false)).expect("a packet of IPv6");
        assert_eq!(out[8..24], embedded.octets(), "{prefix}");
        assert_eq!(out[24..40], host.octets(), "{prefix}");
        // One bit elsewhere, and it is another address: in the prefix, in bits 64 to 71, behind the address.
        let mask = PREFIX.get().layout().mask;
        for bit in (0..128).map(|bit| 1 << bit).filter(|bit| mask & bit == 0) {
            let other = Ipv6Addr::from_bits(embedded.to_bits() ^ bit);
            assert_eq!(scene.run(6, &udp().six(other)), Err(Refusal::Destination), "{other}");
        }
        let inside = Ipv6Addr::from_bits(PREFIX.get().net().network().to_bits() | 5);
        assert_eq!(scene.address_of(inside), Err(Refusal::Source), "{inside} is behind another translator");
    }
}

/// 0 and 0xffff are the same sum: one is the place's value after a change, the other that of a fresh sum.
fn same_sum(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let (header, protocol) = if packet[0] >> 4 == 6 { (40, packet[6]) } else { (20, packet[9]) };
    let place = header + if protocol == protocol::TCP { 16 } else { 2 };
    if protocol != protocol::UDP && packet.get(place..place + 2) == Some(&[0xff, 0xff]) {
        packet[place..place + 2].fill(0);
    }
    packet
}

#[test]
fn errors_and_what_they_quote_are_translated() {
    if !netns::available_to_tests() {
        return;
    }
    for _ in prefixes() {
        errors_are_translated();
    }
}

fn errors_are_translated() {
    let scene = Scene::new();
    QUOTED.set((scene.pool, SERVER));
    let quoted = |from_host: bool, upper: Upper| {
        let source = if from_host { host() } else { six(SERVER) };
        Box::new(Packet { source, hop_limit: 3, traffic_class: 0x20, ..Packet::of(upper) })
    };
    let uppers = || {
        [Upper::Udp(vec![5; 40]), Upper::Echo { request: true, rest: vec![1; 9] }, Upper::Other(vec![9; 33])]
    };
    for (of_six, four) in [
        ((1, 0, 0), (3, 1, 0)),
        ((1, 1, 0), (3, 10, 0)),
        ((1, 4, 0), (3, 3, 0)),
        ((2, 0, 1280), (3, 4, 1260)),
        ((2, 0, 1500), (3, 4, 1480)),
        ((3, 0, 0), (11, 0, 0)),
        ((3, 1, 0), (11, 1, 0)),
    ] {
        for upper in uppers() {
            let error = |from_host| {
                Packet::of(Upper::Error { six: of_six, four, quoted: quoted(from_host, upper.clone()) })
            };
            // From the host, or a router on its side: about a packet of the server's.
            for source in [host(), "2001:db8:9::1".parse().unwrap()] {
                let packet = error(false);
                let out = scene.run(6, &packet.six_from(source, six(SERVER))).expect("an error");
                let expected = with_identification(packet.four(scene.pool, SERVER, false), &out);
                assert_eq!(same_sum(&out), same_sum(&expected), "{of_six:?} {upper:?}");
            }
            // From a router on the way to the server.
            if !matches!(of_six, (1, 1, _)) {
                let packet = error(true);
                let out = scene.run(4, &packet.four(ROUTER, scene.pool, false)).expect("an error");
                assert_eq!(
                    same_sum(&out),
                    same_sum(&packet.six_from(six(ROUTER), host())),
                    "{four:?} {upper:?}"
                );
            }
        }
    }
    let packet = |four| {
        Packet::of(Upper::Error { six: (2, 0, 1280), four, quoted: quoted(true, Upper::Udp(vec![5; 40])) })
    };
    // The MTU of a router that tells none, or less than IPv6 has at least; and a router with a private address.
    for mtu in [0, 576] {
        let packet = packet((3, 4, mtu));
        let out = scene.run(4, &packet.four(ROUTER, scene.pool, false)).expect("an error");
        assert_eq!(same_sum(&out), same_sum(&packet.six_from(six(ROUTER), host())));
    }
    let private = packet((3, 4, 1260));
    let out = scene.run(4, &private.four(Ipv4Addr::new(10, 0, 0, 1), scene.pool, false)).expect("an error");
    assert_eq!(out[8..24], six(Ipv4Addr::new(192, 0, 0, 8)).octets());
    for four in [(5, 0, 0), (3, 14, 0), (12, 1, 0), (13, 0, 0)] {
        assert_eq!(
            scene.run(4, &packet(four).four(ROUTER, scene.pool, false)),
            Err(Refusal::Icmp),
            "{four:?}"
        );
    }
}

#[test]
fn what_has_no_business_in_a_translator_is_refused() {
    if !netns::available_to_tests() {
        return;
    }
    let scene = Scene::new();
    let udp = || Packet::of(Upper::Udp(vec![1, 2, 3]));
    for inside in [
        "10.0.0.1",
        "192.168.1.1",
        "172.31.255.1",
        "127.0.0.1",
        "169.254.1.1",
        "224.0.0.1",
        "255.255.255.255",
        "0.0.0.0",
        "198.18.0.5",
        "100.64.0.1",
        "192.0.0.1",
    ] {
        let inside: Ipv4Addr = inside.parse().unwrap();
        assert_eq!(scene.run(6, &udp().six(six(inside))), Err(Refusal::Destination), "{inside}");
        assert_eq!(scene.run(4, &udp().four(inside, scene.pool, false)), Err(Refusal::Source), "{inside}");
    }
    assert_eq!(scene.run(6, &udp().six("2001:db8::1".parse().unwrap())), Err(Refusal::Destination));
    assert_eq!(scene.run(6, &udp().six("64:ff9b::1:c633:6407".parse().unwrap())), Err(Refusal::Destination));
    for source in ["ff02::1", "::", "::1", "::ffff:192.0.2.1", "fe80::1", "64:ff9b::192.0.2.1"] {
        assert_eq!(scene.address_of(source.parse().unwrap()), Err(Refusal::Source), "{source}");
    }
    assert_eq!(scene.run(4, &udp().four(SERVER, ROUTER, false)), Err(Refusal::Destination));
    let nobody = Ipv4Addr::from_bits(scene.pool.to_bits() ^ 8);
    assert_eq!(scene.run(4, &udp().four(SERVER, nobody, false)), Err(Refusal::NoHost));

    let mut with_options = udp().four(SERVER, scene.pool, false);
    with_options[0] = 0x46;
    assert_eq!(scene.run(4, &with_options), Err(Refusal::Headers));
    for extension in [0, 43, 60, 135] {
        let mut packet = udp().six(six(SERVER));
        packet[6] = extension;
        assert_eq!(scene.run(6, &packet), Err(Refusal::Headers));
        let mut packet = udp().four(SERVER, scene.pool, false);
        packet[9] = extension;
        assert_eq!(scene.run(4, &packet), Err(Refusal::Headers));
    }
    for length in [40, 41, 47, 50] {
        let packet = udp().six(six(SERVER));
        assert_eq!(scene.run(6, &packet[..length.min(packet.len())]), Err(Refusal::Malformed), "{length}");
    }
    let mut longer = udp().four(SERVER, scene.pool, false);
    longer.push(0);
    assert_eq!(scene.run(4, &longer), Err(Refusal::Malformed));
    let first = Packet {
        fragment: Some((0, 64, 1)),
        ..Packet::of(Upper::Echo { request: true, rest: vec![0; 200] })
    };
    assert_eq!(scene.run(6, &first.six(six(SERVER))), Err(Refusal::NoChecksum), "without the mark");
}

#[test]
fn a_host_keeps_its_address_while_somebody_makes_up_others() {
    if !netns::available_to_tests() {
        return;
    }
    // The least pool: eight sets, in two groups.
    let scene = Scene::with_pool("198.18.0.0/26");
    let answer = Packet::of(Upper::Udp(vec![1])).four(SERVER, scene.pool, false);
    scene.run(4, &answer).expect("an answer");
    let all = || nat64::counts(|number| scene.tables.counters.sum(&number.to_ne_bytes()).unwrap()).hosts;
    let neighbor = |number: u128| Ipv6Addr::from_bits(host().to_bits() + number * 0x1_0001);
    for number in 1..2_000 {
        let given = scene.address_of(neighbor(number)).expect("an address");
        assert_ne!(given, scene.pool);
    }
    assert_eq!(scene.address_of(host()), Ok(scene.pool));
    assert!(all() < 64, "only the group of that /64: {}", all());
    // Those that are answered are kept, and then there is no place.
    let mut full = 0;
    let tries = 400;
    for number in 1..=tries {
        // However long all this takes, this one was answered in the last minute.
        scene.run(4, &answer).expect("an answer");
        match scene.address_of(neighbor(number)) {
            Ok(given) => {
                let answer = Packet::of(Upper::Udp(vec![1])).four(SERVER, given, false);
                scene.run(4, &answer).expect("an answer");
            }
            Err(refusal) => {
                assert_eq!(refusal, Refusal::Full);
                full += 1;
            }
        }
    }
    // The host's group has 32 places.
    assert!(full >= tries - 32, "{full}");
    assert_eq!(scene.address_of(host()), Ok(scene.pool));
}

#[test]
fn udp_without_a_checksum_gets_one() {
    let mut packet = Packet::of(Upper::Udp(vec![7; 33])).four(SERVER, ROUTER, false);
    let right = packet.clone();
    packet[26..28].fill(0);
    add_checksum(&mut packet);
    assert_eq!(packet, right);
}
