//! Pairs of gateways, each with an attacker on the path between them, and traffic behind both.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lab::namespaces::check_neighbors;
use lab::process::tail;
use lab::{Error, Lab, Node, prefix};

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
    /// Ends before the lab does.
    _traffic: Sending,
    lab: Lab,
}

/// Has all pairs attacked at once; what was seen, by pair.
pub(super) fn run(
    options: &ActiveOptions,
    kinds: &[Kind],
    shares: &[Share],
    program: &Path,
    stop: &AtomicBool,
) -> Result<Vec<Vec<Outcome>>, Error> {
    check_neighbors((Node::ALL.len() * shares.len()) as u64)?;
    let mut scenes = Vec::new();
    for share in shares {
        scenes.push(Scene::start(options, *share, program)?);
    }
    let moments = shares.iter().map(|share| share.tries * kinds.len() as u32 + share.baseline).max();
    let each = window::WINDOWS[1] + Duration::from_secs(1);
    let expected = options.settle() + each / options.scale * moments.unwrap_or(0);
    let deadline = Instant::now() + expected * 2 + GRACE;
    let mut outcomes = Vec::new();
    loop {
        let mut running = Vec::new();
        for scene in scenes {
            match scene.outcomes()? {
                Some(seen) => outcomes.push(seen),
                None => running.push(scene),
            }
        }
        scenes = running;
        // Interrupted, those that are done count.
        let Some(first) = scenes.first().filter(|_| !stop.load(Ordering::Relaxed)) else {
            return Ok(outcomes);
        };
        if Instant::now() > deadline {
            let log = tail(&first.log());
            return Err(Error::output("an attacker", format!("not done after {:?}: {log}", expected * 2)));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

impl Scene {
    fn start(options: &ActiveOptions, share: Share, program: &Path) -> Result<Self, Error> {
        let prefix = prefix::unique();
        let mut command = ["man-in-the-middle", "left", "right"].map(String::from).to_vec();
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
        Ok(Self { _traffic, lab })
    }

    /// What the attacker saw, once it is done: it prints that on one line, after whatever it complained of.
    fn outcomes(&self) -> Result<Option<Vec<Outcome>>, Error> {
        let log = self.log();
        let text = std::fs::read_to_string(&log).map_err(|source| Error::file(&log, source))?;
        let Some(line) =
            text.split_inclusive('\n').find(|line| line.starts_with('[') && line.ends_with('\n'))
        else {
            return Ok(None);
        };
        serde_json::from_str(line).map(Some).map_err(|error| Error::output("an attacker's outcomes", error))
    }

    /// Where the attacker writes, who is in the place of the lab's relay.
    fn log(&self) -> PathBuf {
        self.lab.directory().join("relay.log")
    }
}
