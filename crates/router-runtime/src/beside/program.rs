//! A program of others, looked after by a thread of its own.
//!
//! The thread gives up its privileges, and with it the program that it starts: of capabilities and of files both have what
//! is named, and the filter of system calls is that of the daemon. The kernel ends the program with the thread, so that none
//! is left where the daemon is killed.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linux::process::{self, Capability, Signal};
use tracing::{debug, info, warn};

/// How long it waits before it starts the program anew: the first time, and at most.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A program that has run so long has not ended because it cannot run.
const STEADY: Duration = Duration::from_secs(60);
/// How often it is looked whether it has ended, beside that it closes its output.
const LOOK: Duration = Duration::from_secs(5);
/// How long it may take to end.
const ENDING: Duration = Duration::from_secs(3);
/// The longest line of its output that is read as one.
const LINE: u64 = 512;

/// What to run, and what it may.
pub(crate) struct Description {
    /// What messages call it.
    pub(crate) name: String,
    /// The program's path, and what it is called with.
    pub(crate) path: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    /// Files and folders that it reads, and that it writes, which are there.
    pub(crate) readable: Vec<PathBuf>,
    pub(crate) writable: Vec<PathBuf>,
    pub(crate) capabilities: &'static [Capability],
    /// What stands in its way now, as another program at its port.
    pub(crate) obstacle: Box<dyn Fn() -> Option<String> + Send>,
    /// Given each line that it writes, without control characters. False where it is of no use after that, until it is
    /// started anew.
    pub(crate) listen: Arc<dyn Fn(&str) -> bool + Send + Sync>,
}

/// A program that is run. It ends when this is dropped.
pub(crate) struct Program {
    messages: Sender<Message>,
    state: Arc<Mutex<State>>,
    thread: Option<JoinHandle<()>>,
}

/// How it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// Its process, while it runs.
    pub(crate) id: Option<u32>,
    /// Why it does not run.
    pub(crate) why: Option<String>,
    /// How often it was started anew.
    pub(crate) restarts: u64,
}

enum Message {
    /// It is to read its files again.
    Reread,
    /// The process of this number has closed its output, as at its end.
    Silent(u32),
    /// That of this number has written that it is of no use.
    Useless(u32),
    Stop,
}

impl Program {
    /// Has it run from now on.
    ///
    /// # Errors
    /// Where there is no thread to be had.
    pub(crate) fn start(description: Description) -> std::io::Result<Self> {
        let (messages, received) = channel();
        let state = Arc::new(Mutex::new(State::default()));
        let (own, send) = (Arc::clone(&state), messages.clone());
        let look_after = move || look_after(&description, &received, &send, &own);
        let thread = std::thread::Builder::new().name("beside".into()).spawn(look_after)?;
        Ok(Program { messages, state, thread: Some(thread) })
    }

    /// Has it read its files again (SIGHUP).
    pub(crate) fn reread(&self) {
        let _ = self.messages.send(Message::Reread);
    }

