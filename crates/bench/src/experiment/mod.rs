//! `sidestep-lab experiment`: the test plan that MT6D was measured with, repeated, and the published results beside ours.
//!
//! | file | what it is |
//! |---|---|
//! | `options`, `contenders` | what the command is told, and who takes part |
//! | `plan` | the tests, and which experiment makes which |
//! | `run` | who is measured when; progress |
//! | `store` | the directory of a run, and how one that stopped goes on |
//! | `scene` | what a test works with: the lab, and patience that an interruption ends |
//! | `ping`, `http`, `nginx`, `udp`, `voip`, `emodel`, `video` | the single tests |
//! | `process_usage` | what a gateway's process costs meanwhile |
//! | `soak` | the long run |
//! | `loss` | floods between gateways of each kind |
//! | `gateway` | another plan: the gateway as router, firewall and tunnel |
//! | `papers` | the published values, each with its table or figure |
//! | `tables`, `topics`, `markdown`, `page` | how all that is shown |
//!
//! A contender is started anew for each run, as in the thesis, and alone: nothing else rotates meanwhile. Only the long run
//! has all of them side by side.

mod contenders;
mod emodel;
mod gateway;
mod http;
mod loss;
mod markdown;
pub(crate) mod nginx;
mod options;
mod page;
mod papers;
mod ping;
mod plan;
mod process_usage;
mod run;
mod scene;
mod soak;
mod store;
mod tables;
mod topics;
mod udp;
mod video;
mod voip;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::comparison::results::{Absence, Entry};
use crate::comparison::{INTERRUPTED, docs, machine, version};
use contenders::CONTENDERS;
use lab::Error;
use lab::command::find;
pub use options::ExperimentOptions;
pub use plan::Experiment;
use plan::{Task, Test, USUAL, Wanted};
use store::{Settings, Store};

/// How long the long run is within `all`, and alone if nothing is said.
const SOAK: Duration = Duration::from_secs(60);

