//! What a transparent gateway does on the link besides carrying the tunnel.

use std::time::Duration;

use lab::edited::Edited;
use lab::patience::wait_until;
use lab::{Profile, Topology};
use linux::packet::{PacketOptions, PacketSocket};

use super::frames::{Capture, holds};
use super::scene::{MACS, THIRD, TransparentScene};

/// Without its MAC in the configuration a host is known with its first solicitation; the gateway remembers it, also when
/// it is killed, and what it left in the kernel is taken back by the next start.
#[test]
fn hosts_are_learned_and_remembered() {
    let Some(mut scene) = TransparentScene::new(Topology::Routed, Profile::MovingTarget) else { return };
    let configurations = scene.configurations().map(|text| {
        let (before, rest) = text.split_once(", mac = \"").expect("a MAC");
        let (_, after) = rest.split_once('"').expect("its end");
        format!("{before}{after}")
    });
    scene.start_gateways_with(&configurations);
    scene.boot_hosts();
    assert!(scene.logs().contains("protected host"), "{}", scene.logs());
    scene.reload(0);
    scene.wait_connected();
    scene.kill_gateway(0);
    scene.kill_gateway(1);
    let reached = |scene: &TransparentScene| {
        scene.run("ta", &["ping", "-c1", "-W1", THIRD[1]]).contains(" 0% packet loss")
    };
    // Before Linux 6.6 the programs at the interfaces stay: strangers pass then, and protected hosts still do not.
    let stays = scene.run("ga", &["tc", "filter", "show", "dev", "ex", "ingress"]).contains("bpf");
    assert_eq!(reached(&scene), stays, "it fails closed");
    assert!(scene.run("ha", &["ping", "-c2", "-W1", THIRD[1]]).contains("100% packet loss"));
    scene.start_gateways_with(&configurations);
    let log = scene.logs();
    assert!(log.contains("did not end cleanly") && !log.contains("protected host"), "{log}");
    wait_until("third hosts reach each other", || reached(&scene));
    scene.wait_connected();
    scene.stop_gateways();
    let parameter = |interface, name| {
        let path = format!("/proc/sys/net/ipv6/conf/{interface}/{name}");
        scene.run("ga", &["cat", &path]).trim().to_owned()
    };
    assert_eq!(parameter("in", "disable_ipv6"), "0");
    assert_eq!(parameter("ex", "autoconf"), "1");
}

/// Solicitations from outside for a protected address are answered by the gateway, and neither they nor packets for it
/// come in; what the host says to others does not go out.
#[test]
fn a_protected_host_is_out_of_reach() {
    let Some(mut scene) = TransparentScene::new(Topology::Routed, Profile::Classic) else { return };
    scene.start_gateways();
    scene.boot_hosts();
    let host = scene.host(0);
    let (public, private) = (Capture::start(&scene, "xa", "g"), Capture::start(&scene, "sa", "h"));
    let asked = scene.run("to", &["ndisc6", "-1", "-r", "1", &host, "eth"]);
    let gateway = scene.mac("ga", "ex");
    assert!(asked.to_lowercase().contains(&gateway), "{asked}: {gateway}");
    assert!(scene.run("to", &["ping", "-c2", "-W1", &host]).contains("100% packet loss"));
    assert!(scene.run("ha", &["ping", "-c2", "-W1", THIRD[1]]).contains("100% packet loss"));
    assert!(scene.run("ha", &["ping", "-c2", "-W1", "2001:db8:a::1"]).contains("100% packet loss"));
    // On its own side it is one of the hosts.
    assert!(scene.run("ha", &["ping", "-c2", "-W1", THIRD[0]]).contains(" 0% packet loss"));
    let (public, private) = (public.finish(), private.finish());
    assert!(public.iter().all(|frame| !holds(frame, &MACS[0])));
    let outside = scene.mac("to", "eth");
    let outside: Vec<u8> =
        outside.split(':').map(|byte| u8::from_str_radix(byte, 16).expect("a byte")).collect();
    let host: std::net::Ipv6Addr = host.parse().expect("an address");
    let reached = |frame: &&Vec<u8>| frame[6..12] == outside && holds(frame, &host.octets());
    assert_eq!(private.iter().find(reached), None);
}

