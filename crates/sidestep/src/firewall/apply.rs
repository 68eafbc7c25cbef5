//! The table in the kernel: put there, confirmed, taken away.
//!
//! `apply --confirm` saves the table that is there as text, starts a guard, and only then changes anything. The guard
//! is a process in a session of its own, so that it outlives the terminal that the change may cut off. It holds a lock
//! on the saved table, waits, and puts it back if it is still there; `confirm` removes it. Whoever removes the file
//! first decides, so a confirmation either counts or fails. A guard that is killed (SIGKILL) puts nothing back: the
//! lock is free then, `confirm` says so, and the next `apply` is not held up by it. A restart of the machine leaves
//! neither table.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use gateway::firewall::TABLE;
use gateway::firewall::compile::{Existing, replace};
use serde_json::Value;

use super::compiled;
use crate::cli::{Failure, print};
use crate::config::Firewall;
use crate::control;

/// `firewall apply`
pub(super) fn apply(firewall: &Firewall, file: &Path, confirm: Option<Duration>) -> Result<(), Failure> {
    refuse_while_waiting()?;
    if let Some(after) = confirm {
        start_guard(after)?;
    }
    let script = marked(&compiled(firewall).script, APPLIED).1;
    let done = in_place(&script).and_then(|script| Ok(linux::nft::apply(&script)?));
    if let Err(error) = done {
        // Nothing was changed, so nothing is to be put back.
        if confirm.is_some() {
            let _ = fs::remove_file(saved()?);
        }
        return Err(error);
    }
    let shown = file.display();
    match confirm {
        None => print(format_args!("{shown}: applied\n")),
        Some(after) => print(format_args!(
            "{shown}: applied; `sidestep firewall confirm` within {}s keeps it\n",
            after.as_secs_f64()
        )),
    }
}

/// `firewall confirm`
pub(super) fn confirm() -> Result<(), Failure> {
    let path = saved()?;
    let guarded = is_guarded(&path)?;
    match fs::remove_file(&path) {
        Ok(()) if guarded => print("confirmed: the firewall stays as it is\n"),
        Ok(()) => print("the guard of this change was killed and has put nothing back: the firewall stays as it is\n"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Failure::Message(
            "nothing waits for a confirmation: the time is over, and the firewall before it is back, or nothing was \
             applied with --confirm"
                .to_owned(),
        )),
        Err(error) => Err(Failure::Message(format!("cannot remove {}: {error}", path.display()))),
    }
}

/// `firewall remove`
pub(super) fn remove() -> Result<(), Failure> {
    refuse_while_waiting()?;
    if linux::nft::list_inet(TABLE, true)?.is_none() {
        return print("no firewall is applied\n");
    }
    linux::nft::apply(&format!("delete table inet {TABLE}\n"))?;
    print("the firewall is removed: everything passes, until a `sidestep up` that has one puts it back\n")
}

/// `firewall guard`: says a line when it is ready, then waits.
pub(super) fn guard(after: Duration) -> Result<(), Failure> {
    // Not the first process of its group: that is the shell that it was started from, or nobody minds.
    let _ = linux::process::new_session();
    let path = saved()?;
    let mut file = File::open(&path).map_err(|error| unusable(&path, &error))?;
    file.lock().map_err(|error| unusable(&path, &error))?;
    print("ready\n")?;
    std::thread::sleep(after);
    let mut before = String::new();
    file.read_to_string(&mut before).map_err(|error| unusable(&path, &error))?;
    match fs::remove_file(&path) {
        Ok(()) => put_back(&before),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(unusable(&path, &error)),
    }
}

/// Puts a saved table back; an empty text is none.
fn put_back(before: &str) -> Result<(), Failure> {
    let script = if before.is_empty() {
        format!("add table inet {TABLE}\ndelete table inet {TABLE}\n")
    } else {
        in_place(before)?
    };
    Ok(linux::nft::apply(&script)?)
}

/// Saves the table, and starts a process that will put it back.
fn start_guard(after: Duration) -> Result<(), Failure> {
    let path = saved()?;
    let before = linux::nft::list_inet(TABLE, false)?.unwrap_or_default();
    let written = fs::create_dir_all(control::FOLDER).and_then(|()| {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        file.write_all(before.as_bytes())
    });
    written.map_err(|error| unusable(&path, &error))?;
    let program = std::env::current_exe()?;
    let after = format!("{}us", after.as_micros());
    let mut child = Command::new(program)
        .args(["firewall", "guard", "--after", &after])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut ready = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut ready)?;
    }
    if ready.is_empty() {
        let _ = fs::remove_file(&path);
        return Err(Failure::Message("the guard does not start: nothing was changed".to_owned()));
    }
    Ok(())
}

/// What puts a table in the place of the one that is in the kernel, in one step.
pub(crate) fn in_place(script: &str) -> Result<String, Failure> {
    Ok(replace(&existing()?, script))
}

/// Who has put a table into the kernel: the first part of its mark's name.
pub(crate) const UP: &str = "up";
const APPLIED: &str = "applied";

/// A mark, and the script with it: an empty chain that tells which table is in force, and who has put it there. With any
/// other table in its place it is gone.
pub(crate) fn marked(script: &str, by: &str) -> (String, String) {
    let mut hasher = DefaultHasher::new();
    script.hash(&mut hasher);
    let mark = format!("{by}-{:016x}", hasher.finish());
    let script = format!("{script}add chain inet {TABLE} {mark}\n");
    (mark, script)
}

/// Whether this firewall is the one in the kernel.
pub(super) fn is_in_force(firewall: &Firewall) -> linux::Result<bool> {
    let script = compiled(firewall).script;
    for by in [UP, APPLIED] {
        if linux::nft::has_chain(TABLE, &marked(&script, by).0)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A change that waits for its confirmation is not changed again.
pub(crate) fn refuse_while_waiting() -> Result<(), Failure> {
    if is_guarded(&saved()?)? {
        return Err(Failure::Message(
            "a change waits for its confirmation: run `sidestep firewall confirm`, or wait until it is undone".to_owned(),
        ));
    }
    Ok(())
}

/// Whether a guard holds the saved table.
fn is_guarded(path: &Path) -> Result<bool, Failure> {
    match File::open(path) {
        Ok(file) => match file.try_lock() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(unusable(path, &error)),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(unusable(path, &error)),
    }
}

fn unusable(path: &Path, error: &io::Error) -> Failure {
    Failure::Message(format!("cannot use {}: {error}", path.display()))
}

/// The saved table of this network namespace.
fn saved() -> Result<PathBuf, Failure> {
    let namespace = fs::metadata("/proc/thread-self/ns/net")?.ino();
    Ok(Path::new(control::FOLDER).join(format!("firewall-{namespace}.before")))
}

/// What is in the table now.
fn existing() -> Result<Existing, Failure> {
    let Some(listing) = linux::nft::list_inet(TABLE, true)? else { return Ok(Existing::default()) };
    let listing: Value = serde_json::from_str(&listing)?;
    let names = |kind: &str| -> Vec<String> {
        let objects = listing["nftables"].as_array().into_iter().flatten();
        objects.filter_map(|object| Some(object[kind]["name"].as_str()?.to_owned())).collect()
    };
    Ok(Existing { chains: names("chain"), maps: names("map") })
}
