//! What the router between the gateways sees.

use std::net::Ipv6Addr;
use std::time::Duration;

use lab::capture::Recording;
use lab::observer::{Observation, packets_containing};
use lab::traffic::{self, PingOptions};
use lab::{Builder, Node, Site};

use crate::scene;

const UDP: u8 = 17;

fn site_of(address: Ipv6Addr) -> Option<Site> {
    [Site::A, Site::B].into_iter().find(|site| site.hops_at(address))
}

/// Ten seconds of traffic, as the router saw it.
fn observe(builder: Builder) -> (Observation, Vec<lab::capture::Packet>) {
    let lab = scene::up(builder.whole_packets(true));
    let recording = Recording::start(&lab, Node::Router, "a").expect("a recording");
    let streams = [Site::A, Site::B].map(|site| scene::start_stream(&lab, site, 12));
    let ping =
        traffic::ping(&lab, PingOptions { count: 20, size: 1000, ..PingOptions::default() }).expect("pings");
    assert_eq!(ping.received, 20);
    for stream in streams {
        scene::assert_complete(&scene::finish(stream));
    }
    let packets = recording.finish().expect("packets");
    let begin = packets.first().map_or(Duration::ZERO, |packet| packet.time);
    (Observation::of(&packets, begin, site_of), packets)
}

#[test]
fn nothing_links_two_epochs() {
    let Some(builder) = scene::lab("ac-ul") else { return };
    let (observation, packets) = observe(builder);
    assert!(observation.addresses(Site::A) >= 8 && observation.addresses(Site::B) >= 8);
    assert_eq!(observation.linking_addresses(5), Vec::<Ipv6Addr>::new());
    assert_eq!(observation.constant_bytes, Vec::<usize>::new());
    assert!(observation.not_udp.is_empty(), "{:?}", observation.not_udp);
    let skews = observation.move_skews();
    eprintln!("both ends move within {:.0} ms", skews.iter().copied().fold(0.0, f64::max) * 1000.0);
    assert!(skews.len() >= 8 && skews.iter().all(|skew| *skew < 0.5), "{skews:?}");
    // Neither what pings carry nor an inner address is to be seen.
    let pattern: Vec<u8> = (0x30..0x50).collect();
    assert_eq!(packets_containing(&packets, &pattern), 0);
    let inner: Ipv6Addr = "2001:db8:b::2".parse().expect("an address");
    assert_eq!(packets_containing(&packets, &inner.octets()), 0);
    // Nothing but UDP and neighbor discovery between link-local or gateway addresses comes from a hopping prefix.
    let strange = packets.iter().filter(|p| site_of(p.source).is_some() && p.next_header != UDP).count();
    assert_eq!(strange, 0);
}

#[test]
fn full_padding_shows_one_size() {
    let Some(builder) = scene::lab("ac-up") else { return };
    let (observation, _) = observe(builder.padding("full"));
    let total: u64 = observation.sizes.values().sum();
    let most = observation.sizes.values().max().copied().unwrap_or(0);
    assert!(most * 100 >= total * 99, "{:?}", observation.sizes);
}

#[test]
fn buckets_show_a_few_sizes_and_cover_goes_on() {
    let Some(builder) = scene::lab("ac-ub") else { return };
    let (observation, _) = observe(builder.padding("buckets").cover("50").lanes(4));
    let usual: u64 = observation.sizes.values().filter(|n| **n > 20).sum();
    let total: u64 = observation.sizes.values().sum();
    assert!(observation.sizes.values().filter(|n| **n > 20).count() <= 8, "{:?}", observation.sizes);
    assert!(usual * 100 >= total * 95, "{:?}", observation.sizes);
}
