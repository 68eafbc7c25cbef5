//! Names of mDNS across two networks, by avahi-daemon as a reflector; a network of guests has no part in it.
//!
//! ```text
//!   laptop (lan) ── gateway with avahi-daemon ── printer (things)
//!                        └── guest (guests)
//! ```

use lab::edited::Edited;
use lab::patience::wait_until;

use super::scene::Scene;

/// `examples/mdns`.
const AVAHI: &str = include_str!("../../../../../examples/mdns/avahi-daemon.conf");
const HOME: &str = include_str!("../../../../../examples/mdns/home.toml");
/// What the printer is called, and offers.
const PRINTER: &str = "[server]\nhost-name=printer\nenable-dbus=no\nallow-interfaces=eth0\nuse-ipv6=yes\n\
                       [publish]\npublish-aaaa-on-ipv4=yes\npublish-hinfo=no\npublish-workstation=no\n";
const SERVICE: &str = "<?xml version=\"1.0\"?><service-group><name>laser</name><service><type>_ipp._tcp</type><port>631</port>\
                       </service></service-group>\n";
/// In mounts of its own: two daemons would have one file for their process ids.
const DAEMON: &str = "mkdir -p /run/avahi-daemon; mount -t tmpfs tmpfs /run/avahi-daemon; mount --bind \"$0\" /etc/avahi; \
                      exec avahi-daemon --no-drop-root --no-chroot --no-rlimits -f /etc/avahi/avahi-daemon.conf";
const ASK: &str = include_str!("mdns.py");
/// How mDNS is asked in each IP version, and what for: where the printer is.
const WAYS: [[&str; 3]; 2] = [["ff02::fb", "AAAA", "fd12:3456:789a:2:"], ["224.0.0.251", "A", "192.168.2.2"]];
/// Where the gateway is in the laptop's network.
const GATEWAY: [&str; 3] = ["fe80::", "fd12:3456:789a:1::1 ", "192.168.1.1 "];

/// Hosts, and what they are behind.
const HOSTS: [(&str, &str, u8); 3] =
    [("laptop", "lan0", 1), ("printer", "things0", 2), ("guest", "guests0", 3)];

/// A home with this configuration of the gateway.
fn home(configuration: &str) -> Option<Scene> {
    let mut scene = Scene::new(&["gw", "net", "laptop", "printer", "guest"], &["avahi-daemon", "dig"])?;
    scene.link(("gw", "eth0"), ("net", "isp0"));
    for (host, interface, number) in HOSTS {
        scene.link(("gw", interface), (host, "eth0"));
        let settings = ["accept_ra", "autoconf"].map(|name| format!("ipv6/conf/eth0/{name}"));
        scene.node(host).sysctl(&settings.each_ref().map(|name| (name.as_str(), 1))).expect("a host");
        scene.ip(
            host,
            &format!("address add 192.168.{number}.2/24 dev eth0\nroute add default via 192.168.{number}.1"),
        );
    }
    scene.write("gw.toml", configuration);
    scene.write("ask.py", ASK);
    for (name, file, text) in [
        ("gateway", "avahi-daemon.conf", AVAHI.edited("[server]\n", "[server]\nenable-dbus=no\n")),
        ("printer", "avahi-daemon.conf", PRINTER.to_owned()),
        ("printer", "services/laser.service", SERVICE.to_owned()),
    ] {
        let path = scene.path(name).join(file);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }
    scene.up("gw");
    wait_until("a gateway", || scene.run("gw", &[&scene.program(), "status"]).contains("network things"));
    wait_until("addresses", || {
        let said = scene.run("printer", &["ip", "-o", "-6", "address", "show", "dev", "eth0"]);
        said.contains("fd12:3456:789a:2:") && !said.contains("tentative")
    });
    for (node, folder) in [("gw", "gateway"), ("printer", "printer")] {
        let folder = scene.path(folder).display().to_string();
        scene.start(node, &["unshare", "--mount", "sh", "-ec", DAEMON, &folder]);
        wait_until("a daemon", || scene.log(node).contains("Server startup complete"));
    }
    Some(scene)
}

/// Who answers a host within so many seconds, and what.
fn ask(scene: &Scene, host: &str, name: &str, kind: &str, group: &str, seconds: &str) -> String {
    let script = scene.path("ask.py").display().to_string();
    scene.run(host, &["python3", &script, "eth0", name, kind, group, seconds])
}

#[test]
fn a_printer_is_found_from_another_network_and_not_by_guests() {
    let Some(scene) = home(HOME) else { return };
    let by_the_gateway = |said: &str| GATEWAY.iter().any(|place| said.starts_with(place));
    for [group, kind, printer] in WAYS {
        let said = ask(&scene, "laptop", "printer.local", kind, group, "30");
        assert!(by_the_gateway(&said) && said.contains(&format!(" {printer}")), "{group}: {said}");
        let said = ask(&scene, "laptop", "_ipp._tcp.local", "PTR", group, "30");
        assert!(by_the_gateway(&said) && said.ends_with(" laser._ipp._tcp.local\n"), "{group}: {said}");
    }
    // What was found is reached from there, and not the other way round.
    assert!(scene.answers("laptop", "192.168.2.2"));
    assert!(!scene.answers("printer", "192.168.1.2"));
    let dig = ["dig", "-p", "5353", "@224.0.0.251", "printer.local", "A", "+short", "+time=2", "+tries=2"];
    assert!(!scene.run("laptop", &dig).contains("192.168.2.2"), "asked from another port");

    for [group, kind, ..] in WAYS {
        assert_eq!(ask(&scene, "guest", "printer.local", kind, group, "5"), "", "{group}");
    }
    assert!(!scene.answers("guest", "192.168.2.2"));
}

#[test]
fn without_the_rule_the_gateway_hears_nothing_of_things() {
    let rule = "[[firewall.rule]]\nfrom    = \"things\"";
    let Some(scene) = home(&HOME.edited(rule, "[[firewall.rule]]\nfrom    = \"lan\"")) else { return };
    for [group, kind, ..] in WAYS {
        assert_eq!(ask(&scene, "laptop", "printer.local", kind, group, "5"), "", "{group}");
    }
    scene.write("gw.toml", HOME);
    let said = scene.run("gw", &[&scene.program(), "reload"]);
    for [group, kind, printer] in WAYS {
        let found = ask(&scene, "laptop", "printer.local", kind, group, "30");
        assert!(found.contains(&format!(" {printer}")), "{said}{group}: {found}");
    }
}
