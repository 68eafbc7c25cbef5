//! `sidestep-lab bench stack`: TCP of the host stack beside the kernel's and other stacks in user space.
//!
//! | file | what it is |
//! |---|---|
//! | `contender` | whose TCP it is |
//! | `scene` | a client of the kernel's, an impaired link, and the contender behind it |
//! | `load` | what the client does: sends to the contender, or receives from it |
//! | `end` | what the contenders do: a program each, which takes and gives |
//! | `device`, `ours`, `smoltcp` | those at a TUN device |
//! | `gvisor` | that one, a program in Go |
//! | `section7`, `figure` | the seed's tables 1 to 5 and figure 8 again: latency and throughput without a device |
//!
//! All contenders are measured before the next repetition, and ratios are taken within a repetition.

pub(crate) mod contender;
mod device;
pub(crate) mod end;
mod figure;
mod load;
mod ours;
mod scene;
mod section7;
mod smoltcp;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;

use crate::comparison::docs::between;
use crate::comparison::tables::Table;
use crate::comparison::{INTERRUPTED, machine, quantile};
use crate::stack::contender::StackContender;
use crate::stack::load::Direction;
use crate::stack::scene::{Link, StackScene};
use lab::Error;

/// What is measured, and where it goes.
#[derive(Clone, Debug, Args)]
pub struct StackOptions {
    /// Only these, beside the kernel [default: all that are here]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    against: Vec<StackContender>,
    /// How often everything is measured
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repetitions: u32,
    /// Seconds of TCP per measurement
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Only the seed's section 7, or all but that
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Write all values to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write figure 8 into this file, as SVG
    #[arg(long, value_name = "FILE")]
    figure: Option<PathBuf>,
    /// Put the tables into this Markdown page, between `<!-- stack:begin -->` and `<!-- stack:end -->`
    #[arg(long, value_name = "FILE")]
    docs: Option<PathBuf>,
    /// What the names of the namespaces begin with
    #[arg(long, default_value = "stack")]
    prefix: String,
}

/// One of the two parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// TCP beside others.
    Tcp,
    /// Section 7 of the paper on NRL's IPv6.
    Section7,
}

/// One value.
#[derive(Clone, Debug, serde::Serialize)]
struct Measured {
    contender: &'static str,
    link: &'static str,
    direction: &'static str,
    repetition: u32,
    /// Megabits per second.
    mbit: f64,
}

/// All that was measured.
#[derive(Debug, Default, serde::Serialize)]
struct Results {
    machine: String,
    tcp: Vec<Measured>,
    section7: Option<section7::Section7>,
    failures: Vec<String>,
}

