//! `sidestep-lab adversary`: somebody on the path sees all datagrams of many pairs of gateways that share their prefixes, and
//! tries to follow a pair from one flow to the next (docs/unlinkability.md).
//!
//! [`scene`] builds the pairs and records what passes between their sites, [`traffic`] is what the pairs carry,
//! [`recording`] turns the capture into flows, [`cost`] is what the gateways say. The judges are a program of Python,
//! `reference/adversary.py`, since the strongest of them learns, by a library that is kept by others; [`verdict`] is what they
//! say, and [`summary`] what they say of several runs.

mod cost;
mod options;
mod recording;
mod scene;
mod summary;
pub(crate) mod traffic;
mod verdict;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lab::Error;
use lab::command::check;

use crate::comparison::{docs, wait};
pub(crate) use options::LinkingOptions;
pub(crate) use summary::{SummaryOptions, run as summarise};
use verdict::{Run, Verdicts};

/// The interpreter: Debian's own, since its package of the library is for that one.
const PYTHON: &str = "/usr/bin/python3";
/// The judges.
const JUDGES: &str = include_str!("../../../../../reference/adversary.py");
/// What happens at the beginning of sessions is not what is judged.
const SETTLE: Duration = Duration::from_secs(8);
/// The same where the tool is tried, not the tunnel.
const SETTLE_QUICK: Duration = Duration::from_secs(2);

/// Runs the pairs, lets the judges look at what was seen, and writes what was asked for.
///
/// # Errors
/// When a pair does not come up, Python or its library is missing, or a file cannot be written.
pub(crate) fn run(
    mut options: LinkingOptions,
    program: &Path,
    stop: &Arc<AtomicBool>,
) -> Result<ExitCode, Error> {
    if options.quick {
        (options.seconds, options.rotation) = (20, "2s".to_owned());
    }
    // Before minutes of traffic, not behind them.
    check(Command::new(PYTHON).args(["-c", "import sklearn"])).map_err(|error| {
        Error::Usage(format!("the judges need scikit-learn (Debian's python3-sklearn): {error}"))
    })?;
    let mut scene = scene::Scene::build(&options, program)?;
    println!("{} pairs are up; {} s of traffic", options.pairs, options.seconds);
    scene.start_traffic(&options)?;
    if !wait(if options.quick { SETTLE_QUICK } else { SETTLE }, stop) {
        return Ok(ExitCode::from(130));
    }
    scene.start_recording()?;
    let whole = wait(Duration::from_secs(options.seconds.into()), stop);
    let (packets, cost) = scene.finish()?;
    let folder = options.report.clone().unwrap_or_else(|| scene.directory().to_owned());
    recording::write(&packets, &options, &folder)?;
    drop(packets);
    let run = Run { settings: options.settings(), cost, found: judge(&folder, options.quick)? };
    let text = run.markdown();
    print!("{text}");
    if let Some(path) = &options.json {
        run.write(path)?;
    }
    if let Some(folder) = &options.report {
        let path = folder.join("index.html");
        std::fs::write(&path, run.page()).map_err(|source| Error::file(&path, source))?;
    }
    if let Some(page) = &options.docs {
        docs::between(&options.mark, &text, page)?;
    }
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::from(130) })
}

/// Lets the judges look at a recording, if it is to be quick at the cost of what they find.
fn judge(folder: &Path, quick: bool) -> Result<Verdicts, Error> {
    let mut judges = Command::new(PYTHON);
    judges.args(["-c", JUDGES]).arg(folder).args(quick.then_some("--quick"));
    let output = check(&mut judges)?;
    Verdicts::read(&output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_judges_catch_what_is_weak_and_find_nothing_where_nothing_is() {
        let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/../../reference/test_adversary.py");
        let Ok(run) = Command::new(PYTHON).args(["-B", tests]).output() else {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "this test needs python3");
            return eprintln!("skipped: needs python3");
        };
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    }
}
