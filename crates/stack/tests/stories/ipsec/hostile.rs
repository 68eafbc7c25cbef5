//! Packets that were recorded, changed, or wrapped up by somebody who may not.

use ipsec::association::Usage;
use ipsec::packet_buffer::PacketBuffer;
use wire::udp;

use super::*;
use crate::link::mac;

const THIRD: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xc);

/// A datagram in a packet, from anywhere.
fn datagram(from: Ipv6Addr, data: &[u8]) -> Vec<u8> {
    let mut plain = pair("");
    let id = socket(&mut plain, 0, Levels::NONE);
    plain.hosts[0].add_address(plain.now, from, 64);
    plain.run(SECOND * 3);
    plain.hosts[0].udp_close(id);
    let id = plain.hosts[0].udp_bind(at(from, PORT)).unwrap();
    plain.sent();
    send(&mut plain, id, data);
    let is_datagram = |packet: &Vec<u8>| matches!(packet[6], protocol::UDP | protocol::FRAGMENT);
    plain.sent().into_iter().find(is_datagram).unwrap()
}

/// What the holder of the keys makes of a packet, whatever is in it.
fn seal(association: &mut Association, packet: &[u8], now: Instant) -> Vec<u8> {
    let mut buffer = vec![0; 200 + packet.len() + 200];
    buffer[200..200 + packet.len()].copy_from_slice(packet);
    let mut sealed = PacketBuffer::new(&mut buffer, 200..200 + packet.len()).unwrap();
    ipsec::esp::seal(association, &mut sealed, now).unwrap();
    sealed.packet().to_vec()
}

fn usage(link: &mut Link<Ipsec>) -> Vec<Usage> {
    link.hosts[1].security().engine().associations().map(|(_, association)| association.usage()).collect()
}

#[test]
fn a_packet_that_was_recorded_is_not_delivered_again() {
    for (levels, file, _) in ways() {
        let mut link = pair(&file);
        let (from, to) = (socket(&mut link, 0, levels), socket(&mut link, 1, levels));
        send(&mut link, from, b"once");
        assert_eq!(received(&mut link, 1, to).len(), 1);
        let recorded = between(link.sent()).remove(0);
        let before = usage(&mut link);
        link.inject(mac(0), mac(1), &recorded);
        assert_eq!(dropped(&mut link, 1, DropReason::Replayed), 1, "{file}");
        assert_eq!((received(&mut link, 1, to).len(), usage(&mut link)), (0, before));
        assert!(link.sent().is_empty(), "nobody is answered");
    }
}

#[test]
fn a_packet_in_anothers_name_out_of_a_tunnel_counts_as_unprotected() {
    let file = tunnel(GCM);
    let (genuine, forged) = (datagram(A, b"genuine"), datagram(THIRD, b"forged"));
    for (levels, delivered) in [(Levels::NONE, 1), (AH, 0), (TUNNEL, 0)] {
        let mut link = pair(&file);
        let to = socket(&mut link, 1, levels);
        let mut end = end_of(&file, link.now);
        for packet in [&genuine, &forged] {
            let packet = seal(&mut end, packet, link.now);
            link.inject(mac(0), mac(1), &packet);
        }
        let all = received(&mut link, 1, to);
        assert_eq!(all[0], b"genuine");
        assert_eq!(all.len(), 1 + delivered, "{levels:?}");
        let refused =
            dropped(&mut link, 1, DropReason::NotAuthentic) + dropped(&mut link, 1, DropReason::NotTunnelled);
        assert_eq!(refused, 1 - delivered as u64);
    }
}

#[test]
fn a_packet_to_another_host_does_not_get_out_of_a_tunnel() {
    let file = tunnel(GCM);
    let mut link = pair(&file);
    let mut packet = datagram(A, b"onwards");
    packet[39] = 0xc;
    let packet = seal(&mut end_of(&file, link.now), &packet, link.now);
    let before = link.hosts[1].drops().of(stack::DropReason::NotForUs);
    link.inject(mac(0), mac(1), &packet);
    assert_eq!(link.hosts[1].drops().of(stack::DropReason::NotForUs), before + 1);
    assert!(link.sent().is_empty());
}

/// A packet in two fragments.
fn fragments(packet: &[u8]) -> [Vec<u8>; 2] {
    let fragment = |range: std::ops::Range<usize>, more: u8| {
        let data = &packet[40..][range.clone()];
        let offset = (range.start as u16).to_be_bytes();
        let mut piece = packet[..40].to_vec();
        piece[4..6].copy_from_slice(&(data.len() as u16 + 8).to_be_bytes());
        piece[6] = protocol::FRAGMENT;
        piece.extend([protocol::UDP, 0, offset[0], offset[1] | more, 0, 0, 0, 77]);
        piece.extend(data);
        piece
    };
    [fragment(0..16, 1), fragment(16..packet.len() - 40, 0)]
}

