//! What the router between the gateways sees where there is a shape.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::process::Command;

use lab::capture::{Packet, Recording};
use lab::edited::Edited;
use lab::patience::wait_until;
use lab::scale::scaled;
use lab::traffic::{self, PingOptions, TcpOptions, UdpOptions, UdpStream};
use lab::{Lab, Node, Site};
use serde_json::Value;

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

/// A stream that the slots of a single lane carry, in both directions at once; nothing of it may be lost.
fn nothing_is_lost(lab: &Lab, datagrams_per_second: u32) {
    let duration = std::time::Duration::from_secs(scaled(4, 20));
    let streams = [(Site::A, 4242), (Site::B, 4243)].map(|(from, port)| {
        let options =
            UdpOptions { from, port, rate: datagrams_per_second, duration, ..UdpOptions::default() };
        UdpStream::start(lab, options).expect("a stream")
    });
    for stream in streams {
        let report = scene::finish(stream);
        let dropped = [Site::A, Site::B].map(|site| lab.show(site).expect("a status"));
        let dropped = dropped.each_ref().map(|status| (&status["drops"], &status["peers"][0]["drops"]));
        eprintln!("{} sent, {} lost, dropped {dropped:?}", report.sent.sent, report.lost);
        scene::assert_complete(&report);
    }
}

fn configure(lab: &mut Lab, site: Site, from: &str, to: &str) {
    let path = lab.gateway(site).configuration().to_owned();
    let text = std::fs::read_to_string(&path).expect("a configuration");
    std::fs::write(&path, text.edited(from, to)).expect("a changed configuration");
}

/// Reads the configuration again, and waits until both ends have this shape.
fn reload(lab: &mut Lab, site: Site, kind: &Value) {
    let socket = format!("/run/sidestep/{}.sock", lab.gateway(site).tunnel());
    let reload = Command::new(lab.program()).args(["reload", "--socket", &socket]).output();
    let reload = reload.expect("sidestep reload");
    assert!(reload.status.success(), "{}", String::from_utf8_lossy(&reload.stderr));
    wait_until(&format!("{kind} at both ends"), || {
        [Site::A, Site::B].into_iter().all(|site| {
            let peer = scene::peer(lab, site);
            peer["state"] == "established" && peer["shape"]["kind"] == *kind
        })
    });
}

#[test]
fn an_adaptive_shape_has_each_ends_budget_and_gives_way_to_another_at_a_reload() {
    let Some(builder) = scene::lab() else { return };
    // The lowest rate is 226 datagrams per second, a third of which is there where one lane is alone.
    let adaptive = "{ adaptive = \"100GB/day\" }";
    let mut lab = builder.whole_packets(true).lanes(3).shape(adaptive).build().expect("a lab");
    configure(&mut lab, Site::B, adaptive, "\"none\"");
    lab.start().expect("a tunnel");
    let budget = |lab: &Lab, site| scene::peer(lab, site)["shape"]["budget_left"].as_u64().expect("a budget");

    let idle = record(&lab, || nothing_is_lost(&lab, 20));
    for site in [Site::A, Site::B] {
        let status = scene::peer(&lab, site);
        assert_eq!(
            (&status["shape"]["kind"], &status["shape"]["rate_bits"]),
            (&"adaptive".into(), &Value::Null)
        );
        assert!(status["shape"]["delay_median_ms"].as_f64().is_some(), "{status}");
        assert!(status["shape"]["tx_padding"].as_u64() > Some(0), "{status}");
        assert_eq!(status["path_mtu"], 1280);
    }
    let is_half_of = |left: u64, gigabytes: u64| {
        let half = gigabytes * 500_000_000;
        assert!((half * 9 / 10..=half).contains(&left), "{left} of {half}");
    };
    is_half_of(budget(&lab, Site::A), 100);
    // An end that has no shape of its own has this.
    is_half_of(budget(&lab, Site::B), 20);
    let text = {
        let socket = format!("/run/sidestep/{}.sock", lab.gateway(Site::A).tunnel());
        let show = Command::new(lab.program())
            .args(["show", "--details", "--socket", &socket])
            .output()
            .expect("sidestep show");
        String::from_utf8_lossy(&show.stdout).into_owned()
    };
    assert!(text.contains("  shape: adaptive, ") && text.contains(" left of its budget, delay "), "{text}");

    let busy = record(&lab, || {
        let options = TcpOptions { seconds: scaled(5, 20), rate: 0, ..TcpOptions::default() };
        let tcp = traffic::tcp(&lab, options).expect("a transfer");
        eprintln!("{:.0} bit/s", tcp.bits_per_second);
    });
    for site in [Site::A, Site::B] {
        let sizes = [&idle, &busy].map(|packets| sent(packets, site).sizes);
        assert_eq!(sizes, [BTreeSet::from([1280]), BTreeSet::from([1280])]);
    }
    // Two of three lanes have any rate, so in seconds it may be either way: that demand counts is tested in virtual time.
    eprintln!("{:.0} bit/s, and {:.0} with a transfer", sent(&idle, Site::A).rate, sent(&busy, Site::A).rate);

    // Another shape at one end: both start over, since the greater of two kinds applies; then nothing is lost either.
    let handshakes = scene::number(&lab, Site::B, "handshakes");
    configure(&mut lab, Site::A, adaptive, "{ constant = \"4Mbit/s\" }");
    reload(&mut lab, Site::A, &"constant".into());
    assert!(scene::number(&lab, Site::B, "handshakes") > handshakes, "there was to be a new session");
    let constant = record(&lab, || nothing_is_lost(&lab, 50));
    for site in [Site::A, Site::B] {
        assert_eq!(sent(&constant, site).sizes, BTreeSet::from([1280]));
        let shape = &scene::peer(&lab, site)["shape"];
        assert_eq!((&shape["rate_bits"], &shape["budget_left"]), (&RATE.into(), &Value::Null));
    }

    // The budget begins anew with the peer.
    let smaller = "{ adaptive = \"50GB/day\" }";
    configure(&mut lab, Site::A, "{ constant = \"4Mbit/s\" }", smaller);
    reload(&mut lab, Site::A, &"adaptive".into());
    is_half_of(budget(&lab, Site::A), 50);

    configure(&mut lab, Site::A, smaller, "\"none\"");
    reload(&mut lab, Site::A, &Value::Null);
    let open = record(&lab, || nothing_is_lost(&lab, 20));
    assert!(sent(&open, Site::A).sizes.len() > 1, "without a shape sizes are those of the packets");
}
