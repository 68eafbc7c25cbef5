//! `nf.table`, `nf.prefixes` and `nf.flows`: state of scripts, which outlives a packet, a Lua state and a reload. Counters
//! and histograms are in [`super::metrics`].

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use mlua::{
    AnyUserData, LightUserData, Lua, MetaMethod, MultiValue, Table as LuaTable, UserData, UserDataMethods,
    Value,
};

use super::core::Core;
use super::error::fail;
use super::metrics::{self, CounterHandle, HistogramHandle};
use super::named::{Flows, ScriptTable, lock};
use super::natives::handle;
use super::options::{LONGEST_NAME, name, persistent};
use crate::compile::shared::{self, Part};
use crate::entry::{EntryError, prefix, split};
use crate::kind::{self, Kind};
use crate::packet::Flow;
use crate::store::Given;
use crate::tables::{Prefixes, Shape, Table, WhenFull};

const DEFAULT_LIMIT: usize = 65_536;
const MAX_LIMIT: usize = 1 << 24;
/// Most names of fields in a table of flows.
pub(crate) const MAX_FLOW_FIELDS: usize = 16;
/// How long a flow is kept without a packet, if nothing else is said.
const FLOW_EXPIRES_MS: u64 = 300_000;

/// Of the flows of scripts that make no table of them.
pub(crate) const DEFAULT_FLOWS: Shape =
    Shape { limit: DEFAULT_LIMIT, expires_ms: Some(FLOW_EXPIRES_MS), when_full: WhenFull::Oldest };

struct TableHandle {
    table: Arc<ScriptTable>,
    core: Rc<Core>,
    /// Where keys are put together.
    scratch: RefCell<Vec<u8>>,
    persistent: bool,
}
/// With its name, and whether it is persistent.
struct PrefixesHandle(Arc<Mutex<Prefixes>>, String, bool);
#[derive(Clone)]
struct FlowsHandle(Arc<Mutex<Flows>>, String);
/// One flow, as a script holds it.
struct FlowHandle {
    flows: Arc<Mutex<Flows>>,
    key: [u8; 37],
    /// Whether this packet goes from the greater to the lesser end.
    reversed: bool,
    core: Rc<Core>,
}

/// Puts them into the library.
pub(crate) fn install(lua: &Lua, core: &Rc<Core>, nf: &LuaTable, natives: &LuaTable) -> mlua::Result<()> {
    let shared = Rc::clone(core);
    let make = move |lua: &Lua, options: LuaTable| {
        let name = name(lua, &options)?;
        let (key, value) = parts(lua, &options)?;
        let shape = shape(lua, &options, None, WhenFull::Refuse)?;
        let persistent = persistent(lua, &options)?;
        let named = shared.shared.borrow().tables.clone();
        let mut named = lock(&named.0);
        let there = named.tables.get(&name).cloned();
        if there.is_none() {
            shared.may_name(lua, &mut named)?;
        }
        let table = match there {
            Some(known) if known.key == key && known.value == value => {
                reshape(&shared, &name, &mut lock(&known.entries), shape);
                known
            }
            other => {
                if other.is_some() {
                    shared.log(&format!("table {name:?} has other kinds than before: it begins empty"));
                }
                Arc::new(ScriptTable { key, value, entries: Mutex::new(Table::new(shape)) })
            }
        };
        named.keep(&name, persistent);
        named.tables.insert(name, Arc::clone(&table));
        Ok(TableHandle { table, core: Rc::clone(&shared), scratch: RefCell::default(), persistent })
    };
    nf.set("table", lua.create_function(make)?)?;
    metrics::install(lua, core, nf)?;
    let shared = Rc::clone(core);
    let make = move |lua: &Lua, options: LuaTable| {
        let name = name(lua, &options)?;
        let limit = limit(lua, &options)?;
        let persistent = persistent(lua, &options)?;
        let named = shared.shared.borrow().tables.clone();
        let mut named = lock(&named.0);
        let set = match named.prefixes.get(&name) {
            Some(known) => {
                let mut set = lock(known);
                let of = set.count();
                let forgotten = set.set_limit(limit);
                shared.log_forgotten(&name, forgotten, of);
                Arc::clone(known)
            }
            None => {
                shared.may_name(lua, &mut named)?;
                Arc::new(Mutex::new(Prefixes::new(limit)))
            }
        };
        named.keep(&name, persistent);
        named.prefixes.insert(name.clone(), Arc::clone(&set));
        Ok(PrefixesHandle(set, name, persistent))
    };
    nf.set("prefixes", lua.create_function(make)?)?;
    let shared = Rc::clone(core);
    let make = move |lua: &Lua, options: LuaTable| {
        let name = name(lua, &options)?;
        let shape = shape(lua, &options, Some(FLOW_EXPIRES_MS), WhenFull::Oldest)?;
        if persistent(lua, &options)? {
            return Err(fail(lua, "flows are not persistent: they are those of packets that come"));
        }
        flows(lua, &shared, name, shape)
    };
    nf.set("flows", lua.create_function(make)?)?;
    let shared = Rc::clone(core);
    type Arguments = (LightUserData, Option<AnyUserData>, Option<AnyUserData>);
    let flow = move |lua: &Lua, (view, octets, wanted): Arguments| {
        let flow = shared.with(lua, octets.as_ref(), |store, protocols| {
            store.octets(protocols, handle(view))?;
            Ok(store.packet().flow())
        })?;
        let Some(flow) = flow else { return Ok(None) };
        let FlowsHandle(table, _) = match wanted {
            Some(wanted) => wanted.borrow::<FlowsHandle>()?.clone(),
            None => flows(lua, &shared, String::new(), DEFAULT_FLOWS)?,
        };
        let now = shared.shared.borrow_mut().host.now_ms();
        let key = flow_key(&flow);
        let reversed = flow.reversed;
        if lock(&table).entries.entry(&key, now, || vec![i64::from(reversed)]).is_none() {
            return Ok(None);
        }
        Ok(Some(FlowHandle { flows: table, key, reversed, core: Rc::clone(&shared) }))
    };
    natives.set("flow", lua.create_function(flow)?)
}

