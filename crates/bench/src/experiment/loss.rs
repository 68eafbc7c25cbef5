//! Whether moving loses packets: floods of pings over several rotations, between gateways of each kind, connected in each
//! way, for both profiles.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::comparison::results::Entry;
use crate::experiment::plan::{name_of, rotation};
use crate::experiment::run::Labs;
use crate::experiment::scene::{ExperimentScene, Outcome, not_understood};
use crate::experiment::store::{Measurement, Place, Store};
use lab::Error;
use lab::Lab;
use lab::command::text;
use lab::echoes::ping_report;
use lab::topology::{Node, Site, Topology};
use lab::{Gateways, Profile};

/// The name of this test.
pub(crate) const NAME: &str = "loss";

/// The rotation intervals, in the papers' seconds.
pub(crate) const ROTATIONS: [u32; 2] = [10, 1];

/// Pings of one flood, and unless `--full` is given.
const PUBLISHED: u32 = 50_000;
const SCALED: u32 = 5_000;

/// Floods follow each other until so many rotations were seen.
const LEAST_ROTATIONS: u64 = 3;

/// What one flood may take: all lost, at 100 a second, and some patience.
const LIMIT: Duration = Duration::from_secs(600);

/// What a gateway tells of packets that its kernel carries is up to a second old.
const COUNTED: Duration = Duration::from_millis(1_500);

/// Who takes part: name, what the gateways are, and what they speak.
const WHO: [(&str, Gateways, Profile); 4] = [
    ("sidestep", Gateways::Routing, Profile::MovingTarget),
    ("sidestep-transparent", Gateways::Transparent, Profile::MovingTarget),
    ("classic", Gateways::Routing, Profile::Classic),
    ("classic-transparent", Gateways::Transparent, Profile::Classic),
];

/// Their names, and what they are.
pub(crate) fn contenders() -> Vec<Entry> {
    let about = |(name, gateways, profile): (&str, Gateways, Profile)| {
        let gateways = match gateways {
            Gateways::Routing => "routing gateways",
            Gateways::Transparent => "transparent gateways",
        };
        let profile = match profile {
            Profile::MovingTarget => "the moving-target protocol",
            Profile::Classic => "the classic profile, AES-256-CBC",
        };
        Entry { name: name.into(), about: format!("{profile}, {gateways}") }
    };
    WHO.map(about).into()
}

/// One cell of the matrix.
#[derive(Clone, Copy)]
struct Cell<'a> {
    topology: Topology,
    rotation: u32,
    run: u32,
    who: &'a (&'static str, Gateways, Profile),
}

impl Cell<'_> {
    fn key(&self) -> String {
        format!("{NAME}-{}-r{}-{}-{}", name_of(self.topology), self.rotation, self.who.0, self.run)
    }
}

/// Makes all measurements that are missing.
///
/// # Errors
/// When the store cannot be written. A measurement that fails is kept as failed.
pub(crate) fn run(store: &mut Store, labs: &Labs) -> Result<(), Error> {
    let settings = store.settings.clone();
    let topologies = settings.topology.map_or_else(|| Topology::ALL.to_vec(), |only| vec![only]);
    let there = |name: &str| settings.contenders.iter().any(|entry| entry.name == name);
    let mut cells = Vec::new();
    for run in 1..=settings.runs.unwrap_or(1) {
        for topology in topologies.iter().copied() {
            for rotation in ROTATIONS {
                let who = WHO.iter().filter(|(name, ..)| there(name));
                cells.extend(who.map(|who| Cell { topology, rotation, run, who }));
            }
        }
    }
    for (number, cell) in cells.iter().enumerate() {
        if labs.stopped() {
            return Ok(());
        }
        if store.has_key(&cell.key()) {
            continue;
        }
        let begun = Instant::now();
        let outcome = measure(cell, labs, settings.full);
        // What was under way was cut short.
        if labs.stopped() {
            return Ok(());
        }
        eprintln!("[{:>2} of {}] {:<36} {}", number + 1, cells.len(), cell.key(), said(&outcome));
        store.keep(cell.key(), Measurement::of(&place(cell), cell.run, begun, outcome))?;
    }
    Ok(())
}

