//! Many packets over many rotations: none is lost, none comes twice, and TCP notices nothing.

use std::time::Duration;

use lab::traffic::{self, PingOptions, Pings, TcpOptions};
use lab::{Builder, Site, Topology};

use crate::scene;

/// A flood of pings and a minute's stream in each direction, at the same time.
fn nothing_is_lost_in_a_minute(builder: Builder) {
    let lab = scene::up(builder);
    let first = scene::rotations(&lab);
    let streams = [Site::A, Site::B].map(|site| scene::start_stream(&lab, site, 60));
    let pings = Pings::start(&lab, PingOptions { count: 200_000, interval: None, ..PingOptions::default() });
    for stream in streams {
        scene::assert_complete(&scene::finish(stream));
    }
    let pings = pings.expect("pings").finish(Duration::from_secs(300)).expect("a summary");
    let rotations = scene::rotations(&lab) - first;
    eprintln!("{rotations} rotations, {pings:?}");
    assert_eq!((pings.sent, pings.received, pings.duplicates, pings.errors), (200_000, 200_000, 0, 0));
    assert!(rotations >= 50, "{rotations} rotations");
}

#[test]
fn nothing_is_lost_in_a_minute_routed() {
    let Some(builder) = scene::lab("ac-er") else { return };
    nothing_is_lost_in_a_minute(builder);
}

#[test]
fn nothing_is_lost_in_a_minute_switched() {
    let Some(builder) = scene::lab("ac-es") else { return };
    nothing_is_lost_in_a_minute(builder.topology(Topology::Switched));
}

/// At a rate that the slowest machine carries, a retransmission could only come from a rotation.
#[test]
fn tcp_notices_no_rotation() {
    for (prefix, topology) in
        [("ac-tr", Topology::Routed), ("ac-ts", Topology::Switched), ("ac-tt", Topology::Tunneled)]
    {
        let Some(builder) = scene::lab(prefix) else { return };
        let lab = scene::up(builder.topology(topology));
        let first = scene::rotations(&lab);
        let options = TcpOptions { seconds: 10, rate: 50_000_000, ..TcpOptions::default() };
        let report = traffic::tcp(&lab, options).expect("a transfer");
        let rotations = scene::rotations(&lab) - first;
        eprintln!("{topology:?}: {rotations} rotations, {report:?}");
        assert!(rotations >= 6, "{rotations} rotations");
        assert_eq!(report.retransmits, 0, "{topology:?}: {report:?}");
    }
}
