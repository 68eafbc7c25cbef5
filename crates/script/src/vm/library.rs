//! The library `nf`, constants, and `require`: what scripts have beside views of packets.

use std::rc::Rc;

use mlua::{AnyUserData, Function, LightUserData, Lua, MultiValue, Table, Value};

use super::core::{Core, Job, MAX_DEFERRED};
use super::error::fail;
use super::named::lock;
use super::natives::{handle, is_octets};
use super::verdict::Verdict;
use super::{streams, tables, traced};
use crate::checksum::{self, Layout};
use crate::logged::{Logged, MOST_FIELDS, Scalar, field_name};
use crate::mirror::interface_name;
use crate::packet::Packet;
use crate::pcap::capture_name;
use crate::store::Store;
use crate::vlan::behind_link;

/// Puts the library into the globals.
pub(crate) fn install(lua: &Lua, core: &Rc<Core>, natives: &Table) -> mlua::Result<()> {
    let globals = lua.globals();
    for verdict in Verdict::ALL {
        globals.set(verdict.name(), verdict.value())?;
    }
    let nf = lua.create_table()?;
    let shared = || Rc::clone(&core.shared);
    let host = shared();
    nf.set("get_random", lua.create_function(move |_, ()| Ok(host.borrow_mut().host.random()))?)?;
    let host = shared();
    nf.set("get_time", lua.create_function(move |_, ()| Ok(host.borrow_mut().host.now_ms()))?)?;
    let (host, known) = (shared(), Rc::clone(core));
    let log = move |lua: &Lua, values: MultiValue| {
        let logged = known.logged(lua, values)?;
        host.borrow_mut().host.log_fields(&logged);
        Ok(())
    };
    nf.set("log", lua.create_function(log)?)?;
    nf.set("capture", capture(lua, core)?)?;
    nf.set("mirror", mirror(lua, core)?)?;
    nf.set("schedule", schedule(lua, core)?)?;
    nf.set("create_packet", create_packet(lua, core)?)?;
    nf.set("fix_checksums", fix_checksums(lua, core)?)?;
    tables::install(lua, core, &nf, natives)?;
    streams::install(lua, core, &nf, natives)?;
    globals.set("nf", nf)?;
    globals.set("require", require(lua, core)?)?;
    traced::install(lua, core)
}

/// `nf.schedule(packet or nil, "function", id, delay, [packet, protocol])`
fn schedule(lua: &Lua, core: &Rc<Core>) -> mlua::Result<Function> {
    type Arguments = (Value, mlua::LuaString, i64, u64, Value, Value);
    let core = Rc::clone(core);
    lua.create_function(move |lua, (origin, function, id, delay_ms, handed, protocol): Arguments| {
        core.store.borrow_mut().complete_transport();
        let optional = |value: &Value| match value {
            Value::Nil => Ok(None),
            value => core.octets(lua, value).map(Some),
        };
        let packet = match optional(&handed)? {
            Some(octets) => {
                // The other state has a number of its own for it.
                let protocol = core.protocol(lua, &protocol, "schedule")?;
                Some((octets, core.protocols.borrow().name(protocol).to_owned()))
            }
            None => None,
        };
        let (function, origin) = (function.to_string_lossy(), optional(&origin)?);
        let handed = packet.as_ref().map_or(0, |(octets, _)| octets.len());
        let octets = function.len() + handed + origin.as_ref().map_or(0, Vec::len);
        core.copies(octets);
        let mut shared = core.shared.borrow_mut();
        if shared.jobs.len() >= MAX_DEFERRED {
            return Err(fail(lua, format_args!("{MAX_DEFERRED} deferred calls are waiting already")));
        }
        // With those of other threads, and those that are handed over to one.
        let waiting = lock(&shared.tables.0).wait(octets, core.limits.memory);
        let Some(waiting) = waiting else {
            let most = core.limits.memory;
            return Err(fail(lua, format_args!("deferred calls with {most} octets are waiting already")));
        };
        shared.defer(delay_ms, Job { state: core.state, function, id, packet, origin, waiting });
        Ok(())
    })
}

