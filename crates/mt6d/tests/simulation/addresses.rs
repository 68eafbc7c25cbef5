//! Inner addresses: how they are named on the wire, and which may pass.

use std::collections::HashSet;
use std::time::Duration;

use ipnet::IpNet;
use sidestep_mt6d::DropReason;
use wire::virtio_net;

use crate::network::{A, B, Flow, Network, Stream, Translator, hop_prefix};

fn established(change: impl FnOnce(&mut Network)) -> Network {
    let mut network = Network::pair(5);
    network.configure(|peer| peer.rotation = Duration::from_secs(5));
    change(&mut network);
    network.start();
    network.establish();
    network.run_s(1);
    network
}

/// Outer length minus inner length of the packets of a stream: of the first ones, and later.
fn overheads(network: &mut Network, stream: Stream) -> (HashSet<usize>, HashSet<usize>) {
    network.observer.keeps = true;
    let length = stream.length;
    let seen = |network: &mut Network, ms: u64| {
        network.observer.seen.clear();
        network.run(Duration::from_millis(ms));
        // Control messages and probes have other sizes, but openers that of a packet before: these are 1,000 bytes long.
        let sizes = network.observer.sizes();
        sizes.into_keys().filter(|l| (length..length + 80).contains(l)).map(|l| l - length).collect()
    };
    network.flows.clear();
    network.send(A, B, stream);
    let first = seen(network, 35);
    let later = seen(network, 5_000);
    network.assert_all_arrived();
    (first, later)
}

#[test]
fn each_form_has_its_overhead() {
    let one_host = |network: &mut Network| {
        for (site, peer) in [(A, B), (B, A)] {
            let only: IpNet = format!("fd00:0:0:{peer:x}::1/128").parse().unwrap();
            network.sites[site].peer(0).allowed_ips = vec![only];
        }
    };
    let (thousand, sets) = (Stream::udp().of(1000), |o: usize| HashSet::from([o]));
    let mut network = established(one_host);
    assert_eq!(overheads(&mut network, thousand.clone()), (sets(36), sets(36)), "one host at each end");

    let mut network = established(|_| {});
    let (first, later) = overheads(&mut network, thousand.clone());
    assert!(first.contains(&71), "in full at first: {first:?}");
    assert_eq!(later, sets(39), "by context");
    let (first, later) = overheads(&mut network, thousand.over_ipv4());
    assert!(first.contains(&68) && later.contains(&68), "{first:?} {later:?}");
}

#[test]
fn two_thousand_address_pairs_share_a_thousand_contexts() {
    let mut network = established(|_| {});
    network.send(A, B, Stream { every: 500, ..Stream::udp().hosts(2_000) });
    network.run_s(12);
    // The first thousand have contexts, the others are named in full; then others come to their turn.
    network.send(A, B, Stream { every: 500, ..Stream::tcp().hosts(100) });
    network.run_s(12);
    network.assert_all_arrived();
    assert_eq!(network.drops(B, DropReason::UnknownContext), 0);
}

#[test]
fn contexts_move_on_to_pairs_that_are_in_use() {
    let mut network = established(|_| {});
    network.path.loss = 0.1;
    for round in 0..4 {
        network.flows.clear();
        // 1,000 other hosts in each round.
        let index = network.send(A, B, Stream { every: 500, ..Stream::udp().hosts(1_000) });
        network.flows[index].shift_hosts(round * 1_000);
        network.run_s(11);
        network.stop();
        network.assert_nothing_wrong();
        assert!(network.flows[0].lost() * 8 < network.flows[0].sent.len());
        network.run_s(10);
    }
    assert_eq!(network.drops(B, DropReason::UnknownContext), 0);
}

/// A packet of the stream between these sites, its addresses changed.
fn changed(from: usize, to: usize, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut packet = Flow::new(Stream::udp(), u32::MAX, from, to).packet(0);
    change(&mut packet);
    packet
}

