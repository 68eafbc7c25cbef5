//! Files that share a state declare alike what they share. Otherwise programs in the kernel would not come to have one map,
//! or would take each other's entries for expired; and in Lua the file that was loaded last would decide.

use std::mem::discriminant;
use std::rc::Rc;

use super::{Files, TestHost};
use crate::compile::shared::{Form, Part, Shared};
use crate::host::Host;
use crate::tables::WhenFull;
use crate::vm;

/// The first thing that one of these scripts, which are to share a state, declares in another way than one before it: which
/// of them does, and what differs. `scripts`: paths and texts; `files`: what lies beside each of them.
pub fn disagreement(
    scripts: &[(String, String)],
    files: impl Fn(usize) -> Rc<dyn Files>,
) -> Option<(usize, String)> {
    let declared = vm::declared(scripts, |at| -> Box<dyn Host> {
        Box::new(TestHost { world: Rc::default(), files: files(at) })
    });
    for (at, own) in declared.iter().enumerate() {
        for (before, others) in declared[..at].iter().enumerate() {
            if let Some((name, what, [one, another])) = own.iter().find_map(|shared| unlike(others, shared)) {
                let (first, second) = (&scripts[before].0, &scripts[at].0);
                let what =
                    format!("{name:?} has {what} = {one} in {first}, and {what} = {another} in {second}");
                return Some((at, what));
            }
        }
    }
    None
}

/// What is said of something, and what the others say.
fn unlike<'s>(others: &[Shared], shared: &'s Shared) -> Option<(&'s str, &'static str, [String; 2])> {
    let same = |other: &&Shared| {
        other.name == shared.name && discriminant(&other.form) == discriminant(&shared.form)
    };
    let before = properties(others.iter().find(same)?);
    let differs = before.into_iter().zip(properties(shared)).find(|(one, another)| one != another);
    differs.map(|((what, one), (_, another))| (shared.name.as_str(), what, [one, another]))
}

/// What a declaration says, as it says it; those of two things of one form are in the same order.
fn properties(shared: &Shared) -> Vec<(&'static str, String)> {
    let parts = |parts: &[Part]| parts.iter().map(Part::to_string).collect::<Vec<_>>().join(", ");
    let mut all = match &shared.form {
        Form::Table { key, value, .. } => vec![("key", parts(key)), ("value", parts(value))],
        Form::Prefixes { limit, .. } => vec![("limit", limit.to_string())],
        Form::Histogram { bounds } => vec![("buckets", format!("{bounds:?}"))],
        Form::Counter | Form::Flows { .. } => Vec::new(),
    };
    if let Form::Table { shape, .. } | Form::Flows { shape, .. } = &shared.form {
        let when_full = match shape.when_full {
            WhenFull::Refuse => "\"refuse\"",
            WhenFull::Oldest => "\"oldest\"",
        };
        all.extend([
            ("limit", shape.limit.to_string()),
            ("expires", shape.expires_ms.map_or_else(|| "nil".to_owned(), |expires| expires.to_string())),
            ("when_full", when_full.to_owned()),
        ]);
    }
    all.push(("persistent", shared.persistent.to_string()));
    all
}
