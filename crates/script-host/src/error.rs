//! Why the host does not run, or does not do what it is asked for.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use config::attachment::AttachmentError;
use script::compile::{CompileError, Refusal};
use script::contents::PutError;
use script::entry::EntryError;
use script::matching::RuleError;
use script::vm::ScriptError;

use super::attach_point::CannotPunt;
use super::kernel::LoadError;

/// Why the host does not run, or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Only who may change the network can.
    #[error("packet scripts need root (or CAP_NET_ADMIN and CAP_NET_RAW): try again with sudo")]
    Privilege,
    /// There is one already.
    #[error(
        "another script host runs in this network namespace: use its socket, or end it (`sidestep script list` and `unload`)"
    )]
    Another,
    /// The kernel refused something.
    #[error("{0}")]
    Kernel(#[from] linux::Error),
    /// The socket.
    #[error("{0}")]
    Socket(#[from] io::Error),
}

/// Why a request is refused. It is answered as text.
#[derive(Debug, thiserror::Error)]
pub(super) enum RequestError {
    /// The script cannot be put there.
    #[error("{key}: {0}", key = .0.key())]
    Attachment(#[from] AttachmentError),
    /// Its file cannot be read.
    #[error("cannot read {}: {source}{}", file.display(), out_of_sight(file))]
    File { file: PathBuf, source: io::Error },
    /// It does not come to run.
    #[error("{0}")]
    Attach(#[from] AttachError),
    /// No script has this number.
    #[error("there is no script {0} (`sidestep script list` shows which there are)")]
    NoScript(u32),
    /// No script has this file.
    #[error("{0} is not loaded (`sidestep script list` shows what is)")]
    NotLoaded(String),
    /// No script has a table of this name.
    #[error("{}", no_table(name, there))]
    NoTable {
        /// The name.
        name: String,
        /// Those that there are.
        there: Vec<String>,
    },
    /// Several have one that is not the same.
    #[error("{}", several_tables(name, scripts))]
    SeveralTables {
        /// The name.
        name: String,
        /// For each, the scripts that share it.
        scripts: Vec<Vec<u32>>,
    },
    /// What is left of a table is not what the script declares now.
    #[error("its kinds have changed")]
    OtherKinds,
    /// A key or a value is not what the script has declared.
    #[error("{0}")]
    Entry(#[from] EntryError),
    /// A table does not take what it is given.
    #[error("{0}")]
    Put(#[from] PutError<linux::Error>),
    /// With points in it, it does not come to run in the kernel.
    #[error("{0}\nthe script runs on without a trace; with --tier user it can be followed")]
    NotTraced(Box<AttachError>),
    /// Packets are not chosen by their interface.
    #[error(
        "a trace does not look at interfaces: what its script gets, it gets by its own --dev and --match"
    )]
    TraceOfInterface,
    /// What is to hold of the packet is no rule.
    #[error("{0}")]
    Rule(#[from] RuleError),
    /// Two files of a state declare something in unlike ways.
    #[error("{0}: files of one state declare alike what they share\nthe scripts stay as they were")]
    Unlike(String),
    /// Another text of a script does not come to run in the user tier.
    #[error("{0}\nthe script stays as it was")]
    NotReplaced(AttachError),
    /// Nor in the kernel.
    #[error("{0}\nthe script stays as it was; unload and load it to have it in the user tier")]
    NotReplacedInKernel(AttachError),
    /// The kernel refused something.
    #[error("{0}")]
    Kernel(#[from] linux::Error),
    /// A file cannot be written.
    #[error("{0}")]
    Write(#[from] io::Error),
    /// An answer cannot be written.
    #[error("{0}")]
    Answer(#[from] serde_json::Error),
}

fn no_table(name: &str, there: &[String]) -> String {
    match there {
        [] => format!(
            "no table {name:?}: these scripts use none (in the kernel there is what the functions that are loaded use)"
        ),
        there => {
            let names: Vec<String> = there.iter().map(|name| format!("{name:?}")).collect();
            format!("no script uses a table {name:?}: there is {}", names.join(", "))
        }
    }
}

fn several_tables(name: &str, scripts: &[Vec<u32>]) -> String {
    let first: Vec<String> = scripts.iter().filter_map(|ids| ids.first().map(u32::to_string)).collect();
    if scripts.windows(2).all(|pair| pair[0] == pair[1]) {
        return format!(
            "script {} has several things that it calls {name:?}: give them names of their own",
            first[0]
        );
    }
    format!("scripts {} have each a table {name:?}: say which one with --script", first.join(" and "))
}

/// Why a script does not come to run, or not in this tier.
#[derive(Debug, thiserror::Error)]
pub(super) enum AttachError {
    /// It cannot be compiled.
    #[error("{0}")]
    Compile(CompileError),
    /// It cannot be compiled, and has no other tier.
    #[error("{0}\nat XDP a script runs in the kernel as a whole, or not at all: load it without --xdp")]
    CompileForXdp(CompileError),
    /// The kernel does not take it as a whole, but a part of it.
    #[error("{0}\nwith --tier both (or auto) the kernel hands over to Lua what comes there")]
    InPart(Box<AttachError>),
    /// The kernel does not take the program.
    #[error("{0}")]
    Load(#[from] LoadError),
    /// There is no interface of this name.
    #[error("there is no interface {0}")]
    NoInterface(String),
    /// It was attached, and is not any more.
    #[error("{0}")]
    NotAttached(String),
    /// XDP of an interface whose packets begin with their IP header.
    #[error("packets of {0} have no link header, which scripts at XDP read: load it without --xdp")]
    NoLinkHeader(String),
    /// No packet can be handed over to Lua there.
    #[error("{0}")]
    Punt(#[from] CannotPunt),
    /// No mark is free for packets that are handed over.
    #[error("{0} scripts hand over already")]
    MarksTaken(u32),
    /// Another script of its state is in the user tier.
    #[error("it shares its state with script {0}, which runs there")]
    StateInUserTier(u32),
    /// Another script of its state has tables in the kernel.
    #[error("it shares tables with script {0}, which runs in the kernel: load that with --tier user first")]
    TablesInKernel(u32),
    /// It reads what Lua does not have of a packet.
    #[error("line {}: {} (`sidestep script explain` says what keeps it from the kernel)", .0.line, .0.reason)]
    NoLink(Refusal),
    /// It does not load.
    #[error("{}{}", .0.message, .0.traceback.lines().map(|frame| format!("\n  {frame}")).collect::<String>())]
    Script(ScriptError),
    /// The threads have packets, or a script, that take too long.
    #[error("the threads of this script did not answer within {0:?}")]
    Silent(Duration),
    /// The threads of its state are gone.
    #[error("its threads have ended")]
    ThreadsEnded,
    /// The kernel refused something.
    #[error("{0}")]
    Kernel(#[from] linux::Error),
}

/// What a host that is a service's child may need to be told of: it has other eyes than who asks it.
fn out_of_sight(file: &Path) -> &'static str {
    let is_private = ["/home", "/root", "/tmp", "/var/tmp"].iter().any(|folder| file.starts_with(folder));
    if is_private {
        " (the host of a service sees no home folders and another /tmp: put it into /etc/sidestep)"
    } else {
        ""
    }
}
