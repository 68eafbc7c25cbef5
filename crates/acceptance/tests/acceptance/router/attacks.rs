//! Fragments, extension headers and advertisements of ipv6toolkit, thc-ipv6 and scapy, from the Internet: nothing of them
//! gets to a host, nor to a port of the gateway. Without the firewall all of it does, or the tools show nothing.

use std::process::{Child, Stdio};

use lab::patience::{wait_for, wait_until};
use lab::scale::emulated;
use serde_json::Value;

use super::HOME;
use super::scene::{INTERNET, RouterScene};
use crate::hostile::{PYTHON, SWEEP};

/// Counts what hosts would believe: segments and datagrams, after reassembly, and messages of neighbor discovery and of
/// group membership that have passed a router. Mobile IPv6 messages (144 to 147) may pass, as RFC 4890 recommends.
const SEEN: &str = "table ip6 seen {
    chain input {
        type filter hook input priority 10
        ct state established accept
        ip6 saddr fe80::/10 accept
        meta l4proto { tcp, udp } counter
        icmpv6 type { 130-137, 139-143, 148-153 } counter
    }
}
";

/// Attacks by name; `HOST` is the target, `MAC` the gateway's.
const ATTACKS: [(&str, &str); 16] = [
    ("sweep", "PYTHON SWEEP isp0 MAC SOURCE 8080 HOST"),
    ("firewall6, TCP", "atk6-firewall6 isp0 HOST 8080"),
    ("firewall6, UDP", "atk6-firewall6 -u isp0 HOST 8080"),
    ("tcp6", "tcp6 -i isp0 -D MAC -s SOURCE -d HOST -a 8080 -X S"),
    ("tcp6, fragments", "tcp6 -i isp0 -D MAC -s SOURCE -d HOST -a 8080 -X S -y 8"),
    ("tcp6, destination options", "tcp6 -i isp0 -D MAC -s SOURCE -d HOST -a 8080 -X S -u 8 -u 64"),
    ("tcp6, options before fragments", "tcp6 -i isp0 -D MAC -s SOURCE -d HOST -a 8080 -X S -U 16 -y 16"),
    ("tcp6, hop-by-hop options", "tcp6 -i isp0 -D MAC -s SOURCE -d HOST -a 8080 -X S -H 8"),
    ("tcp6, acknowledgment", "tcp6 -i isp0 -D MAC -s SOURCE -d HOST -a 8080 -X A -u 8"),
    ("udp6", "udp6 -i isp0 -D MAC -s SOURCE -d HOST -a 8080 -P 64"),
    ("udp6, fragments", "udp6 -i isp0 -D MAC -s SOURCE -d HOST -a 8080 -P 64 -y 8"),
    ("udp6, options and fragments", "udp6 -i isp0 -D MAC -s SOURCE -d HOST -a 8080 -P 64 -u 16 -y 16"),
    ("ra6, through the router", "ra6 -i isp0 -D MAC -s SOURCE -d HOST -t 1800 -P 2001:db8:bad::/64#LA"),
    ("na6, through the router", "na6 -i isp0 -D MAC -s SOURCE -d HOST -t 2001:db8:1000:1::9 -c -o"),
    ("ns6, through the router", "ns6 -i isp0 -D MAC -s SOURCE -d HOST -t HOST"),
    (
        "rd6, through the router",
        "rd6 -i isp0 -D MAC -s SOURCE -d HOST -r 2001:db8:ffff::9 -t 2001:db8:ffff::8 -n",
    ),
];

