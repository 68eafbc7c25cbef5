//! Stories of two carriers that hand each other their datagrams, in virtual time.

mod children;
mod contest;
mod raw;

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::{Duration, Instant};

use config::ipsec::{IpsecConfig, Place, Ports, Remote, Start};
use ike::config::{Assigned, Authentication, ChildConfig, Config, Mode, PeerConfig};
use ike::crypto::secret::Secret;
use ike::message::body::Identity;
use ike::message::traffic_selector::TrafficSelector;
use ike::random::Random;
use ipsec::level::Levels;
use ipsec::policy::Direction;
use wire::ecn::Ecn;
use wire::{icmpv6, ipv6, protocol, udp, virtio_net};

use super::*;
use crate::outbox::Via;

const PORTS: Ports = Ports { ike: 500, nat: 4500 };
const FREE: Ports = Ports { ike: 0, nat: 40_000 };

struct Repeatable(u64);

impl Random for Repeatable {
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (self.0 >> 56) as u8;
        }
    }
}

#[derive(Default)]
struct Inner(Vec<Vec<u8>>);

impl Deliver for Inner {
    fn packet(&mut self, arena: &[u8], header: &[u8], rest: Range<usize>) {
        self.0.push([header, &arena[rest]].concat());
    }

    fn whole_packet(&mut self, packet: &[u8]) {
        self.0.push(packet.to_vec());
    }
}

struct End {
    carrier: Carrier<Repeatable>,
    address: IpAddr,
    inner: Inner,
    events: Vec<Event>,
}

struct World {
    ends: [End; 2],
    now: Instant,
    /// Datagrams with this in them are lost.
    lost: Option<[u8; 4]>,
}

fn outside(end: usize) -> IpAddr {
    IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, end as u16 + 1])
}

fn inside(end: usize, host: u16) -> std::net::Ipv6Addr {
    std::net::Ipv6Addr::from([0xfd00, end as u16, 0, 0, 0, 0, 0, host])
}

fn behind(end: usize) -> TrafficSelector {
    TrafficSelector::prefix(inside(end, 0).into(), 64)
}

fn config(end: usize, start: Start, theirs: Ports) -> IpsecConfig {
    let name = |end: usize| Identity::Fqdn(format!("{end}.example"));
    let other = 1 - end;
    let mut peer = PeerConfig::new(name(end), Some(name(other)), Secret::new(b"known to both".to_vec()));
    peer.children.push(ChildConfig::new(Mode::Tunnel, vec![behind(end)], vec![behind(other)]));
    peer.assigned = Assigned::default();
    IpsecConfig {
        name: "test".to_owned(),
        local: None,
        ports: PORTS,
        addresses: vec![format!("{}/64", inside(end, 1)).parse().unwrap()],
        mtu: None,
        ike: Config::new(vec![peer]),
        remotes: vec![Remote {
            name: "other".to_owned(),
            address: (start != Start::Wait).then(|| Place::Address(outside(other))),
            ports: theirs,
            start,
            encapsulate: true,
            pool: Vec::new(),
        }],
        rules: Vec::new(),
        child_rules: Vec::new(),
        levels: Levels::NONE,
        setkey: None,
        warnings: config::Report::default(),
    }
}

impl World {
    fn new(start: Start, ports: [Ports; 2]) -> Self {
        Self::of([config(0, start, ports[1]), config(1, Start::Wait, ports[0])], ports)
    }

    fn of(configs: [IpsecConfig; 2], ports: [Ports; 2]) -> Self {
        Self::with(configs, ports, Carrier::new)
    }

    fn with(
        configs: [IpsecConfig; 2],
        ports: [Ports; 2],
        new: fn(&IpsecConfig, Ports, Repeatable, Instant) -> Carrier<Repeatable>,
    ) -> Self {
        let now = Instant::now();
        let mut number = 0;
        let ends = configs.map(|config| {
            number += 1;
            let random = Repeatable(number as u64);
            let carrier = new(&config, ports[number - 1], random, now);
            End { carrier, address: outside(number - 1), inner: Inner::default(), events: Vec::new() }
        });
        let mut world = Self { ends, now, lost: None };
        world.run();
        world
    }

