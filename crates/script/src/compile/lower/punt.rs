//! What is left to Lua where a packet is punted: the function runs again there, from its beginning, so nothing may have had an
//! effect before, or come out in another way the second time. And what only Lua sees change is not read here.

use super::{Key, Lower, State};
use crate::compile::known::Known;
use crate::compile::matching;
use crate::compile::slot::Slot;
use crate::syntax::tree::Variable;
use crate::vm::Verdict;

impl Lower<'_> {
    /// Whether ways end here that the user tier goes on with.
    pub(super) const fn may_punt(&self) -> bool {
        self.punts.is_some()
    }

    /// A table of the library or its like: it is in one tier only, that which punts none. Sets of prefixes that a
    /// rule is about are nobody's to change.
    pub(super) fn punt_shared(&mut self, name: &str) {
        let in_rule = self
            .functions
            .last()
            .is_some_and(|inlined| self.chunk.functions[inlined.function.0].name == matching::NAME);
        if self.may_punt() && !in_rule {
            let what = if name.is_empty() { "flows".to_owned() } else { format!("'{name}'") };
            self.refuse(format!(
                "{what}: tables, counters, prefixes and flows are Lua's in a script that hands over"
            ));
        }
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
        let is_fixed =
            matches!(known, Known::Function(_) | Known::Library(_) | Known::Protocol(_) | Known::Shared(_))
                || Verdict::ALL.iter().any(|verdict| verdict.name() == name);
        match self.unsettled() {
            Some(line) if !is_fixed => self.refuse(format!("'{name}' may change: see line {line}")),
            _ => Slot::known(known),
        }
    }

    /// A table of the top level that is read.
    pub(super) fn punt_table(&mut self) {
        if let Some(line) = self.unsettled() {
            self.refuse(format!("the table may change: see line {line}"));
        }
    }

    fn unsettled(&self) -> Option<u32> {
        self.chunk.unsettled.filter(|_| self.may_punt())
    }
}
