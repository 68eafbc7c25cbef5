//! Two providers, a gateway, and a link with hosts behind it: the network of the tests.
//!
//! `net` is both providers and the Internet behind them: an address that answers, routers that advertise themselves
//! (radvd), a server that delegates prefixes (Kea). It takes packets at each of its interfaces from the prefix only that
//! it has delegated there, as providers do (RFC 2827). `sw` is the switch of the inner link.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use lab::namespaces::Namespace;
use lab::patience::wait_for;
use lab::process::Process;
use nix::sys::signal::Signal;
use serde_json::Value;

/// The address that answers behind both providers.
pub(crate) const INTERNET: &str = "2001:db8:ffff::1";
/// The prefix that the second provider has given for good.
pub(crate) const SECOND: &str = "2001:db8:2000::/56";

/// What the first provider delegates from.
const OF_FIRST: [&str; 2] = ["2001:db8:1000::/40", "2001:db8:3000::/40"];
/// Its interface.
const FIRST: &str = "addr add fe80::1/64 dev isp0 nodad\naddr add 2001:db8:0:1::1/64 dev isp0 nodad\n\
                     addr add 192.0.2.1/24 dev isp0\nlink set isp0 up\n";

const NODES: [&str; 5] = ["net", "gw", "sw", "host", "rogue"];

/// The namespaces, and what runs in them; all of it ends with this.
pub(crate) struct RouterScene {
    prefix: String,
    program: PathBuf,
    pub(crate) folder: tempfile::TempDir,
    servers: Vec<(&'static str, Process)>,
    gateway: Option<Process>,
    /// A tunnel's other end, beside the first provider.
    peer: Option<Process>,
}

impl RouterScene {
    /// The network with the first provider's servers. `None` where there is no program to test or no root; in
    /// continuous integration that is a failure.
    pub(crate) fn new() -> Option<Self> {
        let program = crate::program(&[
            "radvd",
            "kea-dhcp6",
            "rdisc6",
            "atk6-firewall6",
            "tcp6",
            "dnsmasq",
            "busybox",
            "natpmpc",
            "stubby",
            "nfcapd",
        ])?;
        let prefix = lab::prefix::unique();
        let folder = tempfile::tempdir().expect("a folder");
        let mut scene =
            RouterScene { prefix, program, folder, servers: Vec::new(), gateway: None, peer: None };
        scene.build();
        scene.start_provider("2001:db8:1000::");
        Some(scene)
    }

    fn build(&self) {
        for name in NODES {
            self.node(name).create().expect("a namespace");
        }
        let name = |node: &str| self.node(node).name().to_owned();
        let (net, gw, sw) = (name("net"), name("gw"), name("sw"));
        for (here, there, peer, other) in [
            ("isp0", &net, "wan0", &gw),
            ("isp1", &net, "wan1", &gw),
            ("gw", &sw, "lan", &gw),
            ("host", &sw, "eth0", &name("host")),
            ("rogue", &sw, "eth0", &name("rogue")),
        ] {
            self.node("net")
                .ip(&format!("link add {here} netns {there} type veth peer name {peer} netns {other}\n"))
                .expect("a link");
        }
        self.node("sw")
            .ip("link add switch type bridge\nlink set switch up\nlink set gw master switch up\nlink set host master switch up\nlink set rogue master switch up\n")
            .expect("a switch");
        self.node("net").sysctl(&[("ipv6/conf/all/forwarding", 1)]).expect("a router");
        self.node("net")
            .ip(&format!(
                "addr add {INTERNET}/128 dev lo\naddr add 203.0.113.1/32 dev lo\n{FIRST}\
                 addr add fe80::2/64 dev isp1 nodad\naddr add 2001:db8:0:2::1/64 dev isp1 nodad\nlink set isp1 up\n"
            ))
            .expect("addresses");
        self.node("gw")
            .ip("addr add 192.0.2.2/24 dev wan0\nlink set wan0 up\nlink set wan1 up\nlink set lan up\nlink add guests type bridge\nlink set guests up\n")
            .expect("links");
        self.node("host")
            .sysctl(&[("ipv6/conf/eth0/accept_ra", 1), ("ipv6/conf/eth0/autoconf", 1)])
            .expect("a host");
        self.node("host").ip("link set eth0 up\n").expect("a host");
        self.node("net").nft(
            "table ip6 bcp38 { chain prerouting { type filter hook prerouting priority -300\n\
             iifname isp0 ip6 saddr != { 2001:db8:1000::/40, 2001:db8:3000::/40, 2001:db8:0:1::/64, fe80::/10, :: } drop\n\
             iifname isp1 ip6 saddr != { 2001:db8:2000::/56, 2001:db8:0:2::/64, fe80::/10, :: } drop\n}\n}\n",
        ).expect("a provider's filter");
        self.route_back("wan0", "isp0", &OF_FIRST);
        self.route_back("wan1", "isp1", &[SECOND]);
    }

