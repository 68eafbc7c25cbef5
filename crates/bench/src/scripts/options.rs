//! What the command is told.

use std::path::PathBuf;

use clap::Args;

use super::job::{Job, Peer};

/// What is measured, and where it goes.
#[derive(Clone, Debug, Args)]
pub struct ScriptsOptions {
    /// Only these jobs [default: all]
    #[arg(long, value_delimiter = ',', value_name = "JOBS")]
    pub(super) only: Vec<Job>,
    /// Only these, beside plain forwarding [default: all that are installed]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(super) against: Vec<Peer>,
    /// How often everything is measured
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=25))]
    pub(super) repetitions: u32,
    /// Small packets of each measurement; the others are as long in proportion
    #[arg(long, default_value_t = 400_000, value_parser = clap::value_parser!(u32).range(1_000..=1_000_000))]
    pub(super) packets: u32,
    /// Write all values to this file
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Write a page, and all values, into this directory
    #[arg(long, value_name = "DIR")]
    pub(super) report: Option<PathBuf>,
    /// Put the tables into this Markdown page, between `<!-- scripts:begin -->` and `<!-- scripts:end -->`
    #[arg(long, value_name = "FILE")]
    pub(super) docs: Option<PathBuf>,
    /// What the names of the namespaces begin with
    #[arg(long, default_value = "scripts")]
    pub(super) prefix: String,
}
