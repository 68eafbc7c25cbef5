//! One Lua state: what it may use, how much, and how a call into it ends.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use mlua::{Function, HookTriggers, Lua, LuaOptions, StdLib, Table, Value, VmState};

use super::Shared;
use super::library;
use super::natives::{self, Runtime};
use crate::protocol::{Protocols, builtin};
use crate::store::{Handle, Store};

/// Instructions between two looks at the budget.
const INSTRUCTIONS_PER_LOOK: u32 = 1000;
/// Octets that are copied in the time of an instruction: without this, a loop that makes a string of a large packet would
/// run for a second before its instructions are used up.
const OCTETS_PER_INSTRUCTION: usize = 64;
/// Most lines of one packet that are followed.
const MAX_LINES: usize = 1000;
/// Name of our own chunk in tracebacks, from which it is left out.
pub(crate) const RUNTIME: &str = "[sidestep]";
/// What a traceback begins with, behind an error's text.
const TRACEBACK: &str = "\nstack traceback:";

/// What a state may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Lua instructions for one packet, in steps of 1000.
    pub instructions: u64,
    /// Octets of memory of a Lua state, and as many again of byte arrays.
    pub memory: usize,
}

impl Default for Limits {
    /// A million instructions, some milliseconds: a packet that takes longer holds up all others. 16 MB.
    fn default() -> Self {
        Self { instructions: 1_000_000, memory: 16 << 20 }
    }
}

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

/// A line of a script that a packet went through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The script, or the module.
    pub path: String,
    /// From 1.
    pub number: usize,
}

/// What Rust's functions in a state share.
pub(crate) struct Core {
    pub(crate) store: RefCell<Store>,
    pub(crate) protocols: RefCell<Protocols>,
    pub(crate) shared: Rc<RefCell<Shared>>,
    pub(crate) runtime: OnceCell<Runtime>,
    /// Number of the state, for deferred work.
    pub(crate) state: u32,
    instructions_left: Cell<u64>,
    exhausted: Cell<bool>,
    /// Octets in byte arrays, which Lua does not count.
    pub(crate) byte_arrays: Rc<Cell<usize>>,
    pub(crate) limits: Limits,
    /// Modules that `require` gives without asking the host.
    preloaded: RefCell<Vec<(&'static str, Table)>>,
}

/// A Lua state with everything that scripts may use.
pub(crate) struct State {
    pub(crate) lua: Lua,
    pub(crate) core: Rc<Core>,
    /// What runtime.lua gives to Rust.
    pub(crate) entry: Table,
    enter_deferred: Function,
}

impl State {
    /// A new state. In one for packets IS_INTERRUPT is true, as the thesis has it; in one for deferred work it is nil.
    pub(crate) fn new(
        shared: Rc<RefCell<Shared>>,
        state: u32,
        limits: Limits,
        is_interrupt: bool,
    ) -> Result<Self, ScriptError> {
        let make = || -> mlua::Result<Self> {
            let libraries = StdLib::STRING | StdLib::TABLE | StdLib::MATH | StdLib::UTF8;
            let lua = Lua::new_with(libraries, LuaOptions::default())?;
            let core = Rc::new(Core {
                store: RefCell::default(),
                protocols: RefCell::default(),
                shared,
                runtime: OnceCell::new(),
                state,
                instructions_left: Cell::new(limits.instructions),
                exhausted: Cell::new(false),
                byte_arrays: Rc::default(),
                limits,
                preloaded: RefCell::default(),
            });
            let natives = natives::make(&lua, &core)?;
            // As it is before `confine` wraps it: views of byte arrays are made with it.
            natives.set("setmetatable", lua.globals().get::<Function>("setmetatable")?)?;
            confine(&lua, &core)?;
            let entry: Table =
                lua.load(include_str!("runtime.lua")).set_name(format!("={RUNTIME}")).call(&natives)?;
            let _ = core.runtime.set(Runtime::of(&entry)?);
            library::install(&lua, &core, &natives)?;
            // Scripts carry their tests also to where these do not run.
            core.preload("test", lua.create_table()?);
            for source in builtin::SOURCES {
                lua.load(source.text).set_name(format!("={}", source.name)).exec()?;
            }
            if is_interrupt {
                lua.globals().set("IS_INTERRUPT", true)?;
            }
            let enter_deferred = entry.get("deferred")?;
            core.watch(&lua)?;
            lua.set_memory_limit(lua.used_memory() + limits.memory)?;
            Ok(Self { lua, core, entry, enter_deferred })
        };
        make().map_err(|error| ScriptError::from_lua(&error))
    }

    /// Runs the text of a script, so that its functions are there.
    pub(crate) fn load(&self, source: &str, path: &str) -> Result<(), ScriptError> {
        self.core.renew_budget();
        let chunk = self.lua.load(source).set_name(format!("@{path}")).set_mode(mlua::chunk::ChunkMode::Text);
        chunk.exec().map_err(|error| self.error(&error))
    }

    /// Runs the text of a script; what it returns.
    pub(crate) fn evaluate(&self, source: &str, path: &str) -> Result<mlua::MultiValue, ScriptError> {
        self.core.renew_budget();
        let chunk = self.lua.load(source).set_name(format!("@{path}")).set_mode(mlua::chunk::ChunkMode::Text);
        chunk.eval().map_err(|error| self.error(&error))
    }

