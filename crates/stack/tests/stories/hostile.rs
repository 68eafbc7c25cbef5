//! Whatever arrives, nothing panics, and what is kept stays bounded.

use fastrand::Rng;
use stack::neighbor::MAX_NEIGHBORS;
use stack::{autoconf, interface::NoUpper};
use wire::ndp::{ALL_NODES, NeighborSolicitation, Redirect};

use crate::link::{ANY, FAR, Link, SECOND, advertisement, at, frame, mac, prefix};

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
