//! Packets that are followed through scripts: in both tiers with the same words, at each kind of hook, and afterwards all is
//! as it was.

use std::time::{Duration, Instant};

use lab::edited::Edited;
use lab::process::Process;
use serde_json::Value;

use super::scene::{CLIENT, SERVER, ScriptScene, has_netfilter_links};

/// It counts what it gets, and asks a function of its own.
const HOPS: &str = r#"
local seen = nf.counter "seen"
local function is_far(ip)
  return ip:hop_limit():get() < 9
end
function process_packet(p)
  local ip = p:data(packet_eth):data(packet_ip6)
  local icmp = ip and ip:data(packet_icmp6)
  if not icmp or icmp:type():get() ~= 128 then return NF_ACCEPT end
  local number, from = seen:add(), ip:saddr():get()
  if is_far(ip) then return NF_DROP end
  return NF_ACCEPT
end
"#;

const AT_LAN: [&str; 4] = ["--hook", "ingress", "--dev", "lan"];

/// What is told while the client pings.
fn traced(scene: &ScriptScene, words: &[&str]) -> String {
    std::thread::scope(|scope| {
        let pings = scope.spawn(|| scene.ping(&scene.client, SERVER, &["-c", "60", "-i", "0.05"]));
        let traced = scene.sidestep(&[&["trace", "1"], words].concat());
        assert!(pings.join().expect("pings").ends_with(" 0%"), "no packet is lost by a trace");
        traced
    })
}

/// What is told of the first packet, without its octets and the tier.
fn way(told: &str) -> Vec<String> {
    let lines = told.lines().skip_while(|line| !line.ends_with("hops.lua")).skip(1);
    let mut way: Vec<String> = Vec::new();
    for line in lines {
        way.push(line.trim_end().to_owned());
        if !line.starts_with("  ") {
            break;
        }
    }
    way
}

fn wait_until(scene: &ScriptScene, what: &str, holds: impl Fn(&Value) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds(&scene.status(1)) {
        assert!(Instant::now() < deadline, "{what}: {}", scene.status(1));
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn both_tiers_tell_the_same_of_a_packet_and_lose_none() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = scene.script("hops.lua", HOPS);
    let mut ways = Vec::new();
    for tier in ["kernel", "user"] {
        scene.sidestep(&[&["load", &file], &AT_LAN[..], &["--tier", tier]].concat());
        let told = traced(&scene, &["--match", "icmpv6 type 128", "--count", "3"]);
        let name = if tier == "user" { "Lua" } else { "the kernel" };
        assert_eq!(told.matches(&format!("packet of 104 octets, in {name}\n  60 ")).count(), 3, "{told}");
        assert_eq!(told.matches("\nNF_ACCEPT\n").count(), 3, "{told}");
        for part in [
            "     7    local ip = p:data(packet_eth):data(packet_ip6) -- ip = view packet_ip6\n",
            &format!("from = \"{CLIENT}\"\n"),
            "     3  local function is_far(ip)                       -- ip = view packet_ip6\n",
            "if is_far(ip) then return NF_DROP end         -- no\n",
        ] {
            assert_eq!(told.matches(part).count(), 3, "{part}: {told}");
        }
        // The number is another one with each.
        let unnumbered = |line: String| {
            line.split_once("number = ").map_or(line.clone(), |(before, after)| {
                format!("{before}{}", after.split_once(", ").map_or("", |(_, rest)| rest))
            })
        };
        ways.push(way(&told).into_iter().map(unnumbered).collect::<Vec<_>>());
        wait_until(&scene, "it is over", |status| status["traced"] == false);
        let status = scene.status(1);
        assert_eq!((&status["tier"], &status["errors"]), (&tier.into(), &0.into()), "{status}");
        // What was counted goes on: 60 pings, and none of them twice.
        assert_eq!(scene.sidestep(&["table", "get", "seen"]).trim(), "60");
        scene.sidestep(&["unload", &file]);
    }
    assert_eq!(ways[0], ways[1]);
    assert_eq!(ways[0].last().map(String::as_str), Some("NF_ACCEPT"));
}

/// Programs make way and come back as often as that goes.
#[test]
fn a_flood_passes_through_traces_without_a_loss() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = scene.script("hops.lua", HOPS);
    for tier in ["kernel", "user"] {
        scene.sidestep(
            &[&["load", &file], &AT_LAN[..], &["--tier", tier, "--match", "icmpv6 type 128"]].concat(),
        );
        let count = scene.under_a_flood(|_| {
            // The last ones come too late for a packet.
            scene.try_sidestep(&["trace", "1", "--count", "5", "--timeout", "400ms"]);
        });
        let status = scene.status(1);
        assert_eq!((&status["packets"], &status["errors"]), (&count.into(), &0.into()), "{status}");
        assert_eq!(scene.sidestep(&["table", "get", "seen"]).trim(), count.to_string());
        scene.sidestep(&["unload", &file]);
    }
}

