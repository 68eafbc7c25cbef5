//! Network namespaces, named the way `ip netns` names them. For the lab and the tests.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

use crate::error::{Context, Error, Result};
use crate::netlink::Netlink;

const DIRECTORY: &str = "/run/netns";
const LOOPBACK: u32 = 1;

/// A network namespace. It lasts until it is deleted, or without a name as long as somebody is in it.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    file: File,
}

impl Namespace {
    /// Makes a namespace with a name, as `ip netns add` does, and brings up its loopback interface.
    pub fn create(name: &str) -> Result<Self> {
        let path = path_of(name)?;
        std::fs::create_dir_all(DIRECTORY).context(|| format!("mkdir {DIRECTORY}"))?;
        share_directory()?;
        File::options()
            .write(true)
            .create_new(true)
            .open(&path)
            .context(|| format!("create network namespace {name}"))?;
        let made = on_a_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET).context(|| "unshare CLONE_NEWNET (needs CAP_SYS_ADMIN)")?;
            Netlink::open()?.set_link_up(LOOPBACK, true)?;
            mount(Some("/proc/thread-self/ns/net"), &path, None::<&str>, MsFlags::MS_BIND, None::<&str>)
                .context(|| format!("mount network namespace {name}"))
        });
        if let Err(error) = made {
            // Only the empty file we made; the first error is the one to tell.
            let _ = std::fs::remove_file(&path);
            return Err(error);
        }
        Self::open(name)
    }

    /// The namespace of that name.
    pub fn open(name: &str) -> Result<Self> {
        let file = File::open(path_of(name)?).context(|| format!("open network namespace {name}"))?;
        Ok(Self { name: name.to_owned(), file })
    }

    /// The namespace that this thread is in.
    pub fn current() -> Result<Self> {
        let file = File::open("/proc/thread-self/ns/net").context(|| "open /proc/thread-self/ns/net")?;
        Ok(Self { name: String::new(), file })
    }

    /// The name, empty for [`Namespace::current`].
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Moves this thread into the namespace, for good.
    pub fn enter(&self) -> Result<()> {
        setns(&self.file, CloneFlags::CLONE_NEWNET).context(|| format!("setns {}", self.name))
    }

    /// Runs `work` in the namespace, on a thread of its own, and waits for it. A panic goes on in the caller.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        on_a_thread(|| {
            self.enter()?;
            Ok(work())
        })
    }

    /// A program that will run in the namespace.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Result<Command> {
        let file = self.file.try_clone().context(|| "dup of a network namespace")?;
        let mut command = Command::new(program);
        let enter = move || setns(&file, CloneFlags::CLONE_NEWNET).map_err(io::Error::from);
        // SAFETY: between fork and exec only the system call setns is made, on a descriptor that is open.
        unsafe { command.pre_exec(enter) };
        Ok(command)
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Removes the name, as `ip netns delete` does; the namespace goes when nobody is in it any more.
/// Returns whether there was one of that name.
pub fn delete(name: &str) -> Result<bool> {
    let path = path_of(name)?;
    match umount2(&path, MntFlags::MNT_DETACH) {
        // EINVAL: a file that no namespace is mounted on, left by somebody who was interrupted.
        Ok(()) | Err(nix::errno::Errno::EINVAL) => {}
        Err(nix::errno::Errno::ENOENT) => return Ok(false),
        Err(error) => return Err(Error::new(format!("umount {}", path.display()), error)),
    }
    std::fs::remove_file(&path).context(|| format!("unlink {}", path.display()))?;
    Ok(true)
}

/// The names of all namespaces that have one.
pub fn list() -> Result<Vec<String>> {
    let entries = match std::fs::read_dir(DIRECTORY) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        result => result.context(|| format!("read {DIRECTORY}"))?,
    };
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

/// Moves this thread into a new network namespace without a name, with its loopback interface up.
pub fn enter_new() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNET).context(|| "unshare CLONE_NEWNET (needs CAP_SYS_ADMIN)")?;
    Netlink::open()?.set_link_up(LOOPBACK, true)
}

/// Whether a test that needs namespaces can run. Not as another user than root: then it says so and is to return.
/// With `CI=true` it fails instead: a test that silently does not run is a lie.
///
/// # Panics
/// If `CI=true` is set and the user is not root.
#[must_use]
pub fn available_to_tests() -> bool {
    if nix::unistd::geteuid().is_root() {
        return true;
    }
    assert!(std::env::var("CI").as_deref() != Ok("true"), "this test needs root, for network namespaces");
    eprintln!("skipped: needs root, for network namespaces");
    false
}

fn path_of(name: &str) -> Result<PathBuf> {
    if name.is_empty() || name.starts_with('.') || name.contains('/') {
        return Err(Error::other(format!("network namespace {name:?}"), "not a name for a namespace"));
    }
    Ok(Path::new(DIRECTORY).join(name))
}

/// What is mounted in the directory is to be seen in every mount namespace, and to be removable from each.
fn share_directory() -> Result<()> {
    let share =
        || mount(None::<&str>, DIRECTORY, None::<&str>, MsFlags::MS_SHARED | MsFlags::MS_REC, None::<&str>);
    if share().is_ok() {
        return Ok(());
    }
    // Not a mount point yet.
    mount(Some(DIRECTORY), DIRECTORY, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>)
        .and_then(|()| share())
        .context(|| format!("mount {DIRECTORY} (needs CAP_SYS_ADMIN)"))
}

fn on_a_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        scope.spawn(work).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
