//! The program that is run at each event (`on_event`).

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use control::event::Event;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tracing::warn;

/// Events that wait for the program to end that was run at the one before.
const WAITING: usize = 64;
/// How long it may run, and how often it is looked after.
const TIME: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);

static QUEUE: OnceLock<SyncSender<Event>> = OnceLock::new();

/// From now on runs `program` at each event: one at a time, with the event as a document on its standard input, and
/// `SIDESTEP_EVENT`, `SIDESTEP_PEER`, `SIDESTEP_REASON`, `SIDESTEP_PRIORITY` and `SIDESTEP_MESSAGE` in its environment. It has
/// no capabilities, and all that confines this process confines it, too. After ten seconds it is ended, with what it started.
///
/// To be called once, after this process was confined.
///
/// # Errors
/// Where there is no thread to be had.
pub fn start(program: &Path) -> std::io::Result<()> {
    let (send, events) = sync_channel(WAITING);
    let program = program.to_owned();
    std::thread::Builder::new().name("on_event".into()).spawn(move || serve(&program, &events))?;
    let _ = QUEUE.set(send);
    Ok(())
}

/// Has the program run, if there is one. Where too many wait already, this one is left out: it is in the log.
pub(crate) fn run(event: Event) {
    if let Some(queue) = QUEUE.get() {
        let _ = queue.try_send(event);
    }
}

fn serve(program: &PathBuf, events: &Receiver<Event>) {
    // Of this thread, and so of what it starts.
    for set in
        [caps::CapSet::Ambient, caps::CapSet::Inheritable, caps::CapSet::Effective, caps::CapSet::Permitted]
    {
        if let Err(error) = caps::clear(None, set) {
            warn!(
                "on_event: {}: not run, since it would have this program's capabilities: {error}",
                program.display()
            );
            return;
        }
    }
    for event in events {
        if let Err(why) = run_once(program, &event) {
            warn!("on_event: {}: {why}", program.display());
        }
    }
}

fn run_once(program: &PathBuf, event: &Event) -> Result<(), String> {
    let mut document = serde_json::to_vec(event).map_err(|error| error.to_string())?;
    document.push(b'\n');
    let mut child = Command::new(program)
        .env_clear()
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("SIDESTEP_EVENT", &event.event)
        .env("SIDESTEP_PEER", event.peer.as_deref().unwrap_or(""))
        .env("SIDESTEP_REASON", event.reason.as_deref().unwrap_or(""))
        .env("SIDESTEP_PRIORITY", &event.priority)
        .env("SIDESTEP_MESSAGE", &event.message)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|error| format!("cannot be run: {error}"))?;
    if let Some(mut input) = child.stdin.take() {
        // What does not want to read it need not: a document fits into the pipe.
        let _ = input.write_all(&document);
    }
    wait(&mut child)
}

fn wait(child: &mut Child) -> Result<(), String> {
    let deadline = Instant::now() + TIME;
    loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(format!("failed: {status}")),
            None if Instant::now() < deadline => std::thread::sleep(LOOK_EVERY),
            None => {
                let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
                let _ = child.wait();
                return Err(format!("still ran after {} s, and was ended", TIME.as_secs()));
            }
        }
    }
}
