//! What is in a table, read and written from outside while packets use it: the same for tables of Lua and maps of the
//! kernel, by what both can do.

use std::collections::{HashMap, HashSet};

use crate::compile::shared::Shared;
use crate::entry::Entry;

/// A table, a counter, a set of prefixes or flows, in either tier.
pub trait Contents {
    /// Why it cannot be read or written.
    type Error;

    /// What was declared.
    fn shared(&self) -> &Shared;

    /// All entries that have not expired.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn entries(&self) -> Result<Vec<Entry>, Self::Error>;

    /// How many there are.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn count(&self) -> Result<usize, Self::Error> {
        self.entries().map(|entries| entries.len())
    }

    /// For how many entries there is room: for more than were declared, where a table evicts and the kernel has it.
    ///
    /// # Errors
    /// Why it is not known.
    fn room(&self) -> Result<usize, Self::Error> {
        Ok(self.shared().limit())
    }

    /// The value of a key.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Self::Error>;

    /// Writes entries, each as a whole, until one does not fit: how many were written.
    ///
    /// # Errors
    /// Why they cannot be written.
    fn write(&self, entries: &[Entry]) -> Result<usize, Self::Error>;

    /// Forgets keys: how many of them there were.
    ///
    /// # Errors
    /// Why not.
    fn remove(&self, keys: &[Vec<u8>]) -> Result<usize, Self::Error>;
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Put {
    /// Entries that were written; of a table that evicts, those that were still there afterwards.
    pub written: usize,
    /// Entries that were forgotten.
    pub removed: usize,
}

/// Why entries are not in the table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PutError<E> {
    /// They do not fit, and nothing was changed.
    #[error("the table takes {limit} entries: {} (nothing was changed; `limit` in the script makes room)", room(*.limit, *.there, *.new))]
    Full {
        /// What it takes.
        limit: usize,
        /// Entries that are there; none, if others are to take their place.
        there: usize,
        /// Those that would be new.
        new: usize,
    },
    /// Packets have filled it up meanwhile.
    #[error("packets have filled the table up meanwhile: {written} of {of} entries were written")]
    FilledUp {
        /// Entries that were written.
        written: usize,
        /// Of so many.
        of: usize,
    },
    /// Something else.
    #[error("{0}")]
    Other(#[from] E),
}

fn room(limit: usize, there: usize, new: usize) -> String {
    match there {
        0 => format!("{new} are too many"),
        _ => format!("{there} are there, and of {new} new ones {} fit", limit.saturating_sub(there)),
    }
}

