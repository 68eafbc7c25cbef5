//! Packets that scripts redirect: `uplinks.lua` on a router with two ways to its server, in both tiers.

use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use linux::tun::{self, Offloads, VNET_HEADER};
use wire::checksum::Sum;

use lab::edited::Edited;

use super::scene::{CLIENT, ScriptScene, example_path, has_netfilter_links};

/// Addresses of the server that both ways lead to.
const SERVER: &str = "2001:db8:d::9";
const SERVER_IPV4: &str = "192.0.9.9";

/// The second way, with neighbors known, and what counts packets at the server.
fn scene() -> Option<ScriptScene> {
    let scene = ScriptScene::new(false)?;
    let server = scene.server.name();
    scene
        .router
        .ip(&format!(
            "link add name wan1 type veth peer name eth1 netns {server}\n\
             addr add 2001:db8:e::1/64 dev wan1 nodad\naddr add 192.0.3.2/24 dev wan1\nlink set dev wan1 up\n\
             route add {SERVER} via 2001:db8:f::9\nroute add {SERVER_IPV4} via 192.0.2.1\n\
             route add {SERVER} via 2001:db8:e::9 table 100\nroute add {SERVER_IPV4} via 192.0.3.1 table 100\n\
             rule add oif wan1 table 100\n"
        ))
        .expect("the router");
    let rule = ["ip", "-6", "rule", "add", "oif", "wan1", "table", "100"];
    assert_eq!(scene.run(&scene.router, &rule), (true, String::new()));
    scene
        .server
        .ip(&format!(
            "addr add 2001:db8:e::9/64 dev eth1 nodad\naddr add 192.0.3.1/24 dev eth1\nlink set dev eth1 up\n\
             addr add {SERVER}/128 dev lo\naddr add {SERVER_IPV4}/32 dev lo\n"
        ))
        .expect("the server");
    scene
        .server
        .nft(
            "add table inet count\nadd counter inet count first\nadd counter inet count second\n\
             add chain inet count input { type filter hook input priority 0; }\n\
             add rule inet count input iifname eth0 th dport { 25, 80, 5201 } counter name first\n\
             add rule inet count input iifname eth1 th dport { 25, 80, 5201 } counter name second\n",
        )
        .expect("counters");
    for neighbor in ["2001:db8:e::9", "192.0.3.1"] {
        scene.run(&scene.router, &["ping", "-c", "1", "-W", "5", neighbor]);
    }
    Some(scene)
}

/// Packets that came in at the server's interfaces since the last time.
fn arrived(scene: &ScriptScene) -> [u64; 2] {
    let (_, rules) = scene.run(&scene.server, &["nft", "reset", "counters", "table", "inet", "count"]);
    let counts: Vec<u64> =
        rules.split("packets ").skip(1).filter_map(|text| text.split(' ').next()?.parse().ok()).collect();
    counts.try_into().unwrap_or_else(|_| panic!("{rules}"))
}

/// The client sends a datagram to a port of the server, at both of its addresses.
fn send(scene: &ScriptScene, port: u16) {
    ScriptScene::within(&scene.client, || {
        for (own, server) in [("::", SERVER), ("0.0.0.0", SERVER_IPV4)] {
            let to = SocketAddr::new(server.parse().expect("an address"), port);
            let socket = UdpSocket::bind((own.parse::<IpAddr>().expect("an address"), 0)).expect("a socket");
            socket.send_to(b"some octets", to).expect("it is sent");
        }
    });
    std::thread::sleep(std::time::Duration::from_millis(300));
}

#[test]
fn the_script_decides_by_which_uplink_packets_leave() {
    let Some(scene) = scene() else { return };
    let file = example_path("uplinks.lua");
    for tier in ["user", "kernel"] {
        scene.load(&file, "--hook ingress --dev lan --tier", &[tier]);
        arrived(&scene);
        send(&scene, 80);
        assert_eq!(arrived(&scene), [2, 0], "{tier}");
        send(&scene, 25);
        assert_eq!(arrived(&scene), [0, 2], "{tier}");
        // GSO packets, whose segments the second uplink makes.
        for server in [SERVER, SERVER_IPV4] {
            assert!(scene.tcp(server, 1) > 0.01, "{tier}");
            let [first, second] = arrived(&scene);
            assert!(first == 0 && second > 100, "{tier}: {first}, {second}");
        }
        scene.has_served(&[tier]);
        scene.sidestep(&["unload", &file]);
    }
    send(&scene, 25);
    assert_eq!(arrived(&scene), [2, 0], "without the script");
}

