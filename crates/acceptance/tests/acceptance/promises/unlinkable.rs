//! What the router between the gateways sees.

use std::net::Ipv6Addr;
use std::time::Duration;

use lab::capture::{Packet, Recording};
use lab::observer::{Observation, packets_containing};
use lab::scale::scaled;
use lab::traffic::{self, PingOptions};
use lab::{Builder, Lab, Node, Site};

use super::scene;

const UDP: u8 = 17;

fn site_of(address: Ipv6Addr) -> Option<Site> {
    [Site::A, Site::B].into_iter().find(|site| site.in_hop_prefix(address))
}

/// Ten seconds of traffic, as the router saw it.
fn observe(builder: Builder) -> (Observation, Vec<Packet>) {
    observe_for(&scene::up(builder.whole_packets(true)), 12)
}

/// So many seconds of traffic, as the router saw it.
fn observe_for(lab: &Lab, seconds: u64) -> (Observation, Vec<Packet>) {
    let recording = Recording::start(lab, Node::Router, "a").expect("a recording");
    let streams = [Site::A, Site::B].map(|site| scene::start_stream(lab, site, seconds));
    let ping =
        traffic::ping(lab, PingOptions { count: 20, size: 1000, ..PingOptions::default() }).expect("pings");
    assert_eq!(ping.received, 20);
    for stream in streams {
        scene::assert_complete(&scene::finish(stream));
    }
    let packets = recording.finish().expect("packets");
    let begin = packets.first().map_or(Duration::ZERO, |packet| packet.time);
    // Where one end has sent its last, the other has nobody to move with.
    let flowing = packets.partition_point(|packet| packet.time < begin + Duration::from_secs(seconds));
    (Observation::of(&packets[..flowing], begin, site_of), packets)
}

/// Both ends moved together, at least so often (a third of the mean: births come by chance), and nothing in the packets links two epochs or tells what is in them.
fn assert_unlinkable((observation, packets): &(Observation, Vec<Packet>), moves: usize) {
    for site in [Site::A, Site::B] {
        assert!(observation.addresses(site) >= moves, "{} addresses", observation.addresses(site));
    }
    assert_eq!(observation.linking_addresses(5), Vec::<Ipv6Addr>::new());
    assert_eq!(observation.constant_bytes, Vec::<usize>::new());
    assert!(observation.not_udp.is_empty(), "{:?}", observation.not_udp);
    let skews = observation.move_skews();
    eprintln!(
        "{} moves, both ends within {:.0} ms",
        skews.len(),
        skews.iter().copied().fold(0.0, f64::max) * 1000.0
    );
    assert!(skews.len() >= moves && skews.iter().all(|skew| *skew < 2.0), "{skews:?}");
    // Neither what pings carry nor an inner address is to be seen.
    let pattern: Vec<u8> = (0x30..0x50).collect();
    assert_eq!(packets_containing(packets, &pattern), 0);
    let inner: Ipv6Addr = "2001:db8:b::2".parse().expect("an address");
    assert_eq!(packets_containing(packets, &inner.octets()), 0);
    // Nothing but UDP and neighbor discovery between link-local or gateway addresses comes from a hopping prefix.
    let strange = packets.iter().filter(|p| site_of(p.source).is_some() && p.next_header != UDP).count();
    assert_eq!(strange, 0);
}

#[test]
fn nothing_links_two_epochs() {
    let Some(builder) = scene::lab() else { return };
    assert_unlinkable(&observe(builder), 4);
}

#[test]
fn new_keys_show_as_little_as_a_rotation() {
    let Some(builder) = scene::lab() else { return };
    let mut lab = builder.whole_packets(true).build().expect("a lab");
    for site in [Site::A, Site::B] {
        lab.gateway(site).set_arguments(&["--test-rekey-after", "5s"]);
    }
    lab.start().expect("a tunnel");
    let rekeys = |lab: &Lab| scene::peer(lab, Site::A)["session"]["rekeys"].as_u64().expect("a number");
    let before = rekeys(&lab);
    assert_unlinkable(&observe_for(&lab, scaled(22, 45)), scaled(8, 20));
    let rekeys = rekeys(&lab) - before;
    assert!(rekeys >= scaled(2, 3), "{rekeys} rekeys");
}

#[test]
fn full_padding_shows_one_size() {
    let Some(builder) = scene::lab() else { return };
    let lab = scene::up(builder.padding("full").whole_packets(true));
    // Until the path MTU is known all datagrams are of the largest size that is.
    let known = || [Site::A, Site::B].iter().all(|site| scene::peer(&lab, *site)["path_mtu"] == 1500);
    while !known() {
        std::thread::sleep(Duration::from_millis(50));
    }
    let (observation, _) = observe_for(&lab, 12);
    let total: u64 = observation.sizes.values().sum();
    let most = observation.sizes.values().max().copied().unwrap_or(0);
    assert!(most * 100 >= total * 99, "{:?}", observation.sizes);
}

#[test]
fn buckets_show_a_few_sizes() {
    let Some(builder) = scene::lab() else { return };
    let (observation, _) = observe(builder.padding("buckets").lanes(4));
    let usual: u64 = observation.sizes.values().filter(|n| **n > 20).sum();
    let total: u64 = observation.sizes.values().sum();
    assert!(observation.sizes.values().filter(|n| **n > 20).count() <= 8, "{:?}", observation.sizes);
    assert!(usual * 100 >= total * 95, "{:?}", observation.sizes);
}
