//! What leaves where there is a shape, and what it does to traffic.

use std::collections::HashSet;
use std::time::Duration;

use sidestep_mt6d::config::{Daily, Rate, Shape};
use sidestep_mt6d::{DropReason, Ecn};

use crate::network::{A, B, Network, Seen, Stream, full_scale, seeds};

/// 2 Mbit/s: 195 datagrams per second.
const RATE: u32 = 250_000;
const SIZE: usize = 1280;

fn constant(bytes_per_second: u32) -> Shape {
    Shape::Constant(Rate::from_bytes(bytes_per_second).expect("a rate that a shape may have"))
}

/// A pair that has a shape, at one end at least.
fn shaped(seed: u64, shape: Shape, both: bool) -> Network {
    let mut network = Network::pair(seed);
    network.sites[A].peer(0).shape = shape;
    if both {
        network.sites[B].peer(0).shape = shape;
    }
    for site in [A, B] {
        network.sites[site].calls_allowed = 10_000;
    }
    network.observer.keeps = true;
    network
}

fn seen(network: &Network) -> Vec<(u64, String)> {
    let line = |s: &Seen| (s.at, format!("{} {} {} {:?}", s.source, s.destination, s.length, s.ecn));
    let mut seen: Vec<_> = network.observer.seen.iter().map(line).collect();
    seen.sort();
    seen
}

#[test]
fn the_wire_is_the_same_whatever_is_carried() {
    for seed in seeds(if full_scale() { 20 } else { 3 }) {
        let run = |streams: &[Stream]| {
            let mut network = shaped(seed, constant(RATE), true);
            // How long another thread takes to hand a control message over may depend on what it carries.
            network.packet_threads = Some(0);
            network.start();
            network.establish();
            network.run_s(3);
            for stream in streams {
                network.send(A, B, stream.clone());
                network.send(B, A, stream.clone());
            }
            network.run_s(40);
            (seen(&network), network.status(A).tx_packets)
        };
        let (nothing, none) = run(&[]);
        let (questions, some) = run(&[Stream::ping().every_ms(300), Stream::udp().of(77).every_ms(20)]);
        let flood = Stream::tcp().of(1_000).every_ms(10).batches(20).marked(Ecn::Ect0);
        let (too_much, most) = run(&[flood, Stream::udp().of(1_280).hosts(50).every_ms(1)]);
        assert!(none == 0 && some > 1_000 && most > 1_000, "{none} {some} {most}");
        assert!(nothing.len() > 10_000, "{} datagrams", nothing.len());
        for other in [questions, too_much] {
            let differs = nothing.iter().zip(&other).find(|(one, other)| one != other);
            assert_eq!(differs, None, "seed {seed}");
            assert_eq!(nothing.len(), other.len(), "seed {seed}");
        }
    }
}

#[test]
fn all_datagrams_of_a_session_have_one_size_and_the_rate_is_as_asked() {
    let mut network = shaped(5, constant(RATE), true);
    network.configure(|peer| peer.rotation = Duration::from_secs(2));
    network.start();
    network.establish();
    network.send(A, B, Stream::udp().of(1_100).every_ms(20).marked(Ecn::Ect0));
    network.run_s(1);
    network.observer.seen.clear();
    network.run_s(200);
    let sizes: HashSet<_> = network.observer.seen.iter().map(|s| (s.length, s.ecn)).collect();
    assert_eq!(sizes, HashSet::from([(SIZE, Ecn::NotEct)]));
    let rate = network.observer.seen.len() * SIZE / 200 / 2;
    assert!(rate.abs_diff(RATE as usize) < RATE as usize / 10, "{rate} bytes per second");
    let status = network.status(A).shape.expect("there is one");
    assert_eq!(status.shape, constant(RATE));
    assert!(status.padding > status.datagrams / 2);
    assert_eq!(network.status(A).path_mtu, Some(1280));
}

