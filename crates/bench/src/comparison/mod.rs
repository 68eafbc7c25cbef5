//! `sidestep-lab bench`: Sidestep beside no tunnel and other tunnels, in the same routed lab on the same machine.
//!
//! | file | what it is |
//! |---|---|
//! | `contender`, `choice` | what a contender is; which there are |
//! | `options` | what the command is told |
//! | `sidestep`, `wireguard`, `kernel_wireguard`, `openvpn` | one kind each: a new kind is one more such file |
//! | `masked` | WireGuard whose packets Sidestep masks |
//! | `measure`, `search` | the single measurements |
//! | `peers` | one gateway with thousands of peers |
//! | `running` | a contender that runs, and nothing else between the hosts |
//! | `run` | who is measured when |
//! | `results`, `statistics` | the values, and what they say together |
//! | `tables`, `page`, `docs` | how they are shown |
//!
//! Measurements alternate: each is made of all contenders before the next one, and all of that is repeated. So a change
//! of the machine's speed meets all of them, and medians and ratios within a repetition are compared.

pub(crate) mod choice;
mod classic;
pub(crate) mod contender;
pub(crate) mod docs;
mod kernel_wireguard;
pub(crate) mod masked;
pub(crate) mod measure;
mod openvpn;
mod options;
pub(crate) mod page;
mod peers;
pub(crate) mod results;
pub(crate) mod run;
pub(crate) mod running;
pub(crate) mod search;
pub(crate) mod sidestep;
pub(crate) mod statistics;
pub(crate) mod tables;
mod wireguard;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lab::Error;
use lab::command::{check, text};
pub use options::BenchOptions;
use results::Results;
pub(crate) use statistics::quantile;

/// Exit status of a run that was interrupted, as a shell has it for SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;

/// Waits; false if it was told to stop.
pub(crate) fn wait(time: Duration, stop: &AtomicBool) -> bool {
    let end = Instant::now() + time;
    while Instant::now() < end && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(50));
    }
    !stop.load(Ordering::Relaxed)
}

/// Runs the comparison.
///
/// # Errors
/// When a lab cannot be built, a contender that was asked for is not there, or the results cannot be written.
pub fn run(options: &BenchOptions, program: &Path, stop: &Arc<AtomicBool>) -> Result<ExitCode, Error> {
    let mut results = match &options.from {
        Some(path) => read(path)?,
        None => run::run(options, program, stop)?,
    };
    let interrupted = options.from.is_none() && results.interrupted.is_some();
    if let Some(how_far) = results.interrupted.as_deref().filter(|_| interrupted) {
        eprintln!("interrupted: {how_far}");
        if results.is_empty() {
            return Ok(INTERRUPTED.into());
        }
    }
    if options.from.is_none() {
        results.version = version(program);
        results.machine = machine("all five machines");
    }
    write(options, &results)?;
    // A reader that goes away has what it wanted.
    let _ = print(options, &results);
    Ok(match () {
        () if interrupted => INTERRUPTED.into(),
        () if results.failures.is_empty() => ExitCode::SUCCESS,
        () => ExitCode::FAILURE,
    })
}

fn print(options: &BenchOptions, results: &Results) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for table in tables::all(results) {
        writeln!(out, "\n{}", table.text().trim_end())?;
    }
    if let Some(how_far) = &results.interrupted {
        writeln!(out, "\nInterrupted: {how_far}")?;
    }
    for absence in results.left_out.iter().chain(&results.failures) {
        writeln!(out, "\nNot measured: {}: {}", absence.what, absence.why)?;
    }
    if let Some(directory) = &options.report {
        writeln!(out, "\nReport: {}", directory.join("index.html").display())?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<Results, Error> {
    let text = std::fs::read(path).map_err(|source| Error::file(path, source))?;
    serde_json::from_slice(&text).map_err(|error| Error::output(path.display().to_string(), error))
}

fn write(options: &BenchOptions, results: &Results) -> Result<(), Error> {
    let json = serde_json::to_vec_pretty(results).map_err(|error| Error::output("bench", error))?;
    if let Some(path) = &options.json {
        std::fs::write(path, &json).map_err(|source| Error::file(path, source))?;
    }
    if let Some(directory) = &options.report {
        std::fs::create_dir_all(directory).map_err(|source| Error::file(directory, source))?;
        for (name, bytes) in [("data.json", json), ("index.html", page::page(results).into_bytes())] {
            let path = directory.join(name);
            std::fs::write(&path, bytes).map_err(|source| Error::file(path, source))?;
        }
    }
    options.docs.as_deref().map_or(Ok(()), |path| docs::write(results, &options.mark, path))
}

/// What the program says of its version.
pub(crate) fn version(program: &Path) -> String {
    let said = check(Command::new(program).arg("--version")).map(|output| text(&output)).unwrap_or_default();
    said.split_whitespace().nth(1).unwrap_or("of unknown version").to_owned()
}

/// The machine in a few words, which is all those of a lab.
pub(crate) fn machine(whose: &str) -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let information = read("/proc/cpuinfo");
    let model = information.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split_once(": ")).map_or("unknown processor", |(_, model)| model);
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{model}, {count} processors for {whose}, Linux {}", read("/proc/sys/kernel/osrelease").trim())
}
