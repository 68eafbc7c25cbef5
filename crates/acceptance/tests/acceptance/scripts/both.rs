//! Scripts in both tiers at once: the kernel decides what it can, and hands over the rest to Lua.

use std::time::Duration;

use lab::edited::Edited;
use lab::scale::scaled;

use super::scene::{SERVER, ScriptScene, example_path};

/// The kernel lets everything pass but requests for an echo, which Lua counts and changes.
const PINGS: &str = r#"
local seen = nf.counter "seen"
function process_packet(p)
  local ip = p:data(packet_eth):data(packet_ip6)
  local icmp = ip and ip:data(packet_icmp6)
  if not icmp or icmp:type():get() ~= 128 then return NF_ACCEPT end
  local number = { seen:add() }
  nf.log("ping", number[1])
  ip:hop_limit():set(33)
  return NF_ACCEPT
end
"#;

const BOTH: [&str; 6] = ["--hook", "ingress", "--dev", "lan", "--tier", "both"];

fn load(scene: &ScriptScene, file: &str, more: &[&str]) {
    scene.sidestep(&[&["load", file], &BOTH[..], more].concat());
}

fn reaches(scene: &ScriptScene) -> String {
    scene.ping(&scene.client, SERVER, &["-c", "3", "-i", "0.01"])
}

/// The mark is nobody else's to see, whatever the packet has become.
#[test]
fn lua_gets_what_the_kernel_leaves_and_nobody_sees_a_mark() {
    let Some(scene) = ScriptScene::new(false) else { return };
    scene
        .router
        .nft(
            "add table inet other\n\
             add chain inet other c { type filter hook prerouting priority 0; }\n\
             add rule inet other c meta mark != 0 drop\n\
             add chain inet other d { type filter hook forward priority 0; }\n\
             add rule inet other d iifname lan icmpv6 type echo-request ip6 hoplimit != 32 drop\n",
        )
        .expect("nft");
    let file = scene.script("pings.lua", PINGS);
    scene.sidestep(&["load", &file, "--hook", "ingress", "--dev", "lan"]);
    scene.tcp(SERVER, 1);
    let status = scene.status(1);
    assert_eq!((&status["tier"], &status["handed_over"]), (&"both".into(), &0.into()), "{status}");
    let packets = status["packets"].as_u64().expect("a number");
    assert!(packets > 100, "{status}");
    assert!(reaches(&scene).ends_with(" 0%"));
    let status = scene.status(1);
    assert_eq!((&status["handed_over"], &status["errors"]), (&3.into(), &0.into()), "{status}");
    assert!(status["packets"].as_u64() >= Some(packets + 3), "{status}");
    assert_eq!(status["verdicts"]["NF_ACCEPT"], status["packets"], "{status}");
    let list = scene.sidestep(&["list"]);
    assert!(
        list.contains("in both tiers") && list.contains("3 of them, handed over by the kernel"),
        "{list}"
    );
    let logs = scene.sidestep(&["logs"]);
    assert!(logs.contains("ping 1\n") && logs.contains("ping 3\n"), "{logs}");

    let traced = std::thread::scope(|scope| {
        let pings = scope.spawn(|| scene.ping(&scene.client, SERVER, &["-c", "20", "-i", "0.1"]));
        let traced = scene.sidestep(&["trace", "1"]);
        assert!(pings.join().expect("pings").ends_with(" 0%"));
        traced
    });
    assert!(
        traced.contains("ip:hop_limit():set(33)") && traced.ends_with("NF_ACCEPT, changed\n"),
        "{traced}"
    );
    scene.sidestep(&["unload", &file]);
    assert!(scene.ping(&scene.client, SERVER, &["-c", "1"]).ends_with(" 100%"), "it is gone");
}

