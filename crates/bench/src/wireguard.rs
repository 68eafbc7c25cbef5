//! One end of WireGuard in user space: a process that is started with the name of a device, and configured over the control
//! socket that belongs to it, so that no other tool is needed.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lab::Error;
use lab::command::{check, check_with_input, text};
use lab::process::{Process, tail};

/// The port of both ends.
pub(crate) const PORT: u16 = 51_820;

/// Inner MTU: 1500 less IPv6, UDP and WireGuard's own 32 bytes.
pub(crate) const MTU: u16 = 1_420;

/// How long a program may take to make its control socket, and to answer there.
const PATIENCE: Duration = Duration::from_secs(20);

/// It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct End {
    process: Option<Process>,
    socket: PathBuf,
}

impl End {
    /// Starts the program, and sends it the request; its log is in the folder.
    ///
    /// # Errors
    /// When it does not start, or takes the request amiss.
    pub(crate) fn start(
        mut command: Command,
        device: &str,
        folder: &Path,
        request: &str,
    ) -> Result<Self, Error> {
        let log = folder.join(format!("{device}.log"));
        let socket = Path::new("/var/run/wireguard").join(format!("{device}.sock"));
        // Of an earlier one that was killed.
        let _ = std::fs::remove_file(&socket);
        command.args(["-f", device]).env("WG_PROCESS_FOREGROUND", "1");
        let end = Self { process: Some(Process::start(&mut command, &log)?), socket };
        configure(device, &end.socket, &log, request)?;
        Ok(end)
    }

    /// Its process.
    pub(crate) fn id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            process.stop(Duration::from_secs(2));
        }
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// Keys of an end, base64.
pub(crate) struct Keys {
    pub(crate) private: String,
    pub(crate) public: String,
}

impl Keys {
    /// By `sidestep`: its keys are WireGuard's kind, X25519.
    pub(crate) fn generate(program: &Path) -> Result<Self, Error> {
        let private = text(&check(Command::new(program).arg("genkey"))?);
        let public = check_with_input(Command::new(program).arg("pubkey"), &format!("{private}\n"))?;
        Ok(Self { private, public: text(&public) })
    }
}

/// What an end is told: who it is, and of its peer whose key, endpoint (without port) and addresses inside these are.
pub(crate) fn request<'a>(
    own: &Keys,
    peer: &Keys,
    endpoint: &str,
    allowed: impl IntoIterator<Item = &'a str>,
) -> String {
    let allowed: String = allowed.into_iter().map(|prefix| format!("allowed_ip={prefix}\n")).collect();
    format!(
        "set=1\nprivate_key={}\nlisten_port={PORT}\npublic_key={}\nendpoint=[{endpoint}]:{PORT}\n{allowed}",
        hex(&own.private),
        hex(&peer.public)
    )
}

/// Sends a request over the control socket, once there is one.
fn configure(name: &str, socket: &Path, log: &Path, request: &str) -> Result<(), Error> {
    let deadline = Instant::now() + PATIENCE;
    let mut stream = loop {
        match UnixStream::connect(socket) {
            Ok(stream) => break stream,
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
            Err(source) => return Err(Error::output(name, format!("{source}: {}", tail(log)))),
        }
    };
    let failed = |source| Error::system(format!("{name}'s control socket"), source);
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    stream.write_all(format!("{request}\n").as_bytes()).map_err(failed)?;
    stream.shutdown(std::net::Shutdown::Write).map_err(failed)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(failed)?;
    if answer.contains("errno=0") { Ok(()) } else { Err(Error::output(name, answer)) }
}

/// A key as the control socket wants it.
pub(crate) fn hex(base64: &str) -> String {
    let bytes = STANDARD.decode(base64).unwrap_or_default();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
