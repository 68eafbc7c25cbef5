//! The script's text as a tree: what the compiler begins with.
//!
//! The user tier has Lua read the text itself; what Lua refuses never comes here, so messages about syntax are Lua's.

mod literal;
pub(crate) mod names;
pub(crate) mod points;
mod read;
mod settled;
pub(crate) mod tree;

use full_moon::LuaVersion;
use tree::{Error, Result};

/// Longer texts are refused: a chain of operators is as deep a tree as it is long.
const LONGEST: usize = 1 << 18;
/// Stack for the deepest tree of such a text.
const STACK: usize = 256 << 20;

/// Reads a chunk of Lua 5.4. Lua has to have accepted it: it refuses what is nested deeper
/// than 200 levels (LUAI_MAXCCALLS), where a parser that calls itself has no bottom.
///
/// # Errors
/// If it is longer than 256 KB, or uses what this parser does not know.
pub(crate) fn parse(text: &str) -> Result<tree::Chunk> {
    with_stack(text, || parse_here(text))
}

/// Has a text read in a thread with stack enough for its tree.
fn with_stack<T: Send>(text: &str, read: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    if text.len() > LONGEST {
        let message = format!("the file has {} bytes; the compiler takes {LONGEST} at most", text.len());
        return Err(Error { line: 1, message });
    }
    std::thread::scope(|scope| {
        let reader = std::thread::Builder::new().stack_size(STACK);
        let reading = reader.spawn_scoped(scope, read);
        match reading.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(result)) => result,
            _ => Err(Error { line: 1, message: "the parser failed".to_owned() }),
        }
    })
}

fn parse_here(text: &str) -> Result<tree::Chunk> {
    let parsed = full_moon::parse_fallible(text, LuaVersion::lua54());
    if let Some(error) = parsed.errors().first() {
        let line = error.range().0.line() as u32;
        return Err(Error { line, message: error.error_message().into_owned() });
    }
    read::chunk(parsed.ast())
}
