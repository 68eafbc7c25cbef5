//! The lab itself, on this machine's kernel: the networks carry packets, impairments have the effect that was
//! asked for, and nothing is left behind. No gateway runs here: these labs are the plain baseline.

use std::time::Duration;

use lab::impairment::Impairment;
use lab::traffic::{self, PingOptions, TcpOptions, UdpOptions, UdpStream};
use lab::{Builder, Lab, Node, Site, Topology, capture};

/// A baseline lab, or `None` where labs cannot be built. In continuous integration that is a failure.
fn plain() -> Option<Builder> {
    if nix::unistd::geteuid().is_root() {
        return Some(Lab::builder("sidestep").tunnel(false));
    }
    assert!(std::env::var("CI").as_deref() != Ok("true"), "the lab's tests need root");
    eprintln!("skipped: labs need root");
    None
}

fn up(builder: Builder) -> Lab {
    let mut lab = builder.build().expect("a lab");
    lab.start().expect("hosts that reach each other");
    lab
}

fn pings(lab: &Lab, count: u32) -> lab::echoes::PingReport {
    let options = PingOptions { count, interval: Some(Duration::from_millis(10)), ..PingOptions::default() };
    traffic::ping(lab, options).expect("a ping summary")
}

/// Whether one machine of the lab gets an answer from an address.
fn reaches(lab: &Lab, node: Node, address: &str) -> bool {
    lab.exec(node, ["ping", "-n", "-c", "2", "-i", "0.1", "-W", "1", address]).expect("ping").status.success()
}

fn stream(lab: &Lab, options: UdpOptions) -> traffic::UdpReport {
    let stream = UdpStream::start(lab, options).expect("a stream");
    stream.finish(Duration::from_millis(300)).expect("a report")
}

#[test]
fn hosts_reach_each_other_in_every_topology_and_nothing_is_left() {
    for topology in Topology::ALL {
        let Some(builder) = plain() else { return };
        let lab = up(builder.topology(topology));
        let report = pings(&lab, 50);
        assert_eq!((report.received, report.duplicates), (50, 0), "{topology:?}");
        let (prefix, directory) = (lab.prefix().to_owned(), lab.directory());
        drop(lab);
        for node in Node::ALL {
            assert!(!node.namespace(&prefix).exists(), "{node:?} is left of {topology:?}");
        }
        assert!(!directory.exists());
    }
}

#[test]
fn ipv4_crosses_the_routed_lab() {
    let Some(builder) = plain() else { return };
    let lab = up(builder);
    let options = PingOptions { ipv4: true, count: 5, ..PingOptions::default() };
    assert_eq!(traffic::ping(&lab, options).expect("a summary").received, 5);
}

#[test]
fn the_relay_delays_and_loses_as_asked() {
    let Some(builder) = plain() else { return };
    let lab = up(builder.impairment("delay=20ms,loss=5%,seed=7".parse().expect("valid")));
    let report = pings(&lab, 500);
    // Each way loses 5 %: 9.75 % of 500 are 49.
    assert!((20..90).contains(&(report.sent - report.received)), "{report:?}");
    assert!((40.0..60.0).contains(&report.min_ms), "{report:?}");
}

#[test]
fn the_relay_duplicates_and_reorders_one_way_only_if_told_so() {
    let Some(builder) = plain() else { return };
    let impairment = "duplicate=10%,reorder=5%,reorder-by=10ms".parse().expect("valid");
    let lab = up(builder.impairment(impairment).impairment_back(Impairment::default()));
    let options = UdpOptions { rate: 2_000, duration: Duration::from_secs(2), ..UdpOptions::default() };
    let forth = stream(&lab, options);
    assert_eq!((forth.sent.sent, forth.lost), (4_000, 0), "{forth:?}");
    assert!((300..500).contains(&forth.received.duplicated), "{forth:?}");
    assert!((120..300).contains(&forth.received.reordered), "{forth:?}");
    let back = stream(&lab, UdpOptions { from: Site::B, ..options });
    assert_eq!((back.lost, back.received.duplicated, back.received.reordered), (0, 0, 0));
}

