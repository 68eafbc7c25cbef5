//! Addresses and DNS servers for clients, and selectors that are narrowed.

use super::scene::{Plan, Scene};

#[test]
fn strongswan_gives_us_an_address_and_a_dns_server() {
    let plan =
        Plan::new().without(&["local-ts"]).ours(&["request yes", "local-ts ::/0", "remote-ts fd00:b::/64"]);
    let plan = plan.connection("pools = inner\n");
    let plan = Plan {
        child: "local_ts = fd00:b::/64\n remote_ts = dynamic\n".into(),
        more: "pools { inner {\n addrs = fd00:a::1/128\n dns = fd00:b::53\n } }\n".into(),
        ..plan
    };
    let Some(scene) = Scene::in_full(plan) else { return };
    scene.tell("initiate");
    scene.wait_told("child up", 1);
    assert!(scene.told().contains("addresses [fd00:a::1] dns [fd00:b::53]"), "{}", scene.told());
    scene.ping(3);
    scene.tell("rekey-child");
    scene.wait_told("child down", 1);
    scene.tell("reauthenticate");
    scene.wait_told("IKE SA down: Deleted", 1);
    scene.ping(3);
    assert_eq!(scene.count("addresses [fd00:a::1]"), 2, "{}", scene.told());
}

#[test]
fn we_give_strongswan_an_address_and_a_dns_server() {
    let plan = Plan::new().ours(&[
        "pool fd00:b:0:1::7/128",
        "dns fd00:a::53",
        "local-ts fd00:a::/64",
        "remote-ts address",
    ]);
    let plan = Plan {
        child: "local_ts = dynamic\n remote_ts = fd00:a::/64\n".into(),
        ..plan.connection("vips = ::\n")
    };
    let plan = plan.without(&["inner"]);
    let Some(scene) = Scene::in_full(plan) else { return };
    for round in 1..=2 {
        assert!(scene.they_initiate(), "{}", scene.they_said());
        scene.wait_told("child up", round);
        let (_, list) = scene.asked(&["--list-sas"]);
        assert!(list.contains("fd00:b:0:1::7/128"), "{list}");
        assert!(scene.swanctl(&["--rekey", "--child", "c"]));
        scene.wait_told("child rekeyed", round);
        assert!(scene.swanctl(&["--terminate", "--ike", "us"]));
        scene.wait_told("IKE SA down: DeletedByPeer", round);
    }
}

#[test]
fn selectors_are_narrowed_to_what_both_allow() {
    let wide = "local_ts = fd00:b::/64, fd00:c::/64\n remote_ts = fd00::/16\n";
    let plan = Plan { child: wide.into(), ..Plan::new() };
    let Some(scene) = Scene::in_full(plan) else { return };
    assert!(scene.they_initiate());
    scene.wait_told("child up", 1);
    let (_, list) = scene.asked(&["--list-sas"]);
    assert!(
        list.contains("fd00:a::/64") && list.contains("fd00:b::/64") && !list.contains("fd00:c"),
        "{list}"
    );
    scene.ping(2);
    assert!(scene.swanctl(&["--terminate", "--ike", "us"]));
    scene.wait_told("IKE SA down", 1);
    scene.tell("initiate");
    scene.wait_told("child up", 2);
    scene.ping(2);
}
