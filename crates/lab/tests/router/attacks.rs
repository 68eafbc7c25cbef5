//! Fragments, extension headers and advertisements of ipv6toolkit and thc-ipv6, from the Internet: nothing of them gets to
//! a host, nor to a port of the gateway. Without the firewall all of it does, or the tools show nothing.

use super::HOME;
use super::scene::{INTERNET, Scene, wait_for, wait_until};

/// Counts what hosts would believe: segments and datagrams, after reassembly, and messages of neighbor discovery and of
/// group membership that have passed a router.
const SEEN: &str = "table ip6 seen {
    chain input {
        type filter hook input priority 10
        ct state established accept
        ip6 saddr fe80::/10 accept
        meta l4proto { tcp, udp } counter
        icmpv6 type { 130-137, 139-153 } counter
    }
}
";

/// Attacks by name; `HOST` is the target, `MAC` the gateway's.
const ATTACKS: [(&str, &str); 15] = [
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
    let Some(mut scene) = Scene::new("ra") else { return };
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
        for target in [("host", host.as_str()), ("gw", gateway.as_str())] {
            through(&scene, target, mac, expected);
        }
        scene.stop();
    }
}

/// Runs all attacks on an address of a node. Each has to get something there, or nothing.
fn through(scene: &Scene, (node, address): (&str, &str), mac: &str, expected: bool) {
    // The gateway is on the link of the attacker: what routers of that link advertise is for it.
    let fits = |name: &str| node == "host" || !name.ends_with("through the router");
    for (name, command) in ATTACKS.into_iter().filter(|(name, _)| fits(name)) {
        // Each begins with nothing known and nothing counted.
        let _ = scene.run(node, &["nft", "delete", "table", "ip6", "seen"]);
        scene.node(node).nft(SEEN).expect("a counter");
        let command = command.replace("HOST", address).replace("MAC", mac).replace("SOURCE", INTERNET);
        // Those of ipv6toolkit send at once, and then wait for answers.
        let patience = if command.starts_with("atk6") { "40" } else { "4" };
        let words: Vec<_> = ["timeout", patience].into_iter().chain(command.split(' ')).collect();
        let said = scene.run("net", &words);
        let seen = scene.run(node, &["nft", "list", "table", "ip6", "seen"]);
        let count: u64 = seen
            .lines()
            .filter_map(|line| line.split("packets ").nth(1)?.split(' ').next()?.parse::<u64>().ok())
            .sum();
        eprintln!("{name} at {node}: {count} ({})", if expected { "no firewall" } else { "firewall" });
        assert_eq!(count > 0, expected, "{name} at {node}: {count} came through\n{said}\n{seen}");
    }
}
