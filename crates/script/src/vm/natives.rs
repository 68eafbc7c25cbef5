//! What `runtime.lua` stands on: the operations of [`Store`] on handles, as functions of Lua.

use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;

use mlua::{AnyUserData, Lua, Table, UserData, Value, Variadic};

use super::state::{Core, fail};
use crate::kind::{Kind, Value as FieldValue};
use crate::protocol::{Access, ProtocolId, Protocols, declaration};
use crate::store::{AccessError, Given, Handle, Store};

/// Longest byte array that a script may make: more than any packet.
const MAX_BYTE_ARRAY: usize = 1 << 20;

/// The octets of a byte array that is not a view of a packet.
pub(crate) struct Octets {
    store: RefCell<Store>,
    length: usize,
    total: Rc<Cell<usize>>,
}

impl UserData for Octets {}

impl Drop for Octets {
    fn drop(&mut self) {
        self.total.set(self.total.get() - self.length);
    }
}

impl Octets {
    /// Makes a byte array, if the state may have that much.
    pub(crate) fn of_bytes(lua: &Lua, core: &Core, bytes: Vec<u8>) -> mlua::Result<(AnyUserData, i64)> {
        let (store, whole) = Store::of_bytes(bytes);
        Self::of_store(lua, core, store, whole)
    }

    /// Makes a userdata of octets and their views.
    pub(crate) fn of_store(
        lua: &Lua,
        core: &Core,
        store: Store,
        whole: Handle,
    ) -> mlua::Result<(AnyUserData, i64)> {
        let length = store.bytes().len();
        let total = &core.byte_arrays;
        if total.get() + length > core.limits.memory {
            // Lua does not know how large they are, so it has had no reason to collect those that are done with.
            lua.gc_collect()?;
        }
        if total.get() + length > core.limits.memory {
            return Err(fail(lua, format_args!("byte arrays of more than {} octets", core.limits.memory)));
        }
        total.set(total.get() + length);
        let octets = Self { store: RefCell::new(store), length, total: Rc::clone(total) };
        Ok((lua.create_userdata(octets)?, whole.0))
    }
}

impl Core {
    /// Does something to the packet, or to the octets of a byte array.
    pub(crate) fn with<R>(
        &self,
        lua: &Lua,
        octets: Option<&AnyUserData>,
        action: impl FnOnce(&mut Store, &Protocols) -> Result<R, AccessError>,
    ) -> mlua::Result<R> {
        let protocols = self.protocols.borrow();
        let result = match octets {
            None => action(&mut self.store.borrow_mut(), &protocols),
            Some(octets) => {
                let octets = octets.borrow::<Octets>()?;
                let mut store: RefMut<'_, Store> = octets.store.borrow_mut();
                action(&mut store, &protocols)
            }
        };
        result.map_err(|error| fail(lua, error))
    }
}

type At = (i64, Option<AnyUserData>);

