//! Helpers: what a lab runs on its machines and no package has (a bad link, the end of a tunnel, senders and
//! receivers of numbered datagrams, a capture). What they do is in this crate; they are commands of the program
//! `sidestep-lab`, so that a lab can outlive the command that built it.

use std::path::PathBuf;

use crate::Error;
use crate::command::find;

/// The program that has them.
const PROGRAM: &str = "sidestep-lab";

/// Where that program is: what `SIDESTEP_LAB_BIN` names; otherwise in the folder of the program that runs, or above it,
/// where a test's is; otherwise on the path.
///
/// # Errors
/// When it is nowhere.
pub fn program() -> Result<PathBuf, Error> {
    if let Some(named) = std::env::var_os("SIDESTEP_LAB_BIN") {
        return Ok(named.into());
    }
    let own = std::env::current_exe().unwrap_or_default();
    let beside =
        own.ancestors().skip(1).take(2).map(|folder| folder.join(PROGRAM)).find(|file| file.is_file());
    beside.or_else(|| find(PROGRAM)).ok_or_else(|| {
        Error::Usage(format!("`{PROGRAM}` is not there: build it, or name it in SIDESTEP_LAB_BIN"))
    })
}
