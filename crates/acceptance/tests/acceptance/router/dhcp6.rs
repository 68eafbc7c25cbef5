//! Prefixes for routers behind the gateway and addresses for hosts (`[network.dhcp6]`), with real clients: dhcpcd is the
//! router, dhclient the host.

use std::time::Duration;

use lab::edited::Edited;
use lab::patience::{wait_for, wait_until};
use lab::process::Process;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::HOME;
use super::scene::{INTERNET, RouterScene, SECOND};

/// The link-layer address of the host that has an address of its own.
const NAS: &str = "02:00:5e:00:53:07";

/// Asks for a prefix at once (Rapid Commit), as the router with this number, in a frame that says it is from this address:
/// `python3 -c SOLICIT INTERFACE ADDRESS NUMBER`.
const SOLICIT: &str = r#"
import socket, struct, sys
interface, source, number = sys.argv[1], socket.inet_pton(socket.AF_INET6, sys.argv[2]), int(sys.argv[3])
option = lambda code, value: struct.pack('!HH', code, len(value)) + value
message = bytes([1, 1, 2, number]) + option(1, bytes([0, 4, number])) + option(14, b'') + option(25, struct.pack('!III', 1, 0, 0))
servers = socket.inet_pton(socket.AF_INET6, 'ff02::1:2')
udp = struct.pack('!HHHH', 546, 547, 8 + len(message), 0) + message
summed = source + servers + struct.pack('!II', len(udp), 17) + udp + bytes(len(udp) % 2)
total = sum(struct.unpack(f'!{len(summed) // 2}H', summed))
while total >> 16: total = (total & 0xffff) + (total >> 16)
udp = udp[:6] + struct.pack('!H', ~total & 0xffff or 0xffff) + udp[8:]
packet = struct.pack('!IHBB', 6 << 28, len(udp), 17, 1) + source + servers + udp
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
link.bind((interface, 0x86dd))
link.send(bytes.fromhex('333300010002') + link.getsockname()[4] + b'\x86\xdd' + packet)
"#;

/// The home, in whose network a router may stand.
struct Scene {
    scene: RouterScene,
    configuration: String,
    /// The router behind.
    inner: Option<Process>,
}

impl Scene {
    fn new() -> Option<Self> {
        let scene = RouterScene::new()?;
        let more = format!(
            "search    = [\"home.example\"]\n\
             dhcp6     = {{ delegate = 60, host = [{{ name = \"nas\", mac = \"{NAS}\", address = \"::5\" }}] }}\n"
        );
        let configuration = HOME.edited("search    = [\"home.example\"]\n", &more);
        Some(Scene { scene, configuration, inner: None })
    }

    /// Has the host be a router, with a network `inner` behind it.
    fn start_inner_router(&mut self) {
        self.scene
            .node("host")
            .sysctl(&[("ipv6/conf/all/forwarding", 1), ("ipv6/conf/eth0/accept_ra", 2)])
            .expect("a router");
        self.scene.node("host").ip("link add inner type bridge\nlink set inner up\n").expect("a network");
        self.scene.write(
            "dhcpcd.conf",
            "ipv6only\nduid ll\nnohook resolv.conf\nscript /bin/true\ninterface eth0\nipv6rs\niaid 1\nia_pd 1 inner/0/64/1\n",
        );
        let folder = self.scene.folder.path().display().to_string();
        // Its leases are its own, and not this machine's.
        let run = format!(
            "mkdir -p /var/lib/dhcpcd && mount -t tmpfs tmpfs /var/lib/dhcpcd && mount -t tmpfs tmpfs /run && \
             exec dhcpcd -B -d -f {folder}/dhcpcd.conf eth0"
        );
        let mut command = self.scene.node("host").command("unshare").expect("the namespace");
        command.args(["-m", "sh", "-c", &run]);
        let log = self.scene.folder.path().join("dhcpcd.log");
        self.inner = Some(Process::start(&mut command, &log).expect("a router"));
    }

    fn delegated(&self) -> Value {
        self.scene.status().map_or(Value::Null, |status| status["delegated_prefixes"].clone())
    }

    /// The inner router's own address in its network, of a prefix that begins so.
    fn inner(&self, prefix: &str) -> Option<String> {
        self.scene.address("host", "inner", prefix)
    }

