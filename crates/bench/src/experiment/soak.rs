//! The long run: all contenders side by side, each in a lab of its own, rotating, with a plain ping between its hosts.
//!
//! An interrupted one goes on as a further part: gateways begin anew with it, and the parts' counts are added up.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::comparison::running::Running;
use crate::comparison::tables::time;
use crate::experiment::contenders::{self, CONTENDERS};
use crate::experiment::plan::{HASTE, USUAL, rotation};
use crate::experiment::process_usage::private_bytes;
use crate::experiment::run::Labs;
use crate::experiment::scene::{ExperimentScene, Outcome, not_understood};
use crate::experiment::store::{Measurement, Store, unix_seconds};
use lab::Error;
use lab::Lab;
use lab::command::{check, text};
use lab::echoes::ping_report;
use lab::process::Process;
use lab::topology::{Node, Site, Topology};

/// The name of this test.
pub(crate) const NAME: &str = "soak";

/// How often memory is looked at in each part.
const LOOKS: u32 = 30;

/// A part that ended sooner is not worth keeping.
const LEAST: Duration = Duration::from_secs(5);

/// How often the progress is told.
const TOLD: Duration = Duration::from_secs(10);

/// How long the last answers are waited for.
const LAST_ANSWERS: Duration = Duration::from_secs(6);

/// Closing what a contender had open.
const SETTLE: Duration = Duration::from_millis(500);

/// What a gateway's namespace holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Holdings {
    pub(crate) addresses: usize,
    pub(crate) routes: usize,
    pub(crate) sockets: usize,
    /// Lines of packet filters.
    pub(crate) rules: usize,
}

/// One contender on its long run.
struct Runner {
    name: &'static str,
    running: Running,
    pings: Process,
    before: [Holdings; 2],
    begun: Holdings,
    /// Seconds, private megabytes of gateway A, its open files.
    looks: Vec<(f64, f64, usize)>,
}

