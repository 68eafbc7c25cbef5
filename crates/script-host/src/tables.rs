//! Tables of scripts, asked for and changed from outside.

use config::attachment::Tier;
use linux::clock::monotonic_ms;
use script::compile::shared::{Form, Shared};
use script::contents::{Contents, put};
use script::entry::{self, key_prefix};
use script::store::Given;
use script::vm::outside::Named;
use serde_json::Value;

use super::error::RequestError;
use super::group::Key;
use super::kernel_table::KernelTable;
use super::table_protocol::{
    Done, Dump, Entry, Operation, TableList, TableName, TableStatus, given, told, value_of,
};
use super::{Host, document};

/// A table of scripts that share it.
pub(super) struct Table<'a> {
    pub(super) contents: Tiered<'a>,
    /// The name of their state.
    pub(super) state: String,
    pub(super) scripts: Vec<u32>,
}

/// What is in a table, in either tier.
pub(super) enum Tiered<'a> {
    User(Named),
    Kernel(KernelTable<'a>),
}

impl Host {
    /// What there is.
    pub(super) fn table_list(&self) -> Result<TableList, RequestError> {
        let tables = self.tables().iter().map(Table::status).collect::<Result<_, _>>()?;
        Ok(TableList { tables })
    }

    /// Does something with a table, and says what came of it.
    pub(super) fn table(&self, name: &TableName, operation: &Operation) -> Result<Value, RequestError> {
        let table = self.table_named(name)?;
        let (contents, shared) = (&table.contents, table.contents.shared());
        match operation {
            Operation::Get { key } => document(&table.get(key)?),
            Operation::Put { entries, replace } => {
                let done = put(contents, octets_of(shared, entries)?, *replace)?;
                document(&Done { written: done.written, removed: done.removed })
            }
            Operation::Delete { key } => {
                let removed = contents.remove(&[key_of(shared, key)?])?;
                document(&Done { written: 0, removed })
            }
            Operation::Clear => {
                let keys: Vec<_> = contents.entries()?.into_iter().map(|entry| entry.key).collect();
                document(&Done { written: 0, removed: contents.remove(&keys)? })
            }
            Operation::Describe => document(&table.status()?),
            Operation::Dump => document(&table.dump()?),
        }
    }

    /// All tables, of each state in turn.
    pub(super) fn tables(&self) -> Vec<Table<'_>> {
        let mut done = Vec::new();
        let mut all = Vec::new();
        for script in &self.scripts {
            if done.contains(&&script.key) {
                continue;
            }
            done.push(&script.key);
            let mut sharing = self.scripts.iter().filter(|other| other.key == script.key);
            all.extend(self.tables_of(&script.key, sharing.any(|script| script.runs.user().is_some())));
        }
        all
    }

    /// Those of a state.
    pub(super) fn tables_of(&self, key: &Key, in_user_tier: bool) -> Vec<Table<'_>> {
        let sharing = self.scripts.iter().filter(|script| script.key == *key);
        let scripts: Vec<u32> = sharing.map(|script| script.id).collect();
        let contents: Vec<Tiered<'_>> = if in_user_tier {
            let tables = self.group(key).map(|group| group.tables.all(monotonic_ms()));
            tables.into_iter().flatten().map(Tiered::User).collect()
        } else {
            let maps = self.maps.iter().find(|(known, _)| known == key);
            maps.into_iter().flat_map(|(_, maps)| maps.tables()).map(Tiered::Kernel).collect()
        };
        let table = |contents| Table { contents, state: key.to_string(), scripts: scripts.clone() };
        contents.into_iter().map(table).collect()
    }

    fn table_named(&self, TableName { name, script }: &TableName) -> Result<Table<'_>, RequestError> {
        let mut tables = self.tables();
        if let Some(script) = script {
            let ids = self.named(script)?;
            tables.retain(|table| table.scripts.iter().any(|id| ids.contains(id)));
        }
        let there: Vec<String> = tables.iter().map(|table| table.contents.shared().name.clone()).collect();
        tables.retain(|table| table.contents.shared().name == *name);
        match tables.len() {
            0 => Err(RequestError::NoTable { name: name.clone(), there }),
            1 => Ok(tables.remove(0)),
            _ => {
                let scripts = tables.iter().map(|table| table.scripts.clone()).collect();
                Err(RequestError::SeveralTables { name: name.clone(), scripts })
            }
        }
    }
}

