//! What scripts have made by name and share: tables, counters, sets of prefixes, flows.

use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use crate::kind::Kind;
use crate::tables::{Prefixes, Table};

/// What scripts have made, by its name: for all machines that are given a copy, also in other threads. Each operation
/// is done as a whole, whatever the others do.
#[derive(Clone, Default)]
pub struct Tables(pub(super) Arc<Mutex<Named>>);

#[derive(Default)]
pub(super) struct Named {
    pub(super) tables: FxHashMap<String, Arc<ScriptTable>>,
    pub(super) counters: FxHashMap<String, Arc<AtomicI64>>,
    pub(super) prefixes: FxHashMap<String, Arc<Mutex<Prefixes>>>,
    pub(super) flows: FxHashMap<String, Arc<Mutex<Flows>>>,
}

/// Nothing is left half done by what panics: each entry is written as a whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a part of a key, or a value, is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// An integer, a boolean or an address, by its kind.
    Kind(Kind),
    /// A string of at most so many octets.
    Text(usize),
}

/// A table with the forms of its keys and values.
pub(super) struct ScriptTable {
    pub(super) key: Vec<Form>,
    pub(super) value: Form,
    pub(super) entries: Mutex<Table<Vec<u8>>>,
}

/// Flows, and the names that scripts have given to the integers of each.
pub(super) struct Flows {
    pub(super) names: Vec<String>,
    /// The first integer says in which direction the first packet went.
    pub(super) entries: Table<Vec<i64>>,
}
