//! What a script's top level has made, for the compiler: it runs here as it would for packets, and is then looked at.

use std::cell::RefCell;
use std::ffi::c_void;
use std::rc::Rc;
use std::sync::Arc;

use mlua::{Function, Lua, Table, Value};
use rustc_hash::FxHashMap;

use super::core::{Limits, Shared};
use super::error::ScriptError;
use super::named::Tables;
use super::natives;
use super::state::State;
use super::{streams, tables};
use crate::compile::known::{Known, TopLevel};
use crate::host::{Host, InterfaceError};
use crate::protocol::Protocols;
use crate::syntax::tree::{Chunk, FunctionId, LocalId, StatementKind};

/// Tables within tables that are looked at.
const DEEPEST: usize = 4;
/// Entries of a table that are looked at.
const MOST_ENTRIES: usize = 256;

/// What a top level returns before its local variables, and no script does.
const AT_ITS_END: &str = "the end of the top level";

/// A script whose top level has run.
pub(crate) struct Loaded<'a> {
    chunk: &'a Chunk,
    state: State,
    protocols: Protocols,
    /// Values of local variables.
    locals: FxHashMap<LocalId, Value>,
    library: Library,
    path: String,
}

impl<'a> Loaded<'a> {
    /// Runs the top level.
    pub(crate) fn new(
        chunk: &'a Chunk,
        source: &str,
        path: &str,
        host: impl Host + 'static,
    ) -> Result<Self, ScriptError> {
        let shared = Shared {
            host: Box::new(host),
            jobs: std::collections::BTreeMap::new(),
            deferred: 0,
            tables: Tables::default(),
        };
        let state = State::new(Rc::new(RefCell::new(shared)), 0, Limits::default(), true)?;
        let library = Library::of(&state.lua).map_err(|error| state.error(&error))?;
        let visible = visible(chunk);
        // Its local variables can be seen from its end only, if it comes there.
        let names = visible.iter().map(|local| format!(", {}", chunk.locals[local.0].name));
        let source = match chunk.functions[0].body.last().map(|last| &last.kind) {
            Some(StatementKind::Return(_)) => source.to_owned(),
            _ => format!("{source}\nreturn {AT_ITS_END:?}{}", names.collect::<String>()),
        };
        let mut values = state.evaluate(&source, path)?.into_iter();
        let at_its_end =
            values.next().is_some_and(|first| first.as_string().is_some_and(|text| *text == *AT_ITS_END));
        let locals =
            if at_its_end { visible.into_iter().zip(values).collect() } else { FxHashMap::default() };
        let protocols = state.core.protocols.borrow().clone();
        Ok(Self { chunk, state, protocols, locals, library, path: format!("@{path}") })
    }

    fn known(&self, value: &Value, depth: usize) -> Known {
        if let Value::Function(_) | Value::Table(_) = value
            && let Some(name) = self.library.names.get(&value.to_pointer())
        {
            return Known::Library(name.clone());
        }
        let other = |what: &str| Known::Other(what.into());
        match value {
            Value::Nil => Known::Nil,
            Value::Boolean(value) => Known::Boolean(*value),
            Value::Integer(value) => Known::Integer(*value),
            Value::Number(_) => other("a float"),
            Value::String(text) => Known::String(text.as_bytes().to_vec().into()),
            Value::Function(function) => match self.function(function) {
                Some(id) => Known::Function(id),
                None => other("a function that is not this file's"),
            },
            Value::Table(table) => self.table(table, depth),
            Value::LightUserData(value) => match natives::handle(*value).protocol() {
                Some(protocol) => Known::Protocol(protocol),
                None => other("a view"),
            },
            Value::UserData(handle) => match tables::shared(handle) {
                Some(shared) => Known::Shared(shared.into()),
                None => streams::shared(handle)
                    .map_or_else(|| other("an object"), |shared| Known::Streams(shared.into())),
            },
            other => Known::Other(format!("a {}", other.type_name()).into()),
        }
    }

    /// Which function of the chunk it is, if its lines say so.
    fn function(&self, function: &Function) -> Option<FunctionId> {
        let info = function.info();
        if info.source.as_deref() != Some(&*self.path) {
            return None;
        }
        let lines = (info.line_defined? as u32, info.last_line_defined? as u32);
        let mut places = self.chunk.functions.iter().enumerate().skip(1);
        let (place, _) = places.find(|(_, function)| function.lines == lines)?;
        places.all(|(_, function)| function.lines != lines).then_some(FunctionId(place))
    }