#[test]
fn a_lane_keeps_its_rate_when_others_are_born_and_die() {
    let mut network = shaped(6, constant(RATE), true);
    network.configure(|peer| peer.rotation = Duration::from_secs(20));
    network.start();
    network.establish();
    network.run_s(300);
    let mut rates = Vec::new();
    for (source, others) in network.observer.endpoints() {
        let own: Vec<_> = network.observer.seen.iter().filter(|s| s.source.ip() == &source).collect();
        let (Some(first), Some(last)) = (own.first(), own.last()) else { continue };
        // Not those of the rendezvous, nor what is alive now.
        if own.len() > 300 && others.len() == 1 {
            rates.push(own.len() as u64 * 1_000_000 / (last.at - first.at));
        }
    }
    let (least, most) = (rates.iter().min().expect("lanes"), rates.iter().max().expect("lanes"));
    assert!(rates.len() > 40 && most - least <= 6, "{rates:?}");
}

#[test]
fn below_its_rate_nothing_is_lost_and_flows_stay_in_order() {
    // One lane may be all that there is, and is in the first second or two: a third of the rate, or a sixth.
    for (seed, (lanes, pause)) in seeds(3).flat_map(|seed| [(seed, (Some(3), 40)), (seed, (None, 60))]) {
        let mut network = shaped(seed, constant(1_250_000), true);
        network.configure(|peer| peer.lanes = lanes);
        network.start();
        network.establish();
        network.send(A, B, Stream::tcp().of(1_200).every_ms(pause).batches(8));
        network.send(B, A, Stream::udp().of(200).every_ms(20).flows(5));
        network.send(B, A, Stream::udp().of(1_280).every_ms(100));
        network.run_s(120);
        network.assert_all_arrived();
        let delay = network.status(A).shape.and_then(|shape| shape.delay).expect("packets have waited");
        assert!(delay.median < Duration::from_millis(100), "{delay:?}");
    }
}

#[test]
fn a_question_is_not_held_up_by_a_flood() {
    let mut network = shaped(8, constant(RATE), true);
    network.start();
    network.establish();
    network.run_s(2);
    network.send(A, B, Stream::tcp().of(1_200).every_ms(10).batches(20));
    let ping = network.send(A, B, Stream::ping().every_ms(100));
    network.run_s(60);
    let flow = &network.flows[ping];
    assert!(flow.lost() * 100 <= flow.sent.len(), "{} of {} lost", flow.lost(), flow.sent.len());
    assert!(network.drops(A, DropReason::ShapeFull) > 1_000);
    let status = network.status(A).shape.expect("there is one");
    assert!(status.waiting <= 100, "{} wait", status.waiting);
    assert!(status.padding < status.datagrams, "{status:?}");
}

#[test]
fn a_host_learns_that_there_are_slots_to_keep_and_how_late_they_are() {
    // The lowest rate there is: long times from one slot to the next.
    for (shape, keeps) in [(Shape::None, false), (adaptive(1_000_000_000), true), (constant(RATE), true)] {
        let mut network = shaped(14, shape, false);
        network.start();
        network.establish();
        network.run_s(30);
        for site in [A, B] {
            let now = network.sites[site].clock.now(network.now).boot;
            assert_eq!(network.sites[site].node().keeps_slots(now), keeps, "{shape:?}");
            let Some(status) = network.status(site).shape else { continue };
            let late = status.late.expect("there were slots");
            assert!(late.p99 < Duration::from_millis(1) && status.put_off == 0, "{status:?}");
        }
    }
}

