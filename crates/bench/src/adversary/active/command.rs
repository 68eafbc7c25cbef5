//! `sidestep-lab adversary attack`: the active adversary by itself.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use lab::Error;

use super::{ActiveOptions, Judged};
use crate::comparison::docs;

/// How much of what is tried, on what, and where the results go.
#[derive(Clone, Debug, Args)]
pub(crate) struct AttackOptions {
    /// Pairs of gateways that are attacked at the same time
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=64))]
    pairs: u32,
    /// Tries of each kind, over all pairs
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    tries: u32,
    /// Only kinds whose names begin so: replay, duplicate, drop, delay, truncate, tamper, spoof, scan, oracle, error
    #[arg(long, value_delimiter = ',')]
    kinds: Vec<String>,
    /// Rotation interval
    #[arg(long, default_value = "10s")]
    rotation: String,
    /// Lanes (1 to 16)
    #[arg(long, default_value_t = 3)]
    lanes: u8,
    /// Padding policy: none, buckets, full
    #[arg(long, default_value = "none")]
    padding: String,
    /// What is drawn is drawn from this
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Windows and pauses of a tenth of their length: to try the tool, not the tunnel
    #[arg(long)]
    quick: bool,
    /// Write the results to this file
    #[arg(long)]
    json: Option<PathBuf>,
    /// Put the table between the marks `active` of this page
    #[arg(long)]
    docs: Option<PathBuf>,
}

/// Attacks, prints a table, and writes what was asked for.
///
/// # Errors
/// When a lab cannot be built or a file cannot be written.
pub(crate) fn run(options: &AttackOptions, program: &Path, stop: &AtomicBool) -> Result<ExitCode, Error> {
    let active = ActiveOptions {
        pairs: options.pairs,
        tries: options.tries,
        kinds: options.kinds.iter().filter(|kind| !kind.is_empty()).cloned().collect(),
        rotation: options.rotation.clone(),
        lanes: options.lanes,
        padding: options.padding.clone(),
        seed: options.seed,
        scale: if options.quick { 10 } else { 1 },
    };
    let judged = super::run(&active, program, stop)?;
    let table = markdown(&judged);
    print!("{table}");
    if let Some(path) = &options.json {
        let text = serde_json::to_vec_pretty(&judged).map_err(|error| Error::output("results", error))?;
        std::fs::write(path, text).map_err(|source| Error::file(path, source))?;
    }
    if let Some(page) = &options.docs {
        let settings = format!(
            "{} pairs, rotation {}, {} lanes, padding {}, seed {}.\n\n",
            options.pairs, options.rotation, options.lanes, options.padding, options.seed
        );
        docs::between("active", &(settings + &table), page)?;
    }
    if stop.load(Ordering::Relaxed) {
        println!("Interrupted: only pairs that were done are in this.");
        return Ok(ExitCode::from(130));
    }
    Ok(ExitCode::SUCCESS)
}

/// The results as a table, and what they say in a sentence.
pub(super) fn markdown(judged: &[Judged]) -> String {
    let mut text = String::from(
        "| try | tries / none | differs most | AUC (95 %) | p | full size within 200 ms | reaction |\n\
         |---|---:|---|---:|---:|---:|---|\n",
    );
    for one in judged {
        let [low, high] = one.interval;
        let [after, none] = one.large_at_once;
        let _ = writeln!(
            text,
            "| `{}` | {} / {} | {} | {:.2} ({low:.2}-{high:.2}) | {:.4} | {after} / {none} | {} |",
            one.kind,
            one.tries,
            one.baseline,
            one.feature,
            one.auc,
            one.p,
            if one.reaction { "**yes**" } else { "none found" },
        );
    }
    let reactions = judged.iter().filter(|one| one.reaction).count();
    let _ = writeln!(text, "\n{reactions} of {} kinds of tries show a reaction.", judged.len());
    text
}
