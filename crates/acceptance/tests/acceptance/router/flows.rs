//! Flows, as a collector that is not ours (nfdump's) understands them.

use std::path::Path;

use lab::edited::Edited;
use lab::patience::{wait_for, wait_until};
use serde_json::Value;

use super::forwards::{FIBRE, Office, SERVER};
use super::scene::INTERNET;

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

[firewall]
accept_special = ["2001:db8::/32"]

[flows]
collector = "[2001:db8:ffff::1]:4739"
interval  = "10s"
"#;
/// The provider's address of IPv4.
const WEB: &str = "203.0.113.1";

/// Serves so many octets to each client, after a line from it: `PORT OCTETS`.
const SERVE: &str = r#"
import socket, sys
one = socket.create_server(("", int(sys.argv[1])), family=socket.AF_INET6, dualstack_ipv6=True)
while True:
    client, _ = one.accept()
    client.recv(100)
    client.sendall(b"x" * int(sys.argv[2]))
    client.close()
"#;

/// Asks, and reads all: `ADDRESS PORT`.
const FETCH: &str = r#"
import socket, sys
one = socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)
one.sendall(b"please\n")
count = 0
while data := one.recv(65536):
    count += len(data)
print(count)
"#;

/// Sends one datagram of 500 octets every tenth of a second: `ADDRESS PORT`.
const TALK: &str = r#"
import socket, sys, time
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    one.sendto(b"x" * 472, (sys.argv[1], int(sys.argv[2])))
    time.sleep(0.1)
"#;

/// Sends a datagram to each of so many ports: `ADDRESS COUNT`.
const SCATTER: &str = r#"
import socket, sys, time
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for port in range(10000, 10000 + int(sys.argv[2])):
    one.sendto(b"x", (sys.argv[1], port))
    if port % 50 == 0:
        time.sleep(0.01)
"#;

/// What the collector has noted, when it has noted it.
fn noted(office: &Office, folder: &Path) -> Vec<Value> {
    let told = office.scene.run("net", &["nfdump", "-q", "-R", &folder.display().to_string(), "-o", "json"]);
    // Documents with commas between them; later versions put them into a list.
    let documents = told.trim().trim_start_matches('[').trim_end_matches([',', ']', '\n']);
    serde_json::from_str(&format!("[{documents}]")).unwrap_or_default()
}

/// Of the flows from here to there, octets and packets.
fn carried(records: &[Value], source: &str, destination: &str, protocol: u64) -> (u64, u64) {
    let [v4, v6] = ["src4_addr", "src6_addr"];
    let of = |record: &&Value| {
        let text = |name: &str| record[name].as_str().unwrap_or_default().to_owned();
        let (from, to) = (text(v4) + &text(v6), text("dst4_addr") + &text("dst6_addr"));
        from == source && to == destination && record["proto"] == protocol
    };
    let number = |record: &Value, name: &str| record[name].as_u64().unwrap_or(0);
    records.iter().filter(of).fold((0, 0), |(octets, packets), record| {
        (octets + number(record, "in_bytes"), packets + number(record, "in_packets"))
    })
}

