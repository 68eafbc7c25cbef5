//! Links that others make, and make anew: a bridge and a VLAN of systemd-networkd, an interface that comes and goes as those
//! of pppd and of modems do.

use lab::edited::Edited;
use lab::patience::{wait_for, wait_until};

use super::HOME;
use super::scene::{INTERNET, RouterScene};

/// Beyond the provider.
const FAR: &str = "203.0.113.1";
/// `examples/networkd`, as files of these names in `/etc/systemd`.
const FILES: [(&str, &str); 7] = [
    ("networkd.conf.d/sidestep.conf", include_str!("../../../../../examples/networkd/sidestep.conf")),
    ("network/20-eth0.network", include_str!("../../../../../examples/networkd/20-eth0.network")),
    ("network/20-lan0.netdev", include_str!("../../../../../examples/networkd/20-lan0.netdev")),
    ("network/21-lan0.network", include_str!("../../../../../examples/networkd/21-lan0.network")),
    ("network/21-ports.network", include_str!("../../../../../examples/networkd/21-ports.network")),
    ("network/22-guests0.netdev", include_str!("../../../../../examples/networkd/22-guests0.netdev")),
    ("network/23-guests0.network", include_str!("../../../../../examples/networkd/23-guests0.network")),
];
/// In mounts of its own: without udev, which a read-only /sys says, and with no other files.
const NETWORKD: &str = "mount -t sysfs -o ro sysfs /sys; mkdir -p /run/systemd; mount -t tmpfs tmpfs /run/systemd; \
                        mount -t tmpfs tmpfs /etc/systemd; cp -r \"$0\"/* /run/systemd; mkdir -p /run/systemd/netif/links; \
                        chown -R systemd-network /run/systemd/netif; exec /lib/systemd/systemd-networkd";

/// Whether this kernel has VLANs. Where they are demanded, their absence is a failure.
fn has_vlans(scene: &RouterScene) -> bool {
    let said =
        scene.run("rogue", &["ip", "link", "add", "link", "eth0", "name", "v", "type", "vlan", "id", "20"]);
    assert!(
        said.is_empty() || std::env::var_os("SIDESTEP_XFRM").is_none(),
        "this kernel was said to be Debian's: {said}"
    );
    said.is_empty()
}

/// Writes files of these names for networkd.
fn write_files(scene: &RouterScene, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = scene.folder.path().join("systemd").join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        // The scene's interfaces have other names.
        let text = text.replace("Name=eth0", "Name=wan0").replace("Name=eth1 eth2", "Name=lan desk");
        std::fs::write(path, text).expect("a file");
    }
}

/// Starts networkd in the gateway's namespace, with the files that were written.
fn start_networkd(scene: &mut RouterScene) {
    let folder = scene.folder.path().join("systemd").display().to_string();
    scene.keep("gw", &["unshare", "--mount", "sh", "-ec", NETWORKD, &folder]);
}

/// Has the second host configure this interface by router advertisements.
fn accepts(scene: &RouterScene, interface: &str) {
    let settings = ["accept_ra", "autoconf"].map(|name| format!("ipv6/conf/{interface}/{name}"));
    scene.node("rogue").sysctl(&settings.each_ref().map(|name| (name.as_str(), 1))).expect("a host");
}

