//! The maps of scripts in the kernel: which there are, and what is in them when a program comes to use them.

use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::Arc;

use linux::bpf::{Map, MapKind};
use linux::clock::monotonic_ms;
use script::compile::Compiled;
use script::compile::shared::{self, Form, MapKind as Kind, MapPart, Shared};

/// Places that the kernel takes for a processor at once in a map that evicts (`LOCAL_FREE_TARGET` of kernel/bpf/bpf_lru_list.c;
/// since Linux 6.17 fewer in small maps). What is missing of them it takes from entries that are there, however many places
/// other processors have that nothing is in. So with as many more for each, none goes before there are as many as the limit.
const PLACES: usize = 128;
/// Octets at the beginning of a value that say when it was written.
const STAMP: usize = 8;

/// Maps of scripts that share them, by what they stand for. A copy of this has the same maps: a text that is refused has
/// wanted others in a copy only.
#[derive(Clone, Debug, Default)]
pub struct Maps(Vec<(shared::Map, Arc<Map>)>);

/// What a map is to have before a program uses it.
#[derive(Debug)]
pub(super) struct Filling {
    meaning: shared::Map,
    map: Arc<Map>,
    /// What it was until then, or the one of its name that was there, with what that stands for.
    before: Option<(shared::Map, Arc<Map>)>,
}

impl Maps {
    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, with what they stand for; those that were wanted last are last.
    pub(crate) fn all(&self) -> &[(shared::Map, Arc<Map>)] {
        &self.0
    }

    /// The descriptors of a script's maps: of those that are there already, and of new ones; and what is to come into them.
    pub(super) fn of(&mut self, compiled: &Compiled) -> linux::Result<(Vec<RawFd>, Vec<Filling>)> {
        let (mut descriptors, mut fillings) = (Vec::new(), Vec::new());
        for wanted in compiled.maps() {
            if let Form::Prefixes { .. } = wanted.shared.form {
                // A set has prefixes of both IP versions, whichever its script looks for.
                let other_half = match wanted.part {
                    MapPart::Ipv6 => MapPart::Entries,
                    MapPart::Entries | MapPart::Locks => MapPart::Ipv6,
                };
                fillings.push(self.one(&shared::Map { part: other_half, ..wanted.clone() })?);
            }
            let filling = self.one(wanted)?;
            descriptors.push(filling.map.as_raw_fd());
            fillings.push(filling);
        }
        Ok((descriptors, fillings))
    }

    fn one(&mut self, wanted: &shared::Map) -> linux::Result<Filling> {
        let named = |known: &shared::Map| {
            known.shared.name == wanted.shared.name && known.part == wanted.part && is_form(wanted, known)
        };
        let same = self.0.iter().position(|(known, _)| known.is_same(wanted));
        let (map, before) = match same {
            Some(at) => {
                let (meaning, map) = self.0.remove(at);
                (Arc::clone(&map), Some((meaning, map)))
            }
            None => {
                let before = self.0.iter().rev().find(|(known, _)| named(known));
                (Arc::new(create(wanted)?), before.cloned())
            }
        };
        self.0.push((wanted.clone(), Arc::clone(&map)));
        Ok(Filling { meaning: wanted.clone(), map, before })
    }
}

impl Filling {
    /// What there is to say.
    pub(super) fn fill(&self) -> linux::Result<Option<String>> {
        if self.meaning.part == MapPart::Locks {
            return Ok(None);
        }
        let told = match &self.before {
            Some((meaning, map)) if Arc::ptr_eq(map, &self.map) => {
                self.stamp(meaning)?;
                None
            }
            Some((meaning, map)) => self.take_over(meaning, map)?,
            None => None,
        };
        // As in Lua, where the top level runs at each load.
        self.map.set_all(&self.meaning.initial())?;
        Ok(told)
    }

    /// Entries that could not expire have their whole time from now on.
    fn stamp(&self, before: &shared::Map) -> linux::Result<()> {
        if expires(&before.shared) || !expires(&self.meaning.shared) {
            return Ok(());
        }
        let mut entries = whole_entries(before, &self.map)?;
        entries.iter_mut().for_each(|entry| self.begin(entry));
        self.map.set_all(&entries).map(drop)
    }

