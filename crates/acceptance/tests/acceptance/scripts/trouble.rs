//! Scripts that loop, hoard in one way or another, and fail at every packet, beside one that serves.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::scene::{SERVER, ScriptScene};

const LOOP: &str = "function process_packet(p)\n  while true do end\nend\n";
const HOARD: &str = "local all = {}\nfunction process_packet(p)\n  for i = 1, 100 do\n    all[#all + 1] = (\"x\"):rep(100000 + #all)\n  end\n  return NF_ACCEPT\nend\n";
/// What waits is no memory of Lua.
const LATER: &str = "function never() end\nfunction process_packet(p)\n  local octets = (\"x\"):rep(1 << 20)\n  for i = 1, 6 do nf.schedule(nil, \"never\", i, 1 << 40, octets, packet_raw) end\n  return NF_ACCEPT\nend\n";
const NAMES: &str = "local packets = 0\nfunction process_packet(p)\n  packets = packets + 1\n  nf.counter(\"packet \" .. packets):add()\n  return NF_ACCEPT\nend\n";
const FAIL: &str = "local function inner(p)\n  return p:nothing()\nend\nfunction process_packet(p)\n  return inner(p) + 1\nend\n";
const GOOD: &str = "function process_packet(p) return NF_ACCEPT end\n";

#[test]
fn a_script_that_goes_wrong_leaves_the_others_serving() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let scripts = [
        ("loop", LOOP, 1111),
        ("hoard", HOARD, 2222),
        ("fail", FAIL, 3333),
        ("later", LATER, 4444),
        ("names", NAMES, 5555),
    ];
    for (name, text, port) in scripts {
        let file = scene.script(&format!("{name}.lua"), text);
        scene.sidestep(&["load", &file, "--hook", "forward", "--match", &format!("udp dport {port}")]);
    }
    let good = scene.script("good.lua", GOOD);
    scene.sidestep(&["load", &good, "--hook", "forward", "--match", "meta l4proto icmpv6"]);
    let stop = AtomicBool::new(false);
    let summary = std::thread::scope(|scope| {
        scope.spawn(|| {
            ScriptScene::within(&scene.client, || {
                let socket = UdpSocket::bind("[::]:0").expect("a socket");
                while !stop.load(Ordering::Relaxed) {
                    for (_, _, port) in scripts {
                        // A full queue is somebody else's problem.
                        let _ = socket.send_to(b"trouble", (SERVER, port));
                    }
                    std::thread::sleep(Duration::from_micros(500));
                }
            });
        });
        let summary = scene.ping(&scene.client, SERVER, &["-c", "200", "-i", "0.02"]);
        // The host answers, and loads and unloads others, in the midst of it.
        let other = scene.script("other.lua", GOOD);
        scene.sidestep(&["load", &other, "--hook", "forward"]);
        scene.sidestep(&["unload", &other]);
        stop.store(true, Ordering::Relaxed);
        summary
    });
    assert!(summary.ends_with(" 200 received, 0%"), "{summary}");
    assert_eq!(scene.status(6)["errors"], 0);
    for (id, says, place) in [
        (1, "used up its 1000000 instructions", "loop.lua:2:"),
        (2, "not enough memory", "hoard.lua:"),
        (3, "nothing", "fail.lua:2:"),
        (4, "16777216 octets are waiting already", "later.lua:4:"),
        (5, "256 tables, counters and the like", "names.lua:4:"),
    ] {
        let status = scene.status(id);
        let errors = status["errors"].as_u64().expect("a number");
        let message = status["last_error"]["message"].as_str().expect("a message");
        assert!(errors > 0 && message.contains(says) && message.contains(place), "{status}");
        assert!(status["verdicts"]["NF_DROP"].as_u64() > Some(0), "{status}");
    }
    assert!(
        scene.sidestep(&["list"]).contains("in function 'process_packet'"),
        "{}",
        scene.sidestep(&["list"])
    );
    assert!(scene.sidestep(&["logs"]).contains("fail.lua:2: "));
}

#[test]
fn a_failure_lets_a_packet_pass_where_that_was_asked_for() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = scene.script("fail.lua", FAIL);
    let load = ["load", file.as_str(), "--hook", "forward", "--match", "icmpv6 type 128"];
    scene.sidestep(&[&load[..], &["--failure", "accept"]].concat());
    assert!(scene.ping(&scene.client, SERVER, &["-c", "3", "-i", "0.01"]).ends_with(" 0%"));
    assert_eq!(scene.status(1)["errors"], 3);
    scene.sidestep(&["load", &file, "--hook", "prerouting", "--match", "icmpv6 type 128"]);
    assert!(scene.ping(&scene.client, SERVER, &["-c", "3", "-i", "0.01"]).ends_with(" 100%"));
}
