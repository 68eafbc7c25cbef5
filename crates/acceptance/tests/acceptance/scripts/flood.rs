//! `synflood.lua` against a flood of SYN from sources that are made up, with connections of real ones beside it.

use std::time::Instant;

use super::scene::{SERVER, ScriptScene, example_path, verifies_long_scripts};
use lab::scale::emulated;

/// Begins connections from one made-up address after the other, and forgets them at once: some 4,000 in a second, which is
/// more than the script lets begin, and less than it can look at in Lua.
const FLOOD: &str = r#"
import random, socket, sys, time
for number in range(int(sys.argv[2])):
    if number % 20 == 0:
        time.sleep(0.005)
    flood = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    flood.setblocking(False)
    flood.bind(("2001:db8:bad::%x:%x" % (random.getrandbits(16), random.getrandbits(16)), 0))
    flood.connect_ex((sys.argv[1], 443))
    flood.close()
"#;

#[test]
fn a_flood_does_not_reach_the_server_and_connections_do() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let listener = ["socat", "TCP6-LISTEN:443,fork,reuseaddr,backlog=1024", "SYSTEM:echo welcome"];
    let _server = scene.start(&scene.server, &listener, "server", || scene.listens("tcp", 443));
    // Sources that nobody has: what is sent to them goes nowhere.
    scene.client.ip("addr add fd00::3/64 dev eth0 nodad\n").expect("the client");
    scene.client.sysctl(&[("ipv6/ip_nonlocal_bind", 1)]).expect("sysctl");
    scene.server.ip("route add blackhole 2001:db8:bad::/48\n").expect("the server");
    let arrived = "add table ip6 count\nadd chain ip6 count input { type filter hook input priority 0; }\n\
                   add rule ip6 count input tcp dport 443 tcp flags & (syn | ack) == syn \
                   ip6 saddr 2001:db8:bad::/48 counter\n";
    let file = example_path("synflood.lua");
    let to = format!("TCP6:[{SERVER}]:443,connect-timeout=20");
    // Whether it gets in, and whether it had to ask again.
    let connects = |from: &str| {
        let before = retransmitted(&scene);
        let to = format!("{to},bind=[{from}]");
        assert_eq!(
            scene.run(&scene.client, &["socat", "-u", &to, "-"]),
            (true, "welcome\n".into()),
            "{from}"
        );
        retransmitted(&scene) > before
    };
    let tiers = scene.tiers(&file, "process_packet", "ingress");
    let xdp = verifies_long_scripts().then_some("xdp");
    for tier in tiers.into_iter().chain(xdp) {
        scene.server.nft(arrived).expect("a counter");
        if tier == "user" {
            scene.load(&file, "--hook forward --tier user", &[]);
        } else {
            let more: &[&str] = if tier == "xdp" { &["--xdp"] } else { &["--tier", tier] };
            scene.load(&file, "--hook ingress --dev lan", more);
            scene.load(&file, "--hook ingress --dev wan", more);
        }
        assert!(!connects("fd00::2"), "before the flood");
        let sent: u64 = if emulated() { 3_000 } else { 10_000 };
        let begun = Instant::now();
        let count = sent.to_string();
        let mut flood =
            scene.start(&scene.client, &["python3", "-c", FLOOD, SERVER, &count], "flood", || true);
        let mut connections = 0;
        while flood.ended().is_none() {
            let lost_before = lost_in_queue(&scene);
            let again = connects("fd00::2");
            // It has its share of each second, too. What the kernel had no place for in Lua's queue no script saw.
            let lost = lost_in_queue(&scene) - lost_before;
            assert!(!again || lost > 0, "it is known: {}", scene.sidestep(&["list"]));
            if connections == 0 {
                connects("fd00::3");
            }
            connections += 1;
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        assert!(scene.said("flood").is_empty(), "{}", scene.said("flood"));
        let seconds = begun.elapsed().as_secs();
        let (_, rules) = scene.run(&scene.server, &["nft", "list", "table", "ip6", "count"]);
        let passed: u64 = rules
            .split_once("packets ")
            .and_then(|(_, text)| text.split(' ').next()?.parse().ok())
            .unwrap_or_else(|| panic!("{rules}"));
        eprintln!(
            "{tier} tier: of {sent} SYNs in {seconds} s {passed} arrived; {connections} connections meanwhile"
        );
        assert!(connections > 0 && passed <= 1000 * (seconds + 2), "{passed} arrived in {seconds} s");
        scene.has_served(&[if tier == "xdp" { "kernel" } else { tier }]);
        scene.sidestep(&["unload", &file]);
        scene.server.nft("delete table ip6 count\n").expect("no counter");
    }
}

/// Segments that the client has sent again.
fn retransmitted(scene: &ScriptScene) -> u64 {
    let (_, text) = scene.run(&scene.client, &["nstat", "-asz", "TcpRetransSegs"]);
    let number =
        text.lines().find(|line| line.starts_with("Tcp")).and_then(|line| line.split_whitespace().nth(1));
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

/// Packets that the user tier's queues at the router had no place for.
fn lost_in_queue(scene: &ScriptScene) -> u64 {
    let (_, text) = scene.run(&scene.router, &["cat", "/proc/net/netfilter/nfnetlink_queue"]);
    // The sixth and seventh are those that the kernel could not queue, and could not hand over.
    let of_queue = |line: &str| {
        line.split_whitespace().skip(5).take(2).map(|field| field.parse::<u64>().unwrap()).sum::<u64>()
    };
    text.lines().map(of_queue).sum()
}
