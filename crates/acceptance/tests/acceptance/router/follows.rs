//! A tunnel that hops where its uplink is: the provider delegates a prefix, and another, and the peer is told.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use lab::edited::Edited;
use lab::patience::{wait_for, wait_until};
use serde_json::Value;

use super::HOME;
use super::scene::RouterScene;

const TUNNEL: &str = "fo-mt6d";
const PEER: &str = "fo-peer";

/// A tunnel's file, but for the prefix that it hops in.
fn tunnel(scene: &RouterScene, names: (&str, &str), place: &str, inside: (char, char)) -> (String, String) {
    let private = String::from_utf8(scene.sidestep(&["genkey"]).stdout).expect("a key");
    scene.write("key", &private);
    let public = scene.run(
        "gw",
        &["sh", "-c", &format!("{} pubkey < {}/key", scene.program(), scene.folder.path().display())],
    );
    let text = format!(
        "[node]\nprivate_key = \"{}\"\n{place}\n[tunnel]\nname = \"{}\"\naddresses = [\"fd00:{}::1/128\"]\nopen_when_down = true\n\
         [[peer]]\nname = \"{}\"\npublic_key = \"PUBLIC\"\nhop_prefix = \"PREFIX\"\nallowed_ips = [\"fd00:{}::/64\"]\nkeepalive = \"25s\"\n",
        private.trim(),
        names.0,
        inside.0,
        names.1,
        inside.1,
    );
    (text, public.trim().to_owned())
}

fn show(scene: &RouterScene, node: &str, name: &str) -> Option<Value> {
    serde_json::from_str(&scene.run(node, &[&scene.program(), "show", name, "--json"])).ok()
}

/// Starts both; the peer is beside the provider, and knows nothing of where the other is.
fn start(scene: &mut RouterScene, place: &str) {
    let place = format!("external = \"wan0\"\n{place}");
    let (ours, our_key) = tunnel(scene, (TUNNEL, "b"), &place, ('a', 'b'));
    let place = "external = \"isp0\"\nhop_prefix = \"2001:db8:b1::/64\"";
    let (theirs, their_key) = tunnel(scene, (PEER, "a"), place, ('b', 'a'));
    scene.write("peer.toml", &theirs.edited("PUBLIC", &our_key).edited("PREFIX", "2001:db8:a1::/64"));
    let folder = scene.folder.path().display().to_string();
    scene.run("gw", &["chmod", "600", &format!("{folder}/peer.toml")]);
    let up = format!("exec {} up {folder}/peer.toml --state-dir {folder}/peer", scene.program());
    scene.start(&format!(
        "{}{}",
        ours.edited("PUBLIC", &their_key).edited("PREFIX", "2001:db8:b1::/64"),
        *HOME
    ));
    scene.start_peer(&["sh", "-c", &up]);
    wait_until("the peer's daemon", || show(scene, "net", PEER).is_some());
}

/// Waits until both ends know that the gateway hops in a prefix that begins so, and packets cross; the prefix.
fn crosses(scene: &RouterScene, begins: &str) -> String {
    let prefix = wait_for("a hopping prefix of the delegated one", || {
        let prefix = show(scene, "gw", TUNNEL)?["hop_prefix"].as_str()?.to_owned();
        prefix.starts_with(begins).then_some(prefix)
    });
    wait_until("a peer that knows of it", || {
        show(scene, "net", PEER).is_some_and(|shown| shown["peers"][0]["hop_prefix"] == prefix.as_str())
    });
    wait_until("packets that cross", || {
        let ping = ["ping", "-c", "2", "-i", "0.2", "-W", "1", "-I", "fd00:a::1", "fd00:b::1"];
        scene.run("gw", &ping).contains(" 0% packet loss")
    });
    assert_eq!(scene.status().expect("a status")["hop_prefix"], prefix.as_str());
    prefix
}

