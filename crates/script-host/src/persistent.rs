//! Tables that outlive the host, where scripts have asked for it: a file beside the socket, which the next host reads.
//!
//! It is written now and then, and at the end; who kills the host loses what has changed since then. Both tiers are kept
//! alike, so that a table is there again whichever its script comes to run in.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tracing::warn;

use super::table_protocol::Dump;

/// How often what has changed is written, at most.
pub(super) const EVERY: Duration = Duration::from_secs(5);
/// Of the host's time, writing takes one part of so many.
pub(super) const SHARE: u32 = 20;

/// What is kept.
pub(super) struct Persistent {
    pub(super) path: PathBuf,
    /// What an earlier host has left, of states whose scripts are not loaded again yet.
    pub(super) waiting: Vec<State>,
    /// When it is written next; never, where no script has asked for it.
    pub(super) due: Option<Instant>,
}

/// Tables of scripts that share them.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct State {
    /// The number of the state, or the path of the script.
    pub(super) name: String,
    pub(super) tables: Vec<Dump>,
}

impl Persistent {
    /// What an earlier host has left for the one at this socket.
    pub(super) fn beside(socket: &Path) -> Self {
        let path = socket.with_extension("tables");
        let waiting = match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).unwrap_or_else(|error| {
                // What another version has written is not lost by this one.
                let aside = path.with_extension("tables.unreadable");
                let kept = match std::fs::rename(&path, &aside) {
                    Ok(()) => format!("is {} now", aside.display()),
                    Err(error) => format!("will be written over: {error}"),
                };
                warn!("{}: {error}: it {kept}, and tables begin empty", path.display());
                Vec::new()
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                warn!("{}: {error}: tables begin empty", path.display());
                Vec::new()
            }
        };
        Self { path, waiting, due: None }
    }

    /// Writes them, or removes the file if there are none.
    pub(super) fn write(&self, states: &[State]) -> io::Result<()> {
        if states.is_empty() {
            return match std::fs::remove_file(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        linux::file::replace(&self.path, &serde_json::to_vec(states)?).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_is_set_aside() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("script.sock");
        let (file, aside) = (socket.with_extension("tables"), socket.with_extension("tables.unreadable"));
        std::fs::write(&file, "of another version").unwrap();
        let persistent = Persistent::beside(&socket);
        assert!(persistent.waiting.is_empty());
        persistent.write(&[State { name: "1".to_owned(), tables: Vec::new() }]).unwrap();
        assert_eq!(std::fs::read_to_string(&aside).unwrap(), "of another version");
        assert_eq!(Persistent::beside(&socket).waiting.len(), 1);
    }
}
