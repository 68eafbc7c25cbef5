//! Tables over a reload: what is refused leaves them as they are, and other measures leave what is in them.

use super::scene::{SERVER, ScriptScene};

const GUARD: &str = r#"
local blocked = nf.prefixes { name = "blocked", limit = 100 }
local seen = nf.table { name = "seen", key = "int", limit = 100 }
function process_packet(p)
  local ip = p:data(packet_eth):data(packet_ip6)
  if not ip then return NF_ACCEPT end
  if blocked:find(ip:daddr():get()) then return NF_DROP end
  seen:add(ip:nexthdr():get(), 1)
  return NF_ACCEPT
end
function other(p)
  return blocked:find("2001:db8::1") and NF_DROP or NF_ACCEPT
end
"#;

const TIERS: [&str; 2] = ["kernel", "user"];

fn load(scene: &ScriptScene, file: &str, tier: &str, function: &str) {
    let at = ["--hook", "ingress", "--dev", "lan", "--match", "icmpv6 type 128", "--tier", tier];
    scene.sidestep(&[&["load", file, "--function", function], &at[..]].concat());
}

fn table(scene: &ScriptScene, words: &[&str]) -> String {
    scene.sidestep(&[&["table"], words].concat())
}

#[test]
fn a_text_that_is_refused_changes_no_table() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let _host = scene.serve();
    let file = scene.script("guard.lua", GUARD);
    let ping = || scene.ping(&scene.client, SERVER, &["-c", "2", "-i", "0.01"]);
    for tier in TIERS {
        load(&scene, &file, tier, "process_packet");
        load(&scene, &file, tier, "other");
        table(&scene, &["set", "blocked", "10.0.0.0/8", "5"]);
        assert!(ping().ends_with(" 0%"), "{tier}");
        let all = "blocked:add('::/0')";
        let other_limit = GUARD.replace("limit = 100", "limit = 200");
        let missing = if tier == "kernel" { "a table is made" } else { "no function other" };
        // The first function is known to be right when the second is refused.
        let without = |text: &str| {
            format!("{}\n{all}", text.replace("function other(p)", "local function other(p) local t = {}"))
        };
        for (text, why) in [
            (format!("{GUARD}\n{all}\nerror('no')"), "no"),
            (format!("{other_limit}\nerror('no')"), "no"),
            (without(GUARD), missing),
            (without(&other_limit), missing),
        ] {
            scene.script("guard.lua", &text);
            let refused = scene.refusal(&["reload", &file]);
            assert!(refused.contains(why), "{tier}: {refused}");
            assert!(ping().ends_with(" 0%"), "{tier}");
            assert_eq!(table(&scene, &["dump", "blocked"]), "prefix,value\n10.0.0.0/8,5\n", "{tier}");
        }
        // It is the packets' table that is told.
        assert_eq!(table(&scene, &["get", "seen", "58"]), "10\n", "{tier}");
        scene.script("guard.lua", GUARD);
        scene.sidestep(&["unload", &file]);
    }
}

#[test]
fn tables_keep_what_fits_when_their_measures_change() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let _host = scene.serve();
    for tier in TIERS {
        let file = scene.script("guard.lua", GUARD);
        load(&scene, &file, tier, "process_packet");
        for key in 1..=4 {
            table(&scene, &["set", "seen", &key.to_string(), "7"]);
            table(&scene, &["set", "blocked", &format!("10.{key}.0.0/16")]);
        }
        table(&scene, &["set", "blocked", "2001:db8:9::/48", "3"]);
        let entries = |name: &str| table(&scene, &["dump", name]).lines().count() - 1;
        for (text, there) in [
            (GUARD.replace("limit = 100", "limit = 2000"), [5, 4]),
            (GUARD.replace("key = \"int\"", "key = \"int\", expires = 3600000"), [5, 4]),
            (GUARD.replace("key = \"int\"", "key = \"int\", when_full = \"oldest\""), [5, 4]),
            (GUARD.replace("limit = 100", "limit = 6"), [5, 4]),
            (GUARD.replace("key = \"int\", limit = 100", "key = \"int\", limit = 3"), [5, 3]),
        ] {
            scene.script("guard.lua", &text);
            scene.sidestep(&["reload", &file]);
            assert_eq!(["blocked", "seen"].map(entries), there, "{tier}: {text}");
            // Packets find it, too.
            assert!(scene.ping(&scene.client, SERVER, &["-c", "1"]).ends_with(" 0%"), "{tier}");
            table(&scene, &["set", "blocked", "2001:db8:f::/48"]);
            assert!(scene.ping(&scene.client, SERVER, &["-c", "1"]).ends_with(" 100%"), "{tier}");
            table(&scene, &["delete", "blocked", "2001:db8:f::/48"]);
            if there[1] == 4 {
                table(&scene, &["delete", "seen", "58"]);
            }
        }
        let logs = scene.sidestep(&["logs"]);
        assert!(logs.contains("table \"seen\" has room for 3 of its 4 entries"), "{tier}: {logs}");
        scene.sidestep(&["unload", &file]);
    }
}

