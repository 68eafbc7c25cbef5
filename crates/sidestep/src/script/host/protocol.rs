//! What the script host is asked, and what it says of its scripts.

use std::path::Path;

use linux::bpf::xdp::Mode;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::control::{self, Error};
use crate::script::attachment::Attachment;

/// Asks the host that listens at `socket`.
pub(crate) fn ask(socket: &Path, request: &Request) -> Result<Value, Error> {
    control::ask_within(socket, request, control::LONG)
}

/// A request; the answers are JSON, too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Request {
    /// Load a script: `{"id": N}`.
    Load {
        /// Its file is an absolute path.
        script: Box<Attachment>,
    },
    /// Unload: a list of numbers.
    Unload {
        /// A number, or an absolute path.
        target: String,
    },
    /// Load anew: a list of numbers.
    Reload {
        /// Likewise.
        target: String,
    },
    /// [`Scripts`].
    List,
    /// [`Logs`].
    Logs {
        /// Lines behind that of this number.
        after: u64,
    },
    /// Follow the next packet; nothing is answered.
    Trace {
        /// The script.
        id: u32,
        /// What must hold of the packet.
        rule: String,
    },
    /// The packet that was followed, [`Traced`]; null as long as there was none.
    Traced {
        /// The script.
        id: u32,
    },
}

/// All scripts. The field names are a contract.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Scripts {
    pub(crate) scripts: Vec<Status>,
}

/// A script that is loaded. The field names are a contract.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Status {
    /// For `unload`, `reload` and `trace`.
    pub(crate) id: u32,
    /// Where it was put; `tier` is the one that it runs in, not what was asked for.
    #[serde(flatten)]
    pub(crate) attachment: Attachment,
    /// Threads that run it, each with a Lua state; 0 in the kernel.
    pub(crate) threads: usize,
    /// Packets that it was given.
    pub(crate) packets: u64,
    /// Of these, with which verdict; names as in scripts.
    pub(crate) verdicts: Verdicts,
    /// Packets, and deferred calls, at which it failed.
    pub(crate) errors: u64,
    /// The last of these.
    pub(crate) last_error: Option<Fault>,
    /// Nanoseconds that it takes for a packet, measured at one of 64; none before the first.
    pub(crate) ns_per_packet: Option<u64>,
    /// Packets that `nf.create_packet` sent.
    pub(crate) sent: u64,
    /// Of the packets, those that the kernel handed over to Lua; 0 but in the tier `both`.
    pub(crate) handed_over: u64,
    /// At XDP, whether it runs in the driver.
    pub(crate) xdp_mode: Option<Mode>,
}

/// Packets by their verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) struct Verdicts {
    pub(crate) nf_drop: u64,
    pub(crate) nf_accept: u64,
    pub(crate) nf_stolen: u64,
    pub(crate) nf_queue: u64,
    pub(crate) nf_repeat: u64,
    pub(crate) xt_continue: u64,
}

/// What went wrong in a script.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fault {
    /// With file and line.
    pub(crate) message: String,
    /// Through which functions, innermost first.
    pub(crate) traceback: Vec<String>,
    /// When, in milliseconds since 1970.
    pub(crate) unix_ms: u64,
}

/// A part of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Logs {
    /// In their order.
    pub(crate) lines: Vec<LogLine>,
    /// The number of the last line.
    pub(crate) last: u64,
}

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogLine {
    /// When, in milliseconds since 1970.
    pub(crate) unix_ms: u64,
    /// Which script.
    pub(crate) id: u32,
    /// What.
    pub(crate) text: String,
}

/// A packet's way through a script.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Traced {
    /// Its octets, from the IP header on, in hexadecimal digits; the first 128.
    pub(crate) packet: String,
    /// How many it has.
    pub(crate) length: usize,
    /// File, line number and text, in the order in which they were run.
    pub(crate) lines: Vec<(String, usize, String)>,
    /// Name of the verdict.
    pub(crate) verdict: String,
    /// Whether the packet was changed.
    pub(crate) changed: bool,
    /// Why it failed.
    pub(crate) error: Option<String>,
}
