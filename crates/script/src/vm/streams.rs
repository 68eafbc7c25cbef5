//! `p:stream()` and `nf.streams`: streams of TCP, for scripts.

use std::rc::Rc;
use std::sync::{Arc, Mutex};

use mlua::{
    AnyUserData, LightUserData, Lua, MetaMethod, Table as LuaTable, UserData, UserDataMethods, Value,
};

use super::core::Core;
use super::error::fail;
use super::named::lock;
use super::natives::{Octets, handle};
use super::tables::flow_key;
use super::verdict::Verdict;
use crate::compile::decided;
use crate::compile::shared::Shared;
use crate::streams::{Decision, Fault, Limits, Seen, Segment, StreamKey, Streams};

/// Bounds that a script may set: streams, octets of one, octets of all.
const MOST: [usize; 3] = [1 << 24, 1 << 20, 1 << 30];

#[derive(Clone)]
struct StreamsHandle(Arc<Mutex<Streams>>, String);

/// The stream of a packet, as a script holds it.
struct StreamHandle {
    streams: Arc<Mutex<Streams>>,
    name: String,
    key: StreamKey,
    seen: Seen,
    core: Rc<Core>,
}

/// Puts them into the library.
pub(crate) fn install(lua: &Lua, core: &Rc<Core>, nf: &LuaTable, natives: &LuaTable) -> mlua::Result<()> {
    let shared = Rc::clone(core);
    let make = move |lua: &Lua, options: LuaTable| {
        let name = super::options::name(lua, &options)?;
        streams(lua, &shared, name, limits(lua, &options)?)
    };
    nf.set("streams", lua.create_function(make)?)?;
    let shared = Rc::clone(core);
    type Arguments = (LightUserData, Option<AnyUserData>, Option<AnyUserData>);
    let stream = move |lua: &Lua, (view, octets, wanted): Arguments| {
        let StreamsHandle(table, name) = match wanted {
            Some(wanted) => wanted.borrow::<StreamsHandle>()?.clone(),
            None => streams(lua, &shared, String::new(), Limits::default())?,
        };
        let now_ms = shared.shared.borrow_mut().host.now_ms();
        let found = shared.with(lua, octets.as_ref(), |store, protocols| {
            store.octets(protocols, handle(view))?;
            let packet = store.packet();
            let (Some(segment), Some(flow)) = (Segment::of(packet), packet.flow()) else { return Ok(None) };
            let mut key = [0; 38];
            key[..37].copy_from_slice(&flow_key(&flow));
            key[37] = u8::from(flow.reversed);
            let mut seen = lock(&table).take(&key, &segment, now_ms);
            // The kernel, which has the stream's packets, may know more.
            if seen.fault == Some(Fault::Unknown)
                && let Some(decided) = shared.shared.borrow_mut().host.was_decided(&name, &key)
            {
                let mut table = lock(&table);
                table.restore(&key, decided, now_ms);
                seen = table.take(&key, &segment, now_ms);
            }
            Ok(Some((key, seen)))
        })?;
        let Some((key, seen)) = found else { return Ok(None) };
        if seen.begins {
            shared.shared.borrow_mut().host.decided(&name, &key, None);
        }
        Ok(Some(StreamHandle { streams: table, name, key, seen, core: Rc::clone(&shared) }))
    };
    natives.set("stream", lua.create_function(stream)?)
}

/// What the kernel has of a table of streams.
pub(super) fn shared(handle: &AnyUserData) -> Option<Shared> {
    let StreamsHandle(streams, name) = &*handle.borrow::<StreamsHandle>().ok()?;
    Some(decided::shared(name, lock(streams).limits().streams))
}

