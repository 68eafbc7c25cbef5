//! The classic profile: many packets over many rotations, none is lost; TCP in its largest segments; errors that tell
//! senders what fits.

use std::time::Duration;

use lab::capture::Recording;
use lab::classic::{ClassicNodes, Settings};
use lab::echoes::{self, Echoes};
use lab::observer::packets_containing;
use lab::patience::wait_until;
use lab::scale::scaled;
use lab::traffic::{self, PingOptions, Pings};
use lab::{Lab, Node, Site, Topology};

use super::scene;

/// So many pings in a flood.
fn floods() -> u32 {
    scaled(10_000, 50_000)
}

/// A lab whose routers route what the hosts are hashed to.
fn up(topology: Topology) -> Option<Lab> {
    let lab = scene::lab()?.topology(topology).tunnel(false).build().expect("a lab");
    lab.wait_connected(Duration::from_secs(30)).expect("hosts that reach each other");
    Some(lab)
}

#[test]
fn fifty_thousand_flood_pings_are_answered_over_rotations() {
    for (topology, cipher, kernel) in [
        (Topology::Routed, "none", "off"),
        (Topology::Tunneled, "aes-256-cbc", "off"),
        (Topology::Routed, "none", "required"),
        (Topology::Switched, "none", "required"),
    ] {
        let Some(lab) = up(topology) else { return };
        let settings = Settings { cipher: cipher.into(), rotation: 1, kernel, ..Settings::default() };
        let nodes = ClassicNodes::start(&lab, &settings).expect("both ends");
        let peer = || nodes.show(&lab, Site::A).expect("a status")["peers"][0].clone();
        let mut sent = 0;
        // In the kernel a flood is over in a fraction of a rotation.
        while sent == 0 || peer()["rotations"].as_u64() < Some(2) {
            let options = PingOptions { count: floods(), interval: None, ..PingOptions::default() };
            let pings = Pings::start(&lab, options).expect("pings");
            let pings = pings.finish(Duration::from_secs(120)).expect("a summary");
            assert_eq!(
                (pings.sent, pings.received, pings.duplicates, pings.errors),
                (floods().into(), floods().into(), 0, 0),
                "{cipher}, kernel {kernel}: {pings:?}, {}",
                peer()
            );
            sent += pings.sent;
        }
        // What the daemon tells of these peers is up to a second old.
        wait_until("all went through the tunnel", || peer()["tx_packets"].as_u64() >= Some(sent));
        fragments_pass(&lab);
        nodes.stop();
    }
}

#[test]
fn the_kernel_carries_packets_without_tcx_too_and_a_crash_leaves_nothing() {
    let Some(lab) = up(Topology::Routed) else { return };
    for (carry, arguments) in [("encapsulate", &["--test-without", "tcx"][..]), ("rewrite", &[])] {
        let settings = Settings { carry, arguments, kernel: "required", rotation: 1, ..Settings::default() };
        let nodes = ClassicNodes::start(&lab, &settings).expect("both ends");
        let options = PingOptions { count: 5_000, interval: None, ..PingOptions::default() };
        let pings = traffic::ping(&lab, options).expect("a summary");
        assert_eq!((pings.sent, pings.received), (5_000, 5_000), "{}", nodes.log(Site::A));
        // Where the program has them, they do not reach the device's other end.
        let counted = |gateway: Node| {
            let statistics = ["ip", "-j", "-s", "link", "show", "dev", "classic-c"];
            let output = lab.exec(gateway, statistics).expect("counts").stdout;
            let counts: serde_json::Value = serde_json::from_slice(&output).expect("JSON");
            counts[0]["stats64"]["tx"]["packets"].as_u64().expect("a number")
        };
        assert!(counted(Node::GatewayA) < 500 && counted(Node::GatewayB) < 500);
        for id in nodes.ids() {
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(id as i32), nix::sys::signal::SIGKILL)
                .expect("a process");
        }
        std::thread::sleep(Duration::from_millis(500));
        for gateway in [Node::GatewayA, Node::GatewayB] {
            let links = lab.exec(gateway, ["ip", "link"]).expect("ip").stdout;
            assert!(!String::from_utf8_lossy(&links).contains("classic-c"));
            for interface in ["in", "ex"] {
                let disciplines = lab.exec(gateway, ["tc", "qdisc", "show", "dev", interface]).expect("tc");
                assert!(!String::from_utf8_lossy(&disciplines.stdout).contains("clsact"));
            }
        }
        // Without it, the hosts reach each other as before.
        lab.wait_connected(Duration::from_secs(10)).expect("hosts that reach each other");
    }
}

