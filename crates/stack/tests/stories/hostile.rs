//! Whatever arrives, nothing panics, and what is kept stays bounded.

use std::net::Ipv6Addr;

use fastrand::Rng;
use stack::neighbor::{MAX_NEIGHBORS, State};
use stack::route::MAX_ROUTERS;
use stack::{autoconf, interface::NoUpper};
use wire::ethernet::MacAddress;
use wire::ndp::{ALL_NODES, AdvertisedOption, NeighborSolicitation, Redirect};

use crate::link::{ANY, FAR, Link, MINUTE, SECOND, advertisement, at, frame, mac, prefix};

/// Frames that a host gets in a good life.
fn good(link: &mut Link) -> Vec<Vec<u8>> {
    let us = link.global(0);
    let them = link.global(1);
    let router = link.routers[0].address;
    let redirect = Redirect {
        source: router,
        receiver: us,
        target: FAR,
        destination: FAR,
        target_link_layer: Some(mac(3)),
        redirected: &[0x60; 80],
    };
    let solicitation =
        NeighborSolicitation { source: them, destination: us, target: us, source_link_layer: mac(1) };
    let server = link.hosts[0].udp_bind(at(ANY, 53)).unwrap();
    let client = link.hosts[1].udp_bind(at(ANY, 0)).unwrap();
    link.sent();
    link.hosts[1].udp_send(link.now, client, Some(at(us, 53)), &[1; 3000]).unwrap();
    link.hosts[1].udp_send(link.now, client, Some(at(us, 54)), &[1; 30]).unwrap();
    link.hosts[1].ping(link.now, us, 1, 1, &[1; 2000]).unwrap();
    link.hosts[0].udp_send(link.now, server, Some(at(them, 99)), b"x").unwrap();
    link.run(SECOND);
    let mut packets = link.sent();
    packets.push(redirect.to_packet());
    packets.push(solicitation.to_packet().to_vec());
    packets.push(advertisement(vec![prefix("2001:db8:7::", 600, 7200)]).to_packet(router, ALL_NODES));
    packets.iter().map(|packet| frame(mac(1), mac(0), packet)).collect()
}

/// Changes a few octets of a frame; half of the time the checksum is what it should be again.
pub(crate) fn mutated(frame: &[u8], random: &mut Rng) -> Vec<u8> {
    let mut bytes = frame.to_vec();
    for _ in 0..random.usize(1..5) {
        let at = random.usize(14..bytes.len());
        bytes[at] = random.u8(..);
    }
    match random.u8(0..4) {
        0 => bytes.truncate(random.usize(0..bytes.len())),
        1 => bytes.extend((0..random.usize(0..40)).map(|_| random.u8(..))),
        _ => {}
    }
    if random.bool() {
        correct_checksum(&mut bytes);
    }
    bytes
}

/// Makes the checksum of a frame what it should be.
pub(crate) fn correct_checksum(frame: &mut [u8]) {
    use wire::{checksum::Sum, ipv6::Packet, protocol};
    let Some(packet) = frame.get(14..).and_then(|packet| Packet::parse(packet).ok()) else { return };
    let Ok(upper) = packet.upper_layer() else { return };
    let at = match upper.protocol {
        protocol::ICMPV6 => 2,
        protocol::UDP => 6,
        protocol::TCP => 16,
        _ => return,
    } + 14
        + upper.offset;
    let end = 54 + packet.payload().len();
    let length = (end - 14 - upper.offset) as u32;
    let pseudo = packet.pseudo_header(length, upper.protocol);
    let Some(field) = frame.get_mut(at..at + 2).filter(|_| at + 2 <= end) else { return };
    field.fill(0);
    let sum = (pseudo + Sum::of(&frame[14 + upper.offset..end])).checksum();
    frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

#[test]
fn mutated_packets_are_survived_and_memory_stays_bounded() {
    for seed in 0..20 {
        let mut random = Rng::with_seed(seed);
        let mut link = Link::new(2);
        link.add_router(1);
        link.run(SECOND * 5);
        let frames = good(&mut link);
        let mut out = Vec::new();
        for _ in 0..2000 {
            let bytes = mutated(&frames[random.usize(0..frames.len())], &mut random);
            link.hosts[0].receive(link.now, &bytes, &mut NoUpper);
            if random.u8(0..20) == 0 {
                link.now += std::time::Duration::from_millis(random.u64(0..2000));
                link.hosts[0].handle_timeout(link.now, &mut NoUpper);
            }
            while link.hosts[0].poll_transmit(&mut out) {}
        }
        assert!(link.hosts[0].neighbors().len() <= MAX_NEIGHBORS);
        assert!(link.hosts[0].addresses().iter().count() <= autoconf::MAX_ADDRESSES);
        // And it still works.
        link.run(SECOND * 90);
        let (a, b) = (link.link_local(0), link.link_local(1));
        assert!(link.ping(1, a) || link.ping(0, b), "seed {seed}");
    }
}

#[test]
fn random_frames_are_survived() {
    let mut random = Rng::with_seed(1);
    let mut link = Link::new(1);
    link.run(SECOND * 3);
    for _ in 0..20_000 {
        let mut packet: Vec<u8> = (0..random.usize(0..120)).map(|_| random.u8(..)).collect();
        if packet.len() >= 40 {
            packet[0] = 0x60;
            let length = (packet.len() - 40) as u16;
            packet[4..6].copy_from_slice(&length.to_be_bytes());
            packet[6] = [0, 17, 43, 44, 50, 51, 58, 60][random.usize(0..8)];
            packet[24..40].copy_from_slice(&link.link_local(0).octets());
        }
        let bytes = frame(mac(9), mac(0), &packet);
        link.hosts[0].receive(link.now, &bytes, &mut NoUpper);
    }
    link.run(SECOND * 61);
}

#[test]
fn rfc_6583_a_flood_of_neighbors_leaves_those_we_talk_to() {
    let mut link = Link::new(2);
    link.run(SECOND * 3);
    let (us, them) = (link.link_local(0), link.link_local(1));
    assert!(link.ping(0, them));
    for number in 0..5000u16 {
        let source = std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 7, number);
        let question =
            NeighborSolicitation { source, destination: us, target: us, source_link_layer: mac(9) };
        link.inject(mac(9), mac(0), &question.to_packet());
    }
    assert_eq!(link.hosts[0].neighbors().len(), MAX_NEIGHBORS);
    assert!(link.ping(0, them));
}

