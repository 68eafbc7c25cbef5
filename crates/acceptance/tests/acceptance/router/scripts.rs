//! Packet scripts of a gateway that has no tunnel.

use lab::edited::Edited;
use lab::patience::wait_until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::HOME;
use super::scene::{INTERNET, RouterScene};

const PINGS: &str = "function pass(p) return NF_ACCEPT end\nfunction never(p) return NF_DROP end\n";

fn said(scene: &RouterScene, words: &[&str]) -> String {
    let output = scene.sidestep(words);
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

fn hosts(scene: &RouterScene) -> Vec<Pid> {
    let cmdline = |pid: &Pid| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    scene.node("gw").processes().into_iter().filter(|pid| cmdline(pid).contains("serve")).collect()
}

#[test]
fn scripts_live_with_a_gateway_that_has_no_tunnel() {
    let Some(mut scene) = RouterScene::new() else { return };
    scene.write("pings.lua", PINGS);
    let script = "\n[[script]]\nfile = \"pings.lua\"\nhook = \"ingress\"\ndev = \"lan\"\nfunction = \"pass\"\n\
                  match = \"icmpv6 type 128\"\n";
    let with = |tier: &str, function: &str| {
        HOME.clone() + &script.edited("\"pass\"", &format!("\"{function}\"\ntier = \"{tier}\""))
    };
    let list = |scene: &RouterScene| said(scene, &["script", "list"]);
    for tier in ["kernel", "user"] {
        scene.start(&with(tier, "pass"));
        assert!(said(&scene, &["check", "gw.toml"]).contains("pings.lua gets packets at ingress"));
        wait_until("the Internet", || scene.answers("host", INTERNET));
        assert!(list(&scene).contains(&format!("pass in the {tier} tier")), "{}", list(&scene));

        scene.write("gw.toml", &with(tier, "never"));
        assert_eq!(said(&scene, &["reload"]).lines().count(), 1);
        assert!(!scene.answers("host", INTERNET), "{}", list(&scene));
        scene.write("gw.toml", &with(tier, "nowhere"));
        assert!(said(&scene, &["reload"]).contains("no function nowhere"));
        assert!(list(&scene).contains("never"), "all stays as it was: {}", list(&scene));

        // What nobody has confirmed is taken back.
        scene.write("gw.toml", &with(tier, "pass"));
        assert!(said(&scene, &["reload", "--confirm", "2s"]).contains("keeps it"));
        wait_until("the scripts from before", || list(&scene).contains("never"));
        assert!(!scene.answers("host", INTERNET));

        // A signal does what the command does; without scripts there is no process for them.
        scene.write("gw.toml", &HOME);
        scene.signal(Signal::SIGHUP);
        wait_until("no script host", || hosts(&scene).is_empty());
        assert!(scene.answers("host", INTERNET));
        scene.write("gw.toml", &with(tier, "never"));
        scene.signal(Signal::SIGHUP);
        wait_until("scripts again", || list(&scene).contains("never"));

        let [host] = hosts(&scene)[..] else { panic!("{:?}", hosts(&scene)) };
        kill(host, Signal::SIGKILL).expect("the host's own process");
        wait_until("another host", || matches!(hosts(&scene)[..], [other] if other != host));
        wait_until("its script", || list(&scene).contains("never"));
        match tier {
            "kernel" => scene.kill(),
            _ => scene.stop(),
        }
        wait_until("no host is left behind", || hosts(&scene).is_empty());
    }
}
