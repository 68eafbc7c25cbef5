//! What is stored in etcd under which name.

use std::sync::Arc;

use super::messages::{Header, KeyValue};
use crate::error::Failure;
use crate::key::{Key, Prefix};
use crate::revision::{LeaseId, Revision};
use crate::store::Entry;

/// The names that keys have in etcd: below one of theirs.
#[derive(Clone, Debug)]
pub(super) struct Names {
    below: Arc<str>,
}

impl Names {
    pub(super) fn below(name: &str) -> Self {
        Self { below: name.into() }
    }

    /// The name that all begin with.
    pub(super) fn first(&self) -> Vec<u8> {
        self.below.as_bytes().to_vec()
    }

    /// That of a key.
    pub(super) fn stored(&self, key: &Key) -> Vec<u8> {
        format!("{}{key}", self.below).into_bytes()
    }

    /// The first that keys below a prefix may have, and the first after all of them.
    pub(super) fn range(&self, prefix: &Prefix) -> (Vec<u8>, Vec<u8>) {
        let (start, end) = prefix.range();
        (format!("{}{start}", self.below).into_bytes(), format!("{}{end}", self.below).into_bytes())
    }

    /// The key of this name.
    pub(super) fn key(&self, stored: &[u8]) -> Result<Key, Failure> {
        let name = stored.strip_prefix(self.below.as_bytes()).and_then(|name| str::from_utf8(name).ok());
        let key = name.map(Key::new).and_then(Result::ok);
        key.ok_or_else(|| broken(format!("{} is no key", String::from_utf8_lossy(stored))))
    }

    pub(super) fn entry(&self, stored: KeyValue) -> Result<Entry, Failure> {
        let key = self.key(&stored.key)?;
        let revision = revision(stored.mod_revision)?;
        Ok(Entry { key, value: stored.value, revision, lease: LeaseId::from_signed(stored.lease) })
    }
}

pub(super) fn broken(what: impl ToString) -> Failure {
    Failure::Broken(what.to_string())
}

pub(super) fn revision(number: i64) -> Result<Revision, Failure> {
    Revision::from_signed(number).ok_or_else(|| broken(format!("etcd answered with revision {number}")))
}

/// The store's revision, from the header of an answer.
pub(super) fn header(header: Option<Header>) -> Result<Revision, Failure> {
    revision(header.map_or(0, |header| header.revision))
}
