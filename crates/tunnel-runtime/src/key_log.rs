//! The key log of `up --keylog`: what opens captures of this tunnel, in a file, as long as it runs.
//!
//! A thread of its own writes it, so that a slow disk delays no packet. What cannot be written is lost, and said once.

use std::cell::Cell;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;

use mt6d::{Node, Now};
use tracing::warn;
use zeroize::Zeroizing;

use crate::error::Error;

/// What stands above the lines of each run.
const ABOUT: &str = "# Sidestep key log: whoever has this file reads recorded traffic of this tunnel. docs/operations.md, \"Key log\"\n";

/// Lines that may wait for a slow disk: those of a start with a thousand peers.
const WAITING: usize = 1 << 14;

/// The file, open, and nothing written yet but what it is.
pub(crate) struct KeyLogFile {
    file: File,
    path: PathBuf,
}

/// The thread that writes the file.
pub(crate) struct KeyLog {
    /// Dropped, it ends the thread.
    writer: Option<mpsc::SyncSender<Zeroizing<String>>>,
    thread: Option<JoinHandle<()>>,
    /// Whether it was said that lines were lost for want of room.
    complained: Cell<bool>,
}

impl KeyLogFile {
    /// Opens it, or makes it. To be called while this process may still open files anywhere.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let mut file = linux::file::append_private(path)?;
        file.write_all(ABOUT.as_bytes())
            .map_err(|error| std::io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        Ok(KeyLogFile { file, path: path.to_owned() })
    }

    /// Begins to log what opens the datagrams of a node, and says so loudly. To be called once this process is confined.
    pub(crate) fn start(self, node: &mut Node, now: Now) -> Result<KeyLog, Error> {
        let KeyLogFile { file, path } = self;
        let path = path.display().to_string();
        warn!(
            event = "keys_logged",
            reason = %path,
            "KEYS ARE LOGGED to {path}: whoever has it reads all traffic of this tunnel that is recorded from now on"
        );
        let (writer, lines) = mpsc::sync_channel(WAITING);
        let write = move || {
            // Before the main thread can give up its own: a thread has those of the one that starts it.
            if let Err(error) = linux::process::keep_capabilities(&[]) {
                warn!("{error}");
            }
            write_all(file, &path, lines);
        };
        let thread = std::thread::Builder::new().name("keylog".into()).spawn(write)?;
        node.log_keys(now);
        Ok(KeyLog { writer: Some(writer), thread: Some(thread), complained: Cell::new(false) })
    }
}

impl KeyLog {
    /// Writes what the node has for it.
    pub(crate) fn take(&self, node: &mut Node) {
        let Some(writer) = &self.writer else { return };
        let lines = std::iter::from_fn(|| node.next_key_log_line());
        let lost = lines.map(|line| writer.try_send(line)).filter(Result::is_err).count();
        if lost > 0 && !self.complained.replace(true) {
            warn!(
                event = "key_log_failed",
                reason = "too_many",
                "keys come faster than they can be written: some are not logged; the tunnel goes on"
            );
        }
    }
}

impl Drop for KeyLog {
    fn drop(&mut self) {
        self.writer = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn write_all(mut file: impl std::io::Write, path: &str, lines: impl IntoIterator<Item = Zeroizing<String>>) {
    let (mut complained, mut broken) = (false, false);
    for line in lines {
        // What was written of a line that did not fit must not spoil the next.
        let result = if broken { file.write_all(b"\n") } else { Ok(()) };
        let result = result.and_then(|()| file.write_all(line.as_bytes()));
        broken = result.is_err();
        if let Err(error) = result
            && !std::mem::replace(&mut complained, true)
        {
            warn!(
                event = "key_log_failed",
                reason = %error,
                "{path}: {error}: some keys are not logged; the tunnel goes on"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that is full for a while.
    struct Full<'a> {
        written: &'a mut Vec<u8>,
        space: &'a [usize],
    }

    impl std::io::Write for Full<'_> {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let (space, rest) = self.space.split_first().expect("as many writes as the test has");
            self.space = rest;
            if *space == 0 {
                return Err(std::io::ErrorKind::StorageFull.into());
            }
            let fits = bytes.len().min(*space);
            self.written.extend_from_slice(&bytes[..fits]);
            Ok(fits)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_loses_lines_and_spoils_no_other() {
        let mut written = Vec::new();
        let lines = ["one\n", "two\n", "three\n", "four\n"].map(|line| Zeroizing::new(line.to_owned()));
        // The first fits, half of the second does, nothing of the third, then there is space again.
        write_all(Full { written: &mut written, space: &[9, 2, 0, 0, 9, 9] }, "keys", lines);
        assert_eq!(String::from_utf8(written).unwrap(), "one\ntw\nfour\n");
    }
}