#[test]
fn the_tunnel_moves_with_the_prefix_that_is_delegated() {
    let Some(mut scene) = RouterScene::new() else { return };
    let before = scene.kernel();
    scene.stop_provider();
    start(&mut scene, "hop_prefix = \"uplink:fibre/7\"");
    let waits = || show(&scene, "gw", TUNNEL).is_some_and(|shown| shown["waits_for"] == "fibre");
    assert!(waits(), "there is no prefix yet");
    let shown = scene.run("gw", &[&scene.program(), "show", TUNNEL]);
    assert!(shown.contains("waits for a prefix of uplink fibre"), "{shown}");
    let found = scene.run("gw", &[&scene.program(), "doctor", "--tunnel", TUNNEL]);
    assert!(found.contains("uplink fibre has none for the tunnel yet"), "{found}");

    scene.start_provider("2001:db8:1000::");
    let old = crosses(&scene, "2001:db8:10");
    assert!(old.ends_with(":7::/64"), "{old}");
    let datagram =
        format!("udp from 2001:db8:b1::5 to {}5 port 4000 in wan out gateway", old.trim_end_matches("/64"));
    let explained = explained(&scene, &datagram);
    assert!(explained.to_string().contains("\"verdict\":\"accept\""), "{datagram}: {explained}");
    let network = old.trim_end_matches("/64").to_owned();
    assert!(scene.kernel().contains(&network), "the old one is there");

    // The provider renumbers; nobody reads a file again.
    scene.start_provider("2001:db8:3000::");
    let new = crosses(&scene, "2001:db8:30");
    assert!(new.ends_with(":7::/64"), "{new}");
    wait_until("nothing is left of the old prefix", || !scene.kernel().contains(&network));

    // Another part of it, by a reload.
    let file = std::fs::read_to_string(scene.folder.path().join("gw.toml")).expect("the file");
    scene.write("gw.toml", &file.edited("uplink:fibre/7", "uplink:fibre"));
    let reloaded = scene.sidestep(&["reload", TUNNEL]);
    assert!(reloaded.status.success(), "{}", scene.log());
    wait_until("the last part", || crosses(&scene, "2001:db8:30").ends_with("ff::/64"));
    scene.stop();
    assert_eq!(scene.kernel().replace('\n', " "), before.replace('\n', " "));
}

