//! Tables of scripts, read and changed from outside while packets use them: the same in both tiers.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lab::echoes::Echoes;
use serde_json::{Value, json};

use super::scene::{CLIENT, SERVER, ScriptScene};

/// Drops what is for a prefix that is blocked, and counts where the others go to.
const GUARD: &str = r#"
local blocked = nf.prefixes { name = "blocked", limit = 1000 }
local seen = nf.table { name = "seen", key = { "ipv6", "int" }, value = "int", limit = 4 }
local names = nf.table { name = "names", key = "text:20", value = "bool", limit = 4, expires = 3600000 }
local macs = nf.table { name = "macs", key = "mac", value = "ipv4", limit = 4, when_full = "oldest" }
local packets = nf.counter "packets"
local traffic = nf.table { name = "traffic", key = "ipv6", value = { "int", "int" }, limit = 4, when_full = "oldest" }
function process_packet(p)
  local eth = p:data(packet_eth)
  local ip = eth:data(packet_ip6)
  if not ip then return NF_ACCEPT end
  packets:add()
  if blocked:find(ip:daddr():get()) then return NF_DROP end
  seen:add(ip:daddr():get(), ip:nexthdr():get(), 1)
  if names:get("off") then return NF_ACCEPT end
  macs:get("00:00:00:00:00:01")
  local count, octets = traffic:add(ip:daddr():get(), 1, 1000)
  if octets ~= count * 1000 then return NF_DROP end
  return NF_ACCEPT
end
"#;

const TIERS: [&str; 2] = ["kernel", "user"];

fn load(scene: &ScriptScene, file: &str, tier: &str) {
    let at = ["--hook", "ingress", "--dev", "lan", "--match", "icmpv6 type 128", "--tier", tier];
    scene.sidestep(&[&["load", file], &at[..]].concat());
}

fn table(scene: &ScriptScene, words: &[&str]) -> String {
    scene.sidestep(&[&["table"], words].concat())
}

