//! Answering clients.

use std::fs::DirBuilder;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Serialize;
use tracing::warn;

use crate::listen::{listen_privately, listen_to, remove_stale_socket};
use crate::message::{Ask, ENDING, Reply, Request, SHORT};
use crate::path::Others;
use crate::tunnel_status::Status;

/// How long a client may take to send its request.
const REQUEST_TIME: Duration = Duration::from_secs(1);
/// How long it may take to send one that is longer than most, or to read such an answer.
const LONG_TIME: Duration = Duration::from_secs(10);
/// How long the daemon may take to answer. Loading scripts asks `nft` several times, and threads that may be busy.
const ANSWER_TIME: Duration = Duration::from_secs(40);
/// How often a request that waits is looked after: where the server has ended meanwhile, nobody will answer it.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long a client may take to read its answer.
const REPLY_TIME: Duration = Duration::from_secs(2);
/// A request that waits for the daemon's answer. Dropped without one, the client is told that the daemon is shutting down.
#[derive(Debug)]
pub struct Call<R = Request> {
    /// What is asked for.
    pub request: R,
    answer: SyncSender<Answer>,
}

/// The daemon's answer: the status is made a document by the thread that serves the client.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Answer {
    Reply(Reply),
    Status { ok: Box<Status> },
}

impl<R> Call<R> {
    /// Answers. Never blocks; a client that has gone does not matter.
    pub fn answer(self, reply: Reply) {
        let _ = self.answer.try_send(Answer::Reply(reply));
    }

    /// Answers with the status.
    pub fn answer_status(self, status: Status) {
        let _ = self.answer.try_send(Answer::Status { ok: Box::new(status) });
    }
}

/// The listening sockets, each served by a thread of its own. Dropping it ends the threads and removes the sockets.
#[derive(Debug)]
pub struct Server {
    own: Listening,
    /// The sockets for others.
    _others: Vec<Listening>,
    /// What still waits for an answer is told that the daemon is ending.
    ended: Arc<AtomicBool>,
}

impl Server {
    /// Listens at `path`, whose folder is made if need be. The file of a daemon that has died is replaced; where one
    /// answers, or something else than a socket is, this fails with a message that names the path. Where there is a folder
    /// for others, it listens there, too.
    ///
    /// `deliver` is called on a thread of the server for each request, when the one before has been answered: it hands the
    /// call to the daemon's thread (a channel and whatever wakes it) and returns at once.
    pub fn start<R: Ask>(path: &Path, deliver: impl FnMut(Call<R>) + Send + 'static) -> io::Result<Server> {
        let about_path =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            DirBuilder::new().mode(0o755).recursive(true).create(folder).map_err(about_path)?;
        }
        remove_stale_socket(path)?;
        let ended = Arc::new(AtomicBool::new(false));
        let deliver = Arc::new(Mutex::new(deliver));
        let start = |at: &Path, listener: UnixListener, others: Option<Others>| {
            let (deliver, seen) = (Arc::clone(&deliver), Arc::clone(&ended));
            let limit = others.map(|others| (others, path.to_owned()));
            Listening::start(at, listener, move |listener| {
                serve(listener, &deliver, &seen, limit.as_ref());
            })
        };
        let own =
            listen_privately(path).and_then(|listener| start(path, listener, None)).map_err(about_path)?;
        let listen = |others| {
            let found = listen_to(others, path);
            let started = found
                .and_then(|found| found.map(|(at, listener)| start(&at, listener, Some(others))).transpose());
            started.unwrap_or_else(|error| {
                warn!("only the owner of {} can ask: {error}", path.display());
                None
            })
        };
        let others = Others::ALL.into_iter().filter_map(listen).collect();
        Ok(Server { own, _others: others, ended })
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.own.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Before its threads are waited for.
        self.ended.store(true, Relaxed);
    }
}

