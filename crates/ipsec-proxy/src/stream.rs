//! What a client is connected by, and what it comes to: TCP, or a Unix socket.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use crate::place::Place;

/// A connection of a client.
#[derive(Debug)]
pub(crate) enum Stream {
    Port(TcpStream),
    Socket(UnixStream),
}

impl Stream {
    pub(crate) fn shutdown_write(&self) -> io::Result<()> {
        match self {
            Self::Port(stream) => stream.shutdown(Shutdown::Write),
            Self::Socket(stream) => stream.shutdown(Shutdown::Write),
        }
    }

    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        match self {
            Self::Port(stream) => stream.take_error(),
            Self::Socket(stream) => stream.take_error(),
        }
    }

    /// Its end will be no orderly one. A Unix socket has no other.
    pub(crate) fn reset_on_close(&self) {
        if let Self::Port(stream) = self {
            let _ = linux::tcp::reset_on_close(stream);
        }
    }

    /// The two ends, this host's first, where it has such.
    pub(crate) fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        match self {
            Self::Port(stream) => Some((stream.local_addr().ok()?, stream.peer_addr().ok()?)),
            Self::Socket(_) => None,
        }
    }

    /// Where datagrams of its client come from, and to.
    pub(crate) fn addresses(&self) -> (IpAddr, IpAddr) {
        let loopback = IpAddr::from([127, 0, 0, 1]);
        self.ends().map_or((loopback, loopback), |(here, there)| (here.ip(), there.ip()))
    }
}

impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Port(stream) => (&mut &*stream).read(buffer),
            Stream::Socket(stream) => (&mut &*stream).read(buffer),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Port(stream) => (&mut &*stream).write(bytes),
            Stream::Socket(stream) => (&mut &*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Port(stream) => stream.as_fd(),
            Self::Socket(stream) => stream.as_fd(),
        }
    }
}

/// Where clients come to.
#[derive(Debug)]
pub(crate) enum Listener {
    Port(TcpListener),
    /// The file is removed with it.
    Socket(UnixListener, PathBuf),
}

impl Listener {
    pub(crate) fn bind(place: &Place) -> io::Result<Self> {
        let listener = match place {
            Place::Port(address) => {
                let socket = TcpListener::bind(address)?;
                socket.set_nonblocking(true)?;
                Self::Port(socket)
            }
            Place::Socket(path) => {
                remove_stale(path)?;
                let socket = control::listen_privately(path)?;
                let listener = Self::Socket(socket, path.clone());
                listener.as_unix().map_or(Ok(()), |socket| socket.set_nonblocking(true))?;
                listener
            }
        };
        Ok(listener)
    }

    /// Where it is: a port 0 has become one.
    pub(crate) fn place(&self) -> io::Result<Place> {
        match self {
            Self::Port(socket) => socket.local_addr().map(Place::Port),
            Self::Socket(_, path) => Ok(Place::Socket(path.clone())),
        }
    }

    pub(crate) fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Port(socket) => {
                let (stream, _) = socket.accept()?;
                // One that cannot be told so has left already.
                stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).map_err(left)?;
                Ok(Stream::Port(stream))
            }
            Self::Socket(socket, _) => {
                let (stream, _) = socket.accept()?;
                stream.set_nonblocking(true).map_err(left)?;
                Ok(Stream::Socket(stream))
            }
        }
    }

    fn as_unix(&self) -> Option<&UnixListener> {
        match self {
            Self::Port(_) => None,
            Self::Socket(socket, _) => Some(socket),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Port(socket) => socket.as_fd(),
            Self::Socket(socket, _) => socket.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Socket(_, path) = self {
            // Where it stays, the next start replaces it.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn left(error: io::Error) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, error)
}

/// Removes what a proxy has left that has died.
fn remove_stale(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt as _;
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it exists, and is no socket"));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another program answers there")),
    }
}