    /// Asks for an address by DHCPv6 as this host, once, and returns those that it was told.
    fn asks(&self, node: &str) -> Vec<String> {
        let folder = self.scene.folder.path().display().to_string();
        let script = "#!/bin/sh\n[ -n \"$new_ip6_address\" ] && echo \"told $new_ip6_address\"\nexit 0\n";
        self.scene.write("dhclient", script);
        let run = format!(
            "chmod +x {folder}/dhclient; timeout 20 dhclient -6 -N -1 -d -v -D LL -lf {folder}/{node}.leases \
             -pf {folder}/{node}.pid -sf {folder}/dhclient eth0; true"
        );
        let said = self.scene.run(node, &["sh", "-c", &run]);
        said.lines().filter_map(|line| line.strip_prefix("told ")).map(str::to_owned).collect()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take() {
            inner.stop(Duration::from_secs(5));
        }
    }
}

#[test]
fn a_router_behind_has_a_prefix_that_leads_to_it_whatever_happens_to_the_gateway() {
    let Some(mut inside) = Scene::new() else { return };
    let before = inside.scene.kernel();
    let configuration = inside.configuration.clone();
    inside.scene.start(&configuration);
    wait_for("an address of the delegated prefix", || inside.scene.host_address("2001:db8:10"));
    inside.start_inner_router();
    let address = wait_for("a prefix behind", || inside.inner("2001:db8:10"));
    // The network has the second /64, and so none of the first sixteen is given away.
    assert!(address.split(':').nth(3).is_some_and(|subnet| subnet.ends_with("10")), "{address}");
    wait_until("the Internet from behind", || {
        inside
            .scene
            .run("host", &["ping", "-c", "1", "-W", "1", "-I", &address, INTERNET])
            .contains(" 0% packet loss")
    });
    assert!(inside.scene.answers("net", &address));
    let delegated = inside.delegated();
    let prefix = delegated[0]["prefixes"][0]["prefix"].as_str().expect("a prefix").to_owned();
    assert!(prefix.ends_with("10::/60"), "{delegated}");
    assert_eq!((&delegated[0]["network"], delegated.as_array().map(Vec::len)), (&"lan".into(), Some(1)));
    // Nothing is promised for longer than the provider has promised it.
    let promised = delegated[0]["prefixes"][0]["valid_seconds"].as_u64();
    assert!(promised.is_some_and(|seconds| seconds <= 60), "{delegated}");
    let text = String::from_utf8(inside.scene.sidestep(&["status"]).stdout).expect("text");
    assert!(text.contains(&format!("{prefix} to fe80:")), "{text}");
    let route = |inside: &Scene| inside.scene.run("gw", &["ip", "-6", "route", "show", &prefix]);
    assert!(route(&inside).contains("via fe80:") && route(&inside).contains("dev lan"));

    // A reload that leaves it, one that does not give any, and back.
    inside.scene.write("gw.toml", &configuration.edited("home.example", "house.example"));
    inside.scene.signal(Signal::SIGHUP);
    wait_until("a reload", || inside.scene.log().contains("configuration read again"));
    assert!(inside.scene.answers("net", &address));
    inside.scene.write("gw.toml", &configuration.edited("delegate = 60, ", ""));
    inside.scene.signal(Signal::SIGHUP);
    wait_until("none", || {
        inside.delegated().as_array().is_some_and(Vec::is_empty) && route(&inside).is_empty()
    });
    inside.scene.write("gw.toml", &configuration);
    inside.scene.signal(Signal::SIGHUP);
    wait_until("the same again", || inside.scene.answers("net", &address));

    // Killed, the kernel goes on; the next one knows it without having been asked.
    inside.scene.kill();
    assert!(inside.scene.answers("net", &address));
    inside.scene.start_again();
    wait_until("the same after a crash", || route(&inside).contains("dev lan"));
    assert_eq!(inside.delegated()[0]["prefixes"][0]["prefix"], prefix.as_str());
    assert!(inside.scene.answers("net", &address));

    // Renumbered, the router has the same part of the other prefix, and drops the old one.
    inside.scene.start_provider("2001:db8:3000::");
    let moved = wait_for("another prefix behind", || inside.inner("2001:db8:30"));
    wait_until("its way", || inside.scene.answers("net", &moved));
    wait_until("the old one is gone", || inside.inner("2001:db8:10").is_none());
    assert!(moved.split(':').nth(3).is_some_and(|subnet| subnet.ends_with("10")), "{moved}");
    // Whoever is behind, and still sends from it, is told (RFC 7084, L-14).
    let old = format!("{address}/128");
    inside.scene.run("host", &["ip", "-6", "address", "replace", &old, "dev", "inner", "nodad"]);
    wait_until("no route from the old one", || {
        inside
            .scene
            .run("host", &["ping", "-c", "1", "-W", "1", "-I", &address, INTERNET])
            .contains("No route")
    });

    inside.scene.stop();
    assert_eq!(inside.scene.kernel(), before);
}

