//! A run's directory: its settings, and a file for each measurement, so that an interrupted run can go on.
//!
//! ```text
//! DIR/settings.json      what is measured and where; another run with other settings is refused
//! DIR/raw/KEY.json       one measurement: its values, and what the programs printed
//! DIR/index.html         the report
//! ```

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::comparison::results::{Absence, Entry};
use crate::comparison::statistics::Mean;
use crate::experiment::plan::{Experiment, Task};
use crate::experiment::scene::Outcome;
use lab::Error;
use lab::topology::Topology;

/// What must be the same for a run to go on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) experiment: Experiment,
    pub(crate) topology: Option<Topology>,
    pub(crate) runs: Option<u32>,
    pub(crate) full: bool,
    /// As little as there can be.
    #[serde(default)]
    pub(crate) quick: bool,
    /// Of the long run, or of a TCP flow of the gateway's experiments, seconds.
    pub(crate) duration_s: u64,
    pub(crate) contenders: Vec<Entry>,
    pub(crate) left_out: Vec<Absence>,
    /// Of the program.
    pub(crate) version: String,
    pub(crate) machine: String,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measurement {
    pub(crate) topology: Topology,
    /// In the papers' seconds; nothing for none.
    pub(crate) rotation: Option<u32>,
    pub(crate) contender: String,
    pub(crate) test: String,
    pub(crate) run: u32,
    /// When it began, seconds of Unix time.
    pub(crate) began: u64,
    pub(crate) took_s: f64,
    pub(crate) values: BTreeMap<String, f64>,
    /// Why there are no values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failed: Option<String>,
    /// What the programs said.
    pub(crate) raw: Value,
}

impl Measurement {
    /// One that began then, and came to this.
    pub(crate) fn of(at: &Place, run: u32, begun: Instant, outcome: Result<Outcome, Error>) -> Self {
        let (values, raw, failed) = match outcome {
            Ok(outcome) => (outcome.values, outcome.raw, None),
            Err(error) => (BTreeMap::new(), Value::Null, Some(error.to_string())),
        };
        Self {
            topology: at.topology,
            rotation: at.rotation,
            contender: at.contender.clone().into_owned(),
            test: at.test.clone(),
            run,
            began: unix_seconds().saturating_sub(begun.elapsed().as_secs()),
            took_s: begun.elapsed().as_secs_f64(),
            values,
            failed,
            raw,
        }
    }
}

/// The directory.
#[derive(Debug)]
pub(crate) struct Store {
    directory: PathBuf,
    pub(crate) settings: Settings,
    measurements: BTreeMap<String, Measurement>,
}

impl Store {
    /// Makes the directory of a new run, or takes up one that stopped.
    ///
    /// # Errors
    /// When it holds a run with other settings, or cannot be read or written.
    pub(crate) fn open(directory: &Path, settings: Settings) -> Result<Self, Error> {
        let raw = directory.join("raw");
        std::fs::create_dir_all(&raw).map_err(|source| Error::file(&raw, source))?;
        let path = directory.join("settings.json");
        if path.exists() {
            let found: Settings = read(&path)?;
            let differences = differences(&found, &settings)?;
            if !differences.is_empty() {
                return Err(Error::Usage(format!(
                    "{} holds a run with other settings: {}. Repeat them to go on with it, or give another --out",
                    directory.display(),
                    differences.join("; ")
                )));
            }
        }
        write(&path, &settings)?;
        let mut store = Self { directory: directory.to_owned(), settings, measurements: BTreeMap::new() };
        let entries = std::fs::read_dir(&raw).map_err(|source| Error::file(&raw, source))?;
        for entry in entries {
            let path = entry.map_err(|source| Error::file(&raw, source))?.path();
            // What is being written when the machine fails has another ending.
            let (Some(key), Some("json")) = (
                path.file_stem().and_then(|stem| stem.to_str()),
                path.extension().and_then(|end| end.to_str()),
            ) else {
                continue;
            };
            store.measurements.insert(key.to_owned(), read(&path)?);
        }
        Ok(store)
    }

    /// Where it is.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether a measurement was made. One that failed is to be made again.
    pub(crate) fn has(&self, task: &Task) -> bool {
        self.has_key(&task.key())
    }

    /// The same of one that has no task.
    pub(crate) fn has_key(&self, key: &str) -> bool {
        self.measurements.get(key).is_some_and(|one| one.failed.is_none())
    }