fn refused(scene: &ScriptScene, words: &[&str]) -> String {
    scene.refusal(&[&["table"], words].concat())
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn entries_are_read_and_changed_alike_in_both_tiers() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = scene.script("guard.lua", GUARD);
    let reaches = || scene.ping(&scene.client, SERVER, &["-c", "3", "-i", "0.01"]);
    for tier in TIERS {
        load(&scene, &file, tier);
        assert!(reaches().ends_with(" 0%"), "{tier}");

        // What packets have written is seen outside.
        assert_eq!(table(&scene, &["get", "packets"]), "3\n", "{tier}");
        assert_eq!(table(&scene, &["get", "seen", SERVER, "58"]), "3\n", "{tier}");
        let entry = parsed(&table(&scene, &["get", "seen", SERVER, "58", "--json"]));
        assert_eq!(entry, json!({ "key": [SERVER, 58], "value": 3 }), "{tier}");

        // What is written outside is seen by packets.
        table(&scene, &["set", "blocked", "2001:db8:f::/48", "-7"]);
        assert!(reaches().ends_with(" 100%"), "{tier}");
        assert_eq!(table(&scene, &["get", "blocked", SERVER]), "-7 (2001:db8:f::/48)\n", "{tier}");
        assert_eq!(table(&scene, &["get", "blocked", "2001:db8:f::/48"]), "-7\n", "{tier}");
        assert!(refused(&scene, &["get", "blocked", "2001:db8:f::/64"]).contains("there is no entry"));
        assert_eq!(table(&scene, &["delete", "blocked", "2001:db8:f::/48"]), "blocked: 1 entry removed\n");
        assert!(refused(&scene, &["delete", "blocked", "2001:db8:f::/48"]).contains("there is no entry"));
        assert!(reaches().ends_with(" 0%"), "{tier}");
        table(&scene, &["set", "seen", SERVER, "58", "-9"]);
        assert!(reaches().ends_with(" 0%"), "{tier}");
        assert_eq!(table(&scene, &["get", "seen", SERVER, "58"]), "-6\n", "{tier}");
        table(&scene, &["set", "packets", "100"]);
        assert_eq!(table(&scene, &["delete", "packets"]), "packets: 1 entry removed\n");
        assert_eq!(table(&scene, &["get", "packets"]), "0\n", "{tier}");

        // Records.
        assert_eq!(table(&scene, &["get", "traffic", SERVER]), "9 9000\n", "{tier}");
        let entry = parsed(&table(&scene, &["get", "traffic", SERVER, "--json"]));
        assert_eq!(entry, json!({ "key": SERVER, "value": [9, 9000] }), "{tier}");
        table(&scene, &["set", "traffic", SERVER, "10", "10000"]);
        assert!(reaches().ends_with(" 0%"), "{tier}");
        assert_eq!(table(&scene, &["get", "traffic", SERVER]), "13 13000\n", "{tier}");
        table(&scene, &["delete", "traffic", "--all"]);
        table(&scene, &["set", "traffic", "2001:db8::5", "-7", "8"]);

        // The other kinds: what is told is taken back.
        table(&scene, &["set", "names", "a\\x00b, \"c\"", "true"]);
        table(&scene, &["set", "macs", "02:00:00:00:00:0a", "192.0.2.1"]);
        for (name, expected) in [
            ("names", "key,value\n\"a\\x00b, \"\"c\"\"\",true\n"),
            ("macs", "key,value\n02:00:00:00:00:0A,192.0.2.1\n"),
            ("traffic", "key,value1,value2\n2001:db8::5,-7,8\n"),
        ] {
            let dumped = table(&scene, &["dump", name]);
            assert_eq!(dumped, expected, "{tier}");
            let json = table(&scene, &["dump", name, "--json"]);
            table(&scene, &["delete", name, "--all"]);
            for text in [dumped, json] {
                let file = scene.script("dumped", &text);
                assert_eq!(table(&scene, &["load", name, &file]), format!("{name}: 1 entry written\n"));
                assert_eq!(table(&scene, &["dump", name]), expected, "{tier}");
            }
        }

        // What there is.
        let list = parsed(&table(&scene, &["list", "--json"]));
        let names: Vec<_> =
            list["tables"].as_array().expect("a list").iter().map(|one| &one["name"]).collect();
        assert_eq!(names, ["blocked", "macs", "names", "packets", "seen", "traffic"], "{tier}");
        let blocked = &list["tables"][0];
        assert_eq!(
            (&blocked["form"], &blocked["entries"], &blocked["limit"]),
            (&"prefixes".into(), &0.into(), &1000.into())
        );
        assert_eq!(
            (&blocked["tier"], &blocked["scripts"]),
            (&tier.into(), &json!([scene.only_status()["id"]]))
        );
        assert!(
            table(&scene, &["list"]).contains("seen     table     ipv6 int  int"),
            "{}",
            table(&scene, &["list"])
        );

        assert_eq!(list["tables"][5]["value"], json!(["int", "int"]));

        // What is wrong.
        for (words, expected) in [
            (&["get", "nothing"][..], "no script uses a table \"nothing\": there is \"blocked\""),
            (&["get", "seen", SERVER], "the key has 2 parts (ipv6, int), and 1 were given"),
            (&["get", "seen", CLIENT, "x"], "int takes an integer of 64 bits, not \"x\""),
            (&["get", "seen", "10.0.0.1", "1"], "ipv6 takes \"2001:db8::1\", not \"10.0.0.1\""),
            (&["set", "seen", SERVER, "58"], "seen: give ipv6 int int, the key and then the value"),
            (&["set", "blocked", "2001:db8::/130"], "\"2001:db8::/130\" is not a prefix"),
            (&["set", "traffic", SERVER, "1"], "the value is int and int, and 1 were given"),
            (&["set", "traffic", SERVER, "1", "x"], "int takes an integer of 64 bits, not \"x\""),
            (&["get", "packets", "5"], "a counter has no key, and 1 were given"),
            (&["get", "packets", "--script", "77"], "there is no script 77"),
        ] {
            let said = refused(&scene, words);
            assert!(said.contains(expected), "{tier}: {words:?}: {said}");
        }

        // A full table.
        for key in 1..=3 {
            table(&scene, &["set", "seen", "::1", &key.to_string(), "0"]);
        }
        let full = refused(&scene, &["set", "seen", "::1", "4", "0"]);
        assert!(full.contains("takes 4 entries: 4 are there, and of 1 new ones 0 fit"), "{tier}: {full}");
        table(&scene, &["set", "seen", "::1", "3", "5"]);
        scene.sidestep(&["unload", &file]);
    }
}

