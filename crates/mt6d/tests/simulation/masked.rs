//! Another tunnel's packets on the lanes: whatever happens, whoever sends one by a lane has a peer that takes it.

use std::net::Ipv6Addr;
use std::time::Duration;

use proptest::prelude::*;
use sidestep_mt6d::{Traffic, mask};

use crate::keys::{another, change_key, tell};
use crate::network::{A, B, Network, Path, Stream, seeds};

/// Ports of the other tunnel at both ends.
const PORTS: (u16, u16) = (51_820, 51_821);

/// The other tunnel's end at a site.
fn end(network: &Network, site: usize) -> Ipv6Addr {
    mask::address(&network.sites[site].key())
}

fn pair(seed: u64, rotation: u64, lanes: u8) -> Network {
    let mut network = Network::pair(seed);
    network.configure(|peer| {
        peer.rotation = Duration::from_secs(rotation);
        peer.lanes = Some(lanes);
    });
    for (site, other, port) in [(A, B, PORTS.0), (B, A, PORTS.1)] {
        let end = end(&network, other);
        let peer = network.sites[site].peer(0);
        peer.mask = Some(port);
        peer.allowed_ips.push(ipnet::IpNet::from(std::net::IpAddr::V6(end)));
    }
    network
}

/// What the other tunnel sends.
fn other_tunnel(network: &mut Network) {
    let (a, b) = (end(network, A), end(network, B));
    network.send(A, B, Stream::udp().ports(PORTS.0, PORTS.1).between(a, b).every_ms(20));
    network.send(B, A, Stream::udp().ports(PORTS.1, PORTS.0).between(b, a).every_ms(20));
}

/// The same, and something else beside it.
fn streams(network: &mut Network) {
    other_tunnel(network);
    network.send(A, B, Stream::tcp().of(1400).every_ms(100));
    network.send(B, A, Stream::udp().every_ms(100));
}

#[test]
fn all_arrives_and_nearly_all_of_the_flow_with_a_mask() {
    for (rotation, lanes) in [(1, 1), (1, 3), (10, 4), (60, 1)] {
        for seed in seeds(3) {
            let mut network = pair(seed, rotation, lanes);
            network.start();
            network.establish();
            streams(&mut network);
            network.run_s(5);
            let (before, handshakes) = (network.rewritten, network.status(A).handshakes);
            network.run_s(400);
            network.assert_all_arrived();
            let masked = network.rewritten - before;
            assert!(masked >= 399 * 100, "{masked} of {}", 400 * 100);
            let status = network.status(A);
            assert!(status.rewritten.tx_packets > 19_000 && status.rewritten.rx_packets > 19_000);
            assert_eq!(status.handshakes, handshakes, "the session goes on");
            assert!(status.session.expect("there is one").rekeys >= 2);
        }
    }
}

#[test]
fn one_end_alone_masks_nothing() {
    let mut network = pair(1, 1, 1);
    network.sites[B].peer(0).mask = None;
    network.start();
    network.establish();
    streams(&mut network);
    network.run_s(20);
    network.assert_all_arrived();
    assert_eq!(network.rewritten, 0);
}

/// A masked flow alone keeps the session, and tells that the peer is gone.
#[test]
fn a_session_that_carries_nothing_else_goes_on_and_ends_with_the_peer() {
    let mut network = pair(3, 10, 3);
    network.start();
    network.establish();
    let (a, b) = (end(&network, A), end(&network, B));
    network.send(A, B, Stream::udp().ports(PORTS.0, PORTS.1).between(a, b));
    network.run_s(400);
    assert!(network.established(A) && network.established(B));
    assert_eq!(network.status(A).handshakes, 1);
    network.kill(B);
    let found = |network: &Network| !network.established(A);
    assert!(network.run_until(Duration::from_secs(120), found).is_some());
    // Until the first tries have failed it may come back.
    network.run_s(60);
    let before = network.rewritten;
    network.run_s(10);
    assert_eq!(network.rewritten, before, "packets go nowhere, and their senders are told");
}

