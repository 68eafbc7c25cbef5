//! What is left to Lua where a packet is punted: the function runs again there, from its beginning, so nothing may have had an
//! effect before, or come out in another way the second time. And what only Lua sees change is not read here.

use super::{Key, Lower, State};
use crate::compile::known::Known;
use crate::compile::matching;
use crate::compile::refusal::Refusal;
use crate::compile::slot::Slot;
use crate::syntax::tree::{FunctionId, Variable};
use crate::vm::Verdict;

impl Lower<'_> {
    /// Whether ways end here that the user tier goes on with.
    pub(super) const fn may_punt(&self) -> bool {
        self.punts.is_some()
    }

    /// A table of the library or its like: it is in one tier only, that which punts none. Sets of prefixes that a
    /// rule is about are nobody's to change.
    pub(super) fn punt_shared(&mut self, name: &str) {
        if self.may_punt() && !self.is_in_rule() {
            let what = if name.is_empty() { "flows".to_owned() } else { format!("'{name}'") };
            self.refuse(format!(
                "{what}: tables, counters, prefixes and flows are Lua's in a script that hands over"
            ));
        }
    }

    /// Whether it is a rule that asks, and not the script.
    pub(super) fn is_in_rule(&self) -> bool {
        [matching::NAME, matching::CHOSEN].iter().any(|name| self.is_in(name))
    }

    /// Whether it is the function of this name that asks.
    pub(super) fn is_in(&self, name: &str) -> bool {
        let inlined = self.functions.last();
        inlined.is_some_and(|inlined| *self.chunk.functions[inlined.function.0].name == *name)
    }

    /// A variable that is assigned to: what lasts from packet to packet lasts in Lua. A local variable lasts if no statement
    /// on the way here has declared it.
    pub(super) fn punt_assigned(&mut self, variable: &Variable) {
        let declared = |state: &State| state.variables.contains_key(&Key::from(variable));
        let name = match variable {
            Variable::Local(_) if self.state.as_ref().is_none_or(declared) => None,
            Variable::Local(local) => Some(&self.chunk.locals[local.0].name),
            Variable::Global(name) => Some(name),
        };
        if let Some(name) = name.filter(|_| self.may_punt()) {
            self.refuse(format!("'{name}' lasts from packet to packet: it is assigned to"));
        }
    }

    /// What a global variable has, unless a function could give it something else without an assignment that is seen.
    pub(super) fn punt_global(&mut self, name: &str, known: Known) -> Slot {
        let is_fixed = matches!(
            known,
            Known::Function(_)
                | Known::Library(_)
                | Known::Protocol(_)
                | Known::Shared(_)
                | Known::Streams(_)
        ) || Verdict::ALL.iter().any(|verdict| verdict.name() == name);
        match self.unsettled() {
            Some(line) if !is_fixed => self.refuse(format!("'{name}' may change: see line {line}")),
            _ => {
                if !is_fixed {
                    self.note_read(false, &format!("'{name}'"));
                }
                Slot::known(known)
            }
        }
    }

    /// A table of the top level that is read.
    pub(super) fn punt_table(&mut self) {
        if let Some(line) = self.unsettled() {
            self.refuse(format!("the table may change: see line {line}"));
        }
        self.note_read(true, "the table");
    }

    /// Notes what is read of the top level by a function that is compiled as a whole.
    fn note_read(&mut self, is_table: bool, what: &str) {
        if !self.may_punt() && self.state.is_some() {
            self.reads.push((is_table, Refusal { line: self.line, reason: what.to_owned() }));
        }
    }

    /// What was read and may change nevertheless: by functions that were not followed, and so are Lua's if they run.
    pub(super) fn may_have_changed(&self) -> Vec<Refusal> {
        let others = || {
            let all = self.chunk.functions.iter().enumerate();
            all.filter(|(at, function)| function.may_run && !self.followed.contains(&FunctionId(*at)))
                .map(|(_, function)| function)
        };
        let entries = others().find_map(|function| function.unsettles);
        let variables = others().find_map(|function| function.reaches);
        let reads = self.reads.iter().filter_map(|(is_table, Refusal { line, reason })| {
            let by = if *is_table { entries } else { variables }?;
            Some(Refusal { line: *line, reason: format!("{reason} may change: see line {by}") })
        });
        reads.collect()
    }

    fn unsettled(&self) -> Option<u32> {
        self.chunk.unsettled.filter(|_| self.may_punt())
    }
}