    /// Carries datagrams until there are none.
    fn run(&mut self) {
        for _ in 0..100 {
            for end in &mut self.ends {
                end.carrier.handle_timeout(self.now, &mut end.inner);
                while let Some(event) = end.carrier.poll_event() {
                    if let Event::Reach(remote) = event {
                        let other = if end.address == outside(0) { outside(1) } else { outside(0) };
                        let ends = Ends { local: end.address, remote: other };
                        end.carrier.reach(remote, Ok(ends), self.now, &mut end.inner);
                    }
                    end.events.push(event);
                }
            }
            if (0..2).all(|from| !self.carry(from)) {
                return;
            }
        }
        panic!("they go on for ever");
    }

    fn carry(&mut self, from: usize) -> bool {
        let ports = self.ends[from].carrier.ports;
        let batches: Vec<_> = self.ends[from]
            .carrier
            .outbox()
            .batches()
            .map(|(batch, bytes)| (*batch, bytes.to_vec()))
            .collect();
        self.ends[from].carrier.outbox().clear();
        let to = &mut self.ends[1 - from];
        for (batch, mut bytes) in batches.clone() {
            if self.lost.is_some_and(|lost| bytes.windows(4).any(|window| window == lost)) {
                continue;
            }
            assert_eq!(batch.way.remote.ip(), to.address);
            if batch.way.via == Via::Raw {
                raw::carry(to, &mut bytes, batch.segment, self.now);
                continue;
            }
            let via = if batch.way.remote.port() == to.carrier.ports.nat { Via::Nat } else { Via::Ike };
            assert!(via == Via::Nat || batch.way.remote.port() == to.carrier.ports.ike);
            let port = if batch.way.via == Via::Nat { ports.nat } else { ports.ike };
            let received = Received {
                at: 0..bytes.len(),
                segment: batch.segment,
                via,
                local: to.address,
                remote: SocketAddr::new(batch.way.local, port),
                ecn: Ecn::from_bits(batch.traffic_class),
            };
            to.carrier.receive(&mut bytes, &received, self.now, &mut to.inner);
        }
        !batches.is_empty()
    }

    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += Duration::from_secs(1);
            self.run();
        }
    }

    fn send(&mut self, from: usize, mut packet: Vec<u8>) {
        let end = &mut self.ends[from];
        end.carrier.send(&virtio_net::Header::NONE, &mut packet, self.now, &mut end.inner);
        self.run();
    }

    fn arrived(&mut self, at: usize) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.ends[at].inner.0)
    }

    fn drops(&self, at: usize) -> Vec<String> {
        self.ends[at].carrier.report_drops().into_keys().collect()
    }

    fn is_up(&self, at: usize) -> bool {
        self.ends[at].carrier.report(self.now)[0].state == "up"
    }
}

fn datagram(source: std::net::Ipv6Addr, destination: std::net::Ipv6Addr, payload: usize) -> Vec<u8> {
    let length = (udp::HEADER_LEN + payload) as u16;
    let ip = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: length,
        next_header: protocol::UDP,
        hop_limit: 64,
        source,
        destination,
    };
    let udp = udp::Header { source_port: 1000, destination_port: 2000, length, checksum: 0xffff };
    [&ip.to_bytes()[..], &udp.to_bytes(), &vec![7; payload]].concat()
}

#[test]
fn wrong_keys_are_counted_each_and_told_of_from_time_to_time() {
    let mut configs = [config(0, Start::Always, PORTS), config(1, Start::Wait, PORTS)];
    let key = Secret::new(b"another".to_vec());
    configs[0].ike.peers[0].authentication = Authentication::SharedKey(key);
    let mut world = World::of(configs, [PORTS; 2]);
    world.pass(120);
    assert!(!world.is_up(1));
    let failed = world.ends[1].carrier.report_drops()["ike_authentication_failed"];
    let lines = world.ends[1].events.iter().filter(|event| matches!(event, Event::Stranger { .. })).count();
    assert!(failed >= 2 && (1..=13).contains(&lines) && lines as u64 <= failed, "{failed} and {lines}");
}

