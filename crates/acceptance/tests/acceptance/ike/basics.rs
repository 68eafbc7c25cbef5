//! A shared key, and all that happens in the life of an IKE SA, at either end's wish.

use super::scene::{Plan, Scene};

#[test]
fn strongswan_does_what_our_initiator_wants() {
    let Some(scene) = Scene::new(Plan::new()) else { return };
    scene.tell("initiate");
    scene.wait_told("child up", 1);
    scene.ping(3);
    scene.tell("rekey-child");
    scene.wait_told("child down", 1);
    scene.ping(3);
    scene.tell("rekey-ike");
    scene.wait_told("IKE SA down: Replaced", 1);
    scene.ping(3);
    scene.tell("reauthenticate");
    scene.wait_told("IKE SA down: Deleted", 1);
    scene.ping(3);
    scene.tell("delete-ike");
    scene.wait_told("IKE SA down: Deleted", 2);
    let told = scene.told();
    assert_eq!(scene.count("in UDP: true"), 2, "{told}");
    assert!(!told.contains("Refused") && !told.contains("Failed") && !told.contains("unknown SPI"), "{told}");
}

#[test]
fn we_do_what_strongswan_wants() {
    let Some(scene) = Scene::new(Plan::new()) else { return };
    assert!(scene.they_initiate(), "{}", scene.told());
    scene.wait_told("child up", 1);
    scene.ping(3);
    assert!(scene.swanctl(&["--rekey", "--child", "c"]));
    scene.wait_told("child down", 1);
    scene.ping(3);
    assert!(scene.swanctl(&["--rekey", "--ike", "us"]));
    scene.wait_told("IKE SA down: Replaced", 1);
    scene.ping(3);
    assert!(scene.swanctl(&["--terminate", "--ike", "us"]));
    scene.wait_told("IKE SA down: DeletedByPeer", 1);
    let told = scene.told();
    assert!(!told.contains("Refused") && !told.contains("Failed"), "{told}");
}
