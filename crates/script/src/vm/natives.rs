//! What `runtime.lua` stands on: the operations of [`Store`] on handles, as functions of Lua.

use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;

use mlua::{AnyUserData, FromLuaMulti, Function, IntoLuaMulti, LightUserData, Lua, LuaString, MultiValue};
use mlua::{Table, UserData, Value, Variadic};

use super::core::{Core, Runtime};
use super::error::fail;
use super::verdict::Verdict;
use crate::kind::Value as FieldValue;
use crate::logged::Scalar;
use crate::protocol::{Access, Changes, FieldName, Protocol, ProtocolId, Protocols, declaration};
use crate::store::{AccessError, Given, Got, Handle, Store, Written};

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
    pub(crate) fn of_bytes(
        lua: &Lua,
        core: &Core,
        bytes: Vec<u8>,
    ) -> mlua::Result<(LightUserData, AnyUserData)> {
        let (store, whole) = Store::of_bytes(bytes);
        Self::of_store(lua, core, store, whole)
    }

    /// Makes a userdata of octets and their views.
    pub(crate) fn of_store(
        lua: &Lua,
        core: &Core,
        store: Store,
        whole: Handle,
    ) -> mlua::Result<(LightUserData, AnyUserData)> {
        let length = store.bytes().len();
        core.copies(length);
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
        Ok((light(whole), lua.create_userdata(octets)?))
    }
}

/// What a script holds for a handle: a light userdata, which is a number, never followed as a pointer.
pub(crate) fn light(handle: Handle) -> LightUserData {
    LightUserData(std::ptr::without_provenance_mut(handle.number()))
}

/// The handle that a script holds. Any number is one; whether it stands for something is asked when it is used.
pub(crate) fn handle(value: LightUserData) -> Handle {
    Handle::from_number(value.0.addr())
}

/// A view, and the byte array that it is of: none is the packet.
#[derive(Clone, Copy)]
pub(crate) struct ViewRef<'a> {
    pub(crate) handle: Handle,
    pub(crate) octets: Option<&'a AnyUserData>,
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

    /// The octets of a byte array, view or string.
    pub(crate) fn octets(&self, lua: &Lua, value: &Value) -> mlua::Result<Vec<u8>> {
        match value {
            Value::String(text) => Ok(text.as_bytes().to_vec()),
            Value::LightUserData(view) => {
                self.with(lua, None, |store, protocols| Ok(store.octets(protocols, handle(*view))?.to_vec()))
            }
            value => Ok(self.runtime()?.octets.call::<LuaString>(value)?.as_bytes().to_vec()),
        }
    }

    /// The protocol that a value of a script is; `what` begins the error if it is none.
    pub(crate) fn protocol(&self, lua: &Lua, value: &Value, what: &str) -> mlua::Result<ProtocolId> {
        let known = match value {
            Value::LightUserData(value) => handle(*value).protocol(),
            _ => None,
        };
        match known.filter(|id| self.protocols.borrow().get(*id).is_some()) {
            Some(id) => Ok(id),
            None => {
                let value = self.words(value)?;
                let error = format_args!(
                    "{what}: {value} is not a protocol: is its name written correctly, and registered?"
                );
                Err(fail(lua, error))
            }
        }
    }

    /// A value as log lines have it.
    pub(crate) fn words(&self, value: &Value) -> mlua::Result<String> {
        match value {
            Value::LightUserData(value) => {
                Ok(self.store.borrow().describe(&self.protocols.borrow(), handle(*value)))
            }
            Value::String(text) => Ok(text.to_string_lossy()),
            // A byte array that is no UTF-8 has none.
            Value::Table(_) => value.to_string().or_else(|error| {
                let octets = self.runtime()?.octets.call::<LuaString>(value);
                octets.map(|octets| octets.to_string_lossy()).map_err(|_| error)
            }),
            value => value.to_string(),
        }
    }

    /// A value that is no object.
    pub(super) fn scalar(&self, value: &Value) -> Option<Scalar> {
        Some(match value {
            Value::Nil => Scalar::Nil,
            Value::Boolean(value) => Scalar::Boolean(*value),
            Value::Integer(number) => Scalar::Integer(*number),
            Value::Number(number) => Scalar::Float(*number),
            Value::String(text) => Scalar::Text(text.as_bytes().to_vec()),
            Value::LightUserData(_) => Scalar::Other(self.words(value).ok()?),
            _ => return None,
        })
    }

    pub(super) fn runtime(&self) -> mlua::Result<&Runtime> {
        self.runtime.get().ok_or_else(|| mlua::Error::runtime("the state is not ready"))
    }
}

