//! A small office with all of it in one file, and clients as people have them: dhcpcd, udhcpc, curl, and a host that has IPv6
//! alone.

use std::net::Ipv6Addr;

use lab::edited::Edited;
use lab::patience::{wait_for, wait_until};

use super::scene::RouterScene;

/// Has IPv4 alone, and a name.
const SITE: &str = "9.9.9.80";
/// The gateway's, outside.
const FIBRE: &str = "192.0.2.2";
/// Answers whoever asks with its own address: `PORT…`, IPv4 and IPv6.
const SERVE: &str = r#"
import http.server, socket, sys, threading

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        answer = f"{self.server.server_port} saw {self.client_address[0].removeprefix('::ffff:')}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
    def log_message(self, *rest):
        pass

class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
    def server_bind(self):
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

for port in sys.argv[1:]:
    threading.Thread(target=Server(("::", int(port)), Handler).serve_forever).start()
"#;

struct Office {
    scene: RouterScene,
    configuration: String,
}

impl Office {
    fn new() -> Option<Self> {
        crate::program(&["dhcpcd", "curl"])?;
        let mut scene = RouterScene::new()?;
        for name in ["guest", "phone"] {
            scene.node(name).create().expect("a namespace");
        }
        let [guest, phone] = ["guest", "phone"].map(|name| scene.node(name).name().to_owned());
        scene
            .node("gw")
            .ip(&format!(
                "link add guest type veth peer name eth0 netns {guest}\nlink set guest master guests up\n\
                 route add default via 192.0.2.1 dev wan0\n"
            ))
            .expect("a guest, and a route as a DHCP client sets it");
        scene
            .node("sw")
            .ip(&format!(
                "link add phone type veth peer name eth0 netns {phone}\nlink set phone master switch up\n"
            ))
            .expect("a phone");
        scene
            .node("host")
            .ip("link set eth0 down address 02:00:5e:00:53:05\n")
            .expect("the server's address");
        scene
            .node("phone")
            .sysctl(&[("ipv6/conf/eth0/accept_ra", 1), ("ipv6/conf/eth0/autoconf", 1)])
            .expect("a phone");
        for node in ["host", "rogue", "guest", "phone"] {
            scene.node(node).ip("link set eth0 up\n").expect("a host");
        }
        scene
            .node("net")
            .ip(&format!("addr add 2001:db8:ffff::53/128 dev lo\naddr add {SITE}/32 dev lo\n"))
            .expect("addresses");
        scene.keep(
            "net",
            &[
                "dnsmasq",
                "--keep-in-foreground",
                "--conf-file=/dev/null",
                "--user=root",
                "--pid-file",
                "--no-hosts",
                "--no-resolv",
                "--bind-interfaces",
                "--listen-address=2001:db8:ffff::53",
                "--local=/example/",
                &format!("--address=/www.example/{SITE}"),
            ],
        );
        scene.keep("net", &["python3", "-c", SERVE, "80"]);
        scene.keep("host", &["python3", "-c", SERVE, "443", "8443"]);
        let configuration =
            super::at_our_interfaces(include_str!("../../../../../examples/small-office.toml"))
                .edited("\n[firewall]\naccept_special = [\"2001:db8::/32\"]\n", "")
                .edited(
                    "[[firewall.rule]]",
                    "[firewall]\naccept_special = [\"2001:db8::/32\"]\n\n[[firewall.rule]]",
                );
        Some(Office { scene, configuration })
    }

    /// What curl gets; empty where it gets nothing.
    fn curl(&self, node: &str, url: &str) -> String {
        self.scene.run(node, &["curl", "-s", "-m", "5", url])
    }

    /// Gets an address with dhcpcd, as a desktop has it, and then what a name leads to, with the servers that it was told of.
    fn desktop(&self, url: &str) -> String {
        let script = format!(
            "for folder in /run /var/lib/dhcpcd; do mount -t tmpfs tmpfs $folder; done\n\
             : > /run/resolv.conf; mount --bind /run/resolv.conf /etc/resolv.conf\n\
             dhcpcd -4 -1 -p -t 30 eth0 >&2\ncurl -s -m 5 {url}\ncat /etc/resolv.conf\n"
        );
        self.scene.run("rogue", &["unshare", "--mount", "sh", "-c", &script])
    }
}

