//! Answering clients.

use std::fs::DirBuilder;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, socket};
use nix::sys::stat::{Mode, umask};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::message::{ENDING, Reply, Request};
use crate::path::is_of_gateway;
use crate::tunnel_status::Status;

/// The longest request, in bytes.
const LONGEST_REQUEST: usize = 4096;
/// How long a client may take to send its request.
const REQUEST_TIME: Duration = Duration::from_secs(1);
/// How long the daemon may take to answer. Loading scripts asks `nft` several times, and threads that may be busy.
const ANSWER_TIME: Duration = Duration::from_secs(40);
/// How often a request that waits is looked after: where the server has ended meanwhile, nobody will answer it.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long a client may take to read its answer.
const REPLY_TIME: Duration = Duration::from_secs(2);
/// How long the socket of a daemon that was killed may still be held: by what it began to run, until that has a program of its
/// own.
const DYING: Duration = Duration::from_millis(500);

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

/// The listening socket, served by a thread of its own. Dropping it ends the thread and removes the socket.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    /// Device and inode of the socket file, to remove no other.
    identity: (u64, u64),
    /// The listening socket once more: shutting it down wakes the thread from `accept`.
    listener: UnixStream,
    /// What still waits for an answer is told that the daemon is ending.
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens at `path`, whose folder is made if need be. The file of a daemon that has died is replaced; where one
    /// answers, or something else than a socket is, this fails with a message that names the path.
    ///
    /// `deliver` is called on the server's thread for each request: it hands the call to the daemon's thread
    /// (a channel and whatever wakes it) and returns at once.
    pub fn start<R: DeserializeOwned>(
        path: &Path,
        deliver: impl FnMut(Call<R>) + Send + 'static,
    ) -> io::Result<Server> {
        let about_path =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            DirBuilder::new().mode(0o755).recursive(true).create(folder).map_err(about_path)?;
        }
        remove_stale_socket(path)?;
        let listener = listen_privately(path).map_err(about_path)?;
        let metadata = std::fs::symlink_metadata(path).map_err(about_path)?;
        let waker = UnixStream::from(OwnedFd::from(listener.try_clone().map_err(about_path)?));
        let ended = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ended);
        let thread = std::thread::Builder::new()
            .name("control".into())
            .spawn(move || serve(&listener, deliver, &seen))?;
        Ok(Server {
            path: path.to_owned(),
            identity: (metadata.dev(), metadata.ino()),
            listener: waker,
            ended,
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path).is_ok_and(|m| (m.dev(), m.ino()) == self.identity);
        if ours {
            // In a folder that the daemon may no longer write to, the file stays; the next start replaces it.
            let _ = std::fs::remove_file(&self.path);
        }
        self.ended.store(true, Relaxed);
        if self.listener.shutdown(Shutdown::Both).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

/// A listening socket that its owner alone may use, from the first moment. By the umask, since a confined process may not
/// change modes: it is the whole process's, so a file that another thread makes meanwhile is for its owner alone too.
pub fn listen_privately(path: &Path) -> io::Result<UnixListener> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let socket = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    let address = UnixAddr::new(path)?;
    let bound = {
        let _guard = ONE_AT_A_TIME.lock();
        let before = umask(Mode::S_IXUSR | Mode::S_IRWXG | Mode::S_IRWXO);
        let bound = bind(socket.as_raw_fd(), &address);
        umask(before);
        bound
    };
    bound?;
    nix::sys::socket::listen(&socket, Backlog::MAXCONN)?;
    Ok(socket.into())
}

/// Removes the socket of a daemon that has died.
///
/// # Errors
/// Where one answers, or something else than a socket is. Who takes over what belongs to the socket, as the journal beside
/// it, asks this first: [`Server::start`] comes later.
pub fn remove_stale_socket(path: &Path) -> io::Result<()> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(()) };
    let shown = path.display();
    let taken = |what: String| Err(io::Error::new(io::ErrorKind::AddrInUse, what));
    if !metadata.file_type().is_socket() {
        return taken(format!(
            "{shown} exists and is not a socket: remove it, or choose another socket with --socket"
        ));
    }
    let deadline = Instant::now() + DYING;
    let mut answer = UnixStream::connect(path);
    while answer.is_ok() && Instant::now() < deadline {
        std::thread::sleep(LOOK_EVERY);
        answer = UnixStream::connect(path);
    }
    match answer {
        Ok(_) => {
            let remedy = if is_of_gateway(path) {
                "stop it: a network namespace has only one gateway"
            } else {
                "stop it, or choose another socket with --socket"
            };
            taken(format!("another sidestep answers on {shown}: {remedy}"))
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        Err(error) => Err(io::Error::new(error.kind(), format!("{shown}: {error}"))),
    }
}