/// Packets that no program in the kernel takes.
fn fragments_pass(lab: &Lab) {
    let host = Site::B.host().to_string();
    let run = |words: &[&str]| {
        let output = lab.exec(Node::HostA, words).expect(words[0]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let ping = |count| run(&["ping", "-n", "-q", "-i", "0.05", "-c", count, "-s", "4000", &host]);
    let counters = || run(&[&["cat"], &echoes::FILES[..]].concat());
    // The first ones learn what fits.
    ping("10");
    let before = Echoes::parse(&counters());
    let text = ping("40");
    assert!(before.all_answered(&text, counters), "{text}");
}

fn rewriting() -> Settings {
    Settings { carry: "rewrite", kernel: "required", rotation: 1, ..Settings::default() }
}

#[test]
fn replaced_addresses_lose_nothing_and_show_no_true_one() {
    for topology in [Topology::Routed, Topology::Switched] {
        let Some(lab) = up(topology) else { return };
        let nodes = ClassicNodes::start(&lab, &rewriting()).expect("both ends");
        let recording = Recording::start(&lab, Node::Router, "a").expect("a recording");
        let options = PingOptions { count: floods(), interval: None, ..PingOptions::default() };
        let pings = Pings::start(&lab, options).expect("pings");
        let pings = pings.finish(Duration::from_secs(120)).expect("a summary");
        assert_eq!(
            (pings.sent, pings.received, pings.duplicates, pings.errors),
            (floods().into(), floods().into(), 0, 0)
        );
        for from in [Site::A, Site::B] {
            let report = scene::tcp(&lab, from, 2);
            eprintln!("{topology:?}, from {from:?}: {report:?}");
            assert!(report.bits_per_second > 1e7, "{report:?}");
        }
        fragments_pass(&lab);
        refused_by_the_other_host(&lab);
        let packets = recording.finish().expect("packets");
        for site in [Site::A, Site::B] {
            let std::net::IpAddr::V6(host) = site.host() else { unreachable!("an IPv6 address") };
            assert_eq!(
                packets_containing(&packets, &host.octets()),
                0,
                "{host} of {} packets",
                packets.len()
            );
            assert!(packets.iter().all(|packet| packet.source != host && packet.destination != host));
        }
        assert!(packets.len() > 2 * floods() as usize, "{} packets", packets.len());
        std::thread::sleep(Duration::from_millis(1_500));
        let status = nodes.show(&lab, Site::A).expect("a status");
        assert!(status["peers"][0]["tx_packets"].as_u64() >= Some(floods().into()), "{status}");
        nodes.stop();
    }
}

/// An error quotes what the host here has sent, with its own addresses.
fn refused_by_the_other_host(lab: &Lab) {
    let program = "import socket, sys, time\n\
                   s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\n\
                   s.connect((sys.argv[1], 9))\n\
                   s.send(b'x')\n\
                   time.sleep(0.5)\n\
                   s.send(b'x')";
    let host = Site::B.host().to_string();
    let output = lab.exec(Node::HostA, ["python3", "-c", program, &host]).expect("python3");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("ConnectionRefusedError"), "{text}");
}

#[test]
fn replaced_addresses_leave_senders_their_path_mtu() {
    let Some(builder) = scene::lab() else { return };
    let lab = builder.tunnel(false).middle_mtu(1400).build().expect("a lab");
    lab.wait_connected(Duration::from_secs(30)).expect("hosts that reach each other");
    let nodes = ClassicNodes::start(&lab, &rewriting()).expect("both ends");
    let host = Site::B.host().to_string();
    let ping = ["ping", "-n", "-M", "do", "-i", "0.2", "-c", "3", "-s", "1452", &host];
    let output = lab.exec(Node::HostA, ping).expect("ping");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(text.contains("mtu=1400") || text.contains("mtu: 1400"), "{text}");
    for from in [Site::A, Site::B] {
        assert!(scene::tcp(&lab, from, 1).bits_per_second > 1e7);
    }
    nodes.stop();
}

#[test]
fn what_a_narrow_path_carries_is_remembered() {
    let Some(builder) = scene::lab() else { return };
    let lab = builder.tunnel(false).middle_mtu(1400).build().expect("a lab");
    lab.wait_connected(Duration::from_secs(30)).expect("hosts that reach each other");
    let encrypted = Settings { cipher: "aes-256-cbc".into(), rotation: 1, ..Settings::default() };
    let in_kernel = Settings { kernel: "required", rotation: 1, ..Settings::default() };
    let silence = "table inet silence { chain output { type filter hook output priority 0; \
                   icmpv6 type packet-too-big drop; }; }\n";
    for (settings, fits) in [(encrypted, 1376), (in_kernel, 1384), (rewriting(), 1400)] {
        let nodes = ClassicNodes::start(&lab, &settings).expect("both ends");
        let told = |when: &str| {
            scene::run(&lab, Node::HostA, &["ip", "-6", "route", "flush", "cache"]);
            let host = Site::B.host().to_string();
            let ping = ["ping", "-n", "-M", "do", "-i", "0.2", "-W", "1", "-c", "3", "-s", "1400", &host];
            let text = scene::run(&lab, Node::HostA, &ping);
            let mtu = [format!("mtu={fits}"), format!("mtu: {fits}")];
            assert!(mtu.iter().any(|mtu| text.contains(mtu)), "{when}: {text}{}", nodes.log(Site::A));
        };
        told("by a router");
        for router in [Node::Router, Node::RouterB] {
            lab.namespace(router).nft(silence).expect("a filter");
        }
        told("by the gateway, which knows it now");
        for router in [Node::Router, Node::RouterB] {
            lab.namespace(router).nft("delete table inet silence\n").expect("no filter");
        }
        std::thread::sleep(Duration::from_millis(1_500));
        let status = nodes.show(&lab, Site::A).expect("a status");
        assert_eq!(status["peers"][0]["path_mtu"], 1400, "{status}");
        nodes.stop();
    }
}

#[test]
fn tcp_finds_its_segment_size() {
    let Some(lab) = up(Topology::Routed) else { return };
    for (cipher, kernel) in
        [("none", "off"), ("none", "required"), ("aes-256-cbc", "off"), ("aes-128-cbc", "off")]
    {
        let settings = Settings { cipher: cipher.into(), rotation: 1, kernel, ..Settings::default() };
        let nodes = ClassicNodes::start(&lab, &settings).expect("both ends");
        for from in [Site::A, Site::B] {
            let report = scene::tcp(&lab, from, 2);
            eprintln!("{cipher}, kernel {kernel}, from {from:?}: {report:?}");
            assert!(report.bits_per_second > 1e6, "{cipher}: {report:?}");
        }
        let status = nodes.show(&lab, Site::B).expect("a status");
        eprintln!("{cipher}: {}", status["drops"]);
        nodes.stop();
    }
}
