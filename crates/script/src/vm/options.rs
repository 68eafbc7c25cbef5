//! What all that scripts make by name may be told.

use mlua::{Lua, Table, Value};

use super::error::fail;

/// Octets of a name, which is kept beside what it stands for.
pub(super) const LONGEST_NAME: usize = 256;

/// Its name.
pub(super) fn name(lua: &Lua, options: &Table) -> mlua::Result<String> {
    match options.get::<Option<String>>("name")? {
        Some(name) if name.len() > LONGEST_NAME => {
            Err(fail(lua, format_args!("`name` has more than {LONGEST_NAME} octets")))
        }
        Some(name) if !name.is_empty() => Ok(name),
        _ => Err(fail(lua, "`name` is missing: it keeps what is in it over a reload")),
    }
}

/// Whether what is in it is to outlive the process.
pub(super) fn persistent(lua: &Lua, options: &Table) -> mlua::Result<bool> {
    match options.get::<Value>("persistent")? {
        Value::Nil => Ok(false),
        Value::Boolean(persistent) => Ok(persistent),
        _ => Err(fail(lua, "`persistent` must be true or false")),
    }
}