    /// Copies entries from a map of other measures, as many as fit: those that were written last, where that is known.
    fn take_over(&self, meaning: &shared::Map, from: &Map) -> linux::Result<Option<String>> {
        let name = &self.meaning.shared.name;
        if !is_kind(meaning, &self.meaning) {
            return Ok(Some(format!("table {name:?} has other kinds than before: it begins empty")));
        }
        let now_ms = monotonic_ms();
        let mut entries = whole_entries(meaning, from)?;
        entries.retain(|(key, value)| meaning.entry(key, value, now_ms).is_some());
        if expires(&meaning.shared) {
            entries.sort_by_key(|(_, value)| std::cmp::Reverse(stamp(value)));
        } else if expires(&self.meaning.shared) {
            entries.iter_mut().for_each(|entry| self.begin(entry));
        }
        let of = entries.len();
        entries.truncate(self.meaning.shared.limit());
        let kept = self.map.set_all(&entries)?;
        Ok((kept < of).then(|| format!("table {name:?} has room for {kept} of its {of} entries")))
    }

    /// Gives an entry its whole time from now on.
    fn begin(&self, (key, value): &mut (Vec<u8>, Vec<u8>)) {
        if let Some(stamp) = value.first_chunk_mut::<STAMP>() {
            *stamp = monotonic_ms().to_ne_bytes();
        }
        self.meaning.write_seal(key, value);
    }
}

/// All entries of a map that has keys; what was read while it was written is read again.
pub(super) fn whole_entries(meaning: &shared::Map, map: &Map) -> linux::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut entries = Vec::new();
    for (key, value) in map.entries()? {
        let value = if meaning.is_whole(&key, &value) { Some(value) } else { whole(meaning, map, &key)? };
        entries.extend(value.map(|value| (key, value)));
    }
    Ok(entries)
}

/// The value of a key, all of it written by one: programs have a record for themselves while they write it, and that is
/// shorter than a call. None if there is none, or it goes while it is looked at.
pub(super) fn whole(meaning: &shared::Map, map: &Map, key: &[u8]) -> linux::Result<Option<Vec<u8>>> {
    const TRIES: usize = 1000;
    for _ in 0..TRIES {
        match map.lookup(key)? {
            Some(value) if !meaning.is_whole(key, &value) => {}
            value => return Ok(value),
        }
    }
    Ok(None)
}

/// Whether both are tables, or sets of prefixes, or flows.
fn is_form(one: &shared::Map, other: &shared::Map) -> bool {
    match (&one.shared.form, &other.shared.form) {
        (Form::Table { .. }, Form::Table { .. }) | (Form::Prefixes { .. }, Form::Prefixes { .. }) => true,
        (Form::Flows { names, .. }, Form::Flows { names: others, .. }) => names == others,
        _ => false,
    }
}

/// Whether keys and values of both are of the same kinds.
fn is_kind(one: &shared::Map, other: &shared::Map) -> bool {
    match (&one.shared.form, &other.shared.form) {
        (Form::Table { key, value, .. }, Form::Table { key: keys, value: values, .. }) => {
            key == keys && value == values
        }
        _ => is_form(one, other),
    }
}

fn expires(shared: &Shared) -> bool {
    match &shared.form {
        Form::Table { shape, .. } | Form::Flows { shape, .. } => shape.expires_ms.is_some(),
        _ => false,
    }
}

fn stamp(value: &[u8]) -> u64 {
    value.first_chunk().map_or(0, |stamp| u64::from_ne_bytes(*stamp))
}

/// For how many entries the kernel has room.
pub(super) fn room(map: &shared::Map) -> linux::Result<u32> {
    let (kind, .., entries) = map.measures();
    let more = match kind {
        Kind::LruHash => PLACES * linux::bpf::processors()?,
        Kind::Hash | Kind::Array | Kind::LongestPrefix | Kind::Locks => 0,
    };
    Ok(entries.saturating_add(more as u32))
}

fn create(map: &shared::Map) -> linux::Result<Map> {
    let (kind, key, value, _) = map.measures();
    let entries = room(map)?;
    let kind = match kind {
        Kind::Hash => MapKind::Hash,
        Kind::LruHash => MapKind::LruHash,
        Kind::Array => MapKind::Array,
        Kind::LongestPrefix => MapKind::LongestPrefix,
        Kind::Locks => MapKind::Locks,
    };
    Map::create(kind, key, value, entries)
}
