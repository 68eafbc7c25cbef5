//! The classic profile: many packets over many rotations, none is lost; TCP in its largest segments; errors that tell
//! senders what fits.

use std::time::Duration;

use lab::classic::{ClassicNodes, Settings};
use lab::traffic::{self, PingOptions, Pings, TcpOptions};
use lab::{Lab, Site, Topology};

use crate::scene;

/// A lab whose routers route what the hosts are hashed to.
fn up(prefix: &str, topology: Topology) -> Option<Lab> {
    let lab = scene::lab(prefix)?.topology(topology).tunnel(false).build().expect("a lab");
    lab.wait_connected(Duration::from_secs(30)).expect("hosts that reach each other");
    Some(lab)
}

#[test]
fn fifty_thousand_flood_pings_are_answered_over_rotations() {
    for (prefix, topology, cipher, kernel) in [
        ("ac-cr", Topology::Routed, "none", "off"),
        ("ac-ct", Topology::Tunneled, "aes-256-cbc", "off"),
        ("ac-ck", Topology::Routed, "none", "required"),
        ("ac-cw", Topology::Switched, "none", "required"),
    ] {
        let Some(lab) = up(prefix, topology) else { return };
        let settings = Settings { cipher: cipher.into(), rotation: 1, kernel, ..Settings::default() };
        let nodes = ClassicNodes::start(&lab, &settings).expect("both ends");
        let options = PingOptions { count: 50_000, interval: None, ..PingOptions::default() };
        let pings = Pings::start(&lab, options).expect("pings");
        let pings = pings.finish(Duration::from_secs(120)).expect("a summary");
        // What the daemon tells of these peers is up to a second old.
        std::thread::sleep(Duration::from_millis(1_500));
        let status = nodes.show(&lab, Site::A).expect("a status");
        let peer = &status["peers"][0];
        eprintln!("{cipher}, kernel {kernel}: {pings:?}, {peer}");
        assert_eq!((pings.sent, pings.received, pings.duplicates, pings.errors), (50_000, 50_000, 0, 0));
        assert!(peer["tx_packets"].as_u64() >= Some(50_000), "they went through the tunnel: {peer}");
        assert!(peer["rotations"].as_u64() >= Some(2), "{peer}");
        nodes.stop();
    }
}

#[test]
fn tcp_finds_its_segment_size() {
    let Some(lab) = up("ac-cs", Topology::Routed) else { return };
    for (cipher, kernel) in
        [("none", "off"), ("none", "required"), ("aes-256-cbc", "off"), ("aes-128-cbc", "off")]
    {
        let settings = Settings { cipher: cipher.into(), rotation: 1, kernel, ..Settings::default() };
        let nodes = ClassicNodes::start(&lab, &settings).expect("both ends");
        for from in [Site::A, Site::B] {
            let report = traffic::tcp(&lab, TcpOptions { from, seconds: 2, ..TcpOptions::default() });
            let report = report.expect("a transfer");
            eprintln!("{cipher}, kernel {kernel}, from {from:?}: {report:?}");
            assert!(report.bits_per_second > 1e6, "{cipher}: {report:?}");
        }
        let status = nodes.show(&lab, Site::B).expect("a status");
        eprintln!("{cipher}: {}", status["drops"]);
        nodes.stop();
    }
}
