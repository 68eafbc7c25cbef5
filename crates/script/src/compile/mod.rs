//! The kernel tier: from a script's tree to eBPF.
//!
//! The top level of a script runs in the VM. A packet function is then followed statement by statement, with what is
//! known of each variable at hand (`lower`): that gives integers in SSA form ([`ir`]), of which instructions are made
//! (`emit`). What cannot be compiled is told with its line, and either the whole script is the user tier's, or each packet
//! that comes there (`lower::hand_over`).

pub mod account;
mod allocate;
#[cfg(test)]
mod at_xdp;
#[cfg(test)]
mod differential;
mod emit;
mod emit_map;
#[cfg(test)]
mod generate;
#[cfg(test)]
mod handed_over;
#[cfg(test)]
mod interpret;
pub mod ir;
pub(crate) mod known;
pub mod logging;
mod lower;
mod matching;
#[cfg(test)]
mod mutated;
mod place;
pub mod shared;
mod slot;
#[cfg(test)]
mod tests;

use std::os::fd::RawFd;

use crate::host::Host;
use crate::syntax;
use crate::vm::toplevel::Loaded;
use crate::vm::{Script, ScriptError};
use account::Accounts;
pub use emit::{HAND_OVER_MASK, Results};
pub use matching::matched;
pub use place::{Place, Side};

/// Something that cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// Where, from line 1 on.
    pub line: u32,
    /// Why.
    pub reason: String,
}

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
    place: Place,
    line: u32,
    hand_overs: Vec<Refusal>,
}

/// An eBPF program, and where in the script its instructions come from.
#[derive(Debug)]
pub struct Assembled {
    /// Of the type that the place asks for.
    pub code: bpf::Assembler,
    /// From which instruction on, which line.
    pub lines: Vec<(usize, u32)>,
}

/// Compiles the packet function of a script for a place: as a whole or, if the results have a
/// [mark](Results::hand_over_mark) for that, as far as it goes.
///
/// A function that is handed over runs again from its beginning, so the program keeps no table, logs nothing, and changes
/// no packet that it may hand over later.
///
/// # Errors
/// If it does not load, or cannot be compiled; if all packets would be handed over.
pub fn compile(
    script: &Script,
    host: impl Host + 'static,
    results: Results,
    place: Place,
) -> Result<Compiled, CompileError> {
    let refused = |line, reason: String| CompileError::Refused(vec![Refusal { line, reason }]);
    let chunk = syntax::parse(&script.source);
    let chunk = chunk.map_err(|error| refused(error.line, error.message))?;
    let top = Loaded::new(&chunk, &script.source, &script.path, host)?;
    let known = known::TopLevel::global(&top, &script.function);
    let known::Known::Function(function) = known else {
        return Err(refused(
            1,
            format!("{} is no function of this file, but {}", script.function, known.name()),
        ));
    };
    let line = chunk.functions[function.0].lines.0;
    let hands_over = results.hand_over_mark.is_some();
    if hands_over && !matches!(place, Place::Interface { .. }) {
        return Err(refused(line, "packets are handed over at interfaces only, and not at XDP".to_owned()));
    }
    let lowered = lower::lower(&chunk, function, &top, &place, hands_over);
    let (program, hand_overs) = lowered.map_err(CompileError::Refused)?;
    let refusals = place.refusals(&program);
    if !refusals.is_empty() {
        return Err(CompileError::Refused(refusals));
    }
    if !hand_overs.is_empty() && !program.decides() {
        return Err(CompileError::Refused(hand_overs));
    }
    let compiled = Compiled { program, results, place, line, hand_overs };
    // Whether it fits is known without its maps.
    let nowhere = Accounts { counters: 0, fault: 0, log: Some(account::Log { ring: 0, program: 0 }) };
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

    /// The program, as it is loaded, with the descriptors of its maps, and of those that it counts in if it is to.
    ///
    /// # Errors
    /// If it is larger than eBPF can say.
    pub fn assemble(&self, maps: &[RawFd], accounts: Option<Accounts>) -> Result<Assembled, CompileError> {
        emit::emit(&self.program, self.results, &self.place, maps, accounts).map_err(|error| {
            CompileError::Refused(vec![Refusal { line: self.line, reason: error.to_string() }])
        })
    }

    /// Where packets are handed over to the user tier, and why.
    #[must_use]
    pub fn hand_overs(&self) -> &[Refusal] {
        &self.hand_overs
    }

    /// Where it can be attached.
    #[must_use]
    pub const fn place(&self) -> &Place {
        &self.place
    }

    /// The intermediate form.
    #[must_use]
    pub const fn intermediate(&self) -> &ir::Program {
        &self.program
    }
}