/// What a handle stands for, as plain data.
pub(super) fn shared(handle: &AnyUserData) -> Option<shared::Shared> {
    let found = |name: &str, form, persistent| {
        Some(shared::Shared { name: name.to_owned(), form, persistent, metric: None })
    };
    if let Ok(table) = handle.borrow::<TableHandle>() {
        let TableHandle { table, core, persistent, .. } = &*table;
        let named = core.shared.borrow().tables.clone();
        let tables = lock(&named.0);
        let (name, _) = tables.tables.iter().find(|(_, known)| Arc::ptr_eq(known, table))?;
        return found(name, table.form(), *persistent);
    }
    if let Ok(counter) = handle.borrow::<CounterHandle>() {
        return Some(counter.shared());
    }
    if let Ok(histogram) = handle.borrow::<HistogramHandle>() {
        return Some(histogram.shared());
    }
    if let Ok(flows) = handle.borrow::<FlowsHandle>() {
        let shape = lock(&flows.0).entries.shape();
        return found(&flows.1, shared::Form::Flows { shape, names: Vec::new() }, false);
    }
    let PrefixesHandle(set, name, persistent) = &*handle.borrow::<PrefixesHandle>().ok()?;
    let set = lock(set);
    let form = shared::Form::Prefixes { limit: set.limit(), entries: set.iter().collect() };
    found(name, form, *persistent)
}

/// The table of flows of this name and shape.
fn flows(lua: &Lua, core: &Core, name: String, shape: Shape) -> mlua::Result<FlowsHandle> {
    let named = core.shared.borrow().tables.clone();
    let mut named = lock(&named.0);
    let flows = match named.flows.get(&name) {
        Some(known) => {
            reshape(core, &name, &mut lock(known).entries, shape);
            Arc::clone(known)
        }
        None => {
            core.may_name(lua, &mut named)?;
            Arc::new(Mutex::new(Flows { names: Vec::new(), entries: Table::new(shape) }))
        }
    };
    named.flows.insert(name.clone(), Arc::clone(&flows));
    Ok(FlowsHandle(flows, name))
}

/// Gives a table that is there the measures that its script declares now.
fn reshape<V>(core: &Core, name: &str, entries: &mut Table<V>, shape: Shape) {
    if entries.shape() == shape {
        return;
    }
    let now_ms = core.shared.borrow_mut().host.now_ms();
    let of = entries.count(now_ms);
    let forgotten = entries.reshape(shape, now_ms);
    core.log_forgotten(name, forgotten, of);
}

