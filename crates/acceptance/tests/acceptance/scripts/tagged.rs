//! VLAN tags that scripts read, take and put, at a router whose client speaks from within a VLAN. No kernel device for VLANs is
//! needed: a packet socket sends and receives the tagged frames.

use std::time::{Duration, Instant};

use linux::netlink::Netlink;
use linux::packet::{PacketOptions, PacketSocket};
use wire::checksum::Sum;

use super::scene::{CLIENT, ROUTER, ScriptScene, example_path};

/// The client's interface, for frames with tags.
struct Trunk {
    socket: PacketSocket,
    client: [u8; 6],
    router: [u8; 6],
}

impl Trunk {
    fn new(scene: &ScriptScene) -> Self {
        let link = |name: &str| {
            let link = Netlink::open().and_then(|mut netlink| netlink.link_by_name(name));
            link.expect("links").expect("an interface")
        };
        let router = ScriptScene::within(&scene.router, || link("lan")).mac.expect("an address").0;
        let (socket, client) = ScriptScene::within(&scene.client, || {
            let link = link("eth0");
            let socket = PacketSocket::open(link.index, &PacketOptions::default()).expect("a socket");
            (socket, link.mac.expect("an address").0)
        });
        Self { socket, client, router }
    }

    /// Sends an echo request to the router in a frame with these tags.
    fn ping(&self, tags: &[u8], number: u16) {
        let address = |text: &str| text.parse::<std::net::Ipv6Addr>().expect("an address").octets();
        let [id, sequence] = [[0x51, 0xde], number.to_be_bytes()];
        let mut message = [&[128, 0, 0, 0][..], &id, &sequence, b"tagged"].concat();
        let pseudo =
            [&address(CLIENT)[..], &address(ROUTER), &[0, 0, 0, message.len() as u8, 0, 0, 0, 58], &message];
        let checksum = Sum::of(&pseudo.concat()).checksum();
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
        let header =
            [&[0x60, 0, 0, 0, 0, message.len() as u8, 58, 64][..], &address(CLIENT), &address(ROUTER)];
        let link = [&self.router[..], &self.client, tags, &[0x86, 0xdd]];
        let frame = [link.concat(), header.concat(), message].concat();
        assert!(self.socket.send(&frame).expect("it is sent"));
    }

    /// Whether the request of this number is answered.
    fn is_answered(&self, number: u16, patience: Duration) -> bool {
        let mut buffer = [0; 2000];
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            match self.socket.recv(&mut buffer).expect("frames") {
                // Behind the link header, from which the kernel has taken the tag if there was one.
                Some(length) if length >= 62 && buffer[54] == 129 => {
                    if buffer[60..62] == number.to_be_bytes() {
                        return true;
                    }
                }
                Some(_) => {}
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        false
    }
}

#[test]
fn a_vlan_is_taken_off_and_others_do_not_come_in() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let trunk = Trunk::new(&scene);
    let file = example_path("vlan_access.lua");
    let (short, long) = (Duration::from_millis(300), Duration::from_secs(10));
    // The router has no device for the VLAN.
    trunk.ping(&[0x81, 0, 0, 7], 1);
    assert!(!trunk.is_answered(1, short));
    scene.load(&file, "--hook ingress --dev lan --function strip --tier", &["kernel"]);
    trunk.ping(&[0x81, 0, 0x60, 7], 2);
    assert!(trunk.is_answered(2, long), "{}", scene.sidestep(&["list"]));
    trunk.ping(&[0x81, 0, 0, 8], 3);
    trunk.ping(&[], 4);
    assert!(!trunk.is_answered(3, short) && !trunk.is_answered(4, short));
    scene.has_served(&["kernel"]);
    let refusal = scene.refusal(&[
        "load",
        &file,
        "--hook",
        "ingress",
        "--dev",
        "lan",
        "--function",
        "strip",
        "--tier",
        "user",
    ]);
    assert!(
        refusal.contains("'vlan_id': Lua gets packets without their link header and VLAN tag"),
        "{refusal}"
    );
    scene.sidestep(&["unload", &file]);
    trunk.ping(&[0x81, 0, 0, 7], 5);
    assert!(!trunk.is_answered(5, short));
}