#[test]
fn an_error_a_change_and_json() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let text = HOPS.edited(
        "if is_far(ip) then return NF_DROP end",
        "ip:hop_limit():set(20 + number % 2) if number > 1 then return p:get()[4000] end",
    );
    let file = scene.script("hops.lua", &text);
    for tier in ["kernel", "user"] {
        scene.sidestep(&[&["load", &file], &AT_LAN[..], &["--tier", tier]].concat());
        let told = std::thread::scope(|scope| {
            scope.spawn(|| scene.ping(&scene.client, SERVER, &["-c", "40", "-i", "0.05", "-W", "0.1"]));
            scene.sidestep(&["trace", "1", "--match", "icmpv6 type 128", "--count", "2", "--json"])
        });
        let packets: Vec<Value> =
            told.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(packets.len(), 2, "{told}");
        let first = &packets[0];
        let failed = &packets[1];
        if first["error"].is_null() {
            assert_eq!((&first["verdict"], &first["changed"]), (&"NF_ACCEPT".into(), &true.into()), "{told}");
        }
        assert_eq!((&failed["verdict"], &failed["changed"]), (&"NF_DROP".into(), &false.into()), "{told}");
        let error = failed["error"].as_str().expect("an error");
        assert!(error.contains("hops.lua:11: "), "{error}");
        let last = failed["lines"].as_array().and_then(|lines| lines.last()).expect("a line");
        assert_eq!((&last["line"], &last["told"]), (&11.into(), &"yes".into()), "{told}");
        scene.sidestep(&["unload", &file]);
    }
}

/// What the kernel hands over is told twice: its way to there, and that in Lua.
#[test]
fn a_packet_is_followed_through_both_halves() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = scene.script("hops.lua", HOPS);
    scene.sidestep(&[&["load", &file], &AT_LAN[..], &["--tier", "both"]].concat());
    let told = traced(&scene, &["--match", "icmpv6 type 128"]);
    let (kernel, lua) = told.split_once("\nhanded over to Lua\n").unwrap_or_else(|| panic!("{told}"));
    assert!(kernel.contains("in the kernel") && kernel.contains("icmp:type():get() ~= 128"), "{told}");
    assert!(lua.contains("in Lua") && lua.contains("number = ") && lua.ends_with("\nNF_ACCEPT\n"), "{told}");
    wait_until(&scene, "it is over", |status| status["traced"] == false);
    assert!(scene.ping(&scene.client, SERVER, &["-c", "3", "-i", "0.01"]).ends_with(" 0%"));
}

