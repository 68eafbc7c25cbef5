//! The kernel tier: from a script's tree to eBPF.
//!
//! The top level of a script runs in the VM. A packet function is then followed statement by statement, with what is
//! known of each variable at hand (`lower`): that gives integers in SSA form ([`ir`]), of which instructions are made
//! (`emit`). What cannot be compiled is told with its line, and either the whole script is the user tier's, or each packet
//! that comes there is punted: handed over to Lua, the slow path (`lower::punt`).

pub mod account;
mod allocate;
#[cfg(test)]
mod as_lua;
#[cfg(test)]
mod at_xdp;
mod attach_type;
#[cfg(test)]
mod captured;
#[cfg(test)]
mod concurrent;
pub mod decided;
#[cfg(test)]
mod differential;
mod emit;
mod emit_map;
#[cfg(test)]
mod exported;
#[cfg(test)]
mod generate;
mod half_done;
#[cfg(test)]
mod interpret;
pub mod ir;
pub(crate) mod known;
pub mod logging;
mod lower;
mod matching;
#[cfg(test)]
mod mirrored;
#[cfg(test)]
mod mutated;
#[cfg(test)]
mod names;
#[cfg(test)]
mod punt;
#[cfg(test)]
mod record;
mod refusal;
pub mod shared;
#[cfg(test)]
mod size;
mod slot;
#[cfg(test)]
mod tagged;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod traced;

use std::os::fd::RawFd;

use crate::host::Host;
use crate::syntax;
use crate::vm::toplevel::Loaded;
use crate::vm::{Script, ScriptError};
use account::Accounts;
pub use attach_type::{AttachType, Side};
pub use emit::{Assembled, PUNT_MASK, Results};
pub use matching::{followed, matched};
pub use refusal::Refusal;

/// Why a script is not compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// It does not load at all.
    #[error("{0}")]
    Script(#[from] ScriptError),
    /// It does what the kernel tier does not have: the user tier runs it.
    #[error("it cannot be compiled{}", .0.first().map_or_else(String::new, |one| format!(": line {}: {}", one.line, one.reason)))]
    Refused(Vec<Refusal>),
}

/// A script that can run in the kernel.
#[derive(Debug)]
pub struct Compiled {
    program: ir::Program,
    results: Results,
    attach_type: AttachType,
    line: u32,
    punts: Vec<Refusal>,
}

/// Compiles the packet function of a script, to be attached so: as a whole or, if the results have a
/// [mark](Results::punt_mark) for that, as far as it goes.
///
/// In Lua the function runs again from its beginning for a packet that is punted, so the program keeps no table, logs
/// nothing, and changes no packet that it may punt later.
///
/// # Errors
/// If it does not load, or cannot be compiled; if all packets would be punted.
pub fn compile(
    script: &Script,
    host: impl Host + 'static,
    results: Results,
    attach_type: AttachType,
) -> Result<Compiled, CompileError> {
    let refused = |line, reason: String| CompileError::Refused(vec![Refusal { line, reason }]);
    let chunk = syntax::parse(&script.source);
    let chunk = chunk.map_err(|error| refused(error.line, error.message))?;
    if let Some(renamed) = &chunk.renamed {
        return Err(refused(renamed.line, renamed.message.clone()));
    }
    let top = Loaded::new(&chunk, &script.source, &script.path, host)?;
    let known = known::TopLevel::global(&top, &script.function);
    let known::Known::Function(function) = known else {
        return Err(refused(
            1,
            format!("{} is no function of this file, but {}", script.function, known.name()),
        ));
    };
    let line = chunk.functions[function.0].lines.0;
    let may_punt = results.punt_mark.is_some();
    if may_punt && !matches!(attach_type, AttachType::Interface { .. }) {
        return Err(refused(line, "packets are handed over at interfaces only, and not at XDP".to_owned()));
    }
    let lowered = lower::lower(&chunk, function, &top, &attach_type, may_punt);
    let (program, punts) = lowered.map_err(CompileError::Refused)?;
    let mut refusals = attach_type.refusals(&program);
    if results.error == results.pass {
        refusals.extend(half_done::refusals(&program));
    }
    if !refusals.is_empty() {
        return Err(CompileError::Refused(refusals));
    }
    if !punts.is_empty() && !program.decides() {
        return Err(CompileError::Refused(punts));
    }
    let compiled = Compiled { program, results, attach_type, line, punts };
    // Whether it fits is known without its maps.
    let nowhere = Accounts {
        mirrors: account::Mirrors::Sent(0),
        counters: 0,
        fault: 0,
        log: Some(account::Log { ring: 0, program: 0, scratch: 0, followed: 0 }),
    };
    compiled.assemble(&vec![0; compiled.maps().len()], Some(nowhere))?;
    Ok(compiled)
}

impl Assembled {
    /// The line of the script that an instruction comes from.
    #[must_use]
    pub fn line(&self, instruction: usize) -> Option<u32> {
        let behind = self.lines.partition_point(|(from, _)| *from <= instruction);
        behind.checked_sub(1).map(|place| self.lines[place].1)
    }
}

impl Compiled {
    /// The maps that it needs.
    #[must_use]
    pub fn maps(&self) -> &[shared::Map] {
        &self.program.maps
    }

    /// The names of the interfaces that it copies packets to.
    #[must_use]
    pub fn mirrors(&self) -> &[String] {
        &self.program.mirrors
    }

    /// The program, as it is loaded, with the descriptors of its maps, and of those that it counts in if it is to.
    ///
    /// # Errors
    /// If it is larger than eBPF can say.
    pub fn assemble(&self, maps: &[RawFd], accounts: Option<Accounts>) -> Result<Assembled, CompileError> {
        emit::emit(&self.program, self.results, &self.attach_type, maps, accounts).map_err(|error| {
            CompileError::Refused(vec![Refusal { line: self.line, reason: error.to_string() }])
        })
    }

    /// Where packets are punted to the user tier, and why.
    #[must_use]
    pub fn punts(&self) -> &[Refusal] {
        &self.punts
    }

    /// Whether a packet has the same result at any time, and what is in tables the same fate in both tiers: it asks for no
    /// time or random number, no entry expires, and none is evicted.
    #[must_use]
    pub fn is_repeatable(&self) -> bool {
        let evicts = |map: &shared::Map| map.measures().0 == shared::MapKind::LruHash;
        !self.program.asks_for_chance() && !self.maps().iter().any(evicts)
    }

    /// Where it can be attached.
    #[must_use]
    pub const fn attach_type(&self) -> &AttachType {
        &self.attach_type
    }

    /// The intermediate form.
    #[must_use]
    pub const fn intermediate(&self) -> &ir::Program {
        &self.program
    }
}
