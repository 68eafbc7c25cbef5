//! What the script host is asked about tables, and what it says of them.

use config::attachment::Tier;
use script::compile::shared::{Form, Part, Shared};
use script::kind;
use script::store::Given;
use script::tables::{Shape, WhenFull};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Which table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableName {
    /// As the script has named it.
    pub name: String,
    /// A script that uses it, by its number or absolute path: where several have one of this name.
    #[serde(default)]
    pub script: Option<String>,
}

/// What is done with a table. Keys are lists of their parts; numbers may be texts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Operation {
    /// An [`Entry`], or null: that of this key; of a set of prefixes, and an address, that of the longest that holds it.
    Get {
        /// Its key.
        key: Vec<Value>,
    },
    /// Write entries, each as a whole, or none if one is wrong or there is no room: [`Done`].
    Put {
        /// Them.
        entries: Vec<Entry>,
        /// All others go.
        replace: bool,
    },
    /// Forget an entry: [`Done`]. A counter is 0 then.
    Delete {
        /// Its key.
        key: Vec<Value>,
    },
    /// Forget all: [`Done`].
    Clear,
    /// What was declared: [`TableStatus`].
    Describe,
    /// All that is in it: [`Dump`].
    Dump,
}

/// A key and its value. The field names are a contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its parts: none for a counter.
    pub key: Vec<Value>,
    /// What there is for it; of a record, the list of its parts.
    pub value: Value,
}

impl Entry {
    /// The parts of its value.
    #[must_use]
    pub fn values(&self) -> &[Value] {
        match &self.value {
            Value::Array(parts) => parts,
            one => std::slice::from_ref(one),
        }
    }
}

/// Values as an entry has them: one, or the parts of a record.
#[must_use]
pub fn value_of(mut parts: Vec<Value>) -> Value {
    if parts.len() == 1 { parts.remove(0) } else { parts.into() }
}

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Entries that were written.
    pub written: usize,
    /// Entries that were forgotten.
    pub removed: usize,
}

/// All tables. The field names are a contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableList {
    /// In the order in which their scripts were loaded, and of their names.
    pub tables: Vec<TableStatus>,
}

/// A table and what is in it. The field names are a contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dump {
    /// Which.
    pub table: TableStatus,
    /// In the order of their keys.
    pub entries: Vec<Entry>,
}

/// What a script has made with a name. The field names are a contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableStatus {
    /// Its name; that of the flows of scripts that make no table of them is empty.
    pub name: String,
    /// What it is.
    pub form: TableForm,
    /// Kinds of the parts of a key.
    pub key: Vec<String>,
    /// Kind of the values; of records, the kinds of their parts.
    pub value: Kinds,
    /// How many entries there are.
    pub entries: usize,
    /// How many there may be.
    pub limit: usize,
    /// Milliseconds after which an entry that was not written is forgotten.
    pub expires_ms: Option<u64>,
    /// Whether a full one forgets the oldest entry rather than refuse the new one.
    pub evicts: bool,
    /// Whether what is in it outlives the script host.
    pub persistent: bool,
    /// Of a histogram, the largest value of each bucket but the last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<i64>,
    /// The scripts that share it.
    pub scripts: Vec<u32>,
    /// Where it is: in the kernel, or with Lua.
    pub tier: Tier,
}

/// A kind, or those of the parts of a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Kinds {
    /// Of what is no record.
    One(String),
    /// Of a record.
    Record(Vec<String>),
}

impl Kinds {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[String] {
        match self {
            Self::One(kind) => std::slice::from_ref(kind),
            Self::Record(kinds) => kinds,
        }
    }
}

impl From<Vec<String>> for Kinds {
    fn from(mut kinds: Vec<String>) -> Self {
        if kinds.len() == 1 { Self::One(kinds.remove(0)) } else { Self::Record(kinds) }
    }
}

/// What there is by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TableForm {
    /// `nf.table`
    Table,
    /// `nf.prefixes`
    Prefixes,
    /// `nf.counter`
    Counter,
    /// `nf.histogram`
    Histogram,
    /// `nf.flows`
    Flows,
}

impl TableForm {
    /// Its name in scripts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Prefixes => "prefixes",
            Self::Counter => "counter",
            Self::Histogram => "histogram",
            Self::Flows => "flows",
        }
    }
}

impl TableStatus {
    /// Of what was declared.
    pub(super) fn of(shared: &Shared, entries: usize, scripts: Vec<u32>, tier: Tier) -> Self {
        let (form, shape) = match &shared.form {
            Form::Table { shape, .. } => (TableForm::Table, Some(shape)),
            Form::Flows { shape, .. } => (TableForm::Flows, Some(shape)),
            Form::Prefixes { .. } => (TableForm::Prefixes, None),
            Form::Counter => (TableForm::Counter, None),
            Form::Histogram { .. } => (TableForm::Histogram, None),
        };
        let buckets = match &shared.form {
            Form::Histogram { bounds } => bounds.to_vec(),
            _ => Vec::new(),
        };
        Self {
            name: shared.name.clone(),
            form,
            key: shared.key_names(),
            value: shared.value_names().into(),
            entries,
            limit: shared.limit(),
            expires_ms: shape.and_then(|shape| shape.expires_ms),
            evicts: shared.evicts(),
            persistent: shared.persistent,
            buckets,
            scripts,
            tier,
        }
    }

    /// What was declared; none if another version has said it.
    pub fn shared(&self) -> Option<Shared> {
        let when_full = if self.evicts { WhenFull::Oldest } else { WhenFull::Refuse };
        let shape = Shape { limit: self.limit, expires_ms: self.expires_ms, when_full };
        let form = match self.form {
            TableForm::Table => {
                Form::Table { key: parts(&self.key)?, value: parts(self.value.all())?, shape }
            }
            TableForm::Flows => Form::Flows { shape, names: Vec::new() },
            TableForm::Prefixes => Form::Prefixes { limit: self.limit, entries: Vec::new() },
            TableForm::Counter => Form::Counter,
            TableForm::Histogram => Form::Histogram { bounds: self.buckets.clone().into() },
        };
        Some(Shared { name: self.name.clone(), form, persistent: self.persistent, metric: None })
    }
}

fn parts(names: &[String]) -> Option<Vec<Part>> {
    names.iter().map(|name| Part::from_name(name)).collect()
}

/// What a JSON value gives to a table.
pub fn given(value: &Value) -> Given<'_> {
    match value {
        Value::Bool(value) => Given::Bool(*value),
        Value::String(text) => Given::Text(text.as_bytes()),
        Value::Number(number) => match number.as_i64() {
            Some(number) => Given::Int(number),
            None => Given::Other("number that is no integer of 64 bits"),
        },
        Value::Null => Given::Other("null"),
        Value::Array(_) => Given::Other("list"),
        Value::Object(_) => Given::Other("object"),
    }
}

/// What a table tells as JSON.
pub(super) fn told(value: kind::Value) -> Value {
    match value {
        kind::Value::Int(value) => value.into(),
        kind::Value::Bool(value) => value.into(),
        // Texts are told with escapes: nothing is lost.
        kind::Value::Text(text) => String::from_utf8_lossy(&text).into(),
    }
}
