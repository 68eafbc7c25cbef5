//! What is written about tables.

use std::fmt::Write as _;

use config::attachment::Tier;
use script_host::table_file::word;
use script_host::table_protocol::{Done, Entry, TableForm, TableList, TableStatus};
use serde_json::Value;

use crate::fit::{pad, width};

const HEAD: [&str; 8] = ["name", "kind", "key", "value", "entries", "limit", "scripts", "where"];

/// A line for each table.
pub(super) fn list(list: &TableList) -> String {
    if list.tables.is_empty() {
        return "no tables\n".to_owned();
    }
    let rows: Vec<[String; 8]> =
        std::iter::once(HEAD.map(str::to_owned)).chain(list.tables.iter().map(row)).collect();
    let widths: Vec<usize> =
        (0..HEAD.len()).map(|at| rows.iter().map(|row| width(&row[at])).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        // Numbers stand to the right.
        let cells = row.iter().zip(&widths).enumerate();
        let cells: Vec<String> =
            cells.map(|(at, (cell, width))| pad(cell, *width, at == 4 || at == 5)).collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    text
}

fn row(table: &TableStatus) -> [String; 8] {
    let name = if table.name.is_empty() { "(of p:flow)".to_owned() } else { table.name.clone() };
    let place = match table.tier {
        Tier::Kernel => "kernel",
        Tier::User | Tier::Auto | Tier::Both => "Lua",
    };
    let scripts: Vec<String> = table.scripts.iter().map(u32::to_string).collect();
    let (key, value) = match table.form {
        TableForm::Flows => (String::new(), String::new()),
        _ => (table.key.join(" "), table.value.all().join(" ")),
    };
    let (entries, limit) = (table.entries.to_string(), table.limit.to_string());
    [name, table.form.name().to_owned(), key, value, entries, limit, scripts.join(" "), place.to_owned()]
}

/// A value as it is; with its key, if that is not what was asked for.
pub(super) fn value(entry: &Entry, asked: &str) -> String {
    let value = entry.values().iter().map(word).collect::<Vec<_>>().join(" ");
    match &entry.key[..] {
        [Value::String(key)] if key != asked && key.contains('/') => format!("{value} ({key})\n"),
        _ => format!("{value}\n"),
    }
}

/// What came of a change.
pub(super) fn done(Done { written, removed }: Done) -> String {
    let entries = |count: usize| if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") };
    match (written, removed) {
        (written, 0) if written > 0 => format!("{} written", entries(written)),
        (0, removed) => format!("{} removed", entries(removed)),
        (written, removed) => format!("{} written, {removed} removed", entries(written)),
    }
}
