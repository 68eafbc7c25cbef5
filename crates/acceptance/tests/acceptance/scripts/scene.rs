//! Two hosts and a router between them, with the addresses that `examples/scripts/nat.lua` is about.
//!
//! ```text
//!   client ── lan  router  wan ── server
//!   fd00::2   fd00::1  2001:db8:f::1   2001:db8:f::9
//!   192.168.0.2   .1   192.0.2.2       192.0.2.1
//! ```
//! The server knows its own network, and 2001:db8::1 and 10.0.0.1 behind the router; not the client's.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use lab::echoes::{self, Echoes, PingReport, ping_report};
use lab::namespaces::Namespace;
use lab::process::Process;
use lab::scale::{emulated, scaled};
use serde_json::Value;

pub(crate) const CLIENT: &str = "fd00::2";
pub(crate) const ROUTER: &str = "fd00::1";
pub(crate) const SERVER: &str = "2001:db8:f::9";
pub(crate) const SERVER_IPV4: &str = "192.0.2.1";

pub(crate) struct ScriptScene {
    pub(crate) client: Namespace,
    pub(crate) router: Namespace,
    pub(crate) server: Namespace,
    pub(crate) folder: tempfile::TempDir,
    program: PathBuf,
}

impl ScriptScene {
    /// `None` where there is no program to test. Where `translated` is false, the server knows the way to the client.
    pub(crate) fn new(translated: bool) -> Option<Self> {
        let program = crate::program(&[])?;
        let prefix = lab::prefix::unique();
        let [client, router, server] =
            ["c", "r", "s"].map(|letter| Namespace::named(format!("{prefix}-{letter}")));
        for namespace in [&client, &router, &server] {
            namespace.create().expect("a namespace");
        }
        router.sysctl(&[("ipv6/conf/all/forwarding", 1), ("ipv4/ip_forward", 1)]).expect("sysctl");
        let (to_client, to_server) = (client.name(), server.name());
        router
            .ip(&format!(
                "link add name lan type veth peer name eth0 netns {to_client}\n\
                 link add name wan type veth peer name eth0 netns {to_server}\n\
                 addr add {ROUTER}/64 dev lan nodad\naddr add 192.168.0.1/24 dev lan\n\
                 addr add 2001:db8:f::1/64 dev wan nodad\naddr add 192.0.2.2/24 dev wan\n\
                 link set dev lan up\nlink set dev wan up\n\
                 route add 2001:db8::1 via {CLIENT}\n"
            ))
            .expect("the router");
        client
            .ip(&format!(
                "addr add {CLIENT}/64 dev eth0 nodad\naddr add 192.168.0.2/24 dev eth0\nlink set dev eth0 up\n\
                 route add default via {ROUTER}\nroute add default via 192.168.0.1\n"
            ))
            .expect("the client");
        server
            .ip(&format!(
                "addr add {SERVER}/64 dev eth0 nodad\naddr add {SERVER_IPV4}/24 dev eth0\nlink set dev eth0 up\n\
                 route add 2001:db8::1 via 2001:db8:f::1\nroute add 10.0.0.1 via 192.0.2.2\n"
            ))
            .expect("the server");
        if !translated {
            server
                .ip("route add fd00::/64 via 2001:db8:f::1\nroute add 192.168.0.0/24 via 192.0.2.2\n")
                .expect("routes");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let scene = ScriptScene { client, router, server, folder, program };
        if !translated {
            scene.wait_reachable();
        }
        Some(scene)
    }

    /// Takes the link between client and router away.
    pub(crate) fn unplug_client(&self) {
        self.router.ip("link del dev lan\n").expect("the router");
    }

    /// Makes it once more: other interfaces, with the same names and addresses. It is not translated.
    pub(crate) fn plug_client_in(&self) {
        let to_client = self.client.name();
        self.router
            .ip(&format!(
                "link add name lan type veth peer name eth0 netns {to_client}\n\
                 addr add {ROUTER}/64 dev lan nodad\nlink set dev lan up\n"
            ))
            .expect("the router");
        self.client
            .ip(&format!(
                "addr add {CLIENT}/64 dev eth0 nodad\nlink set dev eth0 up\nroute add default via {ROUTER}\n"
            ))
            .expect("the client");
    }

    /// Waits until neighbors know each other: what is lost before is no script's fault.
    fn wait_reachable(&self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.ping(&self.client, SERVER, &["-c", "1"]).ends_with(" 0%") {
            assert!(Instant::now() < deadline, "the hosts do not reach each other");
        }
    }

    /// Writes a script, and gives its path.
    pub(crate) fn script(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).expect("a script");
        path.display().to_string()
    }

