//! Network namespaces with what a lab does in them: addresses and routes (iproute2), kernel parameters, packet
//! filters (nft), offloads (ethtool), processes.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use linux::netns;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::Error;
use crate::command::{check, check_with_input, run, text};

/// How many neighbors the kernel remembers, in all namespaces together.
const NEIGHBORS: &str = "/proc/sys/net/ipv6/neigh/default/gc_thresh3";
/// As many as a namespace of a lab may have.
const NEIGHBORS_EACH: u64 = 4;

/// Whether the kernel remembers enough neighbors for so many namespaces. Where it does not, packets are lost in labs that have
/// nothing to do with each other, without a word but in its log.
///
/// # Errors
/// When it does not.
pub fn check_neighbors(namespaces: u64) -> Result<(), Error> {
    // Only the first namespace of the machine says.
    let Ok(limit) = std::fs::read_to_string(NEIGHBORS) else { return Ok(()) };
    let (limit, needed) = (limit.trim().parse().unwrap_or(u64::MAX), NEIGHBORS_EACH * namespaces);
    if limit >= needed {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{namespaces} namespaces may need more neighbors than the {limit} that the kernel remembers, and packets would be \
         lost: sysctl -w net.ipv6.neigh.default.gc_thresh3={needed}"
    )))
}

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
        netns::Namespace::create(&self.name)?;
        self.sysctl(&[
            ("ipv6/conf/all/accept_dad", 0),
            ("ipv6/conf/default/accept_dad", 0),
            ("ipv6/conf/default/dad_transmits", 0),
            ("ipv6/conf/all/accept_ra", 0),
            ("ipv6/conf/default/accept_ra", 0),
            ("ipv6/conf/default/router_solicitations", 0),
        ])
    }

    /// A command that will run inside; the process that it starts is the program itself, not a wrapper,
    /// so that its id can be signalled.
    ///
    /// # Errors
    /// When there is no such namespace.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Result<Command, Error> {
        Ok(netns::Namespace::open(&self.name)?.command(program)?)
    }

    /// Runs `ip -batch` inside with these lines.
    ///
    /// # Errors
    /// When a line fails; iproute2 names it.
    pub fn ip(&self, lines: &str) -> Result<(), Error> {
        check_with_input(Command::new("ip").args(["-n", &self.name, "-batch", "-"]), lines)?;
        Ok(())
    }

    /// Sets kernel parameters inside: names below `/proc/sys/net`, with their values.
    ///
    /// # Errors
    /// When one does not exist.
    pub fn sysctl(&self, settings: &[(&str, u32)]) -> Result<(), Error> {
        netns::Namespace::open(&self.name)?.run(|| {
            settings.iter().try_for_each(|(name, value)| {
                let path = Path::new("/proc/sys/net").join(name);
                std::fs::write(&path, value.to_string()).map_err(|source| Error::file(path, source))
            })
        })?
    }

    /// Loads an nftables ruleset inside.
    ///
    /// # Errors
    /// When nft refuses it.
    pub fn nft(&self, ruleset: &str) -> Result<(), Error> {
        check_with_input(self.command("nft")?.args(["-f", "-"]), ruleset)?;
        Ok(())
    }

    /// The names of its virtual Ethernet interfaces.
    ///
    /// # Errors
    /// When `ip` fails.
    pub fn ethernet_interfaces(&self) -> Result<Vec<String>, Error> {
        let output =
            check(Command::new("ip").args(["-n", &self.name, "-o", "link", "show", "type", "veth"]))?;
        // "2: eth@if3: <BROADCAST,…"
        let name = |line: &str| Some(line.split_whitespace().nth(1)?.split(['@', ':']).next()?.to_owned());
        Ok(text(&output).lines().filter_map(name).collect())
    }

    /// Turns every segmentation and checksum offload of an interface off, so that each packet is on
    /// the wire as it would be on a cable.
    ///
    /// # Errors
    /// When ethtool fails.
    pub fn offloads_off(&self, interface: &str) -> Result<(), Error> {
        let features = ["tso", "gso", "gro", "tx-udp-segmentation", "tx"];
        let settings = features.iter().flat_map(|feature| [*feature, "off"]);
        check(self.command("ethtool")?.args(["-K", interface]).args(settings))?;
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
        netns::delete(&self.name)?;
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