/// Two scripts with tables of one name that are not the same.
#[test]
fn a_table_is_that_of_the_script_that_is_named() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let [one, other] = ["one.lua", "other.lua"].map(|name| scene.script(name, GUARD));
    load(&scene, &one, "kernel");
    load(&scene, &other, "user");
    let said = refused(&scene, &["set", "packets", "5"]);
    assert!(
        said.contains("scripts 1 and 2 have each a table \"packets\": say which one with --script"),
        "{said}"
    );
    table(&scene, &["set", "packets", "5", "--script", "1"]);
    table(&scene, &["set", "packets", "6", "--script", &other]);
    assert_eq!(table(&scene, &["get", "packets", "--script", &one]), "5\n");
    assert_eq!(table(&scene, &["get", "packets", "--script", "2"]), "6\n");
    // A reload keeps what is in it, in either tier.
    scene.sidestep(&["reload", &one]);
    scene.sidestep(&["reload", &other]);
    assert_eq!(table(&scene, &["get", "packets", "--script", "1"]), "5\n");
    assert_eq!(table(&scene, &["get", "packets", "--script", "2"]), "6\n");
}

#[test]
fn a_file_is_loaded_as_a_whole_or_not_at_all() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = scene.script("guard.lua", GUARD);
    for tier in TIERS {
        load(&scene, &file, tier);
        let list = scene.script("list.csv", "# blocked\n2001:db8:1::/48\n10.0.0.0/8,5\n");
        assert_eq!(table(&scene, &["load", "blocked", &list]), "blocked: 2 entries written\n");
        let dumped = "prefix,value\n10.0.0.0/8,5\n2001:db8:1::/48,1\n";
        assert_eq!(table(&scene, &["dump", "blocked"]), dumped, "{tier}");

        let wrong = scene.script("wrong.csv", "2001:db8:2::/48\n2001:db8:3::/48\n2001:db8:4::/480\n");
        let said = refused(&scene, &["load", "blocked", &wrong, "--replace"]);
        assert!(said.contains("wrong.csv:3: \"2001:db8:4::/480\" is not a prefix"), "{said}");
        let wrong = scene
            .script("wrong.json", "[\n  {\"key\": \"::/0\"},\n  {\"key\": \"::/0\", \"value\": true}\n]\n");
        let said = refused(&scene, &["load", "blocked", &wrong]);
        assert!(
            said.contains("wrong.json:3: the value: int takes an integer of 64 bits, not true"),
            "{said}"
        );
        let many: String = (0..1000).fold(String::new(), |mut text, number| {
            let _ = writeln!(text, "2001:db8:{number:x}::/48");
            text
        });
        let many = scene.script("many.csv", &format!("{many}::/0\n"));
        let said = refused(&scene, &["load", "blocked", &many, "--replace"]);
        assert!(
            said.contains("the table takes 1000 entries: 1001 are too many (nothing was changed"),
            "{said}"
        );
        let said = refused(&scene, &["load", "blocked", &many]);
        assert!(said.contains("2 are there, and of 1000 new ones 998 fit"), "{said}");
        assert!(refused(&scene, &["load", "blocked", "/nowhere.csv"]).contains("/nowhere.csv: No such file"));
        assert_eq!(table(&scene, &["dump", "blocked"]), dumped, "{tier}");

        let list = scene
            .script("list.json", "[{\"key\": \"2001:db8:1::/48\", \"value\": 9}, {\"key\": \"::/127\"}]");
        assert_eq!(
            table(&scene, &["load", "blocked", &list, "--replace"]),
            "blocked: 2 entries written, 1 removed\n"
        );
        assert_eq!(
            table(&scene, &["dump", "blocked"]),
            "prefix,value\n::/127,1\n2001:db8:1::/48,9\n",
            "{tier}"
        );
        scene.sidestep(&["unload", &file]);
    }
}

