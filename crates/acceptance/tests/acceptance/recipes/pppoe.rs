//! A line of PPPoE, by pppd, to a provider that delegates a prefix over it: kernels that have PPP, as Debian's.
//!
//! ```text
//!   host ── gateway ══ PPPoE ══ provider
//! ```

use std::time::Duration;

use lab::patience::{wait_for, wait_until};
use lab::process::Process;
use serde_json::Value;

use super::scene::{Scene, has_module};

/// `examples/pppoe`.
const PEER: &str = include_str!("../../../../../examples/pppoe/fibre");
const MSS: &str = include_str!("../../../../../examples/pppoe/mss.nft");
const HOME: &str = include_str!("../../../../../examples/pppoe/home.toml");
const SECRETS: &str = "\"line@provider.example\" * \"secret\" *\n";
/// Of the provider: who calls proves who it is.
const PROVIDER: &str = "require-chap\nlcp-echo-interval 5\nlcp-echo-failure 3\nmtu 1492\nmru 1492\n+ipv6\n";
/// In mounts of its own, with this folder as /etc/ppp and the process ids elsewhere.
const WITH_FILES: &str = "mount -t tmpfs tmpfs /run; mount --bind \"$0\" /etc/ppp; exec \"$@\"";

/// Segments that begin a connection.
const SYN: &str = "tcp[13] & 2 != 0 or (ip6[6] == 6 and ip6[53] & 2 != 0)";
/// Beyond the provider.
const INTERNET: [&str; 2] = ["2001:db8:ffff::1", "203.0.113.1"];
/// What it delegates from.
const POOL: &str = "2001:db8:1000::/40";

struct Line {
    scene: Scene,
    /// pppd of the gateway.
    pppd: Option<Process>,
    /// The provider's server of DHCPv6, which knows one line only.
    kea: Option<Process>,
}

impl Line {
    /// All but the line.
    fn new() -> Option<Line> {
        if !has_module(&["pppoe"], &["pppd", "pppoe-server"]) {
            return None;
        }
        let mut scene = Scene::new(&["net", "gw", "host"], &["kea-dhcp6", "dnsmasq"])?;
        scene.link(("net", "access"), ("gw", "eth0"));
        scene.link(("gw", "eth1"), ("host", "eth0"));
        scene
            .node("net")
            .sysctl(&[("ipv6/conf/all/forwarding", 1), ("ipv4/ip_forward", 1)])
            .expect("a router");
        scene.ip("net", "address add 2001:db8:ffff::1/128 dev lo\naddress add 203.0.113.1/32 dev lo");
        let settings = ["accept_ra", "autoconf"].map(|name| format!("ipv6/conf/eth0/{name}"));
        scene.node("host").sysctl(&settings.each_ref().map(|name| (name.as_str(), 1))).expect("a host");

        for folder in ["of-net", "of-gw/peers"] {
            std::fs::create_dir_all(scene.path(folder)).expect("a folder");
        }
        for (name, text) in [
            ("of-net/chap-secrets", SECRETS),
            ("of-net/provider", PROVIDER),
            ("of-gw/chap-secrets", SECRETS),
            ("of-gw/peers/fibre", PEER),
        ] {
            scene.write(name, text);
        }
        let folder = scene.path("of-net").display().to_string();
        let server = [
            "pppoe-server",
            "-F",
            "-I",
            "access",
            "-L",
            "10.67.15.1",
            "-R",
            "10.67.15.2",
            "-O",
            "/etc/ppp/provider",
        ];
        scene
            .start("net", &[&["unshare", "--mount", "sh", "-ec", WITH_FILES, &folder][..], &server].concat());

        let mss = scene.write("mss.nft", MSS).display().to_string();
        assert_eq!(scene.run("gw", &["nft", "-f", &mss]), "");
        // The second time, as at each start of the line.
        assert_eq!(scene.run("gw", &["nft", "-f", &mss]), "");
        scene.write("gw.toml", &format!("{HOME}\n[firewall]\naccept_special = [\"2001:db8::/32\"]\n"));
        Some(Line { scene, pppd: None, kea: None })
    }

    /// Has pppd call the provider, as the unit does.
    fn call(&mut self) {
        let folder = self.scene.path("of-gw").display().to_string();
        let mut command = self.scene.node("gw").command("unshare").expect("the namespace");
        command.args(["--mount", "sh", "-ec", WITH_FILES, &folder, "pppd", "call", "fibre", "nodetach"]);
        let log = self.scene.path("pppd.log");
        self.pppd = Some(Process::start(&mut command, &log).expect("pppd"));
    }

