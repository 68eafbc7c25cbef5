//! Traces in a Lua state, which stays as it is: functions have a second form that tells what it does, and is in the place of
//! the first while the packet runs that is followed.
//!
//! The second form stands behind the text of the script, so it sees the same variables. It costs nothing but memory as long
//! as nobody follows a packet. Functions without one tell their lines alone, by Lua's hook.

use std::rc::Rc;

use mlua::{Function, Lua, LuaOptions, MultiValue, StdLib, Value};

use super::core::Core;
use super::error::ScriptError;
use super::twin::Twin;
use crate::logged::Scalar;
use crate::syntax::points;
use crate::trace::{self, Lines, UNTOLD};

/// The text of a script with second forms of its functions behind it, if it can have them. Lines of its own keep their
/// numbers.
#[must_use]
pub fn with_twins(source: &str) -> String {
    // What Lua refuses is nothing to read: it may be nested without an end.
    if !is_lua(source) {
        return source.to_owned();
    }
    // It may have more variables than Lua takes in one function.
    points::twins(source).filter(|text| is_lua(text)).unwrap_or_else(|| source.to_owned())
}

fn is_lua(source: &str) -> bool {
    Lua::new_with(StdLib::NONE, LuaOptions::default())
        .is_ok_and(|lua| lua.load(source).set_mode(mlua::chunk::ChunkMode::Text).into_function().is_ok())
}

/// Puts the function into the globals that is called at points.
pub(super) fn install(lua: &Lua, core: &Rc<Core>) -> mlua::Result<()> {
    let at = Rc::clone(core);
    let point = move |lua: &Lua, (line, arguments): (usize, MultiValue)| {
        // Its own instructions are nothing that the packet has used.
        at.give_back(3 + arguments.len() as u64);
        if at.trace.borrow().as_ref().is_none_or(Lines::is_full) {
            return Ok(());
        }
        let path = lua.inspect_stack(1, |caller| caller.source().source.map(std::borrow::Cow::into_owned));
        let path = path.flatten().unwrap_or_default();
        let (mut names, mut values) = (Vec::new(), Vec::new());
        let mut arguments = arguments.into_iter();
        while let Some(first) = arguments.next() {
            match first {
                Value::Boolean(holds) => values.push(Scalar::Boolean(holds)),
                name => {
                    names.push(name.to_string()?);
                    values.push(at.scalar_to_tell(&arguments.next().unwrap_or(Value::Nil)));
                }
            }
        }
        if let Some(lines) = &mut *at.trace.borrow_mut() {
            lines.add(path.strip_prefix('@').unwrap_or(&path), line, &trace::told(&names, &values));
        }
        Ok(())
    };
    lua.globals().set(points::POINT, lua.create_function(point)?)?;
    // In the kernel it is where a trace begins.
    lua.globals().set(FOLLOW, lua.create_function(|_, ()| Ok(()))?)
}

/// A packet is followed from here on, in the kernel.
pub(crate) const FOLLOW: &str = "sidestep_followed";

impl Core {
    /// What a text is called with that has twins: it takes note of them.
    pub(super) fn taking_twins(self: &Rc<Self>, lua: &Lua, path: &str) -> mlua::Result<Function> {
        let (core, path) = (Rc::clone(self), path.to_owned());
        core.twins.borrow_mut().retain(|twin| twin.path != path);
        type Twins = (usize, Function, Function, Function);
        lua.create_function(move |_, (line, twin, get, set): Twins| {
            let place = |function: &Function| {
                let info = function.info();
                Some((info.source?, info.line_defined?))
            };
            // The variable may have another value by now.
            if let (Ok(Value::Function(function)), Some((source, at))) = (get.call(()), place(&twin))
                && place(&function) == Some((source, line))
            {
                let offset = at.saturating_sub(line);
                core.twins.borrow_mut().push(Twin { path: path.clone(), offset, function, twin, get, set });
            }
            Ok(())
        })
    }

    /// Puts the twins in their places, or what was there before; the form of a function that is called then.
    pub(super) fn put_twins(&self, followed: bool, function: &Function) -> Function {
        let twins = self.twins.borrow();
        twins.iter().for_each(|twin| twin.put(followed));
        let own = twins.iter().find(|twin| twin.function == *function).filter(|_| followed);
        own.map_or_else(|| function.clone(), |twin| twin.twin.clone())
    }