impl UserData for TableHandle {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("get", |lua, this, key: MultiValue| {
            let table = &this.table;
            let now = this.core.shared.borrow_mut().host.now_ms();
            let key = this.encode(lua, &key)?;
            let entries = lock(&table.entries);
            let Some(value) = entries.get(&key, now) else {
                return Ok(MultiValue::from_vec(vec![Value::Nil; table.value.len()]));
            };
            split(&table.value, value).map(|(part, own)| decode(lua, part, own)).collect()
        });
        methods.add_method("set", |lua, this, mut arguments: MultiValue| {
            let table = &this.table;
            let values = this.values(&mut arguments);
            let now = this.core.shared.borrow_mut().host.now_ms();
            let key = this.encode(lua, &arguments)?;
            if let [Value::Nil] = values[..] {
                lock(&table.entries).remove(&key, now);
                return Ok(true);
            }
            let mut encoded = Vec::new();
            for (part, value) in table.value.iter().zip(&values) {
                encode(lua, *part, value, &mut encoded)?;
            }
            let mut entries = lock(&table.entries);
            Ok(entries.entry(&key, now, Vec::new).map(|entry| *entry = encoded).is_some())
        });
        methods.add_method("add", |lua, this, mut arguments: MultiValue| {
            let table = &this.table;
            let amounts = this.values(&mut arguments);
            if table.value.iter().any(|part| *part != Part::Kind(Kind::Int)) {
                return Err(fail(lua, "add: the values of this table are no integers"));
            }
            let amounts: Vec<i64> =
                amounts.into_iter().map(|amount| lua.unpack(amount)).collect::<mlua::Result<_>>()?;
            let now = this.core.shared.borrow_mut().host.now_ms();
            let key = this.encode(lua, &arguments)?;
            let mut entries = lock(&table.entries);
            let Some(entry) = entries.entry(&key, now, || vec![0; 8 * amounts.len()]) else {
                return Ok(MultiValue::from_vec(vec![Value::Nil; amounts.len()]));
            };
            let sums = entry.as_chunks_mut::<8>().0.iter_mut().zip(amounts).map(|(octets, amount)| {
                let sum = i64::from_be_bytes(*octets).wrapping_add(amount);
                *octets = sum.to_be_bytes();
                Value::Integer(sum)
            });
            Ok(sums.collect())
        });
        methods.add_method("delete", |lua, this, key: MultiValue| {
            let table = &this.table;
            let now = this.core.shared.borrow_mut().host.now_ms();
            let key = this.encode(lua, &key)?;
            Ok(lock(&table.entries).remove(&key, now))
        });
        methods.add_method("count", |_, this, ()| {
            let table = &this.table;
            let now = this.core.shared.borrow_mut().host.now_ms();
            Ok(lock(&table.entries).count(now))
        });
    }
}

impl UserData for PrefixesHandle {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        let parse = |lua: &Lua, text: &str| {
            prefix(text).ok_or_else(|| fail(lua, EntryError::Prefix(format!("{text:?}"))))
        };
        methods.add_method("add", move |lua, Self(set, ..), (prefix, value): (String, Option<i64>)| {
            Ok(lock(set).add(parse(lua, &prefix)?, value.unwrap_or(1)))
        });
        methods.add_method("delete", move |lua, Self(set, ..), prefix: String| {
            Ok(lock(set).remove(parse(lua, &prefix)?))
        });
        methods.add_method("find", |lua, Self(set, ..), address: String| {
            let what = |_| fail(lua, format_args!("{address:?} is not an IP address"));
            Ok(lock(set).find(address.parse().map_err(what)?))
        });
        methods.add_method("count", |_, Self(set, ..), ()| Ok(lock(set).count()));
    }
}

impl UserData for FlowsHandle {
    fn add_methods<M: UserDataMethods<Self>>(_: &mut M) {}
}

impl UserData for FlowHandle {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("is_reply", |_, this, ()| {
            let now = this.core.shared.borrow_mut().host.now_ms();
            let flows = lock(&this.flows);
            let first = flows.entries.get(&this.key, now).and_then(|integers| integers.first().copied());
            Ok(first.is_some_and(|first| first != i64::from(this.reversed)))
        });
        methods.add_method("forget", |_, this, ()| {
            let now = this.core.shared.borrow_mut().host.now_ms();
            Ok(lock(&this.flows).entries.remove(&this.key, now))
        });
        methods.add_meta_method(MetaMethod::Index, |lua, this, name: String| {
            let slot = lock(&this.flows).slot(lua, &name)?;
            let now = this.core.shared.borrow_mut().host.now_ms();
            let flows = lock(&this.flows);
            Ok(flows
                .entries
                .get(&this.key, now)
                .and_then(|integers| integers.get(slot).copied())
                .unwrap_or(0))
        });
        methods.add_meta_method(MetaMethod::NewIndex, |lua, this, (name, value): (String, i64)| {
            let mut flows = lock(&this.flows);
            let slot = flows.slot(lua, &name)?;
            let now = this.core.shared.borrow_mut().host.now_ms();
            let first = i64::from(this.reversed);
            if let Some(integers) = flows.entries.entry(&this.key, now, || vec![first]) {
                if integers.len() <= slot {
                    integers.resize(slot + 1, 0);
                }
                integers[slot] = value;
            }
            Ok(())
        });
    }
}