impl Table<'_> {
    fn status(&self) -> Result<TableStatus, RequestError> {
        let tier = match self.contents {
            Tiered::User(_) => Tier::User,
            Tiered::Kernel(_) => Tier::Kernel,
        };
        let entries = self.contents.count()?;
        Ok(TableStatus::of(self.contents.shared(), entries, self.scripts.clone(), tier))
    }

    fn get(&self, told: &[Value]) -> Result<Option<Entry>, RequestError> {
        let shared = self.contents.shared();
        let key = key_of(shared, told)?;
        if matches!(shared.form, Form::Prefixes { .. })
            && told.iter().all(|told| told.as_str().is_some_and(|told| !told.contains('/')))
            && let Some(address) = key_prefix(&key)
        {
            let holds =
                |entry: &entry::Entry| key_prefix(&entry.key).filter(|prefix| prefix.contains(&address));
            let holding =
                self.contents.entries()?.into_iter().filter_map(|entry| Some((holds(&entry)?, entry)));
            let longest = holding.max_by_key(|(prefix, _)| prefix.prefix_len());
            return Ok(longest.map(|(_, entry)| tell(shared, &entry)));
        }
        let value = self.contents.get(&key)?;
        Ok(value.map(|value| tell(shared, &entry::Entry { key, value })))
    }

    /// All that is in it, in the order of its keys.
    pub(super) fn dump(&self) -> Result<Dump, RequestError> {
        let shared = self.contents.shared();
        if let Form::Flows { .. } = shared.form {
            return Err(entry::EntryError::Flows.into());
        }
        let mut entries = self.contents.entries()?;
        match shared.form {
            Form::Prefixes { .. } => entries.sort_by_cached_key(|entry| key_prefix(&entry.key)),
            _ => entries.sort_unstable(),
        }
        let entries = entries.iter().map(|entry| tell(shared, entry)).collect();
        Ok(Dump { table: self.status()?, entries })
    }
}

/// Entries as a table has them.
pub(super) fn octets_of(shared: &Shared, entries: &[Entry]) -> Result<Vec<entry::Entry>, RequestError> {
    let octets = |entry: &Entry| {
        let value: Vec<Given<'_>> = entry.values().iter().map(given).collect();
        Ok(entry::Entry { key: key_of(shared, &entry.key)?, value: shared.value(&value)? })
    };
    entries.iter().map(octets).collect()
}

fn key_of(shared: &Shared, told: &[Value]) -> Result<Vec<u8>, RequestError> {
    let parts: Vec<Given<'_>> = told.iter().map(given).collect();
    Ok(shared.key(&parts)?)
}

fn tell(shared: &Shared, entry: &entry::Entry) -> Entry {
    let key = shared.key_told(&entry.key).into_iter().map(told).collect();
    let value = shared.value_told(&entry.value).into_iter().map(told).collect();
    Entry { key, value: value_of(value) }
}

impl Contents for Tiered<'_> {
    type Error = linux::Error;

    fn shared(&self) -> &Shared {
        match self {
            Self::User(table) => table.shared(),
            Self::Kernel(table) => table.shared(),
        }
    }

    fn entries(&self) -> linux::Result<Vec<entry::Entry>> {
        match self {
            Self::User(table) => table.entries().map_err(|never| match never {}),
            Self::Kernel(table) => table.entries(),
        }
    }

    fn count(&self) -> linux::Result<usize> {
        match self {
            Self::User(table) => table.count().map_err(|never| match never {}),
            Self::Kernel(table) => table.count(),
        }
    }

    fn room(&self) -> linux::Result<usize> {
        match self {
            Self::User(table) => table.room().map_err(|never| match never {}),
            Self::Kernel(table) => table.room(),
        }
    }

    fn get(&self, key: &[u8]) -> linux::Result<Option<Vec<u8>>> {
        match self {
            Self::User(table) => table.get(key).map_err(|never| match never {}),
            Self::Kernel(table) => table.get(key),
        }
    }

    fn write(&self, entries: &[entry::Entry]) -> linux::Result<usize> {
        match self {
            Self::User(table) => table.write(entries).map_err(|never| match never {}),
            Self::Kernel(table) => table.write(entries),
        }
    }

    fn remove(&self, keys: &[Vec<u8>]) -> linux::Result<usize> {
        match self {
            Self::User(table) => table.remove(keys).map_err(|never| match never {}),
            Self::Kernel(table) => table.remove(keys),
        }
    }
}
