//! Paths that lose, delay, reorder, repeat, mark; hosts whose ports are taken.

use std::time::Duration;

use sidestep_mt6d::DropReason;
use wire::ecn::Ecn;

use crate::network::{A, B, Network, Stream, seeds};

const MINUTE: u64 = 60;

fn prepared(seed: u64, rotation: u64) -> Network {
    let mut network = Network::pair(seed);
    network.configure(|peer| peer.rotation = Duration::from_secs(rotation));
    network
}

fn stream_both_ways(network: &mut Network, every_ms: u64) {
    for (from, to) in [(A, B), (B, A)] {
        network.send(from, to, Stream::udp().every_ms(every_ms));
    }
}

#[test]
fn delay_jitter_loss_and_reordering_cost_no_more_than_the_path_takes() {
    for seed in seeds(3) {
        let mut network = prepared(seed, 1);
        network.path.delay = 20_000;
        network.path.jitter = 5_000;
        network.path.loss = 0.02;
        network.path.held_back = (0.05, 30_000);
        network.start();
        network.establish();
        // H keeps a session that L does not use for up to ten seconds.
        network.run_s(12);
        let missed = [A, B].map(|site| network.sites[site].missed);
        stream_both_ways(&mut network, 5);
        network.run_s(3 * MINUTE);
        network.stop();
        network.assert_nothing_wrong();
        for flow in &network.flows {
            let (lost, sent) = (flow.lost() as f64, flow.sent.len() as f64);
            // Within five standard deviations of what the path loses.
            let expected = 0.02 * sent;
            assert!((lost - expected).abs() < 5.0 * expected.sqrt(), "{lost} of {sent}");
        }
        assert!(network.status(A).session.unwrap().age > Duration::from_secs(3 * MINUTE));
        // All that arrived was taken.
        for site in [A, B] {
            let drops = network.status(site).drops;
            assert_eq!(drops.of(DropReason::TooOld), 0);
            assert_eq!(network.sites[site].missed, missed[site], "datagrams found no endpoint");
        }
    }
}

#[test]
fn delay_and_reordering_alone_lose_nothing() {
    for (delay, jitter, held_back) in
        [(20_000, 5_000, 30_000), (300_000, 100_000, 200_000), (5_000, 0, 900_000)]
    {
        let mut network = prepared(11, 1);
        network.path.delay = delay;
        network.path.jitter = jitter;
        network.path.held_back = (0.02, held_back);
        network.path.duplicate = 0.02;
        network.start();
        network.establish();
        network.run_s(3);
        stream_both_ways(&mut network, 5);
        network.run_s(2 * MINUTE);
        network.assert_all_arrived();
        assert!(network.drops(A, DropReason::Replayed) > 100, "the path's duplicates");
    }
}

#[test]
fn heavy_reordering_widens_the_replay_window() {
    let mut network = prepared(13, 10);
    network.start();
    network.establish();
    network.run_s(1);
    // One in a thousand comes 50,000 datagrams late.
    network.path_between(A, B, |path| path.held_back = (0.001, 1_000_000));
    network.send(A, B, Stream { every: 20, ..Stream::udp().of(76) });
    network.run(Duration::from_millis(3_500));
    network.stop();
    network.assert_nothing_wrong();
    // The first shows that the window is too small; those on their way with it count as seen. No more after that.
    let (too_old, seen) = (network.drops(B, DropReason::TooOld), network.drops(B, DropReason::Replayed));
    assert!(too_old >= 1 && too_old + seen < 60, "{too_old} too old, {seen} as if seen");
    assert_eq!(network.flows[0].lost() as u64, too_old + seen);
}

#[test]
fn keys_are_renewed_under_loss() {
    for seed in seeds(4) {
        for (loss, rotation) in [(0.05, 1), (0.2, 1), (0.3, 1), (0.3, 20)] {
            let mut network = prepared(seed, rotation);
            network.path.delay = 15_000;
            network.path.jitter = 5_000;
            network.start();
            network.establish();
            network.run_s(1);
            network.path.loss = loss;
            stream_both_ways(&mut network, 100);
            for _ in 0..40 {
                network.run_s(MINUTE);
                for flow in &network.flows {
                    let since = network.now - MINUTE * 1_000_000;
                    let lost = flow.lost_since(since) as f64 / 600.0;
                    assert!(
                        lost < loss * 1.5 + 0.05,
                        "{lost} lost within a minute at {} s",
                        network.now / 1_000_000
                    );
                }
            }
            network.stop();
            network.assert_nothing_wrong();
            let session = network.status(A).session.unwrap();
            if loss < 0.3 {
                assert!(session.age > Duration::from_secs(40 * MINUTE), "{session:?}");
                // Every 120 to 180 s.
                assert!((13..=20).contains(&session.rekeys), "{session:?}");
            }
        }
    }
}

