//! Ports that hosts have opened, with real clients: natpmpc for NAT-PMP, and octets of RFC 6887 for PCP, of which Debian has
//! no client.

use lab::edited::Edited;
use lab::patience::{wait_for, wait_until};
use nix::sys::signal::Signal;

use super::follows::explained;
use super::forwards::{BRANCH, CABLE, COLLEAGUE, FIBRE, GUEST, Office, SERVER, STRANGER, nothing};
use super::scene::INTERNET;

const GATEWAY: &str = "192.168.1.1";
const SERVER6: &str = "2001:db8:1000::5";

/// Asks for a mapping by PCP, or with nothing behind CLIENT for the external address by NAT-PMP: `SOURCE SERVER CLIENT LIFETIME
/// NONCE PROTOCOL INTERNAL EXTERNAL [OPTIONS]`. Says the result, the lifetime and the port, or that nothing comes back.
const PCP: &str = r#"
import ipaddress, socket, struct, sys
source, server, client, *numbers = sys.argv[1:]
mapped = lambda text: (lambda it: it if it.version == 6 else ipaddress.ip_address("::ffff:" + text))(ipaddress.ip_address(text)).packed
message = b"\0\0"
if numbers:
    lifetime, nonce, protocol, internal, external = map(int, numbers[:5])
    message = struct.pack("!BBHI", 2, 1, 0, lifetime) + mapped(client)
    message += struct.pack("!12sBxxxHH", bytes([nonce] * 12), protocol, internal, external) + bytes(16)
    message += bytes.fromhex("".join(numbers[5:]))
family, _, _, _, to = socket.getaddrinfo(server, 5351, type=socket.SOCK_DGRAM)[0]
one = socket.socket(family, socket.SOCK_DGRAM)
one.settimeout(2)
one.bind((source, 0))
try:
    one.connect(to)
    one.send(message)
    answer = one.recv(2000)
except OSError as error:
    raise SystemExit(f"nothing: {error}")
if not numbers:
    raise SystemExit(f"{answer[3]} {ipaddress.ip_address(answer[8:12])}")
print(answer[3], *struct.unpack("!I", answer[4:8]), *struct.unpack("!H", answer[42:44]))
"#;

/// Says to whoever asks which port that was from: `ADDRESS`.
const FROM: &str = r#"
import socket, sys
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.bind((sys.argv[1], 9999))
while True:
    _, peer = one.recvfrom(100)
    one.sendto(str(peer[1]).encode(), peer)
"#;

/// Asks for one port after the other by NAT-PMP, without looking at answers: `SOURCE SERVER`.
const FLOOD: &str = r#"
import socket, struct, sys, time
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.bind((sys.argv[1], 0))
port = 1024
while True:
    for _ in range(100):
        one.sendto(struct.pack("!BBHHHI", 0, 1, 0, port, port, 60), (sys.argv[2], 5351))
        port = port % 60000 + 1024
    time.sleep(0.001)
"#;

/// Sends from a port, and says what comes back: `ADDRESS PORT DESTINATION`.
const SEND: &str = r#"
import socket, sys
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.settimeout(2)
one.bind((sys.argv[1], int(sys.argv[2])))
one.sendto(b"who?", (sys.argv[3], 9999))
print(one.recv(100).decode())
"#;

impl Office {
    /// The same office, whose hosts may have ports opened, over IPv6, too.
    fn that_maps() -> Option<Self> {
        let mut office = Self::new()?;
        office.configuration = office
            .configuration
            .edited(
                "name       = \"fibre\"\n",
                "name       = \"fibre\"\nprefixes   = [\"2001:db8:1000::/56\"]\n",
            )
            .edited(
                "ipv4      = \"192.168.1.1/24\"",
                "ipv4      = \"192.168.1.1/24\"\nport_mapping = { per_host = 3 }",
            )
            + "\n[firewall]\naccept_special = [\"2001:db8::/32\"]\n";
        office.scene.node("host").ip(&format!("addr add {SERVER6}/64 dev eth0 nodad\n")).expect("an address");
        office.scene.keep("host", &["socat", "TCP6-LISTEN:7000,fork,reuseaddr", "SYSTEM:echo hello"]);
        Some(office)
    }

