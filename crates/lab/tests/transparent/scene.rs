//! Two sites whose gateways are transparent, and what is around them.
//!
//! ```text
//! host A ──┐                        ┌── third host outside
//!          ├── gateway A ── switch ─┤
//! third A ─┘                        └── router ── gateway B ── host B
//! ```
//!
//! On one link gateway B is at that switch, too; behind a 6in4 tunnel a second router is before it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use lab::namespaces::Namespace;
use lab::process::Process;

/// What is between the gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Between {
    /// A router, with a network on each side.
    Router,
    /// Nothing: both are on one link.
    Switch,
    /// Two routers and a 6in4 tunnel with an MTU of 1480.
    Tunnel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    Version2,
    Classic,
}

/// Hardware addresses of the protected hosts.
pub(crate) const MACS: [[u8; 6]; 2] = [[2, 0x51, 0xde, 0x57, 0xe9, 0xaa], [2, 0x51, 0xde, 0x57, 0xe9, 0xbb]];
/// What the third hosts have of IPv4, inside and outside.
pub(crate) const THIRD_IPV4: [&str; 2] = ["10.9.0.1", "10.9.0.2"];
/// And of IPv6; the router's is `::1`.
pub(crate) const THIRD: [&str; 2] = ["2001:db8:a::a1", "2001:db8:a::a2"];

/// Of the 6in4 tunnel: fixed, so that its ends need no neighbor discovery.
const MACS_MID: [&str; 2] = ["02:00:00:00:01:01", "02:00:00:00:01:02"];
const MACS_T46: [&str; 2] = ["02:00:00:00:46:01", "02:00:00:00:46:02"];
const ENDS: [&str; 2] = ["192.0.2.1", "192.0.2.2"];

const NODES: [&str; 11] = ["ha", "ta", "sa", "ga", "xa", "to", "r", "r2", "gb", "hb", "br"];

pub(crate) struct Scene {
    prefix: String,
    program: PathBuf,
    between: Between,
    profile: Profile,
    pub(crate) folder: tempfile::TempDir,
    processes: Vec<Process>,
    gateways: [Option<Process>; 2],
}

fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

impl Scene {
    /// The network, with routers that advertise themselves. Hosts are down, and gateways not started. `None` where there
    /// is no program to test or no root; in continuous integration that is a failure.
    pub(crate) fn new(prefix: &str, between: Between, profile: Profile) -> Option<Self> {
        let program = std::env::var_os("SIDESTEP_BIN").map(PathBuf::from).filter(|path| path.exists());
        let radvd = Path::new("/usr/sbin/radvd").exists();
        let Some(program) = program.filter(|_| radvd && nix::unistd::geteuid().is_root()) else {
            let needs = "needs root, radvd, and the program, in SIDESTEP_BIN";
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{needs}");
            eprintln!("skipped: {needs}");
            return None;
        };
        let mut scene = Scene {
            prefix: prefix.to_owned(),
            program,
            between,
            profile,
            folder: tempfile::tempdir().expect("a folder"),
            processes: Vec::new(),
            gateways: [None, None],
        };
        for name in NODES {
            let _ = scene.node(name).delete();
            scene.node(name).create().expect("a namespace");
        }
        scene.link();
        if between == Between::Tunnel {
            scene.start_6in4();
        }
        scene.advertise();
        Some(scene)
    }

    pub(crate) fn node(&self, name: &str) -> Namespace {
        Namespace::named(format!("{}-{name}", self.prefix))
    }

