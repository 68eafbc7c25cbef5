//! `sidestep-lab adversary recognise`: what tells flows of Sidestep from others, by itself.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use lab::Error;

use super::{RecogniseOptions, Recognised};
use crate::comparison::docs;

/// What is captured, and where the results go.
#[derive(Clone, Debug, Args)]
pub(crate) struct RecogniseArguments {
    /// Pairs of gateways that are captured at the same time; the judge that learns needs two
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=64))]
    pairs: u32,
    /// Seconds of traffic
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Rotation interval
    #[arg(long, default_value = "10s")]
    rotation: String,
    /// Lanes (1 to 16)
    #[arg(long, default_value_t = 3)]
    lanes: u8,
    /// Padding policy: none, buckets, full
    #[arg(long, default_value = "none")]
    padding: String,
    /// The pairs carry nothing but WireGuard (wireguard-go), masked, and what is in that
    #[arg(long)]
    mask: bool,
    /// Directory of captures of other programs
    #[arg(long, default_value = "target/captures/ndpi-4.2-2")]
    foreign: PathBuf,
    /// What is drawn is drawn from this
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Keep our own captures in this directory
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Write the results to this file
    #[arg(long)]
    json: Option<PathBuf>,
    /// Put the table between the marks of this name in `--docs`
    #[arg(long, default_value = "recognise")]
    mark: String,
    /// Put the table into this Markdown page
    #[arg(long)]
    docs: Option<PathBuf>,
}

/// Captures, judges, prints a table, and writes what was asked for.
///
/// # Errors
/// When a lab cannot be built, a judge does not run or a file cannot be written.
pub(crate) fn run(
    arguments: &RecogniseArguments,
    program: &Path,
    stop: &AtomicBool,
) -> Result<ExitCode, Error> {
    let unkept = tempfile::tempdir().map_err(|source| Error::system("a directory for captures", source))?;
    let options = RecogniseOptions {
        pairs: arguments.pairs,
        seconds: arguments.seconds,
        rotation: arguments.rotation.clone(),
        lanes: arguments.lanes,
        padding: arguments.padding.clone(),
        mask: arguments.mask,
        foreign: arguments.foreign.clone(),
        seed: arguments.seed,
        ours: arguments.keep.clone().unwrap_or_else(|| unkept.path().to_owned()),
    };
    let recognised = super::run(&options, program, stop)?;
    let table = markdown(&recognised);
    print!("{table}");
    if let Some(path) = &arguments.json {
        let text = serde_json::to_vec_pretty(&recognised).map_err(|error| Error::output("results", error))?;
        std::fs::write(path, text).map_err(|source| Error::file(path, source))?;
    }
    if let Some(page) = &arguments.docs {
        let settings = format!(
            "{} pairs, {} s, rotation {}, {} lanes, padding {}, {}seed {}.\n\n",
            options.pairs,
            options.seconds,
            options.rotation,
            options.lanes,
            options.padding,
            if options.mask { "WireGuard masked, " } else { "" },
            options.seed
        );
        docs::between(&arguments.mark, &(settings + &table), page)?;
    }
    if stop.load(Ordering::Relaxed) {
        println!("Interrupted: the captures are shorter than they were to be.");
        return Ok(ExitCode::from(130));
    }
    Ok(ExitCode::SUCCESS)
}

/// The results as a table.
fn markdown(recognised: &[Recognised]) -> String {
    let mut text =
        String::from("| judge | hits | false hits | hits (95 %) | AUC (95 %) |\n|---|---:|---:|---:|---:|\n");
    for one in recognised {
        let [low, high] = one.interval;
        let (rate, auc) = match one.auc {
            Some(auc) => (format!("{:.0} %", 100.0 * one.hit_rate), format!("{auc:.3} ({low:.3}-{high:.3})")),
            None => {
                let [low, high] = [low, high].map(|part| 100.0 * part);
                (format!("{:.0} % ({low:.0}-{high:.0})", 100.0 * one.hit_rate), String::new())
            }
        };
        let false_hits = match one.foreign_flows {
            0 => String::new(),
            others => format!("{} of {others}", one.false_hits),
        };
        let (judge, hits, flows) = (&one.judge, one.hits, one.flows);
        let _ = writeln!(text, "| {judge} | {hits} of {flows} | {false_hits} | {rate} | {auc} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_judge_has_a_row() {
        let rule = Recognised {
            judge: "rule: x".into(),
            hits: 3,
            flows: 4,
            hit_rate: 0.75,
            false_hits: 1,
            foreign_flows: 9,
            auc: None,
            interval: [0.3, 0.95],
        };
        let learned = Recognised { auc: Some(0.9), ..rule.clone() };
        let ndpi = Recognised { foreign_flows: 0, ..rule.clone() };
        let table = markdown(&[rule, learned, ndpi]);
        let rows: Vec<_> = table.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| rule: x | 3 of 4 | 1 of 9 | 75 % (30-95) |  |",
                "| rule: x | 3 of 4 | 1 of 9 | 75 % | 0.900 (0.300-0.950) |",
                "| rule: x | 3 of 4 |  | 75 % (30-95) |  |",
            ]
        );
    }
}
