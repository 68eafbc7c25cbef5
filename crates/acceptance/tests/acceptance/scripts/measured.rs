//! What scripts say of themselves outside: metrics of their own, and how often and for how long they run.

use std::time::Duration;

use lab::patience::wait_until;
use lab::scale::{emulated, scaled};
use linux::bpf::{Assembler, Program, ProgramKind, Statistics, verdict};
use serde_json::{Value, json};
use wire::{pcap, pcapng};

use super::scene::{SERVER, ScriptScene};

const SCRIPT: &str = r#"
local late = nf.counter { name = "late", metric = "seen", labels = { reason = "late" }, help = "Echoes, by reason" }
local soon = nf.counter { name = "soon", metric = "seen", labels = { reason = "soon" }, help = "Echoes, by reason" }
local size = nf.histogram { name = "size", unit = "bytes", buckets = { 20, 60, 1500 }, help = "Octets of echoes" }
local hop = nf.counter { name = "waited", unit = "milliseconds", help = "Time, made up" }
function process_packet(p)
  local ip = p:data(packet_eth):data(packet_ip6)
  if not ip then return NF_ACCEPT end
  size:observe(ip:payload_len():get())
  hop:add(5)
  if ip:payload_len():get() > 60 then late:add() else soon:add(2) end
  return NF_ACCEPT
end
"#;

fn load(scene: &ScriptScene, file: &str, tier: &str) {
    let at = ["--hook", "ingress", "--dev", "lan", "--match", "icmpv6 type 128", "--tier", tier];
    scene.sidestep(&[&["load", file], &at[..]].concat());
}

fn listed(scene: &ScriptScene, more: &[&str]) -> Value {
    serde_json::from_str(&scene.sidestep(&[&["list", "--json"], more].concat())).expect("JSON")
}

#[test]
fn metrics_export_what_scripts_count_in_either_tier() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = scene.script("counts.lua", SCRIPT);
    for tier in ["kernel", "user"] {
        load(&scene, &file, tier);
        // Payloads of 16 and of 64 octets behind 8 of ICMPv6.
        scene.ping(&scene.client, SERVER, &["-c", "4", "-i", "0.01", "-s", "16"]);
        scene.ping(&scene.client, SERVER, &["-c", "2", "-i", "0.01", "-s", "64"]);
        let id = scene.only_status()["id"].as_u64().expect("a number");
        let page = scene.metrics();
        for line in [
            "# HELP sidestep_custom_seen Echoes, by reason".to_owned(),
            "# TYPE sidestep_custom_seen counter".to_owned(),
            format!("sidestep_custom_seen_total{{script=\"{id}\",reason=\"late\"}} 2.0"),
            format!("sidestep_custom_seen_total{{script=\"{id}\",reason=\"soon\"}} 8.0"),
            "# UNIT sidestep_custom_size_bytes bytes".to_owned(),
            format!("sidestep_custom_size_bytes_sum{{script=\"{id}\"}} 240.0"),
            format!("sidestep_custom_size_bytes_count{{script=\"{id}\"}} 6"),
            format!("sidestep_custom_size_bytes_bucket{{le=\"20.0\",script=\"{id}\"}} 0"),
            format!("sidestep_custom_size_bytes_bucket{{le=\"60.0\",script=\"{id}\"}} 4"),
            format!("sidestep_custom_size_bytes_bucket{{le=\"1500.0\",script=\"{id}\"}} 6"),
            format!("sidestep_custom_waited_seconds_total{{script=\"{id}\"}} 0.03"),
        ] {
            assert!(page.lines().any(|one| one == line), "{tier}: {line}\n{page}");
        }
        let metrics = listed(&scene, &[])["metrics"].clone();
        let size = metrics.as_array().expect("a list").iter().find(|one| one["name"] == "size").expect("it");
        assert_eq!((&size["kind"], &size["unit"]), (&"histogram".into(), &"bytes".into()), "{tier}");
        assert_eq!(size["buckets"][1], json!({ "up_to": 60.0, "count": 4 }), "{tier}");
        let list = scene.sidestep(&["list"]);
        assert!(list.contains("seen{reason=\"late\"} 2\n"), "{list}");
        assert!(list.contains("size 6 values, 40.000000 bytes on average"), "{list}");

        // The same numbers, as tables.
        assert_eq!(
            scene.sidestep(&["table", "dump", "size"]),
            "key,value\nsum,240\n20,0\n60,4\n1500,2\n+Inf,0\n"
        );
        assert_eq!(scene.sidestep(&["table", "get", "size", "60"]), "4\n", "{tier}");
        let said = scene.refusal(&["table", "get", "size", "61"]);
        assert!(said.contains("61 is no bucket: there are sum, 20, 60, 1500, +Inf"), "{said}");
        scene.sidestep(&["table", "delete", "size", "--all"]);
        assert_eq!(scene.sidestep(&["table", "get", "size", "sum"]), "0\n", "{tier}");

        // A text that counts something else: what is not declared any more is not exported.
        let other = SCRIPT.replace("\"size\"", "\"octets\"");
        scene.script("counts.lua", &other);
        scene.sidestep(&["reload", &file]);
        // A packet that Lua has in hand keeps the text before it for a moment.
        wait_until("what is declared now", || {
            names(&listed(&scene, &[])) == ["octets", "seen", "seen", "waited"]
        });
        scene.script("counts.lua", SCRIPT);
        scene.sidestep(&["unload", &file]);
    }
}

