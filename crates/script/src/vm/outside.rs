//! Tables of Lua, read and written from outside.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use super::named::{Flows, ScriptTable, Tables, lock};
use crate::compile::shared::{Form, Shared};
use crate::contents::Contents;
use crate::entry::{Entry, integer, key_place, key_prefix, place_key, prefix_key};
use crate::metric::{Histogram, MetricKind};
use crate::tables::Prefixes;

/// Entries that are written in one go: packets wait for no more.
const SHARE: usize = 1000;

/// A table, a counter, a histogram, a set of prefixes or flows, at a moment.
pub struct Named {
    shared: Shared,
    object: Object,
    now_ms: u64,
}

enum Object {
    Table(Arc<ScriptTable>),
    Counter(Arc<AtomicI64>),
    Histogram(Arc<Histogram>),
    Prefixes(Arc<Mutex<Prefixes>>),
    Flows(Arc<Mutex<Flows>>),
}

impl Tables {
    /// All that there is, in the order of its names, at this time of the scripts' clock.
    pub fn all(&self, now_ms: u64) -> Vec<Named> {
        let named = lock(&self.0);
        let mut all = BTreeMap::new();
        let mut add = |name: &String, kind: u8, form: Form, object: Object| {
            let persistent = named.persistent.contains(name);
            let metric = match form {
                Form::Counter => named.metric(name, MetricKind::Counter),
                Form::Histogram { .. } => named.metric(name, MetricKind::Histogram),
                Form::Table { .. } | Form::Prefixes { .. } | Form::Flows { .. } => None,
            };
            let shared = Shared { name: name.clone(), form, persistent, metric };
            all.insert((name.clone(), kind), Named { shared, object, now_ms });
        };
        for (name, table) in &named.tables {
            add(name, 0, table.form(), Object::Table(Arc::clone(table)));
        }
        for (name, set) in &named.prefixes {
            let form = Form::Prefixes { limit: lock(set).limit(), entries: Vec::new() };
            add(name, 1, form, Object::Prefixes(Arc::clone(set)));
        }
        for (name, counter) in &named.counters {
            add(name, 2, Form::Counter, Object::Counter(Arc::clone(counter)));
        }
        for (name, flows) in &named.flows {
            let form = Form::Flows { shape: lock(flows).entries.shape(), names: Vec::new() };
            add(name, 3, form, Object::Flows(Arc::clone(flows)));
        }
        for (name, histogram) in &named.histograms {
            let form = Form::Histogram { bounds: histogram.bounds().into() };
            add(name, 4, form, Object::Histogram(Arc::clone(histogram)));
        }
        all.into_values().collect()
    }
}

impl Contents for Named {
    type Error = Infallible;

    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn entries(&self) -> Result<Vec<Entry>, Infallible> {
        let number = |value: i64| value.to_be_bytes().to_vec();
        Ok(match &self.object {
            Object::Table(table) => {
                let entries = lock(&table.entries);
                let entries = entries.iter(self.now_ms);
                entries.map(|(key, value)| Entry { key: key.to_vec(), value: value.clone() }).collect()
            }
            Object::Counter(counter) => {
                vec![Entry { key: Vec::new(), value: number(counter.load(Ordering::Relaxed)) }]
            }
            Object::Histogram(histogram) => (0..self.shared.limit())
                .filter_map(|place| Some((place_key(place), number(histogram.number(place)?))))
                .map(|(key, value)| Entry { key, value })
                .collect(),
            Object::Prefixes(set) => {
                let set = lock(set);
                set.iter()
                    .map(|(prefix, value)| Entry { key: prefix_key(prefix), value: number(value) })
                    .collect()
            }
            Object::Flows(flows) => {
                let flows = lock(flows);
                let entries = flows.entries.iter(self.now_ms);
                entries.map(|(key, _)| Entry { key: key.to_vec(), value: Vec::new() }).collect()
            }
        })
    }

    fn count(&self) -> Result<usize, Infallible> {
        Ok(match &self.object {
            Object::Table(table) => lock(&table.entries).count(self.now_ms),
            Object::Counter(_) | Object::Histogram(_) => self.shared.limit(),
            Object::Prefixes(set) => lock(set).count(),
            Object::Flows(flows) => lock(flows).entries.count(self.now_ms),
        })
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Infallible> {
        let number = |value: i64| value.to_be_bytes().to_vec();
        Ok(match &self.object {
            Object::Table(table) => lock(&table.entries).get(key, self.now_ms).cloned(),
            Object::Counter(counter) => Some(number(counter.load(Ordering::Relaxed))),
            Object::Histogram(histogram) => {
                key_place(key).and_then(|place| histogram.number(place)).map(number)
            }
            Object::Prefixes(set) => key_prefix(key).and_then(|prefix| lock(set).get(prefix)).map(number),
            Object::Flows(_) => None,
        })
    }

    fn write(&self, entries: &[Entry]) -> Result<usize, Infallible> {
        let mut written = 0;
        for share in entries.chunks(SHARE) {
            let fit = match &self.object {
                Object::Table(table) => {
                    let mut table = lock(&table.entries);
                    let mut set = |Entry { key, value }: &Entry| {
                        table.entry(key, self.now_ms, Vec::new).map(|entry| entry.clone_from(value)).is_some()
                    };
                    share.iter().take_while(|entry| set(entry)).count()
                }
                Object::Counter(counter) => {
                    share.iter().for_each(|entry| counter.store(integer(&entry.value), Ordering::Relaxed));
                    share.len()
                }
                Object::Histogram(histogram) => {
                    let set = |Entry { key, value }: &&Entry| {
                        key_place(key).is_some_and(|place| histogram.set(place, integer(value)))
                    };
                    share.iter().take_while(set).count()
                }
                Object::Prefixes(set) => {
                    let mut set = lock(set);
                    let mut add = |Entry { key, value }: &Entry| {
                        key_prefix(key).is_some_and(|prefix| set.add(prefix, integer(value)))
                    };
                    share.iter().take_while(|entry| add(entry)).count()
                }
                Object::Flows(_) => 0,
            };
            written += fit;
            if fit < share.len() {
                break;
            }
        }
        Ok(written)
    }

    fn remove(&self, keys: &[Vec<u8>]) -> Result<usize, Infallible> {
        let mut removed = 0;
        for share in keys.chunks(SHARE) {
            removed += match &self.object {
                Object::Table(table) => {
                    let mut table = lock(&table.entries);
                    share.iter().filter(|key| table.remove(key, self.now_ms)).count()
                }
                Object::Counter(counter) => {
                    share.iter().for_each(|_| counter.store(0, Ordering::Relaxed));
                    share.len()
                }
                Object::Histogram(histogram) => {
                    let clear = |key: &&Vec<u8>| key_place(key).is_some_and(|place| histogram.set(place, 0));
                    share.iter().filter(clear).count()
                }
                Object::Prefixes(set) => {
                    let mut set = lock(set);
                    share
                        .iter()
                        .filter(|key| key_prefix(key).is_some_and(|prefix| set.remove(prefix)))
                        .count()
                }
                Object::Flows(flows) => {
                    let mut flows = lock(flows);
                    share.iter().filter(|key| flows.entries.remove(key, self.now_ms)).count()
                }
            };
        }
        Ok(removed)
    }
}