    fn natpmpc(&self, node: &str, external: &str, internal: &str, lifetime: &str) -> String {
        self.scene.run(node, &["natpmpc", "-g", GATEWAY, "-a", external, internal, "tcp", lifetime])
    }

    /// By PCP, as the host that has this address.
    fn pcp(&self, address: &str, numbers: &str) -> String {
        let node = if address == COLLEAGUE { "rogue" } else { "host" };
        self.pcp_of(node, address, GATEWAY, address, numbers)
    }

    fn pcp_of(&self, node: &str, source: &str, server: &str, client: &str, numbers: &str) -> String {
        let mut words = vec!["python3", "-c", PCP, source, server, client];
        words.extend(numbers.split_whitespace());
        self.scene.run(node, &words).trim().to_owned()
    }

    /// Whether somebody outside reaches the server by this port of an uplink.
    fn is_open(&self, source: &str, uplink: &str, port: &str) -> bool {
        let said = self.tcp("net", source, uplink, port);
        assert!(nothing(&said) || said == format!("{source} hello"), "{said}");
        !nothing(&said)
    }

    /// The same of IPv6, at the server's own address.
    fn is_open6(&self) -> bool {
        let to = format!("TCP6:[{SERVER6}]:7000,bind=[{INTERNET}],connect-timeout=2");
        self.scene.run("net", &["socat", "-T2", "-", &to]).contains("hello")
    }

    /// External ports, in words.
    fn mapped(&self) -> Vec<String> {
        let status = self.scene.status().expect("a status");
        let mappings = status["port_mappings"].as_array().expect("a list").iter();
        mappings
            .map(|of| {
                let [protocol, address, by] = ["protocol", "address", "asked_by"]
                    .map(|name| of[name].as_str().expect("text").to_owned());
                format!("{protocol}/{} to {address} port {} by {by}", of["external_port"], of["port"])
            })
            .collect()
    }
}

