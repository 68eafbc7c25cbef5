//! Another tunnel's packets, which travel on the lanes under a mask: none is lost, none can be told, none leaves without.

use std::net::SocketAddrV6;

use lab::capture::{Packet, Recording};
use lab::observer::packets_containing;
use lab::patience::wait_until;
use lab::process::Process;
use lab::scale::scaled;
use lab::{Builder, Lab, Node, Site, Topology};

use super::scene;

/// What the two ends of the other tunnel do: the one sends numbered messages of all sizes, the other sends them back.
const FLOW: &str = include_str!("mask.py");
/// What each message begins with.
const MARKER: &[u8] = b"\x04\0\0\0whatever is masked";
const PORTS: [u16; 2] = [51_820, 51_821];

/// Says of each packet that passes that it is too big for the next link, once for each lane.
const TOO_BIG: &str = "
import socket, struct
# All protocols: what leaves is seen so, too.
seen = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
seen.bind(('a', 0))
errors = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
lanes = set()
while True:
    frame = seen.recv(2048)
    packet = frame[14:]
    if frame[12:14] != b'\\x86\\xdd' or packet[6] != socket.IPPROTO_UDP or packet[8:44] in lanes:
        continue
    lanes.add(packet[8:44])
    too_big = struct.pack('!BBHI', 2, 0, 0, 1280) + packet[:1200]
    errors.sendto(too_big, (socket.inet_ntop(socket.AF_INET6, packet[8:24]), 0))
";

/// A lab in which both gateways say which flow they mask.
fn up(topology: Topology, arguments: [&[&str]; 2]) -> Option<Lab> {
    let mut lab = build(scene::lab()?.topology(topology).rotation("1s"), arguments);
    lab.start().expect("a tunnel");
    Some(lab)
}

fn build(builder: Builder, arguments: [&[&str]; 2]) -> Lab {
    let mut lab = builder.lanes(3).whole_packets(true).build().expect("a lab");
    for (site, arguments) in [Site::A, Site::B].into_iter().zip(arguments) {
        let gateway = lab.gateway(site);
        let (peer, port) = (["site-b", "site-a"][site as usize], PORTS[site as usize]);
        let wrap = format!("[[wrap]]\npeer = \"{peer}\"\nport = {port}\n");
        gateway.add_table(&wrap).expect("a configuration");
        gateway.set_arguments(arguments);
    }
    lab
}

/// The inner ends, as a gateway has them.
fn ends(lab: &Lab) -> [SocketAddrV6; 2] {
    let text = scene::run(lab, Node::GatewayA, &["sh", "-c", "ip -6 -o address show scope global"]);
    let own = text.split_whitespace().find(|word| word.starts_with("fd") && word.ends_with("/128"));
    let own = own.expect("an inner end").trim_end_matches("/128").parse().expect("an address");
    let text = scene::run(lab, Node::GatewayB, &["sh", "-c", "ip -6 -o address show scope global"]);
    let peer = text.split_whitespace().find(|word| word.starts_with("fd") && word.ends_with("/128"));
    let peer = peer.expect("an inner end").trim_end_matches("/128").parse().expect("an address");
    [SocketAddrV6::new(own, PORTS[0], 0, 0), SocketAddrV6::new(peer, PORTS[1], 0, 0)]
}

/// The other end, which sends back what it gets.
fn answer(lab: &Lab, [one, other]: [SocketAddrV6; 2]) -> Process {
    let words = ["python3", "-c", FLOW, "answer", &other.to_string(), &one.to_string()];
    lab.spawn(Node::GatewayB, words, "answer").expect("the other end")
}

/// Sends so many messages; what is said of them.
fn send(lab: &Lab, ends: [SocketAddrV6; 2], count: u32) -> String {
    send_up_to(lab, ends, count, 1_392)
}

/// Sends so many messages, the largest of which have so many bytes.
fn send_up_to(lab: &Lab, [one, other]: [SocketAddrV6; 2], count: u32, largest: u32) -> String {
    let [count, largest] = [count, largest].map(|number| number.to_string());
    scene::run(
        lab,
        Node::GatewayA,
        &["python3", "-c", FLOW, "send", &one.to_string(), &other.to_string(), &count, &largest],
    )
}

fn masked(lab: &Lab, site: Site) -> u64 {
    scene::number(lab, site, "tx_rewritten_packets")
}

fn wait_masked(lab: &Lab, ends: [SocketAddrV6; 2]) {
    wait_until("packets are masked", || {
        send(lab, ends, 5);
        std::thread::sleep(std::time::Duration::from_millis(500));
        masked(lab, Site::A) > 0 && masked(lab, Site::B) > 0
    });
}

/// Nothing of the flow is in what was recorded.
fn assert_hidden(packets: &[Packet], ends: [SocketAddrV6; 2]) {
    for end in ends {
        assert_eq!(packets_containing(packets, &end.ip().octets()), 0, "{end}");
    }
    assert_eq!(packets_containing(packets, MARKER), 0, "what messages begin with");
    // Neighbor discovery has zeros.
    let datagrams: Vec<Packet> = packets.iter().filter(|packet| packet.is_udp()).cloned().collect();
    assert_eq!(packets_containing(&datagrams, &[0; 16]), 0, "what some messages end in");
}