#[test]
fn packets_cross_both_ways() {
    let mut world = World::new(Start::Always, [PORTS; 2]);
    assert!(world.is_up(0) && world.is_up(1));
    for (from, to) in [(0, 1), (1, 0)] {
        let packet = datagram(inside(from, 1), inside(to, 9), 700);
        world.send(from, packet.clone());
        assert_eq!(world.arrived(to), [packet]);
    }
    let child = &world.ends[0].carrier.report(world.now)[0].children[0];
    assert_eq!((child.tx_packets, child.rx_packets, child.tx_bytes), (1, 1, 748));
    assert!(world.drops(0).is_empty() && world.drops(1).is_empty());
}

#[test]
fn a_program_without_the_ports_of_ike_begins_at_the_shared_one() {
    let mut world = World::new(Start::Always, [FREE, PORTS]);
    assert!(world.is_up(0) && world.is_up(1));
    let packet = datagram(inside(1, 1), inside(0, 9), 10);
    world.send(1, packet.clone());
    assert_eq!(world.arrived(0), [packet]);
}

#[test]
fn a_packet_begins_a_conversation_and_waits_for_it() {
    let mut world = World::new(Start::Traffic, [PORTS; 2]);
    assert!(!world.is_up(0));
    let packet = datagram(inside(0, 1), inside(1, 9), 10);
    world.send(0, packet.clone());
    assert!(world.is_up(0));
    assert_eq!(world.arrived(1), [packet]);
}

#[test]
fn what_leaves_right_behind_the_answer_that_makes_a_child_arrives() {
    let mut world =
        World::of([config(0, Start::Traffic, PORTS), config(1, Start::Traffic, PORTS)], [PORTS; 2]);
    let packets = [0, 1].map(|from| datagram(inside(from, 1), inside(1 - from, 9), 10));
    // One end looks for the other for as long as it takes the other to come: its packet and its answer are one batch.
    let end = &mut world.ends[1];
    end.carrier.send(&virtio_net::Header::NONE, &mut packets[1].clone(), world.now, &mut end.inner);
    while end.carrier.poll_event().is_some() {}
    world.send(0, packets[0].clone());
    for at in [0, 1] {
        assert_eq!(world.arrived(at), [packets[1 - at].clone()]);
        assert!(world.drops(at).is_empty(), "{:?}", world.drops(at));
    }
}

#[test]
fn nothing_leaves_without_a_tunnel_for_it() {
    let mut world = World::new(Start::Always, [PORTS; 2]);
    let elsewhere = "2001:db8:ffff::1".parse().unwrap();
    world.send(0, datagram(inside(0, 1), elsewhere, 10));
    world.send(0, datagram(elsewhere, inside(1, 1), 10));
    assert!(world.arrived(1).is_empty());
    assert_eq!(world.drops(0), ["not_keyed"]);
}

#[test]
fn what_both_ends_have_not_agreed_on_makes_no_second_child() {
    // The first packet of a road warrior has an address of its own network: it was sent before there was another.
    let mut ours = config(0, Start::Always, PORTS);
    ours.ike.peers[0].children[0].local = vec![TrafficSelector::prefix("::".parse().unwrap(), 0)];
    let mut world = World::of([ours, config(1, Start::Wait, PORTS)], [PORTS; 2]);
    for _ in 0..3 {
        world.send(0, datagram("2001:db8::1".parse().unwrap(), inside(1, 9), 10));
        world.pass(1);
    }
    assert_eq!([0, 1].map(|end| world.ends[end].carrier.children.len()), [1, 1]);
    assert!(world.arrived(1).is_empty());
    let packet = datagram(inside(0, 1), inside(1, 9), 10);
    world.send(0, packet.clone());
    assert_eq!(world.arrived(1), [packet]);
}