fn serve<R: DeserializeOwned>(listener: &UnixListener, mut deliver: impl FnMut(Call<R>), ended: &AtomicBool) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                // A client that fails is its own affair.
                let _ = serve_one(&stream, &mut deliver, ended);
            }
            // Shut down.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
            // No descriptor or memory left: some may come free.
            Err(_) => std::thread::sleep(Duration::from_millis(200)),
        }
    }
}

fn serve_one<R: DeserializeOwned>(
    stream: &UnixStream,
    deliver: &mut impl FnMut(Call<R>),
    ended: &AtomicBool,
) -> io::Result<()> {
    let reply = match read_request(Timed::new(stream, REQUEST_TIME)) {
        Ok(line) => match serde_json::from_slice(&line) {
            Ok(request) => {
                let (answer, answered) = sync_channel(1);
                deliver(Call { request, answer });
                wait(&answered, ended)
            }
            Err(error) => Answer::Reply(Reply::Error(format!("not a request: {error}"))),
        },
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Answer::Reply(Reply::Error(error.to_string()))
        }
        Err(error) => return Err(error),
    };
    let mut document = serde_json::to_vec(&reply)?;
    document.push(b'\n');
    Timed::new(stream, REPLY_TIME).write_all(&document)
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
fn read_request(mut stream: impl Read) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut buffer = [0; 512];
    loop {
        let count = stream.read(&mut buffer)?;
        if let Some(end) = buffer[..count].iter().position(|&byte| byte == b'\n') {
            line.extend_from_slice(&buffer[..end]);
            return Ok(line);
        }
        line.extend_from_slice(&buffer[..count]);
        if line.len() > LONGEST_REQUEST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the request is too long"));
        }
        if count == 0 {
            return Ok(line);
        }
    }
}

/// A stream with a deadline for all that is read from it or written to it.
struct Timed<'a> {
    stream: &'a UnixStream,
    deadline: Instant,
}

impl<'a> Timed<'a> {
    fn new(stream: &'a UnixStream, time: Duration) -> Self {
        Timed { stream, deadline: Instant::now() + time }
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
    use serde_json::json;
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::mpsc::channel;

    /// A daemon that echoes requests, in a folder of its own.
    fn daemon(folder: &Path) -> (Server, PathBuf) {
        let path = folder.join("run/mt6d0.sock");
        let (calls, received) = channel::<Call>();
        let server = Server::start(&path, move |call| drop(calls.send(call))).unwrap();
        std::thread::spawn(move || {
            for call in received {
                let reply = match call.request {
                    Request::Show | Request::Events { .. } | Request::Reach { .. } => {
                        Reply::Ok(json!({"version": "0"}))
                    }
                    Request::Reload { .. } | Request::Confirm => Reply::Error("the file is wrong".into()),
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
    fn the_socket_of_a_daemon_that_is_dying_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mt6d0.sock");
        let held = UnixListener::bind(&path).unwrap();
        let held = std::thread::spawn(move || {
            std::thread::sleep(2 * LOOK_EVERY);
            drop(held);
        });
        remove_stale_socket(&path).unwrap();
        assert!(!path.exists());
        held.join().unwrap();
    }

    #[test]
    fn a_second_gateway_is_told_that_there_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let said = |name: &str| {
            let path = folder.path().join(name);
            let _first = UnixListener::bind(&path).unwrap();
            remove_stale_socket(&path).unwrap_err().to_string()
        };
        let gateway = said("gateway-4026531840.sock");
        assert!(gateway.ends_with("stop it: a network namespace has only one gateway"), "{gateway}");
        for tunnel in ["gateway-home.sock", "mt6d0.sock"] {
            assert!(said(tunnel).ends_with("or choose another socket with --socket"), "{tunnel}");
        }
    }

    /// Whatever the mode of new files is, and at no time: between `bind` and a change of mode somebody could connect.
    #[test]
    fn the_socket_is_made_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mt6d0.sock");
        let before = nix::sys::stat::umask(Mode::empty());
        let listener = listen_privately(&path);
        nix::sys::stat::umask(before);
        let _listener = listener.unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
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
        long.write_all(&[b'x'; 2 * LONGEST_REQUEST]).unwrap();
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
