//! The order of scripts at one place.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::scene::{ROUTER, SERVER, ScriptScene, has_netfilter_links};

const AT_INTERFACES: [&str; 4] =
    ["ingress --dev lan", "prerouting --dev lan", "egress --dev wan", "postrouting --dev wan"];
const AT_NETFILTER: [&str; 5] = ["prerouting", "input", "forward", "output", "postrouting"];
/// Tiers of the first and of the last one.
const SAME: [[&str; 2]; 2] = [["kernel"; 2], ["user"; 2]];
const MIXED: [[&str; 2]; 2] = [["kernel", "user"], ["user", "kernel"]];

#[test]
fn the_last_loaded_comes_first_in_both_tiers() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let host = scene.serve();
    let mut places = AT_INTERFACES.to_vec();
    let mut pairs = Vec::new();
    if has_netfilter_links() {
        places.extend(AT_NETFILTER);
        pairs.extend(MIXED.map(|tiers| ("forward", tiers)));
    }
    pairs.extend(places.into_iter().flat_map(|place| SAME.map(|tiers| (place, tiers))));
    the_last_drops(&scene, &pairs);
    assert!(host.stop(Duration::from_secs(20)).success());

    // As kernels before Linux 6.6 have it.
    let host = scene.serve_with(&["--test-without", "tcx"]);
    the_last_drops(&scene, &AT_INTERFACES.map(|place| (place, ["kernel"; 2])));
    assert!(host.stop(Duration::from_secs(20)).success());
}

/// Also as kernels before Linux 6.6 have it, where a filter goes with the interface and is written down anew.
#[test]
fn an_interface_that_comes_again_has_the_order_of_before() {
    let Some(scene) = ScriptScene::new(false) else { return };
    for without in [&[][..], &["--test-without", "tcx"]] {
        let host = scene.serve_with(without);
        for verdict in ["ACCEPT", "DROP"] {
            let text = format!("function process_packet(p) return NF_{verdict} end\n");
            let file = scene.script(&format!("{verdict}.lua"), &text);
            scene.load(&file, "--hook ingress --dev lan --tier kernel --match", &["icmpv6 type 128"]);
        }
        scene.unplug_client();
        scene.plug_client_in();
        let ping = ["ping", "-q", "-c", "3", "-i", "0.01", "-W", "0.2", SERVER];
        let counts = || [1, 2].map(|id| scene.status(id)["packets"].as_u64());
        let deadline = Instant::now() + Duration::from_secs(60);
        while counts() == [Some(0), Some(0)] {
            assert!(Instant::now() < deadline, "{without:?}: {}", scene.sidestep(&["list"]));
            scene.run(&scene.client, &ping);
        }
        assert_eq!(counts()[0], Some(0), "{without:?}: what came last has not dropped all");
        assert!(host.stop(Duration::from_secs(20)).success());
        let filters = scene.run(&scene.router, &["tc", "filter", "show", "dev", "lan", "ingress"]).1;
        assert_eq!(filters, "", "{without:?}");
    }
}

/// Of two scripts with the same packets the first lets them pass and the last drops them: the first sees none.
fn the_last_drops(scene: &ScriptScene, pairs: &[(&str, [&str; 2])]) {
    // All scripts of a file are in one tier: they share its tables.
    let file = |verdict: &str, tier: &str| {
        scene.script(
            &format!("{verdict}-{tier}.lua"),
            &format!("function process_packet(p) return NF_{verdict} end\n"),
        )
    };
    let port = |number: usize| 7000 + number as u16;
    for (number, (place, [first, last])) in pairs.iter().enumerate() {
        let rule = format!("udp dport {}", port(number));
        for (verdict, tier) in [("ACCEPT", first), ("DROP", last)] {
            scene.load(&file(verdict, tier), &format!("--hook {place}"), &["--tier", tier, "--match", &rule]);
        }
    }
    for (number, (place, _)) in pairs.iter().enumerate() {
        let (from, to) = match *place {
            "input" => (&scene.client, ROUTER),
            "output" => (&scene.router, SERVER),
            _ => (&scene.client, SERVER),
        };
        ScriptScene::within(from, || {
            let socket = UdpSocket::bind("[::]:0").expect("a socket");
            // What is dropped on its way out is an error to who sends it.
            let _ = socket.send_to(b"which first?", (to, port(number)));
        });
    }
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let list: Value = serde_json::from_str(&scene.sidestep(&["list", "--json"])).expect("JSON");
        let packets: Vec<_> = list["scripts"]
            .as_array()
            .expect("scripts")
            .iter()
            .map(|script| script["packets"].as_u64().expect("a number"))
            .collect();
        let seen: Vec<_> = pairs.iter().zip(packets.as_chunks::<2>().0).collect();
        if seen.iter().all(|(_, [first, last])| (*first, *last) == (0, 1)) {
            return;
        }
        let waits = seen.iter().any(|(_, [first, last])| first + last == 0);
        assert!(waits && Instant::now() < deadline, "{seen:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
