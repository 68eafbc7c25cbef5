//! A configuration that changes while traffic flows.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use lab::edited::Edited;
use lab::patience::wait_until;
use lab::{Lab, Node, Site};

use super::scene;
use crate::confined;

fn reload(lab: &mut Lab, site: Site) -> std::process::Output {
    let socket = format!("/run/sidestep/{}.sock", lab.gateway(site).tunnel());
    Command::new(lab.program()).args(["reload", "--socket", &socket]).output().expect("sidestep reload")
}

fn edit(lab: &mut Lab, site: Site, change: impl Fn(&str) -> String) {
    let path = lab.gateway(site).configuration().to_owned();
    let text = std::fs::read_to_string(&path).expect("a configuration");
    std::fs::write(&path, change(&text)).expect("a changed configuration");
}

#[test]
fn a_reload_keeps_sessions_and_a_broken_file_changes_nothing() {
    let Some(builder) = scene::lab() else { return };
    let mut lab = scene::up(builder);
    let handshakes = scene::number(&lab, Site::A, "handshakes");
    let stream = scene::start_stream(&lab, Site::A, 6);
    assert!(reload(&mut lab, Site::A).status.success(), "nothing changed");
    edit(&mut lab, Site::A, |text| {
        text.edited("\"2001:db8:b::/64\"", "\"2001:db8:b::/64\", \"2001:db8:b9::/64\"")
    });
    assert!(reload(&mut lab, Site::A).status.success(), "a prefix more");
    let routes = scene::run(&lab, Node::GatewayA, &["ip", "-6", "route"]);
    assert!(routes.contains("2001:db8:b9::/64"), "{routes}");

    edit(&mut lab, Site::A, |text| format!("{text}\nnonsense = true\n"));
    let refused = reload(&mut lab, Site::A);
    assert!(!refused.status.success(), "nonsense was taken");
    let routes = scene::run(&lab, Node::GatewayA, &["ip", "-6", "route"]);
    assert!(routes.contains("2001:db8:b9::/64"), "a refused file changed something: {routes}");

    edit(&mut lab, Site::A, |text| {
        text.edited("\nnonsense = true\n", "").edited(", \"2001:db8:b9::/64\"", "")
    });
    assert!(reload(&mut lab, Site::A).status.success(), "as it was");
    let routes = scene::run(&lab, Node::GatewayA, &["ip", "-6", "route"]);
    assert!(!routes.contains("2001:db8:b9::/64"), "{routes}");
    scene::assert_complete(&scene::finish(stream));
    assert_eq!(scene::number(&lab, Site::A, "handshakes"), handshakes, "the session was to stay");
    confined::assert_confined(lab.gateway_a().id().expect("it runs"), confined::TUNNEL);
}

/// Where many gateways read their files at once, as a fleet's do, what each runs is what they wait for.
#[test]
fn a_reload_runs_nft_once_for_other_rules_and_not_at_all_for_the_same() {
    let Some(program) = crate::program(&["nft"]) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let script = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a script");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("a script");
        path
    };
    // In a folder that the daemon may write to.
    let runs = "/run/sidestep/runs-of-nft";
    let nft = format!("PATH=${{PATH#*:}}; echo \"$*\" >> {runs}; exec nft \"$@\"");
    let folder = script("nft", &nft).parent().expect("a folder").display().to_string();
    let program = script("sidestep", &format!("PATH={folder}:$PATH exec {} \"$@\"", program.display()));
    let mut lab = scene::up(Lab::builder(program));

    let rules = |lab: &Lab| scene::run(lab, Node::GatewayA, &["nft", "--stateless", "list", "ruleset"]);
    let runs_of_reload = |lab: &mut Lab| {
        std::fs::write(runs, "").expect("a file");
        assert!(reload(lab, Site::A).status.success());
        // The news of its own changes are looked after in time, too.
        std::thread::sleep(Duration::from_secs(2));
        std::fs::read_to_string(runs).expect("a file").lines().count()
    };
    let before = rules(&lab);
    assert_eq!(runs_of_reload(&mut lab), 0, "nothing has changed");
    edit(&mut lab, Site::A, |text| text.edited("[[peer]]", "[[peer]]\nkeepalive = \"20s\""));
    assert_eq!(runs_of_reload(&mut lab), 0, "nothing that rules say");
    edit(&mut lab, Site::A, |text| {
        text.edited("\"2001:db8:b::/64\"", "\"2001:db8:b::/64\", \"fd00:b9::/64\"")
    });
    assert_eq!(runs_of_reload(&mut lab), 1, "all tables at once");
    assert_eq!(rules(&lab).matches("fd00:b9::/64").count(), 2, "in two tables: {}", rules(&lab));
    edit(&mut lab, Site::A, |text| text.edited(", \"fd00:b9::/64\"", ""));
    assert_eq!(runs_of_reload(&mut lab), 1, "and back");
    assert_eq!(rules(&lab), before);
    assert_eq!(lab.show(Site::A).expect("a status")["rules_restored"], 0, "nobody else changed them");
}

