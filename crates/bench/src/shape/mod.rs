//! `sidestep-lab bench shape`: what a constant shape costs, and how exactly it keeps its times (docs/operations.md, "Choosing a
//! shape").
//!
//! Two gateways have a lab of their own for each rate. In each they send padding alone, then packets of their hosts in nearly
//! every slot, then padding alone beside as many busy loops as the machine has processors. A capture on the router between
//! them is what an [`observer`] has; the rest is what gateways say of themselves, and what the kernel says they used.

mod observer;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use crate::comparison::docs::between;
use crate::comparison::tables::{Table, number};
use crate::comparison::{INTERRUPTED, machine, wait};
use lab::accounting::cpu_seconds;
use lab::capture::Recording;
use lab::process::Process;
use lab::traffic::{UdpOptions, UdpStream};
use lab::{Error, Lab, Node, Site};
use observer::Seen;

/// Bytes of all outer packets of a shape (docs/protocol.md, "Shape").
const SIZE: f64 = 1280.0;
/// Bytes of the hosts' datagrams: one fits into a slot.
const INNER: usize = 1000;
/// Which part of the slots they take, the rest is padding.
const FILL: f64 = 0.9;
/// From the start of a session to the measurement, and from one measurement to the next.
const SETTLE: Duration = Duration::from_secs(3);

/// What is measured, and where it goes.
#[derive(Clone, Debug, Args)]
pub struct ShapeOptions {
    /// Rates of the shape, in Mbit/s
    #[arg(long, value_delimiter = ',', value_name = "MBITS", default_values_t = [1, 10, 50],
          value_parser = clap::value_parser!(u32).range(1..=100))]
    rates: Vec<u32>,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(2..=600))]
    seconds: u32,
    /// Write all values to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Put the table into this Markdown page, between `<!-- shape:begin -->` and `<!-- shape:end -->`
    #[arg(long, value_name = "FILE")]
    docs: Option<PathBuf>,
    /// What the names of the namespaces begin with
    #[arg(long, default_value = "shape")]
    prefix: String,
}

/// What goes on meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Load {
    /// Nothing: all datagrams are padding.
    Padding,
    /// Packets in nine of ten datagrams, each way.
    Filled,
    /// Padding, and busy loops beside.
    Busy,
}

impl Load {
    const ALL: [Load; 3] = [Load::Padding, Load::Filled, Load::Busy];

    fn title(self) -> &'static str {
        match self {
            Load::Padding => "padding alone",
            Load::Filled => "filled",
            Load::Busy => "padding alone, busy machine",
        }
    }
}

/// One measurement; of both gateways together where nothing else is said.
#[derive(Clone, Debug, Serialize)]
struct Measured {
    /// Of the shape, Mbit/s.
    rate: u32,
    load: Load,
    /// What a gateway sent, Mbit/s.
    sent: f64,
    /// Part of a processor that a gateway took, in its own code and in the kernel.
    processor: f64,
    /// Datagrams that the gateways put off, as part of all.
    put_off: Option<f64>,
    /// How late slots were when the gateway came to them, milliseconds, of the later gateway.
    late_median_ms: Option<f64>,
    /// All but one in a hundred.
    late_p99_ms: Option<f64>,
    seen: Seen,
}

/// Runs the measurements; `program` is `sidestep`.
///
/// # Errors
/// When a lab does not come up, or the results cannot be written.
pub fn run(options: &ShapeOptions, program: &Path, stop: &Arc<AtomicBool>) -> Result<ExitCode, Error> {
    let mut results = Vec::new();
    for &rate in &options.rates {
        let shape = format!("{{ constant = \"{rate}Mbit/s\" }}");
        let builder = Lab::builder(program).prefix(&options.prefix).rotation("10s").lanes(3).shape(&shape);
        let mut lab = builder.whole_packets(true).build()?;
        lab.start()?;
        for load in Load::ALL {
            if !wait(SETTLE, stop) {
                break;
            }
            let measured = measure(&mut lab, rate, load, options.seconds, stop)?;
            eprintln!("{rate} Mbit/s, {}: {measured:?}", load.title());
            results.push(measured);
        }
    }
    let interrupted = stop.load(Ordering::Relaxed);
    show(options, &results, interrupted)?;
    Ok(if interrupted { INTERRUPTED.into() } else { ExitCode::SUCCESS })
}