#[test]
fn an_attacker_replays_every_datagram_also_in_the_switched_lab() {
    let Some(builder) = plain() else { return };
    let lab = up(builder.topology(Topology::Switched).impairment("replay=30ms".parse().expect("valid")));
    let report = stream(&lab, UdpOptions { duration: Duration::from_secs(1), ..UdpOptions::default() });
    assert_eq!((report.lost, report.received.duplicated), (0, 1_000));
}

#[test]
fn a_narrow_middle_link_answers_too_big_unless_filtered() {
    for filtered in [false, true] {
        let Some(builder) = plain() else { return };
        let lab = up(builder.middle_mtu(1280).filter_too_big(filtered));
        let big = [
            "ping",
            "-6",
            "-n",
            "-M",
            "do",
            "-s",
            "1300",
            "-c",
            "2",
            "-i",
            "0.2",
            "-W",
            "1",
            "2001:db8:b::2",
        ];
        let output = lab.exec(Node::HostA, big).expect("ping");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).to_lowercase();
        let told = said.contains("too big") || said.contains("too long");
        assert_eq!(told, !filtered, "{said}");
    }
}

#[test]
fn tcp_crosses_the_user_space_tunnel_without_stalling() {
    let Some(builder) = plain() else { return };
    let lab = up(builder.topology(Topology::Tunneled));
    let report = traffic::tcp(&lab, TcpOptions { seconds: 2, ..TcpOptions::default() }).expect("a report");
    assert!(report.bits_per_second > 10e6, "{report:?}");
}

#[test]
fn each_firewall_lets_in_only_what_was_opened_from_inside() {
    let Some(builder) = plain() else { return };
    let lab = builder.firewall(true).build().expect("a lab");
    assert!(!reaches(&lab, Node::HostA, "2001:db8:b::2"), "site B was entered from outside");
    assert!(!reaches(&lab, Node::HostB, "2001:db8:a::2"), "site A was entered from outside");
    assert!(!reaches(&lab, Node::RouterB, "2001:db8:a::2"), "site A was entered from between the firewalls");
    assert!(reaches(&lab, Node::HostA, "2001:db8:ff::2"), "an answer to site A was kept out");
}

#[test]
fn impossible_labs_are_refused_with_a_reason() {
    let Some(builder) = plain() else { return };
    let refused = |builder: Builder| builder.build().expect_err("refused").to_string();
    assert!(refused(builder.clone().topology(Topology::Switched).firewall(true)).contains("firewall"));
    assert!(refused(builder.clone().middle_mtu(1000)).contains("1280"));
    assert!(refused(builder.prefix("../etc")).contains("prefix"));
}

#[test]
fn a_capture_at_the_router_shows_every_packet() {
    let Some(builder) = plain() else { return };
    let lab = up(builder.whole_packets(true));
    let recording = capture::Recording::start(&lab, Node::Router, "a").expect("a capture");
    let options =
        UdpOptions { rate: 500, duration: Duration::from_secs(1), size: 300, ..UdpOptions::default() };
    let report = stream(&lab, options);
    let packets = recording.finish().expect("packets");
    let seen: Vec<_> = packets.iter().filter(|packet| packet.ports.1 == options.port).collect();
    assert_eq!(seen.len() as u64, report.sent.sent);
    assert!(seen.iter().all(|packet| packet.payload.len() == 300 && packet.is_udp()));
    assert!(seen.is_sorted_by_key(|packet| packet.time));
}

#[test]
fn a_lab_that_was_left_by_a_crash_is_taken_down_by_its_prefix() {
    let Some(builder) = plain() else { return };
    let lab = up(builder.impairment("delay=1ms".parse().expect("valid")));
    assert_eq!(lab.namespace(Node::Relay).processes().len(), 1);
    let prefix = lab.prefix().to_owned();
    std::mem::forget(lab);
    assert!(Lab::attach(&prefix).is_ok());
    lab::down(&prefix).expect("taken down");
    assert!(Lab::attach(&prefix).is_err());
    assert!(Node::ALL.iter().all(|node| !node.namespace(&prefix).exists()));
}
