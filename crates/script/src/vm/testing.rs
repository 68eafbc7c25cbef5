//! The module `test` within a Lua state, for [`testing`](crate::testing).

use std::cell::RefCell;
use std::rc::Rc;

use mlua::{Function, Lua, LuaString, MultiValue, Table, Value};
use wire::checksum::TransportChecksum;

use super::Machine;
use super::error::{ErrorKind, RUNTIME, ScriptError, fail};
use super::natives::Octets;
use super::state::State;
use crate::checksum::{Layout, complete};
use crate::host::Module;
use crate::packet::Packet;
use crate::pcap::{self, Captured};
use crate::store::Store;
use crate::syntax;
use crate::syntax::names::{self, Names, Unknown};
use crate::testing::{Contents, Files, Given, World};
use crate::vlan;

/// Packets of one test that are kept.
const MAX_GIVEN: usize = 10_000;

impl Machine {
    /// What a script has, once it is loaded as it is for packets; `modules` are those that it has loaded meanwhile.
    pub(crate) fn inspect(
        &self,
        path: &str,
        source: &str,
        prefix: &str,
        modules: impl FnOnce() -> Vec<Module>,
    ) -> Result<Contents, ScriptError> {
        let state = self.state(0, &[], true)?;
        let globals = state.lua.globals();
        let known: Vec<String> =
            globals.pairs::<String, Value>().filter_map(|pair| Some(pair.ok()?.0)).collect();
        let builtin: Vec<_> =
            state.core.protocols.borrow().iter().map(|protocol| protocol.name.clone()).collect();
        state.load(source, path)?;
        let mut functions: Vec<String> = globals
            .pairs::<String, Value>()
            .filter_map(Result::ok)
            .filter(|(name, value)| value.is_function() && !known.contains(name))
            .map(|(name, _)| name)
            .collect();
        functions.sort_unstable();
        let (tests, functions) = functions.into_iter().partition(|name| name.starts_with(prefix));
        let protocols = state.core.protocols.borrow();
        let protocols = protocols.iter().map(|protocol| protocol.name.clone());
        Ok(Contents {
            functions,
            tests,
            protocols: protocols.filter(|name| !builtin.contains(name)).collect(),
            unknown: unknown_names(&state, source, &modules()),
        })
    }

    /// Runs the function `name` of a script.
    pub(crate) fn test(
        &mut self,
        path: &str,
        source: &str,
        name: &str,
        world: &Rc<RefCell<World>>,
        files: &Rc<dyn Files>,
    ) -> Result<(), ScriptError> {
        let state = self.state(0, &[], true)?;
        prepare(&state, world, files).map_err(|error| state.error(&error))?;
        state.load(source, path)?;
        let function = state.function(name).ok_or_else(|| ScriptError {
            kind: ErrorKind::Runtime,
            message: format!("{path}: there is no function {name}"),
            traceback: String::new(),
        })?;
        // Work that the script puts off runs in a state of its own, which the test's clock sets going.
        let deferred = self.state(0, &[], false)?;
        prepare(&deferred, world, files).map_err(|error| deferred.error(&error))?;
        deferred.load(source, path)?;
        let shared = Rc::clone(&self.shared);
        let advance = {
            let world = Rc::clone(world);
            state.lua.create_function(move |lua, by_ms: u64| {
                let end = world.borrow().now_ms.saturating_add(by_ms);
                loop {
                    let due = shared.borrow().jobs.first_key_value().map(|(&(due, _), _)| due);
                    let Some(due) = due.filter(|due| *due <= end) else { break };
                    let now = world.borrow().now_ms;
                    world.borrow_mut().now_ms = due.max(now);
                    let Some((_, job)) = shared.borrow_mut().jobs.pop_first() else { break };
                    super::run_job(&deferred, job)
                        .map_err(|error| fail(lua, format_args!("deferred work: {error}")))?;
                }
                world.borrow_mut().now_ms = end;
                Ok(())
            })
        };
        let advance = advance.map_err(|error| state.error(&error))?;
        if let Some(module) = state.core.preloaded("test") {
            module.set("advance", advance).map_err(|error| state.error(&error))?;
        }
        state.core.renew_budget();
        function.call::<()>(()).map_err(|error| state.error(&error))
    }
}

/// A state that is asked one thing after the other.
pub struct Interactive {
    state: State,
    show: Function,
}

