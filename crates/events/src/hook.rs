//! The program that is run at each event (`on_event`).

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
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

/// How long the end of this process waits for it.
const END: Duration = Duration::from_secs(3);

static HOOK: Mutex<Option<Hook>> = Mutex::new(None);

struct Hook {
    queue: SyncSender<Event>,
    thread: JoinHandle<()>,
}

fn hook() -> MutexGuard<'static, Option<Hook>> {
    HOOK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on runs `program` at each event: one at a time, with the event as a document on its standard input, and
/// `SIDESTEP_EVENT`, `SIDESTEP_PEER`, `SIDESTEP_REASON`, `SIDESTEP_PRIORITY` and `SIDESTEP_MESSAGE` in its environment. It has
/// no capabilities, and all that confines this process confines it, too. After ten seconds it is ended, with what it started.
///
/// To be called once, after this process was confined.
///
/// # Errors
/// Where there is no thread to be had.
pub fn start(program: &Path) -> std::io::Result<()> {
    let (queue, events) = sync_channel(WAITING);
    let program = program.to_owned();
    let thread =
        std::thread::Builder::new().name("on_event".into()).spawn(move || serve(&program, &events))?;
    *hook() = Some(Hook { queue, thread });
    Ok(())
}

/// Waits until it has run at all events so far, for three seconds at most: the end of a daemon is one of them. To be called
/// when nothing else happens.
pub fn end() {
    let Some(Hook { queue, thread }) = hook().take() else { return };
    drop(queue);
    let deadline = Instant::now() + END;
    while !thread.is_finished() && Instant::now() < deadline {
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Has the program run, if there is one. Where too many wait already, this one is left out: it is in the log.
pub(crate) fn run(event: Event) {
    if let Some(hook) = &*hook() {
        let _ = hook.queue.try_send(event);
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn event() -> Event {
        Event {
            number: 7,
            time: "2026-01-01T00:00:00.000Z".to_owned(),
            unix_ms: 0,
            priority: "warning".to_owned(),
            event: "peer_silent".to_owned(),
            peer: Some("site-b".to_owned()),
            reason: None,
            message: "site-b: $(touch x) `x`".to_owned(),
            fields: serde_json::Map::new(),
        }
    }

    /// One test at a time: a process that another thread starts while this one writes a program has its file open, too,
    /// and nobody may run a file that somebody can write to.
    static WRITES: Mutex<()> = Mutex::new(());

    fn script(folder: &Path, text: &str) -> PathBuf {
        let path = folder.join("hook");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn the_program_has_the_event_and_nothing_of_ours() {
        let _alone = WRITES.lock();
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let program = script(folder.path(), &format!("{{ cat; env; }} > {}", out.display()));
        run_once(&program, &event()).unwrap();
        let told = std::fs::read_to_string(out).unwrap();
        let (document, environment) = told.split_once('\n').unwrap();
        assert_eq!(serde_json::from_str::<Event>(document).unwrap(), event());
        assert!(environment.contains("SIDESTEP_MESSAGE=site-b: $(touch x) `x`\n"), "{environment}");
        assert!(!environment.contains("CARGO"), "{environment}");
    }

    #[test]
    fn one_that_fails_is_not_there_or_does_not_read_is_told_and_survived() {
        let _alone = WRITES.lock();
        let folder = tempfile::tempdir().unwrap();
        assert!(run_once(&script(folder.path(), "exit 3"), &event()).unwrap_err().contains("exit status: 3"));
        assert!(run_once(&folder.path().join("none"), &event()).unwrap_err().contains("cannot be run"));
        run_once(&script(folder.path(), "exec <&-; exit 0"), &event()).unwrap();
    }
}
