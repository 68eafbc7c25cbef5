//! How a tunnel lives: other configurations, other copies, other ends that die.

use lab::patience::wait_until;
use lab::process::Process;

use super::scene::{INNER, INNER_V4, Scene};

fn program() -> String {
    std::env::var("SIDESTEP_BIN").expect("the program")
}

#[test]
fn another_configuration_leaves_what_did_not_change_as_it_is() {
    let Some(scene) = Scene::new(&["ping"]) else { return };
    let _ends = scene.tunnel();
    // Something that is dropped, to see whether it is still counted afterwards.
    scene.namespaces[0].ip("route add fd00:c::/64 dev tunnel-a").expect("a route");
    assert!(!scene.pings(0, "fd00:c::1"));
    let (before, counted) = (scene.ike_sas(0), scene.status(0).expect("a status")["drops"].clone());
    assert!(counted.as_object().is_some_and(|drops| !drops.is_empty()), "{counted}");
    let good = std::fs::read_to_string(scene.path("a.toml")).expect("the file");
    let further = "[[remote]]\nname = \"c\"\nidentity = \"c.example\"\nshared_key_file = \"key\"\n\n\
                   [[remote.child]]\nlocal = [\"fd00:a::/64\"]\nremote = [\"fd00:c::/64\"]\n";
    let lost = scene.lost_while(0, INNER[1], || {
        // In front, so that the other one has another number.
        let (this_end, remotes) = good.split_once("[[remote]]").expect("a remote");
        scene.write("a.toml", &format!("{this_end}{further}\n[[remote]]{remotes}"), 0o600);
        let reloaded = scene.reload_by_command(0);
        assert!(reloaded.status.success(), "{}", String::from_utf8_lossy(&reloaded.stderr));
        scene.write("a.toml", &good.replace("fd00:b::/64", "nothing"), 0o600);
        let refused = scene.reload_by_command(0);
        assert!(
            !refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("\"nothing\"")
        );
    });
    assert_eq!((lost, scene.ike_sas(0)), (0, before));
    let drops = scene.status(0).expect("a status")["drops"].clone();
    for (reason, count) in counted.as_object().expect("drops") {
        assert!(drops[reason].as_u64() >= count.as_u64(), "{reason}: {drops}");
    }
}

#[test]
fn a_gateway_that_was_killed_and_is_back_is_found_by_who_sends() {
    let Some(scene) = Scene::new(&["ping"]) else { return };
    let [_a, b] = scene.tunnel();
    b.kill();
    let _b = scene.up(1);
    wait_until("an answer", || scene.pings(0, INNER[1]));
    assert_eq!((scene.ike_sas(0).len(), scene.ike_sas(1).len()), (1, 1));
}

#[test]
fn a_second_copy_under_another_name_is_told_who_has_the_ports() {
    let Some(scene) = Scene::new(&["ping"]) else { return };
    let _ends = scene.tunnel();
    let pid = scene.status(0).expect("a status")["pid"].to_string();
    let text = std::fs::read_to_string(scene.path("a.toml")).expect("the file");
    scene.write("c.toml", &text.replace("tunnel-a", "tunnel-c"), 0o600);
    let [file, socket] = ["c.toml", "c.sock"].map(|name| scene.path(name).display().to_string());
    let second = scene.on(0, &[&program(), "ipsec", "up", &file, "--socket", &socket]);
    let told = String::from_utf8_lossy(&second.stderr);
    assert!(told.contains(&format!("the tunnel tunnel-a (process {pid}) has it")), "{told}");
    assert!(!second.status.success() && scene.pings(0, INNER_V4[1]));
}

#[test]
fn a_tunnel_that_is_not_there_is_no_success_and_one_that_was_killed_is_told_from_it() {
    let Some(scene) = Scene::new(&["ping"]) else { return };
    let [a, _b] = scene.tunnel();
    a.kill();
    let socket = scene.path("a.sock").display().to_string();
    let nowhere = scene.path("nowhere.sock").display().to_string();
    let status = scene.on(0, &[&program(), "ipsec", "status", "--socket", &socket]);
    let told = String::from_utf8_lossy(&status.stderr);
    assert!(!status.status.success() && told.contains("a is not running: it was killed"), "{told}");
    let down = scene.on(0, &[&program(), "ipsec", "down", "--open", "--socket", &nowhere]);
    let told = String::from_utf8_lossy(&down.stderr);
    assert!(!down.status.success() && told.contains("there is no tunnel of this name"), "{told}");
    let down = scene.on(0, &[&program(), "ipsec", "down", "--open", "--socket", &socket]);
    assert!(down.status.success(), "{}", String::from_utf8_lossy(&down.stderr));
    let tables = scene.on(0, &["nft", "list", "tables"]);
    assert_eq!(String::from_utf8_lossy(&tables.stdout).trim(), "", "nothing is left");
}

#[test]
fn a_start_that_fails_leaves_nothing_in_clear_and_says_how_to_open() {
    let Some(scene) = Scene::new(&["python3"]) else { return };
    scene.write_site(0, true);
    let [file, socket] = ["a.toml", "a.sock"].map(|name| scene.path(name).display().to_string());
    let holds = "import socket, time; s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); s.bind(('::', 4500)); \
                 print('bound', flush=True); time.sleep(300)";
    let mut another = scene.namespaces[0].command("python3").expect("the namespace");
    let another = Process::start(another.args(["-c", holds]), &scene.path("holder.log")).expect("python3");
    wait_until("the port to be taken", || {
        std::fs::read_to_string(scene.path("holder.log")).unwrap_or_default().contains("bound")
    });
    let started = scene.on(0, &[&program(), "ipsec", "up", &file, "--socket", &socket]);
    let told = String::from_utf8_lossy(&started.stderr);
    assert!(!started.status.success());
    for part in ["another program has it", "`sidestep ipsec down tunnel-a --open` ends that"] {
        assert!(told.contains(part), "{part} in {told}");
    }
    let closed = |scene: &Scene| {
        let routes = scene.on(0, &["ip", "-6", "route", "show"]);
        String::from_utf8_lossy(&routes.stdout).contains("unreachable fd00:b::/64")
    };
    assert!(closed(&scene));
    another.kill();
    let down = scene.on(0, &[&program(), "ipsec", "down", "--open", "--socket", &socket]);
    assert!(down.status.success(), "{}", String::from_utf8_lossy(&down.stderr));
    assert!(!closed(&scene));
}

#[test]
fn a_device_that_somebody_deletes_is_named_as_the_end() {
    let Some(scene) = Scene::new(&["ping"]) else { return };
    let [mut a, _b] = scene.tunnel();
    scene.namespaces[0].ip("link delete tunnel-a").expect("a deletion");
    let ended = a.wait(std::time::Duration::from_secs(20));
    let told = std::fs::read_to_string(scene.path("a.log")).unwrap_or_default();
    assert_eq!(ended.and_then(|status| status.code()), Some(1), "{told}");
    assert!(told.contains("somebody has deleted the TUN device"), "{told}");
}