#[test]
fn a_port_is_open_while_its_host_wants_it_and_for_nobody_else() {
    let Some(mut office) = Office::that_maps() else { return };
    // The first uplink has IPv4 alone, so the second is the first that works for IPv6. That is not what hosts are told of.
    let silent = "table ip6 silent { chain output { type filter hook output priority 0\n\
                  oifname isp0 icmpv6 type nd-router-advert drop\n}\n}\n";
    office.scene.node("net").nft(silent).expect("a provider without IPv6");
    office.start();
    office.scene.keep("net", &["python3", "-c", FROM, BRANCH]);
    wait_until("the server", || office.is_open(BRANCH, FIBRE, "443"));
    let status = || office.scene.status().expect("a status");
    wait_until("the other uplink's IPv6", || status()["uplinks"][1]["works"] == true);
    assert_eq!(status()["uplinks"][0]["works"], false);
    assert!(!office.is_open(BRANCH, FIBRE, "8443"));

    // By NAT-PMP: from outside by both uplinks, and inside by the same address.
    let said = office.natpmpc("host", "8443", "8443", "3600");
    assert!(said.contains("Public IP address : 192.0.2.2"), "{said}");
    assert!(said.contains("Mapped public port 8443 protocol TCP to local port 8443 l"), "{said}");
    assert!(office.is_open(BRANCH, FIBRE, "8443") && office.is_open(STRANGER, CABLE, "8443"));
    assert_eq!(office.tcp("rogue", COLLEAGUE, FIBRE, "8443"), format!("{GATEWAY} hello"));
    assert_eq!(office.tcp("guest", GUEST, FIBRE, "8443"), format!("{GUEST} hello"));
    assert_eq!(office.mapped(), ["tcp/8443 to 192.168.1.5 port 8443 by NAT-PMP"]);
    let text = String::from_utf8(office.scene.sidestep(&["status"]).stdout).expect("text");
    assert!(text.contains("tcp/8443 at 192.0.2.2 to 192.168.1.5:8443, by NAT-PMP, for "), "{text}");
    for (port, verdict) in [("8443", "accept"), ("8444", "drop")] {
        let packet = format!("tcp from {BRANCH} to gateway port {port} in wan");
        let told = explained(&office.scene, &packet);
        assert!(told.to_string().contains(&format!("\"verdict\":\"{verdict}\"")), "{told}");
    }

    // Another host gets another port for the same, and ends nothing.
    let said = office.natpmpc("rogue", "8443", "6000", "60");
    assert!(said.contains("Mapped public port 6000 "), "{said}");
    office.natpmpc("rogue", "0", "0", "0");
    assert!(office.natpmpc("rogue", "0", "8443", "0").contains(" 0\nepoch"));
    assert!(office.is_open(BRANCH, FIBRE, "8443") && office.mapped().len() == 1);
    // Nor by PCP: not in the other's name, not with THIRD_PARTY; and a program of the same host not without the nonce.
    assert_eq!(office.pcp(SERVER, "600 1 6 8011 6443"), "0 600 6443");
    let theirs = office.pcp_of("rogue", COLLEAGUE, GATEWAY, SERVER, "0 1 6 8011 0");
    assert!(theirs.starts_with("12 "), "{theirs}");
    let third_party = format!("0 1 6 8011 0 01000010{}ffffc0a80105", "00".repeat(10));
    assert!(office.pcp(COLLEAGUE, &third_party).starts_with("5 "));
    assert!(office.pcp(SERVER, "0 2 6 8011 0").starts_with("2 "));
    assert!(office.is_open(BRANCH, FIBRE, "6443"));
    assert_eq!(office.pcp(SERVER, "0 1 6 8011 0"), "0 0 0");
    assert!(!office.is_open(BRANCH, FIBRE, "6443"));

    // Whoever is no host of that network is not even answered.
    for (node, source, servers) in
        [("guest", GUEST, &[GATEWAY, "192.168.2.1"][..]), ("net", BRANCH, &[FIBRE, CABLE])]
    {
        for server in servers {
            let said = office.pcp_of(node, source, server, "", "");
            assert!(nothing(&said), "{node} at {server}: {said}");
        }
    }
    assert_eq!(office.pcp_of("host", SERVER, GATEWAY, "", ""), "0 192.0.2.2");

    // What the host wants no more is closed, by itself or by its word.
    assert!(office.natpmpc("host", "0", "8443", "0").contains(" 0\nepoch"));
    assert!(!office.is_open(BRANCH, FIBRE, "8443"));
    assert!(office.natpmpc("host", "8443", "8443", "3").contains(" 3\nepoch"));
    assert!(office.is_open(BRANCH, CABLE, "8443"));
    wait_until("its end", || !office.is_open(BRANCH, CABLE, "8443") && office.mapped().is_empty());
    office.scene.stop();
}

#[test]
fn limits_hold_and_nothing_leads_elsewhere_than_the_configuration_says() {
    let Some(mut office) = Office::that_maps() else { return };
    office.start();
    office.scene.keep("net", &["python3", "-c", FROM, BRANCH]);
    office.scene.keep("gw", &["socat", "TCP4-LISTEN:9443,fork,reuseaddr", "SYSTEM:echo the gateway"]);
    wait_until("the gateway's own", || office.scene.run("gw", &["ss", "-4ltn"]).contains(":9443"));

    // The ports of forwards and of the gateway itself: others, or with PREFER_FAILURE none.
    for port in ["8010", "9443"] {
        let exact = office.pcp(SERVER, &format!("600 1 6 8011 {port} 02000000"));
        assert_eq!(exact, format!("11 30 {port}"));
        let other = office.pcp(SERVER, &format!("600 1 6 8011 {port}"));
        assert_eq!(other, "0 600 8011");
    }
    // For this sender alone.
    let filter = format!("03000014 0080 0000 {}ffffcb007109", "00".repeat(10));
    assert_eq!(office.pcp(SERVER, &format!("600 1 6 8443 7443 {filter}")), "0 600 7443");
    assert!(office.is_open(BRANCH, FIBRE, "7443") && !office.is_open(STRANGER, FIBRE, "7443"));
    // Of the host's own port, which it leaves by, too.
    assert_eq!(office.pcp(SERVER, "600 1 17 7001 7777"), "0 600 7777");
    let from = || office.scene.run("host", &["python3", "-c", SEND, SERVER, "7001", BRANCH]);
    wait_until("who asks", || from().trim() == "7777");
    // And then it is enough.
    assert_eq!(office.pcp(SERVER, "600 1 17 7002 7778"), "10 30 7778");
    assert_eq!(office.pcp(COLLEAGUE, "600 1 17 7002 7777"), "0 600 7002");
    // Who asks without end is answered as far as there is time, and keeps nobody else from being answered.
    office.scene.keep("rogue", &["python3", "-c", FLOOD, COLLEAGUE, GATEWAY]);
    for lifetime in 601..611 {
        let asked = format!("{lifetime} 1 6 8011 0");
        wait_until("an answer", || office.pcp(SERVER, &asked) == format!("0 {lifetime} 8011"));
    }

    // Of IPv6 the host has its own address and port, and asks the router that it knows: by its link-local address.
    let router = wait_for("a link-local address", || office.scene.address("gw", "lan", "fe80"));
    let router = format!("{router}%eth0");
    assert!(!office.is_open6());
    let ask6 = |lifetime: u32| {
        let numbers = format!("{lifetime} 1 6 7000 0");
        office.pcp_of("host", SERVER6, &router, SERVER6, &numbers)
    };
    wait_until("the prefix", || ask6(600) == "0 600 7000");
    wait_until("the server", || office.is_open6());
    wait_until("its word", || ask6(0) == "0 0 0");
    assert!(!office.is_open6());
    office.scene.stop();
}

