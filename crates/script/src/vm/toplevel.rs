//! What a script's top level has made, for the compiler: it runs here as it would for packets, and is then looked at.

use std::cell::RefCell;
use std::rc::Rc;

use mlua::{Function, Table, Value};
use rustc_hash::FxHashMap;

use super::core::{Limits, Shared};
use super::error::ScriptError;
use super::named::Tables;
use super::natives;
use super::state::State;
use super::tables;
use crate::compile::known::{Known, TopLevel};
use crate::host::{Host, InterfaceError};
use crate::protocol::Protocols;
use crate::syntax::tree::{Chunk, FunctionId, LocalId, StatementKind};

/// Tables within tables that are looked at.
const DEEPEST: usize = 4;
/// Entries of a table that are looked at.
const MOST_ENTRIES: usize = 256;

/// A script whose top level has run.
pub(crate) struct Loaded<'a> {
    chunk: &'a Chunk,
    state: State,
    protocols: Protocols,
    /// Values of local variables.
    locals: FxHashMap<LocalId, Value>,
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
        let visible = visible(chunk);
        // Its local variables can be seen from its end only.
        let names: Vec<_> = visible.iter().map(|local| &*chunk.locals[local.0].name).collect();
        let source = match chunk.functions[0].body.last().map(|last| &last.kind) {
            Some(StatementKind::Return(_)) => source.to_owned(),
            _ => format!("{source}\nreturn {}", names.join(", ")),
        };
        let values = state.evaluate(&source, path)?;
        let locals = visible.into_iter().zip(values).collect();
        let protocols = state.core.protocols.borrow().clone();
        Ok(Self { chunk, state, protocols, locals, path: format!("@{path}") })
    }

    fn known(&self, value: &Value, depth: usize) -> Known {
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
                None => other("an object"),
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
        let value: Value = self.state.lua.globals().get(name).unwrap_or(Value::Nil);
        match &value {
            Value::Table(_) if LIBRARIES.contains(&name) => Known::Library(name.into()),
            Value::Function(function) if self.function(function).is_none() => Known::Library(name.into()),
            value => self.known(value, 0),
        }
    }

    fn local(&self, local: LocalId) -> Known {
        match self.locals.get(&local) {
            Some(value) => self.known(value, 0),
            None => Known::Other(format!("'{}'", self.chunk.locals[local.0].name).into()),
        }
    }

    fn field(&self, of: &str, name: &str) -> Known {
        let library = self.state.lua.globals().get::<Table>(of);
        match library.and_then(|library| library.get::<Value>(name)).unwrap_or(Value::Nil) {
            Value::Function(function) if self.function(&function).is_none() => {
                Known::Library(format!("{of}.{name}").into())
            }
            value => self.known(&value, 0),
        }
    }

    fn interface(&self, name: &str) -> Result<u32, InterfaceError> {
        self.state.core.shared.borrow_mut().host.interface(name)
    }

    fn protocols(&self) -> &Protocols {
        &self.protocols
    }
}

const LIBRARIES: [&str; 8] = ["nf", "bytes", "dns", "tls", "http", "math", "string", "table"];

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
