//! What fits the path: discovery, errors to inner senders, splitting, clamping; and how large datagrams are.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use sidestep_mt6d::DropReason;
use sidestep_mt6d::config::Padding;
use wire::ecn::Ecn;
use wire::{icmpv4, icmpv6, ipv4, ipv6, tcp, virtio_net};

use crate::network::{A, B, Flow, Network, Stream, host};

/// A pair on a path that carries packets of so many bytes.
fn on_path(mtu: usize) -> Network {
    let mut network = Network::pair(mtu as u64);
    network.configure(|peer| peer.rotation = Duration::from_secs(2));
    for site in [A, B] {
        network.sites[site].config.link_mtu = if mtu > 1500 { 9000 } else { 1500 };
    }
    network.path.mtu = mtu;
    network.path.delay = 5_000;
    network
}

/// The MTU that an ICMP error about a packet states; checks the error.
fn stated_mtu(error: &[u8], sender: IpAddr) -> usize {
    match sender {
        IpAddr::V6(sender) => {
            let packet = ipv6::Packet::parse(error).expect("a packet");
            assert_eq!(packet.destination(), sender);
            let message = icmpv6::Message::of_packet(&packet).expect("with a right checksum");
            assert_eq!((message.message_type(), message.code()), (icmpv6::PACKET_TOO_BIG, 0));
            assert!(error.len() <= 1280);
            message.body() as usize
        }
        IpAddr::V4(sender) => {
            let packet = ipv4::Packet::parse(error).expect("a packet");
            assert!(packet.has_valid_checksum());
            assert_eq!(packet.destination(), sender);
            let message = icmpv4::Message::parse(packet.payload()).expect("a message");
            assert_eq!((message.message_type(), message.code()), (3, 4));
            message.body() as usize & 0xffff
        }
    }
}

#[test]
fn the_path_mtu_is_found() {
    for mtu in [1280, 1300, 1400, 1480, 1492, 1500, 9000] {
        let mut network = on_path(mtu);
        network.start();
        network.establish();
        // Packets that every IPv6 path carries, from the first instant on, and of both families.
        for (from, to) in [(A, B), (B, A)] {
            network.send(from, to, Stream::udp().of(1280).every_ms(20));
            network.send(from, to, Stream::tcp().of(1200).over_ipv4().every_ms(20));
        }
        network.run_s(12);
        network.assert_all_arrived();
        for site in [A, B] {
            let found = usize::from(network.status(site).path_mtu.unwrap());
            assert!(found <= mtu && found + 8 >= mtu, "found {found} of {mtu}");
            assert!(network.sites[site].errors.is_empty());
        }
    }
}

#[test]
fn senders_are_told_what_fits_and_that_fits() {
    for mtu in [1280, 1300, 1400, 1480, 1500, 9000] {
        let mut network = on_path(mtu);
        network.start();
        network.establish();
        network.run_s(12);
        let path = usize::from(network.status(A).path_mtu.unwrap());
        // IPv6 with the three bytes of its context, never less than IPv6 demands; IPv4 in full.
        for (v4, fits) in [(false, (path - 48 - 20 + 32 - 3).max(1280)), (true, path - 48 - 20)] {
            for kind in [Stream::udp(), Stream::tcp()] {
                let kind = if v4 { kind.over_ipv4() } else { kind };
                network.flows.clear();
                network.sites[A].errors.clear();
                network.send(A, B, kind.clone().of(fits).every_ms(100));
                network.run_s(2);
                network.assert_all_arrived();
                assert!(network.sites[A].errors.is_empty());

                network.flows.clear();
                network.send(A, B, kind.of(fits + 1).every_ms(100));
                network.run_s(2);
                network.stop();
                let flow = &network.flows[0];
                assert_eq!(flow.lost(), flow.sent.len());
                let errors = &network.sites[A].errors;
                assert_eq!(errors.len(), flow.sent.len());
                for (_, error) in errors {
                    assert_eq!(stated_mtu(error, host(A, 1, v4)), fits, "path {path}");
                }
            }
        }
        assert!(network.drops(A, DropReason::TooBig) > 0);
    }
}