    /// The global function of this name.
    pub(crate) fn function(&self, name: &str) -> Option<Function> {
        self.lua.globals().get(name).ok()
    }

    /// Calls `function` with a view of a packet; what it returned.
    pub(crate) fn packet(&self, function: &Function, whole: Handle) -> Result<Value, ScriptError> {
        self.core.renew_budget();
        function.call(natives::light(whole)).map_err(|error| self.error(&error))
    }

    /// Calls `function` with deferred work.
    pub(crate) fn deferred(
        &self,
        function: &Function,
        work: impl mlua::IntoLuaMulti,
    ) -> Result<(), ScriptError> {
        self.core.renew_budget();
        let mut arguments = work.into_lua_multi(&self.lua).map_err(|error| self.error(&error))?;
        arguments.push_front(Value::Function(function.clone()));
        self.enter_deferred.call::<()>(arguments).map_err(|error| self.error(&error))
    }

    pub(crate) fn error(&self, error: &mlua::Error) -> ScriptError {
        let mut error = ScriptError::from_lua(error);
        if self.core.exhausted.get() {
            error.kind = ErrorKind::Budget;
        }
        error
    }
}

impl Core {
    /// Has `require` give this table, in place of an earlier one.
    pub(crate) fn preload(&self, name: &'static str, module: Table) {
        self.preloaded.borrow_mut().push((name, module));
    }

    /// A module that was given so.
    pub(crate) fn preloaded(&self, name: &str) -> Option<Table> {
        let modules = self.preloaded.borrow();
        modules.iter().rev().find(|(known, _)| *known == name).map(|(_, module)| module.clone())
    }

    pub(crate) fn renew_budget(&self) {
        self.instructions_left.set(self.limits.instructions);
        self.exhausted.set(false);
    }

    /// Takes the work of copying so many octets off the budget, as instructions; the next look finds it used up.
    pub(crate) fn copies(&self, octets: usize) {
        let instructions = (octets / OCTETS_PER_INSTRUCTION) as u64;
        self.instructions_left.set(self.instructions_left.get().saturating_sub(instructions));
    }

    /// Has the state look at its budget every so many instructions.
    pub(crate) fn watch(self: &Rc<Self>, lua: &Lua) -> mlua::Result<()> {
        let core = Rc::clone(self);
        lua.set_hook(HookTriggers::new().every_nth_instruction(INSTRUCTIONS_PER_LOOK), move |lua, _| {
            core.look(lua).map(|()| VmState::Continue)
        })
    }

    /// Writes down the lines that the state goes through from now on, until it is [watched](Self::watch) as usual.
    /// The budget is that of ordinary packets.
    pub(crate) fn follow(self: &Rc<Self>, lua: &Lua) -> Rc<RefCell<Vec<Line>>> {
        let (core, lines) = (Rc::clone(self), Rc::new(RefCell::new(Vec::new())));
        let seen = Rc::clone(&lines);
        let triggers = HookTriggers::new().every_line().every_nth_instruction(INSTRUCTIONS_PER_LOOK);
        let hook = move |lua: &Lua, at: &mlua::debug::Debug<'_>| {
            if at.event() != mlua::debug::DebugEvent::Line {
                return core.look(lua).map(|()| VmState::Continue);
            }
            let source = at.source();
            let path = source.source.as_deref().and_then(|source| source.strip_prefix('@'));
            let mut lines = seen.borrow_mut();
            if let (Some(path), Some(number), true) = (path, at.current_line(), lines.len() < MAX_LINES) {
                lines.push(Line { path: path.to_owned(), number });
            }
            Ok(VmState::Continue)
        };
        // It fails only without memory; then nothing is seen.
        let _ = lua.set_hook(triggers, hook);
        lines
    }

    /// Takes a step off the budget. Once it is used up, every further step fails too.
    fn look(&self, lua: &Lua) -> mlua::Result<()> {
        let left = self.instructions_left.get().saturating_sub(u64::from(INSTRUCTIONS_PER_LOOK));
        self.instructions_left.set(left);
        if left > 0 {
            return Ok(());
        }
        self.exhausted.set(true);
        let all = self.limits.instructions;
        // An error of a hook has no traceback of its own.
        let trace = lua.traceback(None, 0)?.to_string_lossy();
        let what = format_args!("used up its {all} instructions (is there a loop without an end?)\n{trace}");
        Err(fail(lua, what))
    }
}

/// Takes away what reaches out of the state or around its limits.
fn confine(lua: &Lua, core: &Rc<Core>) -> mlua::Result<()> {
    let globals = lua.globals();
    for name in ["dofile", "loadfile", "loadstring", "collectgarbage", "print"] {
        globals.set(name, Value::Nil)?;
    }
    globals.get::<Table>("string")?.set("dump", Value::Nil)?;
    let exhausted = {
        let core = Rc::clone(core);
        lua.create_function(move |_, ()| Ok(core.exhausted.get()))?
    };
    let message = lua.create_function(|_, error: Value| {
        Ok(match error {
            Value::Error(error) => {
                let mut text = text(&error);
                // Of an error that went through Lua, Rust and Lua again.
                text.truncate(text.find(TRACEBACK).unwrap_or(text.len()));
                text
            }
            other => other.to_string()?,
        })
    })?;
    lua.load(include_str!("confine.lua")).set_name(format!("={RUNTIME}")).call((exhausted, message))
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
fn text(error: &mlua::Error) -> String {
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
