//! What a transparent gateway does on the link besides carrying the tunnel.

use std::time::Duration;

use crate::frames::{Capture, holds};
use crate::scene::{Between, MACS, Profile, Scene, THIRD, wait_until};

/// Without its MAC in the configuration a host is known with its first solicitation; the gateway remembers it, also when
/// it is killed, and what it left in the kernel is taken back by the next start.
#[test]
fn hosts_are_learned_and_remembered() {
    let Some(mut scene) = Scene::new("tlrn", Between::Router, Profile::Version2) else { return };
    let configurations = scene.configurations().map(|text| {
        let (before, rest) = text.split_once(", mac = \"").expect("a MAC");
        let (_, after) = rest.split_once('"').expect("its end");
        format!("{before}{after}")
    });
    scene.start_gateways_with(&configurations);
    scene.boot_hosts();
    assert!(scene.logs().contains("protected host"), "{}", scene.logs());
    scene.kill_gateway(0);
    scene.kill_gateway(1);
    let reached =
        |scene: &Scene| scene.run("ta", &["ping", "-c1", "-W1", THIRD[1]]).contains(" 0% packet loss");
    assert!(!reached(&scene), "it fails closed");
    scene.start_gateways_with(&configurations);
    let log = scene.logs();
    assert!(log.contains("did not end cleanly") && !log.contains("protected host"), "{log}");
    wait_until("third hosts reach each other", Duration::from_secs(10), || reached(&scene));
    scene.wait_connected();
    scene.stop_gateways();
    let parameter = |interface, name| {
        let path = format!("/proc/sys/net/ipv6/conf/{interface}/{name}");
        scene.run("ga", &["cat", &path]).trim().to_owned()
    };
    assert_eq!(parameter("in", "disable_ipv6"), "0");
    assert_eq!(parameter("ex", "autoconf"), "1");
}

/// Solicitations from outside for a protected address are answered by the gateway, and neither they nor packets for it
/// come in; what the host says to others does not go out.
#[test]
fn a_protected_host_is_out_of_reach() {
    let Some(mut scene) = Scene::new("tblk", Between::Router, Profile::Classic) else { return };
    scene.start_gateways();
    scene.boot_hosts();
    let host = scene.host(0);
    let (public, private) = (Capture::start(&scene, "xa", "g"), Capture::start(&scene, "sa", "h"));
    let asked = scene.run("to", &["ndisc6", "-1", "-r", "1", &host, "eth"]);
    let gateway = scene.mac("ga", "ex");
    assert!(asked.to_lowercase().contains(&gateway), "{asked}: {gateway}");
    assert!(scene.run("to", &["ping", "-c2", "-W1", &host]).contains("100% packet loss"));
    assert!(scene.run("ha", &["ping", "-c2", "-W1", THIRD[1]]).contains("100% packet loss"));
    assert!(scene.run("ha", &["ping", "-c2", "-W1", "2001:db8:a::1"]).contains("100% packet loss"));
    // On its own side it is one of the hosts.
    assert!(scene.run("ha", &["ping", "-c2", "-W1", THIRD[0]]).contains(" 0% packet loss"));
    let (public, private) = (public.finish(), private.finish());
    assert!(public.iter().all(|frame| !holds(frame, &MACS[0])));
    let outside = scene.mac("to", "eth");
    let outside: Vec<u8> =
        outside.split(':').map(|byte| u8::from_str_radix(byte, 16).expect("a byte")).collect();
    let host: std::net::Ipv6Addr = host.parse().expect("an address");
    let reached = |frame: &&Vec<u8>| frame[6..12] == outside && holds(frame, &host.octets());
    assert_eq!(private.iter().find(reached), None);
}

/// Where others pass, a protected host speaks with them as if nothing were there, and with its peer through the tunnel.
#[test]
fn others_may_pass() {
    let Some(mut scene) = Scene::new("tpas", Between::Switch, Profile::Version2) else { return };
    let pass = |text: String| text.replace("internal =", "others = \"pass\"\ninternal =");
    let configurations = scene.configurations().map(pass);
    scene.start_gateways_with(&configurations);
    scene.boot_hosts();
    let host = scene.host(0);
    let public = Capture::start(&scene, "xa", "g");
    for (from, to) in [("ha", THIRD[1]), ("to", &host), ("ha", "2001:db8:a::1"), ("ha", &scene.host(1))] {
        let report = scene.run(from, &["ping", "-c10", "-i", "0.1", "-W1", to]);
        assert!(report.contains(" 0% packet loss"), "{from} {to}: {report}");
    }
    let public = public.finish();
    let remote: std::net::Ipv6Addr = scene.host(1).parse().expect("an address");
    assert!(public.iter().all(|frame| !holds(frame, &remote.octets())), "the tunnel is not used");
}