#[test]
fn a_change_that_nobody_confirms_is_taken_back() {
    let Some(builder) = scene::lab() else { return };
    let mut lab = scene::up(builder);
    let more = "2001:db8:b9::/64";
    let ask = |lab: &mut Lab, words: &[&str]| {
        let socket = format!("/run/sidestep/{}.sock", lab.gateway(Site::A).tunnel());
        let program = lab.program().to_owned();
        let mut command = lab.command(Node::GatewayA, program).expect("a command");
        let output = command.args(words).args(["--socket", &socket]).output();
        let output = output.expect("an end");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let routed = |lab: &Lab| {
        scene::run(lab, Node::GatewayA, &["ip", "-6", "route"]).contains(&format!("\n{more} dev"))
    };
    let stream = scene::start_stream(&lab, Site::A, 8);
    // A configuration that would cut the machine off its router is not taken at all.
    edit(&mut lab, Site::A, |text| text.edited("2001:db8:a1::/64", "2001:db8:fa::/64"));
    let (taken, said) = ask(&mut lab, &["reload"]);
    assert!(!taken && said.contains("it contains the network of ex"), "{said}");
    edit(&mut lab, Site::A, |text| text.edited("2001:db8:fa::/64", "2001:db8:a1::/64"));

    edit(&mut lab, Site::A, |text| {
        text.edited("\"2001:db8:b::/64\"", &format!("\"2001:db8:b::/64\", \"{more}\""))
    });
    assert!(ask(&mut lab, &["reload", "--confirm", "2s"]).0 && routed(&lab));
    let (taken, said) = ask(&mut lab, &["reload"]);
    assert!(!taken && said.contains("awaits confirmation"), "{said}");
    wait_until("what was before", || !routed(&lab));
    let (confirmed, said) = ask(&mut lab, &["confirm"]);
    assert!(!confirmed && said.contains("the time is over"), "{said}");

    assert!(ask(&mut lab, &["reload", "--confirm", "3s"]).0 && ask(&mut lab, &["confirm"]).0);
    scene::assert_complete(&scene::finish(stream));
    assert!(routed(&lab), "it was confirmed");

    // A start, too. It leaves nothing closed that was not before.
    assert!(lab.gateway(Site::A).stop());
    assert!(ask(&mut lab, &["down", "--open"]).0);
    lab.gateway(Site::A).set_arguments(&["--confirm", "1s"]);
    lab.gateway(Site::A).start().expect("a start");
    wait_until("its end", || lab.gateway(Site::A).ended().is_some());
    let routes = scene::run(&lab, Node::GatewayA, &["ip", "-6", "route"]);
    assert!(!routes.contains("proto 83"), "{routes}");
}

/// What the daemon has taken over but for its scripts is in force, and so stays in the files.
#[test]
fn a_peer_is_added_and_removed_also_where_a_script_cannot_be_loaded() {
    let Some(builder) = scene::lab() else { return };
    let mut lab = builder.build().expect("a lab");
    let file = lab.gateway(Site::A).configuration().to_owned();
    let folder = file.with_file_name("of-a.d");
    lab.gateway(Site::A).start().expect("a start");
    let script = another_script_host(&lab, &file);
    edit(&mut lab, Site::A, |text| format!("include = [\"of-a.d/*.toml\"]\n{text}{script}"));
    let program = lab.program().to_owned();
    let peer = |words: &[&str]| {
        let output = Command::new(&program).arg("peer").args(words).arg("--config").arg(&file).output();
        let output = output.expect("sidestep peer");
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success() && said.contains("all but the scripts was read again"), "{said}");
    };
    let peers = |lab: &Lab| lab.show(Site::A).expect("a status")["peers"].as_array().map(Vec::len);
    let key = "7zJkXoPE0tJj2hoGLLeV9QT8CVQk6ZRVVaWBAsoRKDo=";
    let new = ["--public-key", key, "--hop-prefix", "2001:db8:c1::/64", "--allowed", "2001:db8:c::/64"];
    peer(&[&["add", "site-c"], &new[..]].concat());
    assert!(folder.join("site-c.toml").exists() && peers(&lab) == Some(2));
    peer(&["remove", "site-c"]);
    assert!(!folder.join("site-c.toml").exists() && peers(&lab) == Some(1));
    // Who only reloads is told that something is wrong.
    let output = reload(&mut lab, Site::A);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("all but the scripts was read again"), "{said}");
    scene::run(&lab, Node::GatewayA, &[&program.to_string_lossy(), "script", "unload", "1"]);
}

