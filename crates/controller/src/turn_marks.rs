//! When the register of each site with two gateways was changed last, so that who waits for a change reads no more often.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fleet::name::Name;
use store::Key;

use crate::keys;

/// At which revisions registers were changed last, as far as the store was followed.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// Any of them may have been changed up to here.
    all: u64,
    sites: HashMap<String, u64>,
}

impl Turns {
    /// Something was changed.
    pub(crate) fn note(&self, key: &Key, revision: u64) {
        if let Some(site) = key.as_str().strip_prefix(keys::TURN) {
            self.seen().sites.insert(site.to_owned(), revision);
        }
    }

    /// Changes were missed.
    pub(crate) fn note_all(&self, revision: u64) {
        *self.seen() = Seen { all: revision, sites: HashMap::new() };
    }

    /// Another one each time that something of this site may have changed.
    pub(crate) fn mark(&self, site: &Name) -> u64 {
        let seen = self.seen();
        seen.all.max(seen.sites.get(site.as_str()).copied().unwrap_or_default())
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
