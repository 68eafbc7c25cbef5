//! Unix sockets that keep messages apart (`SOCK_SEQPACKET`), for its owner alone.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, accept4, bind, connect, listen, recv,
    send, setsockopt, socket, sockopt,
};
use nix::sys::stat::{Mode, umask};
use nix::sys::time::TimeVal;
use nix::unistd::getuid;

use crate::error::{Context, Error, Result};

/// A listening socket. Its file is removed when it is dropped.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    path: PathBuf,
    /// Device and inode of the file, to remove no other.
    identity: (u64, u64),
}

impl Listener {
    /// Listens at `path` with mode 0600, from the first moment; its folder is made if need be. The file of a process that
    /// has died is replaced. Its mode comes from the umask, which is that of the whole process meanwhile.
    ///
    /// # Errors
    /// Where another process answers, or something else than a socket is.
    pub fn bind(path: &Path) -> Result<Self> {
        let what = || format!("listen on {}", path.display());
        let address = UnixAddr::new(path).context(what)?;
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            DirBuilder::new().mode(0o755).recursive(true).create(folder).context(what)?;
        }
        remove_stale(path)?;
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).context(what)?;
        let before = umask(Mode::S_IXUSR | Mode::S_IRWXG | Mode::S_IRWXO);
        let bound = bind(fd.as_raw_fd(), &address);
        umask(before);
        bound.context(what)?;
        listen(&fd, Backlog::MAXCONN).context(what)?;
        let metadata = fs::symlink_metadata(path).context(what)?;
        Ok(Self { fd, path: path.to_owned(), identity: (metadata.dev(), metadata.ino()) })
    }

    /// The next connection, if there is one; it does not block.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn accept(&self) -> Result<Option<Connection>> {
        match accept4(self.fd.as_raw_fd(), SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK) {
            // SAFETY: a descriptor just made, owned by nobody else.
            Ok(fd) => Ok(Some(Connection { fd: unsafe { OwnedFd::from_raw_fd(fd) } })),
            Err(Errno::EAGAIN | Errno::ECONNABORTED | Errno::EINTR) => Ok(None),
            Err(error) => Err(Error::new(format!("accept on {}", self.path.display()), error)),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|m| (m.dev(), m.ino()) == self.identity) {
            // In a folder that the process may no longer write to, the file stays; the next start replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn remove_stale(path: &Path) -> Result<()> {
    let Ok(metadata) = fs::symlink_metadata(path) else { return Ok(()) };
    let taken = |reason: &str| Err(Error::other(format!("listen on {}", path.display()), reason));
    if !metadata.file_type().is_socket() {
        return taken("there is a file that is not a socket: remove it, or choose another path");
    }
    match Connection::connect(path) {
        Err(error) if error.raw_os_error() == Some(Errno::ECONNREFUSED as i32) => {
            fs::remove_file(path).context(|| format!("remove {}", path.display()))
        }
        Err(error) if metadata.uid() != getuid().as_raw() => Err(error),
        _ => taken("another process answers there: stop it, or choose another path"),
    }
}

/// One end of a connection.
#[derive(Debug)]
pub struct Connection {
    fd: OwnedFd,
}

impl Connection {
    /// Connects to who listens at `path`. This end blocks.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn connect(path: &Path) -> Result<Self> {
        let what = || format!("connect to {}", path.display());
        let address = UnixAddr::new(path).context(what)?;
        let fd =
            socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).context(what)?;
        connect(fd.as_raw_fd(), &address).context(what)?;
        Ok(Self { fd })
    }

    /// How long [`receive`](Self::receive) and [`send`](Self::send) block, where this end does; `None`: for ever.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_patience(&self, patience: Option<Duration>) -> Result<()> {
        let patience = patience.unwrap_or_default();
        let value = TimeVal::new(patience.as_secs() as i64, patience.subsec_micros().into());
        setsockopt(&self.fd, sockopt::ReceiveTimeout, &value).context(|| "setsockopt SO_RCVTIMEO")?;
        setsockopt(&self.fd, sockopt::SendTimeout, &value).context(|| "setsockopt SO_SNDTIMEO")
    }

    /// Sends one message. `false`: the other end has not read enough for it yet.
    ///
    /// # Errors
    /// The other end is gone.
    pub fn send(&self, message: &[u8]) -> Result<bool> {
        match send(self.fd.as_raw_fd(), message, MsgFlags::MSG_NOSIGNAL) {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN) => Ok(false),
            Err(error) => Err(Error::new("send a message", error)),
        }
    }

    /// Receives one message, as much of it as there is room for. `None`: there is none yet.
    ///
    /// # Errors
    /// `UnexpectedEof` when the other end has closed.
    pub fn receive(&self, buffer: &mut [u8]) -> Result<Option<usize>> {
        loop {
            return match recv(self.fd.as_raw_fd(), buffer, MsgFlags::empty()) {
                Ok(0) => Err(Error::new("receive a message", io::Error::from(io::ErrorKind::UnexpectedEof))),
                Ok(length) => Ok(Some(length)),
                Err(Errno::EAGAIN) => Ok(None),
                Err(Errno::EINTR) => continue,
                Err(error) => Err(Error::new("receive a message", error)),
            };
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn messages_stay_apart_and_a_reader_that_is_slow_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deeper/a.key");
        let listener = Listener::bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(listener.accept().unwrap().is_none());
        let client = Connection::connect(&path).unwrap();
        let server = listener.accept().unwrap().unwrap();
        let mut buffer = [0; 4];
        assert_eq!(server.receive(&mut buffer).unwrap(), None);
        assert!(client.send(b"one").unwrap() && client.send(b"twoooo").unwrap());
        assert_eq!(server.receive(&mut buffer).unwrap(), Some(3));
        assert_eq!(server.receive(&mut buffer).unwrap(), Some(4), "what has no room is cut off");
        assert_eq!(server.receive(&mut buffer).unwrap(), None);
        while server.send(&[0; 1000]).unwrap() {}
        drop(client);
        assert!(server.receive(&mut buffer).is_err());
        assert!(server.send(b"gone").is_err());
    }

    #[test]
    fn a_dead_socket_is_replaced_a_live_one_and_a_file_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.key");
        let first = Listener::bind(&path).unwrap();
        let error = Listener::bind(&path).unwrap_err().to_string();
        assert!(error.contains("another process answers"), "{error}");
        let file = folder.path().join("file");
        fs::write(&file, "precious").unwrap();
        assert!(Listener::bind(&file).unwrap_err().to_string().contains("not a socket"));
        let aside = folder.path().join("aside");
        fs::rename(&path, &aside).unwrap();
        drop(first);
        assert!(aside.exists(), "only the file that it made is removed");
        fs::rename(&aside, &path).unwrap();
        drop(Listener::bind(&path).unwrap());
        assert!(!path.exists());
    }
}