#[test]
fn a_quarter_of_all_ports_is_taken() {
    for seed in seeds(6) {
        for taken in [&[A][..], &[B], &[A, B]] {
            let mut network = prepared(seed, 1 + seed % 3);
            network.path.delay = 10_000;
            for site in taken {
                network.sites[*site].open_fails = 0.25;
            }
            network.start();
            network.establish();
            network.run_s(1);
            stream_both_ways(&mut network, 10);
            network.run_s(2 * MINUTE);
            network.assert_all_arrived();
            assert!([A, B].into_iter().any(|site| network.status(site).skips > 0));
            assert!(network.status(A).session.unwrap().age > Duration::from_secs(2 * MINUTE));
        }
    }
}

#[test]
fn a_quarter_of_all_ports_is_taken_and_there_are_lanes() {
    for seed in seeds(4) {
        let mut network = prepared(seed, 2);
        network.configure(|peer| peer.lanes = Some(4));
        network.start();
        network.establish();
        network.run_s(1);
        network.sites[A].open_fails = 0.25;
        network.sites[B].open_fails = 0.25;
        for (from, to) in [(A, B), (B, A)] {
            network.send(from, to, Stream::udp().every_ms(10).flows(30));
        }
        network.run_s(3 * MINUTE);
        network.assert_all_arrived();
    }
}

#[test]
fn opening_takes_its_time() {
    let mut network = prepared(17, 1);
    network.configure(|peer| peer.lanes = Some(4));
    for site in [A, B] {
        network.sites[site].opening = (1_000, 400_000);
    }
    network.start();
    network.establish();
    network.run_s(1);
    for (from, to) in [(A, B), (B, A)] {
        network.send(from, to, Stream::udp().every_ms(10).flows(30));
    }
    network.run_s(2 * MINUTE);
    network.assert_all_arrived();
    assert_eq!(network.status(A).skips, 0);
}

#[test]
fn congestion_that_the_path_marks_arrives_inside() {
    let mut network = prepared(19, 1);
    network.start();
    network.establish();
    network.path.congestion = 0.1;
    network.send(A, B, Stream::udp().every_ms(5).marked(Ecn::Ect0));
    network.send(A, B, Stream::tcp().over_ipv4().every_ms(5).marked(Ecn::Ect1));
    network.send(A, B, Stream::tcp().every_ms(5).marked(Ecn::NotEct));
    network.send(A, B, Stream::udp().every_ms(5).marked(Ecn::Ce));
    network.run_s(20);
    network.assert_all_arrived();
    for (flow, range) in [(0, 250..550), (1, 250..550), (2, 0..1), (3, 0..1)] {
        let congested = network.flows[flow].congested;
        assert!(range.contains(&congested), "stream {flow}: {congested} of 4000");
    }
}

#[test]
fn a_packet_that_cannot_be_marked_is_dropped_in_its_place() {
    let mut network = prepared(21, 1);
    network.start();
    network.establish();
    network.run_s(1);
    network.path.wrong_congestion = 0.1;
    network.send(A, B, Stream::udp().every_ms(5));
    network.run_s(20);
    network.stop();
    network.assert_nothing_wrong();
    let (lost, dropped) = (network.flows[0].lost() as u64, network.drops(B, DropReason::Congestion));
    assert!(lost > 200);
    assert_eq!(lost, dropped);
}

#[test]
fn a_narrow_path_is_shared() {
    let mut network = prepared(23, 1);
    network.path.rate = Some(2_000_000);
    network.path.delay = 10_000;
    network.start();
    network.establish();
    network.run_s(1);
    // 1.2 Mbit/s each way.
    for (from, to) in [(A, B), (B, A)] {
        network.send(from, to, Stream::udp().of(1200).every_ms(8));
    }
    network.run_s(MINUTE);
    network.assert_all_arrived();
}
