//! What the user tier takes of a TCP stream with GSO packets. Figures are shown, not judged: they are the machine's.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::scene::{CLIENT, SERVER, ScriptScene};
use lab::scale::emulated;

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

/// Writes frames of 66 octets to a TAP device, and tells in how many microseconds. The driver has them in memory of its own
/// when XDP sees them, as that of a network card has.
const TAP: &str = r#"
import fcntl, os, socket, struct, sys, time
tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
fcntl.ioctl(tap, 0x400454ca, struct.pack("16sH22x", b"tap9", 0x1002))
source, target = (socket.inet_pton(socket.AF_INET6, one) for one in sys.argv[1:3])
udp = struct.pack("!4H", 1000, 4243, 12, 0) + b"drop"
frame = b"\xff" * 6 + bytes.fromhex("020000000001") + b"\x86\xdd"
frame += struct.pack("!IHBB", 6 << 28, len(udp), 17, 64) + source + target + udp
write, count = os.write, range(500000)
begun = time.monotonic_ns()
for _ in count: write(tap, frame)
print('{"took_us":%d}' % ((time.monotonic_ns() - begun) // 1000))
"#;

/// Small packets that a script drops, in a second: at tcx and at XDP in turns. Figures are shown, not judged: they are the
/// machine's. On a veth packets are socket buffers before XDP sees them, at a TAP device they are not.
#[test]
fn drops_of_small_packets_at_tcx_and_at_xdp() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = scene.script("drop.lua", "function process_packet(p) return NF_DROP end\n");
    // Each a packet of its own.
    let (single, said) = scene.run(&scene.client, &["ethtool", "-K", "eth0", "tx-udp-segmentation", "off"]);
    assert!(single, "{said}");
    scene.router.ip("tuntap add dev tap9 mode tap\nlink set dev tap9 up\n").expect("ip");
    let program = lab::helper::program().expect("sidestep-lab").display().to_string();
    let target = format!("[{SERVER}]:4243");
    let veth = [
        &program,
        "udp-send",
        "--to",
        &target,
        "--rate",
        "10000000",
        "--size",
        "64",
        "--seconds",
        "0.1",
        "--batched",
    ];
    let tap = ["python3", "-c", TAP, CLIENT, SERVER];
    let repetitions = if emulated() { 1 } else { 7 };
    for (device, from, send) in [("lan", &scene.client, &veth[..]), ("tap9", &scene.router, &tap)] {
        let dropped = |more: &[&str]| {
            let words = ["--dev", device, "--tier", "kernel", "--match", "udp dport 4243"];
            scene.load(&file, "--hook ingress", &[&words[..], more].concat());
            let (good, sent) = scene.run(from, send);
            assert!(good, "{sent}");
            let sent: serde_json::Value = serde_json::from_str(sent.trim()).expect("JSON");
            let status = scene.only_status();
            scene.sidestep(&["unload", &file]);
            assert_eq!(status["errors"], 0, "{status}");
            let packets = status["verdicts"]["NF_DROP"].as_f64().expect("a number");
            let rate = packets / sent["took_us"].as_f64().expect("a number");
            assert!(rate > 0.0, "{status}");
            eprintln!(
                "{device}: {rate:.2} million a second, {} ns in the script, {}",
                status["ns_per_packet"], status["xdp_mode"]
            );
            rate
        };
        let mut rates: Vec<[f64; 2]> = (0..repetitions).map(|_| [&[][..], &["--xdp"]].map(dropped)).collect();
        rates.sort_by(|one, other| (one[1] / one[0]).total_cmp(&(other[1] / other[0])));
        let [least, median, most] =
            [0, rates.len() / 2, rates.len() - 1].map(|at| rates[at][1] / rates[at][0]);
        eprintln!("{device}: XDP of tcx: {median:.2} ({least:.2} to {most:.2})");
    }
}
