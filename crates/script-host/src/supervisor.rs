//! The script host of a daemon: a process of its own, so that nothing a script does reaches this one.
//!
//! A thread looks after it: it loads what the configuration says, again after a reload, and starts the host anew should
//! it end. Then each script runs that can be loaded. The others are tried again; what becomes of their packets until then,
//! and of all packets until there is a host, is as `fail_open` of each script says: the new host [holds](crate::held) them.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tracing::{error, info, warn};

use crate::{Request, rules};
use config::Configured;
use config::attachment::Attachment;
use control::{Call, Reply};

/// How long a host may take until it answers.
const START: Duration = Duration::from_secs(30);
/// How often it is looked after.
const LOOK: Duration = Duration::from_secs(1);
/// How long until what could not be started, or loaded, is tried again: at most, and at first [`LOOK`].
const LATEST: Duration = Duration::from_mins(1);
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

/// The process.
struct Host {
    child: Child,
    socket: PathBuf,
}

/// What the thread has.
struct Supervisor {
    socket: PathBuf,
    wanted: Vec<Attachment>,
    host: Option<Host>,
    /// When it was started, and how long nobody starts another one if it ends: the longer, the more often it did so soon.
    started: Instant,
    rest: Duration,
    /// Those that do not run since there is another host, and why.
    missing: Vec<(Attachment, String)>,
    /// When these are tried again, and how long it takes until then once more.
    again: Instant,
    pause: Duration,
}

impl Scripts {
    /// Starts the host, if there are scripts, and loads them all.
    ///
    /// # Errors
    /// If the host does not start, or a script cannot be loaded; then there is no host.
    pub fn start(scripts: &[Configured]) -> Result<Self, Error> {
        let socket = control::socket_of_scripts().map_err(Error::Io)?;
        let wanted = attachments(scripts);
        let host = host_of(&wanted, &socket)?;
        let (now, pause, rest) = (Instant::now(), LOOK, Duration::ZERO);
        let mut supervisor =
            Supervisor { socket, wanted, host, started: now, rest, missing: Vec::new(), again: now, pause };
        let (updates, asked) = channel::<Update>();
        let look_after = move || {
            loop {
                match asked.recv_timeout(LOOK) {
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => supervisor.look(),
                    Ok(update) => supervisor.update(update),
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

/// A host with all of these scripts, or none.
fn host_of(scripts: &[Attachment], socket: &Path) -> Result<Option<Host>, Error> {
    if scripts.is_empty() {
        return Ok(None);
    }
    let host = Host::start(socket, scripts)
        .and_then(|host| scripts.iter().try_for_each(|script| host.load(script)).map(|()| host))
        .inspect_err(|_| clear(socket))?;
    info!("packet scripts: {}", scripts.len());
    Ok(Some(host))
}

/// Removes the rules that a host has left, where none runs.
fn clear(socket: &Path) {
    if let Ok(Some(_lock)) = control::lock_beside(socket, Duration::ZERO)
        && rules::are_there().unwrap_or(false)
        && let Err(error) = rules::end()
    {
        warn!("rules of packet scripts stay: {error}");
    }
}

impl Supervisor {
    fn look(&mut self) {
        self.notice_end();
        if self.missing.is_empty() || Instant::now() < self.again {
            return;
        }
        if let Err(why) = self.complete() {
            error!(event = "scripts_lost", "no scripts run: {why}");
        }
        self.again = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LATEST);
    }

    fn notice_end(&mut self) {
        if self.host.as_mut().is_some_and(Host::has_ended) {
            error!(event = "script_host_ended", "the script host has ended: it is started anew");
            self.host = None;
            let before = std::mem::take(&mut self.missing);
            let why = |script| before.iter().find(|(one, _)| one == script).map(|(_, why)| why.clone());
            let missing = self.wanted.iter().map(|script| (script.clone(), why(script).unwrap_or_default()));
            self.missing = missing.collect();
            self.rest = match self.started.elapsed() >= LATEST {
                true => Duration::ZERO,
                false => (self.rest * 2).clamp(LOOK, LATEST),
            };
            (self.again, self.pause) = (Instant::now() + self.rest, LOOK);
        }
    }

    /// Starts a host if there is none, and loads what does not run.
    fn complete(&mut self) -> Result<(), Error> {
        let host = match self.host.take() {
            Some(host) => host,
            None => {
                self.started = Instant::now();
                Host::start(&self.socket, &self.wanted)?
            }
        };
        self.missing.retain_mut(|(script, before)| {
            let Err(why) = host.load(script) else { return false };
            let why = why.to_string();
            if why != *before {
                let packets = if script.fail_open { "pass" } else { "are dropped" };
                let (file, hook) = (script.file.display(), script.hook.name());
                error!(
                    event = "script_lost",
                    "{file} at {hook} does not run, and its packets {packets}: {why}"
                );
            }
            *before = why;
            true
        });
        self.host = Some(host);
        Ok(())
    }

    fn update(&mut self, Update { scripts, asked }: Update) {
        let result = self.have(&scripts);
        match (&result, asked) {
            (Ok(()), Some(call)) => call.answer(Reply::Ok(serde_json::Value::Null)),
            (Err(why), Some(call)) => call.answer(Reply::but_scripts(why)),
            (Ok(()), None) => {}
            (Err(why), None) => {
                warn!(event = "reload_refused", "the scripts stay as they were: {why}");
            }
        }
        if result.is_ok() {
            self.wanted = scripts;
            self.missing.clear();
        }
    }

    /// Has these scripts and no others, or those that there were.
    fn have(&mut self, scripts: &[Attachment]) -> Result<(), Error> {
        self.notice_end();
        if scripts.is_empty() {
            self.end();
            return Ok(());
        }
        if self.wanted.is_empty() {
            self.host = host_of(scripts, &self.socket)?;
            return Ok(());
        }
        if self.host.is_none() {
            // With the scripts that there were: if the others are refused, it is these that are to run.
            self.complete()?;
        }
        self.host.as_ref().map_or(Ok(()), |host| host.have(scripts, &self.wanted))
    }

    /// Ends the host. No rule stays, also of one that has been killed.
    fn end(&mut self) {
        self.host = None;
        if !self.wanted.is_empty() {
            clear(&self.socket);
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.end();
    }
}

impl Host {
    /// Starts one that is about to have these scripts.
    fn start(socket: &Path, scripts: &[Attachment]) -> Result<Self, Error> {
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
        let mut host = Self { child, socket: socket.to_owned() };
        if let Some(stdin) = &mut host.child.stdin {
            let announced = serde_json::to_string(scripts).map_err(std::io::Error::from);
            // One that has ended meanwhile has said why.
            let _ = announced.and_then(|line| writeln!(stdin, "{line}"));
        }
        wait_for(&host.socket, &mut host.child).map_err(Error::Silent)?;
        Ok(host)
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    fn load(&self, script: &Attachment) -> Result<(), Error> {
        // One that is loaded after all would be loaded twice.
        let request = Request::Load { script: Box::new(script.clone()) };
        Ok(control::ask_within(&self.socket, &request, control::LONG).map(drop)?)
    }

    /// Has it have these scripts in the place of those of before, or stay as it is.
    fn have(&self, scripts: &[Attachment], before: &[Attachment]) -> Result<(), Error> {
        let patience = control::LONG * u32::try_from(scripts.len()).unwrap_or(u32::MAX).max(1);
        let request = Request::Have { scripts: scripts.to_vec(), instead_of: before.to_vec() };
        Ok(control::ask_within(&self.socket, &request, patience).map(drop)?)
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