#[test]
fn networkd_makes_bridge_and_vlan_and_leaves_to_the_gateway_what_is_its() {
    let Some(mut scene) = RouterScene::new() else { return };
    let vlans = has_vlans(&scene);
    scene.serve_ipv4("net", "isp0", "192.0.2.100,192.0.2.150,255.255.255.0,2m");
    let rogue = scene.node("rogue").name().to_owned();
    scene
        .node("gw")
        .ip(&format!(
            "addr del 192.0.2.2/24 dev wan0\nlink add desk type veth peer name port netns {rogue}\n"
        ))
        .expect("a second port");
    accepts(&scene, "port");
    scene.node("rogue").ip("link set eth0 down\nlink set port up\n").expect("a host at it");
    write_files(&scene, &FILES);
    start_networkd(&mut scene);
    wait_until("a bridge with two ports", || {
        scene.run("gw", &["ip", "-br", "link", "show", "master", "lan0"]).lines().count() == 2
    });
    wait_until("an IPv4 address", || {
        scene
            .run("gw", &["ip", "-4", "route", "show", "default"])
            .contains("via 192.0.2.1 dev wan0 proto dhcp")
    });

    let guests = "[[network]]\nname = \"guests\"\ninterface = \"guests0\"\nsubnet = 2\n";
    let office = HOME
        .edited("delegation = 56 ", "delegation = 56\nmasquerade = true\n")
        .edited("\"lan\"\ninterface = \"lan\"", "\"lan\"\ninterface = \"lan0\"\nipv4 = \"192.168.1.1/24\"");
    scene.start(&format!("{office}\n{}", if vlans { guests } else { "" }));
    scene
        .node("host")
        .ip("addr add 192.168.1.2/24 dev eth0\nroute add default via 192.168.1.1\n")
        .expect("a host");
    let serves = |scene: &RouterScene| {
        ["host", "rogue"].iter().all(|node| scene.answers(node, INTERNET)) && scene.answers("host", FAR)
    };
    wait_until("the Internet at both ports, and by IPv4", || serves(&scene));
    if vlans {
        scene
            .node("rogue")
            .ip("link set port down\nlink del v\nlink add link port name v type vlan id 20\nlink set port up\nlink set v up\n")
            .expect("a guest");
        accepts(&scene, "v");
        wait_until("an address in the VLAN", || scene.address("rogue", "v", "2001:db8:10").is_some());
        wait_until("the Internet for guests", || {
            scene
                .run("rogue", &["ping", "-c", "1", "-W", "1", "-I", "v", INTERNET])
                .contains(" 0% packet loss")
        });
    }

    // As `systemctl restart systemd-networkd` does, and as an update of it does by itself.
    let routed = |scene: &RouterScene| {
        let look = "ip -br address show dev lan0; ip -br -4 address show dev wan0; ip route; ip rule; ip -6 rule; \
                    ip -6 route show table all proto 83";
        scene.run("gw", &["sh", "-c", look])
    };
    let before = routed(&scene);
    scene.end_last();
    start_networkd(&mut scene);
    wait_until("an IPv4 address again", || {
        scene
            .run("gw", &["ip", "-4", "route", "show", "default"])
            .contains("via 192.0.2.1 dev wan0 proto dhcp")
    });
    wait_until("all that was there", || routed(&scene) == before);
    wait_until("the Internet as before", || serves(&scene));
    let problems = wait_for("a status", || scene.status())["problems"].clone();
    assert_eq!(problems, serde_json::json!([]), "{problems}");
    scene.stop();
}

/// As installers and images of clouds have it: everything by everybody.
const EVERYTHING: (&str, &str) =
    ("network/50-all.network", "[Match]\nName=wan0 lan\n\n[Network]\nDHCP=yes\nIPv6AcceptRA=yes\n");

