//! Scripts that run in the kernel: chosen where that can be, replaced between two packets, failing with their line.

use std::time::{Duration, Instant};

use lab::edited::Edited;
use linux::tun::{self, Offloads};
use serde_json::Value;

use super::scene::{CLIENT, ROUTER, SERVER, SERVER_IPV4, ScriptScene, has_netfilter_links};

const COUNT: &str = r#"
local seen = nf.counter "seen"
function process_packet(p)
  if seen:add() > 0 then return NF_ACCEPT end
  return NF_DROP
end
"#;

#[test]
fn a_reload_in_the_kernel_loses_no_packet_and_no_state() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = scene.script("count.lua", COUNT);
    scene.sidestep(&["load", &file, "--hook", "ingress", "--dev", "lan", "--tier", "kernel"]);
    let count = scene.reload_under_a_flood("count.lua", COUNT);
    // Text that knows what was counted before drops what comes.
    scene.script("count.lua", &COUNT.edited("> 0", &format!("< {count}")));
    scene.sidestep(&["reload", &file]);
    assert!(scene.ping(&scene.client, SERVER, &["-c", "3", "-i", "0.01"]).ends_with(" 100%"));
    scene.sidestep(&["unload", &file]);
    assert!(scene.ping(&scene.client, SERVER, &["-c", "3", "-i", "0.01"]).ends_with(" 0%"));
}

/// As kernels before Linux 6.6 have it.
#[test]
fn a_filter_is_replaced_under_a_flood_and_does_not_outlive_the_next_host() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let filters = || {
        let mut tc = scene.router.command("tc").expect("the namespace");
        let output = tc.args(["filter", "show", "dev", "lan", "ingress"]).output().expect("tc");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let file = scene.script("count.lua", COUNT);
    let load = ["load", &file, "--hook", "ingress", "--dev", "lan", "--tier", "kernel"];
    let host = scene.serve_with(&["--test-without", "tcx"]);
    scene.sidestep(&load);
    assert!(filters().contains("direct-action"), "{}", filters());
    scene.reload_under_a_flood("count.lua", COUNT);
    let drop = COUNT.edited("> 0", "< 0");
    scene.script("count.lua", &drop);
    scene.sidestep(&["reload", &file]);
    let reaches = || scene.ping(&scene.client, SERVER, &["-c", "3", "-i", "0.01"]);
    assert!(reaches().ends_with(" 100%"));
    scene.sidestep(&["unload", &file]);
    assert_eq!(filters(), "");
    assert!(reaches().ends_with(" 0%"));

    scene.sidestep(&load);
    host.kill();
    assert!(reaches().ends_with(" 100%"), "the kernel keeps it");
    let host = scene.serve_with(&["--test-without", "tcx"]);
    assert_eq!(filters(), "");
    assert!(reaches().ends_with(" 0%"));
    // And a clean end takes it away.
    scene.sidestep(&load);
    assert!(host.stop(Duration::from_secs(5)).success());
    assert_eq!(filters(), "");
}