#[test]
fn fragments_out_of_a_tunnel_are_not_put_together_with_others() {
    let file = tunnel(GCM);
    let packet = datagram(A, &[1; 40]);
    for in_clear in [None, Some(0), Some(1)] {
        let mut link = pair(&file);
        let to = socket(&mut link, 1, TUNNEL);
        let mut end = end_of(&file, link.now);
        for (number, fragment) in fragments(&packet).into_iter().enumerate() {
            let is_clear = in_clear == Some(number);
            let sent = if is_clear { fragment } else { seal(&mut end, &fragment, link.now) };
            link.inject(mac(0), mac(1), &sent);
        }
        let delivered = usize::from(in_clear.is_none());
        assert_eq!(received(&mut link, 1, to).len(), delivered, "{in_clear:?}");
    }
}

#[test]
fn nobody_is_told_in_clear_of_fragments_out_of_a_tunnel() {
    let file = tunnel(GCM);
    let [first, _] = fragments(&datagram(A, &[1; 40]));
    for (is_clear, errors) in [(true, 1), (false, 0)] {
        let mut link = pair(&file);
        let sent =
            if is_clear { first.clone() } else { seal(&mut end_of(&file, link.now), &first, link.now) };
        link.inject(mac(0), mac(1), &sent);
        link.run(SECOND * 61);
        assert_eq!(link.hosts[1].drops().of(stack::DropReason::ReassemblyTimeout), 1);
        assert_eq!(between(link.sent()).len(), errors);
    }
}

#[test]
fn what_was_changed_on_the_way_changes_nothing() {
    let mut random = fastrand::Rng::with_seed(1);
    for (levels, file, _) in ways() {
        let mut link = pair(&file);
        let from = socket(&mut link, 0, levels);
        send(&mut link, from, &[5; 64]);
        let packet = between(link.sent()).remove(0);
        // Hosts that this packet has not reached, and which would take it.
        let mut fresh = pair(&file);
        let to = socket(&mut fresh, 1, levels);
        let before = usage(&mut fresh);
        for _ in 0..500 {
            let mut changed = packet.clone();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(40..changed.len());
                changed[at] ^= random.u8(1..);
            }
            if random.bool() {
                changed.truncate(random.usize(40..changed.len()));
                let length = (changed.len() - 40) as u16;
                changed[4..6].copy_from_slice(&length.to_be_bytes());
            }
            if changed != packet {
                fresh.inject(mac(0), mac(1), &changed);
            }
        }
        assert_eq!(usage(&mut fresh), before, "{file}");
        assert!(fresh.sent().iter().all(|packet| packet[6] == protocol::ICMPV6), "errors at most");
        fresh.inject(mac(0), mac(1), &packet);
        assert_eq!(received(&mut fresh, 1, to).len(), 1, "{file}");
    }
}

#[test]
fn no_packet_panics_whatever_is_changed_in_it() {
    let mut random = fastrand::Rng::with_seed(2);
    for (levels, file, _) in ways() {
        let mut link = pair(&file);
        let from = socket(&mut link, 0, levels);
        require(&mut link, levels);
        send(&mut link, from, &[5; 1500]);
        send(&mut link, from, &[5; 100]);
        let recorded = between(link.sent());
        for _ in 0..500 {
            let mut changed = random.choice(&recorded).unwrap().clone();
            for _ in 0..random.usize(1..6) {
                let at = random.usize(..changed.len());
                changed[at] = random.u8(..);
            }
            changed.truncate(random.usize(..=changed.len()));
            link.inject(mac(0), mac(1), &changed);
        }
        link.run(SECOND * 100);
    }
}

#[test]
fn what_is_inside_must_still_be_a_datagram() {
    let mut link = pair(&esp(GCM));
    let to = socket(&mut link, 1, ESP);
    let mut packet = datagram(A, b"checksum");
    packet[40 + udp::CHECKSUM_OFFSET] ^= 1;
    let packet = seal(&mut end_of(&esp(GCM), link.now), &packet, link.now);
    link.inject(mac(0), mac(1), &packet);
    assert_eq!(received(&mut link, 1, to).len(), 0);
    assert_eq!(link.hosts[1].drops().of(stack::DropReason::Checksum), 1);
}
