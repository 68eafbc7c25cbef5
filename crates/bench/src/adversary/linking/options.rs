//! What is to be judged.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::traffic::Kind;

/// What an end that wants no shape writes, in TOML.
const NO_SHAPE: &str = "\"none\"";

/// How many pairs, what they are set to and carry, and where the results go.
#[derive(Clone, Debug, Args)]
pub(crate) struct LinkingOptions {
    /// Pairs of gateways
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u8).range(8..=64))]
    pub(crate) pairs: u8,
    /// Seconds of traffic
    #[arg(long, default_value_t = 150, value_parser = clap::value_parser!(u32).range(20..=86_400))]
    pub(crate) seconds: u32,
    /// What is drawn is drawn from this
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// The same kind of traffic in all pairs [default: a mix of ten kinds]
    #[arg(long)]
    pub(crate) only: Option<Kind>,
    /// Rotation interval
    #[arg(long, default_value = "10s")]
    pub(crate) rotation: String,
    /// Lanes (1 to 16) [default: 3; 6 with a shape]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(crate) lanes: Option<u8>,
    /// What `shape` is set to, as `{ constant = "2Mbit/s" }`
    #[arg(long, value_name = "SHAPE", default_value = NO_SHAPE)]
    pub(crate) shape: String,
    /// The pairs carry nothing but WireGuard (wireguard-go), masked, and what is in that
    #[arg(long, conflicts_with = "shape")]
    pub(crate) mask: bool,
    /// Further lines of each peer's configuration, as `padding = "full"`
    #[arg(long, value_name = "LINE")]
    pub(crate) peer: Vec<String>,
    /// 20 seconds at a rotation of 2 s, and judges in a hurry: to try the tool, not the tunnel
    #[arg(long, conflicts_with_all = ["seconds", "rotation"])]
    pub(super) quick: bool,
    /// Write the verdicts to this file
    #[arg(long)]
    pub(super) json: Option<PathBuf>,
    /// Write a page with plots into this directory, and the flows and verdicts
    #[arg(long)]
    pub(super) report: Option<PathBuf>,
    /// Put the table between the marks of this name in `--docs`
    #[arg(long, default_value = "adversary")]
    pub(super) mark: String,
    /// Put the table into this Markdown page
    #[arg(long)]
    pub(super) docs: Option<PathBuf>,
    /// What the names of the namespaces begin with
    #[arg(long, default_value = "adv", hide = true)]
    pub(crate) prefix: String,
}

impl LinkingOptions {
    /// The kind of a pair's traffic.
    pub(crate) fn kind(&self, pair: u8) -> Kind {
        self.only.unwrap_or(Kind::ALL[usize::from(pair) % Kind::ALL.len()])
    }

    /// How many lanes the pairs have: those asked for, or as many as by default (docs/operations.md).
    pub(crate) fn lanes(&self) -> u8 {
        self.lanes.unwrap_or(if self.shape == NO_SHAPE { 3 } else { 6 })
    }

    /// What the verdicts are about.
    pub(super) fn settings(&self) -> Settings {
        let mut peer = self.peer.clone();
        if self.mask {
            peer.insert(0, "carry = \"mask\"".to_owned());
        }
        if self.shape != NO_SHAPE {
            peer.insert(0, format!("shape = {}", self.shape));
        }
        Settings {
            pairs: self.pairs,
            seconds: self.seconds,
            rotation: self.rotation.clone(),
            lanes: self.lanes(),
            peer,
            traffic: self.only.map_or("a mix of ten kinds".to_owned(), |kind| kind.to_string()),
            seed: self.seed,
        }
    }
}

/// What was judged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Settings {
    pub(super) pairs: u8,
    pub(super) traffic: String,
    /// Lines of each peer's configuration.
    pub(super) peer: Vec<String>,
    pub(super) lanes: u8,
    pub(super) rotation: String,
    pub(super) seconds: u32,
    pub(super) seed: u64,
}

impl std::fmt::Display for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Settings { pairs, traffic, peer, lanes, rotation, seconds, seed } = self;
        let more: String = peer.iter().map(|line| format!(", `{line}`")).collect();
        write!(
            f,
            "{pairs} pairs, {seconds} s, rotation {rotation}, {lanes} lanes{more}; traffic: {traffic}; seed {seed}."
        )
    }
}
