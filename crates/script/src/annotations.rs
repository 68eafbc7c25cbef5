//! Annotations for the Lua language server (LuaLS): what scripts find, as classes with methods. The library is in
//! `annotations/library.lua`; protocols are written as their declarations say, as in [their reference](crate::protocol::reference).

use std::fmt::Write as _;

use crate::kind::Kind;
use crate::protocol::declaration::METHODS;
use crate::protocol::{Access, Field, Protocol, Protocols};

const LIBRARY: &str = include_str!("annotations/library.lua");

/// A file that defines nothing and says of everything what it is: the library, and these protocols.
#[must_use]
pub fn text(protocols: &Protocols) -> String {
    let mut text = LIBRARY.to_owned();
    text.push_str("\n-- Protocols ");
    text.push_str(&"-".repeat(107));
    text.push('\n');
    let mut all: Vec<_> = protocols.iter().collect();
    all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    for protocol in all {
        // Writing to a string cannot fail.
        let _ = class(&mut text, protocol);
    }
    text
}

/// The protocols of `all` that are not built in.
#[must_use]
pub fn only_own(all: &Protocols, builtin: &Protocols) -> String {
    let mut text = "---@meta\n-- Protocols that the script declares.\n".to_owned();
    for protocol in all.iter().filter(|protocol| builtin.known(&protocol.name).is_none()) {
        let _ = class(&mut text, protocol);
    }
    text
}

fn class(text: &mut String, protocol: &Protocol) -> std::fmt::Result {
    let name = &protocol.name;
    writeln!(text)?;
    for line in protocol.about.lines() {
        writeln!(text, "---{line}")?;
    }
    writeln!(text, "---@class {name}: sidestep.view\n{name} = {{}}")?;
    for (at, field) in protocol.fields.iter().enumerate() {
        // A field of that name is none of its own.
        if METHODS.contains(&&*field.name) {
            continue;
        }
        let place = match protocol.payload == Some(at) {
            true => "The payload.".to_owned(),
            false => place(field),
        };
        writeln!(text, "\n---{place}\n---@return {}\nfunction {name}:{}() end", kind(field), field.name)?;
    }
    Ok(())
}

fn place(field: &Field) -> String {
    let octets = |bits: u32| match (bits / 8, bits % 8) {
        (octets, 0) => octets.to_string(),
        (octets, bits) => format!("{octets}.{bits}"),
    };
    match (field.length, field.offset % 8, field.length % 8) {
        (0, ..) => format!("At octet {}, as long as the header says.", octets(field.offset)),
        (8, 0, _) => format!("Octet {}.", octets(field.offset)),
        (length, 0, 0) => format!("{} octets at octet {}.", length / 8, octets(field.offset)),
        (1, ..) => format!("A bit at octet {}.", octets(field.offset)),
        (length, ..) => format!("{length} bits at octet {}.", octets(field.offset)),
    }
}

