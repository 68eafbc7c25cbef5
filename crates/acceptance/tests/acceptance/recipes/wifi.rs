//! A radio of the gateway, by hostapd, and stations: on simulated radios, of kernels that have them, as Debian's.
//!
//! ```text
//!   laptop ) ) )  home ── lan0 ┐
//!   phone  ) ) )               ├ gateway
//!   tablet ) ) ) guests ─ guests0
//! ```

use std::process::Command;

use lab::patience::{wait_for, wait_until};

use super::scene::{Scene, has_module};

/// `examples/wifi`.
const HOSTAPD: &str = include_str!("../../../../../examples/wifi/hostapd.conf");
const HOME: &str = include_str!("../../../../../examples/wifi/home.toml");
const RADIO: &str = include_str!("radio.py");
/// Takes the address and the route that a DHCP server gives.
const TAKE: &str = "#!/bin/sh\n[ \"$1\" = bound ] || exit 0\nip address replace $ip/$mask dev $interface\n\
                    ip route replace default via $router dev $interface\n";

/// Stations, the network of each, its password, and how it proves that it has it.
const STATIONS: [(&str, &str, &str, &str); 3] = [
    ("laptop", "home", "change this one", "key_mgmt=SAE\n ieee80211w=2"),
    ("phone", "guests", "and this one", "key_mgmt=WPA-PSK"),
    ("tablet", "guests", "and this one", "key_mgmt=WPA-PSK"),
];

/// Makes a radio, and hands it to a node.
fn radio(scene: &Scene, node: &str) {
    let name = scene.tunnel(node);
    let script = scene.write("radio.py", RADIO);
    let run = |command: &mut Command| {
        let output = command.output().expect("a program that starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    run(Command::new("python3").arg(script).arg(&name));
    run(Command::new("iw").args(["phy", &name, "set", "netns", "name", scene.node(node).name()]));
}

fn address(scene: &Scene, node: &str, prefix: &str) -> Option<String> {
    let text = scene.run(node, &["ip", "-o", "-6", "address", "show", "dev", "wlan0"]);
    let address = text.split_whitespace().find(|word| word.starts_with(prefix))?;
    Some(address.split('/').next()?.to_owned())
}

#[test]
fn stations_have_addresses_and_guests_reach_neither_the_home_nor_each_other() {
    // Without radios of its own, which would be in another namespace.
    if !has_module(&["mac80211_hwsim", "radios=0"], &["hostapd", "wpa_supplicant", "iw"]) {
        return;
    }
    let nodes = &["gw", "net", "laptop", "phone", "tablet"];
    let Some(mut scene) = Scene::new(nodes, &["dnsmasq", "busybox"]) else {
        return;
    };
    scene.link(("gw", "eth0"), ("net", "isp0"));
    scene.ip(
        "gw",
        "link add lan0 type bridge\nlink add guests0 type bridge\nlink set lan0 up\nlink set guests0 up",
    );
    radio(&scene, "gw");
    scene.write("gw.toml", HOME);
    let file = scene.write("hostapd.conf", HOSTAPD).display().to_string();
    scene.up("gw");
    scene.start("gw", &["hostapd", &file]);
    wait_until("a network of radio", || scene.log("gw").contains("AP-ENABLED"));

    let take = scene.write("take", TAKE).display().to_string();
    for (station, ssid, password, proof) in STATIONS {
        radio(&scene, station);
        let settings = ["accept_ra", "autoconf"].map(|name| format!("ipv6/conf/wlan0/{name}"));
        scene.node(station).sysctl(&settings.each_ref().map(|name| (name.as_str(), 1))).expect("a host");
        let text = format!("network={{\n ssid=\"{ssid}\"\n psk=\"{password}\"\n {proof}\n}}\n");
        let file = scene.write(&format!("{station}.conf"), &text).display().to_string();
        scene.start(station, &["wpa_supplicant", "-i", "wlan0", "-c", &file]);
    }
    let addresses = STATIONS.map(|(station, ssid, ..)| {
        let number = if ssid == "home" { 1 } else { 2 };
        let address =
            wait_for("an address", || address(&scene, station, &format!("fd12:3456:789a:{number}:")));
        wait_until("the gateway", || scene.answers(station, &format!("fd12:3456:789a:{number}::1")));
        let ask = ["busybox", "udhcpc", "-i", "wlan0", "-n", "-q", "-t", "5", "-s", &take];
        let said = scene.run(station, &ask);
        let leased = said.split("lease of ").nth(1).and_then(|rest| rest.split([' ', ',']).next());
        let leased = leased.filter(|leased| leased.starts_with(&format!("192.168.{number}.")));
        (address, leased.unwrap_or_else(|| panic!("{said}")).to_owned())
    });

    let [laptop, phone, tablet] = addresses;
    for guest in [&phone, &tablet] {
        wait_until("from the home to guests", || scene.answers("laptop", &guest.1));
    }
    assert!(!scene.answers("phone", &laptop.1));
    for address in [&tablet.0, &tablet.1] {
        assert!(!scene.answers("phone", address), "guests reach each other");
    }

    // What goes to all, such as router advertisements, comes to a station by itself.
    let link = scene.run("laptop", &["ip", "-br", "link", "show", "dev", "wlan0"]);
    let mac = link.split_whitespace().nth(2).expect("a MAC address");
    scene.start("laptop", &["tcpdump", "-nlei", "wlan0", "icmp6[0] == 128 and dst host ff02::1"]);
    wait_until("a capture", || scene.log("laptop").contains("listening on"));
    wait_until("a packet to all", || {
        scene.run("gw", &["ping", "-c", "1", "-W", "1", "ff02::1%lan0"]);
        scene.log("laptop").contains("> ff02::1")
    });
    assert!(scene.log("laptop").contains(&format!("> {mac}, ethertype IPv6")), "{mac}");
}