    /// Keeps a measurement.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn keep(&mut self, key: String, measurement: Measurement) -> Result<(), Error> {
        let path = self.directory.join("raw").join(format!("{key}.json"));
        write(&path, &measurement)?;
        self.measurements.insert(key, measurement);
        Ok(())
    }

    /// All measurements, failed ones too.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Measurement> {
        self.measurements.values()
    }

    /// The values of all runs.
    pub(crate) fn values(&self, at: &Place, value: &str) -> Vec<f64> {
        self.at(at).filter_map(|one| one.values.get(value)).copied().collect()
    }

    /// What the runs say of a mean.
    pub(crate) fn mean(&self, at: &Place, value: &str) -> Option<Mean> {
        Mean::of(&self.values(at, value))
    }

    /// The runs of one test.
    pub(crate) fn at<'a>(&'a self, at: &'a Place) -> impl Iterator<Item = &'a Measurement> {
        self.measurements.values().filter(move |one| {
            (one.topology, one.rotation, one.contender.as_str(), one.test.as_str())
                == (at.topology, at.rotation, at.contender.as_ref(), at.test.as_str())
        })
    }
}

/// Seconds of Unix time.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// What the runs of a test have in common.
#[derive(Clone, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) topology: Topology,
    pub(crate) rotation: Option<u32>,
    pub(crate) contender: Cow<'a, str>,
    pub(crate) test: String,
}

/// Which settings differ, and how.
fn differences(found: &Settings, wanted: &Settings) -> Result<Vec<String>, Error> {
    let fields = |settings: &Settings| {
        serde_json::to_value(settings).map_err(|error| Error::output("settings", error))
    };
    let (found, wanted) = (fields(found)?, fields(wanted)?);
    let names = wanted.as_object().into_iter().flatten().map(|(name, _)| name);
    let differ = names.filter(|name| found[name.as_str()] != wanted[name.as_str()]);
    Ok(differ
        .map(|name| format!("{name} {} instead of {}", found[name.as_str()], wanted[name.as_str()]))
        .collect())
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T, Error> {
    let text = std::fs::read(path).map_err(|source| Error::file(path, source))?;
    serde_json::from_slice(&text).map_err(|error| {
        Error::Usage(format!(
            "{}: not one of ours ({error}): remove it to measure that again",
            path.display()
        ))
    })
}

/// Whole or not at all, so that an interruption leaves no half file.
fn write(path: &Path, value: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_vec_pretty(value).map_err(|error| Error::output("JSON", error))?;
    let new = path.with_extension("new");
    let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, path));
    written.map_err(|source| Error::file(path, source))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::experiment::plan::{Test, USUAL};

    pub(crate) fn settings() -> Settings {
        let entry = |name: &str| Entry { name: name.into(), about: "<about>".into() };
        Settings {
            experiment: Experiment::All,
            topology: None,
            runs: Some(2),
            full: false,
            quick: false,
            duration_s: 60,
            contenders: vec![entry("none"), entry("sidestep")],
            left_out: vec![Absence { what: "wireguard-go".into(), why: "not installed".into() }],
            version: "0.0".into(),
            machine: "a machine".into(),
        }
    }

    pub(crate) fn task(contender: &'static str, test: Test, run: u32) -> Task {
        Task { topology: Topology::Routed, rotation: USUAL, run, contender, test }
    }

    pub(crate) fn measurement(task: &Task, values: &[(&str, f64)]) -> Measurement {
        Measurement {
            topology: task.topology,
            rotation: task.rotation,
            contender: task.contender.into(),
            test: task.test.name(),
            run: task.run,
            began: 1,
            took_s: 1.0,
            values: values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            failed: None,
            raw: Value::Null,
        }
    }

    #[test]
    fn a_run_goes_on_where_it_stopped_and_failures_are_tried_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut store = Store::open(directory.path(), settings()).expect("a new run");
        let [done, failed, missing] = [1, 2, 3].map(|run| task("sidestep", Test::PingStd, run));
        store.keep(done.key(), measurement(&done, &[("avg_ms", 1.0)])).expect("written");
        let without = Measurement { failed: Some("no".into()), ..measurement(&failed, &[]) };
        store.keep(failed.key(), without).expect("written");

        let again = Store::open(directory.path(), settings()).expect("the same run");

        assert_eq!([&done, &failed, &missing].map(|task| again.has(task)), [true, false, false]);
        let place = Place {
            topology: Topology::Routed,
            rotation: USUAL,
            contender: "sidestep".into(),
            test: "ping_std_1k".into(),
        };
        assert_eq!(again.values(&place, "avg_ms"), [1.0]);
    }

    #[test]
    fn other_settings_are_refused_and_named() {
        let directory = tempfile::tempdir().expect("a directory");
        Store::open(directory.path(), settings()).expect("a new run");
        let other = Settings { runs: Some(3), ..settings() };
        let error = Store::open(directory.path(), other).expect_err("other settings").to_string();
        assert!(error.contains("runs 2 instead of 3") && error.contains("another --out"), "{error}");
    }

    #[test]
    fn a_broken_file_is_named() {
        let directory = tempfile::tempdir().expect("a directory");
        Store::open(directory.path(), settings()).expect("a new run");
        std::fs::write(directory.path().join("raw/x.json"), "{").expect("written");
        let error = Store::open(directory.path(), settings()).expect_err("half a file").to_string();
        assert!(error.contains("raw/x.json") && error.contains("remove it"), "{error}");
    }
}
