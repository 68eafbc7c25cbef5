//! A client, a link, and the contender behind a router, so that all have the same way:
//!
//! ```text
//!   client ── relay ── router ── TUN, or veth and another namespace
//!   :1::2     impairs  :1::1     :2::1      :2::2
//! ```
//!
//! Without impairment the client is at the router itself, and nothing is in between.

use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use lab::command::{check, find, run, text};
use lab::namespaces::Namespace;
use lab::process::{Process, tail};
use lab::{Error, helper};

use crate::comparison::contender::not_installed;

use super::contender::StackContender;
use super::load::Direction;

/// The contender's address.
pub(super) const ADDRESS: &str = "2001:db8:2::2";
/// The router's, next to the contender.
pub(super) const ROUTER: &str = "2001:db8:2::1";
/// The device of contenders that have one.
pub(super) const DEVICE: &str = "stack";
/// gVisor's program, which scripts/contenders builds.
const GVISOR: &str = "stack-gvisor";
const PATIENCE: Duration = Duration::from_secs(20);

/// What is between client and contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Direct,
    RarelyLost,
    Lost,
    Late,
}

impl Link {
    pub(super) const ALL: [Self; 4] = [Self::Direct, Self::RarelyLost, Self::Lost, Self::Late];

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Direct => "no link between",
            Self::RarelyLost => "20 ms, 0.1 % lost",
            Self::Lost => "20 ms, 1 % lost",
            Self::Late => "66 ms, 2 % late by 5 ms",
        }
    }

    /// That of one direction; both are alike, and round trips take twice the delay.
    fn impairment(self, seed: u64) -> Option<String> {
        match self {
            Self::Direct => None,
            Self::RarelyLost => Some(format!("delay=10ms,loss=0.1%,seed={seed}")),
            Self::Lost => Some(format!("delay=10ms,loss=1%,seed={seed}")),
            Self::Late => Some(format!("delay=33ms,reorder=2%,reorder-by=5ms,seed={seed}")),
        }
    }
}

/// Gone, with its processes, when dropped.
pub(super) struct StackScene {
    client: Namespace,
    relay: Namespace,
    router: Namespace,
    end: Namespace,
    link: Link,
    processes: Vec<Process>,
    directory: std::path::PathBuf,
}

impl StackScene {
    /// Losses are others in each repetition, and the same for all contenders.
    pub(super) fn start(
        prefix: &str,
        contender: StackContender,
        link: Link,
        repetition: u32,
    ) -> Result<Self, Error> {
        let [client, relay, router, end] =
            ["client", "relay", "router", "end"].map(|name| Namespace::named(format!("{prefix}-{name}")));
        let directory = std::path::PathBuf::from(format!("/run/sidestep-lab/{prefix}"));
        std::fs::create_dir_all(&directory).map_err(|source| Error::file(&directory, source))?;
        let mut scene = Self { client, relay, router, end, link, processes: Vec::new(), directory };
        for namespace in scene.namespaces() {
            namespace.delete()?;
            namespace.create()?;
        }
        scene.router.sysctl(&[("ipv6/conf/all/forwarding", 1)])?;
        scene.contend(contender)?;
        scene.connect(u64::from(repetition))?;
        scene.wait_reachable()?;
        Ok(scene)
    }

    const fn namespaces(&self) -> [&Namespace; 4] {
        [&self.client, &self.relay, &self.router, &self.end]
    }

    /// Starts the contender at its end.
    fn contend(&mut self, contender: StackContender) -> Result<(), Error> {
        let name = contender.name();
        if contender == StackContender::Kernel {
            self.router.ip(&format!(
                "link add name {DEVICE} type veth peer name eth0 netns {}\n\
                 addr add {ROUTER}/64 dev {DEVICE} nodad\nlink set dev {DEVICE} up\n",
                self.end.name()
            ))?;
            self.end.ip(&format!(
                "addr add {ADDRESS}/64 dev eth0 nodad\nlink set dev eth0 up\n\
                 route add default via {ROUTER}\n"
            ))?;
            return self.run(&self.end.clone(), "end", &["stack-end", name]);
        }
        if contender == StackContender::Gvisor {
            let gvisor = find(GVISOR).ok_or_else(|| Error::Usage(not_installed(GVISOR, "gvisor")))?;
            self.start_program(&self.router.clone(), "end", &gvisor, &[DEVICE, ADDRESS])?;
        } else {
            self.run(&self.router.clone(), "end", &["stack-end", name])?;
        }
        let deadline = Instant::now() + PATIENCE;
        while !run(self.router.command("ip")?.args(["link", "show", DEVICE]))?.status.success() {
            if Instant::now() > deadline {
                return Err(Error::output(name, tail(&self.directory.join("end.log"))));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.router.ip(&format!("addr add {ROUTER}/64 dev {DEVICE} nodad\nlink set dev {DEVICE} up\n"))
    }

    /// The link, with what impairs it. Its frames are whole packets, so that what is lost is one.
    fn connect(&mut self, repetition: u64) -> Result<(), Error> {
        let Some(impairment) = self.link.impairment(2 * repetition - 1) else { return Ok(()) };
        let (client, router) = (self.client.name(), self.router.name());
        self.relay.ip(&format!(
            "link add name left type veth peer name eth0 netns {client}\n\
             link add name right type veth peer name eth0 netns {router}\n\
             link set dev left up\nlink set dev right up\n"
        ))?;
        self.client.ip(
            "addr add 2001:db8:1::2/64 dev eth0 nodad\nlink set dev eth0 up\nroute add default via 2001:db8:1::1\n",
        )?;
        self.router.ip("addr add 2001:db8:1::1/64 dev eth0 nodad\nlink set dev eth0 up\n")?;
        for namespace in [&self.client, &self.router] {
            namespace.offloads_off("eth0")?;
        }
        let back = self.link.impairment(2 * repetition).unwrap_or_default();
        let words = ["relay", "left", "right", "--impair", &impairment, "--impair-back", &back];
        self.run(&self.relay.clone(), "relay", &words)
    }

    fn run(&mut self, namespace: &Namespace, name: &str, words: &[&str]) -> Result<(), Error> {
        self.start_program(namespace, name, &helper::program()?, words)
    }

    fn start_program(
        &mut self,
        namespace: &Namespace,
        name: &str,
        program: &Path,
        words: &[&str],
    ) -> Result<(), Error> {
        let mut command = namespace.command(program)?;
        command.args(words);
        let log = self.directory.join(format!("{name}.log"));
        self.processes.push(lab::traffic::start_fresh(command, &log)?);
        Ok(())
    }

    /// The client's place.
    fn near(&self) -> &Namespace {
        if self.link == Link::Direct { &self.router } else { &self.client }
    }

    fn wait_reachable(&self) -> Result<(), Error> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut ping = self.near().command("ping")?;
            if run(ping.args(["-c", "1", "-W", "1", ADDRESS]))?.status.success() {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Error::output("the contender", tail(&self.directory.join("end.log"))));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Mbit/s of one connection.
    pub(super) fn carry(&self, direction: Direction, seconds: u32) -> Result<f64, Error> {
        let mut command: Command = self.near().command(helper::program()?)?;
        let way = if direction == Direction::To { "to" } else { "from" };
        let address: IpAddr = ADDRESS.parse().map_err(|error| Error::output("address", error))?;
        command.args(["stack-load", way, &address.to_string(), &seconds.to_string()]);
        let said = text(&check(&mut command)?);
        said.parse().map_err(|error| Error::output("stack-load", error))
    }
}

impl Drop for StackScene {
    fn drop(&mut self) {
        for process in self.processes.drain(..) {
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
