//! A NAT between the two ends, and ends that move (MOBIKE, RFC 4555).

use std::time::Duration;

use super::scene::{OURS, Plan, Scene};

/// The NAT gives our packets these ports of its own.
fn masquerade(scene: &Scene, ports: &str) {
    let between = scene.between.as_ref().expect("a NAT");
    let flush = "table ip6 nat\ndelete table ip6 nat\n";
    between
        .nft(&format!(
            "{flush}table ip6 nat {{ chain out {{ type nat hook postrouting priority 100;\n \
             oifname ex ip6 nexthdr udp masquerade to :{ports}\n }}\n }}\n"
        ))
        .expect("a NAT");
}

#[test]
fn we_begin_behind_a_nat() {
    let Some(scene) = Scene::in_full(Plan { nat: true, ..Plan::new() }) else { return };
    masquerade(&scene, "20000-20999");
    scene.tell("initiate");
    scene.wait_told("child up", 1);
    scene.ping(5);
    scene.tell("rekey-child");
    scene.wait_told("child down", 1);
    assert!(scene.swanctl(&["--rekey", "--ike", "us"]));
    scene.wait_told("IKE SA down: Replaced", 1);
    scene.ping(5);
    assert!(scene.they_said().contains("remote host is behind NAT"), "{}", scene.they_said());
}

#[test]
fn the_mapping_of_the_nat_changes_in_mid_session() {
    let plan = Plan { nat: true, ..Plan::new() }.connection("mobike = no\n");
    let Some(scene) = Scene::in_full(plan) else { return };
    masquerade(&scene, "20000-20999");
    scene.tell("initiate");
    scene.wait_told("child up", 1);
    scene.ping(5);
    masquerade(&scene, "30000-30999");
    let between = scene.between.as_ref().expect("a NAT");
    // A masquerade forgets what it has mapped when its interface goes down.
    between
        .ip(&format!("link set ex down\nlink set ex up\naddr replace {OURS}/64 dev ex nodad\n"))
        .expect("the interface anew");
    // A genuine request shows strongSwan where we are.
    scene.tell("liveness");
    std::thread::sleep(Duration::from_millis(500));
    scene.ping(5);
    assert!(scene.swanctl(&["--rekey", "--child", "c"]));
    scene.wait_told("child down", 1);
    scene.ping(5);
}

#[test]
fn we_move_to_another_address() {
    let Some(scene) = Scene::in_full(Plan::new().ours(&["mobile yes"]).connection("remote_addrs = %any\n"))
    else {
        return;
    };
    scene.tell("initiate");
    scene.wait_told("child up", 1);
    scene.ping(5);
    scene
        .ours
        .ip(&format!("addr add 2001:db8:77::c/64 dev ex nodad\naddr del {OURS}/64 dev ex\n"))
        .expect("another address");
    scene.tell("move 2001:db8:77::c");
    scene.wait_told("path: [2001:db8:77::c]:4500", 1);
    scene.ping(5);
    scene.tell("rekey-child");
    scene.wait_told("child down", 1);
    scene.ping(5);
    assert!(scene.asked(&["--list-sas"]).1.contains("2001:db8:77::c"));
}

#[test]
fn strongswan_moves_to_another_address() {
    let plan = Plan::new().ours(&["mobile yes"]).connection("mobike = yes\n local_addrs = %any\n");
    let Some(scene) = Scene::in_full(plan) else { return };
    assert!(scene.they_initiate());
    scene.wait_told("child up", 1);
    scene.ping(5);
    scene
        .theirs
        .ip("addr add 2001:db8:77::d/64 dev ex nodad\naddr del 2001:db8:77::b/64 dev ex\n")
        .expect("another address");
    scene.wait_told("to [2001:db8:77::d]:4500", 1);
    scene.ping(5);
    scene.tell("rekey-child");
    scene.wait_told("child down", 1);
    scene.ping(5);
}
