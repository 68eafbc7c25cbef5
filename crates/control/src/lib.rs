//! The control socket of a running daemon, `/run/sidestep/<tunnel name>.sock`, of a script host, and of a gateway.
//!
//! A client sends one line of JSON, [`Request`], and gets one JSON document, [`Reply`], to the end of the stream.
//! The socket has mode 0600; its folder is the operator's to protect further. One client is served at a time, each
//! within bounded time and memory, so that a stuck one holds up nobody for long, and the daemon never.

mod client;
pub mod router_status;
mod server;
pub mod tunnel_status;

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use client::{Error, LONG, ask, ask_within, find};
pub use server::{Call, Server, make_way};

/// Where the sockets are.
pub const FOLDER: &str = "/run/sidestep";
/// What names of script hosts' sockets begin with; the number of a network namespace follows.
const SCRIPTS: &str = "scripts-";
/// Likewise of gateways'.
const GATEWAY: &str = "gateway-";

/// What is answered by one that ends.
pub const ENDING: &str = "the daemon is ending";

/// What a client can ask for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// The status.
    Show,
    /// Read the configuration again.
    Reload,
    /// Set the test offset of the wall clock; refused unless the daemon was started for tests.
    TestClockOffset {
        /// Milliseconds that are added to the wall clock.
        ms: i64,
    },
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    /// What was asked for.
    Ok(Value),
    /// Why it was refused.
    Error(String),
}

/// The socket of the script host of this thread's network namespace.
///
/// # Errors
/// Where /proc does not tell which namespace that is.
pub fn socket_of_scripts() -> io::Result<PathBuf> {
    let namespace = std::fs::metadata("/proc/thread-self/ns/net")?.ino();
    Ok(Path::new(FOLDER).join(format!("{SCRIPTS}{namespace}.sock")))
}

/// The socket of the gateway of this thread's network namespace.
///
/// # Errors
/// Where /proc does not tell which namespace that is.
pub fn socket_of_gateway() -> io::Result<PathBuf> {
    let namespace = std::fs::metadata("/proc/thread-self/ns/net")?.ino();
    Ok(Path::new(FOLDER).join(format!("{GATEWAY}{namespace}.sock")))
}

/// Whether a socket is a script host's or a gateway's, by its name, rather than a tunnel's.
fn is_of_no_tunnel(path: &Path) -> bool {
    is_numbered(path, SCRIPTS) || is_of_gateway(path)
}

/// Whether a socket is a gateway's, by its name.
fn is_of_gateway(path: &Path) -> bool {
    is_numbered(path, GATEWAY)
}

/// Whether a socket's name is this and the number of a network namespace.
fn is_numbered(path: &Path, kind: &str) -> bool {
    let name = path.file_stem().and_then(|name| name.to_str());
    let number = name.and_then(|name| name.strip_prefix(kind));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()))
}

/// The socket of the tunnel of this name.
pub fn socket_of(tunnel: &str) -> PathBuf {
    Path::new(FOLDER).join(format!("{tunnel}.sock"))
}
