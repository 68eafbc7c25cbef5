//! Bad networks: slow, lossy, hostile, behind firewalls, with ports taken.

use std::time::Duration;

use lab::scale::scaled;
use lab::traffic::{UdpOptions, UdpStream};
use lab::{Builder, Lab, Node, Site};

use super::scene;

/// A lab with the same impairment in both directions.
fn impaired(impairment: &str) -> Option<Lab> {
    let parse = || impairment.parse().expect("an impairment");
    Some(scene::up(scene::lab()?.impairment(parse()).impairment_back(parse())))
}

fn both_directions(lab: &Lab, seconds: u64) -> [lab::traffic::UdpReport; 2] {
    [Site::A, Site::B].map(|site| scene::start_stream(lab, site, seconds)).map(scene::finish)
}

#[test]
fn what_is_replayed_is_not_delivered_again() {
    let Some(lab) = impaired("replay=50ms") else { return };
    for report in both_directions(&lab, 10) {
        scene::assert_complete(&report);
    }
    for site in [Site::A, Site::B] {
        let peer = scene::peer(&lab, site);
        let replayed = peer["drops"]["replayed"].as_u64().unwrap_or(0);
        assert!(replayed > 5_000, "{peer}");
    }
}

#[test]
fn a_bad_path_costs_its_own_losses_and_no_more() {
    let Some(lab) = impaired("delay=20ms,jitter=5ms,loss=2%,reorder=1%") else { return };
    for report in both_directions(&lab, 10) {
        let expected = report.sent.sent as f64 * 0.02;
        eprintln!("{} of {} lost, {expected} expected", report.lost, report.sent.sent);
        assert!((report.lost as f64) < expected + 5.0 * expected.sqrt(), "{} lost", report.lost);
        assert_eq!(report.received.duplicated, 0);
    }
}

#[test]
fn a_round_trip_of_600_ms_loses_nothing() {
    let Some(lab) = impaired("delay=300ms") else { return };
    for report in both_directions(&lab, 12) {
        scene::assert_complete(&report);
    }
}

fn firewalled() -> Option<Builder> {
    scene::lab().map(|builder| builder.firewall(true))
}

#[test]
fn a_stateful_firewall_before_each_site_lets_everything_through() {
    let Some(builder) = firewalled() else { return };
    let lab = scene::up(builder);
    for report in both_directions(&lab, 12) {
        scene::assert_complete(&report);
    }
}

#[test]
fn one_way_traffic_passes_stateful_firewalls() {
    let Some(builder) = firewalled() else { return };
    let lab = scene::up(builder);
    for from in [Site::A, Site::B] {
        let options = UdpOptions {
            from,
            rate: 200,
            duration: Duration::from_secs(scaled(8, 20)),
            ..UdpOptions::default()
        };
        scene::assert_complete(&scene::finish(UdpStream::start(&lab, options).expect("a stream")));
    }
}

/// Another program holds a quarter of all ports of gateway A.
const HOLDER: &str = "
import resource, socket, sys, time
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
held = []
for port in range(20000, 36000):
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    try:
        s.bind(('::', port))
        held.append(s)
    except OSError:
        s.close()
print(len(held), flush=True)
time.sleep(120)
";

#[test]
fn a_lane_whose_port_is_taken_is_left_out() {
    let Some(builder) = scene::lab() else { return };
    let lab = scene::up(builder);
    let mut holder = lab.command(Node::GatewayA, "python3").expect("python3");
    let mut holder = holder
        .args(["-c", HOLDER])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("a program that holds ports");
    let mut held = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(holder.stdout.as_mut().expect("piped")),
        &mut held,
    )
    .expect("a count");
    assert!(held.trim().parse::<u32>().expect("a count") > 10_000, "{held} ports held");
    let reports = both_directions(&lab, 30);
    holder.kill().expect("it to end");
    let _ = holder.wait();
    for report in reports {
        scene::assert_complete(&report);
    }
    assert!(scene::number(&lab, Site::A, "skips") > 0, "{}", scene::peer(&lab, Site::A));
}
