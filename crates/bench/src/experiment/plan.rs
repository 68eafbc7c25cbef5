//! What is measured: the tests, and which experiment makes which of them of whom, between which gateways, how often.
//!
//! An experiment is a set of [`Task`]s. That of `all` is the union of the others', so that what two of them need is measured
//! once.

use std::collections::BTreeSet;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use lab::topology::Topology;

/// How much faster than in the published tests time runs, unless `--full` is given: intervals of rotation and of pings are
/// so much shorter. With that the classic profile, which counts whole seconds, still has an interval for the papers' 5 s.
pub(crate) const HASTE: u32 = 5;

/// The papers' rotation intervals, seconds; `None` does not rotate.
const ROTATIONS: [Option<u32>; 5] = [Some(10), Some(5), Some(15), Some(30), None];

/// The one that everything else is measured at.
pub(crate) const USUAL: Option<u32> = Some(10);

/// Sizes of downloads, bytes. The papers' units are taken as powers of ten.
pub(crate) const FILES: [u64; 6] = [500_000, 1_000_000, 10_000_000, 50_000_000, 500_000_000, 1_000_000_000];

/// Sizes of UDP transfers, bytes.
pub(crate) const TRANSFERS: [u64; 3] = [1_000_000, 10_000_000, 100_000_000];

/// What `sidestep-lab experiment` can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Experiment {
    /// Everything below as far as `soak`, once
    All,
    /// 1,000 pings, one a second (scaled: 32, five a second)
    #[value(name = "ping_std_1k")]
    PingStd1k,
    /// 10,000 pings as fast as they come back
    #[value(name = "ping_flood_10k")]
    PingFlood10k,
    /// 50,000 pings as fast as they come back
    #[value(name = "ping_flood_50k")]
    PingFlood50k,
    /// Downloads of 500 kB to 1 GB from nginx
    Http,
    /// iperf3's UDP, 1 to 100 MB: jitter and loss
    Udp,
    /// Rotation every 5, 10, 15 and 30 s, and none
    Rotation,
    /// The same subnet, different subnets, a 6in4 tunnel in between
    Topologies,
    /// Processor time, private memory and the kernel's part of each gateway, under pings
    Host,
    /// Calls with G.711 and Opus: delay, jitter, loss, estimated quality
    Voip,
    /// A video stream of 720p: stalls
    Video,
    /// A long run with a plain ping: losses, growth, what is left over
    Soak,
    /// Floods of 50,000 over rotations of 10 s and 1 s, both profiles, routing and transparent gateways (not part of `all`)
    Loss,
    /// The gateway as a router: TCP's window, sizes of frames, IPv6 beside IPv4
    T1,
    /// The gateway as a firewall: up to 10,000 rules, beside the same as lists in ip6tables and nftables
    T2,
    /// The gateway's IPv6-in-IPv4 tunnel beside native forwarding and a tunnel in user space
    T3,
    /// `t1`, `t2` and `t3`
    Gateway,
    /// The gateway's NAT64 and CLAT beside forwarding and masquerading
    Nat64,
}

impl Experiment {
    /// Its name on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// One test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Test {
    PingStd,
    /// So many echoes.
    PingFlood(u32),
    /// So many bytes, with curl.
    Http(u64),
    /// So many bytes, with wget.
    Wget(u64),
    /// So many bytes.
    Udp(u64),
    Voip,
    Video,
}

impl Test {
    /// Its name, like those of the thesis (Table 4.1); also part of a file's name.
    pub(crate) fn name(self) -> String {
        match self {
            Self::PingStd => "ping_std_1k".into(),
            Self::PingFlood(count) => format!("ping_flood_{}k", count / 1000),
            Self::Http(bytes) => format!("http_{}", size(bytes, "")),
            Self::Wget(bytes) => format!("wget_{}", size(bytes, "")),
            Self::Udp(bytes) => format!("iperf_{}", size(bytes, "")),
            Self::Voip => "voip".into(),
            Self::Video => "video".into(),
        }
    }