#[test]
fn nothing_is_lost_over_rotations_and_nothing_of_it_is_seen() {
    for (topology, arguments) in [
        (Topology::Routed, &[][..]),
        (Topology::Switched, &[]),
        (Topology::Routed, &["--test-without", "tcx"]),
    ] {
        let Some(lab) = up(topology, [arguments; 2]) else { return };
        let ends = ends(&lab);
        let _answer = answer(&lab, ends);
        wait_masked(&lab, ends);
        let before = [Site::A, Site::B].map(|site| masked(&lab, site));
        let recording = Recording::start(&lab, Node::Router, "a").expect("a recording");
        let count = scaled(3_000, 30_000);
        // With all that the link takes.
        let said = send_up_to(&lab, ends, count, 1_452);
        eprintln!("{topology:?}: {said}");
        assert!(said.contains(&format!("{count} sent, {count} came back, 0 wrong")), "{said}");
        let packets = recording.finish().expect("packets");
        assert_hidden(&packets, ends);
        // The flow has all of the link; what is encrypted has not, and is not cut in halves for it.
        let host = Site::B.host().to_string();
        // What the gateway itself sends to hosts behind a peer is not from its inner end.
        let text = scene::run(&lab, Node::GatewayA, &["ip", "-6", "route", "get", &host]);
        assert!(text.contains(" src ") && !text.contains(" src fd"), "{text}");
        let text = scene::run(&lab, Node::HostA, &["ping", "-n", "-M", "do", "-c", "2", "-s", "1452", &host]);
        assert!(text.contains("mtu=14") || text.contains("mtu: 14"), "{text}");
        assert!(packets.len() as u32 > 2 * count, "{} packets", packets.len());
        std::thread::sleep(std::time::Duration::from_millis(1_500));
        for (site, before) in [Site::A, Site::B].into_iter().zip(before) {
            let crossed = masked(&lab, site) - before;
            assert!(crossed * 100 >= u64::from(count) * 99, "{crossed} of {count}");
            assert_eq!(scene::peer(&lab, site)["carry"], "mask");
            assert_eq!(scene::peer(&lab, site)["masked"]["local"], ends[site as usize].to_string());
        }
    }
}

/// Neither does a kernel help that puts masked datagrams and the tunnel's own together before anybody tells them apart.
#[test]
fn without_the_kernels_help_at_one_end_the_tunnel_carries_it() {
    for (merges, arguments) in [(false, &["--test-without", "masking"][..]), (true, &[])] {
        let Some(builder) = scene::lab() else { return };
        let mut lab = build(builder.rotation("1s"), [&[], arguments]);
        if merges {
            let words = ["ethtool", "-K", "ex", "gro", "on", "rx-gro-list", "on"];
            scene::run(&lab, Node::GatewayB, &words);
        }
        lab.start().expect("a tunnel");
        let ends = ends(&lab);
        let _answer = answer(&lab, ends);
        wait_until("the other end", || send(&lab, ends, 1).contains("1 came back"));
        let said = send(&lab, ends, 500);
        assert!(said.contains("500 sent, 500 came back, 0 wrong"), "{said}");
        for site in [Site::A, Site::B] {
            assert_eq!((masked(&lab, site), &scene::peer(&lab, site)["carry"]), (0, &"encapsulate".into()));
        }
        let log = std::fs::read_to_string(lab.gateway(Site::B).log()).expect("a log");
        assert!(log.contains("packets cannot be masked here"), "{log}");
        if merges {
            assert!(log.contains("ethtool -K ex rx-gro-list off"), "{log}");
            let program = lab.program().display().to_string();
            let file = lab.gateway(Site::B).configuration().display().to_string();
            let said = scene::run(&lab, Node::GatewayB, &[&program, "check", &file]);
            assert!(said.contains("ethtool -K ex rx-gro-list off"), "{said}");
        }
    }
}

#[test]
fn nothing_leaves_in_clear_when_a_gateway_is_gone_and_a_restart_brings_it_back() {
    let Some(mut lab) = up(Topology::Routed, [&["--test-without", "tcx"][..]; 2]) else { return };
    let ends = ends(&lab);
    let _answer = answer(&lab, ends);
    wait_masked(&lab, ends);
    let recording = Recording::start(&lab, Node::Router, "a").expect("a recording");
    for by_force in [true, false] {
        if by_force {
            lab.gateway(Site::A).kill();
        } else {
            assert!(lab.gateway(Site::A).stop());
        }
        let said = send(&lab, ends, 20);
        assert!(said.contains(" 0 came back"), "{said}");
        lab.gateway(Site::A).start().expect("a gateway");
        let filters = || scene::run(&lab, Node::GatewayA, &["tc", "filter", "show", "dev", "ex", "ingress"]);
        wait_until("one filter, not two", || filters().matches("bpf chain 0 handle").count() <= 1);
        wait_masked(&lab, ends);
    }
    let said = send(&lab, ends, 1_000);
    assert!(said.contains("1000 sent, 1000 came back, 0 wrong"), "{said}");
    assert_hidden(&recording.finish().expect("packets"), ends);
}

