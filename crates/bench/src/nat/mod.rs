//! `sidestep-lab nat`: what a packet script costs where packets are forwarded. `examples/scripts/nat.lua` in both tiers,
//! beside plain forwarding, the kernel's own NAT, and what the user tier is made of: a queue and a verdict.
//!
//! | file | what it is |
//! |---|---|
//! | `contender` | what carries the packets |
//! | `scene` | two hosts and the router between them |
//! | `queue` | a queue and a verdict, without Lua |
//! | `packets` | how many small packets are carried in a second |
//!
//! It is measured as in [`crate::comparison`]: each measurement is made of all contenders before the next one, all of that is
//! repeated, and ratios and differences are taken within a repetition.

mod contender;
pub(crate) mod packets;
mod scene;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;

use crate::comparison::contender::NONE;
use crate::comparison::docs::between;
use crate::comparison::measure::{Lengths, Measurement, Value};
use crate::comparison::results::{Absence, Entry, Results};
use crate::comparison::run::record;
use crate::comparison::tables::{self, Table};
use crate::comparison::{INTERRUPTED, machine, quantile, version};
use contender::NatContender;
use lab::Error;
use lab::topology::Site;
use scene::{Family, NatScene};

/// Kinds of measurements, as `--only` has them.
const KINDS: [&str; 4] = ["tcp", "packets", "udp", "ping"];

/// What is measured, and where it goes.
#[derive(Clone, Debug, Args)]
pub struct NatOptions {
    /// Of which IP version
    #[arg(long, value_enum, default_value_t)]
    family: Family,
    /// Only these measurements
    #[arg(long, value_delimiter = ',', value_name = "KINDS", value_parser = KINDS)]
    only: Vec<String>,
    /// Only these, beside plain forwarding [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    against: Vec<NatContender>,
    /// How often everything is measured
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    repetitions: u32,
    /// Seconds of TCP per measurement
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// No segmentation, receive and checksum offload on any interface: each packet is carried by itself
    #[arg(long)]
    no_offloads: bool,
    /// Write all values to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Put the tables into this Markdown page, between `<!-- nat-ipv6:begin -->` and `<!-- nat-ipv6:end -->`, or ipv4
    #[arg(long, value_name = "FILE")]
    docs: Option<PathBuf>,
    /// What the names of the namespaces begin with
    #[arg(long, default_value = "nat")]
    prefix: String,
}

/// What one measurement is.
#[derive(Clone, Copy, Debug)]
enum NatMeasurement {
    /// One of the tunnels' comparison.
    Between(Measurement),
    /// Small packets, as fast as they go.
    Packets,
}

impl NatMeasurement {
    const ALL: [Self; 5] = [
        Self::Between(Measurement::Tcp { flows: 1, from: Site::A }),
        Self::Between(Measurement::Tcp { flows: 8, from: Site::A }),
        Self::Packets,
        Self::Between(Measurement::Udp { size: packets::SIZE, batched: false }),
        Self::Between(Measurement::Flood),
    ];

    fn kind(self) -> &'static str {
        match self {
            Self::Between(measurement) => measurement.kind(),
            Self::Packets => "packets",
        }
    }

    fn title(self) -> String {
        match self {
            Self::Between(measurement) => measurement.title(),
            Self::Packets => "small packets".to_owned(),
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Between(measurement) => measurement.unit(),
            Self::Packets => "thousand/s",
        }
    }

    fn run(self, scene: &NatScene, lengths: Lengths, results: &Results) -> Result<Vec<Value>, Error> {
        match self {
            Self::Between(measurement) => {
                let known = results.best(scene.contender.name(), &measurement.key());
                measurement.run(scene, None, lengths, known)
            }
            Self::Packets => {
                let carried = packets::carried(scene, false, packets::SIZE, packets::COUNT)?;
                Ok(vec![(packets::KEY.to_owned(), carried / 1e3, false)])
            }
        }
    }
}

/// Runs the comparison.
///
/// # Errors
/// When the hosts cannot be made, a contender does not start, or the results cannot be written.
pub fn run(options: &NatOptions, program: &Path, stop: &Arc<AtomicBool>) -> Result<ExitCode, Error> {
    let begun = Instant::now();
    let lengths =
        Lengths { tcp: options.seconds, trial: Duration::from_millis(300), echoes: 10_000 * options.seconds };
    let mut results = Results {
        version: version(program),
        machine: machine("all three machines"),
        settings: settings(options),
        bases: vec![NONE.to_owned(), NatContender::Nftables.name().to_owned()],
        ..Results::default()
    };
    let wanted = |one: &NatContender| {
        options.against.is_empty() || *one == NatContender::Forwarding || options.against.contains(one)
    };
    let mut scenes = Vec::new();
    for (number, contender) in NatContender::ALL.into_iter().filter(wanted).enumerate() {
        let prefix = format!("{}{number}", options.prefix);
        scenes.push(NatScene::start(&prefix, contender, options.family, !options.no_offloads, program)?);
        let (name, about) = (contender.name().to_owned(), contender.about().to_owned());
        results.contenders.push(Entry { name, about });
    }
    measure(options, lengths, &mut scenes, &mut results, stop);
    drop(scenes);
    results.minutes = begun.elapsed().as_secs_f64() / 60.0;
    show(options, &results)?;
    Ok(match results.interrupted {
        Some(_) => INTERRUPTED.into(),
        None if results.failures.is_empty() => ExitCode::SUCCESS,
        None => ExitCode::FAILURE,
    })
}