fn names(list: &Value) -> Vec<String> {
    let metrics = list["metrics"].as_array().expect("a list").iter();
    let mut names: Vec<_> = metrics.map(|one| one["name"].as_str().expect("a name").to_owned()).collect();
    names.sort_unstable();
    names
}

#[test]
fn a_name_or_unit_that_is_wrong_is_told_with_its_line() {
    let Some(scene) = ScriptScene::new(false) else { return };
    for (declared, said) in [
        (
            "nf.counter { name = 'a_total', help = 'x' }",
            "the name of metric \"a_total\" must not end with _total",
        ),
        (
            "nf.counter { name = 'a', help = 'x', unit = 'octets' }",
            "unit \"octets\" is none of bytes, seconds",
        ),
        (
            "nf.counter { name = 'a', help = 'x', uint = 'bytes' }",
            "nf.counter knows no `uint`: there are name",
        ),
        (
            "nf.histogram { name = 'a', help = 'x', buckets = { 3, 2 } }",
            "`buckets` must be a list of 1 to 32 integers",
        ),
    ] {
        let file = scene
            .script("wrong.lua", &format!("--\n{declared}\nfunction process_packet() return NF_ACCEPT end"));
        for tier in ["kernel", "user"] {
            let words = ["load", &file, "--hook", "ingress", "--dev", "lan", "--tier", tier];
            let text = scene.refusal(&words);
            assert!(text.contains(&format!("wrong.lua:2: {said}")), "{tier}: {text}");
        }
        let (good, text) =
            scene.run(&scene.router, &[&scene.program().display().to_string(), "script", "check", &file]);
        assert!(!good && text.contains(said), "{text}");
    }
}

#[test]
fn the_kernel_counts_runs_only_while_somebody_measures() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let files = ["kernel", "user"].map(|tier| {
        let file = scene.script(&format!("{tier}.lua"), SCRIPT);
        load(&scene, &file, tier);
        file
    });
    let runs = || listed(&scene, &[])["scripts"][0]["kernel"]["runs"].as_u64().expect("a number");
    let before = runs();
    scene.ping(&scene.client, SERVER, &["-c", "20", "-i", "0.01"]);
    assert_eq!(runs(), before, "nobody has asked for it");
    let measured = std::thread::scope(|scope| {
        let list = scope.spawn(|| listed(&scene, &["--measure", "3s"]));
        scene.ping(&scene.client, SERVER, &["-c", "200", "-i", "0.01"]);
        list.join().expect("a list")
    });
    let [kernel, user] = [0, 1].map(|at| &measured["scripts"][at]["measured"]);
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{measured:#}"));
    assert!(number(&kernel["kernel"]["runs_per_second"]) > 0.0, "{measured:#}");
    assert!(number(&kernel["kernel"]["ns_per_run"]) > 0.0, "{measured:#}");
    assert!(number(&kernel["packets_per_second"]) > 0.0 && number(&user["packets_per_second"]) > 0.0);
    assert!(user["kernel"].is_null() && number(&user["seconds"]) >= 3.0, "{measured:#}");
    let (after, _) = (runs(), scene.ping(&scene.client, SERVER, &["-c", "20", "-i", "0.01"]));
    assert_eq!(runs(), after, "it has ended with the command");
    let text = scene.sidestep(&["list", "--measure", "50ms"]);
    assert!(text.contains("measured  0 packets/s"), "{text}");
    assert!(scene.refusal(&["list", "--measure", "2h"]).contains("a time from 10ms to 1h"));
    files.iter().for_each(|file| {
        scene.sidestep(&["unload", file]);
    });
    // In this test, since another one that has the kernel count would be seen above.
    cost_of_counting();
}