fn said(outcome: &Result<Outcome, Error>) -> String {
    match outcome {
        Ok(Outcome { values, .. }) => {
            let value = |name: &str| values.get(name).copied().unwrap_or(0.0);
            format!("{} of {} lost, {} rotations", value("lost"), value("sent"), value("rotations"))
        }
        Err(error) => format!("failed: {error}"),
    }
}

fn place(cell: &Cell) -> Place<'static> {
    Place {
        topology: cell.topology,
        rotation: Some(cell.rotation),
        contender: cell.who.0.into(),
        test: NAME.to_owned(),
    }
}

/// Floods from host A to host B, until there were enough pings and rotations.
fn measure(cell: &Cell, labs: &Labs, full: bool) -> Result<Outcome, Error> {
    let (_, gateways, profile) = *cell.who;
    let builder = labs.builder(0, cell.topology).gateways(gateways).profile(profile);
    let mut lab = builder.rotation(&rotation(Some(cell.rotation), full)).build()?;
    lab.start()?;
    let scene = ExperimentScene { lab: &lab, full, stop: labs.stop };
    let (target, count) = (lab.host(Site::B).to_string(), if full { PUBLISHED } else { SCALED }.to_string());
    let words = ["ping", "-6", "-n", "-q", "-f", "-s", "56", "-W", "3", "-c", &count, &target];
    let (before, dropped) = (Counted::of(&lab)?, backlog_drops());
    let (mut sent, mut lost, mut max_ms, mut reports) = (0, 0, 0.0_f64, Vec::new());
    let seen = loop {
        let said = scene.run(Node::HostA, &words, "ping", LIMIT)?;
        let report = ping_report(&said).ok_or_else(|| not_understood("ping", &said))?;
        sent += report.sent;
        lost += report.sent.saturating_sub(report.received);
        max_ms = max_ms.max(report.max_ms);
        reports.push(said);
        let seen = Counted::of(&lab)?.rotations.saturating_sub(before.rotations);
        if seen >= LEAST_ROTATIONS || scene.stopped() {
            break seen;
        }
    };
    scene.sleep(COUNTED);
    let through = Counted::of(&lab)?.packets.saturating_sub(before.packets);
    // With another way between the hosts it would say nothing.
    if through < sent {
        return Err(Error::output(
            "the gateways' counters",
            format!("of {sent} pings at most {through} went through the tunnel"),
        ));
    }
    let shown = [lab.show(Site::A)?, lab.show(Site::B)?];
    // Who of the two hosts has seen what, and what this machine's queues between namespaces had no room for.
    let mut hosts = Vec::new();
    for site in [Site::A, Site::B] {
        hosts.push(text(&lab.exec(site.host_node(), ["cat", "/proc/net/snmp6"])?));
    }
    let backlog = backlog_drops().saturating_sub(dropped);
    Ok(Outcome::new(
        [
            ("sent", sent as f64),
            ("lost", lost as f64),
            ("loss_percent", 100.0 * lost as f64 / sent as f64),
            ("max_ms", max_ms),
            ("rotations", seen as f64),
            ("backlog_drops", backlog as f64),
        ],
        json!({ "ping": reports, "show": shown, "hosts": hosts }),
    ))
}

/// Packets that found a processor's queue full, of all namespaces of this machine: links between namespaces (veth) share
/// it, so that a flood in another lab can lose packets of this one.
fn backlog_drops() -> u64 {
    let text = std::fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default();
    let dropped = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    text.lines().filter_map(dropped).sum()
}

/// What gateway A says.
struct Counted {
    rotations: u64,
    /// Inner packets from host A.
    packets: u64,
}

impl Counted {
    fn of(lab: &Lab) -> Result<Self, Error> {
        let show = lab.show(Site::A)?;
        let number = |name: &str| {
            let number = show["peers"][0][name].as_u64();
            number.ok_or_else(|| Error::output("sidestep show", format!("no {name}: {show}")))
        };
        Ok(Self { rotations: number("rotations")?, packets: number("tx_packets")? })
    }
}
