//! Lines of `nf.log` with fields: the same JSON in both tiers, whatever is in a packet; and what is lost is told.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::scene::{CLIENT, SERVER, ScriptScene};

const DATAGRAMS: &str = r#"
function process_packet(p)
  local ip = p:data(packet_eth):data(packet_ip6)
  local udp = ip and ip:data(packet_udp)
  if not udp then return NF_ACCEPT end
  local text = tostring(udp:data():get())
  if #text < 1 or #text > 200 then return NF_ACCEPT end
  nf.log("datagram", { src = ip:saddr():get(), port = udp:dport():get(), far = ip:hop_limit():get() < 9, text = text,
    first = p:raw(54, 2):get(), none = nil })
  return NF_ACCEPT
end
"#;

#[test]
fn fields_are_the_same_json_in_both_tiers_whatever_is_in_a_packet() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = scene.script("datagrams.lua", DATAGRAMS);
    let mut all = Vec::new();
    for tier in ["kernel", "user"] {
        scene.sidestep(&["load", &file, "--hook", "ingress", "--dev", "lan", "--tier", tier]);
        for text in [r"plain", r#""},{"id":7"#, r"\012\000\033[31m\377\303\251"] {
            let send = format!("printf '{text}' | socat -u - UDP6-SENDTO:[{SERVER}]:4711,sourceport=4369");
            assert!(scene.run(&scene.client, &["sh", "-c", &send]).0);
        }
        let deadline = Instant::now() + Duration::from_secs(30);
        let lines = loop {
            let logs = scene.sidestep(&["logs", "--json"]);
            let lines: Vec<Value> =
                logs.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
            let lines: Vec<Value> = lines.into_iter().filter(|line| line["fields"]["port"] == 4711).collect();
            if lines.len() == 3 {
                break lines;
            }
            assert!(Instant::now() < deadline, "{logs}");
            std::thread::sleep(Duration::from_millis(20));
        };
        for (line, text) in lines.iter().zip(["plain", r#""},{"id":7"#, "\n\0\u{1b}[31m\u{fffd}é"]) {
            let fields =
                json!({ "src": CLIENT, "port": 4711, "far": false, "text": text, "first": "\u{11}\u{11}" });
            assert_eq!(line["fields"], fields, "{tier}");
            assert!(line["text"].as_str().is_some_and(|text| text.starts_with("datagram far=false first=")));
        }
        all.push(lines.into_iter().map(|line| line["text"].clone()).collect::<Vec<_>>());
        let logs = scene.sidestep(&["logs"]);
        assert!(logs.contains("text=plain") && !logs.contains('\u{1b}'), "{logs}");
        scene.sidestep(&["unload", &file]);
    }
    assert_eq!(all[0], all[1]);
}

/// While the host stands still, the kernel's ring buffer fills.
#[test]
fn what_the_host_cannot_read_in_time_is_counted() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let host = scene.serve();
    let text = "function process_packet(p)\n  for i = 1, 40 do nf.log(i, #p, #p, #p, #p, #p, #p) end\n  return NF_ACCEPT\nend\n";
    let file = scene.script("much.lua", text);
    scene.sidestep(&[
        "load",
        &file,
        "--hook",
        "ingress",
        "--dev",
        "lan",
        "--tier",
        "kernel",
        "--match",
        "icmpv6 type 128",
    ]);
    host.signal(nix::sys::signal::Signal::SIGSTOP);
    // 1 MiB has room for 14,563 records of 64 octets with heads of 8.
    assert!(scene.ping(&scene.client, SERVER, &["-c", "600", "-i", "0.001"]).ends_with(" 0%"));
    host.signal(nix::sys::signal::Signal::SIGCONT);
    let status = scene.status(1);
    let lost = status["lost"].as_u64().expect("a number");
    assert!((9_000..10_000).contains(&lost), "{status}");
    assert!(
        scene.sidestep(&["list"]).contains(&format!("lost      {lost} lines")),
        "{}",
        scene.sidestep(&["list"])
    );
}
