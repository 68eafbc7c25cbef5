//! What the names in a script say of it without running it: what it calls that nothing has, and which functions one comes
//! to.

use std::collections::BTreeSet;

use super::tree::{Chunk, FunctionId, Mention, Mentioned};

/// By which a script may have global variables that cannot be seen in its text.
const HIDDEN: [&str; 4] = ["_G", "_ENV", "load", "setmetatable"];

/// What a script's state has, once the script is loaded.
pub(crate) trait Names {
    /// Whether there is such a global variable.
    fn has_global(&self, name: &str) -> bool;
    /// Whether the library of this name has such an entry; none if it is no library.
    fn has_entry(&self, library: &str, name: &str) -> Option<bool>;
    /// Whether something has such a method.
    fn has_method(&self, name: &str) -> bool;
}

/// A name that nothing has, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct Unknown {
    /// From 1 on.
    pub line: u32,
    /// In words.
    pub what: String,
}

/// Names that nothing has: neither the state, nor the script or one of its modules makes it.
pub(crate) fn unknown(chunk: &Chunk, modules: &[Chunk], state: &impl Names) -> Vec<Unknown> {
    let all = || modules.iter().chain([chunk]).flat_map(|chunk| &chunk.mentions);
    let named = |wanted: Mentioned| -> BTreeSet<&str> {
        all().filter(|mention| mention.what == wanted).map(|mention| &*mention.name).collect()
    };
    let (made, keys) = (named(Mentioned::SetGlobal), named(Mentioned::Key));
    let is_hidden = |mention: &Mention| mention.what == Mentioned::Global && HIDDEN.contains(&&*mention.name);
    let may_hide = all().any(is_hidden);
    let is_made = |name: &str| may_hide || made.contains(name);
    let mut unknown: Vec<Unknown> = Vec::new();
    for Mention { what, name, line, .. } in &chunk.mentions {
        let what = match what {
            Mentioned::Global if !state.has_global(name) && !is_made(name) => {
                format!("there is no variable {name}: is its name written correctly?")
            }
            Mentioned::EntryOf(of)
                if !is_made(of) && !keys.contains(&**name) && state.has_entry(of, name) == Some(false) =>
            {
                format!("{of} has no {name}")
            }
            Mentioned::Method if !state.has_method(name) && !keys.contains(&**name) => {
                format!("nothing has a field or method {name}")
            }
            _ => continue,
        };
        unknown.push(Unknown { line: *line, what });
    }
    unknown.sort();
    unknown.dedup();
    unknown
}

/// Methods that a function may call, as far as names tell: its own, and those of functions that it names.
pub(crate) fn methods_within<'a>(chunk: &'a Chunk, function: &str) -> impl Iterator<Item = &'a Mention> {
    let last = |name: &str| name.rsplit(['.', ':']).next().unwrap_or(name).to_owned();
    let named = |wanted: &str| -> Vec<FunctionId> {
        let functions = chunk.functions.iter().enumerate().skip(1);
        functions
            .filter(|(_, function)| last(&function.name) == wanted)
            .map(|(at, _)| FunctionId(at))
            .collect()
    };
    let mut open = named(function);
    let mut reached: BTreeSet<FunctionId> = BTreeSet::new();
    while let Some(next) = open.pop() {
        if !reached.insert(next) {
            continue;
        }
        let within = chunk.functions.iter().enumerate().skip(1).filter(|(_, inner)| inner.outer == next);
        open.extend(within.map(|(at, _)| FunctionId(at)));
        let own = chunk.mentions.iter().filter(|mention| mention.function == next);
        open.extend(own.flat_map(|mention| named(&mention.name)));
    }
    let is_reached = move |mention: &&Mention| reached.contains(&mention.function);
    chunk.mentions.iter().filter(|mention| mention.what == Mentioned::Method).filter(is_reached)
}
