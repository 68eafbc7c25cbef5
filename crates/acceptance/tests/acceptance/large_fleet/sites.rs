//! Machines with sites of a fleet on them, and what can be asked of those.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lab::machines::{Machines, inside};
use lab::process::{Process, tail};
use serde_json::Value;

/// The name of the tunnel on each.
const TUNNEL: &str = "mt6d0";
/// Half of the numbers of echo requests.
const HALF: u64 = 1 << 15;

/// How long hundreds of processes on two processors may take for anything.
const PATIENCE: Duration = Duration::from_secs(300);

/// Waits until there is something.
pub(super) fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(begin.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until something holds.
pub(super) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(what, || holds().then_some(()));
}

pub(super) struct Sites {
    pub(super) machines: Machines,
    pub(super) program: PathBuf,
    /// For what the test itself writes, and the logs of what it starts.
    pub(super) folder: tempfile::TempDir,
    /// What the test has started, by its machine and its name.
    processes: BTreeMap<(usize, &'static str), Process>,
    /// The folder that the fleet is administered from, and the administrator's key, both for machine 1.
    pub(super) control: PathBuf,
    pub(super) key: PathBuf,
}

/// Echo requests that leave at a steady pace.
pub(super) struct Pings {
    name: String,
    ping: Child,
    /// In a second.
    rate: u32,
}

impl Sites {
    /// Machines without anything on them. What administers a fleet is in the test's own folder.
    pub(super) fn new(machines: Machines, program: PathBuf) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let program = std::path::absolute(program).expect("a path");
        let [control, key] = ["control-1", "administrator.key"].map(|name| folder.path().join(name));
        Sites { machines, program, folder, processes: BTreeMap::new(), control, key }
    }