#[test]
fn packets_for_two_hosts_ask_for_one_child() {
    let mut world = World::new(Start::Traffic, [PORTS; 2]);
    world.send(0, datagram(inside(0, 1), inside(1, 8), 10));
    world.arrived(1);
    let child = world.ends[0].carrier.children.values().next().unwrap();
    let (ike, spi) = (child.ike, ike::numbers::Spi(child.inbound.spi.0));
    world.ends[0].carrier.ike.delete_child(world.now, ike, spi).unwrap();
    world.pass(10);
    assert!(world.is_up(0) && world.ends[0].carrier.children.is_empty());
    let packets = [9, 10].map(|host| datagram(inside(0, 1), inside(1, host), 10));
    let end = &mut world.ends[0];
    for packet in &packets {
        end.carrier.send(&virtio_net::Header::NONE, &mut packet.clone(), world.now, &mut end.inner);
    }
    world.run();
    assert_eq!([0, 1].map(|end| world.ends[end].carrier.children.len()), [1, 1]);
    assert_eq!(world.arrived(1), packets);
}

#[test]
fn a_peer_in_anothers_name_is_not_heard() {
    // Ours believes that the other may send from its network only; the other thinks that it may from anywhere.
    let mut world = World::new(Start::Always, [PORTS; 2]);
    let child = world.ends[0].carrier.children.values().next().unwrap();
    let id = child.outbound_id;
    let mut packet = datagram(inside(7, 1), inside(1, 9), 10);
    let send = |world: &mut World, packet: &mut [u8]| {
        let end = &mut world.ends[0];
        let association = end.carrier.engine.get_mut(id).unwrap();
        let way = end.carrier.children.values().next().unwrap().way;
        let size = ipsec::tunnel_payload::sealed_length(association, packet.len()).unwrap();
        let out = end.carrier.outbox.datagram(&way, 0, size);
        ipsec::tunnel_payload::seal(association, [packet, &[]], out, world.now).unwrap();
        world.run();
    };
    send(&mut world, &mut packet);
    assert!(world.arrived(1).is_empty());
    assert_eq!(world.drops(1), ["not_selected"]);
}

/// RFC 4301 §6.2: the router itself is in neither network.
#[test]
fn a_routers_error_goes_with_what_answers_the_packet_that_it_is_about() {
    let mut world = World::new(Start::Always, [PORTS; 2]);
    let router: std::net::Ipv6Addr = "2001:db8:ffff::1".parse().unwrap();
    let error = |about: &[u8]| {
        let mut out = [0; wire::icmp_error::MAX_LEN];
        let reason = wire::icmp_error::Reason::PacketTooBig { mtu: 1280 };
        let length = wire::icmp_error::build(reason, router.into(), about, &mut out).unwrap();
        out[..length].to_vec()
    };
    let came = error(&datagram(inside(1, 9), inside(0, 1), 1200));
    world.send(0, came.clone());
    assert_eq!(world.arrived(1), [came]);
    assert!(world.drops(0).is_empty() && world.drops(1).is_empty());
    // About something that no tunnel has brought.
    world.send(0, error(&datagram(inside(1, 9), router, 1200)));
    assert!(world.arrived(1).is_empty());
    assert_eq!(world.drops(0), ["not_keyed"]);
}

#[test]
fn what_is_too_big_is_told_to_its_sender() {
    let mut world = World::new(Start::Always, [PORTS; 2]);
    let limit = usize::from(world.ends[0].carrier.inner_mtu());
    let fits = datagram(inside(0, 1), inside(1, 9), limit - 48);
    world.send(0, fits.clone());
    assert_eq!(world.arrived(1), [fits]);
    let mut too_big = datagram(inside(0, 1), inside(1, 9), limit - 47);
    world.send(0, too_big.clone());
    assert!(world.arrived(1).is_empty());
    let told = &world.arrived(0)[0];
    assert_eq!((told[40], &told[44..48]), (icmpv6::PACKET_TOO_BIG, &(limit as u32).to_be_bytes()[..]));
    // What is larger is cut by whoever hands over a GSO packet.
    let header = virtio_net::Header {
        flags: virtio_net::NEEDS_CSUM,
        gso_type: virtio_net::GSO_UDP_L4,
        gso_size: 1000,
        hdr_len: 48,
        csum_start: 40,
        csum_offset: 6,
    };
    let end = &mut world.ends[0];
    end.carrier.send(&header, &mut too_big, world.now, &mut end.inner);
    assert_eq!(end.carrier.outbox().batches().count(), 1, "a longer and a shorter one go together");
    world.run();
    assert_eq!(world.arrived(1).len(), 2);
}

