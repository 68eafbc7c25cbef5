//! What is to be judged.

use std::path::PathBuf;

use clap::Args;

use super::traffic::Kind;

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
    /// Lanes (1 to 16)
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(crate) lanes: u8,
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

    /// All of it, as a sentence.
    pub(super) fn settings(&self) -> String {
        let traffic =
            self.only.map_or("a mix of ten kinds".to_owned(), |kind| format!("{kind:?}").to_lowercase());
        let more: String = self.peer.iter().map(|line| format!(", `{line}`")).collect();
        format!(
            "{} pairs, {} s, rotation {}, {} lanes{more}; traffic: {traffic}; seed {}.\n",
            self.pairs, self.seconds, self.rotation, self.lanes, self.seed
        )
    }
}