/// So many routers that are not there advertise themselves, each with a prefix, a server and an address of its own.
fn forge_routers(link: &mut Link, numbers: std::ops::Range<u16>) {
    for number in numbers {
        let source = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0xbad, number);
        let server = Ipv6Addr::new(0x2001, 0xdb8, 0xbad, number, 0, 0, 0, 0x53);
        let net = format!("2001:db8:bad:{number:x}::");
        let said = advertisement(vec![
            prefix(&net, 1800, 1800),
            AdvertisedOption::DnsServers { lifetime: 1800, servers: vec![server] },
            AdvertisedOption::SourceLinkLayer(mac(9)),
        ]);
        link.inject(mac(9), mac(0), &said.to_packet(source, ALL_NODES));
    }
}

/// Whether a host has a router, an address in its prefix, and its server.
fn has(link: &Link, router: usize) -> [bool; 3] {
    let host = &link.hosts[0];
    let good = |address: Ipv6Addr| address.segments()[..3] == [0x2001, 0xdb8, 1];
    [
        host.default_routers().any(|known| known == link.routers[router].address),
        host.addresses().iter().any(|known| good(known.address)),
        host.dns_servers().any(good),
    ]
}

fn add_router_with_server(link: &mut Link) {
    link.add_router(1);
    let servers = vec!["2001:db8:1::53".parse().unwrap()];
    let said = link.routers[0].says.as_mut().unwrap();
    said.options.push(AdvertisedOption::DnsServers { lifetime: 1800, servers });
}

#[test]
fn a_router_that_comes_after_a_flood_of_forged_ones_has_its_place_and_keeps_it() {
    let mut link = Link::new(1);
    link.run(SECOND * 5);
    forge_routers(&mut link, 0..600);
    link.run(MINUTE * 11);
    assert_eq!(link.hosts[0].default_routers().count(), MAX_ROUTERS);
    assert!(link.hosts[0].addresses().iter().count() <= autoconf::MAX_ADDRESSES);
    add_router_with_server(&mut link);
    let said = link.routers[0].says.clone().unwrap();
    link.advertise(0, &said);
    assert_eq!(has(&link, 0), [true; 3]);
    forge_routers(&mut link, 600..1200);
    link.run(SECOND * 5);
    assert_eq!(has(&link, 0), [true; 3]);
    link.hosts[0].ping(link.now, FAR, 1, 1, b"").unwrap();
    link.run(SECOND);
    assert_eq!(link.routers[0].forwarded.len(), 1, "and packets go there");
}

#[test]
fn a_flood_of_forged_routers_changes_nothing_for_one_that_is_reachable() {
    // In use, and not yet.
    for used in [true, false] {
        let mut link = Link::new(1);
        add_router_with_server(&mut link);
        link.run(SECOND * 5);
        if used {
            link.hosts[0].ping(link.now, FAR, 1, 1, b"").unwrap();
            link.run(MINUTE);
        }
        assert_eq!(has(&link, 0), [true; 3]);
        let address = link.global(0);
        link.routers[0].forwarded.clear();
        for round in 0..5 {
            forge_routers(&mut link, round * 600..round * 600 + 600);
            assert_eq!(has(&link, 0), [true; 3]);
            assert!(link.hosts[0].addresses().is_assigned(address));
            link.hosts[0].ping(link.now, FAR, 1, 1, b"").unwrap();
            link.run(MINUTE);
            assert_eq!(link.routers[0].forwarded.len(), usize::from(round) + 1);
        }
    }
}

#[test]
fn a_router_that_has_gone_gives_its_place_to_a_newcomer_though_it_was_reachable_once() {
    let mut link = Link::new(1);
    for number in 1..=MAX_ROUTERS as u8 {
        link.add_router(number);
    }
    link.run(MINUTE);
    assert_eq!(link.hosts[0].default_routers().count(), MAX_ROUTERS);
    link.add_router(100);
    let newcomer = link.routers.len() - 1;
    let said = link.routers[newcomer].says.clone().unwrap();
    link.advertise(newcomer, &said);
    assert!(!has(&link, newcomer)[0], "all are reachable");
    for router in &mut link.routers[..newcomer] {
        (router.alive, router.says) = (false, None);
    }
    for _ in 0..4 {
        link.run(MINUTE);
        link.advertise(newcomer, &said);
    }
    assert!(has(&link, newcomer)[0]);
    let reachable =
        |at: Ipv6Addr| matches!(link.hosts[0].neighbors().state(at), Some(State::Reachable { .. }));
    assert!(reachable(link.routers[newcomer].address), "and is found to be there");
}

#[test]
fn who_asks_routers_whether_they_are_there_asks_each_a_few_times_only() {
    let mut link = Link::new(1);
    link.run(SECOND * 5);
    link.sent();
    forge_routers(&mut link, 0..600);
    link.run(MINUTE);
    let of_routers = |packet: &&(MacAddress, Vec<u8>)| packet.0 == mac(9);
    let asked = link.seen.iter().filter(of_routers).count();
    assert!((600 - MAX_ROUTERS..=1800).contains(&asked), "{asked}");
}