#[test]
fn a_narrower_path_is_believed_for_ten_minutes_where_a_packet_of_ours_is_quoted() {
    let mut world = World::new(Start::Always, [PORTS; 2]);
    let (now, carrier) = (world.now, &mut world.ends[0].carrier);
    let before = carrier.inner_mtu();
    let spi = carrier.report(now)[0].children[0].outbound_spi.clone();
    let ours = u32::from_str_radix(spi.trim_start_matches("0x"), 16).unwrap().to_be_bytes();
    let forged = [[0; 4], [0x12, 0x34, 0x56, 0x78]];
    for quoted in [&[][..], &ours[..3], &forged[0], &forged[1]] {
        carrier.too_big(outside(1), 1400, Some(quoted), Via::Nat, now);
        assert_eq!(carrier.inner_mtu(), before, "{quoted:?}");
    }
    carrier.too_big(outside(1), 1400, Some(&ours), Via::Nat, now);
    assert_eq!(before - carrier.inner_mtu(), 100);
    carrier.too_big(outside(1), 68, Some(&ours), Via::Nat, now);
    assert!(carrier.inner_mtu() > 1100, "no claim goes below what IPv6 demands");
    world.pass(601);
    assert_eq!(world.ends[0].carrier.inner_mtu(), before, "it has ended");
}

#[test]
fn packets_of_1280_bytes_pass_whatever_is_claimed_of_the_way() {
    let mut world = World::new(Start::Always, [PORTS; 2]);
    world.ends[0].carrier.too_big(outside(1), 1280, None, Via::Nat, world.now);
    for (length, in_fragments) in [(1198, false), (1280, true)] {
        let mut packet = datagram(inside(0, 1), inside(1, 9), length - 48);
        let end = &mut world.ends[0];
        end.carrier.send_whole(&mut packet, world.now, &mut end.inner);
        let batches: Vec<_> = end.carrier.outbox().batches().map(|(batch, _)| batch.in_fragments).collect();
        assert_eq!(batches, [in_fragments], "{length}");
        world.run();
    }
}

#[test]
fn keys_are_replaced_and_no_packet_is_lost() {
    let mut world = World::new(Start::Always, [PORTS; 2]);
    let first = world.ends[0].carrier.report(world.now)[0].children[0].inbound_spi.clone();
    let mut sent = 0;
    for _ in 0..90 {
        world.pass(60);
        for (from, to) in [(0, 1), (1, 0)] {
            let packet = datagram(inside(from, 1), inside(to, 9), 100);
            world.send(from, packet.clone());
            assert_eq!(world.arrived(to), [packet]);
            sent += 1;
        }
    }
    let children = &world.ends[0].carrier.report(world.now)[0].children;
    assert_eq!((children.len(), sent), (1, 180));
    assert_ne!(children[0].inbound_spi, first);
}

#[test]
fn what_a_replaced_child_has_sent_is_received_after_it_is_deleted() {
    let mut world = World::new(Start::Always, [PORTS; 2]);
    let [packet, late] = [100, 101].map(|length| datagram(inside(0, 1), inside(1, 9), length));
    // Sealed by the first child, and on its way while both ends agree on another.
    let end = &mut world.ends[0];
    let mut underway = Vec::new();
    for mut packet in [packet.clone(), late] {
        end.carrier.send(&virtio_net::Header::NONE, &mut packet, world.now, &mut end.inner);
        underway.extend(end.carrier.outbox().batches().map(|(_, bytes)| bytes.to_vec()));
        end.carrier.outbox().clear();
    }
    let (spi, child) = end.carrier.children.iter().next().unwrap();
    end.carrier.ike.rekey_child(world.now, child.ike, ike::numbers::Spi(*spi)).unwrap();
    world.pass(2);
    let children = |world: &World, at: usize| world.ends[at].carrier.report(world.now)[0].children.len();
    assert_eq!([children(&world, 0), children(&world, 1)], [1, 1]);
    let arrives = |world: &mut World, mut bytes: Vec<u8>| {
        let (at, local) = (0..bytes.len(), outside(1));
        let (segment, remote) = (at.len(), SocketAddr::new(outside(0), PORTS.nat));
        let received = Received { at, segment, via: Via::Nat, local, remote, ecn: Ecn::NotEct };
        let end = &mut world.ends[1];
        end.carrier.receive(&mut bytes, &received, world.now, &mut end.inner);
    };
    arrives(&mut world, underway.remove(0));
    assert_eq!(world.arrived(1), [packet]);
    world.pass(super::child::LATE_FOR.as_secs());
    assert_eq!(world.ends[1].carrier.children.len(), 1);
    arrives(&mut world, underway.remove(0));
    assert!(world.arrived(1).is_empty());
    assert_eq!(world.drops(1), ["no_association"]);
}

