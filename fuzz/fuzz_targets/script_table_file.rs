//! Files of tables of scripts, as they are published by others: any octets are entries that the table takes, or refused with
//! a line, and what was read is read again as it is written.
#![no_main]

use config::attachment::Tier;
use libfuzzer_sys::fuzz_target;
use script::compile::shared::Shared;
use script_host::table_file;
use script_host::table_protocol::{Entry, TableForm, TableStatus, given};

fn table(form: TableForm, key: &[&str], value: &[&str]) -> Shared {
    let kinds = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let status = TableStatus {
        name: "it".to_owned(),
        form,
        key: kinds(key),
        value: kinds(value).into(),
        entries: 0,
        limit: 10,
        expires_ms: None,
        evicts: false,
        persistent: false,
        buckets: vec![64, 1500],
        scripts: vec![1],
        tier: Tier::User,
    };
    status.shared().expect("a table")
}

/// The octets of an entry in a table.
fn octets(shared: &Shared, entry: &Entry) -> (Vec<u8>, Vec<u8>) {
    let key: Vec<_> = entry.key.iter().map(given).collect();
    let value: Vec<_> = entry.values().iter().map(given).collect();
    (shared.key(&key).expect("a key"), shared.value(&value).expect("a value"))
}

fuzz_target!(|input: (u8, Vec<u8>)| {
    let (which, file) = input;
    let shared = match which % 5 {
        0 => table(TableForm::Prefixes, &["prefix"], &["int"]),
        1 => table(TableForm::Table, &["text:40"], &["text:40"]),
        2 => table(TableForm::Table, &["ipv6", "int"], &["mac", "bool", "ipv4"]),
        3 => table(TableForm::Counter, &[], &["int"]),
        _ => table(TableForm::Histogram, &["bucket"], &["int"]),
    };
    let Ok(entries) = table_file::read(&shared, &file) else { return };
    let all: Vec<_> = entries.iter().map(|entry| octets(&shared, entry)).collect();
    let written =
        [table_file::csv(&shared, &entries).expect("CSV"), table_file::json(&entries).expect("JSON")];
    for written in written {
        let again = table_file::read(&shared, &written)
            .unwrap_or_else(|wrong| panic!("{wrong}: {}", String::from_utf8_lossy(&written)));
        assert_eq!(again.iter().map(|entry| octets(&shared, entry)).collect::<Vec<_>>(), all);
    }
});
