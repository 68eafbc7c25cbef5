//! What both gateways know, and how it is waited for.

use std::path::Path;
use std::time::{Duration, Instant};

use lab::Error;
use lab::process::{Process, tail};
use lab::topology::Site;

pub(super) const KEY: &str = "a key that both gateways know";
/// How long it may take until all children are there.
const PATIENCE: Duration = Duration::from_secs(60);

/// The networks of a child at a site: the first one's are the lab's own.
pub(super) fn selectors(site: Site, number: u16) -> Vec<String> {
    match number {
        0 => site.inner_prefixes().map(str::to_owned).to_vec(),
        _ => vec![format!("fd00:{}:{number:x}::/64", site.letter())],
    }
}

/// Waits until `count` finds so many children, as long as all processes run. `log` is quoted when they do not come.
pub(super) fn wait_for_children(
    children: u16,
    processes: &mut [Process],
    log: &Path,
    count: impl Fn() -> Result<usize, Error>,
) -> Result<(), Error> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let there = count()?;
        if there >= usize::from(children) {
            return Ok(());
        }
        let ended =
            processes.iter_mut().find_map(|process| process.ended().map(|_| process.log().to_owned()));
        if ended.is_some() || Instant::now() > deadline {
            let log = ended.as_deref().unwrap_or(log);
            return Err(Error::output("the tunnel", format!("{there} children: {}", tail(log))));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