    fn link(&self) {
        let mut links = vec![
            (("ha", "eth"), ("sa", "h")),
            (("ta", "eth"), ("sa", "t")),
            (("ga", "in"), ("sa", "g")),
            (("ga", "ex"), ("xa", "g")),
            (("to", "eth"), ("xa", "t")),
            (("r", "a"), ("xa", "r")),
            (("gb", "in"), ("hb", "eth")),
        ];
        links.push(match self.between {
            Between::Router => (("r", "b"), ("gb", "ex")),
            Between::Switch => (("xa", "b"), ("gb", "ex")),
            Between::Tunnel => (("r2", "b"), ("gb", "ex")),
        });
        if self.between == Between::Tunnel {
            links.push((("r", "mid"), ("r2", "mid")));
        }
        for ((one, name), (other, peer)) in links {
            let other = self.node(other);
            let line = format!("link add name {name} type veth peer name {peer} netns {}\n", other.name());
            self.node(one).ip(&line).expect("a link");
        }
        for (name, ports) in [("sa", &["h", "t", "g"][..]), ("xa", &["g", "t", "r", "b"])] {
            let switch = self.node(name);
            switch.sysctl(&[("ipv6/conf/all/disable_ipv6", 1)]).expect("sysctl");
            let mut lines =
                String::from("link add name br type bridge mcast_snooping 0\nlink set dev br up\n");
            for port in ports.iter().filter(|port| **port != "b" || self.between == Between::Switch) {
                let _ = writeln!(lines, "link set dev {port} master br up");
            }
            switch.ip(&lines).expect("a switch");
        }
        for (host, mac_address) in [("ha", MACS[0]), ("hb", MACS[1])] {
            let host = self.node(host);
            host.sysctl(&[
                ("ipv6/conf/eth/accept_ra", 1),
                ("ipv6/conf/all/accept_dad", 1),
                ("ipv6/conf/eth/accept_dad", 1),
                ("ipv6/conf/eth/dad_transmits", 1),
                ("ipv6/conf/eth/router_solicitations", 5),
            ])
            .expect("sysctl");
            host.ip(&format!("link set dev eth address {}\n", mac(mac_address))).expect("an address");
        }
        for (at, host) in ["ta", "to"].into_iter().enumerate() {
            let node = self.node(host);
            node.sysctl(&[("ipv6/conf/all/accept_dad", 1), ("ipv6/conf/eth/accept_dad", 1)]).expect("sysctl");
            let (v6, v4) = (THIRD[at], THIRD_IPV4[at]);
            let lines = format!(
                "link set dev eth up\naddr add {v6}/64 dev eth nodad\naddr add {v4}/24 dev eth\n\
                 route add default via 2001:db8:a::1\n"
            );
            node.ip(&lines).expect("addresses");
        }
        let mut router = String::from("link set dev a up\naddr add 2001:db8:a::1/64 dev a\n");
        match self.between {
            Between::Router => router.push_str("link set dev b up\naddr add 2001:db8:b::1/64 dev b\n"),
            Between::Switch => {}
            Between::Tunnel => {
                let ends = |own: usize| {
                    let (inner, outer) = (MACS_T46[own - 1], MACS_MID[own - 1]);
                    format!(
                        "link add name t46 address {inner} type veth peer name t46-peer\n\
                         link set dev mid address {outer} up\nlink set dev t46 arp off mtu 1480 up\n\
                         link set dev t46-peer up\n"
                    )
                };
                router.push_str(&ends(1));
                router.push_str("route add 2001:db8:b::/64 dev t46\n");
                let second = ends(2)
                    + "link set dev b up\naddr add 2001:db8:b::1/64 dev b\nroute add 2001:db8:a::/64 dev t46\n";
                self.node("r2").sysctl(&[("ipv6/conf/all/forwarding", 1)]).expect("sysctl");
                self.node("r2").ip(&second).expect("the second router");
            }
        }
        self.node("r").sysctl(&[("ipv6/conf/all/forwarding", 1)]).expect("sysctl");
        self.node("r").ip(&router).expect("the router");
        self.node("ga").ip("link set dev ex up\nlink set dev in up\n").expect("links");
        self.node("gb").ip("link set dev ex up\nlink set dev in up\n").expect("links");
    }

    /// The ends of the 6in4 tunnel, as the lab has them.
    fn start_6in4(&mut self) {
        for (at, router) in ["r", "r2"].into_iter().enumerate() {
            for interface in ["mid", "t46"] {
                self.node(router).offloads_off(interface).expect("ethtool");
            }
            let mut command = self.node(router).command(&self.program).expect("the namespace");
            command.args(["lab", "sixin4", "--inner", "t46-peer", "--outer", "mid"]);
            command.args(["--inner-mac", MACS_T46[at], "--outer-mac", MACS_MID[1 - at]]);
            command.args(["--local", ENDS[at], "--remote", ENDS[1 - at]]);
            let log = self.folder.path().join(format!("sixin4-{router}.log"));
            self.processes.push(Process::start(&mut command, &log).expect("the tunnel"));
        }
    }

