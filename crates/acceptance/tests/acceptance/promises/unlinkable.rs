//! What the router between the gateways sees.

use std::net::Ipv6Addr;
use std::time::Duration;

use lab::capture::{Packet, Recording};
use lab::observer::{Observation, packets_containing};
use lab::scale::scaled;
use lab::traffic::{self, PingOptions};
use lab::{Builder, Lab, Node, Site, Topology};

use super::scene;

const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const NEIGHBOR_ADVERTISEMENT: u8 = 136;

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
    (Observation::of(&packets, begin, site_of), packets)
}

/// Both ends moved together, at least so often, and nothing in the packets links two epochs or tells what is in them.
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
    assert!(skews.len() >= moves && skews.iter().all(|skew| *skew < 0.5), "{skews:?}");
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
    assert_unlinkable(&observe(builder), 8);
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
    assert_unlinkable(&observe_for(&lab, scaled(22, 45)), scaled(18, 40));
    let rekeys = rekeys(&lab) - before;
    assert!(rekeys >= scaled(2, 3), "{rekeys} rekeys");
}

/// From the router, which knows the address in use: a scanner gets no reply of any kind, from no address.
fn nobody_answers_a_scan(builder: Builder) {
    let lab = scene::up(builder.rotation("20s").whole_packets(true));
    let _stream = scene::start_stream(&lab, Site::A, 60);
    let recording = Recording::start(&lab, Node::Router, "a").expect("a recording");
    let unused = "2001:db8:a1::7";
    for kind in [&["-sS", "-p", "1-64"][..], &["-sU", "-p", "1-64"], &["-sn", "-PE"]] {
        let endpoint = scene::peer(&lab, Site::A)["local"][0].take();
        let active = endpoint["address"].as_str().expect("an address");
        let mut words = vec!["nmap", "-6", "-n", "--max-retries", "0", "--host-timeout", "20s"];
        words.extend(kind);
        if !kind.contains(&"-sn") {
            words.push("-Pn");
        }
        words.extend([active, unused]);
        let said = scene::run(&lab, Node::Router, &words);
        assert!(said.contains("Nmap done: 2 IP addresses"), "{said}");
        assert!(!said.contains("closed"), "{said}");
    }
    // The very port that is in use.
    let endpoint = scene::peer(&lab, Site::A)["local"][0].take();
    let (address, port) = (endpoint["address"].as_str().expect("an address"), endpoint["port"].to_string());
    scene::run(&lab, Node::Router, &["nmap", "-6", "-n", "-Pn", "-sU", "-p", &port, address]);
    let packets = recording.finish().expect("packets");
    let scanned = |p: &&Packet| site_of(p.destination) == Some(Site::A) && site_of(p.source).is_none();
    assert!(packets.iter().filter(scanned).count() > 60, "nothing was scanned");
    let discovery = |p: &&Packet| p.next_header == ICMPV6 && matches!(p.payload.first(), Some(133..=137));
    let to_the_router = packets
        .iter()
        .filter(|p| !p.destination.is_multicast() && site_of(p.destination).is_none() && !discovery(p));
    assert_eq!(to_the_router.cloned().collect::<Vec<_>>(), []);
    let answered = packets
        .iter()
        .filter(|p| p.next_header == ICMPV6 && p.payload.first() == Some(&NEIGHBOR_ADVERTISEMENT))
        .filter(|p| p.payload.get(8..24) == Some(&unused.parse::<Ipv6Addr>().expect("an address").octets()));
    assert_eq!(answered.count(), 0);
}

#[test]
fn nobody_answers_a_scan_of_a_routed_prefix() {
    let Some(builder) = scene::lab() else { return };
    nobody_answers_a_scan(builder);
}

#[test]
fn nobody_answers_a_scan_of_an_on_link_prefix() {
    let Some(builder) = scene::lab() else { return };
    nobody_answers_a_scan(builder.topology(Topology::Switched));
}

#[test]
fn full_padding_shows_one_size() {
    let Some(builder) = scene::lab() else { return };
    let (observation, _) = observe(builder.padding("full"));
    let total: u64 = observation.sizes.values().sum();
    let most = observation.sizes.values().max().copied().unwrap_or(0);
    assert!(most * 100 >= total * 99, "{:?}", observation.sizes);
}

#[test]
fn buckets_show_a_few_sizes_and_cover_goes_on() {
    let Some(builder) = scene::lab() else { return };
    let (observation, _) = observe(builder.padding("buckets").cover("50").lanes(4));
    let usual: u64 = observation.sizes.values().filter(|n| **n > 20).sum();
    let total: u64 = observation.sizes.values().sum();
    assert!(observation.sizes.values().filter(|n| **n > 20).count() <= 8, "{:?}", observation.sizes);
    assert!(usual * 100 >= total * 95, "{:?}", observation.sizes);
}
