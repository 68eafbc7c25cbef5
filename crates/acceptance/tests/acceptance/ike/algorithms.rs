//! Groups and encryptions that both have, and cookies.

use lab::patience::wait_until;

use super::scene::{Plan, Scene};

/// Ours first, then theirs: a ping passes and a rekey has the algorithms, too.
fn agrees(plan: Plan, suite: &str) {
    let Some(scene) = Scene::in_full(plan) else { return };
    scene.tell("initiate");
    scene.wait_told("child up", 1);
    scene.ping(2);
    scene.tell("rekey-child");
    scene.wait_told("child down", 1);
    scene.ping(2);
    assert!(scene.told().contains(suite), "no {suite} in\n{}", scene.told());
    scene.tell("delete-ike");
    scene.wait_told("IKE SA down: Deleted", 1);
    assert!(scene.they_initiate());
    scene.wait_told("child up", 2);
    scene.ping(2);
}

fn esp(theirs: &str, suite: &str) {
    agrees(Plan { esp: theirs.into(), ..Plan::new() }, suite);
}

#[test]
fn aes_256_gcm() {
    esp("aes256gcm16-x25519", "Aes256Gcm");
}

#[test]
fn aes_128_gcm_without_a_group_for_rekeys() {
    esp("aes128gcm16", "Aes128Gcm");
}

#[test]
fn chacha20_poly1305() {
    esp("chacha20poly1305-x25519", "ChaCha20Poly1305");
}

#[test]
fn aes_256_cbc_with_sha_256() {
    let plan = Plan { esp: "aes256-sha256-x25519".into(), ..Plan::new() };
    agrees(plan.ours(&["esp aes256,aes128,sha256,sha384,sha512"]), "HmacSha256");
}

#[test]
fn aes_128_cbc_with_sha_384() {
    let plan = Plan { esp: "aes128-sha384-x25519".into(), ..Plan::new() };
    agrees(plan.ours(&["esp aes256,aes128,sha256,sha384,sha512"]), "HmacSha384");
}

#[test]
fn aes_256_cbc_with_sha_512() {
    let plan = Plan { esp: "aes256-sha512-x25519".into(), ..Plan::new() };
    agrees(plan.ours(&["esp aes256,aes128,sha256,sha384,sha512"]), "HmacSha512");
}

#[test]
fn strongswans_own_default_proposals() {
    agrees(Plan { proposals: "default".into(), esp: "default".into(), ..Plan::new() }, "child up");
}

#[test]
fn p256_and_cbc_in_ike_itself() {
    let (proposals, esp) = ("aes256-sha256-ecp256".into(), "aes256gcm16-ecp256".into());
    agrees(Plan { proposals, esp, ..Plan::new() }, "group: Some(P256)");
}

#[test]
fn p384() {
    let (proposals, esp) = ("aes128gcm16-prfsha384-ecp384".into(), "aes256gcm16-ecp384".into());
    agrees(Plan { proposals, esp, ..Plan::new() }, "group: Some(P384)");
}

#[test]
fn chacha20_in_ike_itself() {
    let proposals = "chacha20poly1305-prfsha512-x25519".into();
    agrees(Plan { proposals, ..Plan::new() }, "child up");
}

#[test]
fn we_ask_strongswan_for_another_group() {
    let proposals = "aes256gcm16-prfsha256-x25519-ecp256".into();
    let plan = Plan { proposals, esp: "aes256gcm16-x25519-ecp256".into(), ..Plan::new() };
    let Some(scene) = Scene::in_full(plan.ours(&["groups p256", "child-groups p256"])) else { return };
    assert!(scene.they_initiate());
    scene.wait_told("child up", 1);
    assert!(scene.they_said().contains("INVALID_KE_PAYLOAD") || scene.they_said().contains("N(INVAL_KE)"));
    assert!(scene.swanctl(&["--rekey", "--child", "c"]));
    scene.wait_told("child down", 1);
    scene.ping(2);
    assert!(scene.told().contains("group: Some(P256)"), "{}", scene.told());
}

#[test]
fn we_are_asked_for_cookies() {
    let Some(scene) = Scene::in_full(Plan::new().charon("cookie_threshold = 1\n block_threshold = 0\n"))
    else {
        return;
    };
    // It asks while another one is half-open.
    scene.block(true);
    scene.tell("initiate");
    wait_until("a half-open IKE SA", || scene.they_said().contains("IKE_SA_INIT response 0"));
    scene.tell("initiate");
    wait_until("a cookie", || scene.they_said().contains("N(COOKIE)"));
    scene.block(false);
    scene.wait_told("child up", 2);
    scene.ping(2);
    assert!(scene.they_said().contains("N(COOKIE)"), "{}", scene.they_said());
}

#[test]
fn strongswan_has_enough_of_us_and_hears_us_again_later() {
    // Two half-open IKE SAs of one address are its limit, and it forgets them after a while.
    let limits =
        "cookie_threshold = 0\n cookie_threshold_ip = 0\n block_threshold = 2\n half_open_timeout = 3\n";
    let Some(scene) = Scene::in_full(Plan::new().charon(limits)) else { return };
    scene.block(true);
    for half_open in 1..=2 {
        scene.tell("initiate");
        wait_until("a half-open IKE SA", || {
            scene.they_said().matches("generating IKE_SA_INIT response").count() >= half_open
        });
    }
    scene.tell("initiate");
    wait_until("a refusal", || {
        scene.they_said().contains("IKE_SA_INIT") && scene.they_said().contains("ignoring")
    });
    scene.block(false);
    scene.wait_told("child up", 3);
    scene.ping(2);
}

#[test]
fn strongswan_is_asked_for_cookies() {
    let Some(scene) = Scene::in_full(Plan::new().ours(&["cookies-from 0"])) else { return };
    assert!(scene.they_initiate());
    scene.wait_told("child up", 1);
    scene.ping(2);
    assert!(scene.they_said().contains("N(COOKIE)"), "{}", scene.they_said());
}
