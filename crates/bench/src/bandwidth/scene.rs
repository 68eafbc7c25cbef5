//! A host behind a gateway, whose line has deep queues at both ends, and a server 20 ms away.
//!
//! ```text
//!   client ── lan  gateway  wan ══ line  modem  net ── server
//!   2001:db8:1::2                                      2001:db8:f::2
//! ```
//! The modem is both ends of the line: it lets through what the line carries, and keeps half a second of the rest, as
//! modems and providers do (`tbf`). The server's packets leave 20 ms late (`netem`).

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use lab::Error;
use lab::command::{check, run};
use lab::namespaces::Namespace;
use lab::process::{Process, tail};
use lab::traffic::start_fresh;

pub(super) const SERVER: &str = "2001:db8:f::2";
/// How long a process may take to be ready: an emulated machine is slow.
const PATIENCE: Duration = Duration::from_secs(60);
/// What the line's queues keep.
const QUEUE_MS: u32 = 500;
const FAR_MS: u32 = 20;

/// What the line carries, in kbit/s.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) down: u32,
    pub(super) up: u32,
}

/// What the gateway is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shaping {
    None,
    /// 90 and 95 % of what it carries.
    Fixed,
    /// Too little and too much, and whom to ask.
    Follows,
}

impl Line {
    /// The line of the configuration, if there is one.
    fn bandwidth(self, shaping: Shaping) -> String {
        let Self { down, up } = self;
        match shaping {
            Shaping::None => String::new(),
            Shaping::Fixed => {
                let (down, up) = (down * 9 / 10, up * 19 / 20);
                format!("bandwidth = {{ down = \"{down}kbit/s\", up = \"{up}kbit/s\" }}\n")
            }
            Shaping::Follows => {
                let side = |name, rate| {
                    format!("{name} = \"{}kbit/s\", {name}_least = \"{}kbit/s\"", 2 * rate, rate / 4)
                };
                let (down, up) = (side("down", down), side("up", up));
                format!("bandwidth = {{ {down}, {up}, reflector = \"{SERVER}\" }}\n")
            }
        }
    }
}

/// Gone, with its processes, when dropped.
pub(super) struct Scene {
    client: Namespace,
    gateway: Namespace,
    modem: Namespace,
    server: Namespace,
    directory: PathBuf,
    program: PathBuf,
    line: Line,
    up: Option<Process>,
    servers: Vec<Process>,
}

impl Scene {
    pub(super) fn start(prefix: &str, line: Line, program: &Path) -> Result<Self, Error> {
        let [client, gateway, modem, server] =
            ["client", "gateway", "modem", "server"].map(|name| Namespace::named(format!("{prefix}-{name}")));
        let directory = PathBuf::from(format!("/run/sidestep-lab/{prefix}"));
        std::fs::create_dir_all(&directory).map_err(|source| Error::file(&directory, source))?;
        let program = program.to_owned();
        let (up, servers) = (None, Vec::new());
        let mut scene = Self { client, gateway, modem, server, directory, program, line, up, servers };
        scene.build()?;
        for port in ["5201", "5202"] {
            let mut iperf3 = scene.server.command("iperf3")?;
            iperf3.args(["-s", "-p", port]);
            let log = scene.directory.join(format!("iperf3-{port}.log"));
            scene.servers.push(start_fresh(iperf3, &log)?);
        }
        Ok(scene)
    }

    const fn namespaces(&self) -> [&Namespace; 4] {
        [&self.client, &self.gateway, &self.modem, &self.server]
    }