/// `nf.capture(packet, "name")`
fn capture(lua: &Lua, core: &Rc<Core>) -> mlua::Result<Function> {
    let core = Rc::clone(core);
    lua.create_function(move |lua, (packet, name): (Value, String)| {
        capture_name(&name).map_err(|error| fail(lua, format_args!("capture: {error}")))?;
        core.store.borrow_mut().complete_transport();
        let octets = core.octets(lua, &packet)?;
        core.copies(octets.len());
        if !is_packet(&packet)? {
            return Err(fail(lua, "capture: the packet is wanted, as the function gets it"));
        }
        core.shared.borrow_mut().host.capture(&name, behind_link(&octets));
        Ok(())
    })
}

/// `nf.mirror(packet, "interface")`
fn mirror(lua: &Lua, core: &Rc<Core>) -> mlua::Result<Function> {
    let core = Rc::clone(core);
    lua.create_function(move |lua, (packet, interface): (Value, String)| {
        interface_name(&interface).map_err(|error| fail(lua, format_args!("mirror: {error}")))?;
        core.store.borrow_mut().complete_transport();
        let octets = core.octets(lua, &packet)?;
        core.copies(octets.len());
        if !is_packet(&packet)? {
            return Err(fail(lua, "mirror: the packet is wanted, as the function gets it"));
        }
        core.shared.borrow_mut().host.mirror(&interface, &octets);
        Ok(())
    })
}

impl Core {
    /// What a call of `nf.log` says: its values, the last of which may be a table of fields.
    fn logged(&self, lua: &Lua, values: MultiValue) -> mlua::Result<Logged> {
        let mut values: Vec<Value> = values.into_iter().collect();
        let is_fields =
            |value: &mut Value| matches!(value, Value::Table(table) if table.metatable().is_none());
        let fields = match values.pop_if(is_fields) {
            Some(Value::Table(fields)) => self.fields(lua, &fields)?,
            _ => Vec::new(),
        };
        let (names, fields): (Vec<_>, Vec<_>) = fields.into_iter().unzip();
        let words = values.iter().map(|value| self.words(value).map(Scalar::Other));
        let mut all = words.collect::<mlua::Result<Vec<_>>>()?;
        all.extend(fields);
        Ok(Logged::new(all, &names))
    }

    fn fields(&self, lua: &Lua, fields: &Table) -> mlua::Result<Vec<(String, Scalar)>> {
        let mut all = Vec::new();
        for pair in fields.pairs::<Value, Value>() {
            let (name, value) = pair?;
            let Value::String(name) = name else {
                return Err(fail(lua, "log: a field has a name: { port = 53 }"));
            };
            let name = name.to_string_lossy();
            field_name(&name).map_err(|error| fail(lua, format_args!("log: {error}")))?;
            let octets = matches!(&value, Value::Table(table) if is_octets(table));
            let scalar = match octets {
                true => Some(Scalar::Text(self.octets(lua, &value)?)),
                false => self.scalar(&value),
            };
            let Some(scalar) = scalar else {
                let kind = value.type_name();
                return Err(fail(
                    lua,
                    format_args!("log: the field {name} is a {kind}, which cannot be logged"),
                ));
            };
            if let Scalar::Text(octets) = &scalar {
                self.copies(octets.len());
            }
            all.push((name, scalar));
            if all.len() > MOST_FIELDS {
                return Err(fail(lua, format_args!("log: a line has {MOST_FIELDS} fields at most")));
            }
        }
        Ok(all)
    }
}

/// Whether it is a view of a whole packet; that of a test has the octets of a byte array.
fn is_packet(value: &Value) -> mlua::Result<bool> {
    Ok(match value {
        Value::LightUserData(view) => handle(*view).is_whole(),
        Value::Table(view) => {
            view.raw_get::<Option<LightUserData>>(1)?.is_some_and(|view| handle(view).is_whole())
        }
        _ => false,
    })
}

