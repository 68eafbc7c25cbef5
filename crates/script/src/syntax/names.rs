//! What the names in a script say of it without running it: which methods a function comes to.

use std::collections::BTreeSet;

use super::tree::{Chunk, FunctionId, Mention, Mentioned};

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