    /// About how long it takes, seconds, for the estimate of the time that is left.
    fn seconds(self, full: bool) -> f64 {
        match (self, full) {
            (Self::PingStd, true) => 1_000.0,
            (Self::PingStd, false) => 6.5,
            (Self::PingFlood(count), _) => f64::from(count) / 1e4,
            (Self::Http(bytes) | Self::Wget(bytes), true) => 1.0 + bytes as f64 / 20e6,
            (Self::Http(bytes) | Self::Wget(bytes), false) => 0.5 + (bytes as f64 / 1e8).min(2.0),
            (Self::Udp(bytes), _) => 0.5 + bytes as f64 / 2.5e6,
            (Self::Voip, true) => 120.0,
            (Self::Video, true) => 597.0,
            (Self::Voip, false) => 7.0,
            (Self::Video, false) => 6.0,
        }
    }
}

/// A size as the papers write it: `500k`, `10M`, `1G`, with a unit behind.
pub(crate) fn size(bytes: u64, unit: &str) -> String {
    let (number, prefix) = match bytes {
        0..1_000_000 => (bytes / 1_000, "k"),
        1_000_000..1_000_000_000 => (bytes / 1_000_000, "M"),
        _ => (bytes / 1_000_000_000, "G"),
    };
    let space = if unit.is_empty() { "" } else { " " };
    format!("{number}{space}{prefix}{unit}")
}

/// One measurement to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) topology: Topology,
    /// In the papers' seconds.
    pub(crate) rotation: Option<u32>,
    /// From 1.
    pub(crate) run: u32,
    /// Its name.
    pub(crate) contender: &'static str,
    pub(crate) test: Test,
}

impl Task {
    /// What the name of its file is.
    pub(crate) fn key(&self) -> String {
        let Self { run, contender, test, .. } = self;
        format!("{}-{contender}-{}-{run}", self.setting(), test.name())
    }

    /// Where, and at which rotation.
    pub(crate) fn setting(&self) -> String {
        format!("{}-{}", name_of(self.topology), rotation_name(self.rotation))
    }

    /// About how long it takes, seconds.
    pub(crate) fn seconds(&self, full: bool) -> f64 {
        self.test.seconds(full)
    }

    /// What one start of a contender serves: consecutive tasks that agree in this.
    pub(crate) fn block(&self) -> (Topology, Option<u32>, u32, &'static str) {
        (self.topology, self.rotation, self.run, self.contender)
    }
}

/// A topology's name on the command line.
pub(crate) fn name_of(topology: Topology) -> String {
    topology.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

fn rotation_name(rotation: Option<u32>) -> String {
    rotation.map_or("still".into(), |seconds| format!("r{seconds}"))
}

/// The rotation interval as a configuration has it.
pub(crate) fn rotation(papers: Option<u32>, full: bool) -> String {
    match papers {
        Some(seconds) if full => format!("{seconds}s"),
        Some(seconds) => format!("{}s", (seconds / HASTE).max(1)),
        None => "1h".into(),
    }
}

/// What a run is made of.
#[derive(Clone, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) experiment: Experiment,
    /// The only topology, if one was asked for.
    pub(crate) topology: Option<Topology>,
    pub(crate) runs: Option<u32>,
    pub(crate) full: bool,
    /// Who takes part, and whether it rotates.
    pub(crate) contenders: &'a [(&'static str, bool)],
    /// Whether wget is there.
    pub(crate) wget: bool,
}

/// All tasks in the order in which they are made: contenders take turns within a run, so that what slows the machine down
/// for a while meets more than one of them.
pub(crate) fn tasks(wanted: &Wanted) -> Vec<Task> {
    let experiments: Vec<Experiment> = match wanted.experiment {
        Experiment::All => Experiment::value_variants().to_vec(),
        one => vec![one],
    };
    let mut seen = BTreeSet::new();
    let mut tasks: Vec<Task> = experiments
        .into_iter()
        .flat_map(|experiment| of(experiment, wanted))
        .filter(|task| seen.insert(task.key()))
        .collect();
    let place = |name: &str| wanted.contenders.iter().position(|(one, _)| *one == name);
    tasks.sort_by_key(|task| {
        let rotation = ROTATIONS.iter().position(|one| *one == task.rotation);
        (task.topology as u8, rotation, task.run, place(task.contender), task.test)
    });
    tasks
}