#[test]
fn an_end_that_was_killed_is_found_again() {
    let mut world = World::new(Start::Always, [PORTS; 2]);
    let carrier = Carrier::new(&config(1, Start::Wait, PORTS), PORTS, Repeatable(99), world.now);
    world.ends[1].carrier = carrier;
    world.pass(900);
    assert!(world.is_up(0) && world.is_up(1));
    let packet = datagram(inside(0, 1), inside(1, 9), 100);
    world.send(0, packet.clone());
    assert_eq!(world.arrived(1), [packet]);
    let ups = world.ends[0].events.iter().filter(|event| matches!(event, Event::Up { .. })).count();
    assert_eq!(ups, 2, "a second beginning");
}

#[test]
fn of_two_that_begin_at_once_one_ike_sa_and_one_child_stay() {
    let mut world = World::of([config(0, Start::Always, PORTS), config(1, Start::Always, PORTS)], [PORTS; 2]);
    world.pass(10);
    for at in [0, 1] {
        assert!(world.is_up(at));
        assert_eq!(world.ends[at].carrier.conversations[0].established.len(), 1);
        assert_eq!(world.ends[at].carrier.children.len(), 1);
        let packet = datagram(inside(at, 1), inside(1 - at, 9), 100);
        world.send(at, packet.clone());
        assert_eq!(world.arrived(1 - at), [packet]);
    }
}

#[test]
fn an_end_that_goes_tells_the_other() {
    let mut world = World::new(Start::Always, [PORTS; 2]);
    let end = &mut world.ends[0];
    end.carrier.end(world.now, &mut end.inner);
    world.run();
    assert!(world.ends[0].carrier.is_quiet() && world.ends[1].carrier.is_quiet());
    world.pass(100);
    assert!(!world.is_up(0), "it does not begin again");
    assert!(world.ends[1].carrier.children.is_empty());
}

#[test]
fn a_rule_that_discards_counts_on_both_ways() {
    let upper = ipsec::selector::Upper::Protocol(protocol::UDP);
    let all = "::/0".parse().unwrap();
    let selector = ipsec::selector::Selector { upper, ..ipsec::selector::Selector::between(all, all) };
    let rule = |direction| ipsec::policy::Rule {
        direction,
        selector: selector.clone(),
        action: ipsec::policy::Action::Discard,
    };
    let mut configs = [config(0, Start::Always, PORTS), config(1, Start::Wait, PORTS)];
    configs[1].rules = vec![rule(Direction::In)];
    let mut world = World::of(configs, [PORTS; 2]);
    world.send(0, datagram(inside(0, 1), inside(1, 9), 10));
    assert!(world.arrived(1).is_empty());
    assert_eq!(world.drops(1), ["discarded"]);
}

