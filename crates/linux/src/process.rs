//! The process itself: open files, privileges; and programs that end with it.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use caps::{CapSet, CapsHashSet};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigHandler, SigSet};
use nix::unistd::{getpid, getppid};

pub use caps::Capability;
pub use nix::sys::signal::Signal;

use crate::error::{Context, Error, Result};

/// Leaves the session of the terminal that this process was started from: its end is not ours.
pub fn new_session() -> Result<()> {
    nix::unistd::setsid().map(drop).context(|| "setsid")
}

/// Where programs of the system are, also for users whose `PATH` has no `sbin`.
const FOLDERS: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Where a program is that this process could run, by `PATH` and where the system has its own.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(FOLDERS.iter().map(PathBuf::from));
    let mut places = folders.filter(|folder| folder.is_absolute()).map(|folder| folder.join(name));
    places.find(|place| {
        nix::unistd::access(place.as_path(), nix::unistd::AccessFlags::X_OK).is_ok() && is_file(place)
    })
}

fn is_file(place: &Path) -> bool {
    place.metadata().is_ok_and(|found| found.is_file())
}

/// Has a program hear signals, whatever this process blocks, and ended by SIGTERM with the thread that starts it: also where
/// that is killed. SIGHUP, by which it is told to read its files again, passes it by until it has a handler for it, rather than
/// end it while it starts.
pub fn end_with_this_thread(command: &mut Command) {
    let parent = getpid();
    let prepare = move || {
        SigSet::empty().thread_set_mask()?;
        // SAFETY: no handler of ours is set.
        unsafe { nix::sys::signal::signal(Signal::SIGHUP, SigHandler::SigIgn) }?;
        nix::sys::prctl::set_pdeathsig(Signal::SIGTERM)?;
        // It may have been killed before that.
        if getppid() == parent { Ok(()) } else { Err(nix::errno::Errno::ESRCH.into()) }
    };
    // SAFETY: between fork and exec only system calls are made (sigprocmask, sigaction, prctl, getppid); nothing is allocated.
    unsafe { command.pre_exec(prepare) };
}

/// Sends a signal to a program that this process has started, and not waited for.
pub fn signal(child: &Child, signal: Signal) {
    // It may have ended just now: until it is waited for, nobody else has its number.
    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id().cast_signed()), signal);
}

/// Raises the limit of open files as far as it goes without privilege, and returns it.
pub fn raise_open_files() -> Result<u64> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).context(|| "getrlimit RLIMIT_NOFILE")?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context(|| "setrlimit RLIMIT_NOFILE")?;
    Ok(hard)
}

/// Whether this thread has CAP_NET_ADMIN: without it there is no tunnel.
#[must_use]
pub fn may_administer_network() -> bool {
    caps::has_cap(None, CapSet::Effective, Capability::CAP_NET_ADMIN).unwrap_or(false)
}

/// Lets threads of this process run before all ordinary ones later on, see [`set_realtime`], also without privileges then.
pub fn allow_realtime() -> Result<()> {
    setrlimit(Resource::RLIMIT_RTPRIO, 1, 1).context(|| "setrlimit RLIMIT_RTPRIO")
}

/// Has this thread run before all ordinary ones (sched(7), SCHED_RR at the lowest priority), or no longer; threads that
/// it starts are ordinary. The kernel leaves ordinary ones 5 % of a processor. Needs CAP_SYS_NICE or RLIMIT_RTPRIO.
pub fn set_realtime(first: bool) -> Result<()> {
    // SAFETY: all-zero bytes are a valid value; musl's has more fields, which the kernel does not know.
    let mut priority: libc::sched_param = unsafe { std::mem::zeroed() };
    priority.sched_priority = i32::from(first);
    let policy = if first { libc::SCHED_RR } else { libc::SCHED_OTHER } | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the structure is read, and lives across the call.
    let result = unsafe { libc::sched_setscheduler(0, policy, &raw const priority) };
    if result < 0 { Err(Error::last("sched_setscheduler")) } else { Ok(()) }
}