    /// The program, on a machine.
    pub(super) fn sidestep(&self, machine: usize, words: &[&str]) -> Command {
        let mut command = self.machines.command(machine, &self.program).expect("a machine");
        command.args(words).current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    /// What the program says on a machine, to both outputs, if it succeeds.
    pub(super) fn run(&self, machine: usize, words: &[&str]) -> Result<String, String> {
        let output = self.sidestep(machine, words).output().expect("a program that starts");
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        if output.status.success() { Ok(said) } else { Err(said) }
    }

    /// Something that the administrator does, on machine 1.
    pub(super) fn administer(&self, words: &[&str]) -> String {
        let folder = self.control.display().to_string();
        self.run(1, &[&["control"], words, &["--dir", &folder]].concat()).expect("what it does")
    }

    /// Something that the administrator signs.
    pub(super) fn sign(&self, words: &[&str]) -> String {
        let key = self.key.display().to_string();
        self.administer(&[words, &["--yes", "--key", &key]].concat())
    }

    /// Starts something that lasts.
    pub(super) fn start(&mut self, machine: usize, name: &'static str, words: &[&str]) {
        let mut command = self.sidestep(machine, words);
        let process = Process::start(&mut command, &self.log(machine, name)).expect("a program that starts");
        self.processes.insert((machine, name), process);
    }

    /// What was started, if it still runs.
    pub(super) fn process(&mut self, machine: usize, name: &'static str) -> Option<&mut Process> {
        self.processes.get_mut(&(machine, name))
    }

    /// Ends something as a crash does.
    pub(super) fn kill(&mut self, machine: usize, name: &'static str) {
        self.processes.remove(&(machine, name)).expect("what was started").kill();
    }

    pub(super) fn log(&self, machine: usize, name: &str) -> PathBuf {
        self.folder.path().join(format!("{machine}-{name}.log"))
    }

    /// A site applies with an invitation, and waits.
    pub(super) fn enroll(&mut self, site: usize, invitation: &str) {
        let prefix = lab::machines::hop_prefix(site);
        self.start(site, "enroll", &["enroll", invitation, "--hop-prefix", &prefix]);
    }

    /// Gateway and agent of a site, once it is let in.
    pub(super) fn begin(&mut self, site: usize) {
        let log = self.log(site, "enroll");
        wait_until(&format!("site {site} is let in"), || {
            std::fs::read_to_string(&log).is_ok_and(|text| text.contains("is a site of the fleet now"))
        });
        self.start(site, "gateway", &["up", &format!("/etc/sidestep/{TUNNEL}.toml")]);
        self.start(site, "agent", &["agent", TUNNEL]);
    }

    /// What a site's agent keeps.
    pub(super) fn folder_of_agent(&self, site: usize) -> PathBuf {
        self.machines.folder(site).join("lib/sidestep-agent").join(TUNNEL)
    }

    /// The peers that it has written.
    pub(super) fn peers(&self, site: usize) -> PathBuf {
        self.folder_of_agent(site).join("peers.toml")
    }

    /// The configuration of a site.
    pub(super) fn configuration(&self, site: usize) -> PathBuf {
        self.machines.folder(site).join("etc").join(format!("{TUNNEL}.toml"))
    }

    pub(super) fn events(&self, site: usize) -> Vec<Value> {
        let said = self.run(site, &["events", "--json"]).unwrap_or_default();
        said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    pub(super) fn reaches(&self, from: usize, to: usize) -> bool {
        let mut ping = self.machines.command(from, Path::new("ping")).expect("a machine");
        ping.args(["-n", "-c", "1", "-W", "1", &inside(to)]).stdout(Stdio::null()).stderr(Stdio::null());
        ping.status().expect("ping").success()
    }

    /// Waits until each of these reaches each other one; all try at once.
    pub(super) fn wait_until_all_reach(&self, from: &[usize], to: &[usize]) {
        std::thread::scope(|scope| {
            for &one in from {
                scope.spawn(move || {
                    for &other in to.iter().filter(|other| **other != one) {
                        wait_until(&format!("site {one} reaches {other}"), || self.reaches(one, other));
                    }
                });
            }
        });
    }

    /// Pings so often in a second, for so long.
    pub(super) fn ping(&self, from: usize, to: usize, rate: u32, length: Duration) -> Pings {
        let name = format!("ping-{from}-{to}");
        let mut ping = self.machines.command(from, Path::new("ping")).expect("a machine");
        let interval = format!("{:.3}", 1.0 / f64::from(rate));
        let count = (length.as_secs() * u64::from(rate)).to_string();
        let text = File::create(self.folder.path().join(&name)).expect("a file");
        ping.args(["-n", "-D", "-i", &interval, "-c", &count, "-W", "3", &inside(to)]);
        let ping = ping.stdin(Stdio::null()).stdout(text).stderr(Stdio::null()).spawn().expect("ping");
        Pings { name, ping, rate }
    }

    /// Waits for its end: how many were sent, and how many of them were not answered. Those of the last second do not count: on a
    /// busy machine ping does not wait for them.
    pub(super) fn count(&self, mut pings: Pings) -> (u64, u64) {
        pings.ping.wait().expect("ping");
        let text = std::fs::read_to_string(self.folder.path().join(&pings.name)).expect("what ping said");
        let sent =
            text.lines().find_map(|line| line.split_once(" packets transmitted")?.0.parse::<u64>().ok());
        let sent = sent.expect("how many it has sent").saturating_sub(u64::from(pings.rate));
        let number = |line: &str| line.split_once("icmp_seq=")?.1.split(' ').next()?.parse::<u64>().ok();
        let mut last = 0;
        let mut answered = BTreeSet::new();
        for number in text.lines().filter(|line| line.contains(" bytes from ")).filter_map(number) {
            // They have 16 bits, and begin again within an hour; answers come about in their order.
            let rounds = (last + HALF).saturating_sub(number) >> 16;
            let number = (rounds << 16) + number;
            last = last.max(number);
            answered.insert(number);
        }
        (sent, sent - answered.range(..=sent).count() as u64)
    }
}

impl Drop for Sites {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (machine, name) in self.processes.keys() {
                let log = tail(&self.log(*machine, name));
                // The first sites tell most, and hundreds nothing more.
                if *machine <= 8 {
                    eprintln!("{machine} {name}:\n{log}");
                }
            }
        }
        for (_, process) in std::mem::take(&mut self.processes) {
            process.signal(nix::sys::signal::Signal::SIGTERM);
        }
        let _ = self.machines.remove();
    }
}
