//! What the status says of packets: what the firewall refuses, who carries how much.

use serde_json::Value;

use lab::patience::{wait_for, wait_until};

use super::HOME;
use super::scene::{INTERNET, RouterScene};

const FIREWALL: &str = r#"
[[zone]]
name       = "lan"
trust      = "inside"
interfaces = ["lan"]

[[zone]]
name       = "wan"
trust      = "outside"
interfaces = ["wan0", "wan1"]

[firewall]
accept_special = ["2001:db8::/32"]

[[firewall.rule]]
from    = "lan"
to      = "wan"
service = "tcp/4444"
action  = "reject"
"#;

/// Connects, and says how that went.
const CONNECT: &str = r#"
import socket, sys
one = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
one.settimeout(1)
print(one.connect_ex((sys.argv[1], int(sys.argv[2]))))
"#;

fn counting(scene: &RouterScene, on: &str) {
    let said = scene.run("gw", &["sysctl", "-qw", &format!("net.netfilter.nf_conntrack_acct={on}")]);
    assert!(said.is_empty(), "{said}");
}

fn talker(status: &Value, address: &str) -> Option<Value> {
    status["talkers"].as_array()?.iter().find(|host| host["address"] == address).cloned()
}

#[test]
fn the_status_tells_what_is_refused_and_who_carries_what() {
    let Some(mut scene) = RouterScene::new() else { return };
    counting(&scene, "0");
    scene.start(&format!("{}enabled = false\n", *HOME));
    let (address, _) = wait_for("an address of the delegated prefix", || scene.host_address("2001:db8:10"));
    wait_until("the Internet", || scene.answers("host", INTERNET));
    assert_eq!(scene.status().expect("a status")["firewall"], Value::Null);

    scene.write("fw.toml", FIREWALL);
    let applied = scene.sidestep(&["firewall", "apply", "fw.toml"]);
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    assert!(scene.answers("host", INTERNET));
    let status = scene.status().expect("a status");
    assert_eq!(status["firewall"]["dropped_packets"], 0, "{status}");
    let host = talker(&status, &address).unwrap_or_else(|| panic!("{status}"));
    assert!(host["connections"].as_u64() > Some(0) && host["sent_bytes"].is_null(), "{status}");
    let why = status["talkers_incomplete"].as_str().expect("a reason");
    assert!(why.contains("sysctl net.netfilter.nf_conntrack_acct=1"), "{why}");

    counting(&scene, "1");
    let sent = scene.run("host", &["ping", "-c", "3", "-i", "0.2", "-s", "1000", INTERNET]);
    assert!(sent.contains(" 0% packet loss"), "{sent}");
    let status = scene.status().expect("a status");
    let host = talker(&status, &address).unwrap_or_else(|| panic!("{status}"));
    for (name, count) in
        [("sent_packets", 3), ("received_packets", 3), ("sent_bytes", 3 * 1048), ("received_bytes", 3 * 1048)]
    {
        assert_eq!(host[name], count, "{status}");
    }
    assert_eq!(status["talkers_incomplete"], Value::Null);

    // A rule answers the host; strangers from outside get none.
    let refused = scene.run("host", &["python3", "-c", CONNECT, INTERNET, "4444"]);
    assert_eq!(refused.trim(), "111", "ECONNREFUSED");
    let stranger = scene.run("net", &["python3", "-c", CONNECT, &address, "22"]);
    assert_eq!(stranger.trim(), "11", "EAGAIN: nobody answers");
    let status = scene.status().expect("a status");
    let firewall = &status["firewall"];
    assert_eq!(firewall["rejected_packets"], 1, "{firewall}");
    assert_eq!(
        (&firewall["rules"][0]["number"], &firewall["rules"][0]["verdict"]),
        (&1.into(), &"reject".into())
    );
    let dropped = firewall["dropped_packets"].as_u64().expect("a number");
    assert!(dropped > 0 && firewall["refused_by_default_packets"] == dropped, "{firewall}");
    assert!(firewall["defaults"].to_string().contains("\"refused\""), "{firewall}");

    let text = String::from_utf8(scene.sidestep(&["status"]).stdout).expect("text");
    let by_rule = format!("firewall: {dropped} packets dropped, 1 rejected; {dropped} of them by default");
    for part in [&by_rule, &format!("{address}: "), "reject  rule 1"] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
    eprintln!("{text}");
}
