//! What a commit asks for.

use std::collections::BTreeMap;

use crate::error::CommitError;
use crate::key::Key;
use crate::limit::{COMMIT_OCTETS, WRITES};
use crate::revision::{LeaseId, Revision};

/// Conditions and writes, which happen all together if all conditions hold, or not at all.
#[derive(Clone, Debug, Default)]
pub struct Commit {
    pub(crate) conditions: Vec<(Key, Condition)>,
    pub(crate) writes: BTreeMap<Key, Write>,
}

/// What has to hold of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Absent,
    At(Revision),
}

/// What becomes of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    Put { value: Vec<u8>, lease: Option<LeaseId> },
    Delete,
}

impl Commit {
    /// Nothing yet. To commit that asks for the store's revision.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Only if the key was written last by the commit of this revision.
    #[must_use]
    pub fn if_at(mut self, key: Key, revision: Revision) -> Self {
        self.conditions.push((key, Condition::At(revision)));
        self
    }

    /// Only if there is no such key.
    #[must_use]
    pub fn if_absent(mut self, key: Key) -> Self {
        self.conditions.push((key, Condition::Absent));
        self
    }

    /// Writes a key. Of several writes of one key the last one counts. A lease that it had is bound to it no more.
    #[must_use]
    pub fn put(mut self, key: Key, value: impl Into<Vec<u8>>) -> Self {
        self.writes.insert(key, Write::Put { value: value.into(), lease: None });
        self
    }

    /// Writes a key that vanishes when the lease ends.
    #[must_use]
    pub fn put_leased(mut self, key: Key, value: impl Into<Vec<u8>>, lease: LeaseId) -> Self {
        self.writes.insert(key, Write::Put { value: value.into(), lease: Some(lease) });
        self
    }

    /// Removes a key, if it is there.
    #[must_use]
    pub fn delete(mut self, key: Key) -> Self {
        self.writes.insert(key, Write::Delete);
        self
    }

    /// Whether it is not too large.
    pub(crate) fn check(&self) -> Result<(), CommitError> {
        let many = self.writes.len().max(self.conditions.len());
        if many > WRITES {
            return Err(CommitError::TooMany(many));
        }
        let octets = |(key, write): (&Key, &Write)| match write {
            Write::Put { value, .. } => key.as_str().len() + value.len(),
            Write::Delete => key.as_str().len(),
        };
        let octets = self.writes.iter().map(octets).sum();
        if octets > COMMIT_OCTETS { Err(CommitError::TooLarge(octets)) } else { Ok(()) }
    }
}