#[test]
fn attacks_from_the_internet_get_nothing_through() {
    let Some(mut scene) = RouterScene::new() else { return };
    let without = format!("{}enabled = false\n", *HOME);
    for (configuration, expected) in [(&without, true), (&*HOME, false)] {
        scene.start(configuration);
        let (host, _) = wait_for("an address", || scene.host_address("2001:db8:10"));
        wait_until("the Internet", || scene.answers("host", INTERNET));
        // What has no route to it is not sent: the provider's router finds the gateway.
        wait_until("the way back", || scene.answers("net", &host));
        let gateway = wait_for("an address of the gateway", || scene.address("gw", "wan0", "2001:db8:0:1:"));
        // `wan0@if4 UP fe:… <…>`
        let link = scene.run("gw", &["ip", "-br", "link", "show", "dev", "wan0"]);
        let mac = link.split_whitespace().nth(2).expect("an address");
        let targets = [("host", host.as_str()), ("gw", gateway.as_str())];
        if expected {
            targets.into_iter().for_each(|target| each_gets_through(&scene, target, mac));
        } else {
            none_gets_through(&scene, &targets, mac);
        }
        scene.stop();
    }
}

/// The attacks on an address of a node.
fn attacks(node: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    // The gateway is on the link of the attacker: what routers of that link advertise is for it.
    let of_the_link = node == "gw";
    ATTACKS.into_iter().filter(move |(name, _)| !(of_the_link && name.ends_with("through the router")))
}

fn start(scene: &RouterScene, command: &str, address: &str, mac: &str) -> Child {
    let command = command
        .replace("HOST", address)
        .replace("MAC", mac)
        .replace("SOURCE", INTERNET)
        .replace("PYTHON", PYTHON)
        .replace("SWEEP", SWEEP);
    // Those of ipv6toolkit send at once, and then wait for answers.
    let (long, short) = if emulated() { ("300", "40") } else { ("45", "4") };
    let patience = if command.starts_with("atk6") || command.contains(SWEEP) { long } else { short };
    let mut process = scene.node("net").command("timeout").expect("the namespace");
    process.arg(patience).args(command.split(' ')).stdout(Stdio::null()).stderr(Stdio::null());
    process.spawn().expect("an attack")
}

/// Begins with nothing known and nothing counted.
fn count_anew(scene: &RouterScene, node: &str) {
    let _ = scene.run(node, &["nft", "delete", "table", "ip6", "seen"]);
    scene.node(node).nft(SEEN).expect("a counter");
}

fn counted(scene: &RouterScene, node: &str) -> u64 {
    let seen = scene.run(node, &["nft", "list", "table", "ip6", "seen"]);
    let packets = |line: &str| line.split("packets ").nth(1)?.split(' ').next()?.parse::<u64>().ok();
    seen.lines().filter_map(packets).sum()
}

/// One after the other, each until something is there.
fn each_gets_through(scene: &RouterScene, (node, address): (&str, &str), mac: &str) {
    for (name, command) in attacks(node) {
        count_anew(scene, node);
        let mut attack = start(scene, command, address, mac);
        wait_until(&format!("{name} at {node}, without a firewall"), || counted(scene, node) > 0);
        let _ = attack.kill();
        let _ = attack.wait();
    }
}

/// All at once, to their ends.
fn none_gets_through(scene: &RouterScene, targets: &[(&str, &str)], mac: &str) {
    let sent = || {
        let shown = scene.run("net", &["ip", "-j", "-s", "link", "show", "dev", "isp0"]);
        let links: Value = serde_json::from_str(&shown).expect("JSON");
        links[0]["stats64"]["tx"]["packets"].as_u64().expect("a number")
    };
    let before = sent();
    targets.iter().for_each(|(node, _)| count_anew(scene, node));
    let all = targets.iter().flat_map(|(node, address)| {
        attacks(node).map(move |(_, command)| start(scene, command, address, mac))
    });
    for mut attack in all.collect::<Vec<_>>() {
        let _ = attack.wait();
    }
    let sent = sent() - before;
    eprintln!("{sent} packets of {} attacks on {} targets", ATTACKS.len(), targets.len());
    assert!(sent > 5_000, "the sweeps were not sent");
    for (node, _) in targets {
        assert_eq!(
            counted(scene, node),
            0,
            "something came through to {node}: {}",
            scene.run(node, &["nft", "list", "ruleset"])
        );
    }
}
