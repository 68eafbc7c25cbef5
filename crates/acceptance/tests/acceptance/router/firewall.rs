//! The firewall of the gateway's file: in force whatever others do, and whatever was applied beside it.

use std::os::unix::fs::PermissionsExt as _;

use lab::edited::Edited;
use lab::patience::{wait_for, wait_until};
use nix::sys::signal::Signal;

use super::HOME;
use super::scene::{INTERNET, RouterScene};

/// Applies a firewall that nobody will confirm: its time is over once there is a file `go`.
fn begin_trial(scene: &mut RouterScene, file: &str) {
    let folder = scene.folder.path().to_owned();
    let (slow, nft) = (folder.join("slow"), lab::command::find("nft").expect("nft"));
    std::fs::create_dir(&slow).expect("a folder");
    let script = format!(
        "#!/bin/sh\n{} \"$@\" || exit\n[ \"$1\" != -f ] || until [ -e {}/go ]; do sleep 0.1; done\n",
        nft.display(),
        folder.display()
    );
    std::fs::write(slow.join("nft"), script).expect("a program");
    std::fs::set_permissions(slow.join("nft"), std::fs::Permissions::from_mode(0o755)).expect("a program");
    let apply = format!(
        "cd {} && PATH={}:$PATH exec {} firewall apply {file} --confirm 100ms",
        folder.display(),
        slow.display(),
        scene.program()
    );
    scene.keep("gw", &["sh", "-c", &apply]);
}

#[test]
fn the_firewall_of_the_file_is_in_force_and_stays_so() {
    let Some(mut scene) = RouterScene::new() else { return };
    let before = scene.kernel();
    scene.start(&HOME);
    let (address, _) = wait_for("an address of the delegated prefix", || scene.host_address("2001:db8:10"));
    wait_until("the Internet", || scene.answers("host", INTERNET));
    scene.keep("host", &["socat", "TCP6-LISTEN:8080,fork,reuseaddr", "SYSTEM:echo hello"]);
    let url = format!("TCP6:[{address}]:8080,connect-timeout=1");
    let open =
        |scene: &RouterScene| scene.run("net", &["socat", "-T", "1", &url, "STDOUT"]).contains("hello");
    wait_until("the server", || scene.run("host", &["ss", "-6ltn"]).contains(":8080"));
    assert!(!open(&scene), "the Internet opens connections to hosts");
    assert!(scene.answers("net", &address), "echo requests are let in (RFC 4890)");

    // Somebody starts another firewall.
    scene.run("gw", &["nft", "flush", "ruleset"]);
    wait_until("the firewall again", || {
        scene.run("gw", &["nft", "list", "tables"]).contains("sidestep-firewall")
    });
    assert!(!open(&scene));

    // A rule more, by reload.
    let rule =
        "\n[[firewall.rule]]\nfrom = \"wan\"\nto = \"lan\"\nservice = \"tcp/8080\"\naction = \"accept\"\n";
    scene.write("gw.toml", &format!("{}{rule}", *HOME));
    scene.signal(Signal::SIGHUP);
    wait_until("the open port", || open(&scene));

    // A change that waits for a confirmation is not overwritten, and nothing of the new file is in force.
    scene.write("closed.toml", &HOME);
    begin_trial(&mut scene, "closed.toml");
    let table = |scene: &RouterScene| scene.run("gw", &["nft", "list", "table", "inet", "sidestep-firewall"]);
    wait_until("the change", || table(&scene).contains("chain applied-"));
    scene.write("gw.toml", &HOME.edited("fd12:3456:789a:1::/64", "fd12:3456:789a:2::/64"));
    scene.signal(Signal::SIGHUP);
    wait_until("the reason", || scene.log().contains("awaits confirmation"));
    assert!(!scene.run("gw", &["ip", "-6", "address"]).contains("fd12:3456:789a:2:"));
    // Nor does a start make it last, after a crash: it sets up all the rest, and the firewall from before comes back.
    scene.kill();
    scene.start_again();
    wait_until("the new prefix", || scene.run("gw", &["ip", "-6", "address"]).contains("fd12:3456:789a:2:"));
    assert!(table(&scene).contains("chain applied-"), "{}", table(&scene));
    scene.write("go", "");
    wait_until("the open port, by the firewall from before", || open(&scene));
    scene.signal(Signal::SIGHUP);
    wait_until("that of the file", || !table(&scene).contains("8080"));
    // The same after a stop.
    let apply = scene.sidestep(&["firewall", "apply", "closed.toml", "--confirm", "60s"]);
    assert!(apply.status.success(), "{apply:?}");
    scene.stop();
    assert_eq!(scene.kernel(), before);
    scene.start_again();
    assert!(table(&scene).contains("chain up-"), "{}", table(&scene));
    assert!(!scene.sidestep(&["firewall", "apply", "closed.toml"]).status.success());
    assert!(scene.sidestep(&["firewall", "confirm"]).status.success());
    scene.write("gw.toml", &HOME.edited("fd12:3456:789a:1::/64", "fd12:3456:789a:3::/64"));
    scene.signal(Signal::SIGHUP);
    wait_until("this prefix", || scene.run("gw", &["ip", "-6", "address"]).contains("fd12:3456:789a:3:"));
    // And after a stop nothing comes back.
    let apply = scene.sidestep(&["firewall", "apply", "closed.toml", "--confirm", "1s"]);
    assert!(apply.status.success(), "{apply:?}");
    scene.stop();
    let saved = "ls /run/sidestep/firewall-$(stat -L -c %i /proc/self/ns/net).*";
    wait_until("the end of its time", || scene.run("gw", &["sh", "-c", saved]).contains("No such file"));
    assert_eq!(scene.kernel(), before);
    scene.start_again();

    // At no time is there no firewall after a power cut.
    scene.kill();
    assert!(!open(&scene));
    scene.start_again();
    assert!(!open(&scene));
    scene.stop();
    assert_eq!(scene.kernel(), before);
}
