//! The script host of a daemon: a process of its own, so that nothing a script does reaches this one.
//!
//! A thread looks after it: it loads what the configuration says, again after a reload, and starts the host anew should
//! it end.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tracing::{error, info, warn};

use crate::{Request, ask};
use config::Configured;
use config::attachment::Attachment;
use control::{Call, Reply};

/// How long a host may take until it answers.
const START: Duration = Duration::from_secs(30);
/// How often it is looked after.
const LOOK: Duration = Duration::from_secs(1);
/// How long another host may take to end.
const ENDING: Duration = Duration::from_secs(3);

/// Why a daemon has no script host, or not these scripts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is one that is not the daemon's.
    #[error(
        "[[script]]: a script host runs in this network namespace already: end its scripts first \
         (`sidestep script list` and `unload`)"
    )]
    Another,
    /// The host is this program once more, which is not found.
    #[error("cannot find this program: {0}")]
    NoProgram(std::io::Error),
    /// The process does not start.
    #[error("cannot start the script host: {0}")]
    NotStarted(std::io::Error),
    /// The process starts and does not answer.
    #[error("the script host {0} (it has said why on standard error)")]
    Silent(NoAnswer),
    /// The host has refused a script, or has gone.
    #[error("{0}")]
    Host(#[from] control::Error),
    /// A thread, or the number of this network namespace.
    #[error("{0}")]
    Io(std::io::Error),
}

/// How a host that was started failed to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// It has ended.
    #[error("ended")]
    Ended,
    /// It has said nothing for half a minute.
    #[error("does not answer")]
    Late,
}

/// The thread that looks after the host. Ends the host when it is dropped.
pub struct Scripts {
    updates: Option<Sender<Update>>,
    thread: Option<JoinHandle<()>>,
}

/// These scripts and no others, with the present text of their files; and who asked for it.
struct Update {
    scripts: Vec<Attachment>,
    asked: Option<Call>,
}

/// The process, with the scripts that it has and their numbers.
struct Host {
    child: Child,
    socket: PathBuf,
    loaded: Vec<(Attachment, u64)>,
}

impl Scripts {
    /// Starts the host, if there are scripts, and loads them all.
    ///
    /// # Errors
    /// If the host does not start, or a script cannot be loaded; then there is no host.
    pub fn start(scripts: &[Configured]) -> Result<Self, Error> {
        let socket = control::socket_of_scripts().map_err(Error::Io)?;
        let mut wanted = attachments(scripts);
        let mut host = host_of(&wanted, &socket)?;
        let (updates, asked) = channel::<Update>();
        let look_after = move || {
            loop {
                match asked.recv_timeout(LOOK) {
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => {
                        if host.as_mut().is_some_and(Host::has_ended) {
                            error!(
                                event = "script_host_ended",
                                "the script host has ended: it is started anew"
                            );
                            host = None;
                        }
                        if host.is_none() && !wanted.is_empty() {
                            host = host_of(&wanted, &socket)
                                .inspect_err(|why| error!(event = "scripts_lost", "no scripts run: {why}"))
                                .unwrap_or(None);
                        }
                    }
                    Ok(update) => {
                        let result = match &mut host {
                            Some(host) => host.apply(&update.scripts),
                            None => host_of(&update.scripts, &socket).map(|new| host = new),
                        };
                        if update.scripts.is_empty() && result.is_ok() {
                            host = None;
                        }
                        match (&result, update.asked) {
                            (Ok(()), Some(call)) => call.answer(Reply::Ok(serde_json::Value::Null)),
                            (Err(why), Some(call)) => call.answer(Reply::but_scripts(why)),
                            (Ok(()), None) => {}
                            (Err(why), None) => {
                                warn!(event = "reload_refused", "the scripts stay as they were: {why}");
                            }
                        }
                        if result.is_ok() {
                            wanted = update.scripts;
                        }
                    }
                }
            }
        };
        let thread =
            std::thread::Builder::new().name("scripts".into()).spawn(look_after).map_err(Error::Io)?;
        Ok(Self { updates: Some(updates), thread: Some(thread) })
    }