/// Writes entries; with `replace`, what is not among them goes. Of several with one key the last counts.
///
/// An entry that was there and stays is there at every moment, and so is one that goes until all new ones are there, as
/// long as there is room for both.
///
/// # Errors
/// If there is no room for them, before anything is changed; why they cannot be written.
pub fn put<C: Contents>(contents: &C, entries: Vec<Entry>, replace: bool) -> Result<Put, PutError<C::Error>> {
    let (limit, evicts) = (contents.shared().limit(), contents.shared().evicts());
    let mut places: HashMap<Vec<u8>, usize> = HashMap::with_capacity(entries.len());
    let mut wanted: Vec<Entry> = Vec::with_capacity(entries.len());
    for entry in entries {
        match places.get(&entry.key) {
            Some(place) => wanted[*place] = entry,
            None => {
                places.insert(entry.key.clone(), wanted.len());
                wanted.push(entry);
            }
        }
    }
    let there: HashSet<Vec<u8>> = contents.entries()?.into_iter().map(|entry| entry.key).collect();
    let new = wanted.iter().filter(|entry| !there.contains(&entry.key)).count();
    let stale: Vec<Vec<u8>> = match replace {
        true => there.iter().filter(|key| !places.contains_key(*key)).cloned().collect(),
        false => Vec::new(),
    };
    let stay = there.len() - stale.len();
    if wanted.len() > contents.room()? || (!evicts && stay + new > limit) {
        let (there, new) = if replace { (0, wanted.len()) } else { (stay, new) };
        return Err(PutError::Full { limit, there, new });
    }
    // A table that evicts would rather lose what is to stay.
    let early = match evicts {
        true => stale.len(),
        false => (there.len() + new).saturating_sub(limit).min(stale.len()),
    };
    let mut removed = contents.remove(&stale[..early])?;
    let mut written = contents.write(&wanted)?;
    if written < wanted.len() {
        return Err(PutError::FilledUp { written, of: wanted.len() });
    }
    if evicts {
        // Packets may have written others meanwhile.
        written = contents.entries()?.iter().filter(|entry| places.contains_key(&entry.key)).count();
    }
    removed += contents.remove(&stale[early..])?;
    Ok(Put { written, removed })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::convert::Infallible;

    use super::*;
    use crate::compile::shared::Form;
    use crate::tables::{Shape, WhenFull};
    use proptest::prelude::*;

    /// Looks at all that is done to it.
    struct Watched {
        shared: Shared,
        entries: RefCell<BTreeMap<Vec<u8>, Vec<u8>>>,
        room: usize,
        /// What must be there at every moment.
        stays: HashSet<Vec<u8>>,
    }

    impl Watched {
        fn of(limit: usize, keys: &[u8]) -> Self {
            let form = Form::Prefixes { limit, entries: Vec::new() };
            let shared = Shared { name: String::new(), form, persistent: false, metric: None };
            let entries = keys.iter().map(|key| (vec![*key], vec![0])).collect();
            Self { shared, entries: RefCell::new(entries), room: limit, stays: HashSet::new() }
        }

        /// One that forgets the least key for a new one, and has room for more than its limit.
        fn evicting(limit: usize, room: usize, keys: &[u8]) -> Self {
            let shape = Shape { limit, expires_ms: None, when_full: WhenFull::Oldest };
            let form = Form::Table { key: Vec::new(), value: Vec::new(), shape };
            let table = Self::of(limit, keys);
            Self { shared: Shared { form, ..table.shared }, room, ..table }
        }

        fn look(&self) {
            let entries = self.entries.borrow();
            assert!(entries.len() <= self.room);
            assert!(self.stays.iter().all(|key| entries.contains_key(key)), "something was missing");
        }
    }

    impl Contents for Watched {
        type Error = Infallible;

        fn shared(&self) -> &Shared {
            &self.shared
        }

        fn entries(&self) -> Result<Vec<Entry>, Infallible> {
            let entries = self.entries.borrow();
            Ok(entries.iter().map(|(key, value)| Entry { key: key.clone(), value: value.clone() }).collect())
        }

        fn room(&self) -> Result<usize, Infallible> {
            Ok(self.room)
        }

        fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Infallible> {
            Ok(self.entries.borrow().get(key).cloned())
        }

        fn write(&self, entries: &[Entry]) -> Result<usize, Infallible> {
            for entry in entries {
                let mut there = self.entries.borrow_mut();
                if self.shared.evicts() && there.len() == self.room && !there.contains_key(&entry.key) {
                    there.pop_first();
                }
                there.insert(entry.key.clone(), entry.value.clone());
                drop(there);
                self.look();
            }
            Ok(entries.len())
        }

        fn remove(&self, keys: &[Vec<u8>]) -> Result<usize, Infallible> {
            let mut removed = 0;
            for key in keys {
                removed += usize::from(self.entries.borrow_mut().remove(key).is_some());
                self.look();
            }
            Ok(removed)
        }
    }

    fn entries(keys: &[u8]) -> Vec<Entry> {
        keys.iter().map(|key| Entry { key: vec![*key], value: vec![1] }).collect()
    }

    #[test]
    fn what_does_not_fit_changes_nothing_and_says_how_many_do() {
        let table = Watched::of(3, &[1, 2]);
        let refused = put(&table, entries(&[2, 3, 4]), false).unwrap_err();
        assert_eq!(refused, PutError::Full { limit: 3, there: 2, new: 2 });
        assert!(refused.to_string().contains("2 are there, and of 2 new ones 1 fit"), "{refused}");
        assert_eq!(table.entries().unwrap().iter().map(|entry| entry.value[0]).sum::<u8>(), 0);
        assert_eq!(put(&table, entries(&[2, 3, 4]), true), Ok(Put { written: 3, removed: 1 }));
    }

    #[test]
    fn of_a_table_that_evicts_what_is_there_afterwards_is_told() {
        let table = Watched::evicting(2, 3, &[5, 6, 7]);
        assert_eq!(put(&table, entries(&[8, 9]), false), Ok(Put { written: 2, removed: 0 }));
        let table = Watched::evicting(2, 3, &[5, 6, 7]);
        // The second takes the place of the first.
        assert_eq!(put(&table, entries(&[1, 2]), false), Ok(Put { written: 1, removed: 0 }));
        let refused = put(&table, entries(&[1, 2, 3, 4]), true).unwrap_err();
        assert_eq!(refused, PutError::Full { limit: 2, there: 0, new: 4 });
        // What it holds is a file for it, also beyond its limit.
        assert_eq!(put(&table, entries(&[1, 2, 3]), true), Ok(Put { written: 3, removed: 2 }));
    }

    proptest! {
        #[test]
        fn a_table_becomes_the_file_and_what_stays_is_never_missing(
            before: HashSet<u8>,
            after in proptest::collection::vec(any::<u8>(), 0..300),
            limit in 1_usize..260,
            replace: bool,
        ) {
            let before: Vec<u8> = before.into_iter().take(limit).collect();
            let mut table = Watched::of(limit, &before);
            let stays = |key: &&u8| !replace || after.contains(key);
            table.stays = before.iter().filter(stays).map(|key| vec![*key]).collect();
            let mut expected: HashSet<u8> = after.iter().copied().collect();
            if !replace {
                expected.extend(&before);
            }
            let result = put(&table, entries(&after), replace);
            let now: HashSet<u8> = table.entries().unwrap().iter().map(|entry| entry.key[0]).collect();
            if expected.len() > limit {
                let is_full = matches!(result, Err(PutError::Full { .. }));
                prop_assert!(is_full);
                prop_assert_eq!(now, before.into_iter().collect::<HashSet<_>>());
            } else {
                prop_assert!(result.is_ok());
                prop_assert_eq!(now, expected);
            }
        }
    }
}