/// Runs the comparison.
///
/// # Errors
/// When the results cannot be written.
pub fn run(options: &StackOptions, stop: &Arc<AtomicBool>) -> Result<ExitCode, Error> {
    let mut results = Results { machine: machine("both ends"), ..Results::default() };
    if options.only != Some(Part::Section7) {
        measure(options, &mut results, stop);
    }
    if options.only != Some(Part::Tcp) && !stop.load(Ordering::Relaxed) {
        results.section7 = Some(section7::measure(options.repetitions));
    }
    show(options, &results)?;
    Ok(if stop.load(Ordering::Relaxed) {
        INTERRUPTED.into()
    } else if results.failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn measure(options: &StackOptions, results: &mut Results, stop: &AtomicBool) {
    let wanted = |one: &StackContender| {
        options.against.is_empty() || *one == StackContender::Kernel || options.against.contains(one)
    };
    let mut contenders: Vec<StackContender> = StackContender::ALL.into_iter().filter(wanted).collect();
    for repetition in 1..=options.repetitions {
        // What a machine has left depends on what it did a moment ago, so each of them is once the first.
        if repetition > 1 {
            contenders.rotate_left(1);
        }
        for link in Link::ALL {
            for &contender in &contenders {
                let scene = match StackScene::start(&options.prefix, contender, link) {
                    Ok(scene) => scene,
                    Err(error) => {
                        results.failures.push(format!("{}: {error}", contender.name()));
                        continue;
                    }
                };
                for direction in Direction::ALL {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let what = format!("{}, {}, {}", contender.name(), link.title(), direction.title());
                    match scene.carry(direction, options.seconds) {
                        Ok(mbit) => {
                            eprintln!("{repetition}: {what}: {mbit:.1} Mbit/s");
                            results.tcp.push(Measured {
                                contender: contender.name(),
                                link: link.title(),
                                direction: direction.title(),
                                repetition,
                                mbit,
                            });
                        }
                        Err(error) => results.failures.push(format!("{what}: {error}")),
                    }
                }
            }
        }
    }
}

/// Median of what was measured, and of its ratios to the kernel's within each repetition.
fn summary(results: &Results, contender: &str, link: Link, direction: Direction) -> Option<(f64, f64)> {
    let of = |name: &str, repetition: u32| {
        let is_it = |one: &&Measured| {
            (one.contender, one.link, one.direction, one.repetition)
                == (name, link.title(), direction.title(), repetition)
        };
        results.tcp.iter().find(is_it).map(|one| one.mbit)
    };
    let values: Vec<f64> = (1..=100).filter_map(|repetition| of(contender, repetition)).collect();
    let kernel = StackContender::Kernel.name();
    let ratios: Vec<f64> = (1..=100)
        .filter_map(|repetition| Some(of(contender, repetition)? / of(kernel, repetition)?))
        .collect();
    Some((quantile(&values, 0.5)?, quantile(&ratios, 0.5)?))
}

fn tables(results: &Results) -> Vec<Table> {
    let mut rows = Vec::new();
    for link in Link::ALL {
        for direction in Direction::ALL {
            let cells: Vec<String> = StackContender::ALL
                .iter()
                .map(|contender| {
                    summary(results, contender.name(), link, direction)
                        .map_or("–".into(), |(mbit, ratio)| format!("{mbit:.1} ({ratio:.2}×)"))
                })
                .collect();
            if cells.iter().any(|cell| cell != "–") {
                let name = format!("{}, {}", link.title(), direction.title());
                rows.push([vec![name], cells].concat());
            }
        }
    }
    let header = std::iter::once("link").chain(StackContender::ALL.iter().map(|one| one.name()));
    let tcp = Table {
        title: "TCP, one connection, Mbit/s".to_owned(),
        how:
            "The client is the kernel's. In brackets: of the kernel's, the median of the ratios within each \
              repetition."
                .to_owned(),
        header: header.map(str::to_owned).collect(),
        rows,
    };
    let section7 = results.section7.iter().flat_map(section7::Section7::tables);
    std::iter::once(tcp).chain(section7).filter(|table| !table.rows.is_empty()).collect()
}

/// Prints the results, and writes them where they are asked for.
fn show(options: &StackOptions, results: &Results) -> Result<(), Error> {
    let tables = tables(results);
    let mut out = std::io::stdout().lock();
    for table in &tables {
        // A reader that goes away has what it wanted.
        let _ = writeln!(out, "\n{}", table.text().trim_end());
    }
    for failure in &results.failures {
        let _ = writeln!(out, "\nNot measured: {failure}");
    }
    if let Some(path) = &options.json {
        let json =
            serde_json::to_vec_pretty(results).map_err(|error| Error::output("measurements", error))?;
        std::fs::write(path, json).map_err(|source| Error::file(path, source))?;
    }
    if let (Some(path), Some(section7)) = (&options.figure, &results.section7) {
        std::fs::write(path, section7.figure()).map_err(|source| Error::file(path, source))?;
    }
    if let Some(path) = &options.docs {
        let mut text = format!(
            "{}. Repetitions: {}, of {} s each.\n\n| contender | what it is |\n|---|---|\n",
            results.machine, options.repetitions, options.seconds
        );
        for contender in StackContender::ALL {
            text.push_str(&format!("| {} | {} |\n", contender.name(), contender.about()));
        }
        text.push('\n');
        tables.iter().for_each(|table| text.push_str(&table.markdown()));
        between("stack", &text, path)?;
    }
    Ok(())
}
