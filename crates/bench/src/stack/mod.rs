//! `sidestep-lab bench stack`: TCP of the host stack beside the kernel's and other stacks in user space, `ipsec up` beside other
//! tunnels.
//!
//! | file | what it is |
//! |---|---|
//! | `contender` | whose TCP it is |
//! | `scene` | a client of the kernel's, an impaired link, and the contender behind it |
//! | `load` | what the client does: sends to the contender, or receives from it |
//! | `end` | what the contenders do: a program each, which takes and gives |
//! | `server` | what those with sockets that block do with their connections |
//! | `runner` | the host stack as programs have it, with offloads |
//! | `device`, `ours`, `smoltcp` | those at a TUN device that take single packets |
//! | `gvisor` | that one, a program in Go |
//! | `idle` | the memory of a connection that nobody uses |
//! | `tunnels` | `ipsec up` beside libipsec and the moving tunnel |
//! | `section7`, `figure` | the seed's tables 1 to 5 and figure 8 again: two hosts of ours with an Ethernet between them |
//! | `results`, `aims`, `page` | what was measured, what was to be reached, and how it is shown |
//!
//! All contenders are measured before the next repetition, and ratios are taken within a repetition.

mod aims;
pub(crate) mod contender;
mod device;
pub(crate) mod end;
mod figure;
pub(crate) mod idle;
mod load;
mod ours;
mod page;
mod results;
mod runner;
mod scene;
mod section7;
mod server;
mod smoltcp;
mod tunnels;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;

use crate::comparison::docs::between;
use crate::comparison::tables::Table;
use crate::comparison::{INTERRUPTED, machine};
use crate::stack::contender::StackContender;
use crate::stack::load::Direction;
use crate::stack::results::{Measured, Results};
use crate::stack::scene::{Link, StackScene};
use lab::Error;

/// What is measured, and where it goes.
#[derive(Clone, Debug, Args)]
pub struct StackOptions {
    /// TCP only of these, beside the kernel [default: all that are here]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    against: Vec<StackContender>,
    /// How often everything is measured
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repetitions: u32,
    /// Seconds of TCP per measurement
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Rounds of section 7 in each repetition
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// How many children of IPsec there are when the memory of an association is measured; 1: it is not
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=1000))]
    children: u16,
    /// Only these parts
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PARTS")]
    only: Vec<Part>,
    /// Write all values to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with plots, and all values, into this directory
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
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

/// A part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// TCP beside others
    Tcp,
    /// The memory of an idle connection
    Idle,
    /// `ipsec up` beside libipsec and the moving tunnel
    Tunnels,
    /// Section 7 of the paper on NRL's IPv6
    Section7,
}

impl StackOptions {
    fn measures(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}

/// Runs the comparison; `program` is `sidestep`.
///
/// # Errors
/// When the results cannot be written.
pub fn run(options: &StackOptions, program: &Path, stop: &Arc<AtomicBool>) -> Result<ExitCode, Error> {
    let StackOptions { repetitions, seconds, rounds, .. } = *options;
    let settings =
        format!("Repetitions: {repetitions}, of {seconds} s each, with {rounds} rounds of section 7 each");
    let mut results = Results { machine: machine("both ends"), settings, ..Results::default() };
    let goes_on = |part| options.measures(part) && !stop.load(Ordering::Relaxed);
    if goes_on(Part::Tcp) {
        measure(options, &mut results, stop);
    }
    if goes_on(Part::Idle) {
        match idle::measure() {
            Ok(bytes) => results.idle = Some(bytes),
            Err(error) => results.failures.push(format!("idle connections: {error}")),
        }
    }
    if goes_on(Part::Tunnels) {
        let StackOptions { repetitions, seconds, children, .. } = *options;
        let extent = tunnels::Extent { repetitions, seconds, children };
        results.tunnels = Some(tunnels::measure(extent, &options.prefix, program, stop));
    }
    if goes_on(Part::Section7) {
        results.section7 =
            Some(section7::measure(options.repetitions * options.rounds, &options.prefix, stop));
    }
    show(options, &results)?;
    Ok(if stop.load(Ordering::Relaxed) {
        INTERRUPTED.into()
    } else if results.failures().is_empty() {
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
                let scene = match StackScene::start(&options.prefix, contender, link, repetition) {
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

/// Prints the results, and writes them where they are asked for.
fn show(options: &StackOptions, results: &Results) -> Result<(), Error> {
    let tables = tables(results);
    let mut out = std::io::stdout().lock();
    for table in &tables {
        // A reader that goes away has what it wanted.
        let _ = writeln!(out, "\n{}", table.text().trim_end());
    }
    for failure in results.failures() {
        let _ = writeln!(out, "\nNot measured: {failure}");
    }
    let json = serde_json::to_vec_pretty(results).map_err(|error| Error::output("measurements", error))?;
    let write =
        |path: &Path, bytes: &[u8]| std::fs::write(path, bytes).map_err(|source| Error::file(path, source));
    if let Some(path) = &options.json {
        write(path, &json)?;
    }
    if let Some(directory) = &options.report {
        std::fs::create_dir_all(directory).map_err(|source| Error::file(directory, source))?;
        write(&directory.join("data.json"), &json)?;
        write(&directory.join("index.html"), page::page(results).as_bytes())?;
    }
    if let (Some(path), Some(section7)) = (&options.figure, &results.section7) {
        write(path, section7.figure().as_bytes())?;
    }
    if let Some(path) = &options.docs {
        between("stack", &markdown(results, &tables), path)?;
    }
    Ok(())
}

/// What was to be reached, and all tables.
fn tables(results: &Results) -> Vec<Table> {
    let aims = aims::table(&aims::all(results));
    let tables = std::iter::once(aims).chain(results.tables());
    tables.filter(|table| !table.rows.is_empty()).collect()
}

fn markdown(results: &Results, tables: &[Table]) -> String {
    let mut text =
        format!("{}. {}.\n\n| contender | what it is |\n|---|---|\n", results.machine, results.settings);
    let tcp = results.contenders().map(|one| (one.name(), one.about()));
    let tunnels = results.tunnels.iter().flat_map(tunnels::Tunnels::contenders);
    // The moving tunnel and the host stack are of the same name.
    for (part, name, about) in tcp
        .map(|(name, about)| ("TCP", name, about))
        .chain(tunnels.map(|(name, about)| ("tunnel", name, about)))
    {
        let _ = writeln!(text, "| {part}: {name} | {about} |");
    }
    for (name, why) in results.tunnels.iter().flat_map(tunnels::Tunnels::left_out) {
        let _ = writeln!(text, "| tunnel: {name} | left out: {why} |");
    }
    text.push('\n');
    tables.iter().for_each(|table| text.push_str(&table.markdown()));
    text
}
