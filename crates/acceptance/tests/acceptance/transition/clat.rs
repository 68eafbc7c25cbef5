//! A host that has IPv4 alone, behind a gateway whose provider has IPv6 alone, and a server that has IPv4 alone. The provider's
//! translator is a gateway, too.

use lab::patience::wait_until;
use serde_json::Value;

use super::scene::TransitionScene;
use super::{at_our_interfaces, nat64};

/// Gateway (which loses its IPv4), server, and a stranger.
const ADDRESSES: [&str; 3] = ["198.51.100.7", "192.0.2.1", "203.0.113.9"];
const SERVER: &str = "192.0.2.1";
/// Where errors of routers come from that have IPv6 alone (RFC 7600).
const NO_ADDRESS: &str = "192.0.0.8";

fn example() -> String {
    at_our_interfaces(include_str!("../../../../../examples/464xlat.toml"))
}

/// A provider with a prefix for its link, and customers' prefixes; `more` is about the link.
fn provider(more: &str) -> String {
    format!(
        "[[uplink]]\nname = \"internet\"\ninterface = \"far\"\nrouter = \"point-to-point\"\nmasquerade = true\n\
         prefixes = [\"2001:db8:a000::/36\"]\n\
         [[network]]\nname = \"customers\"\ninterface = \"gw\"\nsubnet = 1\n{more}[nat64]\n"
    )
}

const DELEGATES: &str = "[network.dhcp6]\ndelegate = 56\n";

/// The network, where the gateway's provider has IPv6 alone and runs, and nothing else does.
fn with_provider(more: &str) -> Option<TransitionScene> {
    let mut scene = TransitionScene::new(ADDRESSES)?;
    scene.run("gw", &["ip", "-4", "address", "flush", "dev", "wan"]);
    scene.run("isp", &["ip", "-4", "address", "flush", "dev", "gw"]);
    scene
        .node("host")
        .ip("addr add 192.168.1.9/24 dev eth0\nroute add default via 192.168.1.1\n")
        .expect("IPv4");
    scene.start("isp", &provider(more));
    Some(scene)
}

fn with_clat(more: &str) -> Option<TransitionScene> {
    let mut scene = with_provider(more)?;
    scene.start("gw", &example());
    wait_until("the server", || scene.answers("host", SERVER));
    Some(scene)
}

fn clat(scene: &TransitionScene) -> Value {
    scene.status("gw").expect("a status")["uplinks"][1]["tunnel"].clone()
}

fn measured(scene: &TransitionScene, words: &[&str]) -> Value {
    nat64::measured_at(scene, SERVER, words)
}

#[test]
fn a_host_of_ipv4_reaches_a_server_of_ipv4_through_ipv6() {
    let Some(mut scene) = with_provider("") else { return };
    let before = scene.kernel("gw");
    scene.start("gw", &example());
    wait_until("the server", || scene.answers("host", SERVER));
    assert!(scene.answers("gw", SERVER), "from the gateway itself");
    // Nothing else leaves than IPv6.
    assert!(!scene.run("gw", &["ip", "-4", "route"]).contains("wan"));

    // An error of a router on the way, which has IPv6 alone, and of the translator.
    let exceeded = |hops: &str| scene.run("host", &["ping", "-c", "1", "-W", "2", "-t", hops, SERVER]);
    assert!(exceeded("1").contains("From 192.168.1.1"), "{}", exceeded("1"));
    let by_provider = exceeded("2");
    assert!(by_provider.contains(&format!("From {NO_ADDRESS}")), "{by_provider}");
    assert!(by_provider.contains("Time to live exceeded"), "{by_provider}");
    let refused = scene.run("host", &["nc", "-w", "2", "-v", "-u", SERVER, "9"]);
    assert!(!refused.contains("timed out"), "{refused}");

    let before_transfer = scene.sent("gw", "wan");
    let sent = measured(&scene, &[])["end"]["sum_received"]["bytes"].as_u64().expect("bytes");
    let whole = scene.sent("gw", "wan") - before_transfer;
    assert!(sent > 1_000_000 && whole < sent / 1_440 / 4, "{sent} bytes in {whole} packets on the link");
    let received = measured(&scene, &["-R"]);
    assert!(received["end"]["sum_received"]["bytes"].as_u64() > Some(1_000_000), "{received}");
    for (words, what) in [(&["-l", "1000"], "whole"), (&["-l", "3000"], "in fragments")] {
        for way in [&[][..], &["-R"]] {
            let udp = measured(&scene, &[&["-u", "-b", "5M"], &words[..], way].concat());
            let lost = udp["end"]["sum"]["lost_percent"].as_f64().expect("a number");
            assert!(lost < 50.0, "{what}: {udp}");
        }
    }

    let tunnel = clat(&scene);
    assert_eq!((&tunnel["kind"], &tunnel["mtu"]), (&"464xlat".into(), &1472.into()), "{tunnel}");
    assert_eq!(tunnel["plat_prefix"], "64:ff9b::/96");
    assert!(tunnel["rx_packets"].as_u64() > Some(0) && tunnel["tx_packets"].as_u64() > Some(0), "{tunnel}");
    let text = String::from_utf8(scene.sidestep("gw", &["status"]).stdout).expect("text");
    assert!(text.contains("tunnel: 464xlat over wan") && text.contains("to 64:ff9b::/96, MTU 1472"), "{text}");

    scene.stop("gw");
    assert_eq!(scene.kernel("gw"), before);
}
