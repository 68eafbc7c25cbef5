//! One machine that protects itself (`mode = "host"`): it hops in the prefix of the link that it is on, moves to another
//! one, and the links see nothing of it but hopping addresses.
//!
//! ```text
//!   host ── switch ─┬─ network 1 ── router ── gateway
//!                   └─ network 2 ──┘
//! ```
//! The host's cable is in one network or the other; radvd advertises their prefixes.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lab::echoes::{self, Echoes};
use lab::namespaces::Namespace;
use lab::process::Process;

/// What the host's programs talk to, and from.
const SERVER: &str = "2001:db8:b::1";
const TRUE_ADDRESS: &str = "2001:db8:a::2";
const HOST_MAC: &str = "02:00:00:00:00:aa";
/// A router may take 3 s to answer a solicitation (RFC 4861 section 10), and first contact some more.
const PATIENCE: Duration = Duration::from_secs(30);

struct HostScene {
    host: Namespace,
    switch: Namespace,
    router: Namespace,
    gateway: Namespace,
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl HostScene {
    fn new(program: PathBuf) -> Self {
        let prefix = lab::prefix::unique();
        let [host, switch, router, gateway] =
            ["h", "s", "r", "g"].map(|letter| Namespace::named(format!("{prefix}-{letter}")));
        for namespace in [&host, &switch, &router, &gateway] {
            namespace.create().expect("a namespace");
        }
        switch
            .sysctl(&[("ipv6/conf/all/disable_ipv6", 1), ("ipv6/conf/default/disable_ipv6", 1)])
            .expect("sysctl");
        router.sysctl(&[("ipv6/conf/all/forwarding", 1)]).expect("sysctl");
        let (to_switch, to_gateway) = (switch.name(), gateway.name());
        host.ip(&format!(
            "link add name eth0 address {HOST_MAC} type veth peer name cable netns {to_switch}\n"
        ))
        .expect("the cable");
        // As on any host; machines of the lab are not.
        host.sysctl(&[("ipv6/conf/eth0/accept_ra", 1)]).expect("sysctl");
        router
            .ip(&format!(
                "link add name n1 type veth peer name port1 netns {to_switch}\n\
                 link add name n2 type veth peer name port2 netns {to_switch}\n\
                 link add name back type veth peer name ex netns {to_gateway}\n\
                 addr add 2001:db8:1::1/64 dev n1 nodad\naddr add 2001:db8:2::1/64 dev n2 nodad\n\
                 addr add 2001:db8:fb::1/64 dev back nodad\n\
                 link set dev n1 up\nlink set dev n2 up\nlink set dev back up\n\
                 route add 2001:db8:b1::/64 via 2001:db8:fb::2\n"
            ))
            .expect("the router");
        switch
            .ip("link add name br1 type bridge mcast_snooping 0\nlink add name br2 type bridge mcast_snooping 0\n\
                 link set dev br1 up\nlink set dev br2 up\nlink set dev port1 master br1 up\n\
                 link set dev port2 master br2 up\nlink set dev cable master br1\n")
            .expect("the switch");
        gateway
            .ip("addr add 2001:db8:fb::2/64 dev ex nodad\nlink set dev ex up\n\
                 route add default via 2001:db8:fb::1\n")
            .expect("the gateway");
        HostScene { host, switch, router, gateway, folder: tempfile::tempdir().expect("a folder"), program }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes())).expect("a file");
        path
    }

    fn start(
        &self,
        namespace: &Namespace,
        program: impl AsRef<std::ffi::OsStr>,
        args: &[&str],
        log: &str,
    ) -> Process {
        let mut command = namespace.command(program).expect("the namespace");
        Process::start(command.args(args), &self.path(log)).expect("a program")
    }

    fn up(&self, namespace: &Namespace, name: &str, configuration: &str) -> Process {
        let file = self.write(&format!("{name}.toml"), configuration);
        let (file, socket) =
            (file.display().to_string(), self.path(&format!("{name}.sock")).display().to_string());
        let state = self.path(&format!("{name}.state")).display().to_string();
        let args = ["up", file.as_str(), "--socket", &socket, "--state-dir", &state];
        self.start(namespace, &self.program, &args, &format!("{name}.log"))
    }

    fn start_routers(&self) -> Process {
        let text = [1, 2].map(|n| {
            format!("interface n{n} {{ AdvSendAdvert on; MaxRtrAdvInterval 10; prefix 2001:db8:{n}::/64 {{ }}; }};\n")
        });
        let file = self.write("radvd.conf", &text.concat()).display().to_string();
        let pid = self.path("radvd.pid").display().to_string();
        self.start(&self.router, "radvd", &["-n", "-m", "stderr", "-C", &file, "-p", &pid], "radvd.log")
    }

    fn record(&self, port: &str) -> Process {
        let file = self.path(&format!("{port}.pcap")).display().to_string();
        let process = self.start(
            &self.switch,
            "tcpdump",
            &["-U", "--immediate-mode", "-w", &file, "-i", port],
            "tcpdump.log",
        );
        let deadline = Instant::now() + PATIENCE;
        while std::fs::metadata(&file).map_or(0, |file| file.len()) == 0 {
            assert!(Instant::now() < deadline, "tcpdump does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        process
    }

    /// Moves the host's cable. That takes longer than the kernel takes to notice, which is up to a second.
    fn plug_in(&self, network: u8) {
        self.switch.ip("link set dev cable down\n").expect("the switch");
        std::thread::sleep(Duration::from_millis(1_500));
        self.switch
            .ip(&format!("link set dev cable master br{network}\nlink set dev cable up\n"))
            .expect("the switch");
    }

    fn reaches(&self, address: &str, patience: Duration) {
        let deadline = Instant::now() + patience;
        loop {
            let mut ping = self.host.command("ping").expect("the namespace");
            if ping.args(["-n", "-q", "-c", "1", "-W", "1", address]).output().expect("ping").status.success()
            {
                return;
            }
            assert!(Instant::now() < deadline, "{address} does not answer:\n{}", self.log());
        }
    }

    fn log(&self) -> String {
        ["h.log", "g.log", "radvd.log"]
            .map(|name| format!("{name}:\n{}", std::fs::read_to_string(self.path(name)).unwrap_or_default()))
            .concat()
    }

    /// What the host sent in a recording: source and destination of each packet.
    fn sent_by_host(&self, port: &str) -> Vec<(String, String)> {
        let file = self.path(&format!("{port}.pcap"));
        let mut command = Command::new("tcpdump");
        let output =
            command.args(["-n", "-r"]).arg(file).args(["ether", "src", HOST_MAC]).output().expect("tcpdump");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let pair = |line: &str| {
            let (source, rest) = line.split_once(" IP6 ")?.1.split_once(" > ")?;
            Some((address(source), address(rest.split(": ").next()?)))
        };
        // What a drawn port makes tcpdump take for a protocol has lines of its own.
        let packets = text.lines().filter(|line| !line.starts_with('\t'));
        packets.map(|line| pair(line).unwrap_or_else(|| panic!("not IPv6: {line}"))).collect()
    }

    fn addresses(&self) -> String {
        let output = self
            .host
            .command("ip")
            .expect("the namespace")
            .args(["-6", "addr", "show", "dev", "eth0"])
            .output();
        String::from_utf8_lossy(&output.expect("ip").stdout).into_owned()
    }
}

impl Drop for HostScene {
    fn drop(&mut self) {
        for namespace in [&self.host, &self.switch, &self.router, &self.gateway] {
            for process in namespace.processes() {
                let _ = nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGKILL);
            }
            let _ = namespace.delete();
        }
    }
}