#[test]
fn only_a_peers_own_addresses_are_taken_from_it() {
    let mut network = established(|_| {});
    for (n, source) in ["fd00:0:0:7::1", "2001:db8::1", "fe80::1", "fd00:0:0:1::1"].into_iter().enumerate() {
        let source: std::net::Ipv6Addr = source.parse().unwrap();
        let spoofed = changed(A, B, |packet| packet[8..24].copy_from_slice(&source.octets()));
        for _ in 0..5 {
            network.inject(A, virtio_net::Header::NONE, spoofed.clone());
        }
        network.run_s(1);
        assert!(network.sites[B].others.is_empty(), "{source} passed");
        assert_eq!(network.drops(B, DropReason::SourceNotAllowed), 5 * (n as u64 + 1));
    }
    // IPv4 as well.
    let mut spoofed = Flow::new(Stream::udp().over_ipv4(), u32::MAX, A, B).packet(0);
    spoofed[12..16].copy_from_slice(&[192, 0, 2, 1]);
    network.inject(A, virtio_net::Header::NONE, spoofed);
    network.run_s(1);
    assert!(network.sites[B].others.is_empty());
    assert_eq!(network.drops(B, DropReason::SourceNotAllowed), 21);
}

#[test]
fn nothing_goes_round_for_ever() {
    // Everything goes through the tunnel.
    let mut network = established(|network| {
        network.sites[A].peer(0).allowed_ips = vec!["::/0".parse().unwrap(), "0.0.0.0/0".parse().unwrap()];
    });
    let sent = |network: &Network| network.status(A).tx_packets;
    for destination in [hop_prefix(A), hop_prefix(B)] {
        let before = sent(&network);
        let host = u128::from(destination.network()) + 5;
        let looping = changed(A, B, |packet| packet[24..40].copy_from_slice(&host.to_be_bytes()));
        for _ in 0..5 {
            network.inject(A, virtio_net::Header::NONE, looping.clone());
        }
        network.run_s(1);
        assert_eq!(sent(&network), before, "a packet to {destination} went into the tunnel");
        assert!(network.sites[B].others.is_empty());
    }
    // What the kernel says to every link stays here.
    for destination in ["ff02::2", "fe80::1", "::1"] {
        let before = sent(&network);
        let destination: std::net::Ipv6Addr = destination.parse().unwrap();
        let local = changed(A, B, |packet| packet[24..40].copy_from_slice(&destination.octets()));
        network.inject(A, virtio_net::Header::NONE, local);
        assert_eq!(sent(&network), before);
    }
    // Other addresses do go.
    let other: std::net::Ipv6Addr = "2001:db8:5::1".parse().unwrap();
    network.inject(
        A,
        virtio_net::Header::NONE,
        changed(A, B, |p| p[24..40].copy_from_slice(&other.octets())),
    );
    network.run_s(1);
    assert_eq!(network.sites[B].others.len(), 1);
}

#[test]
fn destinations_that_may_not_be_are_refused_at_the_far_end_too() {
    // A knows B by the prefix that B's border translates to, not by the one that B hops in.
    let outside = "2001:db8:ffff:1::/64".parse().unwrap();
    let mut network = established(|network| {
        network.sites[A].peer(0).allowed_ips = vec!["::/0".parse().unwrap()];
        network.sites[A].peer(0).hop_prefix = outside;
        network.configure(|peer| peer.translated = true);
        network.sites[B].translator = Some(Translator::Prefix { inside: hop_prefix(B), outside });
    });
    let host = u128::from(hop_prefix(B).network()) + 9;
    let looping = changed(A, B, |packet| packet[24..40].copy_from_slice(&host.to_be_bytes()));
    network.inject(A, virtio_net::Header::NONE, looping);
    network.run_s(1);
    assert!(network.sites[B].others.is_empty());
    assert_eq!(network.drops(B, DropReason::DestinationNotAllowed), 1);
}

#[test]
fn packets_for_nobody_are_counted() {
    let mut network = established(|_| {});
    let nobody: std::net::Ipv6Addr = "2001:db8:5::1".parse().unwrap();
    network.inject(
        A,
        virtio_net::Header::NONE,
        changed(A, B, |p| p[24..40].copy_from_slice(&nobody.octets())),
    );
    for malformed in [vec![], vec![0; 100], vec![0x60; 39], vec![0x45; 19]] {
        network.inject(A, virtio_net::Header::NONE, malformed);
    }
    let drops = network.sites[A].node().drops();
    assert_eq!(drops.of(DropReason::NoPeer), 1);
    assert_eq!(drops.of(DropReason::Malformed), 4);
}