/// The tasks of a single experiment.
fn of(experiment: Experiment, wanted: &Wanted) -> Vec<Task> {
    let full = wanted.full;
    let floods = [Test::PingFlood(10_000), Test::PingFlood(50_000)];
    let tests = match experiment {
        Experiment::All
        | Experiment::Soak
        | Experiment::Loss
        | Experiment::T1
        | Experiment::T2
        | Experiment::T3
        | Experiment::Gateway
        | Experiment::Nat64 => Vec::new(),
        Experiment::PingStd1k => vec![Test::PingStd],
        Experiment::PingFlood10k => vec![floods[0]],
        Experiment::PingFlood50k => vec![floods[1]],
        Experiment::Http => {
            // The largest would say what the last but one has said.
            let files = &FILES[..if full { FILES.len() } else { FILES.len() - 1 }];
            let wget = wanted.wget.then_some(Test::Wget(10_000_000));
            files.iter().map(|bytes| Test::Http(*bytes)).chain(wget).collect()
        }
        Experiment::Udp => {
            let transfers = &TRANSFERS[..if full { TRANSFERS.len() } else { TRANSFERS.len() - 1 }];
            transfers.iter().map(|bytes| Test::Udp(*bytes)).collect()
        }
        Experiment::Rotation => vec![Test::PingStd, floods[0], Test::Http(10_000_000)],
        Experiment::Topologies => {
            vec![Test::PingStd, floods[0], Test::Http(10_000_000), Test::Http(50_000_000)]
        }
        Experiment::Host => vec![Test::PingStd, floods[1]],
        Experiment::Voip => vec![Test::Voip],
        Experiment::Video => vec![Test::Video],
    };
    let rotations = if experiment == Experiment::Rotation { &ROTATIONS[..] } else { &[USUAL] };
    let topologies: &[Topology] = match (experiment, &wanted.topology) {
        (_, Some(only)) => std::slice::from_ref(only),
        (Experiment::Topologies, None) => &Topology::ALL,
        (_, None) => &[Topology::Routed],
    };
    // What compares many settings gets by with fewer runs.
    let usual = match (experiment, full) {
        (_, true) => 10,
        (Experiment::Rotation | Experiment::Topologies, false) => 2,
        (_, false) => 3,
    };
    let mut tasks = Vec::new();
    for topology in topologies {
        for rotation in rotations {
            for (contender, rotates) in wanted.contenders {
                if experiment == Experiment::Rotation && !rotates {
                    continue;
                }
                for run in 1..=wanted.runs.unwrap_or(usual) {
                    tasks.extend(tests.iter().map(|test| Task {
                        topology: *topology,
                        rotation: *rotation,
                        run,
                        contender,
                        test: *test,
                    }));
                }
            }
        }
    }
    tasks
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTENDERS: [(&str, bool); 2] = [("none", false), ("sidestep", true)];

    fn wanted(experiment: Experiment) -> Wanted<'static> {
        Wanted { experiment, topology: None, runs: None, full: false, contenders: &CONTENDERS, wget: false }
    }

    #[test]
    fn everything_has_what_each_has_and_nothing_twice() {
        let all: Vec<String> = tasks(&wanted(Experiment::All)).iter().map(Task::key).collect();
        for experiment in Experiment::value_variants() {
            for task in tasks(&wanted(*experiment)) {
                assert_eq!(all.iter().filter(|key| **key == task.key()).count(), 1, "{}", task.key());
            }
        }
    }

    #[test]
    fn contenders_take_turns_within_a_run() {
        let tasks = tasks(&wanted(Experiment::Host));
        let turns: Vec<(u32, &str)> = tasks.iter().map(|task| (task.run, task.contender)).collect();
        assert_eq!(turns[..4], [(1, "none"), (1, "none"), (1, "sidestep"), (1, "sidestep")]);
        assert_eq!(tasks[0].key(), "routed-r10-none-ping_std_1k-1");
    }

    #[test]
    fn only_what_rotates_is_measured_at_other_intervals() {
        let tasks = tasks(&wanted(Experiment::Rotation));
        assert!(tasks.iter().all(|task| task.contender == "sidestep"));
        assert!(tasks.iter().any(|task| task.key() == "routed-still-sidestep-ping_std_1k-2"));
    }

    #[test]
    fn a_full_run_is_the_papers() {
        let full = Wanted { full: true, ..wanted(Experiment::Http) };
        let tasks = tasks(&full);
        assert!(tasks.iter().any(|task| task.key() == "routed-r10-sidestep-http_1G-10"));
        assert_eq!((rotation(Some(5), true), rotation(Some(5), false)), ("5s".into(), "1s".into()));
    }

    #[test]
    fn sizes_are_written_as_in_the_papers() {
        assert_eq!(
            [500_000, 10_000_000, 1_000_000_000].map(|bytes| size(bytes, "B")),
            ["500 kB", "10 MB", "1 GB"]
        );
    }
}
