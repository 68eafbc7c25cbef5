//! Can flows of Sidestep be told from other UDP? Captures of pairs in labs are laid beside captures of other programs,
//! and `reference/recognise.py` judges them: rules of a few lines, nDPI where it is installed, a classifier that learns.

pub(crate) mod command;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lab::capture::Recording;
use lab::command::{check, find};
use lab::namespaces::check_neighbors;
use lab::{Error, Lab, Node, prefix};
use serde::{Deserialize, Serialize};

use super::active::traffic;
use crate::comparison::masked::Masked;

/// The judges.
const JUDGES: &str = include_str!("../../../../../reference/recognise.py");

/// The Python that Debian's packages are for.
const PYTHON: &str = "/usr/bin/python3";

/// nDPI's program that reads captures.
const NDPI: &str = "ndpiReader";

/// Datagrams that each host sends in a second, by pair, again and again.
const RATES: [f64; 4] = [1.0, 5.0, 20.0, 80.0];

/// How long one gateway of a pair is up before the other: its first messages are not answered.
const ALONE: Duration = Duration::from_secs(4);

/// What is captured, and what it is compared with.
#[derive(Clone, Debug)]
pub(crate) struct RecogniseOptions {
    /// Pairs, and how long each sends.
    pub(crate) pairs: u32,
    pub(crate) seconds: u32,
    /// Rotation, lanes and padding of the pairs.
    pub(crate) rotation: String,
    pub(crate) lanes: u8,
    pub(crate) padding: String,
    /// They carry nothing but WireGuard, masked.
    pub(crate) mask: bool,
    /// Captures of other programs.
    pub(crate) foreign: PathBuf,
    /// What everything that is drawn is drawn from.
    pub(crate) seed: u64,
    /// Where our own captures are kept.
    pub(crate) ours: PathBuf,
}

/// What one judge says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Recognised {
    /// Which.
    pub(crate) judge: String,
    /// Of our flows, those that he takes for ours; nDPI: those that he has a name for.
    pub(crate) hits: u64,
    pub(crate) flows: u64,
    pub(crate) hit_rate: f64,
    /// Of others, those that he takes for ours. A judge that learns is asked where that is one of a hundred.
    #[serde(default)]
    pub(crate) false_hits: u64,
    #[serde(default)]
    pub(crate) foreign_flows: u64,
    /// 0.5 is chance; only of a judge that learns.
    #[serde(default)]
    pub(crate) auc: Option<f64>,
    /// 95 % confidence interval of the AUC (bootstrap over captures), or else of the rate of hits (Wilson).
    pub(crate) interval: [f64; 2],
}

/// Captures pairs in labs, and has the judges compare.
///
/// # Errors
/// When a lab cannot be built, or Python or a package of it is not there.
pub(crate) fn run(
    options: &RecogniseOptions,
    program: &Path,
    stop: &AtomicBool,
) -> Result<Vec<Recognised>, Error> {
    if !options.foreign.is_dir() {
        let directory = options.foreign.display();
        return Err(Error::Usage(format!(
            "no captures of other programs in {directory}: run scripts/captures, or name a directory with --foreign"
        )));
    }
    capture(options, program, stop)?;
    let mut judges = Command::new(PYTHON);
    judges.args(["-B", "-W", "ignore", "-c", JUDGES, "--ours"]).arg(&options.ours);
    judges.arg("--foreign").arg(&options.foreign).args(["--seed", &options.seed.to_string()]);
    if let Some(ndpi) = find(NDPI) {
        judges.arg("--ndpi").arg(ndpi);
    }
    let said = check(&mut judges)?;
    serde_json::from_slice(&said.stdout).map_err(|error| Error::output("reference/recognise.py", error))
}

/// Leaves a capture of each pair, from before its first message on.
fn capture(options: &RecogniseOptions, program: &Path, stop: &AtomicBool) -> Result<(), Error> {
    std::fs::create_dir_all(&options.ours).map_err(|source| Error::file(&options.ours, source))?;
    check_neighbors(Node::ALL.len() as u64 * u64::from(options.pairs))?;
    let (mut alone, mut pairs) = (Vec::new(), Vec::new());
    for _ in 0..options.pairs {
        let mut lab = Lab::builder(program)
            .prefix(&prefix::unique())
            .rotation(&options.rotation)
            .lanes(options.lanes)
            .padding(&options.padding)
            .carry(if options.mask { "mask" } else { "encapsulate" })
            .whole_packets(true)
            .build()?;
        let mut inner = options.mask.then(|| Masked::in_user_space(&options.rotation));
        inner.as_mut().map_or(Ok(()), |inner| inner.prepare(&mut lab))?;
        let recording = Recording::start(&lab, Node::Router, "b")?;
        // What B sends while A is not there yet comes by once. What A sent would be routed to and fro at B.
        lab.gateway_b().start()?;
        alone.push((lab, recording, inner));
    }
    std::thread::sleep(ALONE);
    for (pair, (mut lab, recording, inner)) in (0_u32..).zip(alone) {
        lab.start()?;
        let rate = RATES[pair as usize % RATES.len()];
        let sending = traffic::between(&lab, rate, options.seed.wrapping_add(u64::from(2 * pair)))?;
        pairs.push((lab, recording, (sending, inner)));
    }
    let end = Instant::now() + Duration::from_secs(options.seconds.into());
    while Instant::now() < end && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(100));
    }
    for (number, (_lab, recording, _sending)) in pairs.into_iter().enumerate() {
        let file = recording.file().to_owned();
        recording.finish()?;
        let kept = options.ours.join(format!("pair-{number}.pcap"));
        std::fs::copy(file, &kept).map_err(|source| Error::file(&kept, source))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_judges_find_what_is_there_and_nothing_else() {
        let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/../../reference/test_recognise.py");
        let Ok(run) = Command::new(PYTHON).args(["-B", tests]).output() else {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "this test needs python3");
            return eprintln!("skipped: needs python3");
        };
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "{said}");
        let skipped = said.contains("skipped");
        assert!(
            !skipped || std::env::var("CI").as_deref() != Ok("true"),
            "needs scapy and scikit-learn: {said}"
        );
    }

    #[test]
    fn what_the_judges_print_is_read() {
        let printed = r#"[
            {"judge": "rule: x", "hits": 3, "flows": 4, "false_hits": 1, "foreign_flows": 9, "hit_rate": 0.75,
             "interval": [0.3, 0.95]},
            {"judge": "nDPI", "hits": 0, "flows": 4, "named": {"Unknown": 4}, "hit_rate": 0.0, "interval": [0.0, 0.5]},
            {"judge": "learned", "auc": 0.9, "chance": 0.5, "interval": [0.8, 1.0], "hits": 1, "flows": 4,
             "hit_rate": 0.25, "false_hits": 0, "foreign_flows": 9}
        ]"#;
        let read: Vec<Recognised> = serde_json::from_str(printed).expect("verdicts");
        assert_eq!(read.iter().map(|one| one.auc).collect::<Vec<_>>(), [None, None, Some(0.9)]);
        assert_eq!(read[1].foreign_flows, 0);
    }
}