impl Drop for Office {
    fn drop(&mut self) {
        for name in ["guest", "phone"] {
            let _ = self.scene.node(name).delete();
        }
    }
}

#[test]
fn one_file_brings_a_small_office_up_and_leaves_no_trace() {
    let Some(mut office) = Office::new() else { return };
    // Others may have put something at an empty clsact meanwhile: that alone stays.
    let look = "ip -o link | cut -d: -f2; tc qdisc | grep -v clsact";
    let links = |office: &Office| office.scene.run("gw", &["sh", "-c", look]);
    let before = (office.scene.kernel(), links(&office));
    office.scene.start(&office.configuration.clone());
    let (prefix, _) =
        wait_for("an address of the delegated prefix", || office.scene.host_address("2001:db8:10"));

    // The desktop has an address and names by dhcpcd; the guest by udhcpc.
    let mut said = String::new();
    wait_until("a desktop in the Internet", || {
        said = office.desktop("http://www.example/");
        said.contains(&format!("80 saw {FIBRE}"))
    });
    assert!(said.contains("nameserver 192.168.1.1") && said.contains("office.internal"), "{said}");
    wait_until("a guest's address", || office.scene.asks_for_ipv4("guest", "eth0"));
    assert_eq!(office.curl("guest", &format!("http://{SITE}/")), format!("80 saw {FIBRE}\n"));
    // The server has its own.
    assert!(office.scene.asks_for_ipv4("host", "eth0"));
    assert!(office.scene.run("host", &["ip", "-o", "-4", "address"]).contains("192.168.1.5/24"));

    // Who has IPv6 alone reaches who has IPv4 alone.
    let phone = wait_for("the phone's address", || office.scene.address("phone", "eth0", "2001:db8:10"));
    assert_eq!(office.scene.run("phone", &["ip", "-4", "address", "show", "dev", "eth0"]), "");
    let embedded = Ipv6Addr::from_bits(
        "64:ff9b::".parse::<Ipv6Addr>().expect("a prefix").to_bits()
            | u128::from(SITE.parse::<std::net::Ipv4Addr>().expect("an address").to_bits()),
    );
    wait_until("IPv4 for the phone", || {
        office.curl("phone", &format!("http://[{embedded}]/")) == format!("80 saw {FIBRE}\n")
    });
    let own = office.curl("phone", "http://[2001:db8:ffff::1]/");
    assert_eq!(own, format!("80 saw {phone}\n"), "IPv6 is not translated");

    // The server is reached from outside by IPv4 and IPv6, from inside by the same address; a guest has the Internet alone.
    let at_fibre = format!("http://{FIBRE}:443/");
    assert_eq!(office.curl("net", &at_fibre), "8443 saw 192.0.2.1\n");
    assert!(office.curl("rogue", &at_fibre).starts_with("8443 saw "));
    let server = format!("{}::443", prefix.split(':').take(4).collect::<Vec<_>>().join(":"));
    office.scene.node("host").ip(&format!("addr add {server}/64 dev eth0 nodad\n")).expect("an address");
    wait_until("the server by IPv6", || {
        office.curl("net", &format!("http://[{server}]:443/")).starts_with("443 saw ")
    });
    assert_eq!(office.curl("net", &format!("http://[{prefix}]:443/")), "", "another address");
    assert_eq!(office.curl("guest", "http://192.168.1.5:8443/"), "");
    assert_eq!(office.curl("guest", "http://192.168.1.1:8443/"), "");

    office.scene.stop();
    assert_eq!((office.scene.kernel(), links(&office)), before);
    let running = office.scene.run("gw", &["ss", "-Hlnup"]);
    assert_eq!(running, "", "nobody listens any more");
}