#[test]
fn a_reload_of_both_halves_loses_no_packet_and_no_state() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let text = PINGS.edited("nf.log(\"ping\", number[1])", "");
    let file = scene.script("pings.lua", &text);
    load(&scene, &file, &[]);
    let count = scene.reload_under_a_flood("pings.lua", &text);
    // A host asks for neighbors itself, now and then: the counter has pings alone.
    assert_eq!(scene.status(1)["handed_over"], count, "{}", scene.sidestep(&["list"]));
    scene.script(
        "pings.lua",
        &text.edited(
            "local number = { seen:add() }",
            &format!("if seen:get() ~= {count} then return NF_DROP end"),
        ),
    );
    scene.sidestep(&["reload", &file]);
    assert!(reaches(&scene).ends_with(" 0%"));
    // What leaves nothing to the kernel is not taken in its place.
    scene.script("pings.lua", "function process_packet(p) nf.log(1) return NF_DROP end");
    assert!(scene.refusal(&["reload", &file]).contains("stays as it was"));
    assert!(reaches(&scene).ends_with(" 0%"));
}

/// Each has a bit of the mark: none is passed by because of another.
#[test]
fn scripts_at_one_interface_hand_over_the_same_packet() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let texts = [PINGS.to_owned(), PINGS.edited("NF_ACCEPT\nend", "NF_DROP\nend"), PINGS.to_owned()];
    let files: Vec<String> = texts
        .iter()
        .enumerate()
        .map(|(number, text)| {
            scene.script(&format!("{number}.lua"), &text.edited("\"seen\"", &format!("\"{number}\"")))
        })
        .collect();
    for file in &files {
        load(&scene, file, &["--match", "ip6 saddr fd00::/64 icmpv6 type 128"]);
    }
    assert!(reaches(&scene).ends_with(" 100%"));
    for id in 1..=3 {
        assert_eq!(scene.status(id)["handed_over"], 3, "{}", scene.sidestep(&["list"]));
    }
    scene.sidestep(&["unload", "2"]);
    assert!(reaches(&scene).ends_with(" 0%"));
    // Its bit is free again.
    load(&scene, &files[1], &[]);
    assert!(reaches(&scene).ends_with(" 100%"));
}

/// With links nothing is marked any more, and the rules find nothing; a filter stays, and so does the rule.
#[test]
fn a_host_that_is_killed_lets_packets_pass_unless_a_filter_stays() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = scene.script("pings.lua", PINGS);
    let has_links = linux_has_tcx();
    for (without, options, loss) in [
        (&[][..], &[][..], if has_links { " 0%" } else { " 100%" }),
        (&["--test-without", "tcx"], &[], " 100%"),
        (&["--test-without", "tcx"], &["--fail-open"], " 0%"),
    ] {
        let host = scene.serve_with(without);
        load(&scene, &file, options);
        assert!(reaches(&scene).ends_with(" 0%"));
        assert_eq!(scene.status(1)["handed_over"], 3);
        host.kill();
        assert!(reaches(&scene).ends_with(loss), "{without:?} {options:?}: {}", reaches(&scene));
    }
    let host = scene.serve();
    assert!(reaches(&scene).ends_with(" 0%"));
    assert!(host.stop(Duration::from_secs(5)).success());
}

/// Whether the kernel attaches programs to interfaces by links: Linux 6.6.
fn linux_has_tcx() -> bool {
    super::scene::verifies_long_scripts()
}

#[test]
fn what_cannot_be_handed_over_is_told_and_runs_in_the_user_tier() {
    let Some(scene) = ScriptScene::new(false) else { return };
    // One in the background would end with each script that it refuses.
    let _host = scene.serve();
    let file = scene.script("pings.lua", PINGS);
    let whole = scene.refusal(&["load", &file, "--hook", "ingress", "--dev", "lan", "--tier", "kernel"]);
    assert!(whole.contains("line 7: ") && whole.contains("--tier both"), "{whole}");
    for (hook, why) in [
        (&["--hook", "egress", "--dev", "wan"][..], "have passed netfilter"),
        (&["--hook", "forward", "--dev", "lan"], "at interfaces only"),
    ] {
        let refused = scene.refusal(&[&["load", &file], hook, &["--tier", "both"]].concat());
        assert!(refused.contains(why), "{refused}");
        scene.sidestep(&[&["load", &file], hook].concat());
    }
    assert_eq!((&scene.status(1)["tier"], &scene.status(2)["tier"]), (&"user".into(), &"user".into()));
    let changed = "function process_packet(p)\n  p:raw(21, 1):set(9)\n  nf.log(tostring(p:get()))\n  return NF_ACCEPT\nend\n";
    let changed = scene.script("changed.lua", changed);
    let refused = scene.refusal(&[&["load", &changed], &BOTH[..]].concat());
    assert!(refused.contains("line 3: ") && refused.contains("line 2 has changed the packet"), "{refused}");
}

