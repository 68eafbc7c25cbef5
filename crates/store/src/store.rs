//! The trait, and what is read and watched.

use std::time::Duration;

use crate::commit::Commit;
use crate::error::{CommitError, Failure, LeaseError, ListError, WatchError};
use crate::key::{Key, Prefix};
use crate::revision::{Lease, LeaseId, Revision};

/// What controllers share. A clone is another handle of the same store. [What holds](crate#what-holds).
pub trait Store: Clone + Send + Sync + 'static {
    /// What [`Store::watch`] gives.
    type Watch: Watch;

    /// The entry of a key, if there is one.
    fn get(&self, key: &Key) -> impl Future<Output = Result<Option<Entry>, Failure>> + Send;

    /// All entries below a prefix at one revision, in the order of their keys.
    fn list(&self, prefix: &Prefix) -> impl Future<Output = Result<Listing, ListError>> + Send;

    /// Does all writes if all conditions hold, and answers their revision; of a commit that changes nothing (no writes, or only
    /// of what is not there) the store's.
    fn commit(&self, commit: &Commit) -> impl Future<Output = Result<Revision, CommitError>> + Send;

    /// What is changed below a prefix after a revision, which was that of a list, of a commit or of a change.
    fn watch(&self, prefix: &Prefix, after: Revision) -> Self::Watch;

    /// A lease that lasts so long.
    fn grant(&self, time_to_live: Duration) -> impl Future<Output = Result<Lease, Failure>> + Send;

    /// Lets a lease last its time from now on, and answers how long that is.
    fn keep_alive(&self, lease: LeaseId) -> impl Future<Output = Result<Duration, LeaseError>> + Send;

    /// Ends a lease, and removes its keys. It is no error if it has ended already.
    fn revoke(&self, lease: LeaseId) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Changes, as they come.
pub trait Watch: Send {
    /// The next commit that changed something below the prefix. After an error, too, nothing is left out: it can be asked
    /// again; [`WatchError::Compacted`] stays. A future that is dropped before it is ready takes nothing with it.
    fn next(&mut self) -> impl Future<Output = Result<Changes, WatchError>> + Send;
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub key: Key,
    /// What was put.
    pub value: Vec<u8>,
    /// Of the commit that wrote it last.
    pub revision: Revision,
    /// The lease that it vanishes with.
    pub lease: Option<LeaseId>,
}

/// All entries below a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// In the order of their keys.
    pub entries: Vec<Entry>,
    /// When this was so: what to watch after.
    pub revision: Revision,
}

/// What a commit, or the end of a lease, changed below a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// Of the commit.
    pub revision: Revision,
    /// All of them, in the order of their keys.
    pub changes: Vec<Change>,
}

/// What became of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was written.
    Put(Entry),
    /// It was removed, or its lease ended.
    Deleted(Key),
}