impl Flows {
    /// Where the integer of this name is.
    fn slot(&mut self, lua: &Lua, name: &str) -> mlua::Result<usize> {
        let at = self.names.iter().position(|known| known == name);
        if at.is_none() && self.names.len() >= MAX_FLOW_FIELDS {
            return Err(fail(lua, format_args!("flow: more than {MAX_FLOW_FIELDS} names")));
        }
        if name.len() > LONGEST_NAME {
            return Err(fail(lua, format_args!("flow: a name of more than {LONGEST_NAME} octets")));
        }
        Ok(1 + at.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        }))
    }
}

impl TableHandle {
    /// Takes the values from the end of what a method was given: the key is before them.
    fn values(&self, arguments: &mut MultiValue) -> Vec<Value> {
        let from = arguments.len().saturating_sub(self.table.value.len());
        let mut values: Vec<Value> =
            std::iter::from_fn(|| if arguments.len() > from { arguments.pop_back() } else { None }).collect();
        values.reverse();
        values
    }

    fn encode(&self, lua: &Lua, key: &MultiValue) -> mlua::Result<std::cell::RefMut<'_, Vec<u8>>> {
        let parts = &self.table.key;
        if key.len() != parts.len() {
            return Err(fail(lua, format_args!("the key of this table has {} parts", parts.len())));
        }
        let mut encoded = self.scratch.borrow_mut();
        encoded.clear();
        for (part, value) in parts.iter().zip(key) {
            encode(lua, *part, value, &mut encoded)?;
        }
        Ok(encoded)
    }
}

/// Always the same number of octets for one part.
fn encode(lua: &Lua, part: Part, value: &Value, to: &mut Vec<u8>) -> mlua::Result<()> {
    let encoded = match value {
        // As everywhere in Lua, a float or a string may stand for an integer.
        value if part == Part::Kind(Kind::Int) => part.encode(Given::Int(lua.unpack(value.clone())?), to),
        Value::Boolean(value) => part.encode(Given::Bool(*value), to),
        Value::String(text) => part.encode(Given::Text(&text.as_bytes()), to),
        other => part.encode(Given::Other(other.type_name()), to),
    };
    encoded.map_err(|error| fail(lua, error))
}

fn decode(lua: &Lua, part: Part, octets: &[u8]) -> mlua::Result<Value> {
    Ok(match part.decode(octets) {
        kind::Value::Text(text) => Value::String(lua.create_string(text)?),
        kind::Value::Int(value) => Value::Integer(value),
        kind::Value::Bool(value) => Value::Boolean(value),
    })
}

/// Both ends in a fixed number of octets: IPv4 addresses as IPv4-mapped ones.
pub(super) fn flow_key(flow: &Flow) -> [u8; 37] {
    let mut key = [0; 37];
    key[0] = flow.protocol;
    for (at, (address, port)) in [(1, flow.low), (19, flow.high)] {
        let address = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        key[at..at + 16].copy_from_slice(&address.octets());
        key[at + 16..at + 18].copy_from_slice(&port.to_be_bytes());
    }
    key
}

fn limit(lua: &Lua, options: &LuaTable) -> mlua::Result<usize> {
    let limit = options.get::<Option<usize>>("limit")?.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(fail(lua, format_args!("`limit` must be from 1 to {MAX_LIMIT}")));
    }
    Ok(limit)
}

fn shape(lua: &Lua, options: &LuaTable, expires_ms: Option<u64>, when_full: WhenFull) -> mlua::Result<Shape> {
    let when_full = match options.get::<Option<String>>("when_full")?.as_deref() {
        None => when_full,
        Some("refuse") => WhenFull::Refuse,
        Some("oldest") => WhenFull::Oldest,
        Some(other) => {
            return Err(fail(
                lua,
                format_args!("`when_full` must be \"refuse\" or \"oldest\", not {other:?}"),
            ));
        }
    };
    let expires_ms = options.get::<Option<u64>>("expires")?.or(expires_ms);
    Ok(Shape { limit: limit(lua, options)?, expires_ms, when_full })
}

fn parts(lua: &Lua, options: &LuaTable) -> mlua::Result<(Vec<Part>, Vec<Part>)> {
    let part = |name: &str| {
        let takes = "int, bool, mac, ipv4, ipv6 or text:N (N up to 1024)";
        Part::from_name(name).ok_or_else(|| fail(lua, format_args!("{name:?} is none of {takes}")))
    };
    let parts = |of: &str| match options.get::<Value>(of)? {
        Value::String(name) => Ok(vec![part(&name.to_string_lossy())?]),
        Value::Table(names) => names.sequence_values::<String>().map(|name| part(&name?)).collect(),
        Value::Nil if of == "value" => Ok(vec![Part::Kind(Kind::Int)]),
        _ => Err(fail(lua, format_args!("`{of}` must be a kind, or a list of them"))),
    };
    let (key, value) = (parts("key")?, parts("value")?);
    if value.is_empty() {
        return Err(fail(lua, "`value` must be a kind, or a list of them"));
    }
    Ok((key, value))
}
