//! Asking tunnels for their status.

use std::panic::resume_unwind;
use std::path::{Path, PathBuf};

use control::tunnel_status::Status;
use control::{Error, Request};
use serde_json::Value;

/// The status of the tunnel that listens there.
pub(crate) fn ask(socket: &Path) -> Result<Status, Error> {
    status_of(socket, control::ask(socket, &Request::Show)?)
}

/// What each says, in this order. They are asked at once, so that several that hang take no longer than one.
pub(super) fn all(sockets: &[PathBuf]) -> Vec<Result<Status, Error>> {
    std::thread::scope(|scope| {
        let asked: Vec<_> = sockets.iter().map(|socket| scope.spawn(|| ask(socket))).collect();
        asked.into_iter().map(|asked| asked.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

/// An answer as a status.
pub(super) fn status_of(socket: &Path, value: Value) -> Result<Status, Error> {
    if value.get("remotes").is_some() {
        return Err(Error::OtherKind { path: socket.to_owned(), command: "ipsec status" });
    }
    serde_json::from_value(value).map_err(|source| Error::Malformed { path: socket.to_owned(), source })
}

/// The sockets of all tunnels that are up.
pub(crate) fn sockets() -> Result<Vec<PathBuf>, Error> {
    match control::find(control::FOLDER.as_ref()) {
        Ok(path) => Ok(vec![path]),
        Err(Error::Several(names)) => Ok(names.iter().map(|name| control::socket_of(name)).collect()),
        Err(error) => Err(error),
    }
}
