//! What `sidestep-lab experiment` is told.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use lab::topology::Topology;

use crate::experiment::plan::Experiment;

/// What to repeat, how thoroughly, and where it goes.
#[derive(Clone, Debug, Args)]
pub struct ExperimentOptions {
    /// Which part of the plan
    #[arg(value_enum)]
    pub(super) name: Experiment,
    /// Only between gateways that are connected so [default: routed; `topologies`, `loss` and `all`: each]
    #[arg(long, value_enum)]
    pub(super) topology: Option<Topology>,
    /// How often each measurement is made [default: 3, where many settings are compared 2; with --full 10, as published;
    /// `loss`, --quick: 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) runs: Option<u32>,
    /// The published lengths, sizes and rotation intervals: hours, `all` more than a day
    #[arg(long)]
    pub(super) full: bool,
    /// As little as there can be, to see whether it works (`t1`, `t2`, `t3`, `gateway`, `nat64`)
    #[arg(long, conflicts_with = "full")]
    pub(super) quick: bool,
    /// Seconds of each TCP flow (`t1`, `t2`, `t3`, `gateway`, `nat64`) [default: 1; with --full 10]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub(super) seconds: Option<u32>,
    /// How long the long run is: 90s, 20m, 12h, 7d [default: 60s]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub(super) duration: Option<Duration>,
    /// Only these contenders; an unknown name shows all there are [default: all that are here]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(super) against: Vec<String>,
    /// Directory of the measurements and the report; an interrupted run goes on there [default: report/experiments;
    /// `t1`, `t2`, `t3`, `gateway`: report/gateway, which they share; `nat64`: report/nat64]
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// Put the tables into this Markdown page, between `<!-- experiments:begin -->` and `<!-- experiments:end -->`; those
    /// of `loss` between `<!-- loss:begin -->` and `<!-- loss:end -->`, of `t1`, `t2` and `t3` between
    /// `<!-- gateway:begin -->` and `<!-- gateway:end -->`, of `nat64` between `<!-- nat64:begin -->` and
    /// `<!-- nat64:end -->`
    #[arg(long, value_name = "FILE")]
    pub(super) docs: Option<PathBuf>,
    /// What the names of the labs' namespaces begin with, before a number for each lab
    #[arg(long, default_value = "exp")]
    pub(super) prefix: String,
}

impl ExperimentOptions {
    pub(super) fn out(&self, default: &str) -> PathBuf {
        self.out.clone().unwrap_or_else(|| default.into())
    }
}

/// A text that is no time.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}`: expected a number and a unit, such as 90s or 7d")]
struct NoTime(String);

/// A time with its unit, as `90s` or `7d`.
fn duration(text: &str) -> Result<Duration, NoTime> {
    let duration = humantime::parse_duration(text).ok().filter(|duration| !duration.is_zero());
    duration.ok_or_else(|| NoTime(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(duration("7d"), Ok(Duration::from_secs(604_800)));
        for wrong in ["", "10", "0s", "5 x", "99999999999999999999d"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
