//! What is in a table of scripts in the kernel: one map, or one for each IP version of a set of prefixes. Counters and
//! histograms have numbers that always are there.

use std::mem::discriminant;
use std::sync::Arc;

use linux::bpf::Map;
use linux::clock::monotonic_ms;
use script::compile::shared::{self, Form, MapPart, Shared};
use script::contents::Contents;
use script::entry::Entry;

use crate::kernel::Maps;
use crate::maps::{room, whole, whole_entries};

/// A table, a counter, a histogram, a set of prefixes or flows.
pub(super) struct KernelTable<'a>(Vec<&'a (shared::Map, Arc<Map>)>);

impl Maps {
    /// What programs use; of several of one name that an earlier text has left, the last.
    pub(super) fn tables(&self) -> Vec<KernelTable<'_>> {
        let mut tables: Vec<KernelTable<'_>> = Vec::new();
        for map in self.all().iter().rev().filter(|(map, _)| map.part != MapPart::Locks) {
            let Shared { name, form, .. } = &*map.0.shared;
            let same =
                |known: &Shared| known.name == *name && discriminant(&known.form) == discriminant(form);
            match tables.iter_mut().find(|table| same(table.shared())) {
                None => tables.push(KernelTable(vec![map])),
                Some(table) => {
                    let (first, _) = table.0[0];
                    let is_other_half = matches!(form, Form::Prefixes { .. }) && table.0.len() == 1;
                    if is_other_half && first.part != map.0.part && first.measures().3 == map.0.measures().3 {
                        table.0.push(map);
                    }
                }
            }
        }
        tables.sort_by(|one, other| one.shared().name.cmp(&other.shared().name));
        tables
    }
}

impl Contents for KernelTable<'_> {
    type Error = linux::Error;

    fn shared(&self) -> &Shared {
        &self.0[0].0.shared
    }

    fn entries(&self) -> linux::Result<Vec<Entry>> {
        let now_ms = monotonic_ms();
        let mut entries = Vec::new();
        for (meaning, map) in &self.0 {
            let all: Vec<_> = match self.shared().places() {
                Some(places) => {
                    let number = |key: Vec<u8>| Ok(map.lookup(&key)?.map(|value| (key, value)));
                    let all = places.iter().map(|place| number(meaning.key(place)));
                    all.filter_map(linux::Result::transpose).collect::<linux::Result<_>>()?
                }
                None => whole_entries(meaning, map)?,
            };
            entries.extend(all.iter().filter_map(|(key, value)| meaning.entry(key, value, now_ms)));
        }
        Ok(entries)
    }

    fn room(&self) -> linux::Result<usize> {
        match self.shared().evicts() {
            true => Ok(room(&self.0[0].0)? as usize),
            false => Ok(self.shared().limit()),
        }
    }

    fn get(&self, key: &[u8]) -> linux::Result<Option<Vec<u8>>> {
        if let Form::Prefixes { .. } = self.shared().form {
            // The kernel would find one that holds it.
            return Ok(self.entries()?.into_iter().find(|entry| entry.key == key).map(|entry| entry.value));
        }
        let (meaning, map) = self.0[0];
        let octets = meaning.key(key);
        let value = whole(meaning, map, &octets)?;
        Ok(value.and_then(|value| meaning.entry(&octets, &value, monotonic_ms())).map(|entry| entry.value))
    }

    fn write(&self, entries: &[Entry]) -> linux::Result<usize> {
        let now_ms = monotonic_ms();
        let mut written = 0;
        for (meaning, map) in &self.0 {
            let own = entries.iter().filter(|entry| meaning.has(&entry.key));
            let own: Vec<_> = own.map(|entry| meaning.pair(entry, now_ms)).collect();
            if self.shared().places().is_some() {
                own.iter().try_for_each(|(key, value)| map.set(key, value))?;
                written += own.len();
                continue;
            }
            let mut done = map.set_all(&own)?;
            if done < own.len() {
                // What has expired has its place until then.
                self.remove_expired()?;
                done += map.set_all(&own[done..])?;
            }
            written += done;
        }
        Ok(written)
    }

    fn remove(&self, keys: &[Vec<u8>]) -> linux::Result<usize> {
        let mut removed = 0;
        for (meaning, map) in &self.0 {
            let own: Vec<_> =
                keys.iter().filter(|key| meaning.has(key)).map(|key| meaning.key(key)).collect();
            if self.shared().places().is_some() {
                own.iter().try_for_each(|key| map.set(key, &[0; 8]))?;
                removed += own.len();
                continue;
            }
            removed += map.remove_all(&own)?;
        }
        Ok(removed)
    }
}

impl KernelTable<'_> {
    fn remove_expired(&self) -> linux::Result<()> {
        let now_ms = monotonic_ms();
        for (meaning, map) in &self.0 {
            let mut entries = map.entries()?;
            entries.retain(|(key, value)| meaning.entry(key, value, now_ms).is_none());
            let keys: Vec<_> = entries.into_iter().map(|(key, _)| key).collect();
            map.remove_all(&keys)?;
        }
        Ok(())
    }
}