/// Whoever has seen a lane can send to it, and what comes there counts as the flow's before anybody knows whose it is.
#[test]
fn what_a_stranger_sends_to_a_lane_is_no_traffic() {
    let sent_while_idle = |forged: bool| {
        let mut network = pair(5, 10, 3);
        network.start();
        network.establish();
        let inner = (end(&network, A), end(&network, B));
        network.send(A, B, Stream::udp().ports(PORTS.0, PORTS.1).between(inner.0, inner.1));
        network.run_s(5);
        network.stop();
        let handshakes = network.status(A).handshakes;
        let mut last_busy = 0;
        for second in 0..200 {
            if forged && network.established(A) {
                let crossed = Traffic { rx_packets: 1, rx_bytes: 65, ..Traffic::default() };
                network.with(A, |node, now, _, _| node.count_rewritten(inner, &crossed, now));
            }
            let before = network.observer.count;
            network.run_s(1);
            if network.observer.count > before {
                last_busy = second;
            }
        }
        assert!(!network.established(A) && !network.established(B), "idle sessions end, forged: {forged}");
        assert_eq!(network.status(A).handshakes, handshakes);
        assert_eq!(network.status(A).rewritten.rx_packets > 100, forged, "they are counted all the same");
        (last_busy, network.observer.count)
    };
    assert_eq!(sent_while_idle(true), sent_while_idle(false), "nobody sees that somebody sent to a lane");
}

/// With the key the inner end changes, which is no reason for a session to end: what is for the one before is masked until both
/// use the new key, and arrives as long as both take it.
#[test]
fn a_key_changes_and_no_packet_of_the_flow_is_lost() {
    for seed in seeds(3) {
        for told_first in [true, false] {
            let mut network = pair(seed, 10, 3);
            network.start();
            network.establish();
            streams(&mut network);
            network.run_s(5);
            let (old, handshakes) = (end(&network, A), network.status(A).handshakes);
            let new = mask::address(&another(A).public());
            let local = |network: &Network| network.status(A).masked.map(|flow| *flow.local.ip());
            let is_told = |network: &mut Network| {
                network.sites[B].peer(0).allowed_ips.push(ipnet::IpNet::from(std::net::IpAddr::V6(new)));
                tell(network, B);
            };
            if told_first {
                is_told(&mut network);
            } else {
                change_key(&mut network, A);
            }
            let before = network.rewritten;
            network.run_s(60);
            assert_eq!(network.status(A).handshakes, handshakes, "seed {seed}: the session goes on");
            assert_eq!(local(&network), Some(old), "only one end has the new key");
            assert!(network.rewritten - before >= 58 * 100, "{}", network.rewritten - before);
            if told_first {
                change_key(&mut network, A);
            } else {
                is_told(&mut network);
            }
            assert!(network.run_until(Duration::from_secs(10), |n| local(n) == Some(new)).is_some());
            // The other tunnel is led to the new end a moment later.
            network.run_s(3);
            other_tunnel(&mut network);
            network.run_s(5);
            let before = network.rewritten;
            network.run_s(60);
            assert!(network.rewritten - before >= 58 * 100, "{}", network.rewritten - before);
            network.assert_all_arrived();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Restarts, loss, delay: what leaves with a mask meets a lane with the same key, or nobody.
    #[test]
    fn a_peer_that_restarts_is_met_again(
        seed: u64, rotation in 1u64..20, lanes in 1u8..5, loss in 0.0..0.1, delay in 1u64..300, after in 5u64..60,
    ) {
        let mut network = pair(seed, rotation, lanes);
        network.path = Path { loss, delay: delay * 1_000, ..Path::default() };
        network.start();
        network.establish();
        streams(&mut network);
        network.run_s(after);
        network.kill(B);
        network.run_s(2);
        network.start_site(B);
        let back = |network: &Network| network.established(A) && network.established(B);
        prop_assert!(network.run_until(Duration::from_secs(90), back).is_some());
        network.run_s(5);
        let before = network.rewritten;
        network.run_s(20);
        prop_assert!(network.rewritten - before > 19 * 100, "{}", network.rewritten - before);
    }
}
