//! Two gateways with a network behind each, a relay, and between them an Internet that knows no IPv6.
//!
//! `host` is behind `gw`, `inet` behind `far`; `isp` is the router that `gw`, `far` and `relay` have in common.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use lab::namespaces::Namespace;
use lab::patience::{wait_for, wait_until};
use lab::process::Process;
use nix::sys::signal::Signal;
use serde_json::Value;

/// The address that answers behind the far gateway.
pub(crate) const INTERNET: &str = "2001:db8:ffff::1";

const NODES: [&str; 6] = ["host", "gw", "isp", "far", "inet", "relay"];

/// The namespaces, and what runs in them; all of it ends with this.
pub(crate) struct TransitionScene {
    prefix: String,
    program: PathBuf,
    folder: tempfile::TempDir,
    gateways: BTreeMap<&'static str, Process>,
}

impl TransitionScene {
    /// The network, with these addresses of `gw`, `far` and `relay`, each in a network of its own. `None` where there is
    /// no program to test or no root; in continuous integration that is a failure.
    pub(crate) fn new(addresses: [&str; 3]) -> Option<Self> {
        let program = crate::program(&[])?;
        let prefix = lab::prefix::unique();
        let folder = tempfile::tempdir().expect("a folder");
        let scene = TransitionScene { prefix, program, folder, gateways: BTreeMap::new() };
        scene.build(addresses);
        Some(scene)
    }

    fn build(&self, addresses: [&str; 3]) {
        for name in NODES {
            self.node(name).create().expect("a namespace");
        }
        for (node, interface, peer, other) in [
            ("host", "eth0", "gw", "lan"),
            ("gw", "wan", "isp", "gw"),
            ("far", "wan", "isp", "far"),
            ("relay", "wan", "isp", "relay"),
            ("inet", "eth0", "far", "lan"),
        ] {
            let (here, there) = (self.node(node).name().to_owned(), self.node(peer).name().to_owned());
            self.node(node)
                .ip(&format!("link add {interface} netns {here} type veth peer name {other} netns {there}\n"))
                .expect("a link");
            self.node(node).ip(&format!("link set {interface} up\n")).expect("a link");
            self.node(peer).ip(&format!("link set {other} up\n")).expect("a link");
        }
        for (node, address) in ["gw", "far", "relay"].into_iter().zip(addresses) {
            self.give(node, address);
        }
        self.node("isp").sysctl(&[("ipv4/ip_forward", 1)]).expect("a router");
        for node in ["host", "inet"] {
            self.node(node)
                .sysctl(&[
                    ("ipv6/conf/eth0/accept_ra", 1),
                    ("ipv6/conf/eth0/autoconf", 1),
                    ("ipv6/conf/eth0/accept_ra_rt_info_max_plen", 64),
                ])
                .expect("a host");
        }
    }

    /// Gives a node its address, and its provider the other end, which is the default router.
    pub(crate) fn give(&self, node: &str, address: &str) {
        let (network, _) = address.rsplit_once('.').expect("an address");
        self.node(node).ip(&format!("addr add {address}/24 dev wan\n")).expect("an address");
        self.node("isp").ip(&format!("addr replace {network}.254/24 dev {node}\n")).expect("an address");
        self.node(node).ip(&format!("route replace default via {network}.254\n")).expect("a route");
    }

    /// Makes the Internet of what is behind the far gateway: an address that answers, and the way back.
    pub(crate) fn internet(&self) {
        self.node("inet")
            .ip(&format!("addr add {INTERNET}/64 dev eth0 nodad\nroute add default via 2001:db8:ffff::ff\n"))
            .expect("the Internet");
        self.node("far").ip("addr add 2001:db8:ffff::ff/64 dev lan nodad\n").expect("its router");
    }

    /// Starts a gateway with this configuration, and waits until it answers.
    pub(crate) fn start(&mut self, node: &'static str, configuration: &str) {
        self.configure(node, configuration);
        self.start_again(node);
    }