#[test]
fn init_has_networkd_leave_ipv6_alone_where_it_configured_all_of_it() {
    let Some(mut scene) = RouterScene::new() else { return };
    scene.serve_ipv4("net", "isp0", "192.0.2.100,192.0.2.150,255.255.255.0,2m");
    scene.node("gw").ip("addr del 192.0.2.2/24 dev wan0\n").expect("an address less");
    write_files(&scene, &[EVERYTHING]);
    start_networkd(&mut scene);
    let routes = |scene: &RouterScene| {
        scene.run("gw", &["sh", "-c", "ip route show default; ip -6 route show default"])
    };
    let ipv4 = "via 192.0.2.1 dev wan0 proto dhcp";
    wait_until("networkd's routes", || {
        let routes = routes(&scene);
        routes.contains(ipv4) && routes.contains("via fe80::1 dev wan0 proto ra")
    });
    let of_networkd = wait_for("an address of networkd's", || scene.address("gw", "wan0", "2001:db8:0:1:"));

    // As the operator does it, with what networkd says of itself in its own mounts.
    let gateway = HOME.edited("delegation = 56 ", "delegation = 56\nmasquerade = true\n");
    scene.write("home.toml", &gateway);
    let [file, into] =
        ["home.toml", "systemd"].map(|name| scene.folder.path().join(name).display().to_string());
    let (program, networkd) = (scene.program(), scene.last_id().to_string());
    let init = |more: &[&str]| {
        let words = ["nsenter", "--mount", "--target", &networkd, &program, "init", "--networkd", &file];
        scene.run("gw", &[&words[..], more].concat())
    };
    let shown = init(&[]);
    assert!(shown.contains("/etc/systemd/network/05-sidestep-wan0.network\n"), "{shown}");
    let said = init(&["--into", &into]);
    for name in [
        "network/05-sidestep-wan0.network",
        "network/05-sidestep-lan.network",
        "networkd.conf.d/sidestep.conf",
    ] {
        assert!(said.contains(&format!("{into}/{name} is written\n")), "{said}");
    }
    assert!(said.contains("systemctl restart systemd-networkd"), "{said}");

    scene.end_last();
    scene.start_peer(&["tcpdump", "-nli", "isp0", "icmp6[0] == 133"]);
    let heard =
        |scene: &RouterScene| std::fs::read_to_string(scene.folder.path().join("peer.log")).expect("a log");
    wait_until("a capture", || heard(&scene).contains("listening on"));
    start_networkd(&mut scene);
    wait_until("IPv4", || routes(&scene).contains(ipv4));
    // Its IPv6 address stays for as long as it was to be, but routers, which advertise themselves every four seconds, do not renew
    // that, and are not asked for it.
    let valid = |scene: &RouterScene| {
        let said = scene.run("gw", &["ip", "-j", "-6", "address", "show", "dev", "wan0", "scope", "global"]);
        let links: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        let of = |info: &&serde_json::Value| info["local"] == of_networkd.as_str();
        let infos = links.as_array().expect("links").iter().filter_map(|link| link["addr_info"].as_array());
        infos.flatten().find(of).and_then(|info| info["valid_life_time"].as_u64()).expect("a lifetime")
    };
    let before = valid(&scene);
    std::thread::sleep(std::time::Duration::from_secs(6));
    assert!(valid(&scene) + 5 <= before, "{before}");
    assert!(!heard(&scene).contains("solicitation"), "{}", heard(&scene));

    scene.start(&gateway);
    wait_until("the Internet", || scene.answers("host", INTERNET));
    let routed = |scene: &RouterScene| {
        let look =
            "ip -br -6 address; ip -6 rule; ip -6 route show table all proto 83; ip route show default";
        scene.run("gw", &["sh", "-c", look])
    };
    let before = routed(&scene);
    scene.end_last();
    start_networkd(&mut scene);
    wait_until("all that was there", || routed(&scene) == before && routes(&scene).contains(ipv4));
    wait_until("the Internet as before", || scene.answers("host", INTERNET));
    let problems = wait_for("a status", || scene.status())["problems"].clone();
    assert_eq!(problems, serde_json::json!([]), "{problems}");
    scene.stop();
}

#[test]
fn an_interface_that_is_made_anew_serves_again() {
    let Some(mut scene) = RouterScene::new() else { return };
    scene.start(&HOME);
    wait_until("the Internet", || scene.answers("host", INTERNET));
    let (before, _) = scene.host_address("2001:db8:10").expect("an address");

    // The network's, with the address that the hardware has: with another, hosts have another router, and hear from Linux only
    // after half a minute that the one before is gone.
    let said = scene.run("gw", &["ip", "-br", "link", "show", "lan"]);
    let mac = said.split_whitespace().nth(2).expect("a MAC address");
    let sw = scene.node("sw").name().to_owned();
    scene.node("gw").ip("link del lan\n").expect("an interface that goes");
    let lan = |scene: &RouterScene| scene.status().expect("a status")["networks"][0]["link_up"].clone();
    wait_until("a network without a link", || lan(&scene) == false);
    scene
        .node("gw")
        .ip(&format!("link add lan address {mac} type veth peer name gw netns {sw}\nlink set lan up\n"))
        .expect("an interface that comes back");
    scene.node("sw").ip("link set gw master switch up\n").expect("a port of the switch");
    wait_until("the Internet again", || scene.answers("host", INTERNET));
    assert_eq!(scene.host_address("2001:db8:10").map(|(address, _)| address), Some(before.clone()));

    // The uplink's: pppd makes another one whenever the line comes back.
    scene.node("gw").ip("link del wan0\n").expect("an interface that goes");
    scene.reconnect_first();
    wait_until("the Internet once more", || scene.answers("host", INTERNET));
    assert_eq!(scene.host_address("2001:db8:10").map(|(address, _)| address), Some(before));
    scene.stop();
}
