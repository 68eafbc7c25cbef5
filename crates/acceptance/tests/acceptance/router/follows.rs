//! A tunnel that hops where its uplink is: the provider delegates a prefix, and another, and the peer is told.

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
fn start(scene: &mut RouterScene, hop_prefix: &str) {
    let place = format!("external = \"wan0\"\nhop_prefix = \"{hop_prefix}\"");
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
    start(&mut scene, "uplink:fibre/7");
    let waits = || show(&scene, "gw", TUNNEL).is_some_and(|shown| shown["waits_for"] == "fibre");
    assert!(waits(), "there is no prefix yet");
    let shown = scene.run("gw", &[&scene.program(), "show", TUNNEL]);
    assert!(shown.contains("waits for a prefix of uplink fibre"), "{shown}");
    let found = scene.run("gw", &[&scene.program(), "doctor", "--tunnel", TUNNEL]);
    assert!(found.contains("uplink fibre has none for the tunnel yet"), "{found}");

    scene.start_provider("2001:db8:1000::");
    let old = crosses(&scene, "2001:db8:10");
    assert!(old.ends_with(":7::/64"), "{old}");
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
