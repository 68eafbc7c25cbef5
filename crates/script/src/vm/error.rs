//! How a script fails, and what is told of that.

use mlua::Lua;

/// Name of our own chunk in tracebacks, from which it is left out.
pub(crate) const RUNTIME: &str = "[sidestep]";
/// What a traceback begins with, behind an error's text.
pub(super) const TRACEBACK: &str = "\nstack traceback:";

/// Why a script did not come to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ScriptError {
    /// What kind of error.
    pub kind: ErrorKind,
    /// What happened, with file and line.
    pub message: String,
    /// Through which functions, innermost first, one in a line; may be empty.
    pub traceback: String,
}

/// Kinds of [`ScriptError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The script's text is not Lua.
    Syntax,
    /// An error while it ran.
    Runtime,
    /// More instructions than it may use.
    Budget,
    /// More memory than it may use.
    Memory,
    /// It returned something that is no verdict.
    Verdict,
}

impl ScriptError {
    /// What went wrong, without the frames of our own.
    pub(crate) fn from_lua(error: &mlua::Error) -> Self {
        let mut text = text(error);
        let mut traceback = match error {
            mlua::Error::CallbackError { traceback, .. } => traceback.clone(),
            _ => String::new(),
        };
        if let Some(at) = text.find(TRACEBACK) {
            if traceback.is_empty() {
                text[at..].trim_start().clone_into(&mut traceback);
            }
            text.truncate(at);
        }
        let kind = match root(error) {
            mlua::Error::SyntaxError { .. } => ErrorKind::Syntax,
            mlua::Error::MemoryError(_) => ErrorKind::Memory,
            _ => ErrorKind::Runtime,
        };
        let frames: Vec<_> = traceback
            .lines()
            .map(str::trim)
            .filter(|line| {
                !line.is_empty()
                    && *line != "stack traceback:"
                    && !line.starts_with("[C]")
                    && !line.starts_with(RUNTIME)
            })
            .collect();
        // An error in C, as when memory is used up, does not say where: the innermost frame does.
        let has_place = text.split_once(": ").is_some_and(|(place, _)| {
            place.rsplit_once(':').is_some_and(|(_, line)| line.bytes().all(|digit| digit.is_ascii_digit()))
        });
        let message = match frames.first().and_then(|frame| frame.split_once(": in ")) {
            Some((place, _)) if !has_place => format!("{place}: {text}"),
            _ => text,
        };
        Self { kind, message, traceback: frames.join("\n") }
    }
}

/// What an error says, without mlua's word for its kind.
pub(super) fn text(error: &mlua::Error) -> String {
    let text = root(error).to_string();
    let prefixes = ["runtime error: ", "syntax error: ", "memory error: "];
    prefixes.iter().find_map(|prefix| text.strip_prefix(prefix)).unwrap_or(&text).to_owned()
}

fn root(error: &mlua::Error) -> &mlua::Error {
    match error {
        mlua::Error::CallbackError { cause, .. } => root(cause),
        mlua::Error::BadArgument { cause, .. } => root(cause),
        other => other,
    }
}

/// An error of a function of ours, with the place in the script that called it.
pub(crate) fn fail(lua: &Lua, error: impl std::fmt::Display) -> mlua::Error {
    let place = (0..20).find_map(|level| {
        lua.inspect_stack(level, |frame| {
            let source = frame.source();
            let name = source.short_src.as_deref()?;
            let line = frame.current_line()?;
            (name != RUNTIME).then(|| format!("{name}:{line}: "))
        })
        .flatten()
    });
    mlua::Error::runtime(format!("{}{error}", place.unwrap_or_default()))
}