/// Places that the kernel takes for its processors are none of an entry's.
#[test]
fn a_table_that_evicts_keeps_what_it_is_given_up_to_its_limit() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let text = r#"
local known = nf.table { name = "known", key = "int", value = "int", limit = 1000, when_full = "oldest", persistent = true }
local few = nf.table { name = "few", key = "int", value = "int", limit = 10, when_full = "oldest" }
function process_packet(p)
  known:get(1) few:get(1)
  return NF_ACCEPT
end
"#;
    let file = scene.script("evicts.lua", text);
    let list = |from: u32, count: u32| {
        let lines = (from..from + count).map(|number| format!("{number},{number}\n"));
        scene.script("list.csv", &lines.collect::<String>())
    };
    let dumped = |name: &str| table(&scene, &["dump", name]).lines().count() - 1;
    for tier in TIERS {
        let host = scene.serve();
        load(&scene, &file, tier);
        assert_eq!(
            table(&scene, &["load", "known", &list(0, 1000)]),
            "known: 1000 entries written\n",
            "{tier}"
        );
        assert_eq!(dumped("known"), 1000, "{tier}");
        for (from, removed) in [(0, ""), (500, ", 500 removed"), (500, "")] {
            let said = table(&scene, &["load", "known", &list(from, 1000), "--replace"]);
            assert_eq!(said, format!("known: 1000 entries written{removed}\n"), "{tier}");
            assert_eq!(dumped("known"), 1000, "{tier}");
        }
        let listed = parsed(&table(&scene, &["list", "--json"]));
        assert_eq!(listed["tables"][1]["limit"], 1000, "{tier}");

        // A new one takes the place of one, if of any.
        table(&scene, &["load", "few", &list(0, 10)]);
        table(&scene, &["set", "few", "10", "10"]);
        assert!((10..=11).contains(&dumped("few")), "{tier}: {}", dumped("few"));
        assert_eq!(table(&scene, &["get", "few", "10"]), "10\n", "{tier}");

        // One that holds more than its limit takes what it was dumped to, and comes back: to its limit, or more.
        table(&scene, &["load", "known", &list(0, 100)]);
        let all = table(&scene, &["dump", "known"]);
        let is_full = |count: usize| count >= 1000 && (tier == "kernel" || count == 1000);
        assert!(is_full(all.lines().count() - 1), "{tier}: {all}");
        let said = table(&scene, &["load", "known", &scene.script("all.csv", &all), "--replace"]);
        assert!(said.starts_with("known: 1") && is_full(dumped("known")), "{tier}: {said}");
        assert!(host.stop(Duration::from_secs(10)).success());
        let host = scene.serve();
        load(&scene, &file, tier);
        assert!(is_full(dumped("known")), "{tier}: {}", dumped("known"));
        scene.sidestep(&["unload", &file]);
        assert!(host.stop(Duration::from_secs(10)).success());
    }
}

/// Every packet finds the prefix that is in both files, however often one takes the other's place.
#[test]
fn what_is_in_both_files_is_never_missing_while_packets_flow() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let keep = r#"
local kept = nf.prefixes { name = "kept", limit = 2001 }
function process_packet(p)
  local ip = p:data(packet_eth):data(packet_ip6)
  if kept:find(ip:daddr():get()) then return NF_ACCEPT end
  return NF_DROP