fn settings(options: &NatOptions) -> String {
    format!(
        "{}; {} repetitions, {} s of TCP, {} small packets, {} flooded echoes{}",
        options.family.name(),
        options.repetitions,
        options.seconds,
        packets::COUNT,
        10_000 * options.seconds,
        if options.no_offloads { "; no offloads on any interface" } else { "" }
    )
}

/// All repetitions of all measurements, or as far as it comes.
fn measure(
    options: &NatOptions,
    lengths: Lengths,
    scenes: &mut [NatScene],
    results: &mut Results,
    stop: &AtomicBool,
) {
    let wanted = |what: &NatMeasurement| {
        options.only.is_empty() || options.only.iter().any(|only| only == what.kind())
    };
    let all: Vec<NatMeasurement> = NatMeasurement::ALL.into_iter().filter(wanted).collect();
    let total = all.len() * scenes.len() * options.repetitions as usize;
    let mut done = 0;
    for repetition in 1..=options.repetitions {
        // What a machine has left depends on what it did a moment ago, so each of them is once the first.
        if repetition > 1 {
            scenes.rotate_left(1);
        }
        for what in &all {
            for scene in &*scenes {
                let measured = what.run(scene, lengths, results);
                if stop.load(Ordering::Relaxed) {
                    results.interrupted = Some(format!("{done} of {total} measurements were made"));
                    return;
                }
                let name = scene.contender.name();
                let outcome = record(name, &what.title(), what.unit(), repetition, measured, results);
                done += 1;
                eprintln!("[{done:>3} of {total}] {repetition}: {name:<14} {:<20} {outcome}", what.title());
            }
        }
    }
}

/// Prints the results, and writes them where they are asked for.
fn show(options: &NatOptions, results: &Results) -> Result<(), Error> {
    let mut tables = tables::all(results);
    tables.extend(added(results));
    let mut out = std::io::stdout().lock();
    for table in &tables {
        // A reader that goes away has what it wanted.
        let _ = writeln!(out, "\n{}", table.text().trim_end());
    }
    for Absence { what, why } in &results.failures {
        let _ = writeln!(out, "\nNot measured: {what}: {why}");
    }
    if let Some(path) = &options.json {
        let json =
            serde_json::to_vec_pretty(results).map_err(|error| Error::output("measurements", error))?;
        std::fs::write(path, json).map_err(|source| Error::file(path, source))?;
    }
    if let Some(path) = &options.docs {
        let mut text =
            format!("Sidestep {}. {}. {}.\n\n", results.version, results.machine, results.settings);
        text.push_str("| contender | what it is |\n|---|---|\n");
        for Entry { name, about } in &results.contenders {
            text.push_str(&format!("| {name} | {about} |\n"));
        }
        text.push('\n');
        tables.iter().for_each(|table| text.push_str(&table.markdown()));
        between(&format!("nat-{}", options.family.name()), &text, path)?;
    }
    Ok(())
}

/// What each adds to a flooded echo.
fn added(results: &Results) -> Option<Table> {
    let difference = |name: &str| {
        let differences: Vec<f64> = (1..=100)
            .filter_map(|repetition| {
                let [own, base] = [name, NONE].map(|name| results.value(name, "flood_p50", repetition));
                Some(own? - base?)
            })
            .collect();
        Some((quantile(&differences, 0.5)?, quantile(&differences, 0.0)?, quantile(&differences, 1.0)?))
    };
    let row = |entry: &Entry| {
        let (median, least, most) = difference(&entry.name)?;
        Some(vec![entry.name.clone(), format!("{median:.1} ({least:.1}–{most:.1})")])
    };
    let rows: Vec<Vec<String>> =
        results.contenders.iter().filter(|entry| entry.name != NONE).filter_map(row).collect();
    (!rows.is_empty()).then(|| Table {
        title: "Added to a flooded echo, µs".to_owned(),
        how: "Of the medians of each repetition, to and fro together. Median (lowest–highest).".to_owned(),
        header: ["contender", "p50"].map(str::to_owned).to_vec(),
        rows,
    })
}
