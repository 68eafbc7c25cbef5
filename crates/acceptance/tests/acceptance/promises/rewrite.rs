//! Packets that travel as they are, but for their addresses: nothing is lost over rotations, none shows a true address,
//! and all of the link's MTU is theirs.

use std::net::IpAddr;
use std::time::Duration;

use lab::capture::Recording;
use lab::observer::packets_containing;
use lab::patience::wait_until;
use lab::scale::scaled;
use lab::traffic::{self, PingOptions, Pings};
use lab::{Lab, Node, Site, Topology};

use super::scene;

/// A lab in which the hosts of both sites know each other, and packets pass both gateways by.
fn up(topology: Topology, arguments: &[&str]) -> Option<Lab> {
    let builder = scene::lab()?.topology(topology).carry("rewrite").rotation("1s").whole_packets(true);
    let mut lab = builder.build().expect("a lab");
    for site in [Site::A, Site::B] {
        lab.gateway(site).set_arguments(arguments);
    }
    lab.start().expect("a tunnel");
    Some(lab)
}

fn rewritten(lab: &Lab, site: Site) -> u64 {
    scene::number(lab, site, "tx_rewritten_packets")
}

/// Hosts say something, until they do so with other addresses.
fn wait_rewritten(lab: &Lab) {
    wait_until("addresses are replaced", || {
        traffic::ping(lab, PingOptions { count: 5, ..PingOptions::default() }).expect("pings");
        rewritten(lab, Site::A) > 0 && rewritten(lab, Site::B) > 0
    });
}

fn ping_whole(lab: &Lab, count: &str) -> String {
    let host = Site::B.host().to_string();
    scene::run(lab, Node::HostA, &["ping", "-n", "-M", "do", "-i", "0.1", "-c", count, "-s", "1452", &host])
}

#[test]
fn nothing_is_lost_over_rotations_and_no_true_address_is_seen() {
    for (topology, arguments, count) in [
        (Topology::Routed, &[][..], scaled(15_000, 50_000)),
        (Topology::Switched, &[], scaled(15_000, 50_000)),
        (Topology::Routed, &["--test-without", "tcx"], 10_000),
    ] {
        let Some(lab) = up(topology, arguments) else { return };
        // The largest from the start, when nothing is known of the pair yet.
        let text = ping_whole(&lab, "10");
        assert!(text.contains(" 0% packet loss"), "{text}");
        wait_rewritten(&lab);
        let recording = Recording::start(&lab, Node::Router, "a").expect("a recording");
        let before = [Site::A, Site::B].map(|site| rewritten(&lab, site));
        let options = PingOptions { count, interval: None, ..PingOptions::default() };
        let pings = Pings::start(&lab, options).expect("pings");
        let pings = pings.finish(Duration::from_secs(120)).expect("a summary");
        let count = u64::from(count);
        eprintln!("{topology:?}: {pings:?}");
        assert_eq!((pings.sent, pings.received, pings.duplicates, pings.errors), (count, count, 0, 0));
        let text = ping_whole(&lab, "20");
        assert!(text.contains(" 0% packet loss"), "{text}");
        for from in [Site::A, Site::B] {
            let report = scene::tcp(&lab, from, 1);
            eprintln!("{topology:?}, from {from:?}: {report:?}");
            assert!(report.bits_per_second > 1e7, "{report:?}");
        }
        refused_by_the_other_host(&lab);
        let packets = recording.finish().expect("packets");
        for site in [Site::A, Site::B] {
            let IpAddr::V6(host) = site.host() else { unreachable!("an IPv6 address") };
            let shown = packets_containing(&packets, &host.octets());
            assert_eq!(shown, 0, "{host} in {shown} of {} packets", packets.len());
            assert!(packets.iter().all(|packet| packet.source != host && packet.destination != host));
        }
        assert!(packets.len() as u64 > 2 * count, "{} packets", packets.len());
        // What is told is up to a second old.
        std::thread::sleep(Duration::from_millis(1_500));
        for (site, before) in [Site::A, Site::B].into_iter().zip(before) {
            assert!(rewritten(&lab, site) - before >= count, "{}", scene::peer(&lab, site));
            assert_eq!(scene::peer(&lab, site)["carry"], "rewrite");
        }
    }
}

/// An error of a host quotes what it got, and travels in the tunnel.
fn refused_by_the_other_host(lab: &Lab) {
    let program = "import socket, sys, time\n\
                   s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\n\
                   s.connect((sys.argv[1], 9))\n\
                   s.send(b'x')\n\
                   time.sleep(0.5)\n\
                   s.send(b'x')";
    let text = scene::run(lab, Node::HostA, &["python3", "-c", program, &Site::B.host().to_string()]);
    assert!(text.contains("ConnectionRefusedError"), "{text}");
}

#[test]
fn senders_learn_the_path_mtu_from_routers_between_and_behind() {
    let Some(builder) = scene::lab() else { return };
    let lab = scene::up(builder.carry("rewrite").rotation("1s").middle_mtu(1400));
    wait_rewritten(&lab);
    let text = ping_whole(&lab, "3");
    assert!(text.contains("mtu=1400") || text.contains("mtu: 1400"), "{text}");
    for from in [Site::A, Site::B] {
        assert!(scene::tcp(&lab, from, 1).bits_per_second > 1e7);
    }
    drop(lab);

    let Some(lab) = up(Topology::Routed, &[]) else { return };
    scene::run(&lab, Node::GatewayB, &["ip", "link", "set", "dev", "in", "mtu", "1380"]);
    wait_rewritten(&lab);
    let text = ping_whole(&lab, "3");
    assert!(text.contains("mtu=1380") || text.contains("mtu: 1380"), "{text}");
}

#[test]
fn without_the_kernels_help_and_with_a_peer_that_does_not_the_tunnel_is_used() {
    let Some(builder) = scene::lab() else { return };
    let mut lab = builder.carry("rewrite").rotation("1s").build().expect("a lab");
    lab.gateway(Site::B).set_arguments(&["--test-without", "rewriting"]);
    lab.start().expect("a tunnel");
    let pings = traffic::ping(&lab, PingOptions { count: 2_000, interval: None, ..PingOptions::default() });
    assert_eq!(pings.expect("a summary").received, 2_000);
    std::thread::sleep(Duration::from_secs(2));
    for site in [Site::A, Site::B] {
        assert_eq!(rewritten(&lab, site), 0);
        assert_eq!(scene::peer(&lab, site)["carry"], "encapsulate");
    }
    let log = std::fs::read_to_string(lab.gateway(Site::B).log()).expect("a log");
    assert!(log.contains("addresses cannot be replaced here"), "{log}");
}

#[test]
fn a_crash_and_a_restart_leave_nothing_and_lose_little() {
    let Some(mut lab) = up(Topology::Routed, &["--test-without", "tcx"]) else { return };
    wait_rewritten(&lab);
    lab.gateway(Site::B).kill();
    lab.gateway(Site::B).start().expect("a gateway");
    let filters = || scene::run(&lab, Node::GatewayB, &["tc", "filter", "show", "dev", "ex", "ingress"]);
    wait_until("one filter, not two", || filters().matches("bpf chain 0 handle").count() <= 1);
    wait_rewritten(&lab);
    let pings = traffic::ping(&lab, PingOptions { count: 2_000, interval: None, ..PingOptions::default() });
    assert_eq!(pings.expect("a summary").received, 2_000);
}