end
"#;
    let file = scene.script("keep.lua", keep);
    // Full with either: there is no room for both.
    let list = |letter: &str| {
        let others = (0..2000).fold(String::new(), |mut text, number| {
            let _ = writeln!(text, "2001:db8:{letter}:{number:x}::/64");
            text
        });
        scene.script(&format!("{letter}.csv"), &format!("{SERVER}\n{others}"))
    };
    let lists = [list("a"), list("b")];
    for tier in TIERS {
        load(&scene, &file, tier);
        table(&scene, &["load", "kept", &lists[0]]);
        let before = Echoes::parse(&scene.echoes(&scene.client));
        let done = AtomicBool::new(false);
        let (replaced, pings) = std::thread::scope(|scope| {
            let replaces = scope.spawn(|| {
                let mut replaced = 0;
                while !done.load(Ordering::Relaxed) {
                    replaced += 1;
                    let said = table(&scene, &["load", "kept", &lists[replaced % 2], "--replace"]);
                    assert_eq!(said, "kept: 2001 entries written, 2000 removed\n");
                }
                replaced
            });
            let mut command = scene.client.command("ping").expect("the namespace");
            let output = command.args(["-q", "-f", "-c", "20000", SERVER]).output().expect("ping");
            done.store(true, Ordering::Relaxed);
            (replaces.join().expect("replaced"), String::from_utf8_lossy(&output.stdout).into_owned())
        });
        assert!(replaced > 1, "{tier}: {replaced}");
        assert!(before.all_answered(&pings, || scene.echoes(&scene.client)), "{tier}: {pings}");
        assert_eq!(scene.only_status()["verdicts"]["NF_DROP"], 0, "{tier}");
        scene.sidestep(&["unload", &file]);
    }
}

/// How long it takes is told: the figures of `docs/scripting-performance.md`.
#[test]
fn a_hundred_thousand_prefixes_are_loaded_and_come_back() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = scene.script("guard.lua", &GUARD.replace("limit = 1000", "limit = 100000"));
    let mut list = String::from("prefix,value\n");
    for number in 0..50_000_u32 {
        let (high, low) = (number >> 8, number & 0xff);
        let _ = writeln!(list, "10.{high}.{low}.0/24,{number}");
    }
    for number in 0..50_000_u32 {
        let _ = writeln!(list, "2001:db8:{number:x}::/48,{number}");
    }
    let path = scene.script("list.csv", &list);
    for tier in TIERS {
        load(&scene, &file, tier);
        for words in [&["load", "blocked", &path][..], &["load", "blocked", &path, "--replace"]] {
            let began = Instant::now();
            assert_eq!(table(&scene, words), "blocked: 100000 entries written\n");
            println!("{tier}: {} {:.2} s", words[3..].concat(), began.elapsed().as_secs_f64());
        }
        let dumped = table(&scene, &["dump", "blocked"]);
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().skip(1).map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let canonical = list.replace("2001:db8:0::/48", "2001:db8::/48");
        assert!(sorted(&dumped) == sorted(&canonical), "{tier}");
        assert!(scene.ping(&scene.client, SERVER, &["-c", "3", "-i", "0.01"]).ends_with(" 100%"), "{tier}");
        assert_eq!(table(&scene, &["get", "blocked", SERVER]), "15 (2001:db8:f::/48)\n");
        assert_eq!(table(&scene, &["delete", "blocked", "--all"]), "blocked: 100000 entries removed\n");
        scene.sidestep(&["unload", &file]);
    }
}

/// Counts what comes, and keeps that where it is asked to.
const KEEPER: &str = r#"
local blocked = nf.prefixes { name = "blocked", limit = 100, persistent = true }
local seen = nf.table { name = "seen", key = { "ipv6", "int" }, value = "int", limit = 100, persistent = true }
local packets = nf.counter { name = "packets", persistent = true }
local lost = nf.counter "lost"
function process_packet(p)
  local ip = p:data(packet_eth):data(packet_ip6)
  if not ip then return NF_ACCEPT end
  packets:add()
  lost:add()
  if blocked:find(ip:daddr():get()) then return NF_DROP end
  seen:add(ip:daddr():get(), ip:nexthdr():get(), 1)
  return NF_ACCEPT
end
"#;

