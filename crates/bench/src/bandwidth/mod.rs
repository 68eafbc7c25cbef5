//! `sidestep-lab bench bandwidth`: what `bandwidth` of an uplink does to the latency under load, and what it costs of the
//! throughput (docs/gateway-performance.md, "Latency under load").
//!
//! A host loads the line with four flows in each direction (iperf3), and pings the server meanwhile: without `bandwidth`, with it,
//! and with rates that follow, which do not know what the line carries. One after the other, and all of that again.

mod scene;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use crate::comparison::docs::between;
use crate::comparison::statistics::quantile;
use crate::comparison::tables::{Table, number};
use crate::comparison::{INTERRUPTED, machine, wait};
use lab::Error;
use lab::process::Process;
use lab::traffic::read_round_trips;
use scene::{Line, SERVER, Scene, Shaping};

/// From the beginning of the load to the first ping: TCP has filled the queues.
const SETTLE: Duration = Duration::from_secs(3);
/// The same for rates that follow: they have come near what the line carries.
const FOLLOW: Duration = Duration::from_secs(30);
/// Answers that do not come are waited for.
const LATE: Duration = Duration::from_secs(60);

/// What is measured, and where it goes.
#[derive(Clone, Debug, Args)]
pub struct BandwidthOptions {
    /// What the line carries down, in Mbit/s
    #[arg(long, default_value_t = 20, value_name = "MBITS", value_parser = clap::value_parser!(u32).range(1..=1000))]
    down: u32,
    /// What the line carries up, in Mbit/s
    #[arg(long, default_value_t = 5, value_name = "MBITS", value_parser = clap::value_parser!(u32).range(1..=1000))]
    up: u32,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(2..=600))]
    seconds: u32,
    /// How often everything is measured
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repetitions: u32,
    /// Write all values to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Put the table into this Markdown page, between `<!-- bandwidth:begin -->` and `<!-- bandwidth:end -->`
    #[arg(long, value_name = "FILE")]
    docs: Option<PathBuf>,
    /// What the names of the namespaces begin with
    #[arg(long, default_value = "bandwidth")]
    prefix: String,
}

/// What goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Case {
    Idle,
    Loaded,
    Shaped,
    Following,
}

impl Case {
    const ALL: [Case; 4] = [Case::Idle, Case::Loaded, Case::Shaped, Case::Following];

    /// How the gateway is told of the line.
    fn shaping(self) -> Shaping {
        match self {
            Case::Idle | Case::Loaded => Shaping::None,
            Case::Shaped => Shaping::Fixed,
            Case::Following => Shaping::Follows,
        }
    }

    fn settle(self) -> Duration {
        if self == Case::Following { FOLLOW } else { SETTLE }
    }

    fn title(self) -> &'static str {
        match self {
            Case::Idle => "no load",
            Case::Loaded => "load, without `bandwidth`",
            Case::Shaped => "load, with `bandwidth`",
            Case::Following => "load, with rates that follow",
        }
    }
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
struct Measured {
    case: Case,
    /// Echo requests.
    sent: u64,
    /// Their round trips, milliseconds.
    times_ms: Vec<f64>,
    /// What the receivers got, Mbit/s.
    down: Option<f64>,
    up: Option<f64>,
}

/// Runs the measurements; `program` is `sidestep`.
///
/// # Errors
/// When the scene does not come up, a program says what is not understood, or the results cannot be written.
pub fn run(options: &BandwidthOptions, program: &Path, stop: &Arc<AtomicBool>) -> Result<ExitCode, Error> {
    let line = Line { down: options.down * 1000, up: options.up * 1000 };
    let mut scene = Scene::start(&options.prefix, line, program)?;
    let mut results = Vec::new();
    for _ in 0..options.repetitions {
        for case in Case::ALL {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            scene.work(case.shaping())?;
            let measured = measure(&scene, case, options.seconds, stop)?;
            eprintln!("{}: {}", case.title(), summary(&[&measured]).join(", "));
            results.push(measured);
        }
    }
    let interrupted = stop.load(Ordering::Relaxed);
    show(options, &results, interrupted)?;
    Ok(if interrupted { INTERRUPTED.into() } else { ExitCode::SUCCESS })
}