/// Runs what is missing of it.
///
/// # Errors
/// When the store cannot be written. A contender that fails is kept as failed.
pub(crate) fn run(store: &mut Store, labs: &Labs) -> Result<(), Error> {
    let topology = store.settings.topology.unwrap_or_default();
    // All of a part ran for the same time, but for those that failed, which are not waited for.
    let of =
        |name: &str| parts(store).filter(|part| part.contender == name).map(|part| part.took_s).sum::<f64>();
    let done = contenders(store).into_iter().map(of).fold(0.0, f64::max);
    // The last look at the clock of a part is a little before its end.
    let left = store.settings.duration_s as f64 - done;
    if left < 1.0 || labs.stopped() {
        return Ok(());
    }
    let left = Duration::from_secs_f64(left);
    let part = parts(store).map(|part| part.run).max().unwrap_or(0) + 1;
    eprintln!("the long run, part {part}: {} with all contenders side by side", time(left.as_secs_f64()));
    let mut runners = Vec::new();
    for (number, name) in contenders(store).into_iter().enumerate() {
        match Runner::start(name, labs, (number, topology), left, store.settings.full) {
            Ok(runner) => runners.push(runner),
            Err(_) if labs.stopped() => return Ok(()),
            Err(error) => {
                eprintln!("{name}: {error}");
                keep(store, name, part, left, Err(error))?;
            }
        }
    }
    let begun = Instant::now();
    let pause = (left / LOOKS).clamp(Duration::from_secs(1), Duration::from_secs(3_600));
    let (mut next, mut told) = (Duration::ZERO, TOLD);
    while begun.elapsed() < left && !labs.stopped() {
        if begun.elapsed() >= next {
            next += pause;
            for runner in &mut runners {
                runner.look(begun.elapsed());
            }
        }
        if begun.elapsed() >= told {
            told += pause.max(TOLD);
            eprintln!(
                "the long run: {} of {}",
                time(begun.elapsed().as_secs_f64()),
                time(left.as_secs_f64())
            );
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    let took = begun.elapsed().min(left);
    for runner in runners {
        let name = runner.name;
        let outcome = runner.finish(took, labs, store.settings.full);
        if took >= LEAST || took == left {
            keep(store, name, part, took, outcome)?;
        }
    }
    Ok(())
}

/// The parts that there are of it, of all contenders.
fn parts(store: &Store) -> impl Iterator<Item = &Measurement> {
    store.all().filter(|one| one.test == NAME && one.failed.is_none())
}

fn contenders(store: &Store) -> Vec<&'static str> {
    let entries = &store.settings.contenders;
    CONTENDERS
        .iter()
        .map(|(name, ..)| *name)
        .filter(|name| entries.iter().any(|entry| entry.name == *name))
        .collect()
}

fn keep(
    store: &mut Store,
    name: &str,
    part: u32,
    took: Duration,
    outcome: Result<Outcome, Error>,
) -> Result<(), Error> {
    let (values, raw, failed) = match outcome {
        Ok(outcome) => (outcome.values, outcome.raw, None),
        Err(error) => (Default::default(), Value::Null, Some(error.to_string())),
    };
    let topology = store.settings.topology.unwrap_or_default();
    let measurement = Measurement {
        topology,
        rotation: USUAL,
        contender: name.to_owned(),
        test: NAME.to_owned(),
        run: part,
        began: unix_seconds().saturating_sub(took.as_secs()),
        took_s: took.as_secs_f64(),
        values,
        failed,
        raw,
    };
    store.keep(format!("{NAME}-{name}-{part}"), measurement)
}

impl Runner {
    fn start(
        name: &'static str,
        labs: &Labs,
        (number, topology): (usize, Topology),
        time: Duration,
        full: bool,
    ) -> Result<Self, Error> {
        let one = contenders::named(name, USUAL, full)
            .ok_or_else(|| Error::Usage(format!("there is no contender {name}")))?;
        let lab = one.lab(labs.builder(number, topology).rotation(&rotation(USUAL, full))).build()?;
        let [a, b] = [Site::A, Site::B].map(|site| holdings(&lab, site));
        let before = [a?, b?];
        let running = Running::launch(one, lab)?;
        let begun = holdings(&running.lab, Site::A)?;
        let scene = ExperimentScene { lab: &running.lab, full, stop: labs.stop };
        let interval = 1.0 / f64::from(if full { 1 } else { HASTE });
        let count = (time.as_secs_f64() / interval).ceil().to_string();
        let (interval, target) = (interval.to_string(), Site::B.host().to_string());
        let words = ["ping", "-6", "-n", "-q", "-s", "56", "-W", "3", "-i", &interval, "-c", &count, &target];
        let pings = scene.start(Node::HostA, &words, "soak")?;
        Ok(Self { name, running, pings, before, begun, looks: Vec::new() })
    }

    fn look(&mut self, at: Duration) {
        let Some([id, _]) = self.running.contender.processes(&mut self.running.lab) else { return };
        let files = std::fs::read_dir(format!("/proc/{id}/fd")).map_or(0, Iterator::count);
        // One that has ended has none; its losses tell.
        if let Ok(bytes) = private_bytes(id) {
            self.looks.push((at.as_secs_f64(), bytes as f64 / 1e6, files));
        }
    }

    /// Takes stock, ends the contender, and looks at what it left.
    fn finish(mut self, took: Duration, labs: &Labs, full: bool) -> Result<Outcome, Error> {
        self.look(took);
        let log = self.pings.log().to_owned();
        // It ends by itself, unless the whole run ends early; interrupted, it prints its summary too.
        if !labs.stopped() {
            self.pings.wait(LAST_ANSWERS);
        }
        self.pings.signal(nix::sys::signal::Signal::SIGINT);
        self.pings.wait(Duration::from_secs(2));
        self.pings.stop(Duration::from_secs(1));
        let said = std::fs::read_to_string(&log).map_err(|source| Error::file(log, source))?;
        let report = ping_report(&said).ok_or_else(|| not_understood("ping", &said))?;
        let counted = counted(&self.running.lab);
        let at_end = holdings(&self.running.lab, Site::A)?;
        self.running.contender.stop(&mut self.running.lab);
        std::thread::sleep(SETTLE);
        let [a, b] = [Site::A, Site::B].map(|site| holdings(&self.running.lab, site));
        let after = [a?, b?];
        let left = |of: fn(&Holdings) -> usize| {
            let pairs = self.before.iter().zip(&after);
            pairs.map(|(before, after)| of(after) as f64 - of(before) as f64).sum::<f64>()
        };
        let interval = rotation(USUAL, full).trim_end_matches('s').parse::<f64>().unwrap_or(f64::NAN);
        let rotates = CONTENDERS.iter().any(|(name, _, rotates)| *name == self.name && *rotates);
        let by_the_clock = if rotates { (took.as_secs_f64() / interval).floor() } else { f64::NAN };
        let memory = |look: Option<&(f64, f64, usize)>| look.map_or(f64::NAN, |(_, memory, _)| *memory);
        let files = |look: Option<&(f64, f64, usize)>| look.map_or(f64::NAN, |(_, _, files)| *files as f64);
        let (sent, received) = (report.sent as f64, report.received as f64);
        // The last one may still be under way.
        let lost = if labs.stopped() { (sent - received - 1.0).max(0.0) } else { sent - received };
        Ok(Outcome::new(
            [
                ("rotations", counted.unwrap_or(by_the_clock)),
                ("sent", sent),
                ("lost", lost),
                ("avg_ms", report.avg_ms),
                ("max_ms", report.max_ms),
                ("private_mb_begin", memory(self.looks.first())),
                ("private_mb_end", memory(self.looks.last())),
                ("files_begin", files(self.looks.first())),
                ("files_end", files(self.looks.last())),
                ("addresses_grown", at_end.addresses as f64 - self.begun.addresses as f64),
                ("routes_grown", at_end.routes as f64 - self.begun.routes as f64),
                ("sockets_grown", at_end.sockets as f64 - self.begun.sockets as f64),
                ("addresses_left", left(|one| one.addresses)),
                ("routes_left", left(|one| one.routes)),
                ("sockets_left", left(|one| one.sockets)),
                ("rules_left", left(|one| one.rules)),
            ],
            json!({ "ping": said, "looks": self.looks, "before": self.before, "after": after }),
        ))
    }
}

/// The rotations that gateway A has counted itself, where it counts.
fn counted(lab: &Lab) -> Option<f64> {
    let show = if lab.has_tunnel() { lab.show(Site::A).ok()? } else { shown_by_classic(lab)? };
    show["peers"][0]["rotations"].as_f64()
}

fn shown_by_classic(lab: &Lab) -> Option<Value> {
    let socket = lab.directory().join("classic-a.sock");
    let output =
        check(std::process::Command::new(lab.program()).args(["show", "--json", "--socket"]).arg(socket));
    serde_json::from_slice(&output.ok()?.stdout).ok()
}

/// But for those that keep a tunnel closed when it has ended.
fn routes(lab: &Lab, site: Site) -> Result<usize, Error> {
    let output = lab.exec(site.gateway(), ["ip", "-6", "route", "show", "table", "all"])?;
    let closes = |line: &&str| ["unreachable ", "blackhole "].iter().any(|kind| line.starts_with(kind));
    Ok(text(&output).lines().filter(|line| !closes(line)).count())
}

/// Likewise, but for the table that does so.
fn rules(lab: &Lab, site: Site) -> Result<usize, Error> {
    let output = lab.exec(site.gateway(), ["nft", "list", "ruleset"])?;
    let text = text(&output);
    let closes = |table: &str| table.lines().next().is_some_and(|line| line.ends_with("-outside {"));
    // Each table begins a line with its name, and ends one with a brace alone.
    Ok(text.split("\n}\n").filter(|table| !closes(table)).map(|table| table.lines().count()).sum())
}

fn holdings(lab: &Lab, site: Site) -> Result<Holdings, Error> {
    let lines = |words: &[&str]| {
        let output = lab.exec(site.gateway(), words)?;
        Ok::<_, Error>(text(&output).lines().count())
    };
    // Each of the kernel's tables has a line of names.
    let sockets =
        ["tcp", "tcp6", "udp", "udp6", "raw", "raw6", "packet"].map(|table| format!("/proc/net/{table}"));
    let cat: Vec<&str> = std::iter::once("cat").chain(sockets.iter().map(String::as_str)).collect();
    Ok(Holdings {
        addresses: lines(&["ip", "-6", "-o", "address"])?,
        routes: routes(lab, site)?,
        sockets: lines(&cat)?.saturating_sub(sockets.len()),
        rules: rules(lab, site)?,
    })
}