/// The table of streams of this name and bounds.
fn streams(lua: &Lua, core: &Core, name: String, limits: Limits) -> mlua::Result<StreamsHandle> {
    let named = core.shared.borrow().tables.clone();
    let mut named = lock(&named.0);
    let known = named.streams.get(&name).cloned();
    if known.is_none() {
        core.may_name(lua, &mut named)?;
    }
    let known = known.filter(|known| lock(known).limits() == limits);
    let streams = known.unwrap_or_else(|| Arc::new(Mutex::new(Streams::new(limits))));
    named.streams.insert(name.clone(), Arc::clone(&streams));
    Ok(StreamsHandle(streams, name))
}

fn limits(lua: &Lua, options: &LuaTable) -> mlua::Result<Limits> {
    let default = Limits::default();
    let number = |name: &str, default: usize, most: usize| {
        let number = options.get::<Option<usize>>(name)?.unwrap_or(default);
        if !(1..=most).contains(&number) {
            return Err(fail(lua, format_args!("`{name}` must be from 1 to {most}")));
        }
        Ok(number)
    };
    let limits = Limits {
        streams: number("limit", default.streams, MOST[0])?,
        octets: number("octets", default.octets, MOST[1])?,
        memory: number("memory", default.memory, MOST[2])?,
        expires_ms: options.get::<Option<u64>>("expires")?.unwrap_or(default.expires_ms),
    };
    // A stream has up to twice as much memory as it has octets.
    if limits.memory < 2 * limits.octets {
        return Err(fail(lua, format_args!("`memory` must be twice `octets` at least")));
    }
    Ok(limits)
}

impl UserData for StreamsHandle {
    fn add_methods<M: UserDataMethods<Self>>(_: &mut M) {}
}

impl StreamHandle {
    fn now_ms(&self) -> u64 {
        self.core.shared.borrow_mut().host.now_ms()
    }

    fn decide(&mut self, decision: Decision) -> i64 {
        let decided = lock(&self.streams).decide(&self.key, decision, self.now_ms());
        self.seen.decided = Some(decided);
        self.tell();
        verdict(decision).value()
    }

    /// Tells the host what was decided, so that it needs not ask again.
    fn tell(&self) {
        let mut shared = self.core.shared.borrow_mut();
        shared.host.decided(&self.name, &self.key, self.seen.decided.as_ref());
    }

    /// A copy of the octets so far, as a byte array.
    fn octets(&self, lua: &Lua) -> mlua::Result<Value> {
        let octets = lock(&self.streams).octets(&self.key, self.now_ms()).to_vec();
        let (whole, octets) = Octets::of_bytes(lua, &self.core, octets)?;
        self.core.runtime()?.byte_array.call((whole, octets))
    }
}

impl UserData for StreamHandle {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("decided", |_, this, ()| {
            let Some(decided) = this.seen.decided else { return Ok(None) };
            // Who asks may have forgotten it.
            this.tell();
            let passes = decided.decision == Decision::Accept && this.seen.fault.is_none();
            Ok(Some(verdict(if passes { Decision::Accept } else { Decision::Refuse }).value()))
        });
        methods.add_method("fault", |_, this, ()| Ok(this.seen.fault.map(Fault::name)));
        methods.add_method_mut("accept", |_, this, ()| Ok(this.decide(Decision::Accept)));
        methods.add_method_mut("refuse", |_, this, ()| Ok(this.decide(Decision::Refuse)));
        methods.add_method("octets", |lua, this, ()| this.octets(lua));
        methods.add_method("data", |lua, this, protocol: Value| {
            let octets = this.octets(lua)?;
            this.core.runtime()?.to_packet.call::<Value>((octets, protocol))
        });
        methods.add_method("has_ended", |_, this, ()| {
            Ok(lock(&this.streams).has_ended(&this.key, this.now_ms()))
        });
        methods.add_meta_method(MetaMethod::Len, |_, this, ()| {
            Ok(lock(&this.streams).octets(&this.key, this.now_ms()).len())
        });
    }
}

const fn verdict(decision: Decision) -> Verdict {
    match decision {
        Decision::Accept => Verdict::Accept,
        Decision::Refuse => Verdict::Drop,
    }
}
