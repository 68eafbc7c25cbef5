//! `sidestep-lab experiment t1`, `t2`, `t3`: the plan that an IPv6 gateway was measured with in 2006, repeated: native
//! router, native firewall, IPv6-in-IPv4 tunnel. `gateway` is all three, and `nat64` measures
//! NAT64 and CLAT in the same way.
//!
//! | file | what it is |
//! |---|---|
//! | `subject` | the parts of the plan, what each compares, and the tests that it makes |
//! | `scene` | hosts and gateways |
//! | `rules` | the paper's artificial rule set, as two lists and as ours |
//! | `contenders` | who can take part here |
//! | `test`, `measure`, `latency` | the single tests, and what they do |
//! | `results`, `sections`, `paper`, `page` | what they say, beside what was published |
//!
//! All that a part compares is there at the same time, in namespaces of its own, and only one of it works: each test is
//! made of one after the other before the next test, in both IP versions, and all of that is repeated. Ratios are taken
//! within a repetition.

mod contenders;
mod latency;
mod measure;
mod page;
mod paper;
mod results;
mod rules;
mod scene;
mod sections;
mod subject;
mod test;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use crate::comparison::docs::between;
use crate::comparison::{INTERRUPTED, machine, version};
use crate::experiment::options::ExperimentOptions;
use crate::experiment::plan::Experiment;
use crate::experiment::run::Labs;
use crate::experiment::scene::Outcome;
use crate::experiment::store::{Measurement, Settings, Store};
use crate::experiment::tables;
use lab::Error;
use measure::Lengths;
use results::{Cell, place};
use scene::GatewayScene;
use subject::{Part, Subject};
use test::{Family, ROUNDS, Test};

/// The parts that an experiment is made of; none, if it is of another plan.
pub(super) fn parts(experiment: Experiment) -> Vec<Part> {
    match experiment {
        Experiment::T1 => vec![Part::T1],
        Experiment::T2 => vec![Part::T2],
        Experiment::T3 => vec![Part::T3],
        Experiment::Gateway => Part::PAPER.to_vec(),
        Experiment::Nat64 => vec![Part::Nat64],
        _ => Vec::new(),
    }
}