    /// The same with the configuration that is there.
    pub(crate) fn start_again(&mut self, node: &'static str) {
        let process = self.up(node);
        self.gateways.insert(node, process);
        wait_for("a gateway that answers", || self.status(node));
    }

    fn up(&self, node: &str) -> Process {
        let mut command = self.node(node).command(&self.program).expect("the namespace");
        command.arg("up").arg(self.path(&format!("{node}.toml")));
        command.arg("--state-dir").arg(self.path(&format!("{node}-state")));
        Process::start(&mut command, &self.path(&format!("{node}.log"))).expect("a process")
    }

    /// Starts what is a moving tunnel and no gateway, with the configuration that is there.
    pub(crate) fn start_tunnel(&mut self, node: &'static str) {
        let process = self.up(node);
        self.gateways.insert(node, process);
        wait_until("a tunnel that answers", || {
            self.sidestep(node, &["show", &self.tunnel_name(node)]).status.success()
        });
    }

    /// A moving tunnel's name: all namespaces have their control sockets in one folder.
    pub(crate) fn tunnel_name(&self, node: &str) -> String {
        format!("{}{}", self.prefix, &node[..1])
    }

    /// Makes a node's private key; the public one.
    pub(crate) fn key(&self, node: &str) -> String {
        let private = self.sidestep(node, &["genkey"]).stdout;
        let path = self.path(&format!("{node}.key"));
        std::fs::write(&path, private).expect("a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("its mode");
        let mut command = self.node(node).command(&self.program).expect("the namespace");
        let file = std::fs::File::open(&path).expect("a file");
        let public = command.arg("pubkey").stdin(file).output().expect("the program").stdout;
        String::from_utf8(public).expect("text").trim().to_owned()
    }

    /// Packets that have left by an interface; a GSO packet is one.
    pub(crate) fn sent(&self, node: &str, interface: &str) -> u64 {
        let text = self.run(node, &["ip", "-j", "-s", "link", "show", "dev", interface]);
        let links: Value = serde_json::from_str(&text).expect("JSON");
        links[0]["stats64"]["tx"]["packets"].as_u64().unwrap_or_else(|| panic!("{links}"))
    }

    /// Gives a gateway that runs another configuration.
    pub(crate) fn reload(&self, node: &str, configuration: &str) {
        self.configure(node, configuration);
        let read = || self.log(node).matches("configuration read again").count();
        let before = read();
        self.gateways[node].signal(Signal::SIGHUP);
        wait_until("a configuration that is read again", || read() > before);
    }

    /// The same with rules of the firewall.
    pub(crate) fn reload_with_rules(&self, node: &str, configuration: &str, rules: &str) {
        let read = || self.log(node).matches("configuration read again").count();
        let before = read();
        self.configure(node, configuration);
        let path = self.path(&format!("{node}.toml"));
        let text = std::fs::read_to_string(&path).expect("a file") + rules;
        std::fs::write(path, text).expect("a file");
        self.gateways[node].signal(Signal::SIGHUP);
        wait_until("a configuration that is read again", || read() > before);
    }

    /// The customer has the firewall that a gateway has by itself; networks here have addresses for documentation. What is
    /// behind the others plays the Internet.
    fn configure(&self, node: &str, configuration: &str) {
        let firewall = if node == "gw" { "accept_special = [\"2001:db8::/32\"]" } else { "enabled = false" };
        self.write(&format!("{node}.toml"), &format!("{configuration}\n[firewall]\n{firewall}\n"));
    }

    /// Ends a gateway cleanly.
    pub(crate) fn stop(&mut self, node: &str) {
        let gateway = self.gateways.remove(node).expect("a gateway");
        assert!(gateway.stop(Duration::from_secs(10)).success(), "{}", self.log(node));
    }

    /// Ends it as a power cut would.
    pub(crate) fn kill(&mut self, node: &str) {
        self.gateways.remove(node).expect("a gateway").kill();
    }

    /// Runs the program.
    pub(crate) fn sidestep(&self, node: &str, words: &[&str]) -> Output {
        let mut command = self.node(node).command(&self.program).expect("the namespace");
        command.args(words).current_dir(self.folder.path()).output().expect("the program")
    }

    pub(crate) fn status(&self, node: &str) -> Option<Value> {
        let output = self.sidestep(node, &["status", "--json"]);
        output.status.success().then(|| serde_json::from_slice(&output.stdout).expect("JSON"))
    }

    /// The first uplink's tunnel, as the status has it.
    pub(crate) fn tunnel(&self, node: &str) -> Value {
        self.status(node).expect("a status")["uplinks"][0]["tunnel"].clone()
    }

    pub(crate) fn log(&self, node: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(format!("{node}.log"))).unwrap_or_default()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).expect("a file");
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        Path::join(self.folder.path(), name)
    }

    pub(crate) fn node(&self, name: &str) -> Namespace {
        Namespace::named(format!("{}-{name}", self.prefix))
    }

    /// Runs a command; what it wrote to both outputs.
    pub(crate) fn run(&self, node: &str, words: &[&str]) -> String {
        let mut command: Command = self.node(node).command(words[0]).expect("the namespace");
        let output = command.args(&words[1..]).output().expect("a command that starts");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    /// Whether an address answers, asked three times.
    pub(crate) fn answers(&self, node: &str, address: &str) -> bool {
        self.run(node, &["ping", "-c", "3", "-i", "0.2", "-W", "1", address]).contains(" 0% packet loss")
    }

    /// The global address of a host that begins so, once it has one.
    pub(crate) fn address(&self, node: &str, prefix: &str) -> Option<String> {
        let text = self.run(node, &["ip", "-j", "-6", "address", "show", "dev", "eth0", "scope", "global"]);
        let links: Vec<Value> = serde_json::from_str(&text).ok()?;
        let infos = links.iter().filter_map(|link| link["addr_info"].as_array()).flatten();
        let mut addresses = infos
            .filter(|info| info["preferred_life_time"].as_u64() > Some(0) && info["deprecated"] != true)
            .filter_map(|info| info["local"].as_str());
        addresses.find(|address| address.starts_with(prefix)).map(str::to_owned)
    }

    /// All that a gateway may change in the kernel of a namespace. Link-local addresses come by themselves.
    pub(crate) fn kernel(&self, node: &str) -> String {
        let settings = "(cat /proc/sys/net/ipv6/conf/*/forwarding /proc/sys/net/ipv6/conf/*/accept_ra; ip -o link | cut -d' ' -f2; \
                        ip -o address | sed 's/ *valid_lft.*//' | sort; ip route; ip -6 route show table all | grep -v multicast | sort; \
                        nft list ruleset) | grep -v fe80";
        self.run(node, &["sh", "-c", settings])
    }

    /// Bytes that cross by TCP in so many seconds, while something else is done.
    pub(crate) fn transfer(
        &self,
        from: &str,
        to: (&str, &str),
        seconds: u32,
        meanwhile: impl FnOnce(),
    ) -> u64 {
        let log = self.path("iperf3-server.log");
        let mut server = self.node(to.0).command("iperf3").expect("the namespace");
        let server = Process::start(server.args(["-s", "-1"]), &log).expect("iperf3");
        wait_until("a server", || self.run(to.0, &["ss", "-Htln"]).contains(":5201"));
        let mut client = self.node(from).command("iperf3").expect("the namespace");
        let client = client
            .args(["-J", "-c", to.1, "-t", &seconds.to_string()])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("iperf3");
        meanwhile();
        let output = client.wait_with_output().expect("iperf3");
        server.kill();
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        report["end"]["sum_received"]["bytes"].as_u64().unwrap_or_else(|| panic!("{report}"))
    }
}

impl Drop for TransitionScene {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for node in ["gw", "far", "relay"] {
                eprintln!("{node}:\n{}\n{}", self.log(node), self.kernel(node));
            }
        }
        for gateway in std::mem::take(&mut self.gateways).into_values() {
            gateway.stop(Duration::from_secs(5));
        }
        for name in NODES {
            let _ = self.node(name).delete();
        }
    }
}