    fn table(&self, table: &Table, depth: usize) -> Known {
        if table.metatable().is_some() {
            return Known::Other("a table with a metatable".into());
        }
        let mut entries = Vec::new();
        for pair in table.pairs::<Value, Value>() {
            let Ok((key, value)) = pair else { break };
            if depth == DEEPEST || entries.len() == MOST_ENTRIES {
                return Known::Other("a large table".into());
            }
            entries.push((self.known(&key, depth + 1), self.known(&value, depth + 1)));
        }
        Known::Table(entries.into())
    }
}

impl TopLevel for Loaded<'_> {
    fn global(&self, name: &str) -> Known {
        let globals = self.state.lua.globals();
        if globals.metatable().is_some() {
            return Known::Other(format!("'{name}' of a table with a metatable").into());
        }
        self.known(&globals.raw_get(name).unwrap_or(Value::Nil), 0)
    }

    fn local(&self, local: LocalId) -> Option<Known> {
        self.locals.get(&local).map(|value| self.known(value, 0))
    }

    fn field(&self, of: &str, name: &str) -> Known {
        match self.library.tables.get(of) {
            Some(library) if library.metatable().is_none() => {
                self.known(&library.raw_get(name).unwrap_or(Value::Nil), 0)
            }
            _ => Known::Other(format!("'{of}.{name}'").into()),
        }
    }

    fn of_strings(&self, name: &str) -> Known {
        match self.library.strings.raw_get("__index") {
            Ok(Value::Table(methods)) if Some(&methods) == self.library.tables.get("string") => {
                self.field("string", name)
            }
            _ => Known::Other("a method of strings".into()),
        }
    }

    fn interface(&self, name: &str) -> Result<u32, InterfaceError> {
        self.state.core.shared.borrow_mut().host.interface(name)
    }

    fn protocols(&self) -> &Protocols {
        &self.protocols
    }
}

/// Global variables that are libraries.
pub(crate) const LIBRARIES: [&str; 8] = ["nf", "bytes", "dns", "tls", "http", "math", "string", "table"];

/// What a state has before a script runs in it. It is known again by what it is, whatever its name has become.
struct Library {
    /// Names of functions and libraries, by their addresses.
    names: FxHashMap<*const c_void, Arc<str>>,
    tables: FxHashMap<&'static str, Table>,
    /// The metatable of strings.
    strings: Table,
    /// Keeps them, so that nothing else comes to their addresses.
    _functions: Vec<Function>,
}

impl Library {
    fn of(lua: &Lua) -> mlua::Result<Self> {
        let (mut names, mut tables, mut functions) = (FxHashMap::default(), FxHashMap::default(), Vec::new());
        let mut note = |name: String, function: Function| {
            names.entry(function.to_pointer()).or_insert_with(|| name.into());
            functions.push(function);
        };
        for pair in lua.globals().pairs::<String, Value>() {
            let (name, value) = pair?;
            if let Value::Function(function) = value {
                note(name, function);
            }
        }
        for library in LIBRARIES {
            let table: Table = lua.globals().get(library)?;
            for pair in table.pairs::<String, Value>() {
                let (name, value) = pair?;
                if let Value::Function(function) = value {
                    note(format!("{library}.{name}"), function);
                }
            }
            tables.insert(library, table);
        }
        names.extend(tables.iter().map(|(name, table)| (table.to_pointer(), Arc::from(*name))));
        let strings = lua.globals().get::<Function>("getmetatable")?.call("")?;
        Ok(Self { names, tables, strings, _functions: functions })
    }
}

/// Local variables that can be seen from the end of the chunk.
fn visible(chunk: &Chunk) -> Vec<LocalId> {
    let mut visible: Vec<LocalId> = Vec::new();
    for statement in &chunk.functions[0].body {
        let StatementKind::Local(names, _) = &statement.kind else { continue };
        for local in names {
            visible.retain(|known| chunk.locals[known.0].name != chunk.locals[local.0].name);
            visible.push(*local);
        }
    }
    visible
}