    /// How it is now.
    pub(crate) fn state(&self) -> State {
        lock(&self.state).clone()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.messages.send(Message::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// That another program has the port it needs.
pub(crate) fn taken(port: u16, at: impl std::fmt::Display) -> String {
    format!("port {port} at {at} is taken by another program (`ss -lntup 'sport = {port}'` names it)")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn look_after(
    description: &Description,
    messages: &Receiver<Message>,
    send: &Sender<Message>,
    state: &Mutex<State>,
) {
    let name = &description.name;
    if let Err(error) = confine(description) {
        lock(state).why = Some(format!("not started, since it would not be confined: {error}"));
        return;
    }
    let mut pause = PAUSE;
    loop {
        let started = Instant::now();
        let why = match (description.obstacle)() {
            Some(obstacle) => obstacle,
            None => match run_once(description, messages, send, state) {
                Ok(()) => return,
                Err(why) => {
                    warn!(event = "program_ended", "{name}: {why}; it is started anew");
                    lock(state).restarts += 1;
                    why
                }
            },
        };
        {
            let mut state = lock(state);
            state.id = None;
            state.why = Some(why);
        }
        pause = if started.elapsed() >= STEADY { PAUSE } else { pause };
        let until = Instant::now() + pause;
        loop {
            match messages.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(Message::Reread | Message::Silent(_) | Message::Useless(_)) => {}
                Err(RecvTimeoutError::Timeout) => break,
            }
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// This thread, and so what it starts, has from now on what the program needs.
fn confine(description: &Description) -> linux::Result<()> {
    let folder = description.path.canonicalize().ok().and_then(|path| path.parent().map(Path::to_owned));
    let readable: Vec<&Path> = description.readable.iter().chain(&folder).map(PathBuf::as_path).collect();
    let writable: Vec<&Path> = description.writable.iter().map(PathBuf::as_path).collect();
    if !linux::confine::confine_program(&readable, &writable)? {
        info!("this kernel has no Landlock: {} could read and write other files", description.name);
    }
    process::keep_capabilities(description.capabilities)
}

/// Runs it until it is to end, or else until it ends, and why that was.
fn run_once(
    description: &Description,
    messages: &Receiver<Message>,
    send: &Sender<Message>,
    state: &Mutex<State>,
) -> Result<(), String> {
    let mut command = Command::new(&description.path);
    command
        .args(&description.arguments)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // An interrupt from the keyboard is for the daemon.
        .process_group(0);
    process::end_with_this_thread(&mut command);
    let mut child = command.spawn().map_err(|error| format!("cannot be started: {error}"))?;
    let last = Arc::new(Mutex::new(String::new()));
    if let Some(output) = child.stderr.take() {
        let (name, last, send, id) = (description.name.clone(), Arc::clone(&last), send.clone(), child.id());
        let listen = Arc::clone(&description.listen);
        let read = move || {
            read_lines(output, |line| {
                debug!("{name}: {line}");
                if !listen(&line) {
                    let _ = send.send(Message::Useless(id));
                }
                *lock(&last) = line;
            });
            let _ = send.send(Message::Silent(id));
        };
        // Without it the program is stopped by a full pipe one day.
        if let Err(error) = std::thread::Builder::new().name("beside-log".into()).spawn(read) {
            end(&mut child);
            return Err(format!("cannot be listened to: {error}"));
        }
    }
    {
        let mut state = lock(state);
        state.id = Some(child.id());
        state.why = None;
    }
    info!(event = "program_started", "{} runs", description.name);
    loop {
        match messages.recv_timeout(LOOK) {
            Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => {
                end(&mut child);
                return Ok(());
            }
            Ok(Message::Reread) => process::signal(&child, Signal::SIGHUP),
            // It ends now, or has ended.
            Ok(Message::Silent(id)) if id == child.id() => {
                let status = wait(&mut child, ENDING);
                return Err(ended(status, &lock(&last)));
            }
            Ok(Message::Useless(id)) if id == child.id() => {
                end(&mut child);
                return Err(format!("it has given up: {}", lock(&last)));
            }
            Ok(Message::Silent(_) | Message::Useless(_)) | Err(RecvTimeoutError::Timeout) => {}
        }
        if let Ok(Some(status)) = child.try_wait() {
            return Err(ended(Some(status), &lock(&last)));
        }
    }
}

fn ended(status: Option<ExitStatus>, last: &str) -> String {
    let status =
        status.map_or("it does not answer any more".to_owned(), |status| format!("it has ended ({status})"));
    if last.is_empty() { status } else { format!("{status}, and has said last: {last}") }
}

fn end(child: &mut Child) {
    process::signal(child, Signal::SIGTERM);
    wait(child, ENDING);
}

/// Waits for its end; it is killed where that does not come.
fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + limit;
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() >= deadline {
            let _ = child.kill();
            return child.wait().ok();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Hands over each line, without what a terminal would take for more than text. What hosts send can be in it.
fn read_lines(output: impl Read, mut hand_over: impl FnMut(String)) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    loop {
        line.clear();
        match output.by_ref().take(LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line);
        let text: String = text.chars().filter(|c| !c.is_control()).collect();
        if !text.trim().is_empty() {
            hand_over(text.trim().to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, obstacle: impl Fn() -> Option<String> + Send + 'static) -> Program {
        Program::start(Description { obstacle: Box::new(obstacle), ..described(script) }).unwrap()
    }

    fn listened(script: &str, listen: impl Fn(&str) -> bool + Send + Sync + 'static) -> Program {
        Program::start(Description { listen: Arc::new(listen), ..described(script) }).unwrap()
    }

    fn described(script: &str) -> Description {
        Description {
            name: "a test".to_owned(),
            path: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            readable: Vec::new(),
            writable: Vec::new(),
            capabilities: &[],
            obstacle: Box::new(|| None),
            listen: Arc::new(|line| line != "of no use"),
        }
    }

    /// Waits for what comes sooner or later.
    fn wait_for(program: &Program, what: impl Fn(&State) -> bool) -> State {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let state = program.state();
            if what(&state) {
                return state;
            }
            assert!(Instant::now() < deadline, "{state:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_program_that_ends_is_started_anew_and_says_why_it_ended() {
        let program = shell("echo 'no such \u{1b}[31mport' >&2; exit 3", || None);
        let state = wait_for(&program, |state| state.restarts >= 2);
        let why = state.why.unwrap_or_else(|| wait_for(&program, |state| state.why.is_some()).why.unwrap());
        assert!(why.contains("exit status: 3") && why.contains("no such [31mport"), "{why}");
    }

    #[test]
    fn a_program_that_is_of_no_use_any_more_is_started_anew() {
        let program = shell("echo 'of no use' >&2; exec sleep 600", || None);
        let state = wait_for(&program, |state| state.restarts >= 1 && state.why.is_some());
        assert_eq!(state.why.as_deref(), Some("it has given up: of no use"));
        wait_for(&program, |state| state.restarts >= 2);
    }

    #[test]
    fn a_program_runs_until_it_is_dropped_and_not_longer() {
        let program = shell("trap 'exit 0' TERM; while :; do sleep 0.1; done", || None);
        let id = wait_for(&program, |state| state.id.is_some()).id.unwrap();
        assert!(Path::new(&format!("/proc/{id}")).exists());
        drop(program);
        assert!(!Path::new(&format!("/proc/{id}")).exists());
    }

    /// Files change while it starts, and again once it runs.
    #[test]
    fn a_program_that_is_told_to_read_its_files_again_before_it_can_hear_that_goes_on() {
        // A moment without a handler, as between exec and the first lines of any program.
        let script = "exec perl -e 'select(undef, undef, undef, 0.3); $SIG{HUP} = sub { print STDERR \"read again\\n\" }; \
                      print STDERR \"ready\\n\"; sleep 1 while 1'";
        let (said, says) = channel();
        let program = listened(script, move |line| said.send(line.to_owned()).is_ok());
        program.reread();
        let id = wait_for(&program, |state| state.id.is_some()).id;
        program.reread();
        let says = || says.recv_timeout(Duration::from_secs(60)).unwrap();
        while says() != "ready" {}
        program.reread();
        assert_eq!(says(), "read again");
        let state = program.state();
        assert_eq!((state.id, state.restarts), (id, 0));
    }

    #[test]
    fn what_stands_in_its_way_is_told_and_it_runs_once_that_is_gone() {
        let (free, is_free) = std::sync::mpsc::channel();
        let program = shell("sleep 60", move || is_free.try_recv().err().map(|_| "taken".to_owned()));
        let state = wait_for(&program, |state| state.why.is_some());
        assert_eq!((state.why.as_deref(), state.id), (Some("taken"), None));
        free.send(()).unwrap();
        let state = wait_for(&program, |state| state.id.is_some());
        assert_eq!(state.why, None);
    }

    #[test]
    fn long_lines_are_read_in_pieces() {
        let mut lines = Vec::new();
        read_lines(&[&[b'a'; 1_000][..], b"\n\nb"].concat()[..], |line| lines.push(line));
        assert_eq!(lines.iter().map(String::len).collect::<Vec<_>>(), [512, 488, 1]);
    }
}
