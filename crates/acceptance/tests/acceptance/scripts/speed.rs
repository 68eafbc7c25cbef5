//! What the user tier takes of a TCP stream with GSO packets. Figures are shown, not judged: they are the machine's.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::scene::{SERVER, ScriptScene};

const SECONDS: u32 = 4;
const ACCEPT: &str = "function process_packet(p) return NF_ACCEPT end\n";
const REWRITE: &str = r#"
function process_packet(p)
  p:data(packet_eth):data(packet_ip6):hop_limit():set(33)
  return NF_ACCEPT
end
function translate(p)
  p:data(packet_eth):data(packet_ip6):saddr():set("fd00::2")
  return NF_ACCEPT
end
"#;

#[test]
fn gso_packets_stay_whole() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let mut rows = vec![("no queue".to_owned(), scene.tcp(SERVER, SECONDS))];
    rows.push(("a queue and a verdict".to_owned(), bare(&scene)));
    for (name, function, text) in [
        ("accepting script", "process_packet", ACCEPT),
        ("script that sets the hop limit", "process_packet", REWRITE),
        ("script that translates an address", "translate", REWRITE),
    ] {
        let file = scene.script("speed.lua", text);
        scene.sidestep(&[
            "load",
            &file,
            "--hook",
            "forward",
            "--tier",
            "user",
            "--match",
            "ip6 daddr 2001:db8:f::9",
            "--function",
            function,
        ]);
        let rate = scene.tcp(SERVER, SECONDS);
        let id = scene.sidestep(&["list", "--json"]);
        let list: serde_json::Value = serde_json::from_str(&id).expect("JSON");
        let status = &list["scripts"][0];
        let packets = status["packets"].as_u64().expect("a number") as f64;
        let octets = rate * 1e9 / 8.0 * f64::from(SECONDS) / packets;
        rows.push((format!("{name} ({octets:.0} octets a packet, {} ns)", status["ns_per_packet"]), rate));
        assert_eq!(status["errors"], 0, "{status}");
        assert!(octets > 3000.0, "GSO packets were segmented: {octets} octets a packet");
        scene.sidestep(&["unload", &file]);
    }
    for (name, rate) in rows {
        eprintln!("{rate:6.2} Gb/s  {name}");
        assert!(rate > 0.0);
    }
}

/// The floor: a program that accepts every packet, without scripts.
fn bare(scene: &ScriptScene) -> f64 {
    let stop = AtomicBool::new(false);
    let rules = [format!("ip6 daddr {SERVER}")];
    std::thread::scope(|scope| {
        let accepting = scope
            .spawn(|| ScriptScene::within(&scene.router, || lab::queue::accept("forward", &rules, &stop)));
        std::thread::sleep(Duration::from_millis(300));
        let rate = scene.tcp(SERVER, SECONDS);
        stop.store(true, Ordering::Relaxed);
        accepting.join().expect("a thread").expect("a queue");
        rate
    })
}
