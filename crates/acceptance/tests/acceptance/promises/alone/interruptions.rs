//! Gateways that end or crash while traffic flows.

use std::time::Duration;

use lab::scale::scaled;
use lab::traffic::UdpReport;
use lab::{Lab, Site};

use super::super::scene;

/// The stream's longest silence after its first datagram, from the numbers that are missing.
fn longest_gap(report: &UdpReport) -> Duration {
    let missing = report.received.gaps.iter().map(|(first, last)| last - first + 1).max().unwrap_or(0);
    Duration::from_millis(missing)
}

/// What was lost for longer than the gateway was away.
fn resumes(lab: &mut Lab, site: Site, from: Site, stop: impl FnOnce(&mut lab::Gateway)) -> Duration {
    let stream = scene::start_stream(lab, from, scaled(9, 12));
    std::thread::sleep(Duration::from_secs(4));
    stop(lab.gateway(site));
    lab.gateway(site).start().expect("a gateway");
    let report = scene::finish(stream);
    assert_eq!(report.received.duplicated, 0);
    let arrived_last = report.received.expected >= report.sent.sent - 1_000;
    assert!(arrived_last, "the stream did not resume: {:?}", report.received.gaps);
    longest_gap(&report)
}

/// The gateway that is interrupted, and where the stream comes from: each of the four is interrupted in one way in a quick
/// run, in both ways in a full one.
fn cases(quick: [(Site, Site); 2]) -> Vec<(Site, Site)> {
    let all = [(Site::A, Site::A), (Site::A, Site::B), (Site::B, Site::A), (Site::B, Site::B)];
    scaled(quick.to_vec(), all.to_vec())
}

#[test]
fn traffic_resumes_within_three_seconds_of_a_restart() {
    let Some(builder) = scene::lab() else { return };
    let mut lab = scene::up(builder);
    for (site, from) in cases([(Site::A, Site::A), (Site::B, Site::A)]) {
        let gap = resumes(&mut lab, site, from, |gateway| assert!(gateway.stop()));
        eprintln!("gateway {site:?} restarted, stream from {from:?}: away for {gap:?}");
        assert!(gap < Duration::from_secs(3), "{gap:?}");
    }
}

#[test]
fn traffic_resumes_within_three_seconds_of_a_crash() {
    let Some(builder) = scene::lab() else { return };
    let mut lab = scene::up(builder);
    for (site, from) in cases([(Site::A, Site::B), (Site::B, Site::B)]) {
        let gap = resumes(&mut lab, site, from, lab::Gateway::kill);
        eprintln!("gateway {site:?} killed, stream from {from:?}: away for {gap:?}");
        assert!(gap < Duration::from_secs(3), "{gap:?}");
    }
}