/// The functions.
pub(crate) fn make(lua: &Lua, core: &Rc<Core>) -> mlua::Result<Table> {
    let natives = lua.create_table()?;
    macro_rules! native {
        ($name:literal, |$core:ident, $lua:ident, $arguments:tt: $types:ty| $body:expr) => {
            let $core = Rc::clone(core);
            natives.set($name, lua.create_function(move |$lua, $arguments: $types| $body)?)?;
        };
    }
    native!("data", |core, lua, (handle, octets, id): (i64, Option<AnyUserData>, u16)| {
        core.with(lua, octets.as_ref(), |store, protocols| {
            Ok(store.data(protocols, Handle(handle), ProtocolId(id))?.map(|handle| handle.0))
        })
    });
    native!("cast", |core, lua, (handle, octets, id): (i64, Option<AnyUserData>, u16)| {
        core.with(lua, octets.as_ref(), |store, protocols| {
            Ok(store.cast(protocols, Handle(handle), ProtocolId(id))?.map(|handle| handle.0))
        })
    });
    native!("raw", |core, lua, (handle, octets, offset, length): (i64, Option<AnyUserData>, i64, i64)| {
        core.with(lua, octets.as_ref(), |store, protocols| {
            Ok(store.raw(protocols, Handle(handle), offset, length)?.0)
        })
    });
    native!("get", |core, lua, (handle, octets): At| {
        let value =
            core.with(lua, octets.as_ref(), |store, protocols| store.get(protocols, Handle(handle)))?;
        Ok(match value {
            FieldValue::Int(value) => Value::Integer(value),
            FieldValue::Bool(value) => Value::Boolean(value),
            FieldValue::Text(text) => Value::String(lua.create_string(text)?),
        })
    });
    // True of a table: what its octets are is known in Lua.
    native!("set", |core, lua, (handle, octets, value): (i64, Option<AnyUserData>, Value)| {
        if value.is_table() {
            return Ok(true);
        }
        core.with(lua, octets.as_ref(), |store, protocols| {
            let handle = Handle(handle);
            match &value {
                Value::Integer(number) => store.set(protocols, handle, Given::Int(*number)),
                Value::Number(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
                    store.set(protocols, handle, Given::Int(*number as i64))
                }
                Value::Boolean(value) => store.set(protocols, handle, Given::Bool(*value)),
                Value::String(text) => store.set(protocols, handle, Given::Text(&text.as_bytes())),
                other => store.set(protocols, handle, Given::Other(other.type_name())),
            }
        })?;
        Ok(false)
    });
    native!("length", |core, lua, (handle, octets): At| {
        core.with(lua, octets.as_ref(), |store, protocols| store.length(protocols, Handle(handle)))
    });
    native!("octets", |core, lua, (handle, octets): At| {
        let copy = core.with(lua, octets.as_ref(), |store, protocols| {
            Ok(store.octets(protocols, Handle(handle))?.to_vec())
        })?;
        lua.create_string(copy)
    });
    native!("byte", |core, lua, (handle, octets, index): (i64, Option<AnyUserData>, i64)| {
        core.with(lua, octets.as_ref(), |store, protocols| store.byte(protocols, Handle(handle), index))
    });
    native!("set_byte", |core, lua, (handle, octets, index, value): (i64, Option<AnyUserData>, i64, i64)| {
        core.with(lua, octets.as_ref(), |store, protocols| {
            store.set_byte(protocols, Handle(handle), index, value)
        })
    });
    native!("change", |core, lua, (handle, octets, changes): (i64, Option<AnyUserData>, Variadic<Value>)| {
        let list = |at: usize| match changes.get(at) {
            Some(Value::Table(list)) => list.sequence_values::<i64>().collect::<mlua::Result<Vec<_>>>().ok(),
            _ => None,
        };
        // What is no list of integers is as one that is too short.
        let (offsets, lengths) = (list(0).unwrap_or_default(), list(1).unwrap_or_default());
        core.with(lua, octets.as_ref(), |store, protocols| {
            store.change(protocols, Handle(handle), &offsets, &lengths)
        })
    });
    native!("resize", |core, lua, (handle, octets, at, count): (i64, Option<AnyUserData>, i64, i64)| {
        core.with(lua, octets.as_ref(), |store, protocols| {
            Ok(store.resize(protocols, Handle(handle), at, count)?.0)
        })
    });
    native!("is_whole_packet", |core, lua, (handle, octets): At| {
        core.with(lua, octets.as_ref(), |store, _| store.is_whole_packet(Handle(handle)))
    });
    native!("new", |core, lua, content: Value| {
        let bytes = match &content {
            Value::String(text) => text.as_bytes().to_vec(),
            Value::Integer(length) => match usize::try_from(*length) {
                Ok(length) if length <= MAX_BYTE_ARRAY => vec![0; length],
                _ => {
                    let limits = format_args!("a byte array has 0 to {MAX_BYTE_ARRAY} octets");
                    return Err(fail(lua, limits));
                }
            },
            other => {
                let what = format_args!("a length or a string is wanted, not a {}", other.type_name());
                return Err(fail(lua, what));
            }
        };
        Octets::of_bytes(lua, &core, bytes)
    });
    native!("declare", |core, lua, table: Table| {
        let mut protocols = core.protocols.borrow_mut();
        let protocol = declaration::read(&table, &mut protocols).map_err(|error| fail(lua, error))?;
        let name = protocol.name.clone();
        let payload = protocol.payload.map(|payload| payload + 1);
        let accesses = lua.create_table()?;
        for (at, field) in (1..).zip(&protocol.fields) {
            let entry = lua.create_table()?;
            entry.set("getter", access_name(&field.getter))?;
            entry.set("setter", access_name(&field.setter))?;
            accesses.set(at, entry)?;
        }
        let id = protocols.insert(protocol).ok_or_else(|| fail(lua, "too many protocols"))?;
        Ok((id.0, name, payload, accesses))
    });
    Ok(natives)
}

/// The name of a kind; empty for a function.
fn access_name(access: &Access) -> &'static str {
    match access {
        Access::Kind(kind) => Kind::name(*kind),
        Access::Function => "",
    }
}