impl Machine {
    /// Loads a script for [`Interactive`] use, with packets.
    pub(crate) fn interactive(
        &self,
        path: &str,
        source: &str,
        packets: &[Captured],
        world: &Rc<RefCell<World>>,
        files: &Rc<dyn Files>,
    ) -> Result<Interactive, ScriptError> {
        let state = self.state(0, &[], true)?;
        prepare(&state, world, files).map_err(|error| state.error(&error))?;
        state.load(source, path)?;
        let add = || -> mlua::Result<Function> {
            let module = state.core.preloaded("test").unwrap_or(state.lua.create_table()?);
            let list = packets
                .iter()
                .map(|packet| captured(&state.lua, packet))
                .collect::<mlua::Result<Vec<_>>>()?;
            let chunk = state.lua.load(include_str!("repl.lua")).set_name(format!("={RUNTIME}"));
            state.lua.globals().set("test", &module)?;
            chunk.call((&state.entry, module, list))
        };
        let show = add().map_err(|error| state.error(&error))?;
        Ok(Interactive { state, show })
    }
}

impl Interactive {
    /// The values of an expression as text, or nothing where it is a statement; none if the text is not whole.
    pub(crate) fn evaluate(&self, text: &str) -> Result<Option<String>, ScriptError> {
        let load = |text: &str| {
            let chunk = self.state.lua.load(text).set_name("=repl").set_mode(mlua::chunk::ChunkMode::Text);
            chunk.into_function()
        };
        let is_incomplete = |loaded: &mlua::Result<Function>| {
            matches!(loaded, Err(mlua::Error::SyntaxError { incomplete_input: true, .. }))
        };
        let mut loaded = load(&format!("return {text}"));
        if loaded.is_err() && !is_incomplete(&loaded) {
            loaded = load(text);
        }
        if is_incomplete(&loaded) {
            return Ok(None);
        }
        let function = loaded.map_err(|error| self.state.error(&error))?;
        self.state.core.renew_budget();
        let shown = function.call::<MultiValue>(()).and_then(|values| self.show.call::<LuaString>(values));
        shown.map(|shown| Some(shown.to_string_lossy())).map_err(|error| self.state.error(&error))
    }
}

/// A packet of a capture, for Lua.
fn captured(lua: &Lua, packet: &Captured) -> mlua::Result<Table> {
    let entry = lua.create_table()?;
    entry.set("octets", lua.create_string(&packet.octets)?)?;
    entry.set("is_ip", packet.link == pcap::Link::Ip)?;
    Ok(entry)
}

/// Names of a script that nothing has. What the compiler's parser does not read has none.
fn unknown_names(state: &State, source: &str, modules: &[Module]) -> Vec<Unknown> {
    let Ok(chunk) = syntax::parse(source) else { return Vec::new() };
    let modules: Result<Vec<_>, _> = modules.iter().map(|module| syntax::parse(&module.source)).collect();
    modules.map_or_else(|_| Vec::new(), |modules| names::unknown(&chunk, &modules, state))
}

/// Methods of `nf.table` and its like, of flows, of streams, and of packets alone.
const OBJECTS: [&str; 17] = [
    "get",
    "set",
    "add",
    "delete",
    "count",
    "find",
    "is_reply",
    "forget",
    "decided",
    "fault",
    "accept",
    "refuse",
    "octets",
    "has_ended",
    "redirect",
    "observe",
    "sum",
];

impl Names for State {
    fn has_global(&self, name: &str) -> bool {
        self.lua.globals().contains_key(name).unwrap_or(true)
    }

    fn has_entry(&self, library: &str, name: &str) -> Option<bool> {
        self.lua.globals().get::<Table>(library).ok()?.contains_key(name).ok()
    }

    fn has_method(&self, name: &str) -> bool {
        let of =
            |table: mlua::Result<Table>| table.is_ok_and(|table| table.contains_key(name).unwrap_or(true));
        OBJECTS.contains(&name) || of(self.entry.get("methods")) || of(self.lua.globals().get("string"))
    }
}