    /// Whether a line is a twin's, which tells it by itself.
    pub(super) fn is_of_twin(&self, path: &str, line: usize) -> bool {
        self.twins.borrow().iter().any(|twin| twin.path == path && line > twin.offset)
    }

    /// Has an error name the lines of the script, and not those of twins.
    pub(super) fn name_lines(&self, error: &mut ScriptError) {
        for twin in &*self.twins.borrow() {
            for text in [&mut error.message, &mut error.traceback] {
                *text = renamed(text, &twin.path, twin.offset);
            }
        }
    }

    fn scalar_to_tell(&self, value: &Value) -> Scalar {
        let untold = Scalar::Other(UNTOLD.to_owned());
        match value {
            Value::LightUserData(view) if super::natives::handle(*view).protocol().is_some() => untold,
            Value::Table(table) if super::natives::is_octets(table) => match table.len() {
                Ok(length) => Scalar::Other(format!("{length} octets")),
                Err(_) => untold,
            },
            Value::String(text) => {
                let octets = text.as_bytes();
                Scalar::Beginning(octets[..octets.len().min(trace::SHOWN)].to_vec(), octets.len())
            }
            value => self.scalar(value).unwrap_or(untold),
        }
    }
}

/// The text with the numbers of lines behind so many as if those began there.
fn renamed(text: &str, path: &str, offset: usize) -> String {
    let place = format!("{path}:");
    let mut renamed = String::new();
    for (number, part) in text.split(&place).enumerate() {
        if number > 0 {
            renamed.push_str(&place);
        }
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        match part[..digits].parse::<usize>() {
            Ok(line) if number > 0 && line > offset => {
                renamed.push_str(&(line - offset).to_string());
                renamed.push_str(&part[digits..]);
            }
            _ => renamed.push_str(part),
        }
    }
    renamed
}

/// Has a state write down the lines that it goes through.
pub(super) fn begin(core: &Core) {
    core.trace.replace(Some(Lines::default()));
}

