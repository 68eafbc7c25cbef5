//! One Lua state: what it may use, how much, and how a call into it ends.

use std::cell::RefCell;
use std::rc::Rc;

use mlua::{Function, Lua, LuaOptions, StdLib, Table, Value};

use super::core::{Core, Limits, Runtime, Shared};
use super::error::{ErrorKind, RUNTIME, ScriptError, TRACEBACK, text};
use super::{library, natives, strings};
use crate::protocol::builtin;
use crate::store::Handle;
use crate::syntax::points;

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
            let core = Rc::new(Core::new(shared, state, limits));
            let natives = natives::make(&lua, &core)?;
            // As it is before `confine` wraps it: views of byte arrays are made with it.
            natives.set("setmetatable", lua.globals().get::<Function>("setmetatable")?)?;
            confine(&lua, &core)?;
            strings::install(&lua, &core)?;
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
        self.core.is_loading.set(true);
        let loaded = match source.contains(points::TWIN) {
            true => self.core.taking_twins(&self.lua, path).and_then(|twins| chunk.call(twins)),
            false => chunk.exec(),
        };
        self.core.is_loading.set(false);
        loaded.map_err(|error| self.error(&error))
    }

    /// Runs the text of a script; what it returns.
    pub(crate) fn evaluate(&self, source: &str, path: &str) -> Result<mlua::MultiValue, ScriptError> {
        self.core.renew_budget();
        let chunk = self.lua.load(source).set_name(format!("@{path}")).set_mode(mlua::chunk::ChunkMode::Text);
        self.core.is_loading.set(true);
        let value = chunk.eval();
        self.core.is_loading.set(false);
        value.map_err(|error| self.error(&error))
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
        if self.core.is_exhausted() {
            error.kind = ErrorKind::Budget;
        }
        error
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
        lua.create_function(move |_, ()| Ok(core.is_exhausted()))?
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