/// Whether a table is a byte array.
pub(super) fn is_octets(table: &Table) -> bool {
    table.metatable().is_some() && matches!(table.raw_get("view"), Ok(Value::LightUserData(_)))
}

/// Each operation twice: as `of_packet`, on a view of the packet, which is a method of views as it is; and as `of_any`,
/// with a byte array or nil behind the view.
struct Natives<'a> {
    lua: &'a Lua,
    core: &'a Rc<Core>,
    of_packet: Table,
    of_any: Table,
}

/// The argument of `data`: none is the payload field, nil is a mistake.
struct Asked(Option<Value>);

impl FromLuaMulti for Asked {
    fn from_lua_multi(mut values: MultiValue, _: &Lua) -> mlua::Result<Self> {
        Ok(Self(values.pop_front()))
    }
}

impl Natives<'_> {
    fn pair<A: FromLuaMulti, R: IntoLuaMulti>(
        lua: &Lua,
        core: &Rc<Core>,
        action: impl Fn(&Core, &Lua, ViewRef<'_>, A) -> mlua::Result<R> + Copy + 'static,
    ) -> mlua::Result<(Function, Function)> {
        let (first, second) = (Rc::clone(core), Rc::clone(core));
        let of_packet = lua.create_function(move |lua, (view, arguments): (LightUserData, A)| {
            action(&first, lua, ViewRef { handle: handle(view), octets: None }, arguments)
        })?;
        type OfAny<A> = (LightUserData, Option<AnyUserData>, A);
        let of_any = lua.create_function(move |lua, (view, octets, arguments): OfAny<A>| {
            action(&second, lua, ViewRef { handle: handle(view), octets: octets.as_ref() }, arguments)
        })?;
        Ok((of_packet, of_any))
    }

    fn add<A: FromLuaMulti, R: IntoLuaMulti>(
        &self,
        name: &str,
        action: impl Fn(&Core, &Lua, ViewRef<'_>, A) -> mlua::Result<R> + Copy + 'static,
    ) -> mlua::Result<()> {
        let (of_packet, of_any) = Self::pair(self.lua, self.core, action)?;
        self.of_packet.set(name, of_packet)?;
        self.of_any.set(name, of_any)
    }

    fn views(&self) -> mlua::Result<()> {
        self.add("data", |core, lua, view, Asked(asked)| data(core, lua, view, asked))?;
        self.add("enter", |core, lua, view, protocol: Value| {
            let protocol = core.protocol(lua, &protocol, "data")?;
            core.with(lua, view.octets, |store, protocols| {
                Ok(store.data(protocols, view.handle, protocol)?.map(light))
            })
        })?;
        self.add("cast", |core, lua, view, protocol: Value| {
            let protocol = core.protocol(lua, &protocol, "to_packet")?;
            core.with(lua, view.octets, |store, protocols| {
                Ok(store.cast(protocols, view.handle, protocol)?.map(light))
            })
        })?;
        self.add("raw", |core, lua, view, (offset, length): (i64, i64)| {
            core.with(lua, view.octets, |store, protocols| {
                Ok(light(store.raw(protocols, view.handle, offset, length)?))
            })
        })?;
        self.add("part", |core, lua, view, ()| {
            core.with(lua, view.octets, |store, _| Ok(light(store.part(view.handle)?)))
        })?;
        self.add("change", |core, lua, view, changes: Variadic<Value>| {
            let list = |at: usize| match changes.get(at) {
                Some(Value::Table(list)) => {
                    list.sequence_values::<i64>().collect::<mlua::Result<Vec<_>>>().ok()
                }
                _ => None,
            };
            // What is no list of integers is as one that is too short.
            let (offsets, lengths) = (list(0).unwrap_or_default(), list(1).unwrap_or_default());
            core.with(lua, view.octets, |store, protocols| {
                store.change(protocols, view.handle, &offsets, &lengths)
            })
        })?;
        self.add("vlan_id", |core, lua, view, ()| {
            core.with(lua, view.octets, |store, _| store.vlan_id(view.handle))
        })?;
        self.add("push_vlan", |core, lua, view, id: i64| {
            core.with(lua, view.octets, |store, _| store.push_vlan(view.handle, id))
        })?;
        self.add("pop_vlan", |core, lua, view, ()| {
            core.with(lua, view.octets, |store, _| store.pop_vlan(view.handle))
        })?;
        self.add("grow", |core, lua, view, (at, count)| resize(core, lua, view, at, &count, "grow", 1))?;
        self.add("shrink", |core, lua, view, (at, count)| resize(core, lua, view, at, &count, "shrink", -1))
    }

    fn values(&self) -> mlua::Result<()> {
        self.add("get", |core, lua, view, ()| get(core, lua, view))?;
        self.add("set", |core, lua, view, value: Value| set(core, lua, view, &value))?;
        self.add("length", |core, lua, view, _: Value| {
            core.with(lua, view.octets, |store, protocols| store.length(protocols, view.handle))
        })?;
        self.add("octets", |core, lua, view, ()| {
            let copy = core.with(lua, view.octets, |store, protocols| {
                Ok(store.octets(protocols, view.handle)?.to_vec())
            })?;
            core.copies(copy.len());
            lua.create_string(copy)
        })?;
        self.add("byte", |core, lua, view, index: i64| {
            core.with(lua, view.octets, |store, protocols| store.byte(protocols, view.handle, index))
        })?;
        self.add("set_byte", |core, lua, view, (index, value): (i64, i64)| {
            core.with(lua, view.octets, |store, protocols| {
                store.set_byte(protocols, view.handle, index, value)
            })
        })?;
        self.add("describe", |core, lua, view, _: Value| {
            core.with(lua, view.octets, |store, protocols| Ok(store.describe(protocols, view.handle)))
        })
    }
}

/// The functions, in tables of their names.
pub(crate) fn make(lua: &Lua, core: &Rc<Core>) -> mlua::Result<Table> {
    let (of_packet, of_any) = (lua.create_table()?, lua.create_table()?);
    let natives = Natives { lua, core, of_packet, of_any };
    natives.views()?;
    natives.values()?;
    let table = lua.create_table()?;
    table.set("of_packet", &natives.of_packet)?;
    table.set("of_any", &natives.of_any)?;

    let shared = Rc::clone(core);
    let redirect = move |lua: &Lua, (view, name): (LightUserData, Value)| redirect(&shared, lua, view, &name);
    table.set("redirect", lua.create_function(redirect)?)?;

    let shared = Rc::clone(core);
    let field = move |lua: &Lua, name: String| {
        let name = shared.protocols.borrow_mut().named(&name);
        let name = name.ok_or_else(|| fail(lua, "too many names of fields"))?;
        Natives::pair(lua, &shared, move |core, lua, view, _: Value| named(core, lua, view, name))
    };
    table.set("field", lua.create_function(field)?)?;

    let share = |lua: &Lua, metatable: Table| {
        lua.set_type_metatable::<LightUserData>(Some(metatable));
        Ok(())
    };
    table.set("share", lua.create_function(share)?)?;

    let shared = Rc::clone(core);
    let new = move |lua: &Lua, content: Value| Octets::of_bytes(lua, &shared, content_of(lua, &content)?);
    table.set("new", lua.create_function(new)?)?;

    let shared = Rc::clone(core);
    let declare = move |lua: &Lua, declaration: Table| {
        let mut protocols = shared.protocols.borrow_mut();
        let protocol = declaration::read(&declaration, &mut protocols).map_err(|error| fail(lua, error))?;
        let (name, functions) = (protocol.name.clone(), functions(lua, &protocol)?);
        let id = protocols.insert(protocol).ok_or_else(|| fail(lua, "too many protocols"))?;
        Ok((light(Handle::of_protocol(id)), name, functions))
    };
    table.set("declare", lua.create_function(declare)?)?;
    Ok(table)
}

/// Notes where the packet goes, for the verdict that this is.
fn redirect(core: &Core, lua: &Lua, view: LightUserData, name: &Value) -> mlua::Result<i64> {
    let Value::String(name) = name else {
        let got = core.words(name)?;
        return Err(fail(lua, format_args!("redirect: the name of an interface is wanted, not {got}")));
    };
    let found = core.shared.borrow_mut().host.interface(&name.to_string_lossy());
    let interface = found.map_err(|why| fail(lua, format_args!("redirect: {why}")))?;
    core.with(lua, None, |store, _| store.redirect(handle(view), interface))?;
    Ok(Verdict::Stolen.value())
}

/// What is within a view.
fn data(
    core: &Core,
    lua: &Lua,
    view: ViewRef<'_>,
    asked: Option<Value>,
) -> mlua::Result<Option<LightUserData>> {
    let Some(asked) = asked else {
        let payload = core.with(lua, view.octets, |store, protocols| store.payload(protocols, view.handle));
        return payload.map(|payload| Some(light(payload)));
    };
    let protocol = core.protocol(lua, &asked, "data")?;
    enum Within {
        Found(Option<Handle>),
        Asks(Option<ProtocolId>),
    }
    let within = core.with(lua, view.octets, |store, protocols| {
        let asks = store.asks(protocols, view.handle)?;
        let moves = protocols.get(protocol).is_some_and(|protocol| protocol.changes == Changes::Function);
        if asks.is_some() || moves {
            return Ok(Within::Asks(asks));
        }
        Ok(Within::Found(store.data(protocols, view.handle, protocol)?))
    })?;
    match within {
        Within::Found(found) => Ok(found.map(light)),
        Within::Asks(policy) => {
            let policy = policy.map(|policy| light(Handle::of_protocol(policy)));
            core.runtime()?.dissect.call((light(view.handle), view.octets, asked, policy))
        }
    }
}

/// The field of a view that has this name.
fn named(core: &Core, lua: &Lua, view: ViewRef<'_>, name: FieldName) -> mlua::Result<LightUserData> {
    core.with(lua, view.octets, |store, protocols| Ok(light(store.named(protocols, view.handle, name)?)))
}

fn get(core: &Core, lua: &Lua, view: ViewRef<'_>) -> mlua::Result<Value> {
    let got = core.with(lua, view.octets, |store, protocols| store.get(protocols, view.handle))?;
    match got {
        Got::Value(FieldValue::Int(value)) => Ok(Value::Integer(value)),
        Got::Value(FieldValue::Bool(value)) => Ok(Value::Boolean(value)),
        Got::Value(FieldValue::Text(text)) => Ok(Value::String(lua.create_string(text)?)),
        Got::Octets(octets) => core.runtime()?.byte_array.call((light(octets), view.octets)),
        Got::Function(protocol, position) => {
            let protocol = light(Handle::of_protocol(protocol));
            core.runtime()?.getter.call((protocol, position, light(view.handle), view.octets))
        }
    }
}

fn set(core: &Core, lua: &Lua, view: ViewRef<'_>, value: &Value) -> mlua::Result<()> {
    let write = |given: Given<'_>| {
        core.with(lua, view.octets, |store, protocols| store.set(protocols, view.handle, given))
    };
    let written = match value {
        Value::Integer(number) => write(Given::Int(*number)),
        Value::Number(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
            write(Given::Int(*number as i64))
        }
        Value::Boolean(value) => write(Given::Bool(*value)),
        Value::String(text) => write(Given::Text(&text.as_bytes())),
        Value::Table(_) | Value::LightUserData(_) => write(Given::Text(&core.octets(lua, value)?)),
        other => write(Given::Other(other.type_name())),
    };
    match written? {
        Written::Done => Ok(()),
        Written::Function(protocol, position) => {
            let protocol = light(Handle::of_protocol(protocol));
            core.runtime()?.setter.call((protocol, position, light(view.handle), view.octets, value))
        }
    }
}