/// The lines since then.
pub(super) fn end(core: &Core) -> Lines {
    core.trace.take().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::NoHost;
    use crate::packet::Packet;
    use crate::vm::{Limits, Machine, Script, Verdict};
    use wire::checksum::TransportChecksum;

    const TEXT: &str = "local calls = 0\nlocal last <const> = 'x'\nlocal function twice(n)\n  calls = calls + 1\n  return 2 * n\nend\n\
                        Tool = {}\nfunction Tool:half(n) return n // 2 end\nlocal lost = function(n) return n end\n\
                        function process_packet(p)\n  local n = twice(#p)\n  if n > 1000 then\n    return NF_DROP\n  end\n\
                        \x20 wide = Tool:half(n) + lost(0)\n  if fails then error('no') end\n  return NF_ACCEPT\nend\n\
                        function state() return calls, wide end\n";

    fn packet() -> Packet {
        let mut octets = vec![0; 60];
        octets[0] = 0x60;
        Packet::of_ip(&octets, TransportChecksum::Complete)
    }

    fn machine(text: &str) -> (Machine, super::super::RuleId) {
        let mut machine = Machine::new(NoHost, Limits::default());
        let rule = machine.load(Script::new("t.lua", text)).unwrap();
        (machine, rule)
    }

    #[test]
    fn a_packet_is_followed_and_all_is_as_before() {
        let text = with_twins(TEXT);
        let (mut machine, rule) = machine(&text);
        for round in 1..4 {
            assert_eq!(machine.run(rule, &mut packet()), (Verdict::Accept, None));
            let (verdict, error, lines) = machine.trace(rule, &mut packet());
            assert_eq!((verdict, error), (Verdict::Accept, None));
            let told: Vec<_> = lines.0.iter().map(|line| (line.number, line.told.as_str())).collect();
            let calls = format!("calls = {}", 2 * round);
            assert_eq!(
                told,
                [
                    (10, "p = view packet_raw"),
                    (3, "n = 74"),
                    (4, &calls),
                    (5, ""),
                    (11, "n = 148"),
                    (12, "no"),
                    (8, "n = 148"),
                    (9, ""),
                    (15, "wide = 74"),
                    (16, "no"),
                    (17, ""),
                ],
                "with the state that ordinary packets have: {round}"
            );
            assert!(lines.0.iter().all(|line| line.path == "t.lua"));
        }
    }

    #[test]
    fn an_error_of_a_packet_that_is_followed_names_the_script_s_line() {
        let (mut machine, rule) = machine(&with_twins(&format!("fails = true\n{TEXT}")));
        let (_, plain) = machine.run(rule, &mut packet());
        let (_, followed, lines) = machine.trace(rule, &mut packet());
        assert_eq!(plain, followed);
        assert!(plain.is_some_and(|error| error.message.starts_with("t.lua:17: no")));
        assert_eq!(lines.0.last().map(|line| (line.number, line.told.as_str())), Some((17, "yes")));
    }

    #[test]
    fn what_can_have_no_twins_is_as_it_was() {
        let many: String = (0..200).map(|number| format!("local v{number} = 0\n")).collect();
        for text in [
            "x = = 1".to_owned(),
            format!("x = {}1{}", "(".repeat(300), ")".repeat(300)),
            "function process_packet() return NF_ACCEPT end\nreturn 1\n".to_owned(),
            format!("{many}function process_packet() return NF_ACCEPT end"),
        ] {
            assert_eq!(with_twins(&text), text);
        }
        let gone = "function a() return 1 end\na = nil\nT = {}\nfunction T.x() end\nT = nil\n\
                    function process_packet() return NF_ACCEPT end";
        let (mut machine, rule) = machine(&with_twins(gone));
        assert_eq!(machine.trace(rule, &mut packet()).2.0.len(), 1);
    }

    #[test]
    fn a_function_that_is_kept_or_compared_stays_the_one_that_it_is() {
        let text = "local function idle(p) return NF_DROP end\nlocal function open(p) return NF_ACCEPT end\n\
                    local current = idle\nfunction process_packet(p)\n  if current == idle then\n    current = open\n\
                    \x20   return NF_DROP\n  end\n  if current == open then return NF_ACCEPT end\n  return NF_DROP\nend\n";
        let (mut machine, rule) = machine(&with_twins(text));
        let (verdict, error, lines) = machine.trace(rule, &mut packet());
        assert_eq!((verdict, error), (Verdict::Drop, None));
        assert!(lines.0.iter().any(|line| line.told == "yes"), "{lines:?}");
        for _ in 0..2 {
            assert_eq!(machine.run(rule, &mut packet()), (Verdict::Accept, None));
            assert_eq!(machine.trace(rule, &mut packet()).0, Verdict::Accept);
        }
    }

    #[test]
    fn points_cost_a_packet_nothing_of_what_it_may_use() {
        let text = "function process_packet(p)\n  local sum = 0\n  for i = 1, 110000 do\n    local x = i\n    sum = sum + x\n\
                    \x20 end\n  return NF_ACCEPT\nend\n";
        let (mut machine, rule) = machine(&with_twins(text));
        assert_eq!(machine.run(rule, &mut packet()), (Verdict::Accept, None));
        let (verdict, error, _) = machine.trace(rule, &mut packet());
        assert_eq!((verdict, error), (Verdict::Accept, None));
    }

    #[test]
    fn every_example_has_twins() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/scripts");
        let mut count = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|kind| kind == "lua") {
                let text = std::fs::read_to_string(&path).unwrap();
                let twins = with_twins(&text);
                assert!(twins.len() > text.len(), "{}", path.display());
                assert_eq!(twins.lines().count(), 2 * text.lines().count() + 1, "{}", path.display());
                let points = crate::trace::points(&text).unwrap();
                assert_eq!(points.lines().count(), text.lines().count(), "{}", path.display());
                assert!(is_lua(&points), "{}: {points}", path.display());
                count += 1;
            }
        }
        assert!(count > 40, "{count}");
    }

    #[test]
    fn lines_are_renamed_where_they_are_the_script_s() {
        assert_eq!(
            renamed("a.lua:12: b a.lua:3 a.lua:x b.lua:12", "a.lua", 9),
            "a.lua:3: b a.lua:3 a.lua:x b.lua:12"
        );
    }
}
