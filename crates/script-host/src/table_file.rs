//! Entries of tables as they are in files: JSON, a list, or CSV, with the parts of the key and those of the value. Files come
//! from anywhere, as from who publishes what is to be blocked: whatever is in them, they are read or refused.

use std::fmt;

use csv::{ReaderBuilder, StringRecord, WriterBuilder};
use script::compile::shared::{Form, Shared};
use serde::Deserializer;
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Value, json};

use crate::table_protocol::{Entry, given, value_of};

/// Why a file is none of entries: what is wrong, and in which line.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong {
    line: u64,
    what: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.what)
    }
}

/// The entries of a file: JSON if it begins with a bracket, and CSV otherwise. All are what the table takes.
///
/// # Errors
/// If one of them is not.
pub fn read(shared: &Shared, octets: &[u8]) -> Result<Vec<Entry>, Wrong> {
    match octets.trim_ascii_start().first() {
        Some(b'[' | b'{') => read_json(shared, octets),
        _ => read_csv(shared, octets),
    }
}

/// An entry, where it is what the table takes; that of a prefix may have no value.
fn checked(shared: &Shared, key: Vec<Value>, value: Option<Value>) -> Result<Entry, String> {
    let value = match value {
        Some(value) => value,
        None if matches!(shared.form, Form::Prefixes { .. }) => 1.into(),
        None => return Err("the value is missing".to_owned()),
    };
    let entry = Entry { key, value };
    let [key, values] = [&entry.key, entry.values()].map(|parts| parts.iter().map(given).collect::<Vec<_>>());
    shared.key(&key).map_err(|error| error.to_string())?;
    shared.value(&values).map_err(|error| format!("the value: {error}"))?;
    Ok(entry)
}

fn read_csv(shared: &Shared, octets: &[u8]) -> Result<Vec<Entry>, Wrong> {
    let mut reader =
        ReaderBuilder::new().has_headers(false).flexible(true).comment(Some(b'#')).from_reader(octets);
    let head = head(shared);
    let mut entries = Vec::new();
    let mut record = StringRecord::new();
    let mut is_first = true;
    loop {
        let line = line_of_record(octets, reader.position());
        let wrong = |what: String| Wrong { line, what };
        match reader.read_record(&mut record) {
            Ok(true) => {}
            Ok(false) => return Ok(entries),
            Err(error) => {
                let what = match error.into_kind() {
                    csv::ErrorKind::Utf8 { .. } => "octets that are no text (UTF-8)".to_owned(),
                    other => format!("{other:?}"),
                };
                return Err(wrong(what));
            }
        }
        let is_head = std::mem::take(&mut is_first) && record.iter().eq(head.iter());
        if is_head {
            continue;
        }
        match entry_of(shared, &head, &record) {
            Ok(entry) => entries.push(entry),
            // A key and value may be empty texts.
            Err(_) if record.iter().all(|field| field.trim().is_empty()) => {}
            Err(what) => return Err(wrong(what)),
        }
    }
}

fn entry_of(shared: &Shared, head: &[String], record: &StringRecord) -> Result<Entry, String> {
    let keys = shared.key_names().len();
    let mut key: Vec<Value> = record.iter().map(Value::from).collect();
    let value = if key.len() >= head.len() { Some(value_of(key.split_off(keys))) } else { None };
    if key.len() != keys || record.len() > head.len() {
        return Err(format!("{} columns, and not {}: {}", record.len(), head.len(), head.join(",")));
    }
    checked(shared, key, value)
}

/// The line that the next record begins in: the reader stands before empty lines and comments.
fn line_of_record(octets: &[u8], reader: &csv::Position) -> u64 {
    let rest = octets.get(reader.byte() as usize..).unwrap_or_default();
    let is_none = |line: &&[u8]| line.trim_ascii().is_empty() || line.starts_with(b"#");
    reader.line() + rest.split(|octet| *octet == b'\n').take_while(is_none).count() as u64
}

/// The names of the columns.
fn head(shared: &Shared) -> Vec<String> {
    let columns = |of: &str, names: &[String]| match names {
        [one] if one == "prefix" => vec!["prefix".to_owned()],
        [_] => vec![of.to_owned()],
        many => (1..=many.len()).map(|at| format!("{of}{at}")).collect(),
    };
    [columns("key", &shared.key_names()), columns("value", &shared.value_names())].concat()
}

fn read_json(shared: &Shared, octets: &[u8]) -> Result<Vec<Entry>, Wrong> {
    let mut deserializer = serde_json::Deserializer::from_slice(octets);
    let entries = Entries(shared).deserialize(&mut deserializer);
    let entries = entries.and_then(|entries| deserializer.end().map(|()| entries));
    entries.map_err(|error| {
        let what = error.to_string();
        let (what, _) = what.rsplit_once(" at line ").unwrap_or((&what, ""));
        Wrong { line: error.line() as u64, what: what.to_owned() }
    })
}

/// A list of entries of a table.
struct Entries<'a>(&'a Shared);