/// `nf.create_packet(packet or nil, byte_array)`
fn create_packet(lua: &Lua, core: &Rc<Core>) -> mlua::Result<Function> {
    let core = Rc::clone(core);
    lua.create_function(move |lua, (like, packet): (Value, Value)| {
        core.store.borrow_mut().complete_transport();
        let packet = core.octets(lua, &packet)?;
        if Layout::of_ipv4(&packet, 0).or_else(|| Layout::of_ipv6(&packet, 0)).is_none() {
            return Err(fail(lua, "create_packet: the octets must begin with an IP header"));
        }
        let like = match like {
            Value::Nil => None,
            value => Some(Packet::of_frame(core.octets(lua, &value)?, core.store.borrow().packet().form())),
        };
        core.shared.borrow_mut().host.send(&packet, like.as_ref());
        Ok(())
    })
}

/// `nf.fix_checksums(byte_array, protocol)`: every checksum of a packet that a script has made.
fn fix_checksums(lua: &Lua, core: &Rc<Core>) -> mlua::Result<Function> {
    let core = Rc::clone(core);
    lua.create_function(move |lua, (array, protocol): (Table, Value)| {
        let mut bytes = core.octets(lua, &Value::Table(array.clone()))?;
        let layout = match core.words(&protocol)?.as_str() {
            "packet_eth" => Layout::of_frame(&bytes),
            "packet_ip" => Layout::of_ipv4(&bytes, 0),
            "packet_ip6" => Layout::of_ipv6(&bytes, 0),
            other => {
                let what = format_args!("fix_checksums: packet_eth, packet_ip or packet_ip6, not {other}");
                return Err(fail(lua, what));
            }
        };
        let layout = layout.ok_or_else(|| fail(lua, "fix_checksums: there is no IP header"))?;
        checksum::complete(&mut bytes, &layout);
        let Some(view) = array.raw_get::<Option<LightUserData>>("view")? else {
            return Err(fail(lua, "fix_checksums: a byte array is wanted"));
        };
        let octets = array.raw_get::<Option<AnyUserData>>("octets")?;
        core.with(lua, octets.as_ref(), |store: &mut Store, protocols| {
            store.replace(protocols, handle(view), &bytes)
        })
    })
}

/// `require`, of modules in Lua that the host has.
fn require(lua: &Lua, core: &Rc<Core>) -> mlua::Result<Function> {
    let core = Rc::clone(core);
    let loaded = lua.create_table()?;
    lua.create_function(move |lua, name: String| {
        let known: Value = loaded.get(name.as_str())?;
        if !known.is_nil() {
            return Ok(known);
        }
        if let Some(module) = core.preloaded(&name) {
            return Ok(Value::Table(module));
        }
        if !is_module_name(&name) {
            return Err(fail(
                lua,
                format_args!("require: {name:?} is not a name, words with dots between them"),
            ));
        }
        let found = core.shared.borrow_mut().host.module(&name);
        let module = match found {
            Ok(Some(module)) => module,
            Ok(None) => return Err(fail(lua, format_args!("require: there is no module {name}"))),
            Err(why) => return Err(fail(lua, format_args!("require: module {name}: {why}"))),
        };
        let chunk = lua.load(module.source).set_name(format!("@{}", module.path));
        let value: Value = chunk.set_mode(mlua::chunk::ChunkMode::Text).call(name.as_str())?;
        let value = if value.is_nil() { Value::Boolean(true) } else { value };
        loaded.set(name, &value)?;
        Ok(value)
    })
}

/// Words of letters, digits, `_` and `-`, with dots between them: nothing that could lead out of a folder.
fn is_module_name(name: &str) -> bool {
    name.split('.').all(|word| {
        !word.is_empty()
            && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
    })
}