/// What a host has written to be kept, once this holds of it.
fn wait_until_kept(scene: &ScriptScene, holds: impl Fn(&str) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let (_, text) = scene.run(&scene.router, &["sh", "-c", "cat /run/sidestep/scripts-*.tables"]);
        if holds(&text) {
            return;
        }
        assert!(Instant::now() < deadline, "it is not kept: {text}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn what_a_script_asks_to_keep_outlives_the_host_in_either_tier() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = scene.script("keeper.lua", KEEPER);
    let ping = |count: &str| scene.ping(&scene.client, SERVER, &["-c", count, "-i", "0.01"]);
    // From one tier to the other, and back.
    for tiers in [["kernel", "user"], ["user", "kernel"]] {
        let host = scene.serve();
        load(&scene, &file, tiers[0]);
        assert!(ping("3").ends_with(" 0%"));
        table(&scene, &["set", "blocked", "2001:db8:f::/48", "4"]);
        table(&scene, &["set", "blocked", "10.0.0.0/8"]);
        assert!(host.stop(Duration::from_secs(10)).success());

        let host = scene.serve();
        load(&scene, &file, tiers[1]);
        assert_eq!(table(&scene, &["get", "packets"]), "3\n", "{tiers:?}");
        assert_eq!(table(&scene, &["get", "lost"]), "0\n", "{tiers:?}");
        assert_eq!(table(&scene, &["get", "seen", SERVER, "58"]), "3\n", "{tiers:?}");
        assert_eq!(table(&scene, &["dump", "blocked"]), "prefix,value\n10.0.0.0/8,1\n2001:db8:f::/48,4\n");
        assert!(ping("2").ends_with(" 100%"), "{tiers:?}");

        // Killed: what has been written by then.
        table(&scene, &["set", "packets", "987654321"]);
        wait_until_kept(&scene, |text| text.contains("987654321"));
        host.kill();
        let host = scene.serve();
        load(&scene, &file, tiers[0]);
        assert_eq!(table(&scene, &["get", "packets"]), "987654321\n", "{tiers:?}");

        // Unloading forgets it.
        scene.sidestep(&["unload", &file]);
        load(&scene, &file, tiers[0]);
        assert_eq!(table(&scene, &["get", "packets"]), "0\n", "{tiers:?}");
        assert_eq!(table(&scene, &["dump", "blocked"]), "prefix,value\n", "{tiers:?}");
        scene.sidestep(&["unload", &file]);
        wait_until_kept(&scene, |text| !text.contains("tables\":"));
        assert!(host.stop(Duration::from_secs(10)).success());
    }
}

#[test]
fn a_table_of_other_kinds_begins_empty_and_says_so() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = scene.script("keeper.lua", KEEPER);
    for tier in TIERS {
        scene.script("keeper.lua", KEEPER);
        let host = scene.serve();
        load(&scene, &file, tier);
        table(&scene, &["set", "seen", SERVER, "58", "7"]);
        for number in 0..10 {
            table(&scene, &["set", "blocked", &format!("10.{number}.0.0/16")]);
        }
        assert!(host.stop(Duration::from_secs(10)).success());
        // Another kind of key, another limit.
        let other =
            KEEPER.replace("{ \"ipv6\", \"int\" }", "\"ipv6\"").replace(", ip:nexthdr():get(), 1", ", 1");
        scene.script("keeper.lua", &other.replace("\"blocked\", limit = 100", "\"blocked\", limit = 5"));
        let host = scene.serve();
        load(&scene, &file, tier);
        assert_eq!(table(&scene, &["dump", "seen"]), "key,value\n", "{tier}");
        assert_eq!(table(&scene, &["dump", "blocked"]), "prefix,value\n", "{tier}");
        let logs = scene.sidestep(&["logs"]);
        assert!(logs.contains("table \"seen\" begins empty: its kinds have changed"), "{logs}");
        assert!(
            logs.contains("table \"blocked\" begins empty: the table takes 5 entries: 10 are too many"),
            "{logs}"
        );
        scene.sidestep(&["unload", &file]);
        assert!(host.stop(Duration::from_secs(10)).success());
    }
}
