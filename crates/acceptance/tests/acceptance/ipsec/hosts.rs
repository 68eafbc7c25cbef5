//! Two hosts that protect what they themselves send each other: transport mode and AH, and ESP without UDP. What crosses the
//! link is AH, ESP, IKE and neighbor discovery, and nothing else, whatever dies.

use std::time::Duration;

use lab::patience::wait_until;
use wire::protocol;

use super::scene::{INNER, INNER_V4, OUTER, OUTER_V4, Scene};

/// Writes the configurations of two hosts, of which the first begins.
pub(super) fn write_hosts(scene: &Scene, ends: [&str; 2], child: &str) {
    for side in [0, 1] {
        let name = |side: usize| ["a", "b"][side];
        let start = if side == 0 { "" } else { "start = \"wait\"\n" };
        let text = format!(
            "[ipsec]\nidentity = \"{}.example\"\ninterface = \"tunnel-{}\"\naddress = \"{}\"\n\n[[remote]]\n\
             name = \"{}\"\nidentity = \"{}.example\"\naddress = \"{}\"\nshared_key_file = \"key\"\n{start}\
             encapsulate = \"auto\"\n\n[[remote.child]]\nmode = \"transport\"\n{child}\n",
            name(side),
            name(side),
            ends[side],
            name(1 - side),
            name(1 - side),
            ends[1 - side],
        );
        scene.write(&format!("{}.toml", name(side)), &text, 0o600);
    }
}

/// What is in a packet between the two outer addresses that is none of a protocol of IPsec: its protocol, and of UDP and
/// ICMPv6 the destination port or type.
pub(super) fn in_clear(packets: &[Vec<u8>]) -> Vec<(u8, u16)> {
    let outer =
        OUTER.iter().chain(&OUTER_V4).map(|text| text.parse::<std::net::IpAddr>().expect("an address"));
    let outer: Vec<_> = outer.collect();
    let told = packets.iter().filter_map(|packet| {
        let (from, to) = wire::flow::addresses(packet).ok()?;
        let (protocol, at) = upper(packet);
        let rest = packet.get(at..)?;
        let detail = match protocol {
            protocol::UDP => u16::from_be_bytes([*rest.get(2)?, *rest.get(3)?]),
            _ => u16::from(*rest.first()?),
        };
        (outer.contains(&from) && outer.contains(&to)).then_some((protocol, detail))
    });
    let is_fine = |kind: &(u8, u16)| {
        matches!(
            *kind,
            (protocol::ESP | protocol::AUTHENTICATION, _)
                | (protocol::UDP, 500 | 4500)
                | (protocol::ICMPV6, 133..=137)
        )
    };
    told.filter(|kind| !is_fine(kind)).collect()
}

pub(super) fn upper(packet: &[u8]) -> (u8, usize) {
    match packet.first().map(|first| first >> 4) {
        Some(6) => (packet.get(6).copied().unwrap_or(0), 40),
        _ => (packet.get(9).copied().unwrap_or(0), 20),
    }
}

pub(super) fn count_of(packets: &[Vec<u8>], wanted: u8) -> usize {
    packets.iter().filter(|packet| upper(packet).0 == wanted).count()
}

fn esp_in_udp(packets: &[Vec<u8>]) -> usize {
    let is_esp = |packet: &&Vec<u8>| {
        let (protocol, at) = upper(packet);
        let port = packet.get(at + 2..at + 4).map(|port| u16::from_be_bytes([port[0], port[1]]));
        protocol == protocol::UDP && port == Some(4500) && packet.get(at + 8..at + 12) != Some(&[0; 4])
    };
    packets.iter().filter(is_esp).count()
}

