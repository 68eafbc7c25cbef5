//! What scripts have made by name and share: tables, counters, histograms, sets of prefixes, flows, streams.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
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
    /// How many of these names were made by packets.
    pub(super) late: usize,
    /// Octets of work that was put off, wherever it waits.
    waiting: Arc<AtomicUsize>,
    /// What metrics export counters and histograms as, for as long as a state is there whose scripts have said it.
    metrics: FxHashMap<(String, MetricKind), Vec<Weak<Metric>>>,
}

/// Octets that wait with work that was put off, until it is done or left out.
pub(crate) struct Waiting {
    octets: usize,
    all: Arc<AtomicUsize>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.all.fetch_sub(self.octets, Ordering::Relaxed);
    }
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
        // Packets may say it again and again.
        said.retain(|known| known.strong_count() > 0 && known.as_ptr() != Arc::as_ptr(metric));
        said.push(Arc::downgrade(metric));
    }

    /// Has so many octets wait with work that is put off; none if there would be more than `most`.
    pub(super) fn wait(&self, octets: usize, most: usize) -> Option<Waiting> {
        let more = |waiting: usize| waiting.checked_add(octets).filter(|sum| *sum <= most);
        self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Waiting { octets, all: Arc::clone(&self.waiting) })
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
