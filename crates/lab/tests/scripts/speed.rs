//! What the user tier takes of a TCP stream with super-packets. Figures are shown, not judged: they are the machine's.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use linux::event::{Events, Interest, Poller};
use linux::queue::{Batch, Queue, Socket, rule, verdict};

use crate::scene::{SERVER, Scene};

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
fn super_packets_stay_whole() {
    let Some(scene) = Scene::new("speed", false) else { return };
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
        assert!(octets > 3000.0, "super-packets were cut: {octets} octets a packet");
        scene.sidestep(&["unload", &file]);
    }
    for (name, rate) in rows {
        eprintln!("{rate:6.2} Gb/s  {name}");
        assert!(rate > 0.0);
    }
}

/// The floor: a program that accepts every packet, without scripts.
fn bare(scene: &Scene) -> f64 {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| Scene::within(&scene.router, || accept_all(&stop)));
        std::thread::sleep(Duration::from_millis(300));
        let rate = scene.tcp(SERVER, SECONDS);
        stop.store(true, Ordering::Relaxed);
        rate
    })
}

fn accept_all(stop: &AtomicBool) {
    let queue = Queue { number: 1, length: 4096, fail_open: false, segmented: true };
    let socket = Socket::open(&[queue]).expect("a queue");
    linux::nft::apply(
        "add table inet floor\nadd chain inet floor q\n\
         add chain inet floor f { type filter hook forward priority 0; }\n\
         add rule inet floor f ip6 daddr 2001:db8:f::9 goto q\n",
    )
    .expect("chains");
    rule::send_to("floor", "q", &(1..=1), false).expect("a rule");
    let poller = Poller::new().expect("a poller");
    poller.add(&socket, 0, Interest::Readable).expect("a poller");
    let (mut batch, mut events) = (Batch::default(), Events::with_capacity(1));
    while !stop.load(Ordering::Relaxed) {
        poller.wait(&mut events, Some(Duration::from_millis(50))).expect("a wait");
        let count = socket.recv(&mut batch).expect("packets");
        for place in 0..count {
            let Some((queue, id)) = batch.packet(place).map(|queued| (queued.queue, queued.id)) else {
                continue;
            };
            batch.put_verdict(queue, id, verdict::ACCEPT, None);
        }
        socket.flush(&mut batch).expect("verdicts");
    }
    linux::nft::apply("delete table inet floor\n").expect("no table");
}