/// Somebody has loaded a script by hand, so that a daemon cannot have a script host of its own. Returns a script that is valid, for
/// its configuration.
fn another_script_host(lab: &Lab, configuration: &Path) -> String {
    let script = configuration.with_file_name("of-a.lua");
    std::fs::write(&script, "function process_packet(p) return NF_ACCEPT end\n").expect("a script");
    let (program, script) = (lab.program().to_string_lossy().into_owned(), script.display());
    let words = [&program, "script", "load", &script.to_string(), "--hook", "forward"];
    let said = scene::run(lab, Node::GatewayA, &words);
    assert!(said.contains("script 1"), "{said}");
    format!("\n[[script]]\nfile = \"{script}\"\nhook = \"tunnel-in\"\n")
}

/// Who has been locked out by it gets in again whatever becomes of it.
#[test]
fn a_start_that_nobody_has_confirmed_leaves_nothing_closed_however_it_ends() {
    let Some(builder) = scene::lab() else { return };
    let mut lab = builder.build().expect("a lab");
    let program = lab.program().to_string_lossy().into_owned();
    let tunnel = lab.gateway(Site::A).tunnel().to_owned();
    let ask = |lab: &Lab, word: &str| scene::run(lab, Node::GatewayA, &[&program, word, &tunnel]);
    let closed = |lab: &Lab| {
        let words = "ip -6 route show proto 83; ip route show proto 83; nft list tables";
        scene::run(lab, Node::GatewayA, &["sh", "-c", words])
    };
    let fails = |lab: &mut Lab, why: &str| {
        lab.gateway(Site::A).launch().expect("a process");
        wait_until(why, || lab.gateway(Site::A).ended().is_some());
        lab.gateway(Site::A).kill();
    };
    lab.gateway(Site::A).set_arguments(&["--confirm", "60s"]);

    lab.gateway(Site::A).start().expect("a start");
    assert!(lab.gateway(Site::A).stop());
    assert_eq!(closed(&lab), "", "stopped");

    lab.gateway(Site::A).start().expect("a start");
    let said = ask(&lab, "down");
    assert!(said.contains("it keeps nothing closed"), "{said}");
    lab.gateway(Site::A).kill();
    assert_eq!(closed(&lab), "", "down");

    let route = |lab: &Lab, verb: &str| {
        let words = ["ip", "-6", "route", verb, "2001:db8:b::/64", "dev", "ex", "metric", "1024"];
        assert_eq!(scene::run(lab, Node::GatewayA, &words), "");
    };
    route(&lab, "add");
    fails(&mut lab, "a route in its way");
    assert_eq!(closed(&lab), "", "not set up");
    route(&lab, "del");

    let file = lab.gateway(Site::A).configuration().to_owned();
    let text = another_script_host(&lab, &file);
    edit(&mut lab, Site::A, |before| format!("{before}{text}"));
    fails(&mut lab, "no script host");
    scene::run(&lab, Node::GatewayA, &[&program, "script", "unload", "1"]);
    // The host of the scripts ends after it has answered.
    wait_until("no script host", || closed(&lab).is_empty());
    edit(&mut lab, Site::A, |before| before.edited(&text, ""));

    // One that was confirmed, or meant, stays closed; so it does where the next one fails.
    lab.gateway(Site::A).start().expect("a start");
    assert!(ask(&lab, "confirm").contains("confirmed"));
    assert!(lab.gateway(Site::A).stop());
    let meant = closed(&lab);
    assert!(meant.contains("unreachable 2001:db8:b::/64") && meant.contains("-outside"), "{meant}");
    route(&lab, "add");
    fails(&mut lab, "a route in its way");
    assert_eq!(closed(&lab), meant);
}