/// As packets leave, and come again by another way: none goes round for ever.
#[test]
fn what_leaves_is_redirected_once() {
    let Some(scene) = scene() else { return };
    let file = scene.script("to.lua", "function process_packet(p) return p:redirect(\"wan1\") end\n");
    for tier in ["user", "kernel"] {
        for device in ["wan", "wan1"] {
            let options = ["--match", "udp dport 25", "--tier", tier];
            scene.load(&file, &format!("--hook egress --dev {device}"), &options);
        }
        arrived(&scene);
        send(&scene, 25);
        assert_eq!(arrived(&scene), [0, 2], "{tier}");
        scene.sidestep(&["unload", &file]);
    }
}

#[test]
fn packets_without_a_link_header_get_one() {
    let Some(scene) = scene() else { return };
    let file = example_path("uplinks.lua");
    for tier in ["user", "kernel"] {
        ScriptScene::within(&scene.router, || {
            let device = tun::create("t0", 1, Offloads::None).expect("a device");
            scene.router.ip("link set dev t0 up\n").expect("it goes up");
            scene.load(&file, "--hook ingress --dev t0 --tier", &[tier]);
            arrived(&scene);
            let packet = datagram(CLIENT, SERVER, 25);
            device.queues[0]
                .write(&[IoSlice::new(&[0; VNET_HEADER]), IoSlice::new(&packet)])
                .expect("a packet");
            std::thread::sleep(std::time::Duration::from_millis(300));
            assert_eq!(arrived(&scene), [0, 1], "{tier}");
            scene.has_served(&[tier]);
            scene.sidestep(&["unload", &file]);
        });
    }
}

/// A UDP datagram of IPv6.
fn datagram(from: &str, to: &str, port: u16) -> Vec<u8> {
    let address = |text: &str| text.parse::<std::net::Ipv6Addr>().expect("an address").octets();
    let mut packet = [&[0x60, 0, 0, 0, 0, 12, 17, 64], &address(from)[..], &address(to)].concat();
    packet.extend([0x10, 0]);
    packet.extend(port.to_be_bytes());
    packet.extend([0, 12, 0, 0, 1, 2, 3, 4]);
    let sum = Sum::of(&packet[8..]) + Sum::word(12) + Sum::word(17);
    packet[46..48].copy_from_slice(&sum.udp_checksum().to_be_bytes());
    packet
}

#[test]
fn an_interface_that_is_not_there_is_told_with_its_line() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let text = "function process_packet(p)\n  return p:redirect(\"wan9\")\nend\n";
    let file = scene.script("gone.lua", text);
    let load = ["load", &file, "--hook", "ingress", "--dev", "lan", "--match", "icmpv6 type 128"];
    let refused = scene.refusal(&[&load[..], &["--tier", "kernel"]].concat());
    let why = "there is no interface wan9: there are lo, lan, wan";
    assert!(refused.contains(&format!("line 2: {why}")), "{refused}");
    scene.sidestep(&load);
    assert!(scene.ping(&scene.client, super::scene::SERVER, &["-c", "1"]).ends_with(" 100%"));
    let status = scene.status(1);
    let message = status["last_error"]["message"].as_str().expect("a message");
    assert!(message.contains("gone.lua:2: redirect: ") && message.contains(why), "{message}");
    if has_netfilter_links() {
        let file = scene.script("there.lua", &text.edited("wan9", "wan"));
        let refused = scene.refusal(&["load", &file, "--hook", "forward", "--tier", "kernel"]);
        assert!(refused.contains("line 2: it redirects the packet"), "{refused}");
    }
}
