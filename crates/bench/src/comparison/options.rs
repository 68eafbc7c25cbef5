//! What `sidestep-lab bench` is told.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::comparison::measure::Lengths;

/// Kinds of measurements, as `--only` has them.
const KINDS: [&str; 7] = ["tcp", "udp", "steady", "ping", "load", "memory", "peers"];

/// What to compare, how thoroughly, and where it goes.
#[derive(Clone, Debug, Args)]
pub struct BenchOptions {
    /// About three minutes: fewer contenders, fewer and shorter measurements
    #[arg(long)]
    pub(super) quick: bool,
    /// The contenders beside no tunnel and Sidestep; an unknown name shows all there are [default: all that are here]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(super) against: Vec<String>,
    /// Only these measurements
    #[arg(long, value_delimiter = ',', value_name = "KINDS", value_parser = KINDS)]
    pub(super) only: Vec<String>,
    /// How often everything is measured [default: 3, quick 2]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(super) repetitions: Option<u32>,
    /// Seconds of TCP per measurement; the others are as long in proportion [default: 3, quick 2]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub(super) seconds: Option<u32>,
    /// Rotation interval of Sidestep
    #[arg(long, default_value = "10s")]
    pub(super) rotation: String,
    /// No segmentation, receive and checksum offload on any interface: each packet is carried by itself
    #[arg(long)]
    pub(super) no_offloads: bool,
    /// How many peers one gateway gets in the part about many peers [default: 1,100,1000,10000, quick 1,1000]
    #[arg(long, value_delimiter = ',', value_name = "COUNTS", value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub(super) peers: Vec<u32>,
    /// Measure everything of the variants of Sidestep too
    #[arg(long)]
    pub(super) everything: bool,
    /// Write all values to this file
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Write a page with plots, and all values, into this directory
    #[arg(long, value_name = "DIR")]
    pub(super) report: Option<PathBuf>,
    /// Measure nothing: show the values of an earlier run, from the file that --json wrote
    #[arg(long, value_name = "FILE")]
    pub(super) from: Option<PathBuf>,
    /// Put the tables between the marks of this name in `--docs`
    #[arg(long, default_value = "bench")]
    pub(super) mark: String,
    /// Put the tables into this Markdown page, between `<!-- bench:begin -->` and `<!-- bench:end -->`
    #[arg(long, value_name = "FILE")]
    pub(super) docs: Option<PathBuf>,
    /// What the names of the labs' namespaces begin with, before a number for each lab
    #[arg(long, default_value = "bench")]
    pub(super) prefix: String,
}

impl BenchOptions {
    pub(super) fn repetitions(&self) -> u32 {
        self.repetitions.unwrap_or(if self.quick { 2 } else { 3 })
    }

    pub(super) fn lengths(&self) -> Lengths {
        let tcp = self.seconds.unwrap_or(if self.quick { 2 } else { 3 });
        Lengths { tcp, trial: Duration::from_millis(300) * tcp.min(5), echoes: 1_000 * tcp.min(10) }
    }

    pub(super) fn peers(&self) -> Vec<u32> {
        match (self.peers.as_slice(), self.quick) {
            ([], true) => vec![1, 1_000],
            ([], false) => vec![1, 100, 1_000, 10_000],
            (told, _) => told.to_vec(),
        }
    }

    pub(super) fn measures(&self, kind: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == kind)
    }

    pub(super) fn settings(&self) -> String {
        let lengths = self.lengths();
        format!(
            "{} repetitions; {} s of TCP, {} ms for each trial of a UDP rate, {} flooded and {} paced echoes{}",
            self.repetitions(),
            lengths.tcp,
            lengths.trial.as_millis(),
            lengths.echoes,
            lengths.echoes / 2,
            if self.no_offloads { "; no offloads on any interface" } else { "" }
        )
    }
}
