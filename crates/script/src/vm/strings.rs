//! Functions of `string` and `table` whose work counts, in place of Lua's own, or around them.

use std::rc::Rc;

use mlua::{Lua, LuaString, MultiValue, Value};

use super::core::Core;
use super::error::{RUNTIME, fail};
use super::pattern::{self, Capture, PatternError, Steps};

/// Puts them into these tables.
pub(super) fn install(lua: &Lua, core: &Rc<Core>) -> mlua::Result<()> {
    let counting = Rc::clone(core);
    type Search = (LuaString, LuaString, usize, Option<usize>, bool, bool);
    let seek = move |lua: &Lua, (subject, text, from, last, anchors, whole): Search| {
        let (subject, text) = (subject.as_bytes(), text.as_bytes());
        let anchored = anchors && text.first() == Some(&b'^');
        let text = if anchored { &text[1..] } else { &text[..] };
        let found =
            counted(&counting, lua, |steps| pattern::search(&subject, text, from, last, anchored, steps))?;
        let Some(found) = found else { return Ok(MultiValue::new()) };
        let part = |start: usize, end: usize| {
            counting.copies(end - start);
            mlua::Result::Ok(Value::String(lua.create_string(&subject[start..end])?))
        };
        let mut values = vec![Value::Integer(found.start as i64), Value::Integer(found.end as i64)];
        if whole && found.captures.is_empty() {
            values.push(part(found.start, found.end)?);
        }
        for capture in found.captures {
            values.push(match capture {
                Capture::Part(start, end) => part(start, end)?,
                Capture::Position(at) => Value::Integer(at as i64 + 1),
            });
        }
        mlua::Result::Ok(MultiValue::from_vec(values))
    };
    let counting = Rc::clone(core);
    let plain = move |lua: &Lua, (subject, needle, from): (LuaString, LuaString, usize)| {
        let (subject, needle) = (subject.as_bytes(), needle.as_bytes());
        let found = counted(&counting, lua, |steps| pattern::plain(&subject, &needle, from, steps))?;
        mlua::Result::Ok(found.map(|start| (start, start + needle.len())).unzip())
    };
    let is_plain = |_: &Lua, text: LuaString| Ok(pattern::is_plain(&text.as_bytes()));
    let counting = Rc::clone(core);
    let copied = move |_: &Lua, octets: usize| {
        counting.copies(octets);
        Ok(())
    };
    let counting = Rc::clone(core);
    let worked = move |lua: &Lua, instructions: f64| {
        // What is no number is no work.
        if instructions >= 1.0 { counting.spend(lua, instructions as u64) } else { Ok(()) }
    };
    let chunk = lua.load(include_str!("counted.lua")).set_name(format!("={RUNTIME}"));
    chunk.call::<()>(lua.create_function(worked)?)?;
    let wrong = |lua: &Lua, what: String| Err::<(), _>(fail(lua, what));
    lua.load(include_str!("strings.lua")).set_name(format!("={RUNTIME}")).call((
        lua.create_function(seek)?,
        lua.create_function(plain)?,
        lua.create_function(is_plain)?,
        lua.create_function(copied)?,
        lua.create_function(wrong)?,
    ))
}

/// Does work whose steps are taken off the budget.
fn counted<T>(
    core: &Core,
    lua: &Lua,
    work: impl FnOnce(&mut Steps) -> Result<T, PatternError>,
) -> mlua::Result<T> {
    let before = core.instructions_left();
    let mut steps = Steps(before);
    let result = work(&mut steps);
    core.spend(lua, before - steps.0)?;
    result.map_err(|error| match error {
        PatternError::Wrong(what) => fail(lua, what),
        PatternError::Exhausted => fail(lua, "a pattern used up the instructions"),
    })
}