#[test]
fn a_gso_packet_of_segments_that_do_not_fit_is_refused_whole() {
    let mut network = on_path(1400);
    network.start();
    network.establish();
    network.run_s(12);
    network.send(A, B, Stream::tcp().of(1400).every_ms(100).batches(10));
    network.send(A, B, Stream::udp().of(1300).every_ms(100).batches(30));
    network.run_s(5);
    network.stop();
    network.assert_nothing_wrong();
    assert_eq!(network.flows[0].lost(), network.flows[0].sent.len());
    assert_eq!(network.flows[1].lost(), 0);
    assert_eq!(stated_mtu(&network.sites[A].errors[0].1, host(A, 1, false)), 1400 - 39);
}

#[test]
fn a_black_hole_in_mid_session_heals() {
    for small in [1280, 1290, 1400] {
        let mut network = on_path(1500);
        network.start();
        network.establish();
        network.run_s(5);
        network.send(A, B, Stream::tcp().of(1461).every_ms(20));
        network.send(A, B, Stream::udp().of(1280).every_ms(20));
        network.run_s(5);
        network.path.mtu = small;
        let at = network.now;
        network.run_s(30);
        assert!(usize::from(network.status(A).path_mtu.unwrap()) + 8 >= small);
        network.stop();
        network.assert_nothing_wrong();
        assert_eq!(network.flows[1].lost_since(at + 22_000_000), 0);
        // Those that do not fit any more were refused, and their sender told.
        let told = &network.sites[A].errors.last().expect("the sender is told").1;
        assert_eq!(stated_mtu(told, host(A, 1, false)), (network.path.mtu - 39).max(1280));

        // The path gets better, and the next search finds out.
        network.path.mtu = 1500;
        network.flows.clear();
        network.send(A, B, Stream::udp().of(1280).every_ms(100));
        network.run_s(800);
        assert_eq!(network.status(A).path_mtu, Some(1500));
    }
}