    /// The program under test.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Runs `sidestep script` on the router.
    pub(crate) fn try_sidestep(&self, words: &[&str]) -> Output {
        let mut command = self.router.command(&self.program).expect("the namespace");
        command.arg("script").args(words).stdin(Stdio::null()).output().expect("the program")
    }

    /// The same; what it wrote. It must succeed.
    pub(crate) fn sidestep(&self, words: &[&str]) -> String {
        let output = self.try_sidestep(words);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// What it says when it fails.
    pub(crate) fn refusal(&self, words: &[&str]) -> String {
        let output = self.try_sidestep(words);
        assert!(!output.status.success(), "{words:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// The script of this number, as the list has it.
    pub(crate) fn status(&self, id: u64) -> Value {
        let list: Value = serde_json::from_str(&self.sidestep(&["list", "--json"])).expect("JSON");
        let scripts = list["scripts"].as_array().expect("scripts");
        scripts.iter().find(|script| script["id"] == id).unwrap_or_else(|| panic!("{id}: {list}")).clone()
    }

    /// The only script that is loaded, as the list has it.
    pub(crate) fn only_status(&self) -> Value {
        let list: Value = serde_json::from_str(&self.sidestep(&["list", "--json"])).expect("JSON");
        list["scripts"][0].clone()
    }

    /// What metrics say of the scripts.
    pub(crate) fn metrics(&self) -> String {
        let program = self.program.display().to_string();
        let (good, page) =
            self.run(&self.router, &[&program, "metrics", "--once", "--openmetrics", "scripts"]);
        assert!(good, "{page}");
        page
    }

    /// The value of the first sample that begins like this.
    pub(crate) fn metric(&self, beginning: &str) -> String {
        let page = self.metrics();
        let sample = page.lines().find(|line| line.starts_with(beginning));
        sample.and_then(|line| line.split_whitespace().last()).unwrap_or_else(|| panic!("{page}")).to_owned()
    }

    /// The client floods the server with pings, while a script is loaded anew as often as that goes: none is lost. How many
    /// pings.
    pub(crate) fn reload_under_a_flood(&self, name: &str, text: &str) -> u64 {
        self.under_a_flood(|reloads| {
            let file = self.script(name, &format!("{text}\n-- {reloads}\n"));
            self.sidestep(&["reload", &file]);
        })
    }

    /// The same, while something else is done as often as that goes: it is told how often it was.
    pub(crate) fn under_a_flood(&self, mut disturb: impl FnMut(u64)) -> u64 {
        let count = if emulated() { 10_000 } else { scaled(25_000, 100_000) };
        let log = self.folder.path().join("flood.log");
        let before = Echoes::parse(&self.echoes(&self.client));
        let mut command = self.client.command("ping").expect("the namespace");
        let mut flood =
            Process::start(command.args(["-q", "-f", "-c", &count.to_string(), SERVER]), &log).expect("ping");
        let mut times = 0;
        let deadline = Instant::now() + Duration::from_secs(120);
        while flood.ended().is_none() {
            assert!(Instant::now() < deadline, "the flood does not end");
            disturb(times);
            times += 1;
        }
        let summary = std::fs::read_to_string(&log).expect("the log");
        let all_answered = before.all_answered(&summary, || self.echoes(&self.client));
        assert!(times > 1 && all_answered, "disturbed {times} times: {summary}");
        count
    }

    /// Runs a program on a machine to its end: whether it succeeded, and all that it wrote.
    pub(crate) fn run(&self, on: &Namespace, words: &[&str]) -> (bool, String) {
        let mut command = on.command(words[0]).expect("the namespace");
        let output = command.args(&words[1..]).stdin(Stdio::null()).output();
        let output = output.unwrap_or_else(|error| panic!("{}: {error}", words[0]));
        (
            output.status.success(),
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
        )
    }

    /// Starts a server on a machine, and waits until `is_there` holds; what it says goes to a file of this name.
    pub(crate) fn start(
        &self,
        on: &Namespace,
        words: &[&str],
        log: &str,
        is_there: impl Fn() -> bool,
    ) -> Process {
        let mut command = on.command(words[0]).expect("the namespace");
        let log = self.folder.path().join(log);
        let mut process = Process::start(command.args(&words[1..]), &log)
            .unwrap_or_else(|error| panic!("{}: {error}", words[0]));
        let deadline = Instant::now() + Duration::from_secs(30);
        while !is_there() {
            let said = || std::fs::read_to_string(&log).unwrap_or_default();
            assert!(process.ended().is_none() && Instant::now() < deadline, "{words:?}: {}", said());
            std::thread::sleep(Duration::from_millis(20));
        }
        process
    }

    /// Where what is started says what it says.
    pub(crate) fn log(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// What a server has said.
    pub(crate) fn said(&self, log: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(log)).expect("a log")
    }

    /// Whether somebody listens at this port of the server, of `tcp` or `udp`.
    pub(crate) fn listens(&self, protocol: &str, port: u16) -> bool {
        let (_, sockets) =
            self.run(&self.server, &["ss", "-Hln", "-A", protocol, "sport", "=", &port.to_string()]);
        !sockets.is_empty()
    }

    /// The tiers in which this function of an example can run, at `ingress` or `egress` of an interface.
    pub(crate) fn tiers(&self, example: &str, function: &str, hook: &str) -> Vec<&'static str> {
        let explained = self.try_sidestep(&["explain", example, "--function", function, "--hook", hook]);
        let text = String::from_utf8_lossy(&explained.stdout).into_owned();
        match text.lines().next() {
            _ if !explained.status.success() => vec!["user"],
            Some(first) if first.contains("hands over") => vec!["user", "both"],
            _ => vec!["user", "kernel"],
        }
    }

    /// Loads a script with these options, separated by spaces, and more of them.
    pub(crate) fn load(&self, file: &str, options: &str, more: &[&str]) {
        let words: Vec<&str> = ["load", file].into_iter().chain(options.split(' ')).collect();
        self.sidestep(&[&words[..], more].concat());
    }

    /// Every script that is loaded has seen packets, in one of these tiers, and has not failed.
    pub(crate) fn has_served(&self, tiers: &[&str]) {
        let list: Value = serde_json::from_str(&self.sidestep(&["list", "--json"])).expect("JSON");
        for script in list["scripts"].as_array().expect("scripts") {
            assert!(script["errors"] == 0 && tiers.iter().any(|tier| script["tier"] == *tier), "{script}");
            assert!(script["packets"].as_u64() > Some(0), "{script}");
        }
    }

    /// The first script, if it runs in both tiers, has handed some packets over, and of a stream that is nothing to it none:
    /// at most what clients that were refused still repeat.
    pub(crate) fn keeps_streams_in_the_kernel(&self, tier: &str) {
        if tier != "both" {
            return;
        }
        let counts = || {
            let status = self.status(1);
            ["packets", "handed_over"].map(|name| status[name].as_u64().expect("a number"))
        };
        let before = counts();
        self.tcp(SERVER, 1);
        let [packets, handed_over] = [0, 1].map(|place| counts()[place] - before[place]);
        assert!(before[1] > 0 && packets > 1000 && handed_over < 50, "{before:?} {packets} {handed_over}");
    }

    /// Runs the script host in the foreground, to be killed.
    pub(crate) fn serve(&self) -> Process {
        self.serve_with(&[])
    }

    /// The same, with further options. The log of one before is gone.
    pub(crate) fn serve_with(&self, words: &[&str]) -> Process {
        let mut command = self.router.command(&self.program).expect("the namespace");
        let log = self.folder.path().join("host.log");
        let _ = std::fs::remove_file(&log);
        let process = Process::start(command.args(["script", "serve"]).args(words), &log).expect("the host");
        let deadline = Instant::now() + Duration::from_secs(10);
        while !std::fs::read_to_string(&log).unwrap_or_default().contains("listening") {
            assert!(Instant::now() < deadline, "the host does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        process
    }

    /// Pings, and gives the summary up to the loss: `3 packets transmitted, 3 received, 0%`.
    pub(crate) fn ping(&self, from: &Namespace, to: &str, words: &[&str]) -> String {
        let before = Echoes::parse(&self.echoes(from));
        let mut command = from.command("ping").expect("the namespace");
        let output = command.args(words).args(["-W", "2", to]).output().expect("ping");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let Some(report) = ping_report(&text) else { return text };
        summary(&before.complete(report, || self.echoes(from)))
    }

    /// The counters of echoes of a machine.
    pub(crate) fn echoes(&self, of: &Namespace) -> String {
        self.run(of, &[&["cat"], &echoes::FILES[..]].concat()).1
    }

    /// Runs something in a namespace, on a thread of its own.
    pub(crate) fn within<T: Send>(namespace: &Namespace, work: impl FnOnce() -> T + Send) -> T {
        linux::netns::Namespace::open(namespace.name())
            .expect("the namespace")
            .run(work)
            .expect("a thread there")
    }

    /// Gb/s of one TCP stream from the client to the server.
    pub(crate) fn tcp(&self, to: &str, seconds: u32) -> f64 {
        let log = self.folder.path().join("iperf3.log");
        let mut command = self.server.command("iperf3").expect("the namespace");
        let server = Process::start(command.args(["-s", "-1"]), &log).expect("iperf3");
        std::thread::sleep(Duration::from_millis(300));
        let mut command = self.client.command("iperf3").expect("the namespace");
        let output = command.args(["-J", "-c", to, "-t", &seconds.to_string()]).output().expect("iperf3");
        server.stop(Duration::from_secs(2));
        let result: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        result["end"]["sum_received"]["bits_per_second"].as_f64().unwrap_or_else(|| panic!("{result}")) / 1e9
    }
}

impl Drop for ScriptScene {
    fn drop(&mut self) {
        // A host in the background ends with its last script.
        let list = self.try_sidestep(&["list", "--json"]);
        let list: Value = serde_json::from_slice(&list.stdout).unwrap_or_default();
        for script in list["scripts"].as_array().into_iter().flatten() {
            let _ = self.try_sidestep(&["unload", &script["id"].to_string()]);
        }
        for namespace in [&self.client, &self.router, &self.server] {
            let _ = namespace.delete();
        }
    }
}

/// A script of the examples.
pub(crate) fn example(name: &str) -> String {
    std::fs::read_to_string(example_path(name)).expect("an example")
}

/// Where it is: some have modules beside them.
pub(crate) fn example_path(name: &str) -> String {
    format!("{}/../../examples/scripts/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Whether netfilter of this kernel gives packets to programs: Linux 6.4. Before that the user tier has those scripts.
pub(crate) fn has_netfilter_links() -> bool {
    linux::bpf::netfilter::layout().inspect_err(|why| eprintln!("not in the kernel: {why}")).is_ok()
}

/// Whether the verifier of this kernel gets to the end of `synflood.lua` at XDP: that of Linux 6.1 gives up.
pub(crate) fn verifies_long_scripts() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel's release");
    let mut parts = release.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next(), parts.next()) >= (Some(6), Some(6))
}

fn summary(report: &PingReport) -> String {
    let PingReport { sent, received, duplicates, .. } = *report;
    let doubled = if duplicates > 0 { format!(" +{duplicates} duplicates,") } else { String::new() };
    let loss = (sent - received.min(sent)) as f64 * 100.0 / sent as f64;
    format!("{sent} packets transmitted, {received} received,{doubled} {loss}%")
}
