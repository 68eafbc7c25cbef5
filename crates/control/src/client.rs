//! Asking a daemon.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::message::{Request, SCRIPTS_REFUSED};
use crate::path::{Others, is_of_no_tunnel};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long it may take where scripts are loaded: longer than the daemon itself waits.
pub const LONG: Duration = Duration::from_secs(45);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing listens on the socket.
    #[error("{}", not_running(path, source))]
    NotRunning {
        /// The socket.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The user may not use the socket.
    #[error("only the owner of {} may use it, and the group sidestep may look: try again with sudo", .0.display())]
    Denied(PathBuf),
    /// There is no socket to be found.
    #[error("no tunnel is up: no socket of one is in {} (`sidestep status` shows a gateway)", .0.display())]
    NoSocket(PathBuf),
    /// There are several.
    #[error("several tunnels are up: name one of them: {}", .0.join(", "))]
    Several(Vec<String>),
    /// The connection failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// What failed.
        source: io::Error,
    },
    /// The answer is none.
    #[error("{}: cannot understand the answer: {source}; is another version running?", path.display())]
    Malformed {
        /// The socket.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A tunnel of another kind has answered.
    #[error("{shown} is that of a tunnel of another kind: `sidestep {command} --socket {shown}` shows it", shown = path.display())]
    OtherKind {
        /// The socket.
        path: PathBuf,
        /// What shows that kind.
        command: &'static str,
    },
    /// The daemon refused.
    #[error("{0}")]
    Refused(String),
}

/// Why nothing answers, as it is told.
fn not_running(path: &Path, source: &io::Error) -> String {
    let (shown, name) = (path.display(), path.file_stem().unwrap_or_default().to_string_lossy());
    match source.kind() {
        // A daemon that was killed leaves its socket; the next start takes it.
        io::ErrorKind::ConnectionRefused if !is_socket(path) => {
            format!(
                "{shown} is not a socket: give the control socket of a tunnel that is up, such as /run/sidestep/NAME.sock"
            )
        }
        io::ErrorKind::ConnectionRefused => format!(
            "{name} is not running: it was killed, and has left {shown} behind; what it carried is refused until it is started \
             again (`sidestep up FILE`, or `sidestep ipsec up FILE`), or until `sidestep down --socket {shown} --open`"
        ),
        io::ErrorKind::NotFound if path.with_extension("closed").exists() => format!(
            "{name} is not running: it has ended, and what it carried is refused until it is started again (`sidestep up \
             FILE`, or `sidestep ipsec up FILE`), or until `sidestep down --socket {shown} --open`"
        ),
        io::ErrorKind::NotFound => format!(
            "{name} is not running: there is no socket {shown}; is sidestep running (`sidestep up FILE`, or `sidestep ipsec up \
             FILE`)?"
        ),
        _ => format!("nothing answers on {shown}: {source}; has sidestep just ended?"),
    }
}

fn is_socket(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
}

/// Sends `request` to the daemon that listens at `path` and waits for its answer.
pub fn ask(path: &Path, request: &impl Serialize) -> Result<Value, Error> {
    ask_within(path, request, PATIENCE)
}

/// The same, with another time that the answer may take.
pub fn ask_within(path: &Path, request: &impl Serialize, patience: Duration) -> Result<Value, Error> {
    ask_for(path, request, patience)
}

/// Has the daemon read its configuration again, to be confirmed within this time, if any. Why its packet scripts stay as they
/// were, if one could not be loaded: all else is in force.
///
/// # Errors
/// Where nothing has changed, or nobody has answered.
pub fn reload(path: &Path, confirm_ms: Option<u32>) -> Result<Option<String>, Error> {
    let answer = ask_within(path, &Request::Reload { confirm_ms }, LONG)?;
    Ok(answer[SCRIPTS_REFUSED].as_str().map(|why| format!("all but the scripts was read again: {why}")))
}