fn resize(
    core: &Core,
    lua: &Lua,
    view: ViewRef<'_>,
    at: i64,
    count: &Value,
    name: &str,
    sign: i64,
) -> mlua::Result<()> {
    let count = match count {
        Value::Integer(count) if *count >= 0 => sign * count,
        _ => {
            let what = format_args!("{name}: the number of octets must be an integer of 0 or more");
            return Err(fail(lua, what));
        }
    };
    core.with(lua, view.octets, |store, _| store.resize(view.handle, at, count))
}

fn content_of(lua: &Lua, content: &Value) -> mlua::Result<Vec<u8>> {
    match content {
        Value::String(text) => Ok(text.as_bytes().to_vec()),
        Value::Integer(length) => match usize::try_from(*length) {
            Ok(length) if length <= MAX_BYTE_ARRAY => Ok(vec![0; length]),
            _ => {
                let limits = format_args!("a byte array has 0 to {MAX_BYTE_ARRAY} octets");
                Err(fail(lua, limits))
            }
        },
        other => {
            let what = format_args!("a length or a string is wanted, not a {}", other.type_name());
            Err(fail(lua, what))
        }
    }
}

/// Of each field: whether `get` and `set` are functions of the script.
fn functions(lua: &Lua, protocol: &Protocol) -> mlua::Result<Table> {
    let list = lua.create_table()?;
    for (at, field) in (1..).zip(&protocol.fields) {
        let entry = lua.create_table()?;
        entry.set("getter", field.getter == Access::Function)?;
        entry.set("setter", field.setter == Access::Function)?;
        list.set(at, entry)?;
    }
    Ok(list)
}