#[test]
fn an_error_about_a_lane_changes_nothing_of_it() {
    let Some(builder) = scene::lab() else { return };
    let mut lab = build(builder.rotation("10s"), [&[]; 2]);
    lab.start().expect("a tunnel");
    let ends = ends(&lab);
    let _answer = answer(&lab, ends);
    wait_masked(&lab, ends);
    let _errors = lab.spawn(Node::Router, ["python3", "-c", TOO_BIG], "errors").expect("errors");
    for site in [Site::A, Site::B] {
        wait_until("the kernel believes the errors", || {
            send(&lab, ends, 50);
            scene::run(&lab, site.gateway(), &["ip", "-6", "route", "show", "cache"]).contains("mtu 1280")
        });
    }
    // How packets leave is looked at each second.
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    let before = [Site::A, Site::B].map(|site| masked(&lab, site));
    let count = 3_000;
    let said = send(&lab, ends, count);
    assert!(said.contains(&format!("{count} sent, {count} came back, 0 wrong")), "{said}");
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    for (site, before) in [Site::A, Site::B].into_iter().zip(before) {
        let crossed = masked(&lab, site) - before;
        assert!(crossed * 100 >= u64::from(count) * 99, "{crossed} of {count}");
    }
}

/// Makes a bridge of gateway A's external interface, over the wire, as a bridge's program would.
fn make_external(lab: &Lab) {
    let addresses = match lab.topology() {
        Topology::Switched => {
            "address add 2001:db8:f0::a/64 dev ex nodad\nroute add 2001:db8:a1::/64 dev ex\n\
             route add 2001:db8:b1::/64 dev ex\nroute add default via 2001:db8:f0::1\n"
        }
        _ => "address add 2001:db8:fa::2/64 dev ex nodad\nroute add default via 2001:db8:fa::1\n",
    };
    let link = "link add ex type bridge mcast_snooping 0\nlink set wire master ex\nlink set ex up\n";
    lab.namespace(Node::GatewayA).ip(&format!("{link}{addresses}")).expect("an external interface");
}

#[test]
fn an_external_interface_that_is_made_anew_serves_again() {
    // The last one leads all into the tunnel: sockets are bound to the interface.
    for (topology, arguments, is_bound) in [
        (Topology::Routed, &[][..], false),
        (Topology::Switched, &[], false),
        (Topology::Routed, &["--test-without", "tcx"], false),
        (Topology::Routed, &[], true),
    ] {
        let Some(builder) = scene::lab() else { return };
        let mut lab = build(builder.topology(topology).rotation("1s"), [arguments, &[]]);
        let file = lab.gateway_a().configuration().to_owned();
        if is_bound {
            let text = std::fs::read_to_string(&file).expect("a configuration");
            let text = text.replace("allowed_ips = [", "allowed_ips = [\"::/0\", ");
            std::fs::write(&file, text).expect("a configuration");
        }
        let gateway = lab.namespace(Node::GatewayA);
        gateway.ip("link set ex down\nlink set ex name wire\nlink set wire up\n").expect("a wire");
        make_external(&lab);
        lab.start().expect("a tunnel");
        let ends = ends(&lab);
        let _answer = answer(&lab, ends);
        wait_masked(&lab, ends);

        gateway.ip("link del ex\n").expect("an interface that goes");
        std::thread::sleep(std::time::Duration::from_millis(500));
        make_external(&lab);
        let case = format!("{topology:?} {arguments:?} {is_bound}");
        let passes = || {
            let before = [Site::A, Site::B].map(|site| masked(&lab, site));
            let said = send(&lab, ends, 20);
            std::thread::sleep(std::time::Duration::from_millis(1_500));
            let after = [Site::A, Site::B].map(|site| masked(&lab, site));
            said.contains("20 came back") && (0..2).all(|site| after[site] >= before[site] + 20)
        };
        wait_until(&format!("masked packets pass again, {case}"), passes);
        let said = send(&lab, ends, 500);
        assert!(said.contains("500 sent, 500 came back, 0 wrong"), "{case}: {said}");
        if !arguments.is_empty() {
            let filters = |lab: &Lab| {
                let words = ["tc", "filter", "show", "dev", "ex", "ingress"];
                scene::run(lab, Node::GatewayA, &words).matches("bpf chain 0 handle").count()
            };
            // A program that shapes what comes in takes away all that is there.
            scene::run(&lab, Node::GatewayA, &["tc", "qdisc", "delete", "dev", "ex", "clsact"]);
            assert_eq!(filters(&lab), 0);
            wait_until("the filter is back", || filters(&lab) == 1 && passes());
            lab.gateway_a().kill();
            assert_eq!(filters(&lab), 1, "the kernel keeps it");
            lab.gateway_a().start().expect("a gateway");
            wait_masked(&lab, ends);
            assert_eq!(filters(&lab), 1);
            assert!(lab.gateway_a().stop());
            assert_eq!(filters(&lab), 0);
        }
    }
}
