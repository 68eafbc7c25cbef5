//! A daemon that is not there: something answers on its control socket, as it is told to. For tests, and for the stage.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use serde_json::{Value, json};

/// It answers until it is dropped; its socket goes with it, as that of a daemon that ends.
pub(crate) struct Daemon {
    socket: PathBuf,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Daemon {
    /// Answers each request on a socket, in whose place nothing that answers may be.
    pub(crate) fn start(
        socket: &Path,
        answer: impl Fn(&Value) -> Result<Value, String> + Send + 'static,
    ) -> std::io::Result<Daemon> {
        let _ = std::fs::remove_file(socket);
        let listener = UnixListener::bind(socket)?;
        let ended = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ended);
        let serve = move || {
            for stream in listener.incoming().flatten() {
                if seen.load(Ordering::Relaxed) {
                    return;
                }
                let mut line = String::new();
                let mut reader = BufReader::new(&stream);
                let request = reader.read_line(&mut line).ok().and_then(|_| serde_json::from_str(&line).ok());
                let reply = match answer(&request.unwrap_or_default()) {
                    Ok(document) => json!({ "ok": document }),
                    Err(why) => json!({ "error": why }),
                };
                // Who asked may have gone.
                let _ = writeln!(&stream, "{reply}");
            }
        };
        let thread = Some(std::thread::spawn(serve));
        Ok(Daemon { socket: socket.to_owned(), ended, thread })
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let woken = UnixStream::connect(&self.socket);
        let _ = std::fs::remove_file(&self.socket);
        if let (Ok(_), Some(thread)) = (woken, self.thread.take()) {
            let _ = thread.join();
        }
    }
}
