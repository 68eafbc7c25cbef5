//! Television by multicast: smcrouted takes a group from the uplink to one network.
//!
//! ```text
//!   provider, which sends ── gateway with smcrouted ── host (lan)
//!                                └── guest (guests)
//! ```

use lab::edited::Edited;
use lab::patience::wait_until;

use super::scene::Scene;

/// `examples/multicast`.
const ROUTES: &str = include_str!("../../../../../examples/multicast/smcroute.conf");
const HOME: &str = include_str!("../../../../../examples/multicast/home.toml");
const GROUP: &str = "ff3e::8000:1";
/// Sends to a group and a port, ten times a second: GROUP PORT.
const SEND: &str = "import socket, sys, time\ns = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\n\
                    s.setsockopt(41, socket.IPV6_MULTICAST_IF, socket.if_nametoindex('isp0'))\n\
                    s.setsockopt(41, socket.IPV6_MULTICAST_HOPS, 8)\n\
                    while True:\n  s.sendto(b'picture', (sys.argv[1], int(sys.argv[2])))\n  time.sleep(0.1)";
/// Joins a group at eth0 and says what comes within two seconds: GROUP PORT.
const WATCH: &str = "import socket, struct, sys\ns = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\n\
                     s.bind(('::', int(sys.argv[2])))\ns.settimeout(2)\n\
                     s.setsockopt(41, socket.IPV6_JOIN_GROUP, socket.inet_pton(socket.AF_INET6, sys.argv[1]) + \
                     struct.pack('@I', socket.if_nametoindex('eth0')))\n\
                     try: print(s.recv(99).decode(), end='')\nexcept TimeoutError: pass";

fn watches(scene: &Scene, node: &str, port: &str) -> bool {
    scene.run(node, &["python3", "-c", WATCH, GROUP, port]) == "picture"
}

fn start_smcrouted(scene: &mut Scene) -> usize {
    let [file, pid, socket] =
        ["smcroute.conf", "smcroute.pid", "smcroute.sock"].map(|name| scene.path(name).display().to_string());
    scene.start("gw", &["smcrouted", "-n", "-N", "-f", &file, "-P", &pid, "-u", &socket])
}

#[test]
fn television_reaches_one_network_and_stops_with_the_program_that_routes_it() {
    let Some(mut scene) = Scene::new(&["gw", "net", "host", "guest"], &["smcrouted"]) else { return };
    scene.link(("gw", "eth0"), ("net", "isp0"));
    scene.link(("gw", "lan0"), ("host", "eth0"));
    scene.link(("gw", "guests0"), ("guest", "eth0"));
    scene.ip("net", "address add 2001:db8:5::1/64 dev isp0 nodad");
    scene.write("gw.toml", &format!("{HOME}\n[firewall]\naccept_special = [\"2001:db8::/32\"]\n"));
    scene.write("smcroute.conf", ROUTES);
    scene.up("gw");
    wait_until("a gateway", || scene.run("gw", &[&scene.program(), "status"]).contains("network guests"));
    for port in ["5004", "5005"] {
        scene.start("net", &["python3", "-c", SEND, GROUP, port]);
    }
    let smcrouted = start_smcrouted(&mut scene);
    wait_until("television", || watches(&scene, "host", "5004"));
    // The provider is asked by MLD, and what the rule does not name stays outside.
    assert!(scene.run("gw", &["ip", "maddress", "show", "dev", "eth0"]).contains(GROUP));
    assert!(!watches(&scene, "host", "5005"));
    assert!(!watches(&scene, "guest", "5004"));

    // The kernel takes the routes away with their program.
    scene.end(smcrouted);
    assert!(!watches(&scene, "host", "5004"));
    start_smcrouted(&mut scene);
    wait_until("television again", || watches(&scene, "host", "5004"));

    // Without the rule the firewall refuses it.
    let file = scene.path("gw.toml");
    let text = std::fs::read_to_string(&file).expect("a file");
    std::fs::write(&file, text.edited("udp/5004", "udp/5006")).expect("a file");
    let said = scene.run("gw", &[&scene.program(), "reload"]);
    assert!(!said.contains("error"), "{said}");
    wait_until("nothing", || !watches(&scene, "host", "5004"));
}
