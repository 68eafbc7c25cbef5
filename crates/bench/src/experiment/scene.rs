//! What a test works with.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use lab::Error;
use lab::Lab;
use lab::process::{Process, tail};
use lab::topology::Node;
use lab::traffic::start_fresh;

/// A running contender's lab.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExperimentScene<'a> {
    pub(crate) lab: &'a Lab,
    /// The published lengths.
    pub(crate) full: bool,
    /// Set by an interruption.
    pub(crate) stop: &'a AtomicBool,
}

/// What a test came to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) values: BTreeMap<String, f64>,
    pub(crate) raw: Value,
}

impl Outcome {
    pub(crate) fn new<const N: usize>(values: [(&str, f64); N], raw: impl Into<Value>) -> Self {
        // JSON has no infinities; what cannot be said is left out.
        let values = values.into_iter().filter(|(_, value)| value.is_finite());
        Self { values: values.map(|(name, value)| (name.to_owned(), value)).collect(), raw: raw.into() }
    }
}

impl ExperimentScene<'_> {
    /// Whether it is to end early.
    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// A command on a machine.
    ///
    /// # Errors
    /// When the lab has no such machine.
    pub(crate) fn command(&self, node: Node, words: &[&str]) -> Result<Command, Error> {
        let (program, arguments) =
            words.split_first().ok_or_else(|| Error::Usage("no command given".into()))?;
        let mut command = self.lab.command(node, program)?;
        command.args(arguments);
        Ok(command)
    }

    /// Starts a command whose output is read when it has ended.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn start(&self, node: Node, words: &[&str], log: &str) -> Result<Process, Error> {
        start_fresh(self.command(node, words)?, &self.lab.directory().join(format!("{log}.log")))
    }

    /// Runs a command to its end, and returns all it printed. After `limit`, or when the run is interrupted, it gets an
    /// interrupt too, upon which ping and curl still say how far they came.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn run(
        &self,
        node: Node,
        words: &[&str],
        log: &str,
        limit: Duration,
    ) -> Result<String, Error> {
        let mut process = self.start(node, words, log)?;
        let path = process.log().to_owned();
        let deadline = Instant::now() + limit;
        while process.wait(Duration::from_millis(100)).is_none() {
            if self.stopped() || Instant::now() > deadline {
                process.signal(Signal::SIGINT);
                process.wait(Duration::from_secs(2));
                break;
            }
        }
        process.stop(Duration::from_secs(1));
        std::fs::read_to_string(&path).map_err(|source| Error::file(path, source))
    }

    /// Sleeps, unless it is to end early.
    pub(crate) fn sleep(&self, time: Duration) {
        let deadline = Instant::now() + time;
        while !self.stopped() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(Duration::from_millis(100)));
        }
    }
}

/// The error for a program that printed something else than expected.
pub(crate) fn not_understood(program: &str, said: &str) -> Error {
    Error::output(program, if said.trim().is_empty() { "it printed nothing" } else { said.trim() })
}

/// The end of a process's log, for an error.
pub(crate) fn log_of(process: &Process) -> String {
    tail(process.log())
}
