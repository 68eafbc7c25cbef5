//! Pairs of gateways, each with an attacker on the path between them, and traffic behind both.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lab::process::{Process, tail};
use lab::{Error, Lab, Site, helper, prefix, relay};

use super::attacker::{Attacker, Outcome, Plan};
use super::kind::Kind;
use super::{ActiveOptions, window};
use crate::helper::ManInTheMiddle;

/// Where the traffic behind the gateways goes.
const PORT: u16 = 4_242;

/// Datagrams that each host sends in a second.
const RATE: u32 = 20;

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
    traffic: Vec<Process>,
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
        let traffic = [Site::A, Site::B]
            .map(|site| {
                let seed = options.seed.wrapping_add(u64::from(2 * share.pair) + site as u64).to_string();
                let (own, other) = (lab.host(site), lab.host(site.other()));
                let addresses = [format!("[{own}]:{PORT}"), format!("[{other}]:{PORT}")];
                let [listen, to] = &addresses;
                let program = helper::program()?;
                let program = program.to_string_lossy();
                let rate = RATE.to_string();
                let words =
                    [&program, "udp-drawn", "--listen", listen, "--to", to, "--rate", &rate, "--seed", &seed];
                lab.spawn(site.host_node(), words, &format!("traffic-{}", site.letter()))
            })
            .into_iter()
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self { lab, outcomes, traffic })
    }

    fn finish(&self) -> Result<Vec<Outcome>, Error> {
        let text = std::fs::read(&self.outcomes).map_err(|source| Error::file(&self.outcomes, source))?;
        serde_json::from_slice(&text).map_err(|error| Error::output("an attacker's outcomes", error))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for process in self.traffic.drain(..) {
            process.kill();
        }
        let _ = std::fs::remove_file(&self.outcomes);
    }
}

/// The attacker's process: carries the frames of the middle link until `stop` is set, and writes what it saw when all
/// is tried.
///
/// # Errors
/// When an interface is not there or the file cannot be written.
pub(crate) fn man_in_the_middle(command: &ManInTheMiddle, stop: &Arc<AtomicBool>) -> Result<(), Error> {
    let plan = Plan {
        kinds: Kind::chosen(&command.kinds),
        tries: command.tries,
        baseline: command.baseline,
        settle: Duration::from_secs(command.settle),
        scale: command.scale.max(1),
        seed: command.seed,
    };
    let mut reporting =
        Reporting { attacker: Attacker::new(plan), to: Some(command.outcomes.clone()), failed: None };
    relay::carry(&command.left, &command.right, &mut reporting, stop)?;
    reporting.failed.map_or(Ok(()), |source| Err(Error::file(&command.outcomes, source)))
}

/// An attacker that writes a file when it is done, and then only carries frames.
struct Reporting {
    attacker: Attacker,
    to: Option<PathBuf>,
    failed: Option<std::io::Error>,
}

impl relay::Middle for Reporting {
    fn push(&mut self, now: Duration, from: usize, frame: &[u8]) {
        self.attacker.push(now, from, frame);
    }

    fn pop(&mut self, now: Duration) -> Option<(usize, Vec<u8>)> {
        let leaving = self.attacker.pop(now);
        if let Some(outcomes) = self.attacker.outcomes()
            && let Some(path) = self.to.take()
        {
            // Whoever sees the file sees all of it.
            let part = path.with_extension("part");
            let text = serde_json::to_vec(outcomes).unwrap_or_default();
            self.failed = std::fs::write(&part, text).and_then(|()| std::fs::rename(part, path)).err();
        }
        leaving
    }

    fn next_departure(&self) -> Option<Duration> {
        self.attacker.next_departure()
    }
}
