//! What the script host is asked, and what it says of its scripts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use linux::bpf::RunTime;
use linux::bpf::xdp::Mode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::metric_protocol::Exported;
use super::table_protocol::{Operation, TableName};
use config::attachment::Attachment;
use control::{Ask, Effect, Error};

/// Asks the host that listens at `socket`.
pub fn ask(socket: &Path, request: &Request) -> Result<Value, Error> {
    control::ask_within(socket, request, control::LONG)
}

/// A request; the answers are JSON, too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
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
    /// Have these scripts, with the present texts of their files, in the place of others; or stay as it is. What somebody
    /// else has loaded is left alone.
    Have {
        /// Their files are absolute paths.
        scripts: Vec<Attachment>,
        /// Those of before: what is not among `scripts` is unloaded.
        instead_of: Vec<Attachment>,
    },
    /// [`Scripts`].
    List,
    /// [`Source`].
    Source {
        /// The script.
        id: u32,
    },
    /// [`Logs`].
    Logs {
        /// Lines behind that of this number.
        after: u64,
    },
    /// What has happened.
    Events {
        /// After the event with this number.
        after: u64,
    },
    /// Follow the next packets: the trace's number. It ends when all were, or after that time; or some seconds after
    /// the last [`Request::Traced`], so that nothing is followed for nobody.
    Trace {
        /// The script.
        id: u32,
        /// What must hold of a packet.
        rule: String,
        /// How many, up to [`MOST_TRACED`].
        #[serde(default = "one")]
        count: u32,
        /// For how long, in milliseconds.
        #[serde(default = "half_a_minute")]
        time_ms: u64,
    },
    /// The packets that were followed since this was asked last: [`Traces`].
    Traced {
        /// The script.
        id: u32,
        /// The trace, as [`Request::Trace`] was answered.
        trace: u64,
    },
    /// [`TableList`].
    Tables,
    /// Something with what is in one of them: see [`Operation`] for what is answered.
    Table {
        /// Which.
        table: TableName,
        /// What.
        operation: Operation,
    },
}

/// Packets that are followed by one request, at most.
pub const MOST_TRACED: u32 = 1000;

const fn one() -> u32 {
    1
}

const fn half_a_minute() -> u64 {
    30_000
}

impl Ask for Request {
    /// More than a million prefixes.
    const LONGEST: usize = 64 << 20;

    fn effect(&self) -> Effect {
        match self {
            Request::List
            | Request::Source { .. }
            | Request::Logs { .. }
            | Request::Events { .. }
            | Request::Tables => Effect::Looks,
            // A packet that was followed is what somebody sent, and whoever asks takes it away from who asked for it. What is in
            // a table is what packets had, too.
            Request::Load { .. }
            | Request::Unload { .. }
            | Request::Reload { .. }
            | Request::Have { .. }
            | Request::Trace { .. }
            | Request::Traced { .. }
            | Request::Table { .. } => Effect::Changes,
        }
    }
}

/// All scripts. The field names are a contract.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Scripts {
    /// In the order in which they were loaded.
    pub scripts: Vec<Status>,
    /// What they have metrics export.
    #[serde(default)]
    pub metrics: Vec<Exported>,
    /// Scripts of a configuration that are to run and do not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<Held>,
}

/// A script that is loaded. The field names are a contract.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// For `unload`, `reload` and `trace`.
    pub id: u32,
    /// Where it was put; `tier` is the one that it runs in, not what was asked for.
    #[serde(flatten)]
    pub attachment: Attachment,
    /// Threads that run it, each with a Lua state; 0 in the kernel.
    pub threads: usize,
    /// Packets that it was given.
    pub packets: u64,
    /// Of these, with which verdict; names as in scripts.
    pub verdicts: Verdicts,
    /// Packets, and deferred calls, at which it failed.
    pub errors: u64,
    /// Of those in Lua, how many in which line.
    #[serde(default)]
    pub error_lines: BTreeMap<u32, u64>,
    /// The last of these.
    pub last_error: Option<Fault>,
    /// Nanoseconds that it takes for a packet, measured at one of 64; none before the first.
    pub ns_per_packet: Option<u64>,
    /// Packets that `nf.create_packet` sent.
    pub sent: u64,
    /// Of the packets, those that the kernel handed over to Lua; 0 but in the tier `both`.
    pub handed_over: u64,
    /// What the kernel had to log, to capture or to tell of traces, and was lost: the host could not read as fast.
    #[serde(default)]
    pub lost: u64,
    /// Whether packets are followed through it in the kernel at this moment.
    #[serde(default)]
    pub traced: bool,
    /// At XDP, whether it runs in the driver.
    pub xdp_mode: Option<Mode>,
    /// Why it sees no packets, if its program is not attached: its interface has gone, or does not take it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_attached: Option<String>,
    /// What the kernel has counted of its program while somebody has asked for that (`script list --measure`).
    #[serde(default)]
    pub kernel: Option<RunTime>,
}

/// A script of a configuration that does not run. With `fail_open` its packets pass; otherwise they are dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// What the configuration says.
    #[serde(flatten)]
    pub attachment: Attachment,
    /// Why it could not be loaded; none while it is.
    pub why: Option<String>,
}

/// A script as its file has it now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Which.
    pub file: PathBuf,
    /// What is in it.
    pub text: String,
}

/// Packets by their verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub struct Verdicts {
    /// Discarded.
    pub nf_drop: u64,
    /// Passed on.
    pub nf_accept: u64,
    /// Kept by the script.
    pub nf_stolen: u64,
    /// Given to another queue.
    pub nf_queue: u64,
    /// Sent through the hook once more.
    pub nf_repeat: u64,
    /// Left to the next rule.
    pub xt_continue: u64,
}

/// What went wrong in a script.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// With file and line.
    pub message: String,
    /// Through which functions, innermost first.
    pub traceback: Vec<String>,
    /// When, in milliseconds since 1970.
    pub unix_ms: u64,
}

/// A part of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logs {
    /// In their order.
    pub lines: Vec<LogLine>,
    /// The number of the last line.
    pub last: u64,
}

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// When, in milliseconds since 1970.
    pub unix_ms: u64,
    /// Which script.
    pub id: u32,
    /// What: words, then fields.
    pub text: String,
    /// The fields of `nf.log`, by their names, if there are any.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub fields: Map<String, Value>,
}

/// Packets that were followed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traces {
    /// In the order in which they ended.
    pub packets: Vec<Traced>,
    /// What the kernel told of traces or logs since the beginning, and was lost: packets may be missing.
    pub lost: u64,
    /// Whether there may be more.
    pub goes_on: bool,
}

/// A packet's way through a script. The field names are a contract.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traced {
    /// Where it was followed: `kernel` or `user`.
    pub tier: String,
    /// Its octets, from the IP header on, in hexadecimal digits; the first 128.
    pub packet: String,
    /// How many it has.
    pub length: usize,
    /// In the order in which they were run.
    pub lines: Vec<TracedLine>,
    /// Name of the verdict; none if the kernel hands it over to Lua.
    pub verdict: Option<String>,
    /// Whether something was written to the packet.
    pub changed: bool,
    /// Why it failed.
    pub error: Option<String>,
}

/// A line of a script that a packet went through.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedLine {
    /// Of the script, or of its module.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// Its text.
    pub text: String,
    /// What variables got there, or how a condition came out; empty if there is nothing to tell.
    pub told: String,
}