/// What the kernel's counting costs a run: told, for `docs/scripting-performance.md`.
fn cost_of_counting() {
    let mut code = Assembler::default();
    code.exit_with(verdict::NEXT);
    let program = Program::load(ProgramKind::SchedCls, &code).expect("a program");
    let runs: u32 = if emulated() { 1_000 } else { scaled(20_000, 200_000) };
    let time = || {
        let all: Duration = (0..runs).map(|_| program.time_run(&[0; 60]).expect("it runs")).sum();
        all.as_nanos() as f64 / f64::from(runs)
    };
    let mut rounds: Vec<[f64; 2]> = Vec::new();
    for _ in 0..5 {
        let without = time();
        let counting = Statistics::enable().expect("root");
        rounds.push([without, time()]);
        drop(counting);
    }
    let counted = program.run_time().expect("what was counted");
    assert!(counted.runs >= u64::from(5 * runs) && counted.nanoseconds > 0, "{counted:?}");
    let median = |at: usize| {
        let mut all: Vec<_> = rounds.iter().map(|round| round[at]).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    println!("a run takes {:.0} ns, and {:.0} ns while it is counted", median(0), median(1));
}

const CAPTURES: &str = r#"
function process_packet(p)
  nf.capture(p, "all.pcap")
  local ip = p:data(packet_eth):data(packet_ip6)
  if ip and ip:payload_len():get() > 60 then nf.capture(p, "long") end
  return NF_ACCEPT
end
"#;

#[test]
fn packets_are_captured_to_files_alike_in_both_tiers() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = scene.script("captures.lua", CAPTURES);
    let mut all = Vec::new();
    for tier in ["kernel", "user"] {
        load(&scene, &file, tier);
        scene.ping(&scene.client, SERVER, &["-c", "3", "-i", "0.01", "-s", "16", "-p", "ab"]);
        scene.ping(&scene.client, SERVER, &["-c", "2", "-i", "0.01", "-s", "64", "-p", "ab"]);
        // What the kernel has captured is read when the host has time for it, before it answers.
        let logs = scene.sidestep(&["logs"]);
        let path = |name: &str| {
            let line = logs.lines().find(|line| line.contains(&format!("capture \"{name}\": ")));
            line.and_then(|line| line.rsplit_once(": ")).unwrap_or_else(|| panic!("{logs}")).1.to_owned()
        };
        let packets = |name: &str| -> Vec<Vec<u8>> {
            let file = std::fs::read(path(name)).expect("a file");
            match pcap::Capture::parse(&file) {
                Ok(capture) => capture.records().map(|packet| packet.expect(name).octets.to_vec()).collect(),
                Err(_) => {
                    let capture = pcapng::Capture::parse(&file).expect(name);
                    capture.records().map(|packet| packet.expect(name).1.octets.to_vec()).collect()
                }
            }
        };
        assert!(path("all.pcap").ends_with("-all.pcap") && path("long").ends_with("-long.pcapng"));
        let (whole, long) = (packets("all.pcap"), packets("long"));
        assert_eq!((whole[0].len(), whole[0][0] >> 4, whole[0][6]), (64, 6, 58), "{tier}");
        assert_eq!((whole.len(), long.len()), (5, 2), "{tier}");
        assert_eq!(whole[3..], long, "{tier}");
        // Identifiers and times of echoes are others each time.
        all.push(whole.into_iter().map(|packet| packet.len()).collect::<Vec<_>>());
        scene.sidestep(&["unload", &file]);
    }
    assert_eq!(all[0], all[1]);
}