/// Whatever hosts say that they are reached by, the gateway starts and takes configurations.
#[test]
fn a_router_that_says_it_has_the_gateways_address_is_no_reason_to_refuse_a_configuration() {
    let Some(mut inside) = Scene::new() else { return };
    inside.scene.node("rogue").ip("link set eth0 up\n").expect("a host");
    // Of a prefix for good, a part is leased for longer than all of this takes.
    let cable = format!("[[uplink]]\nname = \"cable\"\ninterface = \"wan1\"\nprefixes = [\"{SECOND}\"]\n");
    let configuration = cable + &inside.configuration;
    inside.scene.start(&configuration);
    wait_for("an address of the delegated prefix", || inside.scene.host_address("2001:db8:10"));
    let own = inside.scene.link_local("gw", "lan").expect("an address");
    let asks = |inside: &Scene, address: &str, number: &str| {
        inside.scene.run("rogue", &["python3", "-c", SOLICIT, "eth0", address, number])
    };
    let routers = |inside: &Scene| -> Vec<Value> {
        let delegated = inside.delegated();
        delegated.as_array().into_iter().flatten().map(|lease| lease["router"].clone()).collect()
    };
    // The one that is asked for from its own address has nothing; the next one has.
    wait_until("a prefix", || {
        let said = asks(&inside, &own, "1") + &asks(&inside, "fe80::bad", "2");
        assert!(said.is_empty(), "{said}");
        !routers(&inside).is_empty()
    });
    assert_eq!(routers(&inside), ["fe80::bad"]);

    // By whatever way that address becomes the gateway's own: it is a problem, and nothing is refused.
    let told =
        |inside: &Scene| inside.scene.status().map_or(String::new(), |status| status["problems"].to_string());
    let is_told = |inside: &Scene| told(inside).contains("via fe80::bad dev lan");
    inside.scene.kill();
    inside.scene.node("gw").ip("addr add fe80::bad/64 dev lan nodad\n").expect("an address");
    inside.scene.start_again();
    wait_until("a problem", || is_told(&inside));
    inside.scene.write("gw.toml", &configuration.edited("home.example", "house.example"));
    inside.scene.signal(Signal::SIGHUP);
    wait_until("a reload", || inside.scene.log().contains("configuration read again"));
    assert!(is_told(&inside), "{}", told(&inside));
    inside.scene.node("gw").ip("addr del fe80::bad/64 dev lan\n").expect("an address");
    wait_until("no problem any more", || !is_told(&inside));
    let routes = inside.scene.run("gw", &["ip", "-6", "route"]);
    assert!(routes.contains("via fe80::bad dev lan"), "{routes}");
}

#[test]
fn a_host_of_the_configuration_has_its_address_and_others_make_their_own() {
    let Some(mut inside) = Scene::new() else { return };
    inside
        .scene
        .node("rogue")
        .ip(&format!("link set eth0 address {NAS}\nlink set eth0 up\n"))
        .expect("a host");
    let configuration = inside.configuration.clone();
    inside.scene.start(&configuration);
    let (other, _) =
        wait_for("an address of the delegated prefix", || inside.scene.host_address("2001:db8:10"));
    let told = inside.scene.run("host", &["rdisc6", "-1", "eth0"]);
    assert!(told.contains("Stateful address conf.    :          Yes"), "{told}");
    let addresses = inside.asks("rogue");
    assert!(
        addresses.iter().any(|address| address.starts_with("2001:db8:10") && address.ends_with("::5")),
        "{addresses:?}"
    );
    assert!(addresses.contains(&"fd12:3456:789a:1::5".to_owned()), "{addresses:?}");
    let status = inside.scene.status().expect("a status");
    assert!(
        status["networks"][0]["dhcp6"]["hosts"][0]["addresses"].to_string().contains(&addresses[0]),
        "{status}"
    );
    // Another host is told that there is none for it, and has what it has made itself.
    assert_eq!(inside.asks("host"), [""; 0]);
    assert_eq!(inside.scene.host_address("2001:db8:10").map(|(address, _)| address), Some(other));
    assert_eq!(inside.delegated(), Value::Array(Vec::new()));
}
