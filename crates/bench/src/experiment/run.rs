//! The run: one contender after the other, each started anew for each run, and its measurements one by one.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::comparison::running::Running;
use crate::comparison::tables::time;
use crate::experiment::plan::{Task, Test, rotation};
use crate::experiment::process_usage::Usage;
use crate::experiment::scene::{ExperimentScene, Outcome};
use crate::experiment::store::{Measurement, Place, Store};
use crate::experiment::{contenders, http, ping, udp, video, voip};
use lab::Error;
use lab::topology::Topology;
use lab::{Builder, Lab};

/// About what starting a contender takes, seconds.
const START: f64 = 3.0;

/// How labs are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Labs<'a> {
    pub(crate) program: &'a Path,
    pub(crate) prefix: &'a str,
    pub(crate) stop: &'a AtomicBool,
}

impl Labs<'_> {
    /// The lab of this number.
    pub(crate) fn builder(&self, number: usize, topology: Topology) -> Builder {
        Lab::builder(self.program).prefix(&format!("{}{number}", self.prefix)).topology(topology)
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Makes all measurements that the store does not have yet, or as many as it comes to.
///
/// # Errors
/// When the store cannot be written. A measurement that fails is kept as failed.
pub(crate) fn all(store: &mut Store, tasks: &[Task], labs: &Labs) -> Result<(), Error> {
    let left: Vec<Task> = tasks.iter().filter(|task| !store.has(task)).cloned().collect();
    let done = tasks.len() - left.len();
    if done > 0 {
        eprintln!("{done} of {} measurements are there already", tasks.len());
    }
    let full = store.settings.full;
    let mut progress = Progress::new(&left, done, full);
    for block in left.chunk_by(|one, other| one.block() == other.block()) {
        let Some(first) = block.first() else { continue };
        if labs.stopped() {
            return Ok(());
        }
        let builder = labs.builder(0, first.topology).rotation(&rotation(first.rotation, full));
        let started = contenders::named(first.contender, first.rotation, full)
            .ok_or_else(|| Error::Usage(format!("there is no contender {}", first.contender)))
            .and_then(|one| Running::start(one, builder));
        let mut running = match started {
            Ok(running) => running,
            Err(_) if labs.stopped() => return Ok(()),
            Err(error) => {
                for task in block {
                    progress.done(task, &format!("does not start: {error}"));
                    keep(store, task, Instant::now(), Err(Error::Usage(format!("does not start: {error}"))))?;
                }
                continue;
            }
        };
        for task in block {
            let begun = Instant::now();
            let outcome = measure(&mut running, task, full, labs.stop);
            // What was under way was cut short.
            if labs.stopped() {
                return Ok(());
            }
            progress.done(task, &said(&outcome));
            keep(store, task, begun, outcome)?;
        }
    }
    Ok(())
}

/// One measurement, with what the gateways used meanwhile.
fn measure(running: &mut Running, task: &Task, full: bool, stop: &AtomicBool) -> Result<Outcome, Error> {
    let processes = running.contender.processes(&mut running.lab);
    let before = processes.map(Usage::now).transpose()?;
    let scene = ExperimentScene { lab: &running.lab, full, stop };
    let mut outcome = match task.test {
        Test::PingStd => ping::standard(&scene),
        Test::PingFlood(count) => ping::flood(&scene, count),
        Test::Http(bytes) => http::curl(&scene, bytes),
        Test::Wget(bytes) => http::wget(&scene, bytes),
        Test::Udp(bytes) => udp::transfer(&scene, bytes),
        Test::Voip => voip::calls(&scene),
        Test::Video => video::play(&scene),
    }?;
    if let Some(before) = before {
        outcome.values.extend(before.since()?);
    }
    Ok(outcome)
}

fn keep(
    store: &mut Store,
    task: &Task,
    begun: Instant,
    outcome: Result<Outcome, Error>,
) -> Result<(), Error> {
    let place = Place {
        topology: task.topology,
        rotation: task.rotation,
        contender: task.contender.into(),
        test: task.test.name(),
    };
    let measurement = Measurement::of(&place, task.run, begun, outcome);
    store.keep(task.key(), measurement)
}

/// The value that the progress shows.
fn said(outcome: &Result<Outcome, Error>) -> String {
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => return format!("failed: {error}"),
    };
    let shown = [
        ("avg_ms", "ms"),
        ("loss_percent", "% lost"),
        ("mb_per_s", "MB/s"),
        ("jitter_ms", "ms jitter"),
        ("g711_mos", "MOS"),
        ("g711_loss_percent", "% lost"),
        ("stalls", "stalls"),
    ];
    let parts = shown.iter().filter_map(|(name, unit)| {
        let value = outcome.values.get(*name)?;
        Some(format!("{value:.2} {unit}"))
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// How far it is, and how long it will take: estimates, corrected by what earlier ones really took.
struct Progress {
    done: usize,
    total: usize,
    /// Estimated seconds of each measurement that is ahead, the start of its contender with the first of a block.
    ahead: VecDeque<f64>,
    /// Of all that is behind.
    behind: f64,
    begun: Instant,
}

impl Progress {
    fn new(left: &[Task], done: usize, full: bool) -> Self {
        let blocks = left.chunk_by(|one, other| one.block() == other.block());
        let estimates = blocks.flat_map(|block| {
            let starts = std::iter::once(START).chain(std::iter::repeat(0.0));
            block.iter().zip(starts).map(|(task, start)| task.seconds(full) + start)
        });
        let ahead: VecDeque<f64> = estimates.collect();
        if !left.is_empty() {
            eprintln!("{} measurements, about {}", left.len(), time(ahead.iter().sum()));
        }
        Self { done, total: left.len() + done, ahead, behind: 0.0, begun: Instant::now() }
    }

    fn done(&mut self, task: &Task, outcome: &str) {
        self.done += 1;
        self.behind += self.ahead.pop_front().unwrap_or(0.0);
        let pace = self.begun.elapsed().as_secs_f64() / self.behind.max(0.1);
        eprintln!(
            "[{:>3} of {}, {} left] {:<16} {:<17} {:<14} {outcome}",
            self.done,
            self.total,
            time(self.ahead.iter().sum::<f64>() * pace),
            task.setting(),
            task.contender,
            task.test.name(),
        );
    }
}
