//! Shares of a link of 100 Mbit/s in virtual time, relative to theory, or to the same link without the fault.

use std::time::Duration;

use super::super::{Config, Statistics};
use super::network::{Link, MS, MSS, Network, User};

/// Bytes per second.
const RATE: u64 = 12_500_000;

fn link(rtt: Duration) -> Link {
    // A queue of half a bandwidth-delay product.
    let queue = (RATE as f64 * rtt.as_secs_f64() / 2.0) as usize;
    Link { delay: rtt / 2, rate: RATE, queue, ..Link::IDEAL }
}

/// The share of the link that a transfer takes, the mean of two; what the second one counted, but for what was undone, in
/// both; and how many packets the link dropped in the second.
fn share(link: Link, bytes: u64) -> (f64, Statistics, u64) {
    let mut shares = 0.0;
    let (mut last, mut undone) = (None, 0);
    for seed in 1..=2 {
        let users = [User::sends(bytes), User::default()];
        let mut network = Network::ours(link, seed, [Config::new(MSS); 2], users);
        let took = network.transfer(Duration::from_secs(600));
        shares += bytes as f64 / took.as_secs_f64() / RATE as f64;
        let mut statistics = network.connection(0).statistics();
        undone += statistics.undone;
        statistics.undone = undone;
        last = Some((statistics, network.pipes[0].dropped));
    }
    let (statistics, dropped) = last.unwrap();
    println!("{:.2} of 100 Mbit/s, {dropped} dropped, {statistics:?}", shares / 2.0);
    (shares / 2.0, statistics, dropped)
}

/// What Reno gets (Mathis et al. 1997), and CUBIC on short paths, where it is as fast (RFC 9438 §4.3).
fn theory(rtt: Duration, loss: f64) -> f64 {
    1.22 * f64::from(MSS) / (rtt.as_secs_f64() * loss.sqrt()) / RATE as f64
}

#[test]
fn a_clean_link_is_used_and_only_what_was_dropped_is_sent_again() {
    let (share, statistics, dropped) = share(link(20 * MS), 3_000_000);
    assert!(share > 0.6, "{share}");
    assert_eq!((statistics.retransmitted, statistics.timeouts), (dropped, 0));
}

#[test]
fn one_of_a_thousand_lost_at_20_ms() {
    let (share, statistics, dropped) = share(Link { loss: 0.001, ..link(20 * MS) }, 3_000_000);
    println!("theory: {:.2}", theory(20 * MS, 0.001));
    assert!(share > 0.8 * theory(20 * MS, 0.001), "{share}");
    assert!(statistics.retransmitted <= dropped + 2 && statistics.timeouts == 0, "{statistics:?} {dropped}");
}

#[test]
fn one_of_a_hundred_lost_at_20_ms() {
    let (share, statistics, dropped) = share(Link { loss: 0.01, ..link(20 * MS) }, 2_000_000);
    println!("theory: {:.2}", theory(20 * MS, 0.01));
    assert!(share > 0.8 * theory(20 * MS, 0.01), "{share}");
    assert!(statistics.retransmitted <= dropped + 5 && statistics.timeouts <= 1, "{statistics:?} {dropped}");
}

#[test]
fn one_of_fifty_is_overtaken_by_5_ms_at_66_ms() {
    let (clean, ..) = share(link(66 * MS), 5_000_000);
    let (reordered, statistics, dropped) =
        share(Link { reorder: (0.02, 5 * MS), ..link(66 * MS) }, 5_000_000);
    assert!(reordered > 0.75 * clean, "{reordered} of {clean}");
    assert!(statistics.retransmitted <= dropped + 20 && statistics.undone > 0, "{statistics:?} {dropped}");
}

#[test]
fn rfc_3168_a_link_that_marks_drops_nothing_and_is_used() {
    let marking = Link { mark: Some(80_000), queue: usize::MAX, ..link(20 * MS) };
    let (share, statistics, dropped) = share(marking, 3_000_000);
    assert!(share > 0.5, "{share}");
    assert_eq!((statistics.retransmitted, dropped), (0, 0));
    assert!(statistics.marked > 0, "{statistics:?}");
}

#[test]
fn a_shallow_queue_carries_more_of_what_is_paced() {
    // At 40 ms 340 segments are under way, of which 20 find room in the queue.
    let shallow = Link { queue: 30_000, ..link(40 * MS) };
    let took = |pacing| {
        let of = |seed| {
            let users = [User::sends(15_000_000), User::default()];
            let config = Config { pacing, ..Config::new(MSS) };
            Network::ours(shallow, seed, [config; 2], users).transfer(Duration::from_secs(600))
        };
        (1..=3).map(of).sum::<Duration>()
    };
    let (paced, in_bursts) = (took(true), took(false));
    println!("paced {paced:?}, in bursts {in_bursts:?}");
    assert!(paced * 5 < in_bursts * 4, "{paced:?} {in_bursts:?}");
}