/// Changes the gateway's file, and has it read again with these words; what was said.
fn reload(scene: &RouterScene, change: impl Fn(&str) -> String, words: &[&str]) -> (bool, String) {
    let file = std::fs::read_to_string(scene.folder.path().join("gw.toml")).expect("the file");
    scene.write("gw.toml", &change(&file));
    let output = scene.sidestep(&[&["reload", TUNNEL], words].concat());
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// How many sessions there were with the peer, and since when there is the one in use, in seconds.
fn session(scene: &RouterScene) -> (u64, u64) {
    let shown = show(scene, "gw", TUNNEL).expect("a status");
    let peer = &shown["peers"][0];
    let age = peer["session"]["age_s"].as_u64().unwrap_or_else(|| panic!("no session: {}", scene.log()));
    (peer["handshakes"].as_u64().expect("a number"), age)
}

#[test]
fn sessions_stay_when_a_reload_is_refused_or_stops_following_or_is_taken_back() {
    let Some(mut scene) = RouterScene::new() else { return };
    start(&mut scene, "hop_prefix = \"uplink:fibre/7\"");
    let prefix = crosses(&scene, "2001:db8:10");
    wait_until("a session with an age", || session(&scene).1 > 0);
    let before = session(&scene);
    let stays = |what: &str| {
        let now = session(&scene);
        assert!(now.0 == before.0 && now.1 >= before.1, "{what}: {now:?} {before:?} {}", scene.log());
        assert_eq!(show(&scene, "gw", TUNNEL).expect("a status")["hop_prefix"], prefix.as_str(), "{what}");
    };
    let written = |text: &str| text.edited("\"uplink:fibre/7\"", &format!("\"{prefix}\""));
    let spins = |text: &str| text.edited("[tunnel]\n", "[tunnel]\nspin = \"0us\"\n");

    let (taken, said) = reload(&scene, |text| spins(&written(text)), &[]);
    assert!(!taken && said.contains("spin"), "{said}");
    stays("refused");
    // Long enough to look at it.
    let time = if lab::scale::emulated() { "20s" } else { "1s" };
    let (taken, said) = reload(&scene, |text| text.edited("spin = \"0us\"\n", ""), &["--confirm", time]);
    assert!(taken, "{said}");
    stays("with the prefix written out");
    assert!(scene.status().expect("a status")["hop_prefix"].is_null());
    wait_until("what was before", || scene.log().contains("nobody has confirmed the configuration: "));
    stays("taken back");
    assert_eq!(scene.status().expect("a status")["hop_prefix"], prefix.as_str());
    let (taken, said) = reload(&scene, str::to_owned, &[]);
    assert!(taken, "{said}");
    stays("written out for good");
    assert_eq!(scene.log().matches("the tunnel hops in").count(), 1, "{}", scene.log());
    assert!(!scene.log().contains("has no prefix any more"), "{}", scene.log());
}

#[test]
fn the_tunnel_stays_where_it_is_while_the_next_prefix_is_a_peers() {
    let Some(mut scene) = RouterScene::new() else { return };
    start(&mut scene, "hop_prefix = \"uplink:fibre/7\"");
    let old = crosses(&scene, "2001:db8:10");
    let key = scene.run("gw", &["sh", "-c", &format!("{0} genkey | {0} pubkey", scene.program())]);
    let other = format!(
        "\n[[peer]]\nname = \"other\"\npublic_key = \"{}\"\nhop_prefix = \"2001:db8:3000::/40\"\nallowed_ips = [\"fd00:c::/64\"]\n",
        key.trim()
    );
    let (taken, said) = reload(&scene, |text| format!("{text}{other}"), &[]);
    assert!(taken, "{said}");
    scene.start_provider("2001:db8:3000::");
    wait_until("a move that is refused", || scene.log().contains("cannot hop in"));
    assert_eq!(show(&scene, "gw", TUNNEL).expect("a status")["hop_prefix"], old.as_str());
    let local = scene.run("gw", &["ip", "-6", "route", "show", "table", "local", "type", "local"]);
    assert!(local.contains(&old), "{local}");
    let (taken, said) = reload(&scene, |text| text.edited(&other, ""), &[]);
    assert!(taken, "{said}");
    crosses(&scene, "2001:db8:30");
    assert_eq!(scene.log().matches("cannot hop in").count(), 1, "{}", scene.log());
}

#[test]
fn a_tunnel_on_the_link_stays_there_without_a_carrier_and_when_its_uplink_is_to_be_probed() {
    let Some(mut scene) = RouterScene::new() else { return };
    start(&mut scene, "hop_prefix = \"uplink:fibre\"\non_link = true");
    crosses(&scene, "2001:db8:0:1:");
    wait_until("a session with an age", || session(&scene).1 > 0);
    let before = session(&scene);
    let stays = |what: &str| {
        let now = session(&scene);
        assert!(now.0 == before.0 && now.1 >= before.1, "{what}: {now:?} {before:?} {}", scene.log());
        assert!(!scene.log().contains("has no prefix any more"), "{what}: {}", scene.log());
    };
    let probes = "[[uplink]]\nprobes = [\"2001:db8:ffff::1\"]\n";
    let (taken, said) = reload(&scene, |text| text.edited("[[uplink]]\n", probes), &[]);
    assert!(taken, "{said}");
    stays("another configuration of the uplink");

    scene.node("net").sysctl(&[("ipv6/conf/isp0/keep_addr_on_down", 1)]).expect("addresses that stay");
    let provider = |script: &str| scene.node("net").ip(script).expect("a link");
    let told = |reason: &str| scene.log().matches(&format!("the link is {reason}")).count();
    let ups = told("up");
    provider("link set isp0 down\n");
    wait_until("a link without a carrier", || told("down") > 0);
    stays("without a carrier");
    // But that one.
    provider("link set isp0 up\naddr add fe80::1/64 dev isp0 nodad\n");
    wait_until("a link with a carrier", || told("up") > ups);
    stays("with a carrier again");
    crosses(&scene, "2001:db8:0:1:");
}

/// What the gateway says of a packet, in words as those of `sidestep firewall explain`.
pub(super) fn explained(scene: &RouterScene, packet: &str) -> Value {
    let namespace = scene.run("gw", &["stat", "-Lc", "%i", "/proc/self/ns/net"]);
    let mut stream = UnixStream::connect(format!("/run/sidestep/gateway-{}.sock", namespace.trim()))
        .expect("the gateway's socket");
    writeln!(stream, "{}", serde_json::json!({ "command": "explain", "packet": packet })).expect("a request");
    stream.shutdown(Shutdown::Write).expect("the end of the request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    serde_json::from_str(&answer).expect("JSON")
}
