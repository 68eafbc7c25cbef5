//! The firewall's table in the kernel: put there, confirmed, taken away, counted.
//!
//! [`apply`] with a time to confirm saves the table that is there as text, starts a guard, and only then changes anything.
//! The guard is a process in a session of its own, so that it outlives the terminal that the change may cut off. It holds a lock
//! on the saved table, waits, and puts it back if it is still there; `confirm` removes it. Its time begins when the change is
//! made, or whoever makes it is gone: before, there is nothing to undo. Whoever removes the file first decides, so a
//! confirmation either counts or fails. A guard that is killed (SIGKILL) puts nothing back: the lock is free then,
//! `confirm` says so, and the next `apply` is not held up by it. A restart of the machine leaves neither table.
//!
//! A gateway that starts meanwhile leaves the table that is there ([`resume`]). One that ends takes its table along, and then
//! nothing is to come back: the saved table gets another name ([`interrupt`]), by which only a start in the guard's time finds it.

mod count;
mod explain;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

use config::Firewall;
use linux::ruleset::{self, Family};
use router::firewall::TABLE;
use router::firewall::compile::{Existing, replace};
use router::firewall::{Compiled, TimeZone, compile};

pub use count::{Count, Counts};
pub use explain::{explain, place, reason};

/// Why the firewall cannot be changed, or asked about.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A change waits for its confirmation, and is not changed again.
    #[error("a change awaits confirmation: run `sidestep firewall confirm`, or wait until it is undone")]
    Unconfirmed,
    /// There is nothing to confirm.
    #[error(
        "nothing awaits confirmation: the time is over, and the previous firewall is restored, or nothing was \
         applied with --confirm"
    )]
    NothingToConfirm,
    /// What is to undo the change does not start.
    #[error("cannot start the process that would restore the firewall: nothing was changed")]
    NoGuard,
    /// The saved table cannot be used.
    #[error("cannot use {}: {source}", path.display())]
    Unusable {
        /// Its file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The saved table cannot be removed, so that nothing is confirmed.
    #[error("cannot remove {}: {source}", path.display())]
    NotRemoved {
        /// Its file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// nft, or the kernel, refused something.
    #[error("{0}")]
    Kernel(#[from] linux::Error),
    /// A process, or the number of this network namespace.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// The table, for the time zone of this machine.
pub fn compiled(firewall: &Firewall) -> Compiled {
    let zone = TimeZone {
        ahead: linux::clock::utc_offset_minutes(),
        kernel_behind: linux::clock::kernel_minutes_behind_utc(),
    };
    compile(&firewall.policy, zone)
}

/// Puts a firewall into the kernel, in place of the one before, in one step. With `confirm` the one before comes back
/// after this time, unless [`confirm`] is called.
///
/// # Errors
/// Nothing was changed then.
pub fn apply(firewall: &Firewall, confirm: Option<Duration>) -> Result<(), Error> {
    refuse_while_pending()?;
    // This one is meant, whatever was not confirmed before a gateway ended.
    let _ = fs::remove_file(interrupted()?);
    let waits = confirm.map(start_guard).transpose()?;
    let script = marked(&compiled(firewall).script, APPLIED).1;
    let done = replacing(&script).and_then(|script| Ok(linux::nft::apply(&script)?));
    if done.is_err() && confirm.is_some() {
        // Nothing was changed, so nothing is to be put back.
        let _ = fs::remove_file(saved()?);
    }
    drop(waits);
    done
}

/// What was confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confirmed {
    /// A change that was about to be undone.
    InTime,
    /// One whose guard was killed, and has put nothing back.
    WithoutGuard,
}

/// Keeps what was applied and waits for its confirmation.
///
/// # Errors
/// [`Error::NothingToConfirm`] if it comes too late.
pub fn confirm() -> Result<Confirmed, Error> {
    let path = saved()?;
    let guarded = is_guarded(&path)?;
    match fs::remove_file(&path) {
        Ok(()) if guarded => Ok(Confirmed::InTime),
        Ok(()) => Ok(Confirmed::WithoutGuard),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Error::NothingToConfirm),
        Err(source) => Err(Error::NotRemoved { path, source }),
    }
}

/// Removes the firewall from the kernel; whether there was one.
///
/// # Errors
/// If a change waits for its confirmation, or the kernel refuses.
pub fn remove() -> Result<bool, Error> {
    refuse_while_pending()?;
    if !ruleset::has_table(Family::Inet, TABLE)? {
        return Ok(false);
    }
    linux::nft::apply(&format!("delete table inet {TABLE}\n"))?;
    Ok(true)
}

/// The process that [`apply`] starts: says a line when it is ready, waits for the end of its input, then for so long, and
/// puts the table before back.
///
/// # Errors
/// If the saved table cannot be used, or not be put back.
pub fn guard(after: Duration) -> Result<(), Error> {
    // Not the first process of its group: that is the shell that it was started from, or nobody minds.
    let _ = linux::process::new_session();
    let path = saved()?;
    let unusable = |source| Error::Unusable { path: path.clone(), source };
    let mut file = File::open(&path).map_err(unusable)?;
    file.lock().map_err(unusable)?;
    writeln!(io::stdout(), "ready")?;
    io::copy(&mut io::stdin(), &mut io::sink())?;
    std::thread::sleep(after);
    // Confirmed. There may be another one in its place by now, with a guard of its own.
    if file.metadata().map_err(unusable)?.nlink() == 0 {
        return Ok(());
    }
    let mut before = String::new();
    file.read_to_string(&mut before).map_err(unusable)?;
    match fs::remove_file(&path) {
        Ok(()) => put_back(&before),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let _ = fs::remove_file(interrupted()?);
            Ok(())
        }
        Err(source) => Err(unusable(source)),
    }
}