/// One of them: checked while it is read, so that what is wrong with it is told with its line.
struct Row<'a>(&'a Shared);

impl<'de> DeserializeSeed<'de> for Entries<'_> {
    type Value = Vec<Entry>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<Entry>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Entries<'_> {
    type Value = Vec<Entry>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of {\"key\": …, \"value\": …}")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut rows: A) -> Result<Vec<Entry>, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = rows.next_element_seed(Row(self.0))? {
            entries.push(entry);
        }
        Ok(entries)
    }
}

impl<'de> DeserializeSeed<'de> for Row<'_> {
    type Value = Entry;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Entry, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Row<'_> {
    type Value = Entry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{\"key\": …, \"value\": …}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Entry, A::Error> {
        let (mut key, mut value) = (Vec::new(), None);
        while let Some(name) = fields.next_key::<String>()? {
            match name.as_str() {
                "key" => match fields.next_value()? {
                    Value::Array(parts) => key = parts,
                    one => key.push(one),
                },
                "value" => value = Some(fields.next_value()?),
                other => return Err(A::Error::unknown_field(other, &["key", "value"])),
            }
        }
        checked(self.0, key, value).map_err(A::Error::custom)
    }
}

/// The entries of a table as CSV: [`read`] takes them back.
///
/// # Errors
/// Of the writer; there is none where the entries are of the table.
pub fn csv(shared: &Shared, entries: &[Entry]) -> csv::Result<Vec<u8>> {
    let mut writer = WriterBuilder::new().comment(Some(b'#')).from_writer(Vec::new());
    writer.write_record(head(shared))?;
    for entry in entries {
        writer.write_record(entry.key.iter().chain(entry.values()).map(word))?;
    }
    writer.into_inner().map_err(|error| error.into_error().into())
}

/// The entries of a table as JSON, one in a line: [`read`] takes them back.
///
/// # Errors
/// Of the writer.
pub fn json(entries: &[Entry]) -> serde_json::Result<Vec<u8>> {
    let mut text = b"[".to_vec();
    for (at, one) in entries.iter().enumerate() {
        text.extend_from_slice(if at == 0 { b"\n  " } else { b",\n  " });
        serde_json::to_writer(&mut text, &entry(one))?;
    }
    text.extend_from_slice(b"\n]\n");
    Ok(text)
}

/// An entry as JSON: a key of one part is not a list.
#[must_use]
pub fn entry(Entry { key, value }: &Entry) -> Value {
    match &key[..] {
        [] => json!({ "value": value }),
        [one] => json!({ "key": one, "value": value }),
        parts => json!({ "key": parts, "value": value }),
    }
}