/// Without the port that tcpdump writes behind it.
fn address(text: &str) -> String {
    text.rsplit_once('.').map_or(text, |(address, _)| address).to_owned()
}

/// A private key and the public one that belongs to it.
fn keys(program: &Path) -> [String; 2] {
    let run = |command: &str, input: &str| {
        let mut command = Command::new(program)
            .arg(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it");
        command.stdin.take().expect("piped").write_all(input.as_bytes()).expect("a key");
        let output = command.wait_with_output().expect("a key");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let private = run("genkey", "");
    let public = run("pubkey", &private);
    [private, public]
}

fn host_configuration(private: &str, peer: &str, allowed: &str, carry: &str) -> String {
    format!(
        "[node]\nprivate_key = \"{private}\"\nmode = \"host\"\nexternal = \"eth0\"\n\
         [tunnel]\nname = \"hop\"\naddresses = [\"{TRUE_ADDRESS}/128\"]\n\
         [[peer]]\nname = \"gateway\"\npublic_key = \"{peer}\"\nhop_prefix = \"2001:db8:b1::/64\"\n\
         allowed_ips = [\"{allowed}\"]\nrotation = \"1s\"\ncarry = \"{carry}\"\n"
    )
}

fn gateway_configuration(private: &str, peer: &str, carry: &str) -> String {
    format!(
        "[node]\nprivate_key = \"{private}\"\nexternal = \"ex\"\nhop_prefix = \"2001:db8:b1::/64\"\n\
         [tunnel]\nname = \"hop\"\naddresses = [\"{SERVER}/64\"]\n\
         [[peer]]\nname = \"laptop\"\npublic_key = \"{peer}\"\nhop_prefix = \"2001:db8:1::/64\"\n\
         allowed_ips = [\"{TRUE_ADDRESS}/128\"]\nrotation = \"1s\"\ncarry = \"{carry}\"\n"
    )
}

#[test]
fn a_host_shows_hopping_addresses_only_and_takes_its_session_to_another_network() {
    moves("encapsulate");
}

#[test]
fn so_it_does_where_only_addresses_are_replaced() {
    moves("rewrite");
}

/// From the moment the cable is plugged in, through a move to another network, to the end.
fn moves(carry: &str) {
    let Some(program) = crate::program(&["radvd"]) else { return };
    let ([own, public], [other, other_public]) = (keys(&program), keys(&program));
    let scene = HostScene::new(program);
    let recordings = ["port1", "port2"].map(|port| scene.record(port));
    let routers = scene.start_routers();
    let gateway = scene.up(&scene.gateway, "g", &gateway_configuration(&other, &public, carry));
    // Everything goes through the tunnel: nothing may take the way that the kernel would.
    let host = scene.up(&scene.host, "h", &host_configuration(&own, &other_public, "::/0", carry));
    let settled = Instant::now() + PATIENCE;
    while !scene.path("h.sock").exists() {
        assert!(Instant::now() < settled, "{}", scene.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    scene.host.ip("link set dev eth0 up\n").expect("up");
    scene.plug_in(1);
    scene.reaches(SERVER, PATIENCE);
    let run = |program, words: &[&str]| {
        let output = scene.host.command(program).expect("the namespace").args(words).output().expect(program);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let before = Echoes::parse(&run("cat", &echoes::FILES));
    let report = run("ping", &["-n", "-q", "-i", "0.02", "-c", "200", SERVER]);
    assert!(before.all_answered(&report, || run("cat", &echoes::FILES)), "{report}");
    let socket = scene.path("h.sock").display().to_string();
    let show = Command::new(&scene.program).args(["show", "--json", "--socket", &socket]).output();
    let status: serde_json::Value = serde_json::from_slice(&show.expect("it").stdout).expect("JSON");
    let rewritten = status["peers"][0]["rx_rewritten_packets"].as_u64().expect("a number");
    assert_eq!(rewritten > 50, carry == "rewrite", "{status}");

    scene.plug_in(2);
    scene.reaches(SERVER, PATIENCE);
    assert!(!scene.addresses().contains("inet6"), "the kernel has addresses:\n{}", scene.addresses());
    assert!(host.stop(Duration::from_secs(10)).success());
    for process in recordings {
        process.stop(Duration::from_secs(5));
    }
    gateway.stop(Duration::from_secs(10));

    for (port, prefix) in [("port1", "2001:db8:1:"), ("port2", "2001:db8:2:")] {
        let sent = scene.sent_by_host(port);
        let until = sent.iter().position(|(source, _)| source.starts_with("fe80:"));
        // Once Sidestep has ended the kernel speaks again, on the link that it is on then.
        assert!(until.is_none() || port == "port2", "{sent:?}");
        let sent = &sent[..until.unwrap_or(sent.len())];
        let hopping = sent.iter().filter(|(source, _)| source.starts_with(prefix));
        assert!(hopping.clone().count() > 3, "{port}: {sent:?}\n{}", scene.log());
        for (source, destination) in sent {
            let asks = source == "::" && (destination == "ff02::2" || until.is_some());
            let hops = source.starts_with(prefix)
                && (destination.starts_with("2001:db8:b1:") || destination.starts_with("fe80:"));
            assert!(asks || hops, "{port}: {source} > {destination}\n{}", scene.log());
        }
    }
    // What was taken from the kernel is given back.
    let back = Instant::now() + PATIENCE;
    while !(scene.addresses().contains("fe80:") && scene.addresses().contains("2001:db8:2:")) {
        assert!(
            Instant::now() < back,
            "the kernel has no address again:\n{}{}",
            scene.addresses(),
            scene.log()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    routers.stop(Duration::from_secs(5));
}

/// A configuration in a file that its owner alone may read, since it has a key.
fn written(folder: &tempfile::TempDir, text: &str) -> std::path::PathBuf {
    let file = folder.path().join("h.toml");
    let mut options = std::fs::OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).mode(0o600).open(&file);
    opened.and_then(|mut file| file.write_all(text.as_bytes())).expect("a file");
    file
}

/// Its addresses go, and the connection with them.
#[test]
fn a_host_is_not_taken_from_the_ssh_client_that_is_reached_by_its_interface() {
    let Some(program) = crate::program(&[]) else { return };
    let ([own, _], [_, other]) = (keys(&program), keys(&program));
    let namespace = Namespace::named(lab::prefix::unique());
    namespace.create().expect("a namespace");
    namespace
        .ip("link add name eth0 type veth peer name other\nlink set dev other up\nlink set dev eth0 up\n\
             addr add 2001:db8:1::5/64 dev eth0 nodad valid_lft 3600 preferred_lft 3600\n\
             addr add 192.0.2.5/24 dev eth0\n")
        .expect("an interface");
    let folder = tempfile::tempdir().expect("a folder");
    let file = written(&folder, &host_configuration(&own, &other, "2001:db8:b::/64", "encapsulate"));
    let up = |connection: &str| {
        let mut command = namespace.command("timeout").expect("the namespace");
        command.arg("2").arg(&program).arg("up").arg(&file).arg("--state-dir").arg(folder.path());
        command.arg("--socket").arg(folder.path().join("h.sock"));
        let output = command.env("SSH_CONNECTION", connection).output().expect("the program");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let refused = ["2001:db8:1::9 50000 2001:db8:1::5 22", "fe80::9%eth0 50000 fe80::5%eth0 22"].map(up);
    let by_ipv4 = up("192.0.2.9 50000 192.0.2.5 22");
    let _ = namespace.delete();
    for said in refused {
        assert!(said.contains("closes the SSH connection") && !said.contains("is up"), "{said}");
    }
    assert!(by_ipv4.contains("hop is up"), "{by_ipv4}");
}

/// What a killed run had taken over comes back with the next start, also where that fails.
#[test]
fn a_host_stays_closed_where_the_start_after_a_kill_fails() {
    let Some(program) = crate::program(&["radvd"]) else { return };
    let ([own, public], [other, other_public]) = (keys(&program), keys(&program));
    let scene = HostScene::new(program);
    let routers = scene.start_routers();
    let gateway = scene.up(&scene.gateway, "g", &gateway_configuration(&other, &public, "encapsulate"));
    let configuration = host_configuration(&own, &other_public, "::/0", "encapsulate");
    let start = || scene.up(&scene.host, "h", &configuration);
    let host = start();
    scene.host.ip("link set dev eth0 up\n").expect("up");
    scene.plug_in(1);
    scene.reaches(SERVER, PATIENCE);
    host.kill();
    // Somebody's route is in its way; by then the kernel has its own ways again.
    scene.host.ip("route add unreachable ::/0 metric 1024\n").expect("a route");
    let refused = start().wait(PATIENCE);
    scene.host.ip("route del unreachable ::/0 metric 1024\n").expect("no route");
    assert!(refused.is_some_and(|status| !status.success()), "{}", scene.log());
    let run = |words: &[&str]| {
        let output = scene.host.command("ip").expect("the namespace").args(words).output().expect("ip");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    // The kernel asks for a router as a link comes up.
    scene.host.ip("link set dev eth0 down\nlink set dev eth0 up\n").expect("up");
    let deadline = Instant::now() + PATIENCE;
    while !run(&["-6", "route", "show", "default"]).contains("proto ra") {
        assert!(Instant::now() < deadline, "no router:\n{}", run(&["-6", "route"]));
        std::thread::sleep(Duration::from_millis(50));
    }
    let there = run(&["-6", "route", "get", SERVER]);
    assert!(there.contains("No route to host"), "{there}\n{}", run(&["-6", "route"]));
    // Its next start succeeds as ever.
    let host = start();
    scene.reaches(SERVER, PATIENCE);
    assert!(host.stop(Duration::from_secs(10)).success());
    let there = run(&["-6", "route", "get", SERVER]);
    assert!(there.contains("No route to host"), "{there}\n{}", run(&["-6", "route"]));
    gateway.stop(Duration::from_secs(10));
    routers.stop(Duration::from_secs(5));
}

/// An address that somebody gave for good is theirs.
#[test]
fn an_interface_with_an_address_of_its_own_is_refused() {
    let Some(program) = crate::program(&["radvd"]) else { return };
    let ([own, _], [_, other]) = (keys(&program), keys(&program));
    let namespace = Namespace::named(lab::prefix::unique());
    namespace.create().expect("a namespace");
    namespace
        .ip("link add name eth0 type veth peer name other\naddr add 2001:db8:1::5/64 dev eth0 nodad\nlink set dev eth0 up\n")
        .expect("an interface");
    let folder = tempfile::tempdir().expect("a folder");
    let file = written(&folder, &host_configuration(&own, &other, "2001:db8:b::/64", "encapsulate"));
    let mut command = namespace.command(&program).expect("the namespace");
    let output =
        command.arg("up").arg(&file).arg("--state-dir").arg(folder.path()).output().expect("the program");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    let shown = namespace
        .command("ip")
        .expect("ip")
        .args(["-6", "addr", "show", "dev", "eth0"])
        .output()
        .expect("ip");
    let _ = namespace.delete();
    assert!(
        !output.status.success() && message.contains("ip address del 2001:db8:1::5/64 dev eth0"),
        "{message}"
    );
    assert!(String::from_utf8_lossy(&shown.stdout).contains("2001:db8:1::5"), "it was taken away");
}
