//! Compiled scripts in the kernel: their maps, and the program.

use std::io::ErrorKind;
use std::sync::Arc;

use linux::bpf::{Program, ProgramKind};
use script::compile::account::Accounts;
use script::compile::logging::Line;
use script::compile::{Assembled, AttachType, CompileError, Compiled};
use script::host::{FileError, Host, InterfaceError, Module};
use script::metric::Metric;
use script::packet::Packet;
use script::testing::Files as _;

use super::interface;
use super::maps::Filling;
pub use super::maps::Maps;
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
    /// What it may say.
    pub says: Says,
    /// What it counts that metrics export.
    pub exports: Vec<Arc<Metric>>,
    /// What the verifier says of its work.
    pub statistics: String,
    fillings: Vec<Filling>,
}

impl Loaded {
    /// Puts into its maps what they are to have before a packet comes: what an earlier text has left in tables of other
    /// measures, and what the top level puts there. What there is to say of tables that have lost something.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn fill(&self) -> linux::Result<Vec<String>> {
        let told = self.fillings.iter().map(Filling::fill).collect::<linux::Result<Vec<_>>>()?;
        Ok(told.into_iter().flatten().collect())
    }
}

/// What a program means by the numbers that it tells.
#[derive(Debug)]
pub struct Says {
    /// What it may log.
    pub lines: Vec<Line>,
    /// Names of captures.
    pub captures: Vec<String>,
    /// Names of the interfaces that packets are copied to.
    pub mirrors: Vec<String>,
}

/// Makes the maps of a script, where they are not there yet, and loads its program. Maps that are there already are as they
/// were until they are [filled](Loaded::fill).
///
/// # Errors
/// Why not. What the verifier refuses is a fault of the compiler, and told as such, with the script's line.
pub fn load(
    compiled: &Compiled,
    path: &str,
    maps: &mut Maps,
    accounts: Option<Accounts>,
) -> Result<Loaded, LoadError> {
    let (descriptors, fillings) = maps.of(compiled)?;
    let assembled = compiled.assemble(&descriptors, accounts)?;
    let kind = match compiled.attach_type() {
        AttachType::Interface { .. } => ProgramKind::SchedCls,
        AttachType::Netfilter { .. } => ProgramKind::Netfilter,
        AttachType::Xdp => ProgramKind::Xdp,
    };
    match Program::load_with_statistics(kind, &assembled.code) {
        Ok((program, statistics)) => {
            let exports = compiled.maps().iter().filter_map(|map| map.shared.metric.clone()).collect();
            let said = compiled.intermediate();
            let says = Says {
                lines: said.lines.clone(),
                captures: said.captures.clone(),
                mirrors: said.mirrors.clone(),
            };
            Ok(Loaded { program, assembled, says, exports, statistics, fillings })
        }
        Err(error) if error.kind() == ErrorKind::ArgumentListTooLong => Err(LoadError::VerifierGaveUp(error)),
        Err(error) => match Program::refusal(kind, &assembled.code) {
            Some(log) => Err(refused(&assembled, path, &log)),
            None => Err(error.into()),
        },
    }
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