fn measure(scene: &Scene, case: Case, seconds: u32, stop: &AtomicBool) -> Result<Measured, Error> {
    let mut loads = Vec::new();
    if case != Case::Idle {
        let lasts = (u64::from(seconds) + case.settle().as_secs() + SETTLE.as_secs()).to_string();
        for (port, more, name) in [("5201", &["-R"][..], "down.json"), ("5202", &[], "up.json")] {
            let words = [&["iperf3", "-c", SERVER, "-p", port, "-P", "4", "-J", "-t", &lasts], more].concat();
            loads.push(scene.on_client(&words, name)?);
        }
        wait(case.settle(), stop);
    }
    let count = (seconds * 20).to_string();
    let ping = scene.on_client(&["ping", "-i", "0.05", "-W", "3", "-c", &count, SERVER], "ping.log")?;
    let said = finished(ping, Duration::from_secs(seconds.into()))?;
    let trips = read_round_trips(&said).ok_or_else(|| Error::output("ping", said))?;
    let mut rates = Vec::new();
    for load in loads {
        let said = finished(load, Duration::from_secs(seconds.into()))?;
        let report: Value = serde_json::from_str(&said).unwrap_or_default();
        let bits = report["end"]["sum_received"]["bits_per_second"].as_f64();
        rates.push(bits.ok_or_else(|| Error::output("iperf3", said))? / 1e6);
    }
    let (down, up) = (rates.first().copied(), rates.get(1).copied());
    Ok(Measured { case, sent: trips.sent, times_ms: trips.times_ms, down, up })
}

/// What a program has said when it has ended.
fn finished(mut process: Process, lasts: Duration) -> Result<String, Error> {
    process.wait(lasts + LATE);
    let log = process.log().to_owned();
    std::fs::read_to_string(&log).map_err(|source| Error::file(&log, source))
}

/// Round trips of all of these together, and the mean of what was carried.
fn summary(all: &[&Measured]) -> Vec<String> {
    let times: Vec<f64> = all.iter().flat_map(|one| one.times_ms.iter().copied()).collect();
    let sent: u64 = all.iter().map(|one| one.sent).sum();
    let lost = 100.0 * sent.saturating_sub(times.len() as u64) as f64 / sent.max(1) as f64;
    let time = |part| quantile(&times, part).map_or("–".into(), |ms| format!("{ms:.1}"));
    let mean = |of: fn(&Measured) -> Option<f64>| {
        let values: Vec<f64> = all.iter().filter_map(|one| of(one)).collect();
        let sum: f64 = values.iter().sum();
        if values.is_empty() { "–".into() } else { number(sum / values.len() as f64) }
    };
    vec![time(0.5), time(0.99), format!("{lost:.1} %"), mean(|one| one.down), mean(|one| one.up)]
}

/// Prints the results, and writes them where they are asked for.
fn show(options: &BandwidthOptions, results: &[Measured], interrupted: bool) -> Result<(), Error> {
    let table = table(options, results);
    // A reader that goes away has what it wanted.
    let _ = writeln!(std::io::stdout().lock(), "{}", table.text().trim_end());
    if let Some(path) = &options.json {
        let json =
            serde_json::to_vec_pretty(results).map_err(|error| Error::output("measurements", error))?;
        std::fs::write(path, json).map_err(|source| Error::file(path, source))?;
    }
    match &options.docs {
        Some(path) if !interrupted => between("bandwidth", &table.markdown(), path),
        _ => Ok(()),
    }
}

fn table(options: &BandwidthOptions, results: &[Measured]) -> Table {
    let rows = Case::ALL.iter().filter_map(|case| {
        let of_case: Vec<_> = results.iter().filter(|one| one.case == *case).collect();
        let title = vec![case.title().to_owned()];
        (!of_case.is_empty()).then(|| [title, summary(&of_case)].concat())
    });
    let header = ["", "round trip p50 ms", "round trip p99 ms", "echoes lost", "down Mbit/s", "up Mbit/s"];
    Table {
        title: "Latency under load".into(),
        how: format!(
            "{}; a line of {} Mbit/s down and {} up, whose queues keep half a second, and a server 20 ms away; four flows of \
             TCP in each direction, an echo request every 50 ms, {} times {} s, each case in turn. `bandwidth` has 90 and \
             95 % of what the line carries; rates that follow may have from a quarter of it to twice as much, ask the server, \
             and have had {} s.",
            machine("all machines"),
            options.down,
            options.up,
            options.repetitions,
            options.seconds,
            FOLLOW.as_secs()
        ),
        header: header.map(str::to_owned).to_vec(),
        rows: rows.collect(),
    }
}
