//! The program `fleet-simulation`: what a fleet costs, as a table.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use fleet_simulation::{Figures, Options, run, table};

/// Simulates fleets in virtual time, and prints what they and their controllers needed
#[derive(Debug, Parser)]
#[command(name = "fleet-simulation", version, max_term_width = 100)]
#[command(after_help = "Examples:\n  fleet-simulation --sites 100,1000\n  \
                        fleet-simulation --sites 300 --controllers 3 --outages 1\n\n\
                        It fails where a site is locked out, loses a peer, goes back to an older document, or keeps a \
                        peer that was revoked.")]
struct Command {
    /// How many sites: a simulation for each number
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1_000],
          value_parser = clap::value_parser!(u32).range(10..=20_000))]
    sites: Vec<u32>,
    /// How many controllers: for each number a simulation of each number of sites
    #[arg(long, value_delimiter = ',', default_values_t = [1, 3], value_parser = clap::value_parser!(u8).range(1..=16))]
    controllers: Vec<u8>,
    /// Minutes within which all sites begin to enrol
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=600))]
    storm: u16,
    /// Minutes in which nothing happens
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u16).range(20..=1440))]
    idle: u16,
    /// Hours for which neither controllers nor store are there
    #[arg(long, value_delimiter = ',', default_values_t = [1, 24], value_parser = clap::value_parser!(u16).range(1..=1000))]
    outages: Vec<u16>,
    /// What is drawn
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Put the table into this Markdown page, between `<!-- fleet:begin -->` and `<!-- fleet:end -->`
    #[arg(long, value_name = "FILE")]
    docs: Option<PathBuf>,
}

fn main() -> ExitCode {
    match simulate(&Command::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("fleet-simulation: {why}");
            ExitCode::FAILURE
        }
    }
}

fn simulate(command: &Command) -> Result<(), String> {
    let minutes = |count: u16| Duration::from_secs(60 * u64::from(count));
    let mut all: Vec<Figures> = Vec::new();
    for sites in &command.sites {
        for controllers in &command.controllers {
            let options = Options {
                sites: *sites as usize,
                controllers: usize::from(*controllers),
                storm: minutes(command.storm),
                idle: minutes(command.idle),
                outages: command.outages.iter().map(|hours| 60 * minutes(*hours)).collect(),
                seed: command.seed,
            };
            let begin = Instant::now();
            let tell = |what: &str| {
                eprintln!("{sites} sites, {controllers} controllers, after {:.0?}: {what}", begin.elapsed());
            };
            let figures = run(&options, &tell).map_err(|broken| broken.0)?;
            tell("done");
            all.push(figures);
        }
    }
    let text = table(&all);
    print!("{text}");
    command.docs.as_ref().map_or(Ok(()), |path| put(path, &text))
}

/// Puts the table between its marks in a page.
fn put(path: &Path, table: &str) -> Result<(), String> {
    let about = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let page = std::fs::read_to_string(path).map_err(|error| about(&error))?;
    let [begin, end] = ["<!-- fleet:begin -->", "<!-- fleet:end -->"];
    let split = page.split_once(begin).and_then(|(before, rest)| Some((before, rest.split_once(end)?.1)));
    let (before, after) = split.ok_or_else(|| about(&format!("there is no {begin} with {end} behind it")))?;
    std::fs::write(path, format!("{before}{begin}\n{table}{end}{after}")).map_err(|error| about(&error))
}
