//! A machine that gets another address: MOBIKE by `ipsec up` itself.

use lab::patience::wait_until;

use super::scene::{INNER, INNER_V4, OUTER, STRONGSWAN, Scene};

/// Where the first side goes.
const ELSEWHERE: &str = "2001:db8:77::aa";

/// Gives the first side another address, which is preferred to the one that it had, and then takes that one away.
fn moves(scene: &Scene) {
    let a = &scene.namespaces[0];
    a.ip(&format!(
        "addr add {ELSEWHERE}/64 dev ex nodad\naddr change {}/64 dev ex preferred_lft 0 valid_lft forever\n",
        OUTER[0]
    ))
    .expect("another address");
}

fn leaves(scene: &Scene) {
    scene.namespaces[0].ip(&format!("addr del {}/64 dev ex", OUTER[0])).expect("no more of the old one");
}

#[test]
fn a_machine_that_gets_another_address_goes_on_without_losing_a_ping() {
    let Some(scene) = Scene::new(&["ping"]) else { return };
    let _ends = scene.tunnel();
    let before = (scene.ike_sas(0), scene.ike_sas(1));
    let is_there = || {
        let status = scene.status(1).unwrap_or_default();
        status["remotes"][0]["children"][0]["remote"].as_str().is_some_and(|at| at.contains(ELSEWHERE))
    };
    let lost = scene.lost_while(0, INNER[1], || {
        moves(&scene);
        wait_until("the other end to know", is_there);
        leaves(&scene);
    });
    assert_eq!((lost, (scene.ike_sas(0), scene.ike_sas(1))), (0, before));
    assert!(scene.pings(1, INNER_V4[0]));
}

#[test]
fn a_machine_that_loses_its_address_before_it_gets_another_one_goes_on_from_there() {
    let Some(scene) = Scene::new(&["ping"]) else { return };
    let _ends = scene.tunnel();
    let before = scene.ike_sas(0);
    leaves(&scene);
    assert!(!scene.pings(0, INNER[1]));
    scene.namespaces[0].ip(&format!("addr add {ELSEWHERE}/64 dev ex nodad")).expect("another address");
    wait_until("an answer", || scene.pings(0, INNER[1]));
    assert_eq!(scene.ike_sas(0), before);
}

#[test]
fn strongswan_follows_a_machine_that_gets_another_address() {
    let Some(scene) = Scene::new(&[&STRONGSWAN[..], &["ping"]].concat()) else { return };
    scene.write_site(0, true);
    let _charon = scene.charon();
    let _a = scene.up(0);
    wait_until("an answer", || scene.pings(0, INNER[1]));
    let before = scene.ike_sas(0);
    moves(&scene);
    leaves(&scene);
    wait_until("an answer there", || scene.pings(0, INNER[1]));
    assert_eq!(scene.ike_sas(0), before);
}
