//! Compiled scripts in the kernel: their maps, and the program.

use std::io::ErrorKind;
use std::os::fd::{AsRawFd as _, RawFd};

use linux::bpf::{Map, MapKind, Program, ProgramKind};
use script::compile::account::Accounts;
use script::compile::logging::Line;
use script::compile::shared::{self, Form, MapKind as Kind};
use script::compile::{Assembled, AttachType, CompileError, Compiled};
use script::host::{FileError, Host, InterfaceError, Module};
use script::packet::Packet;
use script::testing::Files as _;

use super::interface;
use config::folder::Folder;

/// Why the kernel does not take a compiled script.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// It is larger than eBPF can say.
    #[error("{0}")]
    Oversized(#[from] CompileError),
    /// The verifier has had too much to do.
    #[error("the verifier of this kernel gives up on it, where newer ones may not: {0}")]
    VerifierGaveUp(linux::Error),
    /// The verifier refuses it, which is a fault of the compiler.
    #[error(
        "the kernel refuses the compiled script, which is a fault of Sidestep: please report it{}",
        in_lines_of_their_own(.place.iter().chain(.last_words))
    )]
    Refused {
        /// File and line that the refused instruction comes from, where that is known.
        place: Option<String>,
        /// The last lines of what the verifier said.
        last_words: Vec<String>,
    },
    /// The kernel refused something else.
    #[error("{0}")]
    Kernel(#[from] linux::Error),
}

fn in_lines_of_their_own<'a>(texts: impl Iterator<Item = &'a String>) -> String {
    texts.map(|text| format!("\n  {text}")).collect()
}

/// A script that the kernel has accepted. It goes with this, unless it is attached.
#[derive(Debug)]
pub struct Loaded {
    /// The program, loaded and not attached.
    pub program: Program,
    /// Its instructions.
    pub assembled: Assembled,
    /// What it may log.
    pub lines: Vec<Line>,
    /// What the verifier says of its work.
    pub statistics: String,
}

/// Maps of scripts that share them, by what they stand for.
#[derive(Debug, Default)]
pub struct Maps(Vec<(shared::Map, Map)>);

impl Maps {
    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, with what they stand for; those that were wanted last are last.
    pub(crate) fn all(&self) -> &[(shared::Map, Map)] {
        &self.0
    }

    /// The descriptors of a script's maps: of those that are there already, and of new ones. What the top level puts into
    /// them is there, as in Lua, where it runs at each load.
    fn of(&mut self, compiled: &Compiled) -> linux::Result<Vec<RawFd>> {
        let mut descriptors = Vec::new();
        for wanted in compiled.maps() {
            if let Form::Prefixes { .. } = wanted.shared.form {
                // A set has prefixes of both IP versions, whichever its script looks for.
                self.one(&shared::Map { is_ipv6: !wanted.is_ipv6, ..wanted.clone() })?;
            }
            descriptors.push(self.one(wanted)?);
        }
        Ok(descriptors)
    }

    fn one(&mut self, wanted: &shared::Map) -> linux::Result<RawFd> {
        let map = match self.0.iter().position(|(known, _)| known.is_same(wanted)) {
            Some(at) => self.0.remove(at).1,
            None => create(wanted)?,
        };
        map.set_all(&wanted.initial())?;
        let descriptor = map.as_raw_fd();
        self.0.push((wanted.clone(), map));
        Ok(descriptor)
    }
}

/// Makes the maps of a script, where they are not there yet, and loads its program.
///
/// # Errors
/// Why not. What the verifier refuses is a fault of the compiler, and told as such, with the script's line.
pub fn load(
    compiled: &Compiled,
    path: &str,
    maps: &mut Maps,
    accounts: Option<Accounts>,
) -> Result<Loaded, LoadError> {
    let descriptors = maps.of(compiled)?;
    let assembled = compiled.assemble(&descriptors, accounts)?;
    let kind = match compiled.attach_type() {
        AttachType::Interface { .. } => ProgramKind::SchedCls,
        AttachType::Netfilter { .. } => ProgramKind::Netfilter,
        AttachType::Xdp => ProgramKind::Xdp,
    };
    match Program::load_with_statistics(kind, &assembled.code) {
        Ok((program, statistics)) => {
            Ok(Loaded { program, assembled, lines: compiled.intermediate().lines.clone(), statistics })
        }
        Err(error) if error.kind() == ErrorKind::ArgumentListTooLong => Err(LoadError::VerifierGaveUp(error)),
        Err(error) => match Program::refusal(kind, &assembled.code) {
            Some(log) => Err(refused(&assembled, path, &log)),
            None => Err(error.into()),
        },
    }
}

fn create(map: &shared::Map) -> linux::Result<Map> {
    let (kind, key, value, entries) = map.measures();
    let kind = match kind {
        Kind::Hash => MapKind::Hash,
        Kind::LruHash => MapKind::LruHash,
        Kind::Array => MapKind::Array,
        Kind::LongestPrefix => MapKind::LongestPrefix,
    };
    Map::create(kind, key, value, entries)
}

/// What a script needs to be compiled: its modules. Its top level sees no time and no packets.
#[derive(Debug)]
pub struct TopLevel {
    /// Where its modules are.
    pub folder: Folder,
    /// Where packets can be redirected to.
    pub interfaces: Interfaces,
}

/// What names of interfaces stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interfaces {
    /// Those of this machine.
    Here,
    /// Those of another one: every name is one's, and nothing is sent.
    Elsewhere,
}

impl Host for TopLevel {
    fn now_ms(&mut self) -> u64 {
        0
    }

    fn random(&mut self) -> u32 {
        0
    }

    fn send(&mut self, _: &[u8], _: Option<&Packet>) {}

    fn interface(&mut self, name: &str) -> Result<u32, InterfaceError> {
        match self.interfaces {
            Interfaces::Here => interface::number(name),
            Interfaces::Elsewhere => Ok(1),
        }
    }

    fn log(&mut self, _: &str) {}

    fn module(&mut self, name: &str) -> Result<Option<Module>, FileError> {
        self.folder.module(name)
    }
}

/// A refusal of the verifier: its last words, and the line of the script that the instruction comes from.
fn refused(assembled: &Assembled, path: &str, log: &str) -> LoadError {
    // "12: (85) call …" is the instruction that it was at.
    let number = |line: &str| line.split_once(": (")?.0.trim().parse::<usize>().ok();
    let last = log.lines().rev().find_map(number);
    let place = last.and_then(|last| assembled.line(last)).map(|line| format!("{path}:{line}"));
    let mut last_words: Vec<String> = log.lines().rev().take(4).map(str::to_owned).collect();
    last_words.reverse();
    LoadError::Refused { place, last_words }
}
