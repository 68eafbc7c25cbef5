//! New keys and new proofs, at either end's wish and at both ends' at once, with pings over them of which none is lost; and an
//! end that is gone.

use std::time::Duration;

use lab::patience::wait_until;

use super::scene::{Plan, Scene};

/// Pings for so long, a hundred a second.
fn ping_over(scene: &Scene, seconds: usize, mut act: impl FnMut(&Scene, usize)) {
    let (before, count) = (scene.count("pong"), 100 * seconds);
    scene.tell(&format!("ping {count}"));
    for second in 0..seconds {
        std::thread::sleep(Duration::from_secs(1));
        act(scene, second);
    }
    scene.wait_told("pong", before + count);
    let told = scene.told();
    assert!(!told.contains("ESP:"), "{told}");
}

#[test]
fn a_thousand_pings_over_three_rekeys_by_either_end_are_all_answered() {
    let Some(scene) = Scene::in_full(Plan::new()) else { return };
    scene.tell("initiate");
    scene.wait_told("child up", 1);
    ping_over(&scene, 10, |scene, second| match second {
        1 | 7 => scene.tell("rekey-child"),
        3 => assert!(scene.swanctl(&["--rekey", "--child", "c"])),
        4 => scene.tell("rekey-ike"),
        5 => assert!(scene.swanctl(&["--rekey", "--ike", "us"])),
        _ => {}
    });
    assert_eq!(scene.count("child rekeyed"), 3, "{}", scene.told());
    assert_eq!(scene.count("IKE SA rekeyed"), 2, "{}", scene.told());
}

#[test]
fn rekeys_of_both_ends_at_once_leave_one_child_and_one_ike_sa() {
    let Some(scene) = Scene::in_full(Plan::new()) else { return };
    scene.tell("initiate");
    scene.wait_told("child up", 1);
    ping_over(&scene, 12, |scene, second| {
        let (ours, theirs) = match second {
            1 | 3 | 5 => ("rekey-child", ["--rekey", "--child", "c"]),
            7 | 9 => ("rekey-ike", ["--rekey", "--ike", "us"]),
            _ => return,
        };
        scene.tell(ours);
        assert!(scene.swanctl(&theirs));
    });
    // What has lost a collision is deleted, here and there.
    wait_until("one child at both ends", || {
        let (_, list) = scene.asked(&["--list-sas"]);
        let (up, down) = (scene.count("child up") + scene.count("child rekeyed"), scene.count("child down"));
        list.matches("INSTALLED").count() == 1 && list.matches("ESTABLISHED").count() == 1 && up - down == 1
    });
    scene.ping(10);
}

#[test]
fn we_authenticate_anew_without_losing_a_ping() {
    let Some(scene) = Scene::in_full(Plan::new()) else { return };
    scene.tell("initiate");
    scene.wait_told("child up", 1);
    ping_over(&scene, 4, |scene, second| {
        if second == 1 {
            scene.tell("reauthenticate");
        }
    });
    assert_eq!(scene.count("IKE SA up"), 2);
}

#[test]
fn strongswan_authenticates_anew_before_it_breaks() {
    let Some(scene) = Scene::in_full(Plan::new().charon("make_before_break = yes\n")) else { return };
    assert!(scene.they_initiate());
    scene.wait_told("child up", 1);
    ping_over(&scene, 4, |scene, second| {
        if second == 1 {
            assert!(scene.swanctl(&["--rekey", "--ike", "us", "--reauth"]));
        }
    });
    assert_eq!(scene.count("IKE SA up"), 2, "{}", scene.told());
}

#[test]
fn strongswan_authenticates_anew_after_it_has_broken() {
    let Some(scene) = Scene::in_full(Plan::new().charon("make_before_break = no\n")) else { return };
    assert!(scene.they_initiate());
    scene.wait_told("child up", 1);
    assert!(scene.swanctl(&["--rekey", "--ike", "us", "--reauth"]));
    scene.wait_told("child up", 2);
    scene.wait_told("IKE SA down", 1);
    scene.ping(5);
}

#[test]
fn strongswan_rekeys_of_its_own_accord() {
    // Its children at 3, 6, 9, … seconds and its IKE SA at 7 and 14: where both fall due at once, it looks for the child on
    // the IKE SA that it has just replaced, and forgets that it was to be rekeyed.
    let plan = Plan::new().connection("rekey_time = 7s\n over_time = 5s\n rand_time = 0s\n");
    let child = plan.child.clone() + "rekey_time = 3s\n life_time = 20s\n rand_time = 0s\n";
    let Some(scene) = Scene::in_full(Plan { child, ..plan }) else { return };
    scene.tell("initiate");
    scene.wait_told("child up", 1);
    ping_over(&scene, 15, |_, _| {});
    assert!(scene.count("child rekeyed") >= 2 && scene.count("IKE SA rekeyed") >= 1, "{}", scene.told());
}

#[test]
fn strongswan_is_killed_and_says_that_it_begins_anew() {
    let Some(mut scene) = Scene::in_full(Plan::new()) else { return };
    assert!(scene.they_initiate());
    scene.wait_told("child up", 1);
    scene.kill_theirs();
    scene.start_theirs();
    assert!(scene.they_initiate());
    scene.wait_told("child up", 2);
    scene.wait_told("IKE SA down: InitialContact", 1);
    scene.ping(5);
}

#[test]
fn strongswan_notices_that_we_were_killed_and_a_new_beginning_works() {
    let plan = Plan::new()
        .connection("dpd_delay = 1s\n")
        .charon("retransmit_tries = 2\n retransmit_timeout = 0.5\n retransmit_base = 1.2\n");
    let Some(mut scene) = Scene::in_full(plan) else { return };
    scene.tell("initiate");
    scene.wait_told("child up", 1);
    scene.kill_ours();
    wait_until("the end of the IKE SA", || !scene.asked(&["--list-sas"]).1.contains("ESTABLISHED"));
    scene.start_ours();
    scene.tell("initiate");
    scene.wait_told("child up", 2);
    scene.ping(5);
}