/// A listening socket and its thread.
#[derive(Debug)]
struct Listening {
    path: PathBuf,
    /// Device and inode of the socket file, to remove no other.
    identity: (u64, u64),
    /// The listening socket once more: shutting it down wakes the thread from `accept`.
    listener: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Listening {
    fn start(
        path: &Path,
        listener: UnixListener,
        serve: impl FnOnce(&UnixListener) + Send + 'static,
    ) -> io::Result<Self> {
        let metadata = std::fs::symlink_metadata(path)?;
        let waker = UnixStream::from(OwnedFd::from(listener.try_clone()?));
        let serve = move || {
            // It reads what others ask. What the daemon's own threads keep they may give up later than this one starts.
            if let Err(error) = linux::process::keep_capabilities(&[]) {
                tracing::warn!("{error}");
            }
            serve(&listener);
        };
        let thread = std::thread::Builder::new().name("control".into()).spawn(serve)?;
        Ok(Listening {
            path: path.to_owned(),
            identity: (metadata.dev(), metadata.ino()),
            listener: waker,
            thread: Some(thread),
        })
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path).is_ok_and(|m| (m.dev(), m.ino()) == self.identity);
        if ours {
            // In a folder that the daemon may no longer write to, the file stays; the next start replaces it.
            let _ = std::fs::remove_file(&self.path);
        }
        if self.listener.shutdown(Shutdown::Both).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

/// Who may ask here, and the socket for what they may not ask, where this one is not the owner's.
type Limit = (Others, PathBuf);

fn serve<R: Ask>(
    listener: &UnixListener,
    deliver: &Mutex<impl FnMut(Call<R>)>,
    ended: &AtomicBool,
    limit: Option<&Limit>,
) {
    loop {
        match listener.accept() {
            // Those who wait when it is shut down still come, and would be waited for one by one.
            Ok(_) if ended.load(Relaxed) => return,
            Ok((stream, _)) => {
                // A client that fails is its own affair.
                let _ = serve_one(&stream, deliver, ended, limit);
            }
            // Shut down.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
            // No descriptor or memory left: some may come free.
            Err(_) => std::thread::sleep(Duration::from_millis(200)),
        }
    }
}

fn serve_one<R: Ask>(
    stream: &UnixStream,
    deliver: &Mutex<impl FnMut(Call<R>)>,
    ended: &AtomicBool,
    limit: Option<&Limit>,
) -> io::Result<()> {
    let longest = if limit.is_some() { SHORT } else { R::LONGEST };
    let reply = match read_request(Timed::new(stream, REQUEST_TIME), longest) {
        Ok(line) => match (serde_json::from_slice::<R>(&line), limit) {
            (Ok(request), Some((others, socket))) if request.effect() > others.may() => {
                Answer::Reply(Reply::Error(format!(
                    "{}: only the owner of {} may ask for that, so try again with sudo",
                    others.words(),
                    socket.display()
                )))
            }
            (Ok(request), _) => {
                let (answer, answered) = sync_channel(1);
                // One question at a time, at both sockets together: what the daemon relies on. (One that has panicked there has
                // left nothing half done: it only hands on.)
                let mut deliver = deliver.lock().unwrap_or_else(PoisonError::into_inner);
                deliver(Call { request, answer });
                wait(&answered, ended)
            }
            (Err(error), _) => Answer::Reply(Reply::Error(format!("not a request: {error}"))),
        },
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Answer::Reply(Reply::Error(error.to_string()))
        }
        Err(error) => return Err(error),
    };
    let mut document = serde_json::to_vec(&reply)?;
    document.push(b'\n');
    let time = if longest > SHORT { LONG_TIME } else { REPLY_TIME };
    Timed::new(stream, time).write_all(&document)
}

fn wait(answered: &Receiver<Answer>, ended: &AtomicBool) -> Answer {
    let error = |message: &str| Answer::Reply(Reply::Error(message.to_owned()));
    let deadline = Instant::now() + ANSWER_TIME;
    loop {
        match answered.recv_timeout(LOOK_EVERY) {
            Ok(answer) => return answer,
            Err(RecvTimeoutError::Disconnected) => return error(ENDING),
            Err(RecvTimeoutError::Timeout) if ended.load(Relaxed) => return error(ENDING),
            Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => {
                return error("the daemon is too busy to answer");
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// One line, or all that comes until the client stops sending.
fn read_request(mut stream: Timed<'_>, longest: usize) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut buffer = [0; SHORT];
    loop {
        let count = stream.read(&mut buffer)?;
        if let Some(end) = buffer[..count].iter().position(|&byte| byte == b'\n') {
            line.extend_from_slice(&buffer[..end]);
            return Ok(line);
        }
        line.extend_from_slice(&buffer[..count]);
        if line.len() > longest {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the request is too long"));
        }
        if count == 0 {
            return Ok(line);
        }
        if line.len() > SHORT {
            stream.extend(LONG_TIME);
        }
    }
}

/// A stream with a deadline for all that is read from it or written to it.
struct Timed<'a> {
    stream: &'a UnixStream,
    began: Instant,
    deadline: Instant,
}

impl<'a> Timed<'a> {
    fn new(stream: &'a UnixStream, time: Duration) -> Self {
        let began = Instant::now();
        Timed { stream, began, deadline: began + time }
    }

    /// Gives it this time in all.
    fn extend(&mut self, time: Duration) {
        self.deadline = self.began + time;
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Error, ask, find};
    use crate::standby::{Be, View};
    use serde_json::json;
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::mpsc::channel;

    /// What only an agent says.
    fn turn() -> Request {
        let be = Be { turn: Some(7), announce: true, until_ms: 0, view: View::default() };
        Request::Turn { be: Some(be) }
    }

    /// A daemon that echoes requests, in a folder of its own.
    fn daemon(folder: &Path) -> (Server, PathBuf) {
        let path = folder.join("run/mt6d0.sock");
        let (calls, received) = channel::<Call>();
        let server = Server::start(&path, move |call| drop(calls.send(call))).unwrap();
        std::thread::spawn(move || {
            for call in received {
                let reply = match call.request {
                    Request::Show | Request::Events { .. } | Request::Firewall | Request::Reach { .. } => {
                        Reply::Ok(json!({"version": "0"}))
                    }
                    Request::Explain { ref packet } => Reply::Error(packet.clone()),
                    Request::Reload { .. } | Request::Confirm | Request::Turn { .. } => {
                        Reply::Error("the file is wrong".into())
                    }
                    Request::Down | Request::TestClockOffset { .. } => continue,
                };
                call.answer(reply);
            }
        });
        (server, path)
    }

    #[test]
    fn requests_are_answered_until_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let (server, path) = daemon(folder.path());
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(find(&folder.path().join("run")).unwrap(), path);
        for _ in 0..3 {
            assert_eq!(ask(&path, &Request::Show).unwrap(), json!({"version": "0"}));
        }
        let refused = ask(&path, &Request::Reload { confirm_ms: None }).unwrap_err();
        assert_eq!(refused.to_string(), "the file is wrong");
        let dropped = ask(&path, &Request::TestClockOffset { ms: -5 }).unwrap_err();
        assert_eq!(dropped.to_string(), "the daemon is shutting down");
        drop(server);
        assert!(!path.exists());
        assert!(matches!(ask(&path, &Request::Show), Err(Error::NotRunning { .. })));
    }

    /// A client comes when the daemon has decided to end, but has not yet dropped what it receives requests with.
    #[test]
    fn a_request_that_nobody_will_answer_does_not_hold_up_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mt6d0.sock");
        let (calls, received) = channel::<Call>();
        let server = Server::start(&path, move |call| drop(calls.send(call))).unwrap();
        let client = std::thread::spawn(move || ask(&path, &Request::Show));
        let call = received.recv().unwrap();
        drop(server);
        assert_eq!(client.join().unwrap().unwrap_err().to_string(), ENDING);
        drop(call);
    }

    #[test]
    fn a_second_daemon_is_refused_and_a_dead_one_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (server, path) = daemon(folder.path());
        let second = Server::start(&path, drop::<Call>).unwrap_err();
        assert!(second.to_string().contains("another sidestep answers"), "{second}");
        assert!(ask(&path, &Request::Show).is_ok());
        drop(server);

        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let (_server, path) = daemon(folder.path());
        assert!(ask(&path, &Request::Show).is_ok());
    }

    #[test]
    fn what_is_no_socket_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mt6d0.sock");
        std::fs::write(&path, "precious").unwrap();
        assert!(Server::start(&path, drop::<Call>).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    }

    #[test]
    fn a_stuck_client_and_nonsense_hold_nobody_up() {
        let folder = tempfile::tempdir().unwrap();
        let (_server, path) = daemon(folder.path());
        let _stuck = UnixStream::connect(&path).unwrap();
        let mut long = UnixStream::connect(&path).unwrap();
        long.write_all(&[b'x'; 2 * SHORT]).unwrap();
        let mut nonsense = UnixStream::connect(&path).unwrap();
        nonsense.write_all(b"{\"command\":\"shoe\"}\n").unwrap();
        assert!(ask(&path, &Request::Show).is_ok());
        let mut answer = String::new();
        nonsense.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("{\"error\":\"not a request"), "{answer}");
    }

