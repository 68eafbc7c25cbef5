//! What the router between the gateways sees where there is a shape.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use lab::capture::{Packet, Recording};
use lab::scale::scaled;
use lab::traffic::{self, PingOptions, TcpOptions};
use lab::{Lab, Node, Site};

use super::scene;

/// Bits per second of the shape.
const RATE: u64 = 4_000_000;

/// What a gateway sent by its lanes: addresses and ports, sizes, and bits per second.
struct Sent {
    lanes: BTreeMap<(Ipv6Addr, u16), Vec<f64>>,
    sizes: BTreeSet<usize>,
    rate: f64,
}

fn sent(packets: &[Packet], site: Site) -> Sent {
    let own: Vec<_> = packets.iter().filter(|packet| site.in_hop_prefix(packet.source)).collect();
    let mut lanes: BTreeMap<_, Vec<f64>> = BTreeMap::new();
    for packet in &own {
        assert!(packet.is_udp());
        lanes.entry((packet.source, packet.ports.0)).or_default().push(packet.time.as_secs_f64());
    }
    let seconds = match (own.first(), own.last()) {
        (Some(first), Some(last)) => (last.time - first.time).as_secs_f64(),
        _ => panic!("nothing was sent"),
    };
    let bytes: usize = own.iter().map(|packet| packet.length).sum();
    Sent { lanes, sizes: own.iter().map(|p| p.length).collect(), rate: bytes as f64 * 8.0 / seconds }
}

fn record(lab: &Lab, during: impl FnOnce()) -> Vec<Packet> {
    let recording = Recording::start(lab, Node::Router, "a").expect("a recording");
    during();
    recording.finish().expect("packets")
}

#[test]
fn a_constant_shape_carries_pings_and_tcp_and_shows_neither() {
    let Some(builder) = scene::lab() else { return };
    let shape = format!("{{ constant = \"{}kbit/s\" }}", RATE / 1_000);
    let lab = scene::up(builder.whole_packets(true).lanes(3).shape(&shape));
    let idle = record(&lab, || std::thread::sleep(std::time::Duration::from_secs(scaled(3, 20))));
    let busy = record(&lab, || {
        let pings = PingOptions { count: 10, size: 1_000, ..PingOptions::default() };
        let ping = traffic::ping(&lab, pings).expect("pings");
        assert_eq!(ping.received, 10);
        for from in [Site::A, Site::B] {
            let options = TcpOptions { from, seconds: scaled(2, 10), rate: 0, ..TcpOptions::default() };
            let tcp = traffic::tcp(&lab, options).expect("a transfer");
            eprintln!("from {from:?}: {:.0} of {RATE} bit/s", tcp.bits_per_second);
            assert!(tcp.bits_per_second > RATE as f64 / 8.0, "{tcp:?}");
            assert!(tcp.bits_per_second < RATE as f64 * 2.0, "{tcp:?}");
        }
    });
    for site in [Site::A, Site::B] {
        let (idle, busy) = (sent(&idle, site), sent(&busy, site));
        assert_eq!((&idle.sizes, &busy.sizes), (&BTreeSet::from([1280]), &BTreeSet::from([1280])));
        eprintln!("{site:?}: {:.0} and {:.0} bit/s, {} lanes", idle.rate, busy.rate, busy.lanes.len());
        // How many lanes are alive in a few seconds is a matter of chance, and slots that a busy machine misses are left out.
        for rate in [idle.rate, busy.rate] {
            assert!((0.4..1.8).contains(&(rate / RATE as f64)), "{rate}");
        }
        // A lane has its rate from the first datagram to the last, whatever is carried and however many there are.
        let expected = RATE as f64 / 8.0 / 1280.0 / 3.4;
        let paces = busy.lanes.values().filter(|times| times.len() > 50).map(|times| {
            let seconds = times.last().expect("many") - times.first().expect("many");
            (times.len() - 1) as f64 / seconds / expected
        });
        let paces: Vec<f64> = paces.collect();
        assert!(paces.len() > 3, "{paces:?}");
        assert!(paces.iter().all(|pace| (0.4..1.15).contains(pace)), "{paces:?}");
        let status = scene::peer(&lab, site);
        assert_eq!(status["shape"]["kind"], "constant");
        assert_eq!(status["shape"]["rate_bits"], RATE);
        assert!(status["shape"]["delay_p99_ms"].as_f64().is_some(), "{status}");
        assert_eq!(status["path_mtu"], 1280);
    }
}
