//! Forwarded ports, with real clients: outside by two providers, inside by the uplinks' addresses, as a guest, and as those
//! who should not get through.
//!
//! The providers take from the gateway only packets with the addresses that they have given it, so an answer that leaves by
//! the wrong one is lost.

use lab::edited::Edited;
use lab::patience::{wait_for, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::scene::RouterScene;

pub(super) const FIBRE: &str = "192.0.2.2";
pub(super) const CABLE: &str = "198.51.100.2";
/// Somebody in the Internet, who is the branch office of the example.
pub(super) const BRANCH: &str = "203.0.113.9";
pub(super) const STRANGER: &str = "203.0.113.1";
pub(super) const SERVER: &str = "192.168.1.5";
pub(super) const COLLEAGUE: &str = "192.168.1.7";
pub(super) const GUEST: &str = "192.168.2.9";

/// Answers each line or datagram with who has sent it, and notes that: `FILE PORT…`, each with both protocols.
const SERVE: &str = r#"
import socketserver, sys, threading
noted, ports = open(sys.argv[1], "a"), map(int, sys.argv[2:])

def answer(peer, data):
    print(peer, file=noted, flush=True)
    return f"{peer} ".encode() + data

class Stream(socketserver.BaseRequestHandler):
    def handle(self):
        for line in self.request.makefile("rb"):
            self.request.sendall(answer(self.client_address[0], line))

class Datagram(socketserver.BaseRequestHandler):
    def handle(self):
        data, sock = self.request
        sock.sendto(answer(self.client_address[0], data), self.client_address)

class Streams(socketserver.ThreadingTCPServer):
    allow_reuse_address, daemon_threads = True, True

for port in ports:
    for kind, handler in (Streams, Stream), (socketserver.UDPServer, Datagram):
        threading.Thread(target=kind(("0.0.0.0", port), handler).serve_forever).start()
"#;

/// Sends a line and says what comes back, or that nothing does: `PROTOCOL SOURCE DESTINATION PORT`.
const ASK: &str = r#"
import socket, sys
protocol, source, destination, port = sys.argv[1:]
one = socket.socket(socket.AF_INET, socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM)
one.settimeout(2)
one.bind((source, 0))
try:
    one.connect((destination, int(port)))
    one.sendall(b"hello\n")
    print(one.recv(100).decode().strip())
except OSError as error:
    print("nothing:", error)
"#;

/// Keeps a connection in use, and notes how often it was answered: `FILE SOURCE DESTINATION PORT`.
const KEEP: &str = r#"
import os, socket, sys, time
noted, source, destination, port = sys.argv[1:]
one = socket.create_connection((destination, int(port)), 10, (source, 0))
lines, count = one.makefile("rb"), 0
while True:
    one.sendall(b"still there\n")
    if not lines.readline():
        raise SystemExit("it ended")
    count += 1
    with open(noted + ".new", "w") as file:
        file.write(str(count))
    os.rename(noted + ".new", noted)
    time.sleep(0.05)
"#;

/// The scene, with IPv4 at both providers and three hosts inside.
pub(super) struct Office {
    pub(super) scene: RouterScene,
    pub(super) configuration: String,
}

impl Office {
    pub(super) fn new() -> Option<Self> {
        let mut scene = RouterScene::new()?;
        scene.node("guest").create().expect("a namespace");
        let (gateway, guest) = (scene.node("gw"), scene.node("guest"));
        gateway
            .ip(&format!(
                "link add guest type veth peer name eth0 netns {}\nlink set guest master guests up\n\
                 addr add {CABLE}/24 dev wan1\n\
                 route add default via 192.0.2.1 dev wan0 metric 100\nroute add default via 198.51.100.1 dev wan1 metric 200\n",
                guest.name()
            ))
            .expect("uplinks with addresses and routes, as DHCP clients set them");
        // Strict, as some distributions have it.
        gateway.sysctl(&[("ipv4/conf/all/rp_filter", 1)]).expect("a setting");
        for (node, address, router) in [
            ("host", SERVER, "192.168.1.1"),
            ("rogue", COLLEAGUE, "192.168.1.1"),
            ("guest", GUEST, "192.168.2.1"),
        ] {
            let lines =
                format!("addr add {address}/24 dev eth0\nlink set eth0 up\nroute add default via {router}\n");
            scene.node(node).ip(&lines).expect("a host");
        }
        let net = scene.node("net");
        net.sysctl(&[
            ("ipv4/conf/all/rp_filter", 0),
            ("ipv4/conf/isp0/rp_filter", 0),
            ("ipv4/conf/isp1/rp_filter", 0),
        ])
        .expect("settings");
        net.ip(&format!("addr add 198.51.100.1/24 dev isp1\naddr add {BRANCH}/32 dev lo\n"))
            .expect("providers");
        net.nft(
            "table ip bcp38 { chain prerouting { type filter hook prerouting priority -300\n\
             iifname isp0 ip saddr != 192.0.2.0/24 drop\niifname isp1 ip saddr != 198.51.100.0/24 drop\n}\n}\n",
        )
        .expect("providers' filters");
        let noted = scene.folder.path().join("server.noted").display().to_string();
        let mut server = vec!["python3", "-c", SERVE, &noted];
        server.extend(["8443", "443", "8000", "8005", "8010", "8011", "3389"]);
        scene.keep("host", &server);
        wait_until("the server", || scene.run("host", &["ss", "-4ltn"]).contains(":3389"));
        let configuration = super::at_our_interfaces(include_str!("../../../../../examples/forward.toml"))
            .edited("\n[firewall]\naccept_special = [\"2001:db8::/32\"]\n", "");
        Some(Office { scene, configuration })
    }

    pub(super) fn start(&mut self) {
        let configuration = self.configuration.clone();
        self.scene.start(&configuration);
    }

    /// What a client gets back.
    pub(super) fn ask(
        &self,
        node: &str,
        protocol: &str,
        source: &str,
        destination: &str,
        port: &str,
    ) -> String {
        let said = self.scene.run(node, &["python3", "-c", ASK, protocol, source, destination, port]);
        said.trim().to_owned()
    }

    /// By TCP.
    pub(super) fn tcp(&self, node: &str, source: &str, destination: &str, port: &str) -> String {
        self.ask(node, "tcp", source, destination, port)
    }

    /// What the gateway may have changed.
    pub(super) fn kernel(&self) -> String {
        let more = "ip rule; ip -4 route show table all | grep -v 'dev lan\\|dev guests' | sort; sysctl net.ipv4.conf.wan0.rp_filter net.ipv4.conf.wan1.rp_filter";
        self.scene.kernel() + &self.scene.run("gw", &["sh", "-c", more])
    }

    fn forward(&self, name: &str) -> Value {
        let status = self.scene.status().expect("a status");
        let forwards = status["forwards"].as_array().expect("a list");
        forwards.iter().find(|forward| forward["name"] == name).expect("a forward").clone()
    }

    /// Begins a connection that is to last; the file that tells how often it was answered.
    fn keep(&mut self, name: &str, node: &'static str, source: &str, destination: &str) {
        let noted = self.scene.folder.path().join(name).display().to_string();
        self.scene.keep(node, &["python3", "-c", KEEP, &noted, source, destination, "443"]);
        self.goes_on(name);
    }

    /// Waits until it was answered several times from now on.
    fn goes_on(&self, name: &str) {
        let count = || {
            let text = std::fs::read_to_string(self.scene.folder.path().join(name)).ok()?;
            text.trim().parse::<u64>().ok()
        };
        let before = wait_for("a first answer", count);
        wait_until("more answers", || count() > Some(before + 5));
    }
}

impl Drop for Office {
    fn drop(&mut self) {
        let _ = self.scene.node("guest").delete();
    }
}

pub(super) fn nothing(said: &str) -> bool {
    said.starts_with("nothing:")
}

#[test]
fn a_forwarded_port_is_reached_from_outside_and_inside_and_nothing_else_is() {
    let Some(mut office) = Office::new() else { return };
    office.start();
    let ready = |office: &Office| office.tcp("net", BRANCH, FIBRE, "443").starts_with(BRANCH);
    wait_until("the server from outside", || ready(&office));

    // Answers leave by the uplink that was asked, whichever is the first.
    for uplink in [FIBRE, CABLE] {
        for (protocol, port) in
            [("tcp", "443"), ("tcp", "8000"), ("udp", "8005"), ("tcp", "8010"), ("udp", "8010")]
        {
            let said = office.ask("net", protocol, BRANCH, uplink, port);
            assert_eq!(said, format!("{BRANCH} hello"), "{protocol}/{port} at {uplink}");
        }
        assert_eq!(office.tcp("net", STRANGER, uplink, "443"), format!("{STRANGER} hello"));
        // Inside, by the same address: in the server's own network it sees the gateway, else who asks.
        for (node, source, seen) in
            [("rogue", COLLEAGUE, "192.168.1.1"), ("host", SERVER, "192.168.1.1"), ("guest", GUEST, GUEST)]
        {
            assert_eq!(
                office.tcp(node, source, uplink, "443"),
                format!("{seen} hello"),
                "{node} to {uplink}"
            );
            assert_eq!(office.ask(node, "udp", source, uplink, "8005"), format!("{seen} hello"), "{node}");
        }
        // Beside the ports: the server listens there, and nobody has forwarded them.
        for port in ["8443", "8011"] {
            assert!(nothing(&office.tcp("net", BRANCH, uplink, port)), "{port} at {uplink}");
        }
    }
    assert_eq!(office.tcp("net", BRANCH, FIBRE, "3389"), format!("{BRANCH} hello"));
    for (node, source, uplink) in [
        ("net", STRANGER, FIBRE),
        ("net", BRANCH, CABLE),
        ("rogue", COLLEAGUE, FIBRE),
        ("guest", GUEST, FIBRE),
    ] {
        assert!(nothing(&office.tcp(node, source, uplink, "3389")), "{node} from {source} to {uplink}");
    }

    // Not past the forward: at the host's own address, or at the gateway's inner one.
    office.scene.node("net").ip("route add 192.168.0.0/16 via 192.0.2.2\n").expect("a route");
    for (destination, port) in
        [(SERVER, "8443"), (SERVER, "8000"), ("192.168.1.1", "443"), ("192.168.2.1", "443")]
    {
        assert!(nothing(&office.tcp("net", BRANCH, destination, port)), "{destination} port {port}");
    }
    assert!(
        nothing(&office.tcp("guest", GUEST, SERVER, "8443")),
        "guests reach what is forwarded, not the host"
    );
    assert!(nothing(&office.tcp("guest", GUEST, "192.168.2.1", "443")), "the gateway's own address there");
    assert_eq!(office.tcp("rogue", COLLEAGUE, SERVER, "8443"), format!("{COLLEAGUE} hello"));
    // Nor with the address of a host inside.
    office.scene.node("net").ip("addr add 192.168.1.99/32 dev lo\n").expect("an address");
    assert!(nothing(&office.ask("net", "udp", "192.168.1.99", FIBRE, "8005")));
    assert!(nothing(&office.ask("net", "tcp", "192.168.1.99", CABLE, "443")));
    let noted = std::fs::read_to_string(office.scene.folder.path().join("server.noted")).expect("notes");
    assert!(!noted.contains("192.168.1.99"), "a forged source has reached the server");

    // It is counted, named and explained.
    let web = office.forward("web");
    assert_eq!(web["addresses"], serde_json::json!([FIBRE, CABLE]), "{web}");
    assert_eq!((&web["to"], &web["to_port"]), (&SERVER.into(), &8443.into()));
    assert!(web["connections"].as_u64() >= Some(10), "{web}");
    assert_eq!(office.forward("desk")["connections"], 1);
    let status = office.scene.status().expect("a status");
    let rules = status["firewall"]["rules"].as_array().expect("rules");
    let rule = rules.iter().find(|rule| rule["comment"] == "forward desk").expect("the forward's rule");
    assert_eq!((&rule["packets"], &rule["verdict"]), (&1.into(), &"accept".into()));
    let text = String::from_utf8(office.scene.sidestep(&["status"]).stdout).expect("text");
    assert!(text.contains("web: tcp/443 at 192.0.2.2, 198.51.100.2 to 192.168.1.5:8443, "), "{text}");
    let tested = office.scene.sidestep(&["firewall", "test", "gw.toml"]);
    assert!(tested.status.success(), "{}", String::from_utf8_lossy(&tested.stdout));
    office.scene.stop();
}

/// The kernel hands over what the server has sent from its port; Lua decides about each.
const ANSWERS: &str = r#"
function process_packet(p)
  local ip = p:data(packet_eth):data(packet_ip)
  local tcp = ip and ip:data(packet_tcp)
  if not tcp or tcp:sport():get() ~= 8443 then return NF_ACCEPT end
  local seen = { "an answer" }
  nf.log(seen[1])
  return NF_ACCEPT
end
"#;

/// Marks say by which uplink an answer leaves, and which packets Lua is to see: neither hides the other.
#[test]
fn answers_that_a_script_looks_at_leave_by_the_uplink_that_was_asked() {
    let Some(mut office) = Office::new() else { return };
    for (text, is_answered) in
        [(ANSWERS.to_owned(), true), (ANSWERS.edited("NF_ACCEPT\nend", "NF_DROP\nend"), false)]
    {
        office.scene.write("answers.lua", &text);
        let script =
            "\n[[script]]\nfile = \"answers.lua\"\nhook = \"ingress\"\ndev = \"lan\"\ntier = \"both\"\n";
        let configuration = office.configuration.clone() + script;
        office.scene.start(&configuration);
        let said = |words: &[&str]| {
            let output = office.scene.sidestep(words);
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
        };
        wait_until("its script", || said(&["script", "list"]).contains("answers.lua"));
        // What comes back is before what was there, where both have the same priority.
        office
            .scene
            .node("gw")
            .nft("delete table ip sidestep-nat\n")
            .expect("somebody who deletes the table");
        for uplink in [FIBRE, CABLE] {
            let served = || office.tcp("net", BRANCH, uplink, "8000") == format!("{BRANCH} hello");
            wait_until("another port, which Lua does not see", served);
            let said = office.tcp("net", BRANCH, uplink, "443");
            assert_eq!(said == format!("{BRANCH} hello"), is_answered, "{uplink}: {said}");
        }
        let logs = said(&["script", "logs"]);
        assert!(logs.matches("an answer").count() >= 2, "{logs}{}", said(&["script", "list"]));
        office.scene.stop();
    }
}

#[test]
fn a_forward_follows_the_uplinks_address_and_router() {
    let Some(mut office) = Office::new() else { return };
    office.start();
    wait_until("the server", || office.tcp("net", BRANCH, CABLE, "443").starts_with(BRANCH));
    let (net, gateway) = (office.scene.node("net"), office.scene.node("gw"));
    // As a DHCP client does it with another lease.
    net.ip("addr add 198.51.100.129/25 dev isp1\n").expect("another router");
    gateway
        .ip(&format!(
            "addr del {CABLE}/24 dev wan1\naddr add 198.51.100.130/25 dev wan1\nroute add default via 198.51.100.129 dev wan1 metric 200\n"
        ))
        .expect("another address");
    wait_until("the server at the other address, from outside", || {
        office.tcp("net", BRANCH, "198.51.100.130", "443") == format!("{BRANCH} hello")
    });
    wait_until("the same from inside", || {
        office.tcp("guest", GUEST, "198.51.100.130", "443") == format!("{GUEST} hello")
    });
    assert!(nothing(&office.tcp("guest", GUEST, CABLE, "443")), "the former address is nobody's");
    assert_eq!(office.forward("web")["addresses"], serde_json::json!([FIBRE, "198.51.100.130"]));
    // An address without a network, and a router on the link all the same; the other uplink's is in no way concerned.
    gateway
        .ip("addr del 198.51.100.130/25 dev wan1\naddr add 198.51.100.131/32 dev wan1\n\
             route add default via 198.51.100.129 dev wan1 onlink metric 200\n")
        .expect("an address by itself");
    wait_until("the server at that address, from outside", || {
        office.tcp("net", BRANCH, "198.51.100.131", "443") == format!("{BRANCH} hello")
    });
    let reloaded = office.scene.sidestep(&["reload"]);
    assert!(reloaded.status.success(), "{}", office.scene.log());
    assert_eq!(office.tcp("net", BRANCH, FIBRE, "443"), format!("{BRANCH} hello"));
    // Without a default route there is nothing to answer by, which is told.
    gateway.ip("route del default via 198.51.100.129 dev wan1\n").expect("no route");
    let problems = || office.scene.status().expect("a status")["problems"].to_string();
    wait_until("the problem", || problems().contains("uplink cable: answers to what is forwarded"));
    office.scene.stop();
}

#[test]
fn what_is_forwarded_goes_on_through_reloads_flushes_and_kills_and_leaves_nothing() {
    let Some(mut office) = Office::new() else { return };
    let before = office.kernel();
    office.start();
    wait_until("the server", || office.tcp("net", BRANCH, CABLE, "443").starts_with(BRANCH));
    const LASTING: [(&str, &str, &str, &str); 3] = [
        ("by-fibre", "net", BRANCH, FIBRE),
        ("by-cable", "net", BRANCH, CABLE),
        ("hairpin", "rogue", COLLEAGUE, FIBRE),
    ];
    let all_go_on = |office: &Office, when: &str| {
        for (name, ..) in LASTING {
            office.goes_on(&format!("{name}-{when}"));
        }
    };
    let begin = |office: &mut Office, when: &str| {
        for (name, node, source, destination) in LASTING {
            office.keep(&format!("{name}-{when}"), node, source, destination);
        }
    };
    begin(&mut office, "reload");

    // A reload that takes it away: new connections are refused, those that there are go on.
    let without = office.configuration.edited("port = 443\n", "port = 444\n");
    office.scene.write("gw.toml", &without);
    office.scene.signal(Signal::SIGHUP);
    wait_until("the other port", || office.tcp("net", BRANCH, FIBRE, "444").starts_with(BRANCH));
    assert!(nothing(&office.tcp("net", BRANCH, FIBRE, "443")));
    all_go_on(&office, "reload");
    office.scene.write("gw.toml", &office.configuration);
    office.scene.signal(Signal::SIGHUP);
    wait_until("the port again", || office.tcp("net", BRANCH, CABLE, "443").starts_with(BRANCH));

    // Somebody starts another firewall, and takes rules and routes away.
    office.scene.run("gw", &["nft", "flush", "ruleset"]);
    office.scene.run("gw", &["sh", "-c", "ip rule del priority 8300; ip route flush table 8301"]);
    for (node, source, destination) in
        [("net", BRANCH, FIBRE), ("net", BRANCH, CABLE), ("rogue", COLLEAGUE, CABLE)]
    {
        wait_until("all of it again", || !nothing(&office.tcp(node, source, destination, "443")));
    }

    // The kernel goes on by itself, and the next start takes over.
    begin(&mut office, "kill");
    office.scene.kill();
    assert_eq!(office.tcp("net", BRANCH, CABLE, "443"), format!("{BRANCH} hello"));
    assert_eq!(office.tcp("guest", GUEST, FIBRE, "443"), format!("{GUEST} hello"));
    office.scene.start_again();
    wait_until("the server after the kill", || office.tcp("net", BRANCH, CABLE, "443").starts_with(BRANCH));
    all_go_on(&office, "kill");

    office.scene.stop();
    assert_eq!(office.kernel(), before);
}