/// Makes what has not been made yet of these parts, and the report of all that there is.
///
/// # Errors
/// As [`super::run`].
pub(super) fn run(
    options: &ExperimentOptions,
    parts: &[Part],
    program: &Path,
    stop: &Arc<AtomicBool>,
) -> Result<ExitCode, Error> {
    if options.topology.is_some() || options.duration.is_some() {
        return Err(Error::Usage(
            "t1, t2, t3, gateway and nat64 have no --topology and no --duration".into(),
        ));
    }
    let seconds = options.seconds.unwrap_or(if options.full { 10 } else { 1 });
    let (experiment, directory, marker) = match parts {
        [Part::Nat64] => (Experiment::Nat64, "report/nat64", "nat64"),
        // The parts share a directory, and repetitions may be added.
        _ => (Experiment::Gateway, "report/gateway", "gateway"),
    };
    let (contenders, left_out) = match experiment {
        Experiment::Nat64 => contenders::of_translation(&options.prefix)?,
        _ => contenders::of_paper(&options.prefix)?,
    };
    for asked in &options.against {
        if let Some(absence) = left_out.iter().find(|absence| absence.what == *asked) {
            return Err(Error::Usage(format!("--against {asked}: {}", absence.why)));
        }
        if !contenders.iter().any(|entry| entry.name == *asked) {
            let names: Vec<&str> = contenders.iter().map(|entry| entry.name.as_str()).collect();
            return Err(Error::Usage(format!(
                "--against {asked}: there is no such contender; there are {}",
                names.join(", ")
            )));
        }
    }
    let settings = Settings {
        experiment,
        topology: None,
        runs: None,
        full: options.full,
        quick: options.quick,
        duration_s: u64::from(seconds),
        contenders,
        left_out,
        version: version(program),
        machine: machine("all machines"),
    };
    let store = Store::open(&options.out(directory), settings)?;
    for absence in &store.settings.left_out {
        eprintln!("{} is left out: {}", absence.what, absence.why);
    }
    let runs = options.runs.unwrap_or(match (options.full, options.quick) {
        (true, _) => 10,
        (_, true) => 1,
        _ => 3,
    });
    let labs = Labs { program, prefix: &options.prefix, stop };
    let lengths = Lengths::of(seconds, options.quick);
    let mut plan = Plan { store, labs, lengths, runs, against: &options.against };
    let made = parts.iter().try_for_each(|part| plan.make(*part));
    // Whatever ended it: what was measured is shown.
    let failed = write(options, &plan.store, marker)?;
    made?;
    if plan.labs.stopped() {
        eprintln!("interrupted: the same command goes on from here");
        return Ok(INTERRUPTED.into());
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What is to be measured, and how.
struct Plan<'a> {
    store: Store,
    labs: Labs<'a>,
    lengths: Lengths,
    runs: u32,
    against: &'a [String],
}

impl Plan<'_> {
    /// Makes all measurements of a part that are missing.
    fn make(&mut self, part: Part) -> Result<(), Error> {
        let subjects: Vec<Subject> = part
            .subjects(self.store.settings.quick)
            .into_iter()
            .filter(|one| self.takes_part(*one))
            .collect();
        let wanted: Vec<(u32, Cell)> = self.cells(part, &subjects);
        let missing = |(run, cell): &&(u32, Cell)| !self.store.has_key(&key(cell, *run));
        let left: Vec<(u32, Cell)> = wanted.iter().filter(missing).copied().collect();
        let mut scenes = Vec::new();
        for (number, subject) in subjects.iter().enumerate() {
            if !left.iter().any(|(_, cell)| cell.subject == *subject) {
                continue;
            }
            if self.labs.stopped() {
                return Ok(());
            }
            if let Some(scene) = self.start(part, *subject, number)? {
                scenes.push((*subject, scene));
            }
        }
        let total = wanted.len();
        let mut done = total - left.len();
        for (run, cell) in left {
            let Some((_, scene)) = scenes.iter().find(|(subject, _)| *subject == cell.subject) else {
                continue;
            };
            let begun = Instant::now();
            let outcome = cell.test.run(scene, cell.family, self.lengths, &self.labs);
            // What was under way was cut short.
            if self.labs.stopped() {
                return Ok(());
            }
            done += 1;
            eprintln!("[{done:>3} of {total}] {:<42} {}", key(&cell, run), said(cell.test, &outcome));
            self.store.keep(key(&cell, run), Measurement::of(&place(&cell), run, begun, outcome))?;
        }
        Ok(())
    }

    fn takes_part(&self, subject: Subject) -> bool {
        let name = subject.contender();
        let there = self.store.settings.contenders.iter().any(|entry| entry.name == name);
        there && (self.against.is_empty() || self.against.iter().any(|asked| asked == name))
    }

    /// All measurements of a part in their order. In each round another subject and the other IP version is the first one.
    fn cells(&self, part: Part, subjects: &[Subject]) -> Vec<(u32, Cell)> {
        let quick = self.store.settings.quick;
        let mut subjects = subjects.to_vec();
        let mut tests: Vec<Test> = Vec::new();
        for test in subjects.iter().flat_map(|subject| part.tests(*subject, quick)) {
            if !tests.contains(&test) && test.is_possible() {
                tests.push(test);
            }
        }
        let mut cells = Vec::new();
        let rounds = if quick { 1 } else { self.runs * ROUNDS };
        for run in 1..=rounds {
            for test in tests.iter().copied().filter(|test| test.is_in(run)) {
                for subject in subjects.iter().copied() {
                    if !part.tests(subject, quick).contains(&test) {
                        continue;
                    }
                    let mut families: Vec<Family> = subject.families().to_vec();
                    if run % 2 == 0 {
                        families.reverse();
                    }
                    cells.extend(
                        families.into_iter().map(|family| (run, Cell { part, subject, family, test })),
                    );
                }
            }
            if !subjects.is_empty() {
                subjects.rotate_left(1);
            }
        }
        cells
    }

    /// Starts what is to be measured; what does not start is kept as failed.
    fn start(&mut self, part: Part, subject: Subject, number: usize) -> Result<Option<GatewayScene>, Error> {
        let begun = Instant::now();
        let prefix = format!("{}{}{number}", self.labs.prefix, part.name());
        let started = GatewayScene::start(&prefix, subject, self.labs.program);
        if self.labs.stopped() {
            return Ok(None);
        }
        let name = format!("{}-{}", part.name(), subject.name());
        let (scene, outcome) = match started {
            Ok(scene) => (Some(scene), Ok(Outcome::default())),
            Err(error) => (None, Err(error)),
        };
        if let Err(error) = &outcome {
            eprintln!("{name} does not start: {error}");
        }
        let at = results::start(&name);
        self.store.keep(format!("{name}-start"), Measurement::of(&at, 1, begun, outcome))?;
        Ok(scene)
    }
}

/// What the name of a measurement's file is.
fn key(cell: &Cell, run: u32) -> String {
    let at = place(cell);
    format!("{}-{}-{run}", at.contender, at.test)
}

fn said(test: Test, outcome: &Result<Outcome, Error>) -> String {
    let (name, unit) = test.value();
    match outcome {
        Ok(outcome) => outcome
            .values
            .get(name)
            .map_or_else(|| "nothing came through".to_owned(), |value| format!("{value:.1} {unit}")),
        Err(error) => format!("failed: {error}"),
    }
}

/// Writes and prints all that there is. Whether something failed.
fn write(options: &ExperimentOptions, store: &Store, marker: &str) -> Result<bool, Error> {
    let path = store.directory().join("index.html");
    std::fs::write(&path, page::page(store)).map_err(|source| Error::file(&path, source))?;
    if let Some(docs) = &options.docs {
        between(marker, &page::markdown(store), docs)?;
    }
    let mut out = std::io::stdout().lock();
    // A reader that goes away has what it wanted.
    for table in sections::sections(store).iter().flat_map(|section| &section.tables) {
        let _ = writeln!(out, "\n{}", table.text().trim_end());
    }
    let failures = tables::failures(store);
    for failure in &failures {
        let _ = writeln!(out, "\nFailed: {failure}");
    }
    let _ = writeln!(out, "\nReport: {}", path.display());
    Ok(!failures.is_empty())
}