/// The kernel detaches programs with their interface. The second of the three is at XDP; the last one hands over to Lua what
/// it is to drop.
#[test]
fn a_program_comes_back_with_its_interface_and_nothing_passes_without_it() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let _host = scene.serve();
    let dropped =
        "local all = nf.counter 'all'\nfunction process_packet(p)\n  all:add()\n  return NF_DROP\nend\n";
    let handed_over = "function process_packet(p)\n  if #p > 5000 then return NF_ACCEPT end\n  local all = { #p }\n  \
                       return all[1] > 0 and NF_DROP or NF_ACCEPT\nend\n";
    // Whoever waits for what is lost waits for long.
    let ping = ["ping", "-q", "-c", "5", "-i", "0.01", "-W", "0.2", SERVER];
    let passes = || scene.run(&scene.client, &ping).0;
    let rules = || scene.run(&scene.router, &["nft", "list", "table", "inet", "sidestep-scripts"]).1;
    let wait = |what: &str, holds: &dyn Fn(&Value) -> bool| {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !holds(&scene.only_status()) {
            assert!(Instant::now() < deadline, "{what}: {}", scene.sidestep(&["list"]));
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    for (text, more) in
        [(dropped, &["--tier", "kernel"][..]), (dropped, &["--xdp"]), (handed_over, &["--tier", "both"])]
    {
        let file = scene.script("drop.lua", text);
        scene.load(&file, "--hook ingress --dev lan --match", &[&["icmpv6 type 128"], more].concat());
        assert!(!passes(), "{more:?}");
        scene.unplug_client();
        wait("it is detached", &|status| status["not_attached"] == "there is no interface lan");
        assert!(rules().contains("iifname \"lan\""), "{}", rules());
        assert_eq!(scene.metric("sidestep_script_attached{"), "0");
        assert!(scene.sidestep(&["list"]).contains("attached  no, and its packets are dropped: there is"));
        let refused = scene.refusal(&["reload", &file]);
        assert!(refused.contains("there is no interface lan\nthe script stays as it was"), "{refused}");
        scene.plug_client_in();
        assert!(!passes(), "{more:?}");
        wait("it is attached", &|status| status["not_attached"].is_null());
        assert_eq!(scene.metric("sidestep_script_attached{"), "1");
        let before = scene.only_status()["verdicts"]["NF_DROP"].as_u64();
        assert!(!passes(), "{more:?}");
        assert!(scene.only_status()["verdicts"]["NF_DROP"].as_u64() > before, "{more:?}");
        scene.sidestep(&["reload", &file]);
        scene.sidestep(&["unload", &file]);
        let back = scene.ping(&scene.client, SERVER, &["-c", "3", "-i", "0.01"]);
        assert!(back.ends_with(" 0%"), "{more:?}: {back}");
        assert!(!rules().contains("lan"), "{}", rules());
    }
}

/// Its packets have another form from then on.
#[test]
fn an_interface_without_a_link_header_takes_the_place_of_one_with_it() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let _host = scene.serve();
    let file = scene.script("drop.lua", "function process_packet(p) return NF_DROP end\n");
    scene.router.ip("link add name out type veth peer name beside\n").expect("an interface");
    scene.load(&file, "--hook egress --dev out --match", &["icmpv6 type 128", "--tier", "kernel"]);
    scene.load(&file, "--hook ingress --dev out --xdp --match", &["icmpv6 type 128"]);
    scene.router.ip("link del dev out\n").expect("it goes");
    let another = || tun::create("out", 1, Offloads::Checksums).expect("a device");
    let _another = ScriptScene::within(&scene.router, another);
    scene.router.ip("addr add 2001:db8:7::1/64 dev out nodad\nlink set dev out up\n").expect("an address");
    let deadline = Instant::now() + Duration::from_secs(60);
    let is_settled = || {
        let at_xdp = scene.status(2)["not_attached"].as_str().unwrap_or_default().contains("no link header");
        at_xdp && scene.status(1)["not_attached"].is_null()
    };
    while !is_settled() {
        assert!(Instant::now() < deadline, "{}", scene.sidestep(&["list"]));
    }
    scene.run(&scene.router, &["ping", "-c", "2", "-i", "0.01", "-W", "0.2", "2001:db8:7::2"]);
    let status = scene.status(1);
    assert!(status["verdicts"]["NF_DROP"].as_u64() > Some(0) && status["errors"] == 0, "{status}");
}

/// In Lua it has room at once; a program cannot take out what has expired, so the host does.
#[test]
fn a_full_table_has_room_again_when_its_entries_have_expired() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = scene.script(
        "seen.lua",
        "local seen = nf.table { name = 'seen', key = 'int', limit = 2, expires = 1000 }\n\
         function process_packet(p)\n  if seen:set(#p, 1) then return NF_ACCEPT end\n  return NF_DROP\nend\n",
    );
    scene.load(&file, "--hook ingress --dev lan --tier kernel --match", &["icmpv6 type 128"]);
    let passes = |size: &str| scene.ping(&scene.client, SERVER, &["-c", "1", "-s", size]).ends_with(" 0%");
    assert!(passes("10") && passes("20"));
    let deadline = Instant::now() + Duration::from_secs(60);
    while !passes("30") {
        assert!(Instant::now() < deadline, "{}", scene.sidestep(&["table", "dump", "seen"]));
    }
    scene.sidestep(&["unload", &file]);
}

