//! The reference of the protocols, `docs/scripting-reference.md`, as their declarations say it.
//!
//! `UPDATE_REFERENCE=1 cargo test -p script reference` writes the file anew.

use std::fmt::Write as _;

use super::{
    Access, Amount, Changes, Condition, Effect, Field, Policy, PolicyTable, Protocol, Protocols, Step,
};

const HEAD: &str = "\
# Protocols of packet scripts

Written by `UPDATE_REFERENCE=1 cargo test -p script reference` from the declarations in `crates/script/src/protocol`.
[scripting.md](scripting.md) says what kinds, policies and moving fields are. Places are in octets from the beginning of
the header, with bits behind a dot where a field begins or ends within an octet; *moves* is said of fields that lie
further behind, or are longer, as the text below the table says.
";

/// The reference of all `protocols`, as Markdown.
pub fn text(protocols: &Protocols) -> String {
    let mut text = HEAD.to_owned();
    let mut all: Vec<_> = protocols.iter().collect();
    all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    for protocol in all {
        // Writing to a string cannot fail.
        let _ = section(&mut text, protocol, protocols);
    }
    text
}

fn section(text: &mut String, protocol: &Protocol, protocols: &Protocols) -> std::fmt::Result {
    writeln!(text, "\n## {}\n\n{}\n", protocol.name, protocol.about)?;
    if !protocol.fields.is_empty() {
        writeln!(text, "| field | at | length | kind |\n|---|---|---|---|")?;
        for (at, field) in protocol.fields.iter().enumerate() {
            let moves = if moves(protocol, at) { ", moves" } else { "" };
            let (place, length) = (bits(field.offset.into()), length(protocol, at));
            writeln!(text, "| `{}` | {place}{moves} | {length} | {} |", field.name, kind(field))?;
        }
        writeln!(text)?;
    }
    match &protocol.changes {
        Changes::None => {}
        Changes::Question(_) | Changes::Function => {
            writeln!(text, "Where fields are is read from the header's contents.\n")?;
        }
        Changes::Steps(steps) => {
            for step in steps {
                writeln!(text, "- {}", in_words(step, protocol))?;
            }
            writeln!(text)?;
        }
    }
    match &protocol.policy {
        Policy::Always => writeln!(text, "Holds: any protocol."),
        Policy::Never => writeln!(text, "Holds: nothing."),
        Policy::Function => writeln!(text, "Holds: what a function says."),
        Policy::Table(table) => writeln!(text, "Holds: {}", holds(table, protocol, protocols)),
    }
}

/// Whether a step or a function moves the field or makes it longer.
fn moves(protocol: &Protocol, at: usize) -> bool {
    match &protocol.changes {
        Changes::None => false,
        Changes::Question(_) | Changes::Function => protocol.fields[at].length == 0,
        Changes::Steps(steps) => {
            steps.iter().any(|step| matches!(step.effect, Effect::Grow(grown) if at > grown))
        }
    }
}

fn length(protocol: &Protocol, at: usize) -> String {
    let field = &protocol.fields[at];
    let grows = match &protocol.changes {
        Changes::Steps(steps) => steps.iter().any(|step| step.effect == Effect::Grow(at)),
        Changes::Question(_) | Changes::Function => field.length == 0,
        Changes::None => false,
    };
    match (field.length, grows) {
        (0, _) if protocol.payload == Some(at) => "the rest".into(),
        (0, true) => "by the header".into(),
        (0, false) => "0".into(),
        (length, true) => format!("{} or more", amount(length.into())),
        (length, false) if !field.offset.is_multiple_of(8) && length > 1 => format!("{length} bits"),
        (length, false) => amount(length.into()),
    }
}

fn kind(field: &Field) -> String {
    match (&field.getter, &field.setter) {
        (Access::Kind(getter), Access::Kind(setter)) if getter == setter => format!("`{getter}`"),
        _ => "functions".into(),
    }
}

fn in_words(step: &Step, protocol: &Protocol) -> String {
    let name = |at: usize| format!("`{}`", protocol.fields[at].name);
    let amount = match step.amount {
        Amount::Bits(bits) => amount(bits.into()),
        Amount::Field { field, unit, plus } => {
            let times = format!("{} × {}", name(field), amount(unit.into()));
            match plus {
                0 => times,
                plus if plus > 0 => format!("{times} + {}", amount(plus)),
                plus => format!("{times} − {}", amount(-plus)),
            }
        }
    };
    let when = step.when.as_ref().map_or_else(String::new, |when| format!("{}, ", condition(when, protocol)));
    let text = match step.effect {
        Effect::Grow(field) => {
            format!("{when}{} is longer by {amount}, and fields behind it move.", name(field))
        }
        Effect::End => {
            format!("{when}the whole is no longer than {amount} (where the field is 0, it says nothing).")
        }
    };
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

fn condition(condition: &Condition, protocol: &Protocol) -> String {
    let values: Vec<_> = condition.values.iter().map(|value| number(*value)).collect();
    let is = if condition.is { "is" } else { "is not" };
    format!("where `{}` {is} {}", protocol.fields[condition.field].name, values.join(" or "))
}

fn holds(table: &PolicyTable, protocol: &Protocol, protocols: &Protocols) -> String {
    let of_one_value = table.protocols.chunk_by(|one, other| one.0 == other.0).map(|pairs| {
        let names: Vec<_> = pairs.iter().map(|(_, id)| format!("`{}`", protocols.name(*id))).collect();
        format!("{} {}", number(pairs[0].0), names.join(" or "))
    });
    let entries: Vec<_> = of_one_value.collect();
    let when =
        table.when.as_ref().map_or_else(String::new, |when| format!(", {}", condition(when, protocol)));
    let through: Vec<_> = table.through.iter().map(|id| format!("`{}`", protocols.name(*id))).collect();
    let through = match through.len() {
        0 => String::new(),
        _ => format!(" `data` passes over {}.", through.join(", ")),
    };
    format!("by `{}`{when}: {}.{through}", protocol.fields[table.field].name, entries.join(", "))
}

/// Small numbers as they are usually told, EtherTypes and the like in hexadecimal.
fn number(value: u64) -> String {
    if value < 256 { value.to_string() } else { format!("0x{value:04x}") }
}

/// A place, or "8 octets" without the word.
fn bits(bits: i64) -> String {
    if bits % 8 == 0 { (bits / 8).to_string() } else { format!("{}.{}", bits / 8, bits % 8) }
}

fn amount(bits: i64) -> String {
    match (bits / 8, bits % 8) {
        (_, 1..) => format!("{bits} bit{}", if bits == 1 { "" } else { "s" }),
        (1, _) => "1 octet".into(),
        (octets, _) => format!("{octets} octets"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::vm::builtin_protocols;

    #[test]
    fn the_reference_is_what_the_declarations_say() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scripting-reference.md");
        let now = text(&builtin_protocols().expect("the built-in protocols"));
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            std::fs::write(&file, &now).expect("docs/scripting-reference.md can be written");
        }
        let written = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(
            written == now,
            "docs/scripting-reference.md is not current: UPDATE_REFERENCE=1 cargo test -p script reference"
        );
    }
}