/// A part of a key, or a value, as a word.
#[must_use]
pub fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table_protocol::{TableForm, TableStatus};
    use config::attachment::Tier;
    use proptest::prelude::*;

    fn status(form: TableForm, key: &[&str], value: &str) -> TableStatus {
        TableStatus {
            name: "it".to_owned(),
            form,
            key: key.iter().map(|name| (*name).to_owned()).collect(),
            value: value.split(' ').map(str::to_owned).collect::<Vec<_>>().into(),
            entries: 0,
            limit: 10,
            expires_ms: None,
            evicts: false,
            persistent: false,
            buckets: Vec::new(),
            scripts: vec![1],
            tier: Tier::User,
        }
    }

    fn set() -> Shared {
        status(TableForm::Prefixes, &["prefix"], "int").shared().expect("a set")
    }

    #[test]
    fn a_list_of_prefixes_as_they_are_published_is_a_file() {
        let text = b"# blocked\n2001:db8::/32\n\n 192.0.2.1 , 7\n10.0.0.0/8\r\n";
        let entries = read(&set(), text).expect("a file");
        let told: Vec<_> = entries.iter().map(|entry| (word(&entry.key[0]), word(&entry.value))).collect();
        let expected = [("2001:db8::/32", "1"), (" 192.0.2.1 ", " 7"), ("10.0.0.0/8", "1")];
        assert_eq!(told, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
        assert_eq!(read(&set(), b"").expect("nothing"), []);
    }

    #[test]
    fn what_is_wrong_has_its_line() {
        let wrong = |text: &str| read(&set(), text.as_bytes()).unwrap_err().to_string();
        assert_eq!(wrong("# a\n::/0\n\nfoo\n"), "4: \"foo\" is not a prefix, such as 2001:db8::/32");
        assert_eq!(wrong("::/0,1,2\n"), "1: 3 columns, and not 2: prefix,value");
        assert_eq!(wrong("::/0,1\n::/1,x"), "2: the value: int takes an integer of 64 bits, not \"x\"");
        let json = "[\n {\"key\": \"::/0\"},\n {\"key\": \"::/129\"},\n {\"key\": \"::/1\"}\n]";
        assert_eq!(wrong(json), "3: \"::/129\" is not a prefix, such as 2001:db8::/32");
        assert!(
            wrong("[\n{\"kye\": 1}]").starts_with("2: unknown field `kye`"),
            "{}",
            wrong("[\n{\"kye\": 1}]")
        );
        assert!(
            wrong("{}").starts_with("1: invalid type: map, expected a list of {\"key\""),
            "{}",
            wrong("{}")
        );
        assert!(wrong("[\n").starts_with("2: EOF"), "{}", wrong("[\n"));
        let table = status(TableForm::Table, &["ipv6", "int"], "text:4").shared().expect("a table");
        let wrong = |text: &str| read(&table, text.as_bytes()).unwrap_err().to_string();
        assert_eq!(wrong("::1,5"), "1: the value is missing");
        assert_eq!(wrong("::1"), "1: 1 columns, and not 3: key1,key2,value");
        assert_eq!(
            wrong("[{\"key\": \"::1\", \"value\": \"a\"}]"),
            "1: the key has 2 parts (ipv6, int), and 1 were given"
        );
        assert!(read(&table, b"\xff\xfe,1,a").unwrap_err().to_string().contains("UTF-8"));
    }

    /// What files are made of, and what looks like it.
    const PIECES: [&str; 29] = [
        "[",
        "]",
        "{",
        "}",
        "{\"key\":",
        "\"value\":",
        "\"",
        "\"\"",
        ",",
        ", ",
        ":",
        "\n",
        "\r\n",
        "#",
        "\\",
        "\\x00",
        "\\xff",
        "::1",
        "10.0.0.0/8",
        "02:00:00:00:00:01",
        "true",
        "5",
        "-5",
        "1e3",
        "9223372036854775808",
        "null",
        " ",
        "ä",
        "\0",
    ];

    /// Entries as the table has them.
    fn told(shared: &Shared, entries: &[Entry]) -> Vec<[Vec<u8>; 2]> {
        let entry = |entry: &Entry| {
            let [key, value] =
                [&entry.key[..], entry.values()].map(|parts| parts.iter().map(given).collect::<Vec<_>>());
            let (key, value) = (shared.key(&key), shared.value(&value));
            [key, value].map(|octets| octets.expect("it was read"))
        };
        entries.iter().map(entry).collect()
    }

    #[test]
    fn an_entry_of_empty_texts_is_no_empty_line() {
        let table = status(TableForm::Table, &["text:9"], "text:9").shared().expect("a table");
        let entries = [Entry { key: vec!["".into()], value: "".into() }];
        let written = csv(&table, &entries).expect("CSV");
        assert_eq!(read(&table, &written).expect("a file"), entries, "{}", String::from_utf8_lossy(&written));
        assert_eq!(read(&set(), b"::/0\n,\n").expect("a file").len(), 1);
    }

    proptest! {
        #[test]
        fn what_is_dumped_is_read_again(
            rows in proptest::collection::vec((any::<String>(), any::<i64>(), any::<String>()), 0..8),
        ) {
            let table = status(TableForm::Table, &["text:1024", "int"], "text:1024");
            let shared = table.shared().expect("a table");
            // As the host tells texts.
            let told = |text: &str| Value::from(text.replace('\\', "\\\\").replace(|c: char| c.is_control(), "\\x0a"));
            let entries: Vec<Entry> = rows.iter().map(|(text, number, value)| {
                Entry { key: vec![told(text), (*number).into()], value: told(value) }
            }).collect();
            prop_assert_eq!(&read(&shared, &json(&entries).expect("JSON")).expect("a file"), &entries);
            let csv = csv(&shared, &entries).expect("CSV");
            let read = read(&shared, &csv).expect("a file");
            let words = |entries: &[Entry]| -> Vec<Vec<String>> {
                entries.iter().map(|entry| entry.key.iter().chain([&entry.value]).map(word).collect()).collect()
            };
            prop_assert_eq!(words(&read), words(&entries));
        }

        /// What is read is read again as it is written, and the rest is refused.
        #[test]
        fn no_file_is_too_odd(
            octets: Vec<u8>,
            pieces in proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..24),
        ) {
            for (form, key, value) in [
                (TableForm::Prefixes, &["prefix"][..], "int"),
                (TableForm::Table, &["text:9"], "text:9"),
                (TableForm::Table, &["ipv6", "int"], "mac bool"),
                (TableForm::Counter, &[], "int"),
            ] {
                let shared = status(form, key, value).shared().expect("a table");
                for file in [&octets[..], pieces.concat().as_bytes()] {
                    let _ = read_json(&shared, file);
                    let Ok(entries) = read(&shared, file) else { continue };
                    let all = told(&shared, &entries);
                    for written in [csv(&shared, &entries).expect("CSV"), json(&entries).expect("JSON")] {
                        let again = read(&shared, &written);
                        let again = again.unwrap_or_else(|wrong| panic!("{wrong}: {written:?}"));
                        prop_assert_eq!(told(&shared, &again), all.clone(), "{:?}", written);
                    }
                }
            }
        }
    }
}
