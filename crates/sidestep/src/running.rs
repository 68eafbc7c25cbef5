//! The daemon of a tunnel, as a command finds it that changes the files which it may have read.

use std::path::{Path, PathBuf};

use config::Config;
use control::{Error, Request};
use serde_json::Value;

/// The unit of systemd that runs a configuration: its instance is the name of the file, which may be another than the tunnel's.
pub(crate) fn unit_of(file: &Path) -> String {
    format!("sidestep@{}", file.file_stem().unwrap_or_default().display())
}

/// Whether a tunnel's daemon runs, and what it has read.
#[derive(Debug)]
pub(crate) enum Running {
    /// None does.
    No,
    /// One does, from this very file.
    FromIt,
    /// One does, from another file.
    From(PathBuf),
}

impl Running {
    /// Asks the daemon of this tunnel whether it runs from `file`.
    ///
    /// # Errors
    /// If it runs, and gives no answer.
    pub(crate) fn find(tunnel: &str, file: &Path) -> Result<Running, Error> {
        let read = match file_of(&control::socket_of(tunnel)) {
            Err(Error::NotRunning { .. }) => return Ok(Running::No),
            result => result?,
        };
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Ok(match read.filter(|read| real(read) != real(file)) {
            Some(read) => Running::From(read),
            None => Running::FromIt,
        })
    }
}

/// What the daemon at this socket would read again, if it is a tunnel's and its file is one.
pub(crate) fn configuration(socket: &Path) -> Option<(PathBuf, Config)> {
    let file = file_of(socket).ok()??;
    let config = config::load(&file).ok()?;
    Some((file, config))
}

/// The file that the daemon at this socket reads; none of a gateway without a tunnel, which does not tell.
fn file_of(socket: &Path) -> Result<Option<PathBuf>, Error> {
    let status: Value = control::ask_within(socket, &Request::Show, control::LONG)?;
    let file = status["file"].as_str().filter(|file| !file.is_empty());
    Ok(file.map(PathBuf::from))
}