/// Makes `require "test"` work.
fn prepare(state: &State, world: &Rc<RefCell<World>>, files: &Rc<dyn Files>) -> mlua::Result<()> {
    let lua = &state.lua;
    let natives = lua.create_table()?;
    let core = Rc::clone(&state.core);
    let packet = move |lua: &Lua, (octets, is_ip): (LuaString, bool)| {
        let octets = octets.as_bytes();
        let packet = if is_ip {
            Packet::of_ip(&octets, TransportChecksum::Complete)
        } else {
            Packet::of_frame(octets.to_vec(), TransportChecksum::Complete)
        };
        let (store, whole) = Store::of_packet(packet);
        Octets::of_store(lua, &core, store, whole)
    };
    natives.set("packet", lua.create_function(packet)?)?;
    natives.set(
        "complete",
        lua.create_function(|lua, (octets, is_ip): (LuaString, bool)| {
            let mut octets = octets.as_bytes().to_vec();
            let layout = match octets.first().map(|first| first >> 4) {
                Some(4) if is_ip => Layout::of_ipv4(&octets, 0),
                Some(6) if is_ip => Layout::of_ipv6(&octets, 0),
                _ => Layout::of_frame(&octets),
            };
            if let Some(layout) = layout {
                complete(&mut octets, &layout);
            }
            lua.create_string(octets)
        })?,
    )?;
    natives.set(
        "checksums_are_right",
        lua.create_function(|_, octets: LuaString| Ok(crate::checksum::are_right(&octets.as_bytes())))?,
    )?;
    natives.set(
        "unseen",
        lua.create_function(|_, octets: LuaString| {
            Ok(vlan::unseen(&octets.as_bytes()).map(|unseen| unseen.to_string()))
        })?,
    )?;
    let files = Rc::clone(files);
    natives.set(
        "pcap",
        lua.create_function(move |lua, name: String| {
            let content = files.capture(&name).map_err(|why| fail(lua, format_args!("{name}: {why}")))?;
            let packets = pcap::read(&content).map_err(|error| fail(lua, format_args!("{name}: {error}")))?;
            packets.iter().map(|packet| captured(lua, packet)).collect::<mlua::Result<Vec<_>>>()
        })?,
    )?;
    let given = Rc::clone(world);
    natives.set(
        "given",
        lua.create_function(move |_, (function, octets): (String, LuaString)| {
            let given = &mut given.borrow_mut().given;
            if given.len() < MAX_GIVEN {
                given.push(Given { function, frame: octets.as_bytes().to_vec() });
            }
            Ok(())
        })?,
    )?;
    let core = Rc::clone(&state.core);
    let begin = move |_: &Lua, ()| {
        core.begin_packet();
        Ok(())
    };
    natives.set("begin_packet", lua.create_function(begin)?)?;
    let core = Rc::clone(&state.core);
    let end = move |_: &Lua, ()| {
        core.end_packet();
        Ok(())
    };
    natives.set("end_packet", lua.create_function(end)?)?;
    let seen = Rc::clone(world);
    natives.set(
        "sent",
        lua.create_function(move |lua, ()| {
            let sent = std::mem::take(&mut seen.borrow_mut().sent);
            sent.into_iter().map(|packet| lua.create_string(packet)).collect::<mlua::Result<Vec<_>>>()
        })?,
    )?;
    let seen = Rc::clone(world);
    let captured = move |lua: &Lua, ()| {
        let captured = std::mem::take(&mut seen.borrow_mut().captured);
        let entry = |(name, octets): (String, Vec<u8>)| {
            let entry = lua.create_table_from([("name", lua.create_string(name)?)])?;
            entry.set("octets", lua.create_string(octets)?)?;
            Ok(entry)
        };
        captured.into_iter().map(entry).collect::<mlua::Result<Vec<_>>>()
    };
    natives.set("captured", lua.create_function(captured)?)?;
    let seen = Rc::clone(world);
    let mirrored = move |lua: &Lua, ()| {
        let mirrored = std::mem::take(&mut seen.borrow_mut().mirrored);
        let entry = |(interface, frame): (String, Vec<u8>)| {
            let entry = lua.create_table_from([("interface", lua.create_string(interface)?)])?;
            entry.set("frame", lua.create_string(frame)?)?;
            Ok(entry)
        };
        mirrored.into_iter().map(entry).collect::<mlua::Result<Vec<_>>>()
    };
    natives.set("mirrored", lua.create_function(mirrored)?)?;
    let seen = Rc::clone(world);
    natives.set("log", lua.create_function(move |_, ()| Ok(std::mem::take(&mut seen.borrow_mut().log)))?)?;
    let entry = state.entry.clone();
    let chunk = lua.load(include_str!("test.lua")).set_name(format!("={RUNTIME}"));
    let module: Table = chunk.call((natives, entry))?;
    state.core.preload("test", module);
    Ok(())
}