    /// Waits for the line, and has the provider delegate over it.
    fn serve(&mut self) {
        wait_until("a line", || {
            ["net", "gw"].iter().all(|node| {
                self.scene.run(node, &["ip", "-6", "address", "show", "dev", "ppp0"]).contains("fe80::")
            })
        });
        if let Some(kea) = self.kea.take() {
            kea.kill();
        }
        // Kea takes the other end's address for its own where an interface has a peer.
        self.scene.ip(
            "net",
            &format!(
                "address flush dev ppp0 scope link\naddress add fe80::1/64 dev ppp0 nodad\nroute replace {POOL} dev ppp0"
            ),
        );
        let file = self.scene.write(
            "kea.json",
            &format!(
                r#"{{ "Dhcp6": {{ "interfaces-config": {{ "interfaces": ["ppp0"], "service-sockets-max-retries": 20, "service-sockets-retry-wait-time": 200 }},
                "lease-database": {{ "type": "memfile", "persist": false }},
                "preferred-lifetime": 300, "valid-lifetime": 400, "renew-timer": 60, "rebind-timer": 120,
                "server-id": {{ "type": "EN", "enterprise-id": 32473, "identifier": "0102", "persist": false }},
                "option-data": [ {{ "name": "dns-servers", "data": "2001:db8:ffff::54" }} ],
                "subnet6": [ {{ "subnet": "2001:db8:0:1::/64", "interface": "ppp0",
                  "pd-pools": [ {{ "prefix": "{}", "prefix-len": 40, "delegated-len": 56 }} ] }} ] }} }}"#,
                POOL.trim_end_matches("/40")
            ),
        );
        let mut command = self.scene.node("net").command("kea-dhcp6").expect("the namespace");
        let folder = self.scene.path("");
        command.arg("-c").arg(file).env("KEA_PIDFILE_DIR", &folder).env("KEA_LOCKFILE_DIR", &folder);
        self.kea = Some(Process::start(&mut command, &self.scene.path("kea.log")).expect("Kea"));
    }

    fn status(&self) -> Option<Value> {
        serde_json::from_str(&self.scene.run("gw", &[&self.scene.program(), "status", "--json"])).ok()
    }

    /// The host's address of the delegated prefix.
    fn address(&self) -> Option<String> {
        let text = self.scene.run("host", &["ip", "-o", "-6", "address", "show", "dev", "eth0"]);
        let address = text.split_whitespace().find(|word| word.starts_with("2001:db8:10"))?;
        Some(address.split('/').next()?.to_owned())
    }

    fn serves(&self) -> bool {
        INTERNET.iter().all(|address| self.scene.answers("host", address))
    }

    fn has_line(&self, node: &str) -> bool {
        !self.scene.run(node, &["ip", "link", "show", "dev", "ppp0"]).contains("does not exist")
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for name in ["pppd.log", "kea.log"] {
                eprintln!("{name}:\n{}", std::fs::read_to_string(self.scene.path(name)).unwrap_or_default());
            }
        }
        for process in [self.kea.take(), self.pppd.take()].into_iter().flatten() {
            process.stop(Duration::from_secs(5));
        }
    }
}

#[test]
fn a_line_of_pppoe_is_an_uplink_and_comes_back() {
    let Some(mut line) = Line::new() else { return };
    line.call();
    line.serve();
    line.scene.up("gw");
    line.scene.ip("host", "address add 192.168.1.2/24 dev eth0\nroute add default via 192.168.1.1");
    wait_until("the Internet by both IP versions", || line.serves());
    let before = wait_for("an address", || line.address());

    // Both ends of TCP are told what fits, on the line and behind it.
    let serve = "import socketserver\nsocketserver.TCPServer.address_family = 10\n\
                 socketserver.TCPServer(('::', 8080), socketserver.BaseRequestHandler).serve_forever()";
    line.scene.start("net", &["python3", "-c", serve]);
    line.scene.start("host", &["tcpdump", "-nli", "eth0", SYN]);
    line.scene.start("net", &["tcpdump", "-nli", "ppp0", SYN]);
    wait_until("captures", || {
        ["host", "net"].iter().all(|node| line.scene.log(node).contains("listening on"))
    });
    for (address, size) in INTERNET.iter().zip([1432, 1452]) {
        let connect = format!("import socket\nsocket.create_connection(('{address}', 8080), 5)");
        wait_until("a connection", || line.scene.run("host", &["python3", "-c", &connect]).is_empty());
        let told = |node: &str, flags: &str| {
            line.scene
                .log(node)
                .lines()
                .any(|said| said.contains(flags) && said.contains(&format!("mss {size},")))
        };
        wait_until("sizes that fit", || told("net", "Flags [S],") && told("host", "Flags [S.],"));
    }
    // What does not fit is answered by the gateway.
    let large = line.scene.run("host", &["ping", "-c", "2", "-M", "do", "-s", "1452", INTERNET[0]]);
    assert!(large.contains("mtu=1492") || large.contains("mtu: 1492"), "{large}");

    // The line is lost without a word.
    line.scene.ip("net", "link set dev access down");
    wait_until("both ends to notice", || !line.has_line("gw") && !line.has_line("net"));
    wait_until("an uplink that does not work", || {
        line.status().is_some_and(|status| status["uplinks"][0]["works"] == false)
    });
    line.scene.ip("net", "link set dev access up");
    line.serve();
    wait_until("the Internet as before", || line.serves());
    assert_eq!(line.address().as_ref(), Some(&before));

    // pppd ends as by kill -9, and the unit starts it again.
    line.pppd.take().expect("pppd").kill();
    wait_until("no line", || !line.has_line("gw") && !line.has_line("net"));
    line.call();
    line.serve();
    wait_until("the Internet once more", || line.serves());
    assert_eq!(line.address(), Some(before));
    let problems = line.status().expect("a status")["problems"].clone();
    assert_eq!(problems, serde_json::json!([]), "{problems}");
}
