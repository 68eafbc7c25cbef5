//! Loading, reloading, following and losing scripts.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::Stdio;
use std::time::Duration;

use super::scene::{SERVER, ScriptScene};

const COUNT: &str = r#"
local seen = nf.counter "seen"
function process_packet(p)
  seen:add()
  return NF_ACCEPT
end
"#;

#[test]
fn a_reload_under_a_flood_loses_no_packet_and_no_state() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = scene.script("count.lua", COUNT);
    scene.sidestep(&["load", &file, "--hook", "forward", "--tier", "user"]);
    let count = scene.reload_under_a_flood("count.lua", COUNT);

    // Requests and answers, whichever thread and whichever text had them.
    let packets = scene.status(1)["packets"].as_u64().expect("a number");
    assert!(packets >= 2 * count, "{packets}");
    scene.script("count.lua", &format!("{COUNT}\nfunction tell() nf.log(seen:get()) return NF_ACCEPT end\n"));
    scene.sidestep(&["reload", &file]);
    scene.sidestep(&[
        "load",
        &file,
        "--hook",
        "forward",
        "--function",
        "tell",
        "--priority",
        "10",
        "--match",
        "icmpv6 type 128",
    ]);
    scene.ping(&scene.client, SERVER, &["-c", "1"]);
    let logs = scene.sidestep(&["logs"]);
    let told = logs.lines().filter_map(|line| line.split("script 2: ").nth(1)).next_back();
    let told: u64 = told.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{logs}"));
    assert!((packets + 1..packets + 20).contains(&told), "{told} after {packets}");
}

#[test]
fn a_script_that_cannot_be_loaded_changes_nothing() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let wrong = scene.script("wrong.lua", "function process_packet(p)\n  return NF_ACCEPT en\n");
    assert!(scene.refusal(&["load", &wrong, "--hook", "forward"]).contains("wrong.lua:2: "));
    assert!(scene.sidestep(&["list"]).contains("no scripts"));

    let file = scene.script("count.lua", COUNT);
    let missing = scene.refusal(&["load", &file, "--hook", "forward", "--function", "nothing"]);
    assert!(missing.contains("there is no function nothing"), "{missing}");
    assert!(scene.refusal(&["load", &file, "--hook", "ingress"]).contains("name it with dev"));
    assert!(scene.refusal(&["load", &file, "--hook", "input", "--match", "tcp dport"]).contains("column 10"));
    scene.sidestep(&["load", &file, "--hook", "forward", "--tier", "user"]);
    scene.script("count.lua", "function process_packet(p)\n  return NF_DROP\nend\nerror('no')\n");
    let refused = scene.refusal(&["reload", &file]);
    assert!(refused.contains("count.lua:4: no") && refused.contains("stays as it was"), "{refused}");
    assert!(scene.ping(&scene.client, SERVER, &["-c", "3", "-i", "0.01"]).ends_with(" 0%"));
}

#[test]
fn a_packet_is_followed_line_by_line() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = scene.script(
        "mark.lua",
        "function process_packet(p)\n  local ip = p:data(packet_eth):data(packet_ip6)\n  if ip:hop_limit():get() < 9 then\n    return NF_DROP\n  end\n  ip:hop_limit():set(33)\n  return NF_ACCEPT\nend\n",
    );
    scene.sidestep(&["load", &file, "--hook", "forward", "--match", "ip6 daddr 2001:db8:f::/64"]);
    let pings = std::thread::scope(|scope| {
        let pings = scope.spawn(|| scene.ping(&scene.client, SERVER, &["-c", "20", "-i", "0.1"]));
        let traced = scene.sidestep(&["trace", "1", "--match", "icmpv6 type 128"]);
        assert!(
            traced.contains("     2    local ip") && traced.contains("     6    ip:hop_limit():set(33)"),
            "{traced}"
        );
        assert!(!traced.contains("     4    ") && traced.ends_with("NF_ACCEPT, changed\n"), "{traced}");
        pings.join().expect("pings")
    });
    assert!(pings.ends_with(" 0%"), "{pings}");
}

#[test]
fn a_host_that_is_killed_leaves_what_was_asked_for() {
    let Some(scene) = ScriptScene::new(false) else { return };
    // Anybody may take an abstract name: none stops the host.
    let name = SocketAddr::from_abstract_name(b"sidestep-scripts").expect("a name");
    let router = linux::netns::Namespace::open(scene.router.name()).expect("the router");
    let _taken = router.run(|| UnixListener::bind_addr(&name)).expect("a thread").expect("a socket");
    let file = scene.script("count.lua", COUNT);
    let reaches = || scene.ping(&scene.client, SERVER, &["-c", "3", "-i", "0.05"]);
    for (options, loss) in [(&["--fail-open"][..], " 0%"), (&[], " 100%")] {
        let host = scene.serve();
        scene.sidestep(&[&["load", &file, "--hook", "forward", "--tier", "user"], options].concat());
        assert!(
            scene
                .refusal(&["serve", "--socket", "/run/sidestep/another.sock"])
                .contains("another script host")
        );
        assert!(reaches().ends_with(" 0%"));
        host.kill();
        assert!(reaches().ends_with(loss), "{options:?}: {}", reaches());
    }
    // The next one begins anew.
    let host = scene.serve();
    assert!(scene.sidestep(&["list"]).contains("no scripts"));
    assert!(reaches().ends_with(" 0%"));
    assert!(host.stop(Duration::from_secs(5)).success());
    let mut nft = scene.router.command("nft").expect("the namespace");
    let tables = nft.args(["list", "tables"]).output().expect("nft");
    assert_eq!(String::from_utf8_lossy(&tables.stdout), "");
}

/// The host ends with its last script, whoever asks it for something meanwhile, and the next one finds its place free.
#[test]
fn a_host_ends_at_once_while_its_log_is_followed() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = scene.script("count.lua", COUNT);
    for round in 0..4 {
        scene.sidestep(&["load", &file, "--hook", "forward", "--tier", "user"]);
        let followers = [0, 1].map(|_| {
            let mut command = scene.router.command(scene.program()).expect("the namespace");
            command.args(["script", "logs", "--follow"]).stdin(Stdio::null()).stdout(Stdio::null());
            command.stderr(Stdio::null()).spawn().expect("the program")
        });
        assert!(scene.ping(&scene.client, SERVER, &["-c", "20", "-i", "0.01"]).ends_with(" 0%"), "{round}");
        scene.sidestep(&["unload", &file]);
        for mut follower in followers {
            let _ = follower.kill();
            let _ = follower.wait();
        }
    }
}