/// For a gateway that starts with a firewall: whether a change waits for its confirmation, so that the table that is there, or
/// is made now, may be another one soon. One that the end of a gateway has [interrupted](interrupt) waits again. Where there was no
/// firewall before the change, it waits no longer: the gateway's own takes its place, and is not to be taken away.
pub(crate) fn resume() -> Result<bool, Error> {
    let (path, interrupted) = (saved()?, interrupted()?);
    if is_guarded(&interrupted)? && !path.exists() {
        let unusable = |source| Error::Unusable { path: interrupted.clone(), source };
        fs::rename(&interrupted, &path).map_err(unusable)?;
    } else {
        let _ = fs::remove_file(&interrupted);
    }
    if !is_guarded(&path)? {
        return Ok(false);
    }
    let was_none = fs::metadata(&path).is_ok_and(|before| before.len() == 0);
    if was_none {
        end_trial()?;
    }
    Ok(!was_none)
}

/// For a gateway that ends, before it removes its table: what a change that nobody has confirmed would restore stays away,
/// unless a gateway starts within its time.
pub(crate) fn interrupt() -> Result<(), Error> {
    let path = saved()?;
    if is_guarded(&path)? { gone(fs::rename(&path, interrupted()?), path) } else { Ok(()) }
}

/// Whatever waits for its confirmation waits no longer, and is not undone.
pub(crate) fn end_trial() -> Result<(), Error> {
    for path in [saved()?, interrupted()?] {
        gone(fs::remove_file(&path), path)?;
    }
    Ok(())
}

/// Also where it was not there.
fn gone(result: io::Result<()>, path: PathBuf) -> Result<(), Error> {
    match result {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(Error::NotRemoved { path, source }),
        _ => Ok(()),
    }
}

/// Puts a saved table back; an empty text is none.
fn put_back(before: &str) -> Result<(), Error> {
    let script = if before.is_empty() {
        format!("add table inet {TABLE}\ndelete table inet {TABLE}\n")
    } else {
        replacing(before)?
    };
    Ok(linux::nft::apply(&script)?)
}

/// Saves the table, and starts a process that will put it back: so long after what is returned was dropped.
fn start_guard(after: Duration) -> Result<Option<ChildStdin>, Error> {
    let path = saved()?;
    let before = linux::nft::list_inet(TABLE, false)?.unwrap_or_default();
    let written = fs::create_dir_all(control::FOLDER).and_then(|()| {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        file.write_all(before.as_bytes())
    });
    written.map_err(|source| Error::Unusable { path: path.clone(), source })?;
    let program = std::env::current_exe()?;
    let after = format!("{}us", after.as_micros());
    let mut child = Command::new(program)
        .args(["firewall", "guard", "--after", &after])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut ready = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut ready)?;
    }
    if ready.is_empty() {
        let _ = fs::remove_file(&path);
        return Err(Error::NoGuard);
    }
    Ok(child.stdin.take())
}

/// What puts a table in the place of the one that is in the kernel, in one step.
pub(crate) fn replacing(script: &str) -> Result<String, Error> {
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
///
/// # Errors
/// If the kernel cannot be asked.
pub fn is_in_force(firewall: &Firewall) -> linux::Result<bool> {
    let script = compiled(firewall).script;
    for by in [UP, APPLIED] {
        if ruleset::has_chain(Family::Inet, TABLE, &marked(&script, by).0)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A change that waits for its confirmation is not changed again.
pub(crate) fn refuse_while_pending() -> Result<(), Error> {
    if is_guarded(&saved()?)? {
        return Err(Error::Unconfirmed);
    }
    Ok(())
}

/// Whether a guard holds the saved table.
fn is_guarded(path: &Path) -> Result<bool, Error> {
    let unusable = |source| Error::Unusable { path: path.to_owned(), source };
    match File::open(path) {
        Ok(file) => match file.try_lock() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(unusable(error)),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(unusable(error)),
    }
}

/// The saved table of this network namespace.
fn saved() -> Result<PathBuf, Error> {
    let namespace = fs::metadata("/proc/thread-self/ns/net")?.ino();
    Ok(Path::new(control::FOLDER).join(format!("firewall-{namespace}.before")))
}

/// The same, after the end of a gateway.
fn interrupted() -> Result<PathBuf, Error> {
    Ok(saved()?.with_extension("interrupted"))
}

/// What is in the table now.
fn existing() -> Result<Existing, Error> {
    let ruleset::Names { chains, maps, sets } = ruleset::names(Family::Inet, TABLE)?;
    Ok(Existing { chains, maps, sets })
}