#[test]
fn no_datagram_makes_it_panic() {
    let mut world = World::new(Start::Always, [PORTS; 2]);
    let mut random = Repeatable(5);
    let spi = world.ends[1].carrier.children.keys().next().unwrap().to_be_bytes();
    for length in (0..200).chain([1500, 65_000]) {
        let mut bytes = vec![0; length];
        random.fill(&mut bytes);
        if length % 2 == 0 {
            bytes.iter_mut().zip(spi).for_each(|(to, from)| *to = from);
        }
        for segment in [1, 4, 7, 64, length.max(1)] {
            for via in [Via::Ike, Via::Nat] {
                let end = &mut world.ends[1];
                let received = Received {
                    at: 0..length,
                    segment,
                    via,
                    local: outside(1),
                    remote: SocketAddr::new(outside(0), 4500),
                    ecn: Ecn::NotEct,
                };
                end.carrier.receive(&mut bytes.clone(), &received, world.now, &mut end.inner);
            }
        }
    }
    world.run();
    assert!(world.arrived(1).is_empty());
    let packet = datagram(inside(0, 1), inside(1, 9), 100);
    world.send(0, packet.clone());
    assert_eq!(world.arrived(1), [packet]);
}

/// The same with another child, or with others.
fn with_children(mut config: IpsecConfig, children: &[(TrafficSelector, TrafficSelector)]) -> IpsecConfig {
    let child = |(local, remote): &(TrafficSelector, TrafficSelector)| {
        ChildConfig::new(Mode::Tunnel, vec![*local], vec![*remote])
    };
    config.ike.peers[0].children = children.iter().map(child).collect();
    config
}

fn reload(world: &mut World, at: usize, config: &IpsecConfig) {
    let (now, end) = (world.now, &mut world.ends[at]);
    let kept = end.carrier.kept(config);
    end.carrier.reconfigure(config, &kept, [], now, &mut end.inner);
    world.run();
}

fn spis(world: &World, at: usize) -> Vec<(String, Vec<String>)> {
    let of = |remote: control::ipsec_status::Remote| {
        let children = remote.children.into_iter().map(|child| child.inbound_spi).collect();
        remote.ike.into_iter().map(move |ike| ike.spi).zip(std::iter::repeat::<Vec<String>>(children))
    };
    world.ends[at].carrier.report(world.now).into_iter().flat_map(of).collect()
}

#[test]
fn another_configuration_leaves_conversations_and_counters_and_begins_what_is_new() {
    let mut world = World::new(Start::Always, [PORTS, PORTS]);
    let packet = datagram(inside(0, 1), inside(1, 1), 10);
    world.send(0, datagram(inside(0, 1), inside(9, 1), 10));
    let (before, drops) = (spis(&world, 0), world.drops(0));
    assert!(!drops.is_empty());
    let further =
        [TrafficSelector::prefix(inside(5, 0).into(), 64), TrafficSelector::prefix(inside(6, 0).into(), 64)];
    let [here, there] = further;
    let of = |end: usize, children: &[(TrafficSelector, TrafficSelector)]| {
        let start = if end == 0 { Start::Always } else { Start::Wait };
        with_children(config(end, start, PORTS), children)
    };
    reload(&mut world, 1, &of(1, &[(behind(1), behind(0)), (there, here)]));
    reload(&mut world, 0, &of(0, &[(here, there), (behind(0), behind(1))]));
    let after = spis(&world, 0);
    assert_eq!((&after[0].0, &after[0].1[0]), (&before[0].0, &before[0].1[0]));
    assert_eq!((after[0].1.len(), world.drops(0)), (2, drops));
    for (source, destination) in [(inside(0, 1), inside(1, 1)), (inside(5, 1), inside(6, 1))] {
        world.send(0, datagram(source, destination, 10));
        assert_eq!(world.arrived(1), [datagram(source, destination, 10)]);
    }
    // One of the two goes; the other one stays as it is.
    reload(&mut world, 0, &of(0, &[(behind(0), behind(1))]));
    assert_eq!(spis(&world, 0), before);
    world.send(0, packet.clone());
    assert_eq!(world.arrived(1), [packet]);
}

#[test]
fn a_remote_that_is_configured_otherwise_is_begun_anew_and_one_that_is_gone_is_told() {
    let mut world = World::new(Start::Always, [PORTS, PORTS]);
    let before = spis(&world, 0);
    let mut other = config(0, Start::Always, PORTS);
    other.ike.peers[0].rekey_after += Duration::from_secs(1);
    reload(&mut world, 0, &other);
    world.pass(3);
    assert_ne!(spis(&world, 0), before);
    assert!(world.is_up(0) && world.is_up(1));
    (other.remotes, other.ike.peers) = (Vec::new(), Vec::new());
    reload(&mut world, 0, &other);
    assert!(spis(&world, 1).is_empty());
}