/// The numbers of the processors that this thread may run on.
#[must_use]
pub fn processors() -> Vec<usize> {
    let set = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap_or_default();
    (0..nix::sched::CpuSet::count()).filter(|number| set.is_set(*number).unwrap_or(false)).collect()
}

/// Keeps this thread on one processor, by its number.
pub fn pin_to_processor(processor: usize) -> Result<()> {
    let what = || format!("sched_setaffinity to processor {processor}");
    let mut set = nix::sched::CpuSet::new();
    set.set(processor).context(what)?;
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set).context(what)
}

/// Gives up all capabilities but `keep`, for good, in this thread, the threads and the programs that it starts:
/// call it before the first thread. What is kept is handed on to programs (`nft`) also where the user is not root.
pub fn keep_capabilities(keep: &[Capability]) -> Result<()> {
    nix::sys::prctl::set_no_new_privs().context(|| "prctl PR_SET_NO_NEW_PRIVS")?;
    let permitted = read_set(CapSet::Permitted)?;
    let keep: CapsHashSet =
        keep.iter().copied().filter(|capability| permitted.contains(capability)).collect();
    // Dropping from the bounding set takes CAP_SETPCAP. Without it, what is not permitted cannot come back anyway,
    // for want of new privileges.
    if permitted.contains(&Capability::CAP_SETPCAP) {
        for capability in read_set(CapSet::Bounding)?.difference(&keep) {
            caps::drop(None, CapSet::Bounding, *capability).map_err(|error| {
                Error::other(format!("prctl PR_CAPBSET_DROP {capability}"), error.to_string())
            })?;
        }
    }
    caps::clear(None, CapSet::Ambient)
        .map_err(|error| Error::other("prctl PR_CAP_AMBIENT_CLEAR_ALL", error.to_string()))?;
    // Effective first: it must stay within permitted. Ambient last: it must stay within inheritable.
    for set in [CapSet::Effective, CapSet::Permitted, CapSet::Inheritable, CapSet::Ambient] {
        caps::set(None, set, &keep)
            .map_err(|error| Error::other(format!("capset {set:?}"), error.to_string()))?;
    }
    Ok(())
}

fn read_set(set: CapSet) -> Result<CapsHashSet> {
    caps::read(None, set).map_err(|error| Error::other(format!("capget {set:?}"), error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_that_are_not_kept_are_gone() {
        // A thread of its own: what it gives up, the other tests keep.
        std::thread::spawn(|| {
            let before = may_administer_network();
            keep_capabilities(&[Capability::CAP_NET_ADMIN]).unwrap();
            assert_eq!(may_administer_network(), before);
            assert!(!caps::has_cap(None, CapSet::Permitted, Capability::CAP_SYS_ADMIN).unwrap());
            keep_capabilities(&[]).unwrap();
            assert!(!may_administer_network());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn programs_are_found_where_the_system_has_them_and_folders_are_none() {
        assert!(find_program("sh").is_some_and(|place| place.ends_with("sh")));
        assert_eq!(find_program("no-such-program-of-ours"), None);
        assert_eq!(find_program("."), None);
    }

    #[test]
    fn a_program_ends_with_the_thread_that_started_it() {
        use std::os::unix::process::ExitStatusExt as _;
        let mut child = std::thread::spawn(|| {
            let mut blocked = SigSet::empty();
            blocked.add(Signal::SIGTERM);
            blocked.thread_block().unwrap();
            let mut command = Command::new("sleep");
            end_with_this_thread(command.arg("60"));
            command.spawn().unwrap()
        })
        .join()
        .unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::SIGTERM as i32));
    }

    #[test]
    fn the_limit_of_open_files_is_the_hard_one() {
        let limit = raise_open_files().unwrap();
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (limit, limit));
    }
}
