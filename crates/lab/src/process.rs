//! Processes that a lab starts and ends, always by their id.

use std::fs::OpenOptions;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::Error;
use crate::command::not_started;

/// A running program whose output goes to a log file. It is *not* ended when the value is dropped: the lab
/// that it belongs to does that.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` in a process group of its own (an interrupt from the keyboard is the lab's to handle),
    /// with both outputs appended to `log`.
    ///
    /// # Errors
    /// When the log cannot be written or the program not be started.
    pub fn start(command: &mut Command, log: &Path) -> Result<Self, Error> {
        let open = || OpenOptions::new().create(true).append(true).open(log);
        let out = open().map_err(|source| Error::file(log, source))?;
        let err = open().map_err(|source| Error::file(log, source))?;
        command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
        let child = command.spawn().map_err(|source| not_started(command, source))?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its log file.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Its exit status, once it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        // A process that ended meanwhile is no failure; until it is waited for, its id is not reused.
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), signal);
    }

    /// Asks it to end (SIGTERM), waits up to `grace`, kills it if it is still there.
    pub fn stop(mut self, grace: Duration) -> ExitStatus {
        if let Some(status) = self.ended() {
            return status;
        }
        self.signal(Signal::SIGTERM);
        match self.wait(grace) {
            Some(status) => status,
            None => self.kill(),
        }
    }

    /// Kills it (SIGKILL), as a crash would end it.
    pub fn kill(mut self) -> ExitStatus {
        let _ = self.child.kill();
        self.child.wait().unwrap_or_else(|_| ExitStatus::from_raw(9))
    }

    /// Waits for its end, at most so long.
    pub fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            if Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The last lines of a log file, for an error message.
pub fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}