#[test]
fn a_collector_is_told_what_hosts_send_and_receive_and_nothing_of_the_gateway_itself() {
    let Some(mut office) = Office::new() else { return };
    let folder = office.scene.folder.path().join("flows");
    std::fs::create_dir(&folder).expect("a folder");
    let collector = folder.display().to_string();
    office.scene.keep("net", &["nfcapd", "-6", "-b", INTERNET, "-p", "4739", "-w", &collector, "-t", "2"]);
    office.scene.keep("net", &["python3", "-c", SERVE, "8080", "300000"]);
    let before = office.scene.kernel();
    office.scene.start(GATEWAY);
    let (address, _) =
        wait_for("an address of the delegated prefix", || office.scene.host_address("2001:db8:10"));
    wait_until("the Internet", || office.scene.answers("host", INTERNET));

    for server in [INTERNET, WEB] {
        let fetched = office.scene.run("host", &["python3", "-c", FETCH, server, "8080"]);
        assert_eq!(fetched.trim(), "300000");
    }
    let pinged = office.scene.run("host", &["ping", "-c", "4", "-i", "0.2", "-s", "1000", WEB]);
    assert!(pinged.contains(" 0% packet loss"), "{pinged}");
    // The gateway's own.
    assert!(office.scene.answers("gw", INTERNET));
    // One that goes on and on.
    office.scene.keep("host", &["python3", "-c", TALK, WEB, "9"]);

    let told = wait_for("flows of every kind", || {
        let records = noted(&office, &folder);
        let enough = [(&*address, INTERNET, 6), (SERVER, WEB, 6), (SERVER, WEB, 17), (SERVER, WEB, 1)];
        let has = |(from, to, protocol)| carried(&records, from, to, protocol).1 > 0;
        enough.into_iter().all(has).then_some(records)
    });
    // What a fetch takes, with its headers, and both ways; each direction has the addresses that its packets come in with.
    for (from, to) in [(INTERNET, &*address), (WEB, FIBRE)] {
        let (octets, packets) = carried(&told, from, to, 6);
        assert!((300_000..330_000).contains(&octets) && packets > 5, "{octets} {packets}");
    }
    assert_eq!(carried(&told, SERVER, WEB, 1), (4 * 1_028, 4));
    assert_eq!(carried(&told, WEB, FIBRE, 1), (4 * 1_028, 4));
    let talk: Vec<_> = told.iter().filter(|record| record["proto"] == 17).collect();
    assert!(talk.iter().all(|record| record["src4_xlt_ip"] == FIBRE), "{talk:?}");
    let (octets, packets) = carried(&told, SERVER, WEB, 17);
    assert_eq!(octets, 500 * packets, "{talk:?}");

    // Of the gateway's own connections nothing is told, not even of those that tell.
    let uplink = office.scene.address("gw", "wan0", "2001:db8:0:1:").expect("the gateway's address");
    for record in &told {
        let ends = ["src6_addr", "dst6_addr"].map(|name| record[name].as_str().unwrap_or_default());
        assert!(!ends.contains(&&*uplink), "{record}");
    }

    // Nobody listens: that is a problem, until somebody does.
    let status = office.scene.status().expect("a status");
    assert_eq!(status["flows"]["lost"], 0, "{status}");
    assert!(status["flows"]["records"].as_u64() > Some(7), "{status}");
    office.scene.write("gw.toml", &GATEWAY.edited(":4739", ":4740"));
    let reloaded = office.scene.sidestep(&["reload", "gateway"]);
    assert!(reloaded.status.success(), "{}", String::from_utf8_lossy(&reloaded.stderr));
    let problem = wait_for("the problem", || {
        let status = office.scene.status()?;
        let problems = status["problems"].as_array()?.iter();
        problems.filter_map(Value::as_str).find(|problem| problem.contains("collector")).map(str::to_owned)
    });
    assert!(problem.contains("[2001:db8:ffff::1]:4740: Connection refused"), "{problem}");
    office.scene.write("gw.toml", GATEWAY);
    let records = noted(&office, &folder).len();
    assert!(office.scene.sidestep(&["reload", "gateway"]).status.success());
    wait_until("flows again", || noted(&office, &folder).len() > records);

    // At the end everything is told, and all is as it was.
    office.scene.stop();
    let after = |records: &[Value]| carried(records, SERVER, WEB, 17).1;
    wait_until("the last flow", || after(&noted(&office, &folder)) > packets);
    assert_eq!(office.scene.kernel(), before);
}

#[test]
fn a_collector_behind_a_slow_line_is_told_all_that_there_is() {
    const CONNECTIONS: u64 = 5_000;
    let Some(mut office) = Office::new() else { return };
    let folder = office.scene.folder.path().join("flows");
    std::fs::create_dir(&folder).expect("a folder");
    let collector = folder.display().to_string();
    office.scene.keep("net", &["nfcapd", "-6", "-b", INTERNET, "-p", "4739", "-w", &collector, "-t", "2"]);
    office.scene.start(GATEWAY);
    wait_until("the Internet", || office.scene.answers("host", INTERNET));
    let said = office.scene.run("host", &["python3", "-c", SCATTER, WEB, &CONNECTIONS.to_string()]);
    assert_eq!(said, "");
    // Some two hundred datagrams, of which the socket has room for ninety.
    let slow =
        ["qdisc", "replace", "dev", "wan0", "root", "tbf", "rate", "1mbit", "burst", "4k", "limit", "9mb"];
    assert_eq!(office.scene.run("gw", &[&["tc"][..], &slow].concat()), "");
    wait_until("all flows", || carried(&noted(&office, &folder), SERVER, WEB, 17).1 >= CONNECTIONS);
    // Another round, which has nothing new.
    std::thread::sleep(std::time::Duration::from_secs(11));
    assert_eq!(carried(&noted(&office, &folder), SERVER, WEB, 17).1, CONNECTIONS);
    let status = office.scene.status().expect("a status");
    assert_eq!((&status["flows"]["lost"], &status["flows"]["left_out"]), (&0.into(), &0.into()), "{status}");
}