fn measure(lab: &mut Lab, rate: u32, load: Load, seconds: u32, stop: &AtomicBool) -> Result<Measured, Error> {
    let no_gateway = || Error::Usage("a gateway has ended".into());
    let mut gateways = [0; 2];
    for (id, site) in gateways.iter_mut().zip([Site::A, Site::B]) {
        *id = lab.gateway(site).id().ok_or_else(no_gateway)?;
    }
    let used = || -> Result<f64, Error> { gateways.iter().map(|id| cpu_seconds(*id)).sum() };
    let said = || -> Result<[Value; 2], Error> {
        let [a, b] = [lab.show(Site::A)?, lab.show(Site::B)?];
        Ok([a, b].map(|status| status["peers"][0]["shape"].clone()))
    };
    let time = Duration::from_secs(seconds.into());
    let (streams, loops) = begin(lab, rate, load, time)?;
    let recording = Recording::start(lab, Node::Router, "a")?;
    let (before, cpu, begun) = (said()?, used()?, Instant::now());
    wait(time, stop);
    let (after, cpu, lasted) = (said()?, used()? - cpu, begun.elapsed().as_secs_f64());
    let packets = recording.finish()?;
    for one in loops {
        one.kill();
    }
    for stream in streams {
        let report = stream.finish(Duration::from_millis(500))?;
        eprintln!("{} of {} packets came through", report.sent.sent - report.lost, report.sent.sent);
    }
    let seen = [Site::A, Site::B].map(|site| Seen::of(&packets, |address| site.in_hop_prefix(address)));
    let datagrams: u64 = seen.iter().map(|one| one.datagrams).sum();
    let sum = |shapes: &[Value; 2]| -> Option<u64> {
        Some(shapes[0]["put_off"].as_u64()? + shapes[1]["put_off"].as_u64()?)
    };
    let latest = |name: &str| after.iter().filter_map(|shape| shape[name].as_f64()).reduce(f64::max);
    Ok(Measured {
        rate,
        load,
        sent: datagrams as f64 / 2.0 * SIZE * 8.0 / 1e6 / lasted,
        processor: cpu / 2.0 / lasted,
        put_off: sum(&before)
            .zip(sum(&after))
            .map(|(before, after)| after.saturating_sub(before) as f64 / datagrams.max(1) as f64),
        late_median_ms: latest("late_median_ms"),
        late_p99_ms: latest("late_p99_ms"),
        seen: seen.into_iter().reduce(Seen::and).unwrap_or_default(),
    })
}

/// Starts what the load is, for so long.
fn begin(lab: &Lab, rate: u32, load: Load, time: Duration) -> Result<(Vec<UdpStream>, Vec<Process>), Error> {
    let (mut streams, mut loops) = (Vec::new(), Vec::new());
    match load {
        Load::Padding => {}
        Load::Filled => {
            for (from, port) in [(Site::A, 4242), (Site::B, 4243)] {
                let rate = (f64::from(rate) * 1e6 / 8.0 / SIZE * FILL) as u32;
                let duration = time + Duration::from_secs(1);
                let options = UdpOptions { from, rate, size: INNER, duration, port, ..UdpOptions::default() };
                streams.push(UdpStream::start(lab, options)?);
            }
        }
        Load::Busy => {
            for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
                let mut command = Command::new("sh");
                // Ends by itself also where nobody is left to end it.
                command.args(["-c", "trap exit TERM; while kill -0 $PPID; do :; done"]);
                loops.push(Process::start(&mut command, &lab.directory().join("busy.log"))?);
            }
        }
    }
    Ok((streams, loops))
}

/// Prints the results, and writes them where they are asked for.
fn show(options: &ShapeOptions, results: &[Measured], interrupted: bool) -> Result<(), Error> {
    let table = table(results, options.seconds);
    // A reader that goes away has what it wanted.
    let _ = writeln!(std::io::stdout().lock(), "{}", table.text().trim_end());
    if let Some(path) = &options.json {
        let json =
            serde_json::to_vec_pretty(results).map_err(|error| Error::output("measurements", error))?;
        std::fs::write(path, json).map_err(|source| Error::file(path, source))?;
    }
    match &options.docs {
        Some(path) if !interrupted => between("shape", &table.markdown(), path),
        _ => Ok(()),
    }
}

fn table(results: &[Measured], seconds: u32) -> Table {
    let percent = |part: f64| format!("{:.1} %", part * 100.0);
    let ms = |late: Option<f64>| late.map_or("–".into(), |ms| format!("{ms:.2}"));
    let rows = results.iter().map(|one| {
        vec![
            format!("{} Mbit/s, {}", one.rate, one.load.title()),
            number(one.sent),
            format!("{:.2} %", one.processor * 100.0 / one.sent.max(f64::MIN_POSITIVE)),
            ms(one.late_median_ms),
            ms(one.late_p99_ms),
            one.put_off.map_or("–".into(), percent),
            percent(one.seen.off_part()),
            one.seen.together_by_chance().map_or("–".into(), |times| format!("{times:.2}")),
        ]
    });
    let header = [
        "shape",
        "Mbit/s sent",
        "processor per Mbit/s",
        "late p50 ms",
        "late p99 ms",
        "put off",
        "gaps off",
        "together",
    ];
    Table {
        title: "Cost and exactness of a constant shape".into(),
        how: format!(
            "{}; three lanes, {seconds} s each. Processor: what a gateway takes of one for each Mbit/s that it sends, while \
             it receives as much. Filled: packets of {INNER} bytes in nine of ten datagrams, each way. Busy machine: as many \
             busy loops as processors, of ordinary priority. Late, put off: as `sidestep show` has it. As an observer on \
             the router sees it: gaps of a lane that are more than 0.1 ms shorter or longer than any that is drawn; and how \
             often datagrams of two lanes of a gateway are within 0.05 ms, as a multiple of how often they are some \
             time later, which is 1 where lanes have nothing to do with each other.",
            machine("both gateways")
        ),
        header: header.map(str::to_owned).to_vec(),
        rows: rows.collect(),
    }
}