#[test]
fn a_gateway_changes_its_key_and_no_packet_is_lost() {
    let Some(builder) = scene::lab() else { return };
    let mut lab = scene::up(builder);
    let key = |words: &[&str], input: &str| {
        let mut command = Command::new(lab.program());
        let mut child =
            command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a start");
        child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("a key is read");
        let output = child.wait_with_output().expect("an end");
        String::from_utf8(output.stdout).expect("a key").trim().to_owned()
    };
    let new = key(&["genkey"], "");
    let public = key(&["pubkey"], &new);
    let stream = scene::start_stream(&lab, Site::A, 12);
    // Without the old key beside it the new one would end all sessions.
    let replaced = |text: &str, kept: bool| {
        let (before, rest) = text.split_once("private_key = \"").expect("a key");
        let (old, after) = rest.split_once('"').expect("its end");
        let kept = if kept { format!("previous_private_key = \"{old}\"") } else { String::new() };
        format!("{before}private_key = \"{new}\"\n{kept}{after}")
    };
    let before = std::fs::read_to_string(lab.gateway(Site::A).configuration()).expect("a configuration");
    edit(&mut lab, Site::A, |_| replaced(&before, false));
    let refused = String::from_utf8_lossy(&reload(&mut lab, Site::A).stderr).into_owned();
    assert!(refused.contains("previous_private_key"), "{refused}");
    edit(&mut lab, Site::A, |_| replaced(&before, true));
    // While nobody has confirmed the new one it can be taken back.
    let shown = |lab: &Lab| lab.show(Site::A).expect("a status")["public_key"].clone();
    let old = shown(&lab);
    let socket = format!("/run/sidestep/{}.sock", lab.gateway(Site::A).tunnel());
    let words = ["reload", "--confirm", "1s", "--socket", &socket];
    let answer = Command::new(lab.program()).args(words).output().expect("sidestep reload");
    assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
    assert_eq!(shown(&lab), public.as_str());
    wait_until("the old key", || shown(&lab) == old);
    assert!(reload(&mut lab, Site::A).status.success(), "the old key is kept");

    let of = |lab: &Lab, site, key: &str| scene::peer(lab, site)["session"][key].as_str().map(str::to_owned);
    assert_ne!(of(&lab, Site::A, "own_key").as_ref(), Some(&public), "the peer does not know it yet");
    edit(&mut lab, Site::B, |text| {
        text.edited("public_key = ", &format!("next_public_key = \"{public}\"\npublic_key = "))
    });
    assert!(reload(&mut lab, Site::B).status.success(), "another key for the peer");
    wait_until("a session with the new key", || {
        of(&lab, Site::A, "own_key").as_ref() == Some(&public)
            && of(&lab, Site::B, "peer_key").as_ref() == Some(&public)
    });
    // The old one goes, at both ends.
    edit(&mut lab, Site::B, |text| {
        let lines = text.lines().filter(|line| !line.starts_with("public_key"));
        lines.map(|line| format!("{line}\n")).collect::<String>().edited("next_public_key", "public_key")
    });
    edit(&mut lab, Site::A, |_| replaced(&before, false));
    for site in [Site::B, Site::A] {
        let answer = reload(&mut lab, site);
        assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
    }
    scene::assert_complete(&scene::finish(stream));
}

#[test]
fn a_gateway_moves_to_another_hopping_prefix() {
    let Some(builder) = scene::lab() else { return };
    let mut lab = scene::up(builder);
    scene::run(
        &lab,
        Node::Router,
        &[
            "sh",
            "-c",
            "ip -6 route show 2001:db8:a1::/64 | sed 's/^2001:db8:a1::/add 2001:db8:aa::/;s/^/route /' | sed 's/proto.*//;s/metric.*//' | ip -6 -batch -",
        ],
    );
    edit(&mut lab, Site::A, |text| text.edited("2001:db8:a1::/64", "2001:db8:aa::/64"));
    let answer = reload(&mut lab, Site::A);
    assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
    let moved = |lab: &Lab| {
        let there =
            |site, field: &str| scene::peer(lab, site)[field][0]["address"].as_str().map(str::to_owned);
        let at = |address: Option<String>| address.is_some_and(|a| a.starts_with("2001:db8:aa:"));
        at(there(Site::A, "local")) && at(there(Site::B, "remote"))
    };
    wait_until("both ends know the new prefix", || moved(&lab));
    scene::assert_complete(&scene::finish(scene::start_stream(&lab, Site::B, 4)));
}

#[test]
fn a_second_start_says_that_the_first_runs() {
    let Some(builder) = scene::lab() else { return };
    let mut lab = scene::up(builder);
    let file = lab.gateway_a().configuration().to_owned();
    let program = lab.program().to_owned();
    let mut second = lab.command(Node::GatewayA, program).expect("a command");
    let second = second.arg("up").arg(file).output().expect("an end");
    assert!(!second.status.success());
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains("exists") || said.contains("busy") || said.contains("another"), "{said}");
    scene::assert_complete(&scene::finish(scene::start_stream(&lab, Site::A, 2)));
}