#[test]
fn what_one_end_asks_for_holds_for_both() {
    let mut network = shaped(9, constant(RATE), false);
    network.sites[B].peer(0).shape = constant(RATE / 2);
    network.sites[B].peer(0).rewrite = true;
    network.sites[A].peer(0).rewrite = true;
    network.start();
    network.establish();
    for site in [A, B] {
        assert_eq!(network.status(site).shape.map(|status| status.shape), Some(constant(RATE)));
        assert!(!network.status(site).rewrites);
    }
    let mut network = shaped(10, constant(RATE), false);
    network.start();
    network.establish();
    network.send(A, B, Stream::udp().every_ms(50));
    network.run_s(400);
    network.assert_all_arrived();
    assert_eq!(network.status(B).shape.map(|status| status.shape), Some(constant(RATE)));
    assert!(network.status(B).session.expect("one").age > Duration::from_secs(400), "it is kept");
}

#[test]
fn a_shape_outlives_rekeys_losses_and_a_restart() {
    let mut network = shaped(11, constant(RATE), true);
    network.observer.keeps = false;
    network.path.loss = 0.05;
    network.path.jitter = 5_000;
    network.start();
    network.establish();
    network.send(A, B, Stream::udp().every_ms(50));
    network.send(B, A, Stream::udp().every_ms(50));
    network.run_s(600);
    assert!(network.status(A).session.expect("one").rekeys >= 3);
    for flow in &network.flows {
        assert!(flow.lost() * 100 < flow.sent.len() * 8, "{} of {}", flow.lost(), flow.sent.len());
    }
    network.kill(B);
    network.run_s(5);
    network.start_site(B);
    network.run_s(30);
    assert!(network.established(A) && network.established(B));
    assert!(network.status(B).shape.is_some());
}

fn adaptive(bytes_per_day: u64) -> Shape {
    Shape::Adaptive(Daily::from_bytes(bytes_per_day).expect("a budget that a shape may have"))
}

#[test]
fn an_adaptive_shape_follows_demand_lane_by_lane() {
    let mut network = shaped(12, adaptive(20_000_000_000), false);
    network.start();
    network.establish();
    network.run_s(120);
    network.observer.seen.clear();
    network.run_s(60);
    let idle = network.observer.seen.len();
    network.send(A, B, Stream::tcp().of(1_200).every_ms(10).batches(5));
    network.run_s(60);
    network.observer.seen.clear();
    network.run_s(60);
    let busy = network.observer.seen.iter().filter(|s| s.destination.ip().segments()[3] == 1).count();
    assert!(network.observer.seen.iter().all(|s| s.length == SIZE));
    // 85 datagrams per second in each direction; then some hundreds in one of them.
    assert!((1_000..15_000).contains(&idle), "{idle}");
    assert!(busy > idle, "{busy} one way after {idle} both ways");
    for site in [A, B] {
        let status = network.status(site).shape.expect("there is one");
        assert!(matches!(status.shape, Shape::Adaptive(_)), "what one end asks for holds for both");
        // Where nothing is carried more comes in than is spent.
        let left = status.budget.expect("there is one");
        assert!(if site == A { left < 10_000_000_000 } else { left <= 10_000_000_000 }, "{left}");
    }
    let flow = &network.flows[0];
    assert!(flow.lost_since(180_000_000) < flow.sent.len() / 2, "{} of {}", flow.lost(), flow.sent.len());
}

#[test]
fn a_lane_of_an_adaptive_shape_keeps_its_rate() {
    let mut network = shaped(13, adaptive(20_000_000_000), true);
    network.configure(|peer| peer.rotation = Duration::from_secs(20));
    network.start();
    network.establish();
    network.send(A, B, Stream::udp().of(1_000).every_ms(5));
    network.run_s(400);
    let mut lanes = 0;
    for (source, others) in network.observer.endpoints() {
        let own: Vec<_> = network.observer.seen.iter().filter(|s| s.source.ip() == &source).collect();
        if own.len() < 400 || others.len() != 1 {
            continue;
        }
        let took = |part: &[&Seen]| (part[part.len() - 1].at - part[0].at) as f64;
        let (first, second) = own.split_at(own.len() / 2);
        let change = took(first) / took(second);
        assert!((0.85..1.18).contains(&change), "{change}");
        lanes += 1;
    }
    assert!(lanes > 20, "{lanes} lanes");
}