#[test]
fn packets_are_followed_at_every_kind_of_hook() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = scene.script("hops.lua", HOPS);
    let mut places = vec![
        &["--hook", "egress", "--dev", "wan"][..],
        &["--hook", "ingress", "--dev", "lan", "--xdp"],
        &["--hook", "prerouting", "--dev", "lan", "--match", "ip6 daddr 2001:db8:f::/64"],
    ];
    if has_netfilter_links() {
        places.push(&["--hook", "forward"]);
    }
    for place in places {
        scene.sidestep(&[&["load", &file], place].concat());
        assert_eq!(scene.status(1)["tier"], "kernel", "{place:?}");
        let told = traced(&scene, &["--match", "icmpv6 type 128"]);
        assert!(told.contains("packet of 104 octets, in the kernel\n  60 "), "{place:?}: {told}");
        assert!(
            told.contains(&format!("from = \"{CLIENT}\"")) && told.ends_with("NF_ACCEPT\n"),
            "{place:?}: {told}"
        );
        wait_until(&scene, "it is over", |status| status["traced"] == false);
        scene.sidestep(&["unload", &file]);
    }
}

#[test]
fn a_trace_ends_with_who_asked_for_it_with_its_time_and_with_a_reload() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = scene.script("hops.lua", HOPS);
    scene.sidestep(&[&["load", &file], &AT_LAN[..], &["--tier", "kernel"]].concat());
    let start = |log: &str| {
        let mut command = scene.router.command(scene.program()).expect("the namespace");
        let words = ["script", "trace", "1", "--match", "udp dport 9", "--timeout", "10m"];
        let process = Process::start(command.args(words), &scene.log(log)).expect("a trace");
        wait_until(&scene, "it began", |status| status["traced"] == true);
        process
    };
    start("killed.log").kill();
    wait_until(&scene, "it is over without who asked", |status| status["traced"] == false);
    let late = scene.refusal(&["trace", "1", "--match", "udp dport 9", "--timeout", "300ms"]);
    assert!(late.contains("no packet came to script 1 within 300ms"), "{late}");
    wait_until(&scene, "it is over in time", |status| status["traced"] == false);

    let mut trace = start("reloaded.log");
    scene.script("hops.lua", &HOPS.edited("return NF_ACCEPT\nend", "return NF_DROP\nend"));
    scene.sidestep(&["reload", &file]);
    assert!(trace.wait(Duration::from_secs(30)).is_some_and(|status| !status.success()));
    assert!(scene.said("reloaded.log").contains("loaded anew"), "{}", scene.said("reloaded.log"));
    let reaches = || scene.ping(&scene.client, SERVER, &["-c", "3", "-i", "0.01", "-W", "0.2"]);
    assert!(reaches().ends_with(" 100%"), "the new text decides");
    // A second one takes the place of the first.
    let mut first = start("first.log");
    assert!(scene.refusal(&["trace", "1", "--match", "iif lan"]).contains("does not look at interfaces"));
    assert_eq!(scene.status(1)["traced"], true);
    let mut second = start("second.log");
    assert!(first.wait(Duration::from_secs(30)).is_some_and(|status| !status.success()));
    assert!(scene.said("first.log").contains("somebody else follows it"), "{}", scene.said("first.log"));
    assert_eq!(scene.status(1)["traced"], true);
    scene.sidestep(&["unload", &file]);
    assert!(second.wait(Duration::from_secs(30)).is_some());
    assert!(reaches().ends_with(" 0%"));
}

/// The text that runs is what is followed, whatever its file has become.
#[test]
fn what_runs_is_followed_and_not_what_its_file_says_now() {
    let Some(scene) = ScriptScene::new(false) else { return };
    for tier in ["kernel", "user"] {
        let file = scene.script("hops.lua", HOPS);
        scene.sidestep(&[&["load", &file], &AT_LAN[..], &["--tier", tier]].concat());
        scene.script("hops.lua", "function process_packet(p) this is no Lua\n");
        let told = traced(&scene, &["--match", "icmpv6 type 128"]);
        assert!(told.contains("local ip = p:data(packet_eth)"), "{told}");
        scene.sidestep(&["unload", &file]);
    }
}