#[test]
fn what_cannot_be_compiled_runs_in_the_user_tier() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let text = "function later() end\nfunction process_packet(p)\n  nf.schedule(nil, \"later\", 1, 0)\n  return NF_ACCEPT\nend\n";
    let file = scene.script("later.lua", text);
    let load = ["load", &file, "--hook", "ingress", "--dev", "lan", "--match", "icmpv6 type 128"];
    let refused = scene.refusal(&[&load[..], &["--tier", "kernel"]].concat());
    assert!(refused.contains("line 3"), "{refused}");
    let change = "function process_packet(p) p:raw(21, 1):set(9) return NF_ACCEPT end";
    let change = scene.script("change.lua", change);
    let refused = scene.refusal(&["load", &change, "--hook", "forward", "--tier", "kernel"]);
    assert!(!has_netfilter_links() || refused.contains("line 1: it changes the packet"), "{refused}");
    scene.sidestep(&load);
    assert_eq!(scene.status(1)["tier"], "user");
    assert!(scene.ping(&scene.client, SERVER, &["-c", "3", "-i", "0.01"]).ends_with(" 0%"));
    assert_eq!(scene.status(1)["packets"], 3);
}

#[test]
fn what_is_logged_in_the_kernel_is_told_as_elsewhere() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let text = |word: &str| {
        format!(
            "function process_packet(p)\n  local ip = p:data(packet_eth):data(packet_ip6)\n  \
             nf.log(\"{word}\", ip:saddr():get(), #p, ip:hop_limit():get() == 1)\n  return NF_ACCEPT\nend\n"
        )
    };
    let file = scene.script("log.lua", &text("first"));
    scene.sidestep(&["load", &file, "--hook", "ingress", "--dev", "lan", "--match", "icmpv6 type 128"]);
    assert_eq!(scene.status(1)["tier"], "kernel");
    let ping = || scene.ping(&scene.client, SERVER, &["-c", "2", "-i", "0.01"]);
    assert!(ping().ends_with(" 0%"));
    scene.script("log.lua", &text("second"));
    scene.sidestep(&["reload", &file]);
    assert!(ping().ends_with(" 0%"));
    let logs = scene.sidestep(&["logs"]);
    for word in ["first", "second"] {
        assert_eq!(logs.matches(&format!("{word} {CLIENT} 118 false")).count(), 2, "{logs}");
    }
}

#[test]
fn an_error_in_the_kernel_is_told_with_its_line() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = scene.script(
        "wrong.lua",
        "function process_packet(p)\n  local byte = p:get()[5000]\n  return NF_ACCEPT\nend\n",
    );
    let load = ["load", &file, "--hook", "ingress", "--dev", "lan", "--match", "icmpv6 type 128"];
    scene.sidestep(&[&load[..], &["--tier", "kernel"]].concat());
    assert!(scene.ping(&scene.client, SERVER, &["-c", "3", "-i", "0.01"]).ends_with(" 100%"));
    let status = scene.status(1);
    assert_eq!((&status["packets"], &status["errors"]), (&3.into(), &3.into()), "{status}");
    let message = status["last_error"]["message"].as_str().expect("a message");
    assert!(message.contains("wrong.lua:2: "), "{message}");
    scene.sidestep(&["unload", &file]);
    scene.sidestep(&[&load[..], &["--tier", "kernel", "--failure", "accept"]].concat());
    assert!(scene.ping(&scene.client, SERVER, &["-c", "3", "-i", "0.01"]).ends_with(" 0%"));
}