#[test]
fn what_leaves_gets_a_tag_that_the_other_end_sees() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let trunk = Trunk::new(&scene);
    let seen = "add table netdev tags\nadd counter netdev tags seven\nadd counter netdev tags others\n\
                add chain netdev tags c { type filter hook ingress device eth0 priority 0; }\n\
                add rule netdev tags c vlan id 7 counter name seven\n\
                add rule netdev tags c vlan id != 7 counter name others\n";
    scene.client.nft(seen).expect("counters");
    let counts = || -> Vec<u64> {
        let (_, text) = scene.run(&scene.client, &["nft", "list", "counters", "table", "netdev", "tags"]);
        text.split("packets ").skip(1).filter_map(|text| text.split(' ').next()?.parse().ok()).collect()
    };
    let file = example_path("vlan_access.lua");
    for function in ["strip", "tag"] {
        let hook = if function == "strip" { "ingress" } else { "egress" };
        scene.load(&file, &format!("--hook {hook} --dev lan --function {function} --tier"), &["kernel"]);
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut number = 10;
    while counts()[0] == 0 && Instant::now() < deadline {
        trunk.ping(&[0x81, 0, 0, 7], number);
        trunk.is_answered(number, Duration::from_millis(300));
        number += 1;
    }
    let counted = counts();
    assert!(counted[0] > 0 && counted[1] == 0, "{counted:?}: {}", scene.sidestep(&["list"]));
    scene.has_served(&["kernel"]);
    scene.sidestep(&["unload", &file]);
}

/// Frames of a trunk are counted by the tag that the kernel has taken out of them.
#[test]
fn vlans_are_counted_by_their_tags() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let trunk = Trunk::new(&scene);
    let file = example_path("vlans_counted.lua");
    scene.load(&file, "--hook ingress --dev lan --tier", &["kernel"]);
    for number in 0..3 {
        trunk.ping(&[0x81, 0, 0, 7], number);
    }
    let count = || scene.try_sidestep(&["table", "get", "vlan frames", "7"]).stdout;
    let deadline = Instant::now() + Duration::from_secs(10);
    while count() != b"3\n" && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(String::from_utf8_lossy(&count()), "3\n");
    scene.sidestep(&["unload", &file]);
}

/// Such a tag the kernel takes off behind the script, and it receives what the other one leaves.
#[test]
fn no_packet_hides_behind_a_tag_of_vlan_0_and_another() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let trunk = Trunk::new(&scene);
    // Not every kernel has them; what is in no VLAN at all is received by all.
    let has_vlans =
        scene.router.ip("link add link lan name lan.5 type vlan id 5\nlink set lan.5 up\n").is_ok();
    let drop = "function process_packet(p)
  local ip = p:data(packet_eth):data(packet_ip6)
  local icmp = ip and ip:data(packet_icmp6)
  return icmp and icmp:type():get() == 128 and NF_DROP or NF_ACCEPT
end
";
    let file = scene.script("drop.lua", drop);
    let hiding: [&[u8]; 3] = [
        &[0x81, 0, 0, 0, 0x81, 0, 0, 0],
        &[0x88, 0xa8, 0xe0, 0, 0x81, 0, 0, 5],
        &[0x81, 0, 0, 5, 0x81, 0, 0xe0, 0],
    ];
    let long = Duration::from_secs(10);
    let errors = || scene.only_status()["errors"].as_u64().expect("a number");
    for (number, tags) in (100..).zip(hiding).take(if has_vlans { 3 } else { 1 }) {
        trunk.ping(tags, number);
        assert!(trunk.is_answered(number, long), "without a script: {tags:x?}");
    }
    let load = "--hook ingress --dev lan --tier kernel";
    for (at, options) in (2_u16..).zip([load.to_owned(), format!("{load} --xdp")]) {
        scene.load(&file, &options, &[]);
        // Two VLANs deep is another interface's.
        trunk.ping(&[0x81, 0, 0, 5, 0x81, 0, 0, 6], 1);
        let numbers: Vec<u16> = (100 * at..).take(hiding.len()).collect();
        for (number, tags) in numbers.iter().zip(hiding) {
            trunk.ping(tags, *number);
        }
        let deadline = Instant::now() + long;
        while errors() < 3 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        let status = scene.only_status();
        assert_eq!(status["errors"], 3, "{options}: {status}");
        assert!(!trunk.is_answered(numbers[2], Duration::from_millis(100)), "{options}");
        assert!(status["last_error"].to_string().contains("one is of VLAN 0"), "{options}: {status}");
        scene.sidestep(&["unload", &file]);
    }
    scene.load(&file, load, &["--failure", "accept"]);
    trunk.ping(hiding[0], 400);
    assert!(trunk.is_answered(400, long), "{}", scene.only_status());
    scene.sidestep(&["unload", &file]);
}