    #[test]
    fn several_sockets_are_listed() {
        let folder = tempfile::tempdir().unwrap();
        let _scripts = UnixListener::bind(folder.path().join("scripts-4026531840.sock")).unwrap();
        assert!(matches!(find(folder.path()), Err(Error::NoSocket(_))), "a script host is no tunnel");
        let _sockets =
            ["one.sock", "two.sock"].map(|name| UnixListener::bind(folder.path().join(name)).unwrap());
        assert_eq!(
            find(folder.path()).unwrap_err().to_string(),
            "several tunnels are up: name one of them: one, two"
        );
    }

    /// The folder for those who may only look, beside that of the socket, as the package makes it.
    fn folder_of_readers(folder: &Path, mode: u32) -> PathBuf {
        let readers = folder.join("run-read");
        std::fs::create_dir(&readers).unwrap();
        std::fs::set_permissions(&readers, std::fs::Permissions::from_mode(mode)).unwrap();
        readers
    }

    #[test]
    fn who_may_only_look_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let readers = folder_of_readers(folder.path(), 0o2750);
        let (server, path) = daemon(folder.path());
        let look = readers.join("mt6d0.sock");
        assert_eq!(look.metadata().unwrap().permissions().mode() & 0o777, 0o660);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        for request in [Request::Show, Request::Events { after: 0 }, Request::Firewall] {
            assert_eq!(ask(&look, &request).unwrap(), json!({"version": "0"}));
        }
        let changes = [
            Request::Reach { peer: "site-b".into() },
            Request::Reload { confirm_ms: None },
            turn(),
            Request::Confirm,
            Request::Down,
            Request::TestClockOffset { ms: 1 },
        ];
        for request in changes {
            let refused = ask(&look, &request).unwrap_err().to_string();
            assert!(refused.starts_with("the group sidestep may look"), "{request:?}: {refused}");
        }
        // Whoever holds one socket up does not hold up the other.
        let _stuck = [&look; 8].map(|path| UnixStream::connect(path).unwrap());
        let began = Instant::now();
        assert!(ask(&path, &Request::Show).is_ok());
        assert!(began.elapsed() < REQUEST_TIME, "{:?}", began.elapsed());
        drop(server);
        assert!(began.elapsed() < 8 * REQUEST_TIME, "the end waits for each of them: {:?}", began.elapsed());
        assert!(!look.exists() && !path.exists());
    }

    #[test]
    fn an_agent_reloads_says_whose_turn_it_is_and_does_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let agents = folder.path().join("run-agent");
        std::fs::create_dir(&agents).unwrap();
        std::fs::set_permissions(&agents, std::fs::Permissions::from_mode(0o2750)).unwrap();
        let (_server, path) = daemon(folder.path());
        let socket = Others::Agents.socket(&path).unwrap();
        assert_eq!(socket, agents.join("mt6d0.sock"));
        assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o777, 0o660);
        assert!(ask(&socket, &Request::Show).is_ok());
        let reloaded = ask(&socket, &Request::Reload { confirm_ms: None }).unwrap_err();
        assert_eq!(reloaded.to_string(), "the file is wrong", "the daemon's own answer");
        let turn = ask(&socket, &turn()).unwrap_err();
        assert_eq!(turn.to_string(), "the file is wrong", "it may say whose turn it is");
        let changes = [
            Request::Reach { peer: "site-b".into() },
            Request::Reload { confirm_ms: Some(1000) },
            Request::Confirm,
            Request::Down,
            Request::TestClockOffset { ms: 1 },
        ];
        for request in changes {
            let refused = ask(&socket, &request).unwrap_err().to_string();
            assert!(refused.starts_with("a fleet's agent may look and reload"), "{request:?}: {refused}");
        }
    }

    #[test]
    fn after_a_crash_the_socket_for_those_who_may_only_look_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let readers = folder_of_readers(folder.path(), 0o2750);
        let look = readers.join("mt6d0.sock");
        drop(UnixListener::bind(&look).unwrap());
        let (_server, path) = daemon(folder.path());
        assert!(ask(&look, &Request::Show).is_ok());
        // A second one does not take it away.
        assert!(Server::start(&path, drop::<Call>).is_err());
        assert!(ask(&look, &Request::Show).is_ok());
    }

    #[test]
    fn without_a_folder_of_its_own_for_those_who_may_only_look_there_is_no_socket_for_them() {
        let folder = tempfile::tempdir().unwrap();
        let (server, path) = daemon(folder.path());
        assert!(!folder.path().join("run-read").exists());
        assert!(ask(&path, &Request::Show).is_ok());
        drop(server);
        // Others could put a socket of theirs there.
        let readers = folder_of_readers(folder.path(), 0o2770);
        let (_server, path) = daemon(folder.path());
        assert!(!readers.join("mt6d0.sock").exists());
        assert!(ask(&path, &Request::Show).is_ok());
    }

    #[test]
    fn requests_as_they_are_written_by_hand() {
        let parse = |text| serde_json::from_str::<Request>(text).unwrap();
        assert_eq!(parse(r#"{"command":"show"}"#), Request::Show);
        assert_eq!(parse(r#"{"command":"reload"}"#), Request::Reload { confirm_ms: None });
        let reload = serde_json::to_string(&Request::Reload { confirm_ms: None }).unwrap();
        assert_eq!(reload, r#"{"command":"reload"}"#, "as a daemon of an earlier version knows it");
        let within_a_minute = r#"{"command":"reload","confirm_ms":60000}"#;
        assert_eq!(parse(within_a_minute), Request::Reload { confirm_ms: Some(60_000) });
        assert_eq!(parse(r#"{"command":"confirm"}"#), Request::Confirm);
        assert_eq!(parse(r#"{"command":"down"}"#), Request::Down);
        assert_eq!(
            parse(r#"{"command":"test-clock-offset","ms":-30000}"#),
            Request::TestClockOffset { ms: -30_000 }
        );
    }
}
