//! What scripts have made by name and share: tables, counters, histograms, sets of prefixes, flows, streams.

use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::compile::shared::{Form, Part};
use crate::metric::{Histogram, Metric, MetricKind};
use crate::streams::Streams;
use crate::tables::{Prefixes, Table};

/// What scripts have made, by its name: for all machines that are given a copy, also in other threads. Each operation
/// is done as a whole, whatever the others do.
#[derive(Clone, Default)]
pub struct Tables(pub(super) Arc<Mutex<Named>>);

#[derive(Default)]
pub(super) struct Named {
    pub(super) tables: FxHashMap<String, Arc<ScriptTable>>,
    pub(super) counters: FxHashMap<String, Arc<AtomicI64>>,
    pub(super) histograms: FxHashMap<String, Arc<Histogram>>,
    pub(super) prefixes: FxHashMap<String, Arc<Mutex<Prefixes>>>,
    pub(super) flows: FxHashMap<String, Arc<Mutex<Flows>>>,
    pub(super) streams: FxHashMap<String, Arc<Mutex<Streams>>>,
    /// Names of what is to outlive the process.
    pub(super) persistent: FxHashSet<String>,
    /// What metrics export counters and histograms as, for as long as a state is there whose scripts have said it.
    metrics: FxHashMap<(String, MetricKind), Vec<Weak<Metric>>>,
}

impl Named {
    /// Notes whether what has this name is to outlive the process.
    pub(super) fn keep(&mut self, name: &str, persistent: bool) {
        if persistent {
            self.persistent.insert(name.to_owned());
        } else {
            self.persistent.remove(name);
        }
    }

    /// Notes what metrics export it as, as long as somebody keeps that.
    pub(super) fn export(&mut self, name: &str, kind: MetricKind, metric: &Arc<Metric>) {
        let said = self.metrics.entry((name.to_owned(), kind)).or_default();
        said.retain(|known| known.strong_count() > 0);
        said.push(Arc::downgrade(metric));
    }

    /// What was said last, of those who are still there.
    pub(super) fn metric(&self, name: &str, kind: MetricKind) -> Option<Arc<Metric>> {
        self.metrics.get(&(name.to_owned(), kind))?.iter().rev().find_map(Weak::upgrade)
    }
}

/// Nothing is left half done by what panics: each entry is written as a whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A table with the parts of its keys and of its values.
pub(super) struct ScriptTable {
    pub(super) key: Vec<Part>,
    pub(super) value: Vec<Part>,
    pub(super) entries: Mutex<Table<Vec<u8>>>,
}

impl ScriptTable {
    /// What was declared.
    pub(super) fn form(&self) -> Form {
        let shape = lock(&self.entries).shape();
        Form::Table { key: self.key.clone(), value: self.value.clone(), shape }
    }
}

/// Flows, and the names that scripts have given to the integers of each.
pub(super) struct Flows {
    pub(super) names: Vec<String>,
    /// The first integer says in which direction the first packet went.
    pub(super) entries: Table<Vec<i64>>,
}