    /// Has these scripts and no others, with the present text of their files; then answers.
    pub fn apply(&self, scripts: &[Configured], asked: Option<Call>) {
        if let Some(updates) = &self.updates {
            let _ = updates.send(Update { scripts: attachments(scripts), asked });
        }
    }
}

impl Drop for Scripts {
    fn drop(&mut self) {
        self.updates = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn attachments(scripts: &[Configured]) -> Vec<Attachment> {
    scripts.iter().map(|script| script.attachment.clone()).collect()
}

fn host_of(scripts: &[Attachment], socket: &Path) -> Result<Option<Host>, Error> {
    if scripts.is_empty() {
        return Ok(None);
    }
    let mut host = Host::start(socket)?;
    host.apply(scripts)?;
    info!("packet scripts: {}", scripts.len());
    Ok(Some(host))
}

impl Host {
    fn start(socket: &Path) -> Result<Self, Error> {
        // That of a daemon that has just ended may be about to end, too.
        let deadline = Instant::now() + ENDING;
        while answers(socket) {
            if Instant::now() >= deadline {
                return Err(Error::Another);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let program = std::env::current_exe().map_err(Error::NoProgram)?;
        let mut command = Command::new(program);
        command.args(["script", "serve", "--with-parent", "--socket"]).arg(socket);
        // An interrupt from the keyboard is for the daemon: the host ends with the pipe that the daemon holds.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
        let child = command.spawn().map_err(Error::NotStarted)?;
        let mut host = Self { child, socket: socket.to_owned(), loaded: Vec::new() };
        wait_for(&host.socket, &mut host.child).map_err(Error::Silent)?;
        Ok(host)
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// What is new is loaded first, so that on an error all is as before.
    fn apply(&mut self, scripts: &[Attachment]) -> Result<(), Error> {
        let is_loaded = |script: &Attachment| self.loaded.iter().any(|(known, _)| known == script);
        let new: Vec<Attachment> = scripts.iter().filter(|script| !is_loaded(script)).cloned().collect();
        let mut loaded = Vec::new();
        let result = self.change(scripts, new, &mut loaded);
        if result.is_err() {
            for (_, id) in &loaded {
                let _ = self.ask(&Request::Unload { target: id.to_string() });
            }
            return result;
        }
        let (stay, go): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.loaded).into_iter().partition(|(script, _)| scripts.contains(script));
        self.loaded = stay;
        self.loaded.append(&mut loaded);
        for (_, id) in go {
            self.ask(&Request::Unload { target: id.to_string() })?;
        }
        Ok(())
    }

    fn change(
        &self,
        scripts: &[Attachment],
        new: Vec<Attachment>,
        loaded: &mut Vec<(Attachment, u64)>,
    ) -> Result<(), Error> {
        for script in new {
            let answer = self.ask(&Request::Load { script: Box::new(script.clone()) })?;
            loaded.push((script, answer["id"].as_u64().unwrap_or_default()));
        }
        for (_, id) in self.loaded.iter().filter(|(script, _)| scripts.contains(script)) {
            self.ask(&Request::Reload { target: id.to_string() })?;
        }
        Ok(())
    }

    fn ask(&self, request: &Request) -> Result<serde_json::Value, Error> {
        Ok(ask(&self.socket, request)?)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // The end of the pipe tells it to end, and to remove its rules.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Whether a host listens at `socket`.
pub fn answers(socket: &Path) -> bool {
    let connected = std::os::unix::net::UnixStream::connect(socket);
    // Whoever may only look, or not even that, is told so by it.
    !connected.is_err_and(|error| error.kind() != std::io::ErrorKind::PermissionDenied)
}

/// Waits until a host that was started answers.
///
/// # Errors
/// How it failed to.
pub fn wait_for(socket: &Path, child: &mut Child) -> Result<(), NoAnswer> {
    let deadline = Instant::now() + START;
    while !answers(socket) {
        if matches!(child.try_wait(), Ok(Some(_)) | Err(_)) {
            // Another may have been faster.
            return if answers(socket) { Ok(()) } else { Err(NoAnswer::Ended) };
        }
        if Instant::now() >= deadline {
            return Err(NoAnswer::Late);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
