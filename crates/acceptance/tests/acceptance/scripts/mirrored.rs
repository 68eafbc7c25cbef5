//! Copies of packets that scripts send out through another interface, in both tiers, while that comes and goes.

use std::time::{Duration, Instant};

use linux::netlink::Netlink;
use linux::packet::{PacketOptions, PacketSocket};

use super::scene::{CLIENT, SERVER, ScriptScene};

const LINK: usize = 14;
/// Octets that the echoes of a test have, and nobody else's.
const PATTERN: [u8; 4] = [0xab; 4];

/// The far end of a monitor port.
struct Monitor<'a> {
    scene: &'a ScriptScene,
    socket: PacketSocket,
}

impl<'a> Monitor<'a> {
    /// Makes the interface `mon0` of the router, whose other end is at the server.
    fn new(scene: &'a ScriptScene) -> Self {
        let server = scene.server.name();
        let words =
            format!("link add name mon0 type veth peer name tap0 netns {server}\nlink set dev mon0 up\n");
        scene.router.ip(&words).expect("a port");
        // It hears what comes and says nothing: no IPv6.
        scene.server.sysctl(&[("ipv6/conf/tap0/disable_ipv6", 1)]).expect("sysctl");
        scene.router.sysctl(&[("ipv6/conf/mon0/disable_ipv6", 1)]).expect("sysctl");
        scene.server.ip("link set dev tap0 up\n").expect("a port");
        let socket = ScriptScene::within(&scene.server, || {
            let link = Netlink::open().and_then(|mut netlink| netlink.link_by_name("tap0"));
            let index = link.expect("links").expect("a port").index;
            let options = PacketOptions { promiscuous: true, ..PacketOptions::default() };
            PacketSocket::open(index, &options).expect("a socket")
        });
        Self { scene, socket }
    }

