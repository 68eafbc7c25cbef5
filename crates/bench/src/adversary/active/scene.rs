//! Pairs of gateways, each with an attacker on the path between them, and traffic behind both.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lab::process::tail;
use lab::{Error, Lab, prefix};

use super::attacker::Outcome;
use super::kind::Kind;
use super::options::ActiveOptions;
use super::traffic::{self, Sending};
use super::window;

/// Datagrams that each host sends in a second.
const RATE: f64 = 20.0;

/// Beyond the time that the tries should take, this much is waited for, and the whole once more.
const GRACE: Duration = Duration::from_secs(90);

/// The part of the tries that one pair is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) pair: u32,
    pub(super) tries: u32,
    pub(super) baseline: u32,
}

/// One pair under attack.
struct Scene {
    lab: Lab,
    /// Where the attacker writes what it saw.
    outcomes: PathBuf,
    _traffic: Sending,
}

/// Has all pairs attacked at once; what was seen, by pair.
pub(super) fn run(
    options: &ActiveOptions,
    kinds: &[Kind],
    shares: &[Share],
    program: &Path,
    stop: &AtomicBool,
) -> Result<Vec<Vec<Outcome>>, Error> {
    let mut scenes = Vec::new();
    for share in shares {
        scenes.push(Scene::start(options, *share, program)?);
    }
    let moments = shares.iter().map(|share| share.tries * kinds.len() as u32 + share.baseline).max();
    let each = window::WINDOWS[1] + Duration::from_secs(1);
    let expected = options.settle() + each / options.scale * moments.unwrap_or(0);
    let deadline = Instant::now() + expected * 2 + GRACE;
    while !stop.load(Ordering::Relaxed) && !scenes.iter().all(|scene| scene.outcomes.is_file()) {
        if Instant::now() > deadline {
            let log = tail(&scenes[0].lab.directory().join("relay.log"));
            return Err(Error::output("the attackers", format!("not done after {:?}: {log}", expected * 2)));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    // Interrupted, those that are done count.
    scenes.iter().filter(|scene| scene.outcomes.is_file()).map(Scene::finish).collect()
}

impl Scene {
    fn start(options: &ActiveOptions, share: Share, program: &Path) -> Result<Self, Error> {
        let prefix = prefix::unique();
        let outcomes = std::env::temp_dir().join(format!("{prefix}-outcomes.json"));
        let _ = std::fs::remove_file(&outcomes);
        let mut command: Vec<String> =
            ["man-in-the-middle", "left", "right", "--outcomes"].map(String::from).into();
        command.push(outcomes.to_string_lossy().into_owned());
        for (name, value) in [
            ("--tries", u64::from(share.tries)),
            ("--baseline", u64::from(share.baseline)),
            ("--settle", options.settle().as_secs()),
            ("--scale", u64::from(options.scale)),
            ("--seed", options.seed.wrapping_mul(1_000).wrapping_add(u64::from(share.pair))),
        ] {
            command.extend([name.to_owned(), value.to_string()]);
        }
        command.extend(options.kinds.iter().map(|kind| format!("--kinds={kind}")));
        let mut lab = Lab::builder(program)
            .prefix(&prefix)
            .rotation(&options.rotation)
            .lanes(options.lanes)
            .padding(&options.padding)
            .man_in_the_middle(command)
            .build()?;
        lab.start()?;
        let seed = options.seed.wrapping_add(u64::from(2 * share.pair));
        let _traffic = traffic::between(&lab, RATE, seed)?;
        Ok(Self { lab, outcomes, _traffic })
    }

    fn finish(&self) -> Result<Vec<Outcome>, Error> {
        let text = std::fs::read(&self.outcomes).map_err(|source| Error::file(&self.outcomes, source))?;
        serde_json::from_slice(&text).map_err(|error| Error::output("an attacker's outcomes", error))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.outcomes);
    }
}
