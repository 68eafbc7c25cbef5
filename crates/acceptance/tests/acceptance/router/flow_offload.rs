//! `flow_offload` of the firewall: packets of known connections on a short way, and a kernel without one.
//!
//! Debian's stock kernel has flowtables, so that most of these tests run in `scripts/stock-kernel`, which demands them
//! (`SIDESTEP_XFRM=1`). On a kernel without they say that they were skipped, and the other way round.

use std::time::Duration;

use lab::edited::Edited;
use lab::patience::{wait_for, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::forwards::{Office, SERVER};
use super::scene::{INTERNET, RouterScene};

const GATEWAY: &str = r#"
[[uplink]]
name       = "fibre"
interface  = "wan0"
delegation = 56
masquerade = true

[[network]]
name      = "lan"
interface = "lan"
subnet    = 1
ipv4      = "192.168.1.1/24"

[[network]]
name      = "guests"
interface = "guests"
subnet    = 2

[firewall]
flow_offload   = "software"
accept_special = ["2001:db8::/32"]
"#;
const OFFLOADED: &str = "flow_offload   = \"software\"\n";
/// The provider's address of IPv4.
const WEB: &str = "203.0.113.1";
const PORTS: [&str; 2] = ["7", "8"];

/// Sends back what it gets: `PORT…`.
const ECHO: &str = r#"
import socket, sys, threading
def echo(client):
    while data := client.recv(65536):
        client.sendall(data)
def serve(port):
    one = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    while True:
        threading.Thread(target=echo, args=(one.accept()[0],)).start()
for port in sys.argv[1:]:
    threading.Thread(target=serve, args=(int(port),)).start()
"#;

/// Sends 20,000 octets again and again, and notes how often they came back: `FILE ADDRESS PORT`.
const KEEP: &str = r#"
import os, socket, sys, time
noted, address, port = sys.argv[1:]
one, count = socket.create_connection((address, int(port)), 20), 0
while True:
    one.sendall(b"x" * 20000)
    rest = 20000
    while rest:
        data = one.recv(65536)
        if not data:
            raise SystemExit("it ended")
        rest -= len(data)
    count += 1
    with open(noted + ".new", "w") as file:
        file.write(str(count))
    os.rename(noted + ".new", noted)
    time.sleep(0.05)
"#;

/// Whether this kernel has flowtables, as `run` finds at an `eth0`. Where they are demanded, their absence is a failure.
pub(crate) fn is_there(run: impl Fn(&[&str]) -> String) -> bool {
    let table = "add table inet t; add flowtable inet t f { hook ingress priority 0; devices = { \"eth0\" }; }; \
                 delete table inet t";
    let said = run(&["nft", table]);
    assert!(
        said.is_empty() || std::env::var_os("SIDESTEP_XFRM").is_none(),
        "this kernel was said to be Debian's: {said}"
    );
    said.is_empty()
}

fn has_flowtable(scene: &RouterScene) -> bool {
    is_there(|words| scene.run("rogue", words))
}

fn offload(scene: &RouterScene) -> Option<Value> {
    Some(scene.status()?["flow_offload"].clone())
}

fn reload(scene: &RouterScene, configuration: &str) {
    scene.write("gw.toml", configuration);
    let reloaded = scene.sidestep(&["reload", "gateway"]);
    assert!(reloaded.status.success(), "{}", String::from_utf8_lossy(&reloaded.stderr));
}

/// How often a connection's octets came back.
fn rounds(scene: &RouterScene, name: &str) -> u64 {
    let noted = std::fs::read_to_string(scene.folder.path().join(name));
    noted.ok().and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Both connections go on.
fn go_on(scene: &RouterScene, when: &str) {
    let before = ["six", "four"].map(|name| rounds(scene, name));
    wait_until(when, || {
        ["six", "four"].iter().zip(before).all(|(name, before)| rounds(scene, name) >= before + 5)
    });
}

/// Packets that have passed the forward hook.
fn slow(scene: &RouterScene) -> u64 {
    let counted = scene.run("gw", &["nft", "list", "counter", "inet", "probe", "slow"]);
    let packets = counted.split_whitespace().skip_while(|word| *word != "packets").nth(1);
    packets.and_then(|packets| packets.parse().ok()).unwrap_or_else(|| panic!("{counted}"))
}

#[test]
fn known_connections_take_a_short_way_whatever_happens() {
    let Some(mut office) = Office::new() else { return };
    let scene = &mut office.scene;
    if !has_flowtable(scene) {
        eprintln!("skipped: needs a kernel with flowtables, such as that of scripts/stock-kernel");
        return;
    }
    let rules = |scene: &RouterScene| scene.run("gw", &["nft", "list", "ruleset"]);
    let before = rules(scene);
    scene.keep("net", &[&["python3", "-c", ECHO], &PORTS[..]].concat());
    scene.start(GATEWAY);
    wait_for("an address of the delegated prefix", || scene.host_address("2001:db8:10"));
    wait_until("the Internet", || scene.answers("host", INTERNET) && scene.answers("host", WEB));
    for (name, address) in [("six", INTERNET), ("four", WEB)] {
        let noted = scene.folder.path().join(name).display().to_string();
        scene.keep("host", &["python3", "-c", KEEP, &noted, address, PORTS[0]]);
    }
    go_on(scene, "two connections");
    let said = wait_for("both in the flowtable", || {
        offload(scene).filter(|said| said["connections"].as_u64() >= Some(2))
    });
    assert_eq!((&said["configured"], &said["in_force"]), (&"software".into(), &"software".into()), "{said}");
    assert_eq!(said["interfaces"], serde_json::json!(["guests", "lan", "wan0"]), "{said}");
    let text = String::from_utf8_lossy(&scene.sidestep(&["status"]).stdout).into_owned();
    assert!(
        text.contains("flow offload in software: ") && text.contains(" between guests, lan, wan0"),
        "{text}"
    );

    // Past netfilter's hooks, but counted: by the kernel's connection tracking, and what asks that.
    let probe = "add table inet probe; add counter inet probe slow; \
                 add chain inet probe f { type filter hook forward priority -10; }; \
                 add rule inet probe f meta l4proto tcp counter name slow";
    assert_eq!(scene.run("gw", &["nft", probe]), "");
    let talked = |scene: &RouterScene| {
        let status = scene.status()?;
        let hosts = status["talkers"].as_array()?.iter();
        let four = hosts.filter(|host| host["address"] == SERVER);
        Some(four.filter_map(|host| host["sent_bytes"].as_u64()).sum::<u64>())
    };
    assert_eq!(scene.run("gw", &["sysctl", "-q", "-w", "net.netfilter.nf_conntrack_acct=1"]), "");
    let carried = talked(scene);
    let known = rounds(scene, "four");
    let all = |scene: &RouterScene| rounds(scene, "six") + rounds(scene, "four");
    // A route that is renewed sends them the usual way once.
    let (start, first) = (all(scene), slow(scene));
    wait_until("they go on", || all(scene) >= start + 40);
    let (passed, went) = (slow(scene) - first, all(scene) - start);
    assert!(passed < went, "{passed} packets went the usual way in {went} rounds of two or more");
    if carried > Some(0) {
        let more = talked(scene).expect("a status") - carried.unwrap_or(0);
        assert!(more >= 20_000 * (rounds(scene, "four") - known - 1), "{more} bytes");
    }

    // Whoever takes the table away, or an interface, or makes a link narrower.
    assert_eq!(scene.run("gw", &["nft", "delete", "table", "inet", "sidestep-offload"]), "");
    go_on(scene, "without the table");
    let listed = |scene: &RouterScene| scene.run("gw", &["nft", "list", "table", "inet", "sidestep-offload"]);
    wait_until("the table again", || listed(scene).contains("guests"));
    scene.run("gw", &["ip", "link", "del", "guests"]);
    wait_until("without an interface", || {
        !listed(scene).contains("guests") && listed(scene).contains("wan0")
    });
    scene.run("gw", &["sh", "-c", "ip link add guests type bridge; ip link set guests up"]);
    wait_until("it is back", || listed(scene).contains("guests"));
    scene.run("gw", &["ip", "link", "set", "wan0", "mtu", "1400"]);
    go_on(scene, "a narrower link");
    scene.run("gw", &["ip", "link", "set", "wan0", "mtu", "1500"]);

    // New rules are about new connections; those that are known go on, as without.
    let refusing = format!(
        "{GATEWAY}\n[[firewall.rule]]\nfrom = \"lan\"\nservice = [\"tcp/7\", \"tcp/8\"]\naction = \"reject\"\n"
    );
    reload(scene, &refusing);
    go_on(scene, "known connections");
    for address in [INTERNET, WEB] {
        let fetched = scene.run("host", &["python3", "-c", KEEP, "/nowhere", address, PORTS[1]]);
        assert!(fetched.contains("refused") || fetched.contains("unreachable"), "{fetched}");
    }
    // What others forbid is forbidden to known ones from a reload on.
    let forbids = "add rule inet probe f tcp dport 7 meta nfproto ipv4 drop";
    assert_eq!(scene.run("gw", &["nft", forbids]), "");
    reload(scene, GATEWAY);
    let stopped = wait_for("an end of those that others forbid", || {
        let before = rounds(scene, "four");
        std::thread::sleep(Duration::from_secs(2));
        (rounds(scene, "four") == before).then_some(before)
    });
    assert_eq!(scene.run("gw", &["nft", "delete", "table", "inet", "probe"]), "");
    wait_until("it goes on", || rounds(scene, "four") > stopped);

    // Killed, started again; without it, and at the end.
    scene.kill();
    go_on(scene, "without a gateway");
    scene.start_again();
    go_on(scene, "with another");
    wait_until("both in the flowtable", || {
        offload(scene).is_some_and(|said| said["connections"].as_u64() >= Some(2))
    });
    reload(scene, &GATEWAY.edited(OFFLOADED, ""));
    assert!(listed(scene).contains("No such file"), "{}", listed(scene));
    assert_eq!(offload(scene), Some(Value::Null));
    go_on(scene, "on the usual way");
    reload(scene, GATEWAY);
    wait_until("on the short one", || {
        offload(scene).is_some_and(|said| said["connections"].as_u64() >= Some(2))
    });
    scene.stop();
    assert_eq!(rules(scene), before);
}

#[test]
fn interfaces_that_cannot_carry_flows_are_told_and_software_does() {
    let Some(mut scene) = RouterScene::new() else { return };
    if !has_flowtable(&scene) {
        eprintln!("skipped: needs a kernel with flowtables, such as that of scripts/stock-kernel");
        return;
    }
    scene.start(&GATEWAY.edited("\"software\"", "\"hardware\""));
    let said = wait_for("a flowtable", || offload(&scene).filter(|said| !said["in_force"].is_null()));
    assert_eq!((&said["configured"], &said["in_force"]), (&"hardware".into(), &"software".into()), "{said}");
    let expected = "hardware carries no flows";
    wait_until("it is said", || scene.log().contains(expected));
    assert!(scene.status().expect("a status")["problems"].to_string().contains(expected));
    scene.stop();
}

#[test]
fn a_kernel_without_flowtables_is_said_and_carries_packets() {
    let Some(mut scene) = RouterScene::new() else { return };
    if has_flowtable(&scene) {
        eprintln!("skipped: this kernel has flowtables");
        return;
    }
    let before = scene.kernel();
    for (starts, who) in (1..).zip(["software", "hardware"]) {
        scene.start(&GATEWAY.edited("\"software\"", &format!("\"{who}\"")));
        wait_for("an address of the delegated prefix", || scene.host_address("2001:db8:10"));
        wait_until("the Internet", || scene.answers("host", INTERNET));
        let said = offload(&scene).expect("a status");
        assert_eq!((&said["configured"], &said["in_force"]), (&who.into(), &Value::Null), "{said}");
        let expected = "packets of known connections go the usual way: the kernel has no flowtable";
        let status = String::from_utf8_lossy(&scene.sidestep(&["status"]).stdout).into_owned();
        assert!(status.contains(expected), "{status}");
        assert!(
            status.contains(&format!("flow offload in {who}: none, connections go the usual way")),
            "{status}"
        );
        let doctor = String::from_utf8_lossy(&scene.sidestep(&["doctor"]).stdout).into_owned();
        assert!(doctor.contains(expected), "{doctor}");
        // It is tried at each change, and logged once.
        scene.signal(Signal::SIGHUP);
        std::thread::sleep(Duration::from_secs(11));
        assert_eq!(scene.log().matches(expected).count(), starts, "{}", scene.log());
        scene.stop();
        assert_eq!(scene.kernel(), before);
    }
}