    /// What a delegating router would do for each lease.
    fn route_back(&self, wan: &str, isp: &str, prefixes: &[&str]) {
        let via = wait_for("a link-local address", || self.link_local("gw", wan));
        for prefix in prefixes {
            self.node("net").ip(&format!("route add {prefix} via {via} dev {isp}\n")).expect("a route");
        }
    }

    /// The first provider's line, whose interfaces were deleted, comes back with others of the same names.
    pub(crate) fn reconnect_first(&mut self) {
        let gw = self.node("gw").name().to_owned();
        self.node("net")
            .ip(&format!("link add isp0 type veth peer name wan0 netns {gw}\n{FIRST}"))
            .expect("the provider's end");
        self.node("gw").ip("addr add 192.0.2.2/24 dev wan0\nlink set wan0 up\n").expect("the gateway's end");
        self.route_back("wan0", "isp0", &OF_FIRST);
        self.start_provider("2001:db8:1000::");
    }

    /// Starts the first provider's servers, which delegate from this /40.
    pub(crate) fn start_provider(&mut self, pool: &str) {
        self.start_provider_with(pool, "");
    }

    /// The same with more options of DHCPv6, each after a comma.
    pub(crate) fn start_provider_with(&mut self, pool: &str, options: &str) {
        self.stop_provider();
        let radvd = "interface isp0 { AdvSendAdvert on; MinRtrAdvInterval 3; MaxRtrAdvInterval 4; AdvDefaultLifetime 30;\n\
                     AdvRASrcAddress { fe80::1; }; prefix 2001:db8:0:1::/64 { }; RDNSS 2001:db8:ffff::53 { }; };\n\
                     interface isp1 { AdvSendAdvert on; MinRtrAdvInterval 3; MaxRtrAdvInterval 4; AdvDefaultLifetime 30;\n\
                     prefix 2001:db8:0:2::/64 { }; };\n";
        self.write("radvd.conf", radvd);
        self.write(
            "kea.json",
            &format!(
                r#"{{ "Dhcp6": {{ "interfaces-config": {{ "interfaces": ["isp0"], "service-sockets-max-retries": 20, "service-sockets-retry-wait-time": 200 }},
                "lease-database": {{ "type": "memfile", "persist": false }},
                "preferred-lifetime": 40, "valid-lifetime": 60, "renew-timer": 5, "rebind-timer": 10,
                "server-id": {{ "type": "EN", "enterprise-id": 32473, "identifier": "0102", "persist": false }},
                "option-data": [ {{ "name": "dns-servers", "data": "2001:db8:ffff::54" }}{options} ],
                "subnet6": [ {{ "subnet": "2001:db8:0:1::/64", "interface": "isp0",
                  "pd-pools": [ {{ "prefix": "{pool}", "prefix-len": 40, "delegated-len": 56 }} ] }} ] }} }}"#
            ),
        );
        let folder = self.folder.path().display().to_string();
        let radvd = [
            "radvd",
            "-n",
            "-m",
            "stderr",
            "-C",
            &format!("{folder}/radvd.conf"),
            "-p",
            &format!("{folder}/radvd.pid"),
        ];
        self.start_server("net", &radvd, &[]);
        let kea = ["kea-dhcp6", "-c", &format!("{folder}/kea.json")];
        self.start_server("net", &kea, &[("KEA_PIDFILE_DIR", &folder), ("KEA_LOCKFILE_DIR", &folder)]);
    }

    /// Ends them; the other server knows nothing of their leases.
    pub(crate) fn stop_provider(&mut self) {
        for (_, server) in self.servers.drain(..) {
            server.kill();
        }
        let _ = std::fs::remove_file(self.folder.path().join("radvd.pid"));
    }

    fn start_server(&mut self, node: &str, words: &[&str], environment: &[(&str, &str)]) {
        let mut command = self.node(node).command(words[0]).expect("the namespace");
        command.args(&words[1..]).envs(environment.iter().copied());
        let process = Process::start(&mut command, &self.folder.path().join(format!("{}.log", words[0])));
        self.servers.push(("server", process.expect("a server that starts")));
    }

    /// Starts the gateway with this configuration, and waits until it answers.
    pub(crate) fn start(&mut self, configuration: &str) {
        self.write("gw.toml", configuration);
        self.start_again();
    }

    /// The same with the configuration that is there.
    pub(crate) fn start_again(&mut self) {
        self.begin();
        wait_for("a gateway that answers", || self.status());
    }

    /// The same without waiting.
    pub(crate) fn begin(&mut self) {
        let command = self.node("gw").command(&self.program).expect("the namespace");
        self.begin_by(command);
    }

    /// The same, where this command runs the program.
    pub(crate) fn begin_by(&mut self, mut command: Command) {
        command.arg("up").arg(self.folder.path().join("gw.toml"));
        command.arg("--state-dir").arg(self.folder.path().join("state"));
        self.gateway =
            Some(Process::start(&mut command, &self.folder.path().join("gw.log")).expect("a gateway"));
    }

    /// Starts the other end of a tunnel beside the first provider: it ends with the scene.
    pub(crate) fn start_peer(&mut self, words: &[&str]) {
        let mut command = self.node("net").command(words[0]).expect("the namespace");
        let log = self.folder.path().join("peer.log");
        self.peer = Some(Process::start(command.args(&words[1..]), &log).expect("a peer"));
    }

    /// Ends it cleanly.
    pub(crate) fn stop(&mut self) {
        let gateway = self.gateway.take().expect("a gateway");
        assert!(gateway.stop(Duration::from_secs(10)).success(), "{}", self.log());
    }

    /// Ends it as a power cut would.
    pub(crate) fn kill(&mut self) {
        self.gateway.take().expect("a gateway").kill();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.gateway.as_ref().expect("a gateway").signal(signal);
    }

    /// The gateway's process id.
    pub(crate) fn id(&self) -> u32 {
        self.gateway.as_ref().expect("a gateway").id()
    }

    /// The program's path.
    pub(crate) fn program(&self) -> String {
        self.program.display().to_string()
    }

    /// Runs the program in the gateway's namespace.
    pub(crate) fn sidestep(&self, words: &[&str]) -> Output {
        let mut command = self.node("gw").command(&self.program).expect("the namespace");
        command.args(words).current_dir(self.folder.path()).output().expect("the program")
    }

    pub(crate) fn status(&self) -> Option<Value> {
        let output = self.sidestep(&["status", "--json"]);
        output.status.success().then(|| serde_json::from_slice(&output.stdout).expect("JSON"))
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("gw.log")).unwrap_or_default()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).expect("a file");
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

    /// Starts one that lasts, and ends with the scene.
    pub(crate) fn keep(&mut self, node: &str, words: &[&str]) {
        self.start_server(node, words, &[]);
    }

    /// Ends what was started last, cleanly.
    pub(crate) fn end_last(&mut self) {
        let (_, server) = self.servers.pop().expect("something that lasts");
        server.stop(Duration::from_secs(5));
    }

    /// The process id of what was started last.
    pub(crate) fn last_id(&self) -> u32 {
        self.servers.last().expect("something that lasts").1.id()
    }

    /// Answers DHCP for IPv4 at this interface with addresses of this range, until the scene ends.
    pub(crate) fn serve_ipv4(&mut self, node: &str, interface: &str, range: &str) {
        let leases = self.folder.path().join(format!("{interface}.leases"));
        let words = [
            "dnsmasq",
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--user=root",
            "--pid-file",
            "--port=0",
            "--bind-dynamic",
            &format!("--interface={interface}"),
            &format!("--dhcp-range={range}"),
            &format!("--dhcp-leasefile={}", leases.display()),
        ];
        self.start_server(node, &words, &[]);
    }

    /// Asks for an IPv4 address by DHCP and takes it, with the default route; whether there was one.
    pub(crate) fn asks_for_ipv4(&self, node: &str, interface: &str) -> bool {
        let script = self.folder.path().join("udhcpc");
        let take = "#!/bin/sh\n[ \"$1\" = bound ] || exit 0\n\
                    ip address replace $ip/$mask dev $interface && ip route replace default via $router dev $interface\n";
        std::fs::write(&script, take).expect("a file");
        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).expect("a script");
        let script = script.display().to_string();
        let words = ["busybox", "udhcpc", "-i", interface, "-n", "-q", "-t", "3", "-T", "1", "-s", &script];
        self.run(node, &words).contains("lease of")
    }

    /// Whether an address answers, asked three times.
    pub(crate) fn answers(&self, node: &str, address: &str) -> bool {
        self.run(node, &["ping", "-c", "3", "-i", "0.2", "-W", "1", address]).contains(" 0% packet loss")
    }

    /// Global addresses of the host, and whether each is preferred.
    pub(crate) fn host_addresses(&self) -> Vec<(String, bool)> {
        let text = self.run("host", &["ip", "-j", "-6", "address", "show", "dev", "eth0", "scope", "global"]);
        // Links without such an address are empty objects.
        let links: Vec<Value> = serde_json::from_str(&text).expect("JSON");
        links
            .iter()
            .filter_map(|link| link["addr_info"].as_array())
            .flatten()
            .filter_map(|info| {
                let preferred = info["preferred_life_time"].as_u64() > Some(0) && info["deprecated"] != true;
                Some((info["local"].as_str()?.to_owned(), preferred))
            })
            .collect()
    }

    /// The address of a node's interface that begins so.
    pub(crate) fn address(&self, node: &str, interface: &str, prefix: &str) -> Option<String> {
        let text = self.run(node, &["ip", "-o", "-6", "address", "show", "dev", interface]);
        let mut words = text.split_whitespace().filter(|word| word.starts_with(prefix));
        Some(words.next()?.split('/').next()?.to_owned())
    }

    /// The host's address that begins so, once it can be used, and whether it is preferred.
    pub(crate) fn host_address(&self, prefix: &str) -> Option<(String, bool)> {
        self.host_addresses().into_iter().find(|(address, _)| address.starts_with(prefix))
    }

    pub(super) fn link_local(&self, node: &str, interface: &str) -> Option<String> {
        let text = self.run(node, &["ip", "-j", "-6", "address", "show", "dev", interface, "scope", "link"]);
        let links: Vec<Value> = serde_json::from_str(&text).ok()?;
        // Addresses of another scope are empty objects.
        let mut addresses = links.iter().flat_map(|link| link["addr_info"].as_array()).flatten();
        addresses.find_map(|address| address["local"].as_str()).map(str::to_owned)
    }

    /// All that a gateway may change in the kernel of its namespace. Addresses that the kernel has made by itself, from
    /// router advertisements, end by themselves.
    pub(crate) fn kernel(&self) -> String {
        let settings = "for i in all default lan guests wan0 wan1; do for s in forwarding accept_ra accept_ra_defrtr accept_redirects; do \
                        echo $i $s $(cat /proc/sys/net/ipv6/conf/$i/$s); done; for s in forwarding accept_redirects rp_filter; do \
                        echo $i IPv4 $s $(cat /proc/sys/net/ipv4/conf/$i/$s); done; done; \
                        for s in acct timestamp; do echo conntrack $s $(cat /proc/sys/net/netfilter/nf_conntrack_$s 2>/dev/null || echo 0); done; \
                        ip -o address | grep -v '2001:db8:0:' | sed 's/ *valid_lft.*//; s/ dynamic.*//; s/ tentative//' | sort; \
                        ip route; ip -6 route show table all | grep -v 'proto kernel\\|multicast\\|proto ra' | sed 's/ expires.*//' | sort; nft -s list ruleset | sort";
        self.run("gw", &["sh", "-c", settings])
    }
}

impl Drop for RouterScene {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let server =
                std::fs::read_to_string(self.folder.path().join("kea-dhcp6.log")).unwrap_or_default();
            eprintln!("{}\n{}\n{server}", self.log(), self.kernel());
        }
        for ends in [self.gateway.take(), self.peer.take()].into_iter().flatten() {
            ends.stop(Duration::from_secs(5));
        }
        self.stop_provider();
        for name in NODES {
            let _ = self.node(name).delete();
        }
    }
}