fn kind(field: &Field) -> &'static str {
    let (Access::Kind(kind), Access::Kind(_)) = (&field.getter, &field.setter) else { return "sidestep.raw" };
    match kind {
        Kind::Raw => "sidestep.raw",
        Kind::Int => "sidestep.int",
        Kind::Bool => "sidestep.bool",
        Kind::Mac => "sidestep.mac",
        Kind::Ipv4 => "sidestep.ipv4",
        Kind::Ipv6 => "sidestep.ipv6",
        Kind::Text => "sidestep.text",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use full_moon::LuaVersion;
    use mlua::{AnyUserData, Lua, Table, Value};

    use super::*;
    use crate::vm::{self, builtin_protocols};

    fn names(table: &Table) -> BTreeSet<String> {
        table.pairs::<String, Value>().filter_map(|pair| Some(pair.ok()?.0)).collect()
    }

    fn annotations() -> String {
        text(&builtin_protocols().expect("protocols"))
    }

    /// What they define when they are run.
    fn run(text: &str) -> Lua {
        let lua = Lua::new();
        lua.load(text).set_name("=annotations").exec().expect("it is Lua");
        lua
    }

    #[test]
    fn it_is_lua_and_every_line_is_code_or_an_annotation() {
        let text = annotations();
        let parsed = full_moon::parse_fallible(&text, LuaVersion::lua54());
        assert!(parsed.errors().is_empty(), "{:?}", parsed.errors());
        assert!(text.starts_with("---@meta\n"));
        let tags = [
            "meta", "alias", "type", "class", "field", "operator", "param", "return", "generic", "overload",
            "operator",
        ];
        for tag in text.lines().filter_map(|line| line.strip_prefix("---@")) {
            let word = tag.split([' ', '(']).next().expect("a word");
            assert!(tags.contains(&word), "{tag}");
        }
    }

    /// Each function of each library, and no other.
    #[test]
    fn the_library_is_the_one_that_scripts_find() {
        let (lua, plain, (state, _)) = (run(&annotations()), Lua::new(), vm::of_state());
        let (annotated, plain, globals) = (lua.globals(), names(&plain.globals()), state.globals());
        let mut found: BTreeSet<_> = names(&globals).difference(&plain).cloned().collect();
        // What traces put into a text is nobody's to call.
        found.retain(|name| !name.starts_with("sidestep_"));
        assert_eq!(names(&annotated).difference(&plain).cloned().collect::<BTreeSet<_>>(), found);
        for name in found {
            if let Value::Table(library) = globals.get(&*name).expect("a value") {
                let table: Table = annotated.get(&*name).expect("a table");
                assert_eq!(names(&table), names(&library), "{name}");
            }
        }
    }

    /// Each field of each protocol.
    #[test]
    fn every_field_of_the_reference_is_a_method() {
        let lua = run(&annotations());
        let annotated = lua.globals();
        for protocol in builtin_protocols().expect("protocols").iter() {
            let class: Table = annotated.get(&*protocol.name).expect("a class");
            for field in &protocol.fields {
                let is_there = class.contains_key(&*field.name).expect("a name");
                assert!(is_there || METHODS.contains(&&*field.name), "{} {}", protocol.name, field.name);
            }
            assert!(names(&class).len() <= protocol.fields.len(), "{}", protocol.name);
        }
    }

    /// Methods of views, of tests and of what scripts make by name.
    #[test]
    fn methods_are_those_that_there_are() {
        let text = annotations();
        let annotated = |class: &str| -> BTreeSet<String> {
            let begins = [format!("function {class}:"), format!("function {class}.")];
            let name = |line: &str| {
                let rest = begins.iter().find_map(|begin| line.strip_prefix(&**begin))?;
                Some(rest.split_once('(')?.0.to_owned())
            };
            text.lines().filter_map(name).collect()
        };
        let tests = include_str!("vm/test.lua").lines();
        let tests =
            tests.filter_map(|line| Some(line.strip_prefix("function test.")?.split_once('(')?.0.to_owned()));
        assert_eq!(annotated("test"), tests.chain(["advance".to_owned()]).collect());

        let (lua, entry) = vm::of_state();
        let protocols = builtin_protocols().expect("protocols");
        let fields: BTreeSet<&str> =
            protocols.iter().flat_map(|protocol| &protocol.fields).map(|field| &*field.name).collect();
        let mut of_views = names(&entry.get("methods").expect("methods"));
        of_views.retain(|name| METHODS.contains(&&**name) || !fields.contains(&**name));
        // That of a byte array goes nowhere.
        of_views.insert("redirect".to_owned());
        assert_eq!(annotated("view"), of_views);
        assert_eq!(of_views, METHODS.iter().map(|name| (*name).to_owned()).collect());

        for (class, made) in [
            ("table_", "nf.table { name = 'a', key = 'int' }"),
            ("counter", "nf.counter 'a'"),
            ("histogram", "nf.histogram { name = 'b', help = 'x', buckets = { 1 } }"),
            ("prefixes", "nf.prefixes { name = 'a' }"),
        ] {
            let object: AnyUserData = lua.load(made).eval().expect(made);
            let methods: Table = object.metatable().and_then(|of| of.get("__index")).expect("methods");
            assert_eq!(annotated(class), names(&methods), "{class}");
        }
    }

    #[test]
    fn a_scripts_own_protocols_have_a_file_of_their_own() {
        let source = "register_dynamic_protbuf { name = 'packet_note', about = 'A note.', payload_field = 'rest',\
                      protocol_fields = { { 'urgent', 4, 1, 'bool' }, { 'author', 16, 0, 'text' }, { 'rest', 16, 0 } } }\
                      function process_packet() end";
        let script = vm::Script::new("a.lua", source);
        let mut machine = vm::Machine::new(crate::host::NoHost, vm::Limits::default());
        machine.load(script).expect("a script");
        let text = only_own(&machine.protocol_table(0), &builtin_protocols().expect("protocols"));
        assert!(text.contains("---A note.\n---@class packet_note: sidestep.view\n"), "{text}");
        assert!(
            text.contains(
                "---A bit at octet 0.4.\n---@return sidestep.bool\nfunction packet_note:urgent() end"
            ),
            "{text}"
        );
        assert!(!text.contains("packet_ip"), "{text}");
    }
}
