//! Making the sockets.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, socket};
use nix::sys::stat::{Mode, umask};
use nix::unistd::geteuid;

use crate::path::{Others, is_of_gateway};

/// How long the socket of a daemon that was killed may still be held: by what it began to run, until that has a program of its
/// own.
const DYING: Duration = Duration::from_millis(500);

/// How often it is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A listening socket that its owner alone may use, from the first moment. By the umask, since a confined process may not
/// change modes: it is the whole process's, so a file that another thread makes meanwhile is for its owner alone too.
pub fn listen_privately(path: &Path) -> io::Result<UnixListener> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let socket = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    let address = UnixAddr::new(path)?;
    let bound = {
        let _guard = ONE_AT_A_TIME.lock();
        let before = umask(Mode::S_IXUSR | Mode::S_IRWXG | Mode::S_IRWXO);
        let bound = bind(socket.as_raw_fd(), &address);
        umask(before);
        bound
    };
    bound?;
    nix::sys::socket::listen(&socket, Backlog::MAXCONN)?;
    Ok(socket.into())
}

/// The socket for others that belongs to `socket`, and its place: where there is a folder for it, which is ours and which
/// nobody else writes to. Its group is that of the folder, or ours where the folder does not hand its group on.
/// Whoever listens at `socket` calls it: what is at its place was left behind.
///
/// # Errors
/// Where the folder is another's, or something else than a socket is there.
pub(crate) fn listen_to(others: Others, socket: &Path) -> io::Result<Option<(PathBuf, UnixListener)>> {
    let Some(path) = others.socket(socket) else { return Ok(None) };
    let about = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let folder = match std::fs::symlink_metadata(path.parent().unwrap_or(&path)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        folder => folder.map_err(about)?,
    };
    let is_ours = folder.is_dir() && folder.uid() == geteuid().as_raw() && folder.mode() & 0o022 == 0;
    if !is_ours {
        return Err(about(io::Error::other(
            "the folder is to belong to the same user, and to be written to by nobody else",
        )));
    }
    match std::fs::symlink_metadata(&path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(about(io::Error::other("is not a socket")));
        }
        Ok(_) => std::fs::remove_file(&path).map_err(about)?,
        Err(_) => {}
    }
    let listener = listen_to_group(&path).map_err(about)?;
    Ok(Some((path, listener)))
}

/// A listening socket for its owner and its group, which is that of a folder that hands it on, or else ours: by a thread with
/// an umask of its own, so that no file that another thread makes meanwhile is open to others.
pub fn listen_to_group(path: &Path) -> io::Result<UnixListener> {
    let listen = || {
        unshare(CloneFlags::CLONE_FS)?;
        umask(Mode::S_IXUSR | Mode::S_IXGRP | Mode::S_IRWXO);
        UnixListener::bind(path)
    };
    std::thread::scope(|scope| scope.spawn(listen).join())
        .unwrap_or_else(|_| Err(io::Error::other("the thread that was to make it has failed")))
}

/// Removes the socket of a daemon that has died.
///
/// # Errors
/// Where one answers, or something else than a socket is. Who takes over what belongs to the socket, as the journal beside
/// it, asks this first: [`Server::start`] comes later.
pub fn remove_stale_socket(path: &Path) -> io::Result<()> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(()) };
    let shown = path.display();
    let taken = |what: String| Err(io::Error::new(io::ErrorKind::AddrInUse, what));
    if !metadata.file_type().is_socket() {
        return taken(format!(
            "{shown} exists and is not a socket: remove it, or choose another socket with --socket"
        ));
    }
    let deadline = Instant::now() + DYING;
    let mut answer = UnixStream::connect(path);
    while answer.is_ok() && Instant::now() < deadline {
        std::thread::sleep(LOOK_EVERY);
        answer = UnixStream::connect(path);
    }
    match answer {
        Ok(_) => {
            let remedy = if is_of_gateway(path) {
                "stop it: a network namespace has only one gateway"
            } else {
                "stop it, or choose another socket with --socket"
            };
            taken(format!("another sidestep answers on {shown}: {remedy}"))
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        Err(error) => Err(io::Error::new(error.kind(), format!("{shown}: {error}"))),
    }
}

/// Takes the lock beside a socket of a network namespace, which the process holds as long as it lives: where there may be only
/// one, whatever other socket it has. `None` where somebody holds it for all this time: one that is ending may still have it.
///
/// # Errors
/// Where the file cannot be made.
pub fn lock_beside(socket: &Path, patience: Duration) -> io::Result<Option<File>> {
    let path = socket.with_extension("lock");
    let about = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    if let Some(folder) = path.parent() {
        DirBuilder::new().mode(0o755).recursive(true).create(folder).map_err(about)?;
    }
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(about)?;
    let deadline = Instant::now() + patience;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(TryLockError::Error(error)) => return Err(about(error)),
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => return Ok(None),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK_EVERY),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_socket_of_a_daemon_that_is_dying_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mt6d0.sock");
        let held = UnixListener::bind(&path).unwrap();
        let held = std::thread::spawn(move || {
            std::thread::sleep(2 * LOOK_EVERY);
            drop(held);
        });
        remove_stale_socket(&path).unwrap();
        assert!(!path.exists());
        held.join().unwrap();
    }

    #[test]
    fn a_lock_is_held_by_one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("run/gateway-1.sock");
        let lock = |patience| lock_beside(&socket, patience).unwrap();
        let held = lock(Duration::ZERO).expect("the first");
        assert!(lock(Duration::ZERO).is_none() && lock(LOOK_EVERY).is_none());
        drop(held);
        assert!(lock(Duration::ZERO).is_some());
    }

    #[test]
    fn a_second_gateway_is_told_that_there_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let said = |name: &str| {
            let path = folder.path().join(name);
            let _first = UnixListener::bind(&path).unwrap();
            remove_stale_socket(&path).unwrap_err().to_string()
        };
        let gateway = said("gateway-4026531840.sock");
        assert!(gateway.ends_with("stop it: a network namespace has only one gateway"), "{gateway}");
        for tunnel in ["gateway-home.sock", "mt6d0.sock"] {
            assert!(said(tunnel).ends_with("or choose another socket with --socket"), "{tunnel}");
        }
    }

    /// Whatever the mode of new files is, and at no time: between `bind` and a change of mode somebody could connect.
    #[test]
    fn the_socket_is_made_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mt6d0.sock");
        let before = nix::sys::stat::umask(Mode::empty());
        let listener = listen_privately(&path);
        nix::sys::stat::umask(before);
        let _listener = listener.unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}