    /// Echo requests and answers of the test that came as copies since the last time, as soon as there are so many.
    fn frames(&self, wanted: usize) -> Vec<Vec<u8>> {
        let (mut frames, mut buffer) = (Vec::new(), vec![0; 1 << 17]);
        let deadline = Instant::now() + Duration::from_secs(10);
        // What would be too many has the time to come, too.
        let mut quiet = Instant::now();
        while Instant::now() < deadline
            && (frames.len() < wanted || quiet.elapsed() < Duration::from_millis(200))
        {
            match self.socket.recv(&mut buffer).expect("frames") {
                Some(length) => {
                    let frame = &buffer[..length];
                    if frame.get(LINK + 6) == Some(&58) && frame.ends_with(&PATTERN) {
                        frames.push(frame.to_vec());
                        quiet = Instant::now();
                    }
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        frames
    }

    fn remove(self) {
        self.scene.router.ip("link del dev mon0\n").expect("it goes");
    }
}

fn ping(scene: &ScriptScene, count: &str) {
    let summary = scene.ping(&scene.client, SERVER, &["-c", count, "-i", "0.02", "-p", "ab"]);
    assert!(summary.ends_with(" 0%"), "{summary}");
}

/// Waits until the script has said something.
fn said(scene: &ScriptScene, what: &str) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !scene.sidestep(&["logs"]).contains(what) {
        assert!(Instant::now() < deadline, "{what}: {}", scene.sidestep(&["logs"]));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn copies_go_to_the_interface_that_has_the_name_and_packets_go_on_without_one() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let text = "function process_packet(p)\n  nf.mirror(p, \"mon0\")\n  local ip = p:data(packet_eth):data(packet_ip6)\n  \
                ip:hop_limit():set(17)\n  nf.mirror(p, \"mon0\")\n  return NF_ACCEPT\nend\n";
    let file = scene.script("mirror.lua", text);
    for tier in ["kernel", "user"] {
        scene.load(&file, "--hook ingress --dev lan --match", &["icmpv6 type 128", "--tier", tier]);
        ping(&scene, "2");
        said(&scene, "nf.mirror: there is no interface mon0: copies go nowhere until there is one");

        let mut inner = Vec::new();
        // The second one has another number, and the same name.
        for _ in 0..2 {
            let monitor = Monitor::new(&scene);
            if tier == "kernel" {
                said(&scene, "copies go to mon0 again");
            }
            ping(&scene, "3");
            let frames = monitor.frames(6);
            assert_eq!(frames.len(), 6, "{tier}");
            for (at, frame) in frames.iter().enumerate() {
                // The packet as it was at that moment, for a station that is none of this link.
                let packet = &frame[LINK..];
                assert_eq!((packet[0] >> 4, packet[7]), (6, if at % 2 == 0 { 64 } else { 17 }), "{tier}");
                let client: std::net::Ipv6Addr = CLIENT.parse().expect("an address");
                assert_eq!((&packet[8..24], frame[0] & 1), (&client.octets()[..], 0), "{tier}");
                inner.push(packet.len());
            }
            // While it is down, there are none.
            scene.router.ip("link set dev mon0 down\n").expect("it goes down");
            ping(&scene, "2");
            scene.router.ip("link set dev mon0 up\n").expect("it comes up");
            assert_eq!(monitor.frames(0).len(), 0, "{tier}");
            monitor.remove();
            ping(&scene, "2");
        }
        assert_eq!(inner, vec![inner[0]; 12], "{tier}");
        scene.has_served(&[tier]);
        scene.sidestep(&["unload", &file]);
    }
}

/// The copy leaves where the script is: at the same interface as the packet.
#[test]
fn no_script_sees_a_copy_and_none_goes_round() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = scene.script(
        "round.lua",
        "local seen = nf.counter(\"seen\")\nfunction process_packet(p)\n  seen:add(1)\n  nf.mirror(p, \"wan\")\n  return NF_ACCEPT\nend\n",
    );
    for tier in ["kernel", "user"] {
        scene.load(&file, "--hook egress --dev wan --match", &["icmpv6 type 128", "--tier", tier]);
        let before = scene.echoes(&scene.server);
        ping(&scene, "3");
        assert_eq!(scene.sidestep(&["table", "get", "seen"]).trim(), "3", "{tier}");
        assert_ne!(scene.echoes(&scene.server), before);
        scene.sidestep(&["unload", &file]);
    }
}

/// A GSO packet is copied whole or as its segments: all of its octets come.
#[test]
fn copies_of_gso_packets_have_all_octets() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = scene.script(
        "gso.lua",
        "local octets = nf.counter(\"octets\")\nfunction process_packet(p)\n  local ip = p:data(packet_eth):data(packet_ip6)\n  \
         local tcp = ip:data(packet_tcp)\n  octets:add(#tcp:data())\n  nf.mirror(p, \"mon0\")\n  return NF_ACCEPT\nend\n",
    );
    for tier in ["kernel", "user"] {
        let monitor = Monitor::new(&scene);
        scene.server
            .nft("add table netdev count\nadd counter netdev count octets\nadd chain netdev count c { type filter hook ingress device tap0 priority 0; }\nadd rule netdev count c meta l4proto tcp counter name octets\n")
            .expect("a counter");
        scene.load(&file, "--hook ingress --dev lan --match", &["tcp dport 5201", "--tier", tier]);
        assert!(scene.tcp(SERVER, 1) > 0.01, "{tier}");
        let octets: u64 = scene.sidestep(&["table", "get", "octets"]).trim().parse().expect("a number");
        let (_, counted) = scene.run(&scene.server, &["nft", "list", "counters", "table", "netdev", "count"]);
        let copied: u64 = counted
            .split("bytes ")
            .nth(1)
            .and_then(|text| text.split_whitespace().next()?.parse().ok())
            .expect("a number");
        // Headers come beside them; a queue that is full loses some.
        assert!(octets > 1_000_000 && copied > octets / 2, "{tier}: {octets} octets, {copied} copied");
        scene.server.nft("delete table netdev count\n").expect("a counter");
        scene.sidestep(&["unload", &file]);
        monitor.remove();
    }
}
