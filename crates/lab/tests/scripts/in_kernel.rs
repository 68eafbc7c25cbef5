//! Scripts that run in the kernel: chosen where that can be, replaced between two packets, failing with their line.

use crate::scene::{CLIENT, SERVER, Scene, has_tcx};

const COUNT: &str = r#"
local seen = nf.counter "seen"
function process_packet(p)
  if seen:add() > 0 then return NF_ACCEPT end
  return NF_DROP
end
"#;

#[test]
fn a_reload_in_the_kernel_loses_no_packet_and_no_state() {
    let Some(scene) = Scene::new("reload-k", false).filter(|_| has_tcx()) else { return };
    let file = scene.script("count.lua", COUNT);
    scene.sidestep(&["load", &file, "--hook", "ingress", "--dev", "lan", "--tier", "kernel"]);
    scene.reload_under_a_flood("count.lua", COUNT, 100_000);
    // Text that knows what was counted before drops what comes.
    scene.script("count.lua", &COUNT.replace("> 0", "< 100000"));
    scene.sidestep(&["reload", &file]);
    assert!(scene.ping(&scene.client, SERVER, &["-c", "3", "-i", "0.01"]).ends_with(" 100%"));
    scene.sidestep(&["unload", &file]);
    assert!(scene.ping(&scene.client, SERVER, &["-c", "3", "-i", "0.01"]).ends_with(" 0%"));
}

#[test]
fn what_cannot_be_compiled_runs_in_the_user_tier() {
    let Some(scene) = Scene::new("tier", false) else { return };
    let text = "function later() end\nfunction process_packet(p)\n  nf.schedule(nil, \"later\", 1, 0)\n  return NF_ACCEPT\nend\n";
    let file = scene.script("later.lua", text);
    let load = ["load", &file, "--hook", "ingress", "--dev", "lan", "--match", "icmpv6 type 128"];
    let refused = scene.refusal(&[&load[..], &["--tier", "kernel"]].concat());
    assert!(!has_tcx() || refused.contains("line 3"), "{refused}");
    let placeless = scene.refusal(&["load", &file, "--hook", "forward", "--tier", "kernel"]);
    assert!(placeless.contains("no place at an interface"), "{placeless}");
    scene.sidestep(&load);
    assert_eq!(scene.status(1)["tier"], "user");
    assert!(scene.ping(&scene.client, SERVER, &["-c", "3", "-i", "0.01"]).ends_with(" 0%"));
    assert_eq!(scene.status(1)["packets"], 3);
}

#[test]
fn what_is_logged_in_the_kernel_is_told_as_elsewhere() {
    let Some(scene) = Scene::new("log-k", false) else { return };
    let text = |word: &str| {
        format!(
            "function process_packet(p)\n  local ip = p:data(packet_eth):data(packet_ip6)\n  \
             nf.log(\"{word}\", ip:saddr():get(), #p, ip:hop_limit():get() == 1)\n  return NF_ACCEPT\nend\n"
        )
    };
    let file = scene.script("log.lua", &text("first"));
    scene.sidestep(&["load", &file, "--hook", "ingress", "--dev", "lan", "--match", "icmpv6 type 128"]);
    assert_eq!(scene.status(1)["tier"], if has_tcx() { "kernel" } else { "user" });
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
    let Some(scene) = Scene::new("error-k", false).filter(|_| has_tcx()) else { return };
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