/// A SYN of a TCP connection between hosts of the two sites, and where its maximum segment size is.
fn syn(v4: bool) -> (Vec<u8>, usize) {
    let flow = Flow::new(if v4 { Stream::tcp().over_ipv4() } else { Stream::tcp() }.of(100), u32::MAX, A, B);
    let mut packet = flow.packet(0);
    let transport = if v4 { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
    let (flags, options) = (transport + 13, transport + tcp::HEADER_LEN);
    packet[transport + 12] = 6 << 4;
    packet[flags] = tcp::SYN;
    packet[options..options + 4].copy_from_slice(&[2, 4, 0xff, 0xff]);
    // With a right checksum.
    packet[transport + tcp::CHECKSUM_OFFSET..][..2].fill(0);
    let checksum = checksum(&packet, transport);
    packet[transport + tcp::CHECKSUM_OFFSET..][..2].copy_from_slice(&(!checksum).to_be_bytes());
    (packet, options + 2)
}

/// The sum over a TCP segment and its pseudo-header: 0xffff if its checksum is right.
fn checksum(packet: &[u8], transport: usize) -> u16 {
    let addresses = if transport == 20 { &packet[12..20] } else { &packet[8..40] };
    let length = (packet.len() - transport) as u16;
    let pseudo =
        wire::checksum::Sum::of(addresses) + wire::checksum::Sum::word(length) + wire::checksum::Sum::word(6);
    (pseudo + wire::checksum::Sum::of(&packet[transport..])).value()
}

#[test]
fn the_maximum_segment_size_is_clamped_to_what_fits() {
    // In whole blocks of 16 bytes: of 1432, 1332 and 1212 bytes, 1424, 1328 and 1200.
    for (mtu, v6, v4) in
        [(1500, 1453 - 60, 1424 - 40), (1400, 1357 - 60, 1328 - 40), (1280, 1229 - 60, 1200 - 40)]
    {
        let mut network = on_path(mtu);
        network.start();
        network.establish();
        network.run_s(12);
        for (is_v4, expected) in [(false, v6), (true, v4)] {
            let (packet, at) = syn(is_v4);
            network.sites[B].others.clear();
            network.inject(A, virtio_net::Header::NONE, packet);
            network.run_s(1);
            let arrived = &network.sites[B].others[0];
            assert_eq!(u16::from_be_bytes([arrived[at], arrived[at + 1]]), expected, "path {mtu}");
            assert_eq!(checksum(arrived, at - 22), 0xffff);
        }
    }
}

/// The observer's sizes once a session has settled, with mixed traffic.
fn sizes(padding: Padding, cover: u32, mtu: usize) -> BTreeSet<usize> {
    let mut network = on_path(mtu);
    network.configure(|peer| (peer.padding, peer.cover) = (padding, cover));
    // Of two wishes the stronger holds.
    network.sites[A].peer(0).padding = Padding::None;
    network.start();
    network.establish();
    network.run_s(15);
    network.observer.keeps = true;
    for (from, to) in [(A, B), (B, A)] {
        network.send(from, to, Stream::udp().of(77).every_ms(50));
        network.send(from, to, Stream::ping().of(333).every_ms(70));
        network.send(from, to, Stream::tcp().of(1200).every_ms(110));
        network.send(from, to, Stream::udp().of(900).over_ipv4().every_ms(130).batches(3));
    }
    network.run_s(200);
    network.assert_all_arrived();
    assert!(network.status(A).session.unwrap().rekeys >= 1);
    network.observer.sizes().into_keys().collect()
}

#[test]
fn full_padding_shows_one_size() {
    assert_eq!(sizes(Padding::Full, 0, 1500), BTreeSet::from([1500]));
    assert_eq!(sizes(Padding::Full, 5, 1400), BTreeSet::from([1400]));
    assert_eq!(sizes(Padding::Full, 0, 1280), BTreeSet::from([1280]));
}

#[test]
fn buckets_show_a_ladder() {
    let ladder = BTreeSet::from([128, 256, 512, 768, 1024, 1280, 1500]);
    assert!(sizes(Padding::Buckets, 0, 1500).is_subset(&ladder));
    assert!(sizes(Padding::Buckets, 5, 1500).is_subset(&ladder));
}

#[test]
fn no_padding_shows_sizes() {
    let sizes = sizes(Padding::None, 0, 1500);
    for expected in [77 + 39, 333 + 39, 1200 + 39, 900 + 68] {
        assert!(sizes.contains(&expected), "{expected}");
    }
}

#[test]
fn full_padding_hides_ecn() {
    let mut network = on_path(1500);
    network.configure(|peer| peer.padding = Padding::Full);
    network.observer.keeps = true;
    network.start();
    network.establish();
    network.send(A, B, Stream::udp().marked(Ecn::Ect0));
    network.run_s(5);
    network.assert_all_arrived();
    assert!(network.observer.seen.iter().all(|s| s.ecn == Ecn::NotEct));
}

#[test]
fn cover_traffic_keeps_its_rate() {
    for (cover, busy) in [(1, false), (50, false), (50, true)] {
        let mut network = on_path(1500);
        network.configure(|peer| (peer.cover, peer.padding) = (cover, Padding::Full));
        network.start();
        network.establish();
        network.run_s(15);
        if busy {
            network.send(A, B, Stream::udp().every_ms(10));
            network.send(B, A, Stream::udp().every_ms(10));
        }
        for _ in 0..5 {
            let (before, data) =
                (network.observer.count, network.flows.iter().map(|f| f.sent.len()).sum::<usize>());
            network.run_s(20);
            let data = network.flows.iter().map(|f| f.sent.len()).sum::<usize>() - data;
            let others = network.observer.count - before - data as u64;
            // Openers and probes come on top: about three for each lane, and three lanes are born in a second.
            let expected = u64::from(cover) * 20 * 2;
            assert!((expected - 2..expected + 260).contains(&others), "{others} of {expected}");
        }
    }
}
