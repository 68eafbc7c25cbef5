//! Keeping tables over the life of the host: they are written now and then, and filled before a packet comes.

use std::time::Instant;

use script::contents::{Contents as _, put};
use script::entry::Entry;
use tracing::warn;

use super::Host;
use super::error::RequestError;
use super::group::Key;
use super::persistent::{EVERY, SHARE, State};
use super::table_protocol::{Dump, TableStatus};
use super::tables::{Table, octets_of};

impl Host {
    /// Puts into the tables of a state what an earlier host has left, before a packet comes.
    pub(super) fn restore(&self, key: &Key, in_user_tier: bool) {
        let Some(state) = self.persistent.waiting.iter().find(|state| state.name == key.to_string()) else {
            return;
        };
        for table in self.tables_of(key, in_user_tier) {
            let Some(dump) = kept(state, &table) else { continue };
            let (name, of) = (&dump.table.name, dump.entries.len());
            let what = match fill(&table, dump) {
                Ok(kept) if kept == of => continue,
                Ok(kept) => format!("table {name:?} has room for {kept} of its {of} entries"),
                Err(error) => format!("table {name:?} begins empty: {error}"),
            };
            warn!("{key}: {what}");
            self.common.log.add(0, &format!("{key}: {what}"));
        }
    }

    /// Notes that the tables of a state are there again: what was left of them is old from now on.
    pub(super) fn restored(&mut self, key: &Key) {
        let state = key.to_string();
        let tables = self.tables();
        let own = tables.iter().filter(|table| table.state == state);
        let there: Vec<String> = own.map(|table| table.contents.shared().name.clone()).collect();
        drop(tables);
        for waiting in self.persistent.waiting.iter_mut().filter(|waiting| waiting.name == state) {
            waiting.tables.retain(|dump| !there.contains(&dump.table.name));
        }
    }

    /// Forgets what is left of a state whose last script is unloaded.
    pub(super) fn forget(&mut self, key: &Key) {
        if self.scripts.iter().all(|script| script.key != *key) {
            let name = key.to_string();
            self.persistent.waiting.retain(|state| state.name != name);
        }
    }

    /// Keeps what there is after scripts were loaded or unloaded, and from then on.
    pub(super) fn keep(&mut self) {
        let any = self.tables().iter().any(|table| table.contents.shared().persistent);
        let had = self.persistent.due.is_some();
        self.persistent.due = any.then(|| self.persistent.due.unwrap_or_else(|| Instant::now() + EVERY));
        if had || any {
            self.save();
        }
    }

    /// Writes what scripts have asked to keep, and says so where that fails.
    pub(super) fn save(&mut self) {
        let began = Instant::now();
        let saved = self.states().and_then(|states| Ok(self.persistent.write(&states)?));
        if let Err(error) = saved {
            let what = format!("{}: tables are not kept: {error}", self.persistent.path.display());
            warn!("{what}");
            self.common.log.add(0, &what);
        }
        let rest = EVERY.max(began.elapsed() * SHARE);
        self.persistent.due = self.persistent.due.map(|_| Instant::now() + rest);
    }

    /// What is to be kept: what there is, and what still waits for its scripts.
    fn states(&self) -> Result<Vec<State>, RequestError> {
        let mut states: Vec<State> = Vec::new();
        let mut add = |name: String, dump: Dump| match states.iter_mut().find(|state| state.name == name) {
            Some(state) => state.tables.push(dump),
            None => states.push(State { name, tables: vec![dump] }),
        };
        for table in self.tables().iter().filter(|table| table.contents.shared().persistent) {
            add(table.state.clone(), table.dump()?);
        }
        for state in &self.persistent.waiting {
            state.tables.iter().for_each(|dump| add(state.name.clone(), dump.clone()));
        }
        Ok(states)
    }
}

/// What an earlier host has left of a table that is to be kept.
fn kept<'s>(state: &'s State, table: &Table<'_>) -> Option<&'s Dump> {
    let shared = table.contents.shared();
    state.tables.iter().find(|dump| shared.persistent && dump.table.name == shared.name)
}

/// Puts it there, if it still is what the script has declared; of a table that evicts, as much as there is room for. How many
/// entries are there then.
fn fill(table: &Table<'_>, dump: &Dump) -> Result<usize, RequestError> {
    let now = TableStatus::of(table.contents.shared(), 0, Vec::new(), dump.table.tier);
    let kinds = |status: &TableStatus| {
        (status.form, status.key.clone(), status.value.clone(), status.buckets.clone())
    };
    if kinds(&now) != kinds(&dump.table) {
        return Err(RequestError::OtherKinds);
    }
    let mut entries: Vec<Entry> = octets_of(table.contents.shared(), &dump.entries)?;
    if table.contents.shared().evicts() {
        entries.truncate(table.contents.room()?);
    }
    Ok(put(&table.contents, entries, false)?.written)
}