    /// A without the MTU option, B with one.
    fn advertise(&mut self) {
        let interface = |name: &str, network: &str, more: &str| {
            format!(
                "interface {name} {{ AdvSendAdvert on; MinRtrAdvInterval 3; MaxRtrAdvInterval 4; {more}\
                 prefix {network} {{ AdvOnLink on; AdvAutonomous on; }}; }};\n"
            )
        };
        let a = interface("a", "2001:db8:a::/64", "");
        let b = interface("b", "2001:db8:b::/64", "AdvLinkMTU 1500; ");
        match self.between {
            Between::Router => self.start_radvd("r", &(a + &b)),
            Between::Switch => self.start_radvd("r", &a),
            Between::Tunnel => {
                self.start_radvd("r", &a);
                self.start_radvd("r2", &b);
            }
        }
    }

    fn start_radvd(&mut self, node: &str, configuration: &str) {
        let file = |kind: &str| self.folder.path().join(format!("radvd-{node}.{kind}"));
        std::fs::write(file("conf"), configuration).expect("a file");
        let mut command = self.node(node).command("/usr/sbin/radvd").expect("the namespace");
        command.args(["-n", "-m", "stderr", "-C"]).arg(file("conf")).arg("-p").arg(file("pid"));
        self.processes.push(Process::start(&mut command, &file("log")).expect("radvd"));
    }

    /// The address that a protected host will have.
    pub(crate) fn host(&self, side: usize) -> String {
        let network = self.network(side);
        let [a, b, c, d, e, f] = MACS[side];
        let address = format!("{network}:{:x}{b:02x}:{c:02x}ff:fe{d:02x}:{e:02x}{f:02x}", a ^ 2);
        address.parse::<std::net::Ipv6Addr>().expect("an address").to_string()
    }