/// Where others pass, a protected host speaks with them as if nothing were there, and with its peer through the tunnel.
#[test]
fn others_may_pass() {
    let Some(mut scene) = TransparentScene::new(Topology::Switched, Profile::MovingTarget) else { return };
    let pass = |text: String| text.edited("internal =", "others = \"pass\"\ninternal =");
    let configurations = scene.configurations().map(pass);
    scene.start_gateways_with(&configurations);
    scene.boot_hosts();
    let host = scene.host(0);
    let public = Capture::start(&scene, "xa", "g");
    for (from, to) in [("ha", THIRD[1]), ("to", &host), ("ha", "2001:db8:a::1"), ("ha", &scene.host(1))] {
        let report = scene.run(from, &["ping", "-c10", "-i", "0.1", "-W1", to]);
        assert!(report.contains(" 0% packet loss"), "{from} {to}: {report}");
    }
    let public = public.finish();
    let remote: std::net::Ipv6Addr = scene.host(1).parse().expect("an address");
    assert!(public.iter().all(|frame| !holds(frame, &remote.octets())), "the tunnel is not used");
}

/// What is no business of the gateway's passes as it is, in both directions: whatever its protocol, tagged or not, as
/// long as the link carries it. Of a protected host not even that.
#[test]
fn any_frame_of_others_passes_unchanged() {
    let Some(mut scene) = TransparentScene::new(Topology::Routed, Profile::MovingTarget) else { return };
    scene.start_gateways();
    let (public, private) = (Capture::start(&scene, "xa", "g"), Capture::start(&scene, "sa", "g"));
    let frame = |source: [u8; 6], rest: &[u8], length: usize| {
        let mut frame = [&[0xff; 6][..], &source, rest].concat();
        frame.resize(length, 0x5a);
        frame
    };
    let address = |text: &str| text.parse::<std::net::Ipv6Addr>().expect("an address").octets();
    let (from, to) = (address("2001:db8:77::1"), address("ff02::77"));
    let no_next_header = [&[0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 59, 1][..], &from, &to].concat();
    let strange = |source| {
        [
            // An EtherType for experiments, IPv6 without content, a VLAN tag (and another), ARP, 802.3.
            frame(source, &[0x88, 0xb5], 1_514),
            frame(source, &no_next_header, 54),
            frame(source, &[0x81, 0, 0, 7, 0x86, 0xdd, 0x60], 200),
            frame(source, &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 8, 0x08, 0], 300),
            frame(source, &[0x08, 0x06], 60),
            frame(source, &[0, 50, 0xaa, 0xaa, 3], 64),
        ]
    };
    let third = [2, 0, 0, 0, 0, 0x77];
    for (node, source) in [("ta", third), ("ta", MACS[0]), ("to", third)] {
        let send = || {
            let mut netlink = linux::netlink::Netlink::open().expect("netlink");
            let link = netlink.link_by_name("eth").expect("an answer").expect("a link");
            let socket = PacketSocket::open(link.index, &PacketOptions::default()).expect("a socket");
            for frame in strange(source) {
                assert!(socket.send(&frame).expect("sent"));
            }
        };
        let namespace = linux::netns::Namespace::open(scene.node(node).name()).expect("the namespace");
        namespace.run(send).expect("in the namespace");
        // Switches learn by the sources: one after the other.
        std::thread::sleep(Duration::from_millis(300));
    }
    let (public, private) = (public.finish(), private.finish());
    for frame in strange(third) {
        let seen = |frames: &[Vec<u8>]| frames.iter().filter(|seen| **seen == frame).count();
        assert_eq!((seen(&public), seen(&private)), (2, 2), "{:02x?}", &frame[..20]);
    }
    assert!(public.iter().all(|frame| !holds(frame, &MACS[0])));
}
