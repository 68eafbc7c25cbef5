//! `sidestep-lab adversary`: somebody on the path sees all datagrams of many pairs of gateways that share their prefixes, and
//! tries to follow a pair from one flow to the next (docs/unlinkability.md).
//!
//! [`scene`] builds the pairs and records what passes between their sites, [`traffic`] is what the pairs carry,
//! [`recording`] turns the capture into flows. The judges are a program of Python, `reference/adversary.py`, since the
//! strongest of them learns, by a library that is kept by others; [`verdict`] is what they say.

mod recording;
mod scene;
pub(crate) mod traffic;
mod verdict;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use lab::Error;
use lab::command::check;

use crate::comparison::docs;
use traffic::Kind;
use verdict::Verdicts;

/// The interpreter: Debian's own, since its package of the library is for that one.
const PYTHON: &str = "/usr/bin/python3";
/// The judges.
const JUDGES: &str = include_str!("../../../../../reference/adversary.py");
/// What happens at the beginning of sessions is not what is judged.
const SETTLE: Duration = Duration::from_secs(8);

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
    /// Half a minute at a rotation of 2 s: to try the tool, not the tunnel
    #[arg(long, conflicts_with_all = ["seconds", "rotation"])]
    quick: bool,
    /// Write the verdicts to this file
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write a page with plots into this directory, and the flows and verdicts
    #[arg(long)]
    report: Option<PathBuf>,
    /// Put the table between the marks of this name in `--docs`
    #[arg(long, default_value = "adversary")]
    mark: String,
    /// Put the table into this Markdown page
    #[arg(long)]
    docs: Option<PathBuf>,
    /// What the names of the namespaces begin with
    #[arg(long, default_value = "adv", hide = true)]
    pub(crate) prefix: String,
}

/// Runs the pairs, lets the judges look at what was seen, and writes what was asked for.
///
/// # Errors
/// When a pair does not come up, Python or its library is missing, or a file cannot be written.
pub(crate) fn run(mut options: LinkingOptions, program: &Path, stop: &Arc<AtomicBool>) -> Result<ExitCode, Error> {
    if options.quick {
        (options.seconds, options.rotation) = (30, "2s".to_owned());
    }
    // Before minutes of traffic, not behind them.
    check(Command::new(PYTHON).args(["-c", "import sklearn"])).map_err(|error| {
        Error::Usage(format!("the judges need scikit-learn (Debian's python3-sklearn): {error}"))
    })?;
    let mut scene = scene::Scene::build(&options, program)?;
    println!("{} pairs are up; {} s of traffic", options.pairs, options.seconds);
    scene.start_traffic(&options)?;
    if !wait(SETTLE, stop) {
        return Ok(ExitCode::from(130));
    }
    scene.start_recording()?;
    let whole = wait(Duration::from_secs(options.seconds.into()), stop);
    let packets = scene.finish()?;
    let folder = options.report.clone().unwrap_or_else(|| scene.directory().to_owned());
    recording::write(&packets, &options, &folder)?;
    drop(packets);
    let verdicts = judge(&folder)?;
    let table = verdicts.markdown();
    print!("{}\n{table}", options.settings());
    if let Some(path) = &options.json {
        verdicts.write(path)?;
    }
    if let Some(folder) = &options.report {
        let path = folder.join("index.html");
        std::fs::write(&path, verdicts.page(&options.settings()))
            .map_err(|source| Error::file(&path, source))?;
    }
    if let Some(page) = &options.docs {
        docs::between(&options.mark, &format!("{}\n{table}", options.settings()), page)?;
    }
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::from(130) })
}

impl LinkingOptions {
    /// The kind of a pair's traffic.
    pub(crate) fn kind(&self, pair: u8) -> Kind {
        self.only.unwrap_or(Kind::ALL[usize::from(pair) % Kind::ALL.len()])
    }

    fn settings(&self) -> String {
        let traffic =
            self.only.map_or("a mix of ten kinds".to_owned(), |kind| format!("{kind:?}").to_lowercase());
        let more: String = self.peer.iter().map(|line| format!(", `{line}`")).collect();
        format!(
            "{} pairs, {} s, rotation {}, {} lanes{more}; traffic: {traffic}; seed {}.\n",
            self.pairs, self.seconds, self.rotation, self.lanes, self.seed
        )
    }
}

/// Lets the judges look at a recording.
fn judge(folder: &Path) -> Result<Verdicts, Error> {
    let output = check(Command::new(PYTHON).args(["-c", JUDGES]).arg(folder))?;
    Verdicts::read(&output.stdout)
}

/// Waits; false if it was told to stop.
fn wait(time: Duration, stop: &AtomicBool) -> bool {
    let end = Instant::now() + time;
    while Instant::now() < end && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(50));
    }
    !stop.load(Ordering::Relaxed)
}