    /// The first half of the network of a side.
    fn network(&self, side: usize) -> &'static str {
        if side == 0 || self.between == Between::Switch { "2001:db8:a:0" } else { "2001:db8:b:0" }
    }

    /// Starts both gateways, and waits until they are up.
    pub(crate) fn start_gateways(&mut self) {
        let configurations = self.configurations();
        self.start_gateways_with(&configurations);
    }

    /// What they are configured with, unless a test wants something else.
    pub(crate) fn configurations(&self) -> [String; 2] {
        let private = [1u8, 2].map(|_| run(Command::new(&self.program).arg("genkey")));
        let public = private.clone().map(|key| {
            let file = self.folder.path().join("key");
            std::fs::write(&file, &key).expect("a file");
            run(Command::new(&self.program).arg("pubkey").stdin(std::fs::File::open(file).expect("the file")))
        });
        [0, 1].map(|side| self.configuration(side, private[side].trim(), public[1 - side].trim()))
    }

    pub(crate) fn start_gateways_with(&mut self, configurations: &[String; 2]) {
        for (side, text) in configurations.iter().enumerate() {
            let _ = std::fs::remove_file(self.log(side));
            self.start_gateway(side, text);
        }
        for side in [0, 1] {
            let up = || std::fs::read_to_string(self.log(side)).is_ok_and(|log| log.contains(" is up, "));
            wait_until("the gateway is up", Duration::from_secs(20), up);
        }
    }

    fn configuration(&self, side: usize, private: &str, public: &str) -> String {
        let (own, other) = (self.host(side), self.host(1 - side));
        let hop = |side: usize| format!("{}:{}000::/68", self.network(side), ["f", "e"][side]);
        let node = format!(
            "[node]\nmode = \"transparent\"\ninternal = \"in\"\nexternal = \"ex\"\n\
             protect = [{{ address = \"{own}\", mac = \"{}\" }}]\n",
            mac(MACS[side])
        );
        let tunnel = format!("\n[tunnel]\nname = \"{}\"\n\n[[peer]]\nname = \"other\"\n", self.tunnel(side));
        match self.profile {
            Profile::Version2 => format!(
                "{node}private_key = \"{private}\"\nhop_prefix = \"{}\"\n{tunnel}public_key = \"{public}\"\n\
                 hop_prefix = \"{}\"\nallowed_ips = [\"{other}/128\"]\nrotation = \"1s\"\n",
                hop(side),
                hop(1 - side)
            ),
            Profile::Classic => format!(
                "{node}{tunnel}profile = \"classic\"\nlocal_address = \"{own}\"\nremote_address = \"{other}\"\n\
                 session_key = \"{}\"\nrotation = \"1s\"\nkey_exchange = \"off\"\n",
                "5a".repeat(64)
            ),
        }
    }

    fn tunnel(&self, side: usize) -> String {
        format!("{}{}", self.prefix, ["a", "b"][side])
    }

    fn start_gateway(&mut self, side: usize, text: &str) {
        use std::io::Write as _;
        use std::os::unix::fs::OpenOptionsExt as _;
        let file = self.folder.path().join(format!("{}.toml", self.tunnel(side)));
        let mut options = std::fs::OpenOptions::new();
        let opened = options.write(true).create(true).truncate(true).mode(0o600).open(&file);
        opened.and_then(|mut file| file.write_all(text.as_bytes())).expect("a configuration");
        let mut command = self.node(["ga", "gb"][side]).command(&self.program).expect("the namespace");
        command.arg("up").arg(&file).arg("--state-dir").arg(self.folder.path()).arg("--socket");
        command.arg(self.socket(side));
        self.gateways[side] = Some(Process::start(&mut command, &self.log(side)).expect("the program"));
    }

    /// Ends both; they end by themselves, without an error.
    pub(crate) fn stop_gateways(&mut self) {
        for gateway in self.gateways.iter_mut().filter_map(Option::take) {
            assert!(gateway.stop(Duration::from_secs(5)).success());
        }
    }

    /// Kills one, as a crash would.
    pub(crate) fn kill_gateway(&mut self, side: usize) {
        if let Some(gateway) = self.gateways[side].take() {
            gateway.kill();
        }
    }

    fn socket(&self, side: usize) -> PathBuf {
        self.folder.path().join(format!("{}.sock", self.tunnel(side)))
    }

    pub(crate) fn log(&self, side: usize) -> PathBuf {
        self.folder.path().join(format!("{}.log", self.tunnel(side)))
    }

    /// What both have logged.
    pub(crate) fn logs(&self) -> String {
        [0, 1].map(|side| std::fs::read_to_string(self.log(side)).unwrap_or_default()).join("--\n")
    }

    /// Has a gateway read its configuration again.
    pub(crate) fn reload(&self, side: usize) {
        run(Command::new(&self.program).args(["reload", "--socket"]).arg(self.socket(side)));
    }

    /// The status of the one peer.
    pub(crate) fn peer(&self, side: usize) -> serde_json::Value {
        let mut command = Command::new(&self.program);
        let text = run(command.args(["show", "--json", "--socket"]).arg(self.socket(side)));
        serde_json::from_str::<serde_json::Value>(&text).expect("a status")["peers"][0].take()
    }

    /// Boots the protected hosts, and waits until they have their addresses and reach each other.
    pub(crate) fn boot_hosts(&self) {
        for (side, host) in ["ha", "hb"].into_iter().enumerate() {
            self.node(host).ip("link set dev lo up\nlink set dev eth up\n").expect("the host");
            let has = || {
                let addresses =
                    self.run(host, &["ip", "-6", "addr", "show", "dev", "eth", "scope", "global"]);
                addresses.contains(&self.host(side)) && !addresses.contains("tentative")
            };
            wait_until("the host has an address", Duration::from_secs(20), has);
        }
        self.wait_connected();
    }

    /// Waits until the protected hosts reach each other.
    pub(crate) fn wait_connected(&self) {
        let connected = || self.run("ha", &["ping", "-c1", "-W1", &self.host(1)]).contains(" 0% packet loss");
        let deadline = Instant::now() + Duration::from_secs(20);
        while !connected() {
            assert!(Instant::now() < deadline, "the hosts do not reach each other\n{}", self.logs());
        }
    }

    /// The hardware address of an interface.
    pub(crate) fn mac(&self, node: &str, interface: &str) -> String {
        let text = self.run(node, &["ip", "-j", "link", "show", "dev", interface]);
        let links: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        links[0]["address"].as_str().expect("an address").to_owned()
    }

    /// Runs a command on a machine; what it wrote to both outputs.
    pub(crate) fn run(&self, node: &str, words: &[&str]) -> String {
        let mut command = self.node(node).command(words[0]).expect("the namespace");
        let output = command.args(&words[1..]).output().expect("a command that starts");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    /// Starts one.
    pub(crate) fn start(&self, node: &str, words: &[&str], log: &str) -> Process {
        let mut command = self.node(node).command(words[0]).expect("the namespace");
        Process::start(command.args(&words[1..]), &self.folder.path().join(log))
            .expect("a command that starts")
    }

    /// What a command has written that was started with this log.
    pub(crate) fn output(&self, log: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(log)).unwrap_or_default()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for process in self.processes.drain(..).chain(self.gateways.iter_mut().filter_map(Option::take)) {
            process.stop(Duration::from_secs(3));
        }
        for name in NODES {
            let _ = self.node(name).delete();
        }
    }
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("a command that starts");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Waits until something holds.
pub(crate) fn wait_until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