/// Tables are in one tier: that of Lua, once one of those that share them hands over.
#[test]
fn scripts_that_share_tables_have_them_in_lua() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let text = format!("{PINGS}\nfunction whole(p) seen:add() return NF_ACCEPT end\n");
    let file = scene.script("pings.lua", &text);
    load(&scene, &file, &[]);
    let rest = ["--function", "whole", "--match", "icmpv6 type 128"];
    scene.sidestep(&[&["load", &file, "--hook", "ingress", "--dev", "lan"], &rest[..]].concat());
    assert_eq!(scene.status(2)["tier"], "user", "there is nothing that the kernel could decide");
    assert!(
        scene
            .refusal(
                &[&["load", &file, "--hook", "ingress", "--dev", "wan", "--tier", "kernel"], &rest[..]]
                    .concat()
            )
            .contains("shares its state")
    );
    assert!(reaches(&scene).ends_with(" 0%"));
    scene.script(
        "pings.lua",
        &format!("{text}\nfunction tell() nf.log('told', seen:get()) return NF_ACCEPT end\n"),
    );
    scene.sidestep(&["load", &file, "--hook", "forward", "--function", "tell", "--match", "icmpv6 type 128"]);
    scene.ping(&scene.client, SERVER, &["-c", "1"]);
    assert!(scene.sidestep(&["logs"]).contains("told 8\n"), "{}", scene.sidestep(&["logs"]));

    // The other way round: what is in the kernel's tables stays there.
    scene.sidestep(&["unload", &file]);
    scene.sidestep(
        &[&["load", &file, "--hook", "ingress", "--dev", "lan", "--tier", "kernel"], &rest[..]].concat(),
    );
    let refused = scene.refusal(&[&["load", &file], &BOTH[..]].concat());
    assert!(refused.contains("shares tables with script"), "{refused}");
}

/// What a filter of names costs packets that are none of its own. Figures are shown, not judged: they are the machine's.
#[test]
fn a_stream_past_a_filter_of_names_stays_in_the_kernel() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = example_path("tls_name_filter.lua");
    let mut rates: [Vec<f64>; 3] = Default::default();
    for _ in 0..scaled(1, 3) {
        for (rates, tier) in rates.iter_mut().zip([None, Some("user"), Some("both")]) {
            if let Some(tier) = tier {
                scene.sidestep(&["load", &file, "--hook", "ingress", "--dev", "lan", "--tier", tier]);
            }
            rates.push(small_packets(&scene));
            let Some(tier) = tier else { continue };
            scene.has_served(&[tier]);
            let status = scene.status(1);
            assert!(tier == "user" || status["handed_over"] == 0, "{status}");
            scene.sidestep(&["unload", &file]);
        }
    }
    let [none, user, both] = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    });
    eprintln!("{none:.0} packets/s without a script, {user:.0} in the user tier, {both:.0} in both");
    eprintln!("both is {:.1} times the user tier", both / user);
}

/// Datagrams of 64 octets from the client that arrive at the server in a second, of as many as can be sent.
fn small_packets(scene: &ScriptScene) -> f64 {
    let listen = ["iperf3", "-s", "-1"];
    let _server = scene.start(&scene.server, &listen, "iperf3", || scene.listens("tcp", 5201));
    let (_, text) =
        scene.run(&scene.client, &["iperf3", "-J", "-u", "-b", "0", "-l", "64", "-t", "2", "-c", SERVER]);
    let result: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let sum = &result["end"]["sum_received"];
    let [all, lost, seconds] =
        ["packets", "lost_packets", "seconds"].map(|name| sum[name].as_f64().expect("a number"));
    (all - lost) / seconds
}