#[test]
fn a_tunnel_of_esp_goes_without_udp_where_both_ends_want_that() {
    let Some(scene) = Scene::new(&["python3", "ping"]) else { return };
    scene.write_site(0, true);
    scene.write_site(1, false);
    for name in ["a.toml", "b.toml"] {
        let text = std::fs::read_to_string(scene.path(name)).expect("the file");
        let text = text.replace("shared_key_file", "encapsulate = \"auto\"\nmobile = false\nshared_key_file");
        scene.write(name, &text, 0o600);
    }
    let recorder = scene.record();
    let _b = scene.up(1);
    let _a = scene.up(0);
    wait_until("a child", || scene.children(0) == 1 && scene.children(1) == 1);
    for inner in [INNER, INNER_V4] {
        assert!(scene.pings(0, inner[1]));
        assert!(scene.sends(0, inner[1], 1 << 20) && scene.sends(1, inner[0], 1 << 20));
    }
    let packets = recorder.packets();
    assert!(count_of(&packets, protocol::ESP) > 1000);
    assert_eq!(esp_in_udp(&packets), 0);
    assert_eq!(count_of(&packets, protocol::TCP), 0);
}

#[test]
fn two_hosts_are_protected_by_esp_and_nothing_is_in_clear_whatever_dies() {
    protects(OUTER, "", protocol::ESP);
    if lab::scale::scaled(false, true) {
        protects(OUTER_V4, "", protocol::ESP);
    }
}

#[test]
fn two_hosts_are_protected_by_ah_and_nothing_is_in_clear_whatever_dies() {
    protects(OUTER_V4, "header = \"ah\"", protocol::AUTHENTICATION);
    if lab::scale::scaled(false, true) {
        protects(OUTER, "header = \"ah\"", protocol::AUTHENTICATION);
    }
}

fn protects(ends: [&str; 2], child: &str, wanted: u8) {
    let Some(scene) = Scene::new(&["python3", "ping", "nft"]) else { return };
    // A strict reverse path filter sees packets of IPsec come by another way than answers would take.
    for side in [0, 1] {
        let strict = ["sysctl", "-qw", "net.ipv4.conf.all.rp_filter=1"];
        assert!(scene.on(side, &strict).status.success());
    }
    write_hosts(&scene, ends, child);
    let recorder = scene.record();
    let b = scene.up(1);
    let a = scene.up(0);
    wait_until("a child", || scene.children(0) == 1 && scene.children(1) == 1);
    assert!(scene.pings(0, ends[1]) && scene.pings(1, ends[0]));
    assert!(scene.sends(0, ends[1], 1 << 20) && scene.sends(1, ends[0], 1 << 20));
    a.kill();
    assert!(!scene.pings(0, ends[1]));
    // Nothing gets round the rules, either, when they are gone.
    for family in ["-4", "-6"] {
        for rule in ["flush", "add pref 0 lookup local", "add pref 32766 lookup main"] {
            let _ = scene.on(0, &["sh", "-c", &format!("ip {family} rule {rule}")]);
        }
    }
    assert!(!scene.pings(0, ends[1]));
    let a = scene.up(0);
    wait_until("an answer after the restart", || scene.pings(0, ends[1]) && scene.pings(1, ends[0]));
    assert!(a.stop(Duration::from_secs(10)).success());
    assert!(!scene.pings(0, ends[1]));
    let packets = recorder.packets();
    assert!(count_of(&packets, wanted) > 500, "{}", count_of(&packets, wanted));
    assert_eq!(in_clear(&packets), []);
    // Who gives all of it up has the way that there was before.
    b.kill();
    for (side, name) in [(0, "a.sock"), (1, "b.sock")] {
        let socket = scene.path(name).display().to_string();
        let program = std::env::var("SIDESTEP_BIN").expect("the program");
        let down = scene.on(side, &[&program, "ipsec", "down", "--open", "--socket", &socket]);
        assert!(down.status.success(), "{}", String::from_utf8_lossy(&down.stderr));
    }
    assert!(scene.pings(0, ends[1]));
}

#[test]
fn what_a_host_sends_in_clear_is_dropped_and_counted() {
    let Some(scene) = Scene::new(&["ping", "nft"]) else { return };
    write_hosts(&scene, OUTER, "");
    // The other end sends in clear, and answers nothing of IKE.
    let _a = scene.up(0);
    assert!(!scene.pings(1, OUTER[0]));
    let dropped = scene.status(0).unwrap_or_default()["drops"]["in_clear"].as_u64();
    assert!(dropped >= Some(3), "{dropped:?}");
}