    fn build(&self) -> Result<(), Error> {
        for namespace in self.namespaces() {
            namespace.delete()?;
            namespace.create()?;
        }
        let name = |namespace: &Namespace| namespace.name().to_owned();
        self.gateway.ip(&format!(
            "link add name lan type veth peer name eth0 netns {}\n\
             link add name wan type veth peer name line netns {}\nlink set lan up\nlink set wan up\n",
            name(&self.client),
            name(&self.modem)
        ))?;
        self.modem.sysctl(&[("ipv6/conf/all/forwarding", 1)])?;
        self.modem.ip(&format!(
            "link add name net type veth peer name eth0 netns {}\n\
             addr add fe80::9/64 dev line nodad\naddr add 2001:db8:0:1::9/64 dev line nodad\n\
             addr add 2001:db8:f::9/64 dev net nodad\nlink set line up\nlink set net up\n\
             route add 2001:db8:1::/48 via 2001:db8:0:1::1\n",
            name(&self.server)
        ))?;
        self.client.ip(
            "addr add 2001:db8:1::2/64 dev eth0 nodad\nlink set eth0 up\nroute add default via 2001:db8:1::1\n",
        )?;
        self.server.ip(&format!(
            "addr add {SERVER}/64 dev eth0 nodad\nlink set eth0 up\nroute add default via 2001:db8:f::9\n"
        ))?;
        // Single packets, as on a cable.
        for namespace in self.namespaces() {
            for interface in namespace.ethernet_interfaces()? {
                namespace.offloads_off(&interface)?;
            }
        }
        let (down, up) = (self.line.down, self.line.up);
        for (namespace, words) in [
            (&self.modem, format!("line root tbf rate {down}kbit burst 10kb latency {QUEUE_MS}ms")),
            (&self.modem, format!("net root tbf rate {up}kbit burst 10kb latency {QUEUE_MS}ms")),
            (&self.server, format!("eth0 root netem delay {FAR_MS}ms limit 100000")),
        ] {
            let mut tc = namespace.command("tc")?;
            check(tc.args(["qdisc", "add", "dev"]).args(words.split(' ')))?;
        }
        Ok(())
    }

    /// Has the gateway work, with `bandwidth` or without.
    pub(super) fn work(&mut self, shaping: Shaping) -> Result<(), Error> {
        self.end();
        let bandwidth = self.line.bandwidth(shaping);
        let configuration = format!(
            "[[uplink]]\ninterface = \"wan\"\nrouter = \"fe80::9\"\naddresses = [\"2001:db8:0:1::1/64\"]\n\
             prefixes = [\"2001:db8:1::/48\"]\n{bandwidth}\n[[network]]\ninterface = \"lan\"\nsubnet = 0\n\n\
             [firewall]\naccept_special = [\"2001:db8::/32\"]\n"
        );
        let file = self.directory.join("gateway.toml");
        std::fs::write(&file, configuration).map_err(|source| Error::file(&file, source))?;
        let mut command = self.gateway.command(&self.program)?;
        command.arg("up").arg(file).arg("--state-dir").arg(self.directory.join("state"));
        self.up = Some(start_fresh(command, &self.directory.join("gateway.log"))?);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut ping = self.client.command("ping")?;
            let reached = run(ping.args(["-c", "1", "-W", "1", SERVER]))?.status.success();
            if reached && (shaping == Shaping::None || self.is_shaped()?) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let said = self.up.as_ref().map_or_else(String::new, |process| tail(process.log()));
                return Err(Error::Usage(format!("the gateway does not do its work\n{said}")));
            }
        }
    }

    fn is_shaped(&self) -> Result<bool, Error> {
        let mut status = self.gateway.command(&self.program)?;
        let said = run(status.args(["status", "--json"]).stdin(Stdio::null()))?;
        let said: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap_or_default();
        let bandwidth = &said["uplinks"][0]["bandwidth"];
        Ok(["down", "up"].iter().all(|side| bandwidth[side]["rate_in_force_bits"].is_u64()))
    }

    /// Starts a program on the client, whose output goes to a file of that name.
    pub(super) fn on_client(&self, words: &[&str], name: &str) -> Result<Process, Error> {
        let mut command = self.client.command(words[0])?;
        command.args(&words[1..]);
        start_fresh(command, &self.directory.join(name))
    }

    fn end(&mut self) {
        if let Some(process) = self.up.take() {
            process.stop(Duration::from_secs(10));
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.end();
        for process in self.servers.drain(..) {
            process.stop(Duration::from_secs(3));
        }
        for namespace in self.namespaces() {
            if let Err(error) = namespace.delete() {
                eprintln!("{error}");
            }
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