#[test]
fn a_gateway_that_was_killed_and_is_back_is_found_within_seconds_by_who_sends() {
    let mut world = World::new(Start::Always, [PORTS, PORTS]);
    let (config, now) = (config(1, Start::Wait, PORTS), world.now);
    world.ends[1].carrier = Carrier::new(&config, PORTS, Repeatable(99), now);
    let packet = datagram(inside(0, 1), inside(1, 1), 10);
    for _ in 0..4 {
        world.send(0, packet.clone());
        world.pass(1);
    }
    world.arrived(1);
    world.send(0, packet.clone());
    assert_eq!(world.arrived(1), [packet]);
    assert_eq!((spis(&world, 0).len(), spis(&world, 1).len()), (1, 1), "nothing is left of before");
}

#[test]
fn an_end_that_does_not_answer_is_told_of_long_before_it_is_given_up() {
    let mut world = World { lost: Some([0; 4]), ..World::new(Start::Wait, [PORTS; 2]) };
    let config = config(0, Start::Always, PORTS);
    world.ends[0].carrier = Carrier::new(&config, PORTS, Repeatable(3), world.now);
    world.pass(6);
    let told = |world: &World| world.ends[0].carrier.report(world.now)[0].last_failure.clone();
    assert_eq!(told(&world), None);
    world.pass(10);
    let expected = "no answer from [2001:db8::2]:500 so far: is it up, and does every firewall on the way let UDP 500 and 4500 through?";
    assert_eq!(told(&world).as_deref(), Some(expected));
    let unanswered = Event::Unanswered { remote: RemoteIndex(0), what: expected.to_owned() };
    assert_eq!(world.ends[0].events.iter().filter(|event| **event == unanswered).count(), 1);
    world.lost = None;
    world.pass(40);
    assert_eq!((world.is_up(0), told(&world)), (true, None));
}

#[test]
fn who_sends_and_hears_nothing_asks_soon_and_begins_anew_beside_what_there_is() {
    let mut world = World::new(Start::Always, [PORTS, PORTS]);
    let before = spis(&world, 0);
    let packet = datagram(inside(0, 1), inside(1, 1), 10);
    let mut attempts = 0;
    world.lost = Some([0; 4]);
    for _ in 0..20 {
        let end = &mut world.ends[0];
        end.carrier.send(&virtio_net::Header::NONE, &mut packet.clone(), world.now, &mut end.inner);
        end.carrier.outbox().clear();
        world.now += Duration::from_secs(1);
        world.run();
        attempts += usize::from(world.ends[0].events.contains(&Event::Reach(RemoteIndex(0))));
        assert_eq!(spis(&world, 0), before, "nothing is given up so far");
    }
    assert!(attempts > 0);
}

#[test]
fn this_end_goes_on_from_another_address_at_once() {
    let configs = [0, 1].map(|end| {
        let mut config = config(end, if end == 0 { Start::Always } else { Start::Wait }, PORTS);
        config.ike.peers[0].mobile = true;
        config
    });
    let mut world = World::of(configs, [PORTS, PORTS]);
    let before = spis(&world, 0);
    let elsewhere = IpAddr::from([0x2001, 0xdb8, 7, 0, 0, 0, 0, 7]);
    let (now, end) = (world.now, &mut world.ends[0]);
    end.address = elsewhere;
    end.carrier.move_where(|_| None, now, &mut end.inner);
    assert!(end.carrier.outbox().is_empty(), "there is no way now: nothing changes");
    end.carrier.move_where(|_| Some(elsewhere), now, &mut end.inner);
    world.run();
    for from in [0, 1] {
        let packet = datagram(inside(from, 1), inside(1 - from, 1), 10);
        world.send(from, packet.clone());
        assert_eq!(world.arrived(1 - from), [packet], "from {from}");
    }
    assert_eq!(spis(&world, 0), before);
    assert_eq!(world.ends[1].carrier.report(world.now)[0].children[0].remote.ip(), elsewhere);
}
