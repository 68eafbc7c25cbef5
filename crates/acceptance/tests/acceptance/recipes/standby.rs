//! Two gateways for one site, with the same key; keepalived says which of them has the addresses.

use lab::patience::wait_until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::scene::Scene;
use crate::two_gateways::network;

const KEEPALIVED: &str = include_str!("../../../../../examples/keepalived.conf");
/// The other site, inside.
const OTHER: &str = "2001:db8:b::1";

/// Both gateways and keepalived run, and the host reaches the other site.
fn two_gateways() -> Option<Scene> {
    let mut scene = Scene::new(&network::NODES, &["keepalived"])?;
    network::make(&scene, "2001:db8:a::", &format!("{OTHER}/128"));
    let [ours, theirs] = ["a.key", "b.key"].map(|name| scene.key(name));
    let configuration = |node: &str, site: &str, key: &str, other: &str| {
        format!(
            "[node]\nprivate_key_file = \"{site}.key\"\nexternal = \"eth0\"\nhop_prefix = \"2001:db8:{site}1::/64\"\n\
             [tunnel]\nname = \"{}\"\n[[peer]]\nname = \"other\"\npublic_key = \"{key}\"\nkeepalive = \"10s\"\n\
             hop_prefix = \"2001:db8:{other}1::/64\"\nallowed_ips = [\"2001:db8:{other}::/64\"]\n",
            scene.tunnel(node)
        )
    };
    for node in ["1", "2"] {
        scene.write(&format!("{node}.toml"), &configuration(node, "a", &theirs, "b"));
    }
    scene.write("b.toml", &configuration("b", "b", &ours, "a"));
    for node in ["b", "1", "2"] {
        scene.up(node);
    }
    for (node, priority) in [("1", "150"), ("2", "100")] {
        watch(&mut scene, node, priority);
    }
    wait_until("the first gateway has the addresses", || has_addresses(&scene, "1"));
    // keepalived starts it anew when it becomes master; before that it may answer already.
    wait_until("the first gateway has begun anew", || scene.log("1").matches(" is up, ").count() == 2);
    wait_until("the other site", || scene.answers("h", OTHER));
    Some(scene)
}

/// Starts keepalived with the example; in place of systemd, a script starts the program again.
fn watch(scene: &mut Scene, node: &str, priority: &str) {
    let (program, tunnel, folder) = (scene.program(), scene.tunnel(node), scene.path(""));
    let folder = folder.display();
    let again = scene.write(
        &format!("{node}.again"),
        &format!(
            "#!/bin/sh\nexec >> {folder}{node}.log 2>&1\n{program} down {tunnel}\n\
             {program} up {folder}{node}.toml --state-dir {folder}{node}.state &\n"
        ),
    );
    // An emulated machine takes longer to ask.
    let interval = if lab::scale::emulated() { "interval 10" } else { "interval 1" };
    let file = KEEPALIVED
        .replace("interval 1", interval)
        .replace("/usr/bin/sidestep show mt6d0", &format!("{program} show {tunnel}"))
        .replace("/usr/bin/systemctl restart sidestep@mt6d0", &again.display().to_string())
        .replace("priority 150", &format!("priority {priority}"))
        // On a busy machine keepalived itself may be late by more than three tenths of a second.
        .replace("advert_int 0.1", "advert_int 1");
    let file = scene.write(&format!("{node}.keepalived"), &file).display().to_string();
    let [pid, other] = ["pid", "vrrp"].map(|end| format!("{folder}{node}.{end}"));
    scene.start(node, &["keepalived", "-n", "-l", "-f", &file, "-p", &pid, "-r", &other]);
}

fn has_addresses(scene: &Scene, node: &str) -> bool {
    ["eth0", "eth1"]
        .iter()
        .all(|interface| scene.run(node, &["ip", "-6", "address", "show", "dev", interface]).contains("::1"))
        && scene.run(node, &["ip", "-6", "address", "show", "dev", "eth0"]).contains("2001:db8:fa::10/64")
}

/// Kills a gateway's daemon, which keepalived may have started.
fn crash(scene: &Scene, node: &str) {
    let file = format!("{node}.toml");
    for process in scene.node(node).processes() {
        let line = std::fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default();
        if line.contains("\0up\0") && line.contains(&file) {
            kill(Pid::from_raw(process.as_raw()), Signal::SIGKILL).expect("a daemon");
        }
    }
}

#[test]
fn a_second_gateway_with_the_same_key_takes_over() {
    let Some(mut scene) = two_gateways() else { return };
    // The second one runs all the time, with the same key, and tries to reach the peer: nobody notices.
    // A machine that is so busy that keepalived moves the addresses meanwhile has another try.
    let moves = || ["1", "2"].map(|node| scene.log(node).matches("Entering MASTER STATE").count());
    let lost = (0..5).find_map(|_| {
        let before = moves();
        let (lost, _) = scene.ping_while("h", OTHER, 5, || {});
        (moves() == before).then_some(lost)
    });
    assert_eq!(lost, Some(0), "while both run");

    let (lost, pause) = scene.ping_while("h", OTHER, 8, || {
        std::thread::sleep(std::time::Duration::from_secs(1));
        crash(&scene, "1");
        wait_until("the second gateway has the addresses", || has_addresses(&scene, "2"));
    });
    eprintln!("the daemon was killed: nothing passed for {pause:?}, {lost} of 400 lost");
    wait_until("the other site", || scene.answers("h", OTHER));

    // The first one is repaired, and has the addresses again; then its link outside is cut.
    scene.up("1");
    wait_until("the first gateway has the addresses", || has_addresses(&scene, "1"));
    wait_until("the other site", || scene.answers("h", OTHER));
    let (lost, pause) = scene.ping_while("h", OTHER, 8, || {
        std::thread::sleep(std::time::Duration::from_secs(1));
        scene.ip("r", "link set dev to-1 down");
        wait_until("the second gateway has the addresses", || has_addresses(&scene, "2"));
    });
    eprintln!("the link was cut: nothing passed for {pause:?}, {lost} of 400 lost");
    wait_until("the other site", || scene.answers("h", OTHER));
}