#[test]
fn a_budget_outlives_sessions() {
    let mut network = shaped(14, adaptive(1_000_000_000), true);
    network.observer.keeps = false;
    network.start();
    network.establish();
    network.send(A, B, Stream::tcp().of(1_200).every_ms(10).batches(5));
    network.run_s(300);
    let left = |network: &Network| network.status(A).shape.and_then(|shape| shape.budget).expect("one");
    let before = left(&network);
    network.kill(B);
    network.run_s(60);
    network.start_site(B);
    network.run_s(30);
    assert!(network.established(A) && network.status(A).handshakes > 1);
    assert!(left(&network) < before + 2_000_000, "{} after {before}", left(&network));
}

/// A pair with an adaptive shape, for hours.
fn for_hours(seed: u64, bytes_per_day: u64) -> Network {
    let mut network = shaped(seed, adaptive(bytes_per_day), true);
    network.observer.keeps = false;
    for site in [A, B] {
        network.sites[site].calls_allowed = 10_000_000;
    }
    network.start();
    network.establish();
    network
}

fn datagrams(network: &Network) -> u64 {
    network.status(A).shape.expect("there is one").datagrams
}

#[test]
fn an_adaptive_shape_that_carries_nothing_uses_half_of_its_budget() {
    let budget = 20_000_000_000;
    let mut network = for_hours(15, budget);
    network.run_s(60);
    let before = datagrams(&network);
    network.run_s(3 * 3_600);
    let share = (datagrams(&network) - before) as f64 * SIZE as f64 * 8.0 / budget as f64;
    assert!((0.45..0.5).contains(&share), "{share}");
    let said = Daily::from_bytes(budget).expect("a budget").idle() as f64 / budget as f64;
    assert!((0.95..1.05).contains(&(share / said)), "{share}, where {said} is told");
}

#[test]
fn a_budget_that_is_spent_leaves_what_comes_in() {
    let mut network = for_hours(16, 1_000_000_000);
    network.send(A, B, Stream::udp().of(1_000).every_ms(20));
    // A third of the lanes at the highest rate, with what chance adds, take ten hours for the half.
    network.run_s(40_000);
    let (before, half_a_day) = (datagrams(&network), 500_000_000.0 / 86_400.0);
    assert!(before * SIZE as u64 > 450_000_000, "{before} datagrams: the half may be spent at once");
    network.run_s(3_600);
    let rate = (datagrams(&network) - before) as f64 * SIZE as f64 / 3_600.0;
    assert!((0.9..1.1).contains(&(rate / half_a_day)), "{rate} of {half_a_day} bytes per second");
    let left = network.status(A).shape.and_then(|shape| shape.budget).expect("there is one");
    assert!(left < 1_000_000, "{left}");
}

#[test]
fn a_small_budget_holds_packets_up_and_seldom_drops_one_that_is_alone() {
    // The lowest rates carry two datagrams per second, and 11.
    for (bytes_per_day, most) in [(1_000_000_000, 6), (5_000_000_000, 2)] {
        let mut network = for_hours(17, bytes_per_day);
        let ping = network.send(A, B, Stream::ping().every_ms(10_000));
        network.run_s(3 * 3_600 - 20);
        let flow = &network.flows[ping];
        let lost = flow.lost();
        assert!(lost * 100 <= flow.sent.len() * most, "{lost} of {} lost", flow.sent.len());
    }
}

#[test]
fn packets_wait_for_the_next_slot_and_no_longer() {
    let mut network = shaped(18, constant(RATE), true);
    network.observer.keeps = false;
    network.start();
    network.establish();
    network.send(A, B, Stream::ping().every_ms(100));
    network.run_s(600);
    let delay = network.status(A).shape.and_then(|shape| shape.delay).expect("packets have waited");
    let within = (Duration::from_millis(6), Duration::from_millis(32));
    assert!(delay.median < within.0 && delay.p99 < within.1, "{delay:?}");
}