#[test]
fn what_hosts_have_opened_goes_on_through_reloads_flushes_and_kills_and_leaves_nothing() {
    let Some(mut office) = Office::that_maps() else { return };
    let before = office.kernel();
    office.start();
    wait_until("the port", || office.pcp(SERVER, "3600 1 6 8443 7443").starts_with("0 "));
    assert_eq!(office.pcp(SERVER, "3600 1 6 8011 7444"), "0 3600 7444");
    let is_open = |office: &Office, port: &str| office.is_open(BRANCH, CABLE, port);
    assert!(is_open(&office, "7443") && is_open(&office, "7444"));

    // A configuration with a forward of one of these: it goes first.
    let with = office.configuration.edited("port = 443\n", "port = 7444\n");
    office.scene.write("gw.toml", &with);
    office.scene.signal(Signal::SIGHUP);
    wait_until("the forward", || office.mapped().len() == 1);
    wait_until("both", || is_open(&office, "7443") && is_open(&office, "7444"));
    // Somebody starts another firewall; another one empties what is ours.
    office.scene.run("gw", &["nft", "flush", "ruleset"]);
    wait_until("the port again", || is_open(&office, "7443"));
    office.scene.run("gw", &["nft", "flush", "map", "ip", "sidestep-nat", "mapped"]);
    wait_until("the port once more", || is_open(&office, "7443"));

    // The kernel goes on by itself, and also ends by itself what is over; the next start takes over, with the nonce.
    assert_eq!(office.pcp(SERVER, "4 1 6 8011 7445"), "0 4 7445");
    office.scene.kill();
    assert!(is_open(&office, "7443"));
    wait_until("the end of a port", || !is_open(&office, "7445"));
    assert!(is_open(&office, "7443"));
    office.scene.start_again();
    wait_until("the port after the kill", || is_open(&office, "7443"));
    assert_eq!(office.mapped(), ["tcp/7443 to 192.168.1.5 port 8443 by PCP"]);
    assert!(office.pcp(SERVER, "0 2 6 8443 0").starts_with("2 "));
    office.scene.stop();
    assert_eq!(office.kernel(), before);
    assert!(!is_open(&office, "7443"));
    office.scene.start_again();
    wait_until("the port after a restart", || is_open(&office, "7443"));

    // Without the key nobody is answered, and nothing is open.
    let without = office.configuration.edited("port_mapping = { per_host = 3 }\n", "");
    office.scene.write("gw.toml", &without);
    office.scene.signal(Signal::SIGHUP);
    wait_until("its end", || !is_open(&office, "7443"));
    assert!(nothing(&office.pcp(SERVER, "3600 1 6 8443 7443")));
    office.scene.stop();
    assert_eq!(office.kernel(), before);
}