/// At hooks of netfilter: of which interfaces, in which order, and with which verdict.
#[test]
fn what_only_looks_runs_in_the_kernel_at_each_hook() {
    let Some(scene) = ScriptScene::new(false).filter(|_| has_netfilter_links()) else { return };
    let file = scene.script("pass.lua", "function process_packet(p) return NF_ACCEPT end\n");
    let hooks: [(&[&str], u64); 12] = [
        (&["prerouting", "--match", "icmpv6 type 128"], 5),
        (&["input", "--match", "icmpv6 type 128"], 2),
        (&["forward", "--match", "icmpv6 type 128"], 3),
        (&["output", "--match", "icmpv6 type 128"], 1),
        (&["postrouting", "--match", "icmpv6 type 128"], 4),
        (&["forward", "--match", "icmpv6 type 128", "--dev", "lan"], 3),
        (&["forward", "--match", "icmpv6 type 128", "--dev", "wan"], 0),
        (&["ingress", "--match", "icmpv6 type 128", "--dev", "lan", "--priority", "-400"], 5),
        (&["egress", "--match", "icmpv6 type 128 iif lan", "--dev", "wan"], 3),
        (&["output", "--match", "icmpv6 type 128", "--dev", "wan"], 1),
        (&["input", "--match", "icmpv6 type 128 iif wan"], 0),
        (&["forward", "--match", "icmp type 8 iif lan oif wan"], 2),
    ];
    for (hook, _) in hooks {
        scene.sidestep(&[&["load", &file, "--tier", "kernel", "--hook"], hook].concat());
    }
    let pings = [
        (&scene.client, SERVER, "3"),
        (&scene.client, ROUTER, "2"),
        (&scene.router, SERVER, "1"),
        (&scene.client, SERVER_IPV4, "2"),
    ];
    for (from, to, count) in pings {
        assert!(scene.ping(from, to, &["-i", "0.01", "-c", count]).ends_with(" 0%"), "{to}");
    }
    for (id, (hook, packets)) in (1..).zip(hooks) {
        let status = scene.status(id);
        assert_eq!(
            (&status["packets"], &status["errors"]),
            (&packets.into(), &0.into()),
            "{hook:?}: {status}"
        );
    }
    scene.sidestep(&["unload", &file]);
}

/// Of two at the same priority the last one loaded comes first; a chain of somebody else's at it is in nobody's way.
#[test]
fn scripts_at_a_hook_of_netfilter_have_an_order_and_are_replaced_under_a_flood() {
    let Some(scene) = ScriptScene::new(false).filter(|_| has_netfilter_links()) else { return };
    scene
        .router
        .nft("add table inet other\nadd chain inet other c { type filter hook forward priority -150; }\n")
        .expect("nft");
    let first = scene.script("first.lua", COUNT);
    let drop = scene.script("drop.lua", "function process_packet(p) return NF_DROP end\n");
    let rest = ["--hook", "forward", "--match", "icmpv6 type 128", "--tier", "kernel"];
    scene.sidestep(&[&["load", &first], &rest[..]].concat());
    let reaches = || scene.ping(&scene.client, SERVER, &["-c", "3", "-i", "0.01"]);
    assert!(reaches().ends_with(" 0%"));
    assert_eq!(scene.status(1)["packets"], 3);
    scene.sidestep(&[&["load", &drop], &rest[..]].concat());
    assert!(reaches().ends_with(" 100%"));
    assert_eq!((&scene.status(1)["packets"], &scene.status(2)["packets"]), (&3.into(), &3.into()));
    scene.sidestep(&["unload", &drop]);

    let count = scene.reload_under_a_flood("first.lua", COUNT);
    // One program for each packet: none was counted twice.
    assert_eq!(scene.status(1)["packets"], 3 + count);
    assert!(scene.status(1)["ns_per_packet"].as_u64().is_some_and(|ns| ns > 0));
    scene.sidestep(&["unload", &first]);
    assert!(reaches().ends_with(" 0%"));
}