/// The same, for an answer of this type: a large one is read once.
pub fn ask_for<T: DeserializeOwned>(
    path: &Path,
    request: &impl Serialize,
    patience: Duration,
) -> Result<T, Error> {
    /// [`Reply`](crate::Reply), with what is expected of it.
    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Expected<T> {
        Ok(T),
        Error(String),
    }
    let mut stream = connect(path)?;
    let answer = exchange(&mut stream, request, patience).map_err(|source| {
        let path = path.to_owned();
        match source.kind() {
            // It ends just now.
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Error::NotRunning { path, source },
            _ => Error::Io { path, source },
        }
    })?;
    match serde_json::from_slice(&answer) {
        Ok(Expected::Ok(value)) => Ok(value),
        Ok(Expected::Error(message)) => Err(Error::Refused(message)),
        Err(source) => Err(Error::Malformed { path: path.to_owned(), source }),
    }
}

/// Connects; whoever may not use the socket uses the one for those who may only look.
fn connect(path: &Path) -> Result<UnixStream, Error> {
    let error = match UnixStream::connect(path) {
        Ok(stream) => return Ok(stream),
        Err(source) if source.kind() != io::ErrorKind::PermissionDenied => {
            return Err(Error::NotRunning { path: path.to_owned(), source });
        }
        Err(_) => Error::Denied(path.to_owned()),
    };
    let Some(readers) = Others::Readers.socket(path) else { return Err(error) };
    UnixStream::connect(&readers).map_err(|source| match source.kind() {
        io::ErrorKind::PermissionDenied => error,
        io::ErrorKind::NotFound if path.exists() || !readers.parent().is_some_and(Path::is_dir) => error,
        _ => Error::NotRunning { path: readers, source },
    })
}

fn exchange(stream: &mut UnixStream, request: &impl Serialize, patience: Duration) -> io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {patience:?}"))
        }
        _ => error,
    })?;
    Ok(answer)
}

/// All sockets of tunnels in `folder`, whether or not something listens there; none if it cannot be read.
pub fn sockets(folder: &Path) -> Vec<PathBuf> {
    entries(folder).map_or(Vec::new(), of_tunnels)
}

/// The same, with those of gateways and script hosts. Where there is no folder, nothing runs.
///
/// # Errors
/// If the folder cannot be read.
pub fn all_sockets(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    match entries(folder).map_err(|error| unread(folder, error)) {
        Err(Error::NoSocket(_)) => Ok(Vec::new()),
        entries => Ok(of_daemons(entries?).collect()),
    }
}

/// Why a folder cannot be read.
fn unread(folder: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => Error::NoSocket(folder.to_owned()),
        io::ErrorKind::PermissionDenied => Error::Denied(folder.to_owned()),
        _ => Error::Io { path: folder.to_owned(), source: error },
    }
}

/// Those of the folder, or of the one beside it for who may only look.
fn entries(folder: &Path) -> io::Result<std::fs::ReadDir> {
    std::fs::read_dir(folder).or_else(|error| match Others::Readers.folder(folder) {
        Some(readers) if error.kind() == io::ErrorKind::PermissionDenied => {
            std::fs::read_dir(readers).map_err(|_| error)
        }
        _ => Err(error),
    })
}

fn of_tunnels(entries: std::fs::ReadDir) -> Vec<PathBuf> {
    of_daemons(entries).filter(|path| !is_of_no_tunnel(path)).collect()
}

fn of_daemons(entries: std::fs::ReadDir) -> impl Iterator<Item = PathBuf> {
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "sock"))
        // Of a link, what it leads to.
        .filter(|path| std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket()))
}

/// The only socket in `folder`, or the only one that something listens on.
pub fn find(folder: &Path) -> Result<PathBuf, Error> {
    let mut sockets = of_tunnels(entries(folder).map_err(|error| unread(folder, error))?);
    if sockets.len() > 1 {
        // Those of daemons that have died are no choice.
        let is_dead = |error: io::Error| error.kind() != io::ErrorKind::PermissionDenied;
        sockets.retain(|path| !UnixStream::connect(path).is_err_and(is_dead));
    }
    sockets.sort();
    match sockets.as_slice() {
        [] => Err(Error::NoSocket(folder.to_owned())),
        [_] => Ok(sockets.remove(0)),
        _ => {
            let name = |path: &PathBuf| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            Err(Error::Several(sockets.iter().map(name).collect()))
        }
    }
}
