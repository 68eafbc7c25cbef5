//! Network namespaces: made, entered and removed through iproute2.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::Error;
use crate::command::{check, check_with_input, run, text};

/// How long processes get to end by themselves before they are killed.
const GRACE: Duration = Duration::from_secs(3);

/// One network namespace, known by its name under `/run/netns`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// The namespace of this name, whether it exists or not.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it exists.
    pub fn exists(&self) -> bool {
        Path::new("/run/netns").join(&self.name).exists()
    }

    /// Makes it, with loopback up and an IPv6 that neither detects duplicates nor believes advertisements.
    ///
    /// # Errors
    /// When it exists already, or without the right to make one.
    pub fn create(&self) -> Result<(), Error> {
        check(Command::new("ip").args(["netns", "add", &self.name]))?;
        self.sysctl(&[
            "net.ipv6.conf.all.accept_dad=0",
            "net.ipv6.conf.default.accept_dad=0",
            "net.ipv6.conf.default.dad_transmits=0",
            "net.ipv6.conf.all.accept_ra=0",
            "net.ipv6.conf.default.accept_ra=0",
            "net.ipv6.conf.default.router_solicitations=0",
        ])?;
        self.ip("link set dev lo up\n")
    }

    /// A command that will run inside; the process that it starts is the program itself, not a wrapper,
    /// so that its id can be signalled.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Runs `ip -batch` inside with these lines.
    ///
    /// # Errors
    /// When a line fails; iproute2 names it.
    pub fn ip(&self, lines: &str) -> Result<(), Error> {
        check_with_input(Command::new("ip").args(["-n", &self.name, "-batch", "-"]), lines)?;
        Ok(())
    }

    /// Sets kernel parameters (`name=value`) inside.
    ///
    /// # Errors
    /// When one does not exist.
    pub fn sysctl(&self, settings: &[&str]) -> Result<(), Error> {
        check(self.command("sysctl").arg("-qw").args(settings))?;
        Ok(())
    }

    /// Loads an nftables ruleset inside.
    ///
    /// # Errors
    /// When nft refuses it.
    pub fn nft(&self, ruleset: &str) -> Result<(), Error> {
        check_with_input(self.command("nft").args(["-f", "-"]), ruleset)?;
        Ok(())
    }

    /// Turns every segmentation and checksum offload of an interface off, so that each packet is on
    /// the wire as it would be on a cable.
    ///
    /// # Errors
    /// When ethtool fails.
    pub fn offloads_off(&self, interface: &str) -> Result<(), Error> {
        let features = ["tso", "gso", "gro", "tx-udp-segmentation", "tx"];
        let settings = features.iter().flat_map(|feature| [*feature, "off"]);
        check(self.command("ethtool").args(["-K", interface]).args(settings))?;
        Ok(())
    }

    /// The processes that run inside.
    pub fn processes(&self) -> Vec<Pid> {
        let Ok(output) = run(Command::new("ip").args(["netns", "pids", &self.name])) else {
            return Vec::new();
        };
        text(&output).lines().filter_map(|line| line.trim().parse().ok()).map(Pid::from_raw).collect()
    }

    /// Ends what runs inside and removes it. No namespace, nothing to do.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn delete(&self) -> Result<(), Error> {
        if !self.exists() {
            return Ok(());
        }
        self.end_processes();
        check(Command::new("ip").args(["netns", "del", &self.name]))?;
        Ok(())
    }

    /// Terminates the processes inside, then kills those that stay.
    fn end_processes(&self) {
        let deadline = Instant::now() + GRACE;
        let mut signal = Signal::SIGTERM;
        loop {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            for pid in left {
                // One that ended meanwhile is no failure.
                let _ = kill(pid, signal);
            }
            if signal == Signal::SIGKILL && Instant::now() > deadline + GRACE {
                return;
            }
            if Instant::now() > deadline {
                signal = Signal::SIGKILL;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
