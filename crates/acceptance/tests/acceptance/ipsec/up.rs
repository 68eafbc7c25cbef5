//! A tunnel between two networks: `ipsec up` at one end, itself or strongSwan at the other.

use std::time::Duration;

use lab::patience::wait_until;
use lab::scale::scaled;

use super::scene::{INNER, INNER_V4, OUTER, STRONGSWAN, Scene};

const GRACE: Duration = Duration::from_secs(10);

fn bytes() -> usize {
    scaled(4 << 20, 256 << 20)
}

#[test]
fn both_ends_are_ours_and_tcp_crosses_in_both_versions_and_directions() {
    let Some(scene) = Scene::new(&["python3", "ping"]) else { return };
    let recorder = scene.record();
    let _ends = scene.tunnel();
    for from in [0, 1] {
        for inner in [INNER, INNER_V4] {
            assert!(scene.pings(from, inner[1 - from]));
            assert!(scene.sends(from, inner[1 - from], bytes()));
        }
    }
    assert_eq!(recorder.in_clear(), []);
    let status = scene.status(0).expect("a status");
    let child = &status["remotes"][0]["children"][0];
    assert!(
        child["tx_packets"].as_u64() > Some(1000) && child["rx_packets"].as_u64() > Some(1000),
        "{status}"
    );
}

#[test]
fn an_end_that_was_killed_leaks_nothing_and_is_back_after_its_restart() {
    let Some(scene) = Scene::new(&["ping"]) else { return };
    // Before its first packet, and between its end and its restart.
    let recorder = scene.record();
    let [a, _b] = scene.tunnel();
    a.kill();
    // A default route that leads to the other end: what is not refused would leave by it.
    scene.namespaces[0]
        .ip(&format!("route add default via {} dev ex\nroute add default via 192.0.2.2 dev ex\n", OUTER[1]))
        .expect("routes");
    for address in [INNER[1], INNER_V4[1]] {
        assert!(!scene.pings(0, address), "there is no tunnel to {address}");
    }
    let a = scene.up(0);
    wait_until("an answer after the restart", || scene.pings(0, INNER[1]) && scene.pings(1, INNER_V4[0]));
    assert!(a.stop(GRACE).success());
    assert!(!scene.pings(0, INNER[1]));
    wait_until("the other end to be told", || scene.children(1) == 0);
    assert_eq!(recorder.in_clear(), []);
}

#[test]
fn a_second_copy_is_refused_and_the_first_one_goes_on() {
    let Some(scene) = Scene::new(&["ping"]) else { return };
    let _ends = scene.tunnel();
    let file = scene.path("a.toml").display().to_string();
    for socket in ["a.sock", "another.sock"] {
        let socket = scene.path(socket).display().to_string();
        let program = std::env::var("SIDESTEP_BIN").expect("the program");
        let second = scene.on(0, &[&program, "ipsec", "up", &file, "--socket", &socket]);
        assert!(!second.status.success());
    }
    assert!(scene.pings(0, INNER[1]));
}

#[test]
fn what_somebody_takes_away_of_routes_and_addresses_comes_back() {
    let Some(scene) = Scene::new(&["ping"]) else { return };
    let _ends = scene.tunnel();
    for taken_away in [
        &["link set tunnel-a down", "link set tunnel-a up"][..],
        &["-6 route flush proto 83", "route flush proto 83"],
        &["addr flush dev tunnel-a"],
    ] {
        for command in taken_away {
            assert!(scene.on(0, &["sh", "-c", &format!("ip {command}")]).status.success(), "{command}");
        }
        wait_until("an answer again", || scene.pings(0, INNER[1]) && scene.pings(0, INNER_V4[1]));
        let refused = String::from_utf8(scene.on(0, &["ip", "-6", "route"]).stdout).expect("text");
        assert!(refused.contains("unreachable"), "{refused}");
    }
}

#[test]
fn a_configuration_is_read_again_as_a_whole_or_not_at_all() {
    let Some(scene) = Scene::new(&["ping"]) else { return };
    let [a, _b] = scene.tunnel();
    let good = std::fs::read_to_string(scene.path("a.toml")).expect("the file");
    scene.write("a.toml", &good.replace("fd00:b::/64", "not a network"), 0o600);
    assert!(scene.reload(0, &a).contains("stays as it was"));
    assert!(scene.pings(0, INNER[1]));
    scene.write("a.toml", &good, 0o600);
    let mut command = std::process::Command::new(std::env::var_os("SIDESTEP_BIN").expect("the program"));
    let socket = scene.path("a.sock");
    let reloaded = command.args(["reload", "--socket"]).arg(socket).output().expect("sidestep");
    assert!(reloaded.status.success(), "{}", String::from_utf8_lossy(&reloaded.stderr));
    wait_until("an answer after the reload", || scene.pings(0, INNER[1]));
}

#[test]
fn strongswan_is_at_the_other_end() {
    let Some(scene) = Scene::new(&[&STRONGSWAN[..], &["python3", "ping"]].concat()) else { return };
    scene.write_site(0, true);
    let _charon = scene.charon();
    let recorder = scene.record();
    let _a = scene.up(0);
    wait_until("a child", || scene.children(0) == 1);
    for address in [INNER[1], INNER_V4[1]] {
        wait_until("an answer", || scene.pings(0, address));
        assert!(scene.sends(0, address, scaled(1 << 20, 64 << 20)));
    }
    assert!(scene.sends(1, INNER[0], scaled(1 << 20, 64 << 20)));
    assert_eq!(recorder.in_clear(), []);
}