/// Makes what has not been made yet, and the report of all that there is.
///
/// # Errors
/// When a program or a contender that was asked for is not there, when the directory holds a run with other settings, or
/// when it cannot be written.
pub fn run(options: &ExperimentOptions, program: &Path, stop: &Arc<AtomicBool>) -> Result<ExitCode, Error> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Error::NotRoot);
    }
    let parts = gateway::parts(options.name);
    if !parts.is_empty() {
        return gateway::run(options, &parts, program, stop);
    }
    if options.quick || options.seconds.is_some() {
        return Err(Error::Usage("--quick and --seconds are for t1, t2, t3, gateway and nat64".into()));
    }
    let (entries, left_out) = taking_part(options)?;
    let settings = Settings {
        experiment: options.name,
        topology: options.topology,
        runs: options.runs,
        full: options.full,
        quick: false,
        duration_s: options.duration.unwrap_or(SOAK).as_secs(),
        contenders: entries,
        left_out,
        version: version(program),
        machine: machine("all five machines"),
    };
    let tasks = tasks(&settings);
    programs_are_there(&tasks)?;
    let mut store = Store::open(&options.out("report/experiments"), settings)?;
    for absence in &store.settings.left_out {
        eprintln!("{} is left out: {}", absence.what, absence.why);
    }
    let lab = run::Labs { program, prefix: &options.prefix, stop };
    let made = run::all(&mut store, &tasks, &lab);
    let made = made
        .and_then(|()| if options.name == Experiment::Loss { loss::run(&mut store, &lab) } else { Ok(()) });
    let soaks = matches!(options.name, Experiment::Soak | Experiment::All);
    let made = made.and_then(|()| if soaks { soak::run(&mut store, &lab) } else { Ok(()) });
    // Whatever ended it: what was measured is shown.
    write(options, &store)?;
    made?;
    if stop.load(Ordering::Relaxed) {
        eprintln!("interrupted: the same command goes on from here");
        return Ok(INTERRUPTED.into());
    }
    let failed = store.all().any(|one| one.failed.is_some());
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The tasks of a run with these settings.
fn tasks(settings: &Settings) -> Vec<Task> {
    let there = |name: &str| settings.contenders.iter().any(|entry| entry.name == name);
    let taking_part: Vec<(&'static str, bool)> = CONTENDERS
        .iter()
        .filter(|(name, ..)| there(name))
        .map(|(name, _, rotates)| (*name, *rotates))
        .collect();
    plan::tasks(&Wanted {
        experiment: settings.experiment,
        topology: settings.topology,
        runs: settings.runs,
        full: settings.full,
        contenders: &taking_part,
        wget: find("wget").is_some(),
    })
}

/// Who takes part, and who does not, with the reason.
fn taking_part(options: &ExperimentOptions) -> Result<(Vec<Entry>, Vec<Absence>), Error> {
    let matrix = if options.name == Experiment::Loss { loss::contenders() } else { Vec::new() };
    let names: Vec<&str> = match matrix.as_slice() {
        [] => CONTENDERS.iter().map(|(name, ..)| *name).collect(),
        matrix => matrix.iter().map(|entry| entry.name.as_str()).collect(),
    };
    if let Some(unknown) = options.against.iter().find(|name| !names.contains(&name.as_str())) {
        let names = names.join(", ");
        return Err(Error::Usage(format!(
            "--against {unknown}: there is no such contender; there are {names}"
        )));
    }
    if !matrix.is_empty() {
        let asked = |entry: &Entry| options.against.is_empty() || options.against.contains(&entry.name);
        return Ok((matrix.into_iter().filter(asked).collect(), Vec::new()));
    }
    let (mut entries, mut left_out) = (Vec::new(), Vec::new());
    for name in names {
        let asked = options.against.iter().any(|one| one == name);
        let Some(one) =
            contenders::named(name, USUAL, options.full).filter(|_| asked || options.against.is_empty())
        else {
            continue;
        };
        match one.missing() {
            Some(why) if asked => return Err(Error::Usage(format!("--against {name}: {why}"))),
            Some(why) => left_out.push(Absence { what: name.to_owned(), why }),
            None => entries.push(Entry { name: name.to_owned(), about: one.about() }),
        }
    }
    if entries.is_empty() {
        return Err(Error::Usage("nobody is left to be measured: see --against".into()));
    }
    Ok((entries, left_out))
}

/// Refuses to begin what would fail for want of a program.
fn programs_are_there(tasks: &[Task]) -> Result<(), Error> {
    let needs = |test: fn(&Test) -> bool| tasks.iter().any(|task| test(&task.test));
    let downloads = needs(|test| matches!(test, Test::Http(_) | Test::Wget(_) | Test::Video));
    let udp = needs(|test| matches!(test, Test::Udp(_)));
    let wanted = [
        (downloads, "nginx", "serves the downloads"),
        (downloads, "curl", "fetches them"),
        (udp, "iperf3", "sends UDP"),
    ];
    for (_, program, does) in wanted.into_iter().filter(|(needed, ..)| *needed) {
        if find(program).is_none() {
            return Err(Error::Usage(format!(
                "`{program}` is not installed; it {does}. On Debian: apt install {program}; or scripts/setup \
                 experiments, which sees to it that no service is started"
            )));
        }
    }
    Ok(())
}

fn write(options: &ExperimentOptions, store: &Store) -> Result<(), Error> {
    let path = store.directory().join("index.html");
    std::fs::write(&path, page::page(store)).map_err(|source| Error::file(&path, source))?;
    if let Some(docs) = &options.docs {
        let place = if options.name == Experiment::Loss { "loss" } else { "experiments" };
        docs::between(place, &markdown::page(store), docs)?;
    }
    // A reader that goes away has what it wanted.
    let _ = print(store, &path);
    Ok(())
}

fn print(store: &Store, report: &Path) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for table in markdown::tables(store) {
        writeln!(out, "\n{}", table.text().trim_end())?;
    }
    for one in store.all() {
        if let Some(why) = &one.failed {
            let lab = plan::name_of(one.topology);
            writeln!(out, "\nFailed: {}, {}, run {}, {lab}: {why}", one.contender, one.test, one.run)?;
        }
    }
    writeln!(out, "\nReport: {}", report.display())
}