/// One of them is meant; the maps are those of both, also where a module of two files has declared them.
#[test]
fn scripts_that_share_tables_still_do_after_one_of_them_was_loaded_anew() {
    const MODULE: &str = "return nf.prefixes { name = 'blocked', limit = 100 }\n";
    let Some(scene) = ScriptScene::new(false) else { return };
    let _host = scene.serve();
    for tier in TIERS {
        let guard = scene.script("guard.lua", GUARD);
        scene.script("shared.lua", MODULE);
        let use_module = |function: &str| {
            format!(
                "local blocked = require 'shared'\n\
                 function {function}(p) return blocked:find('10.0.0.1') and NF_DROP or NF_ACCEPT end\n"
            )
        };
        let [one, two] = ["one", "two"].map(|name| scene.script(&format!("{name}.lua"), &use_module(name)));
        let at = ["--hook", "ingress", "--dev", "lan", "--match", "icmpv6 type 128", "--tier", tier];
        for (first, second, edited) in [
            (&["load", &guard, "--function", "other"][..], &["load", &guard][..], "guard.lua"),
            (
                &["load", &one, "--function", "one", "--state", "7"],
                &["load", &two, "--function", "two", "--state", "7"],
                "shared.lua",
            ),
        ] {
            let ids = [first, second].map(|words| {
                let said = scene.sidestep(&[words, &at[..]].concat());
                let id =
                    said.rsplit_once("script ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
                id.unwrap_or_else(|| panic!("{said}"))
            });
            let text = if edited == "guard.lua" { GUARD } else { MODULE };
            scene.script(edited, &text.replace("limit = 100", "limit = 200"));
            scene.sidestep(&["reload", &u64::to_string(&ids[0])]);
            table(&scene, &["set", "blocked", "::/0"]);
            table(&scene, &["set", "blocked", "10.0.0.0/8"]);
            let dropped = |id: u64| scene.status(id)["verdicts"]["NF_DROP"].as_u64();
            // The last loaded comes first.
            for id in [ids[1], ids[0]] {
                assert!(
                    scene.ping(&scene.client, SERVER, &["-c", "1"]).ends_with(" 100%"),
                    "{tier} {edited}"
                );
                assert_eq!(dropped(id), Some(1), "{tier} {edited}: {}", scene.sidestep(&["list"]));
                scene.sidestep(&["unload", &id.to_string()]);
            }
            assert!(scene.ping(&scene.client, SERVER, &["-c", "1"]).ends_with(" 0%"), "{tier} {edited}");
        }
    }
}

/// What waits for a script that is unloaded is not lost: it takes some milliseconds for each packet here.
#[test]
fn packets_that_wait_for_a_script_that_is_unloaded_go_on() {
    const SLOW: &str = "function process_packet(p)
        local n = 0 for i = 1, 200000 do n = n ~ i end
        return NF_ACCEPT
    end";
    let Some(scene) = ScriptScene::new(false) else { return };
    let host = scene.serve();
    let file = scene.script("slow.lua", SLOW);
    let at = ["--hook", "ingress", "--dev", "lan", "--match", "icmpv6 type 128", "--tier", "user"];
    for _ in 0..3 {
        scene.sidestep(&[&["load", &file], &at[..]].concat());
        let loss = std::thread::scope(|scope| {
            let pings =
                scope.spawn(|| scene.ping(&scene.client, SERVER, &["-c", "200", "-i", "0.001", "-W", "5"]));
            while scene.only_status()["packets"].as_u64().is_none_or(|packets| packets < 20) {
                std::thread::yield_now();
            }
            scene.sidestep(&["unload", &file]);
            pings.join().expect("pings")
        });
        assert!(loss.ends_with(" 0%"), "{loss}");
    }
    drop(host);
}
