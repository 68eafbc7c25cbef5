//! What the top level of a file leaves as it is: which functions may change its tables and global variables without an
//! assignment that names them, and which of these run when there are packets.

use full_moon::tokenizer::TokenReference;

use super::read::{Entry, Made, Reader, Use, line_of, text};
use super::tree::{
    Chunk, Error, Expression, ExpressionKind, FunctionId, LocalId, Mention, Mentioned, Variable,
};
use crate::vm::LIBRARIES;

/// Global names by which a function can reach what is no variable of its own. Those that come first do nothing by being
/// called while the file is loaded, and the first three reach tables that they are given alone.
const REACHING: [&str; 7] = ["table", "rawset", "setmetatable", "require", "load", "_G", "_ENV"];
const HARMLESS_AT_FIRST: usize = 4;
const OF_TABLES: usize = 3;

impl Reader {
    /// The chunk, once all is read.
    pub(super) fn settled(mut self) -> Chunk {
        self.note_entries();
        self.note_what_runs();
        self.chunk
    }

    /// Notes a name that reaches further than it looks.
    pub(super) fn note_reach(&mut self, name: &TokenReference, called: bool) {
        let Variable::Global(global) = self.resolve(&text(name)) else { return };
        let Some(place) = REACHING.iter().position(|known| **known == *global) else { return };
        if self.functions.len() > 1 || !called || place >= HARMLESS_AT_FIRST {
            match place < OF_TABLES {
                true => self.unsettle(line_of(name)),
                false => self.reach(line_of(name)),
            }
        }
    }

    /// Notes an entry that a function sets: unless it is of a flow or a byte array, which are no tables, or of a table that the
    /// function itself has made, its table may be one of the top level.
    pub(super) fn note_entry(&mut self, object: &Expression, line: u32) {
        let (of, local) = match &*object.kind {
            ExpressionKind::Variable(Variable::Local(local)) => (self.made.get(local).cloned(), Some(*local)),
            ExpressionKind::Method(_, method, _) => (Some(Made::By(method.clone())), None),
            _ => (None, None),
        };
        let is_other = |of: &Made| match of {
            Made::By(method) => ["flow", "get"].contains(&&**method),
            Made::Here(function) => *function == self.function_here(),
        };
        match of.filter(is_other) {
            Some(of) => self.entries.push(Entry { functions: self.functions.clone(), line, of, local }),
            None => self.unsettle(line),
        }
    }

    /// Whether these methods are those of the library, and the variables what they were.
    fn note_entries(&mut self) {
        for Entry { functions, line, of, local } in std::mem::take(&mut self.entries) {
            let is_own = |mention: &Mention| match (&of, &mention.what) {
                (Made::By(method), Mentioned::Key) => mention.name == *method,
                // A getter that is the script's may give a table.
                (Made::By(method), Mentioned::Global) => {
                    **method == *"get" && *mention.name == *"register_dynamic_protbuf"
                }
                _ => false,
            };
            let is_assigned = local.is_some_and(|local| self.chunk.locals[local.0].assigned);
            if is_assigned || self.chunk.mentions.iter().any(is_own) {
                self.functions = functions;
                self.unsettle(line);
            }
        }
        self.functions.clear();
    }

    /// A `local function` of the top level runs if something that runs names it, or if the top level passes it on.
    fn note_what_runs(&mut self) {
        let chunk = &mut self.chunk;
        for at in 0..chunk.functions.len() {
            let function = &chunk.functions[at];
            let is_outer = function.outer == FunctionId(0);
            let is_test = match is_outer {
                true => function.name.starts_with("test_"),
                false => {
                    !chunk.functions[function.outer.0].may_run
                        && chunk.functions[function.outer.0].variable.is_none()
                }
            };
            let is_local = function.variable.is_some_and(|local| !chunk.locals[local.0].assigned);
            chunk.functions[at].may_run = !(is_test || is_outer && is_local);
        }
        loop {
            let runs = |by: &Use| match by.by {
                FunctionId(0) => !by.called,
                by => chunk.functions[by.0].may_run,
            };
            let found: Vec<LocalId> = self.uses.iter().filter(|one| runs(one)).map(|one| one.local).collect();
            let mut more = false;
            for function in chunk.functions.iter_mut().filter(|function| !function.may_run) {
                function.may_run = function.variable.is_some_and(|variable| found.contains(&variable));
                more |= function.may_run;
            }
            if !more {
                return;
            }
        }
    }

    /// Notes the variable that global variables are in (2.2): by another one, all their names may stand for something else.
    pub(super) fn note_environment(&mut self, name: &str, line: u32) {
        if name == "_ENV" {
            let message = "'_ENV': global variables may be others than those of the file".to_owned();
            self.chunk.renamed.get_or_insert(Error { line, message });
        }
    }

    /// Notes a function that puts something into a library.
    pub(super) fn note_library(&mut self, object: &Expression, line: u32) {
        if let ExpressionKind::Variable(Variable::Global(name)) = &*object.kind
            && self.functions.len() > 1
            && !self.is_in_test()
            && LIBRARIES.contains(&&**name)
        {
            let message = format!("a function changes the library '{name}'");
            self.chunk.renamed.get_or_insert(Error { line, message });
        }
    }

    /// Nothing of the top level is sure any more. Its tests never run where packets are.
    pub(super) fn unsettle(&mut self, line: u32) {
        if !self.is_in_test() {
            self.chunk.unsettled.get_or_insert(line);
            let function = self.function_here();
            self.chunk.functions[function.0].unsettles.get_or_insert(line);
        }
    }

    /// Not even global variables that nothing names.
    pub(super) fn reach(&mut self, line: u32) {
        self.unsettle(line);
        if !self.is_in_test() {
            let function = self.function_here();
            self.chunk.functions[function.0].reaches.get_or_insert(line);
        }
    }

    fn is_in_test(&self) -> bool {
        let outer = self.functions.get(1).map(|outer| &self.chunk.functions[outer.0].name);
        outer.is_some_and(|name| name.starts_with("test_"))
    }
}
