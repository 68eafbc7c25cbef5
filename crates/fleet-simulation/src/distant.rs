//! A store that is as far away as a cluster: each answer takes a while, in which others change what is there.

use std::time::Duration;

use store::{
    Commit, CommitError, Entry, Failure, Key, Lease, LeaseError, LeaseId, ListError, Listing, Memory, Prefix,
    Revision, Store,
};

/// What a read takes in a cluster of three in one place.
const READ: Duration = Duration::from_millis(2);
/// What a commit takes, which a majority has on its disks then.
const COMMIT: Duration = Duration::from_millis(8);

/// The store in memory, from a distance.
#[derive(Clone, Debug)]
pub(crate) struct Distant(pub(crate) Memory);

impl Store for Distant {
    type Watch = <Memory as Store>::Watch;

    async fn get(&self, key: &Key) -> Result<Option<Entry>, Failure> {
        tokio::time::sleep(READ).await;
        self.0.get(key).await
    }

    async fn list(&self, prefix: &Prefix) -> Result<Listing, ListError> {
        tokio::time::sleep(READ).await;
        self.0.list(prefix).await
    }

    async fn commit(&self, commit: &Commit) -> Result<Revision, CommitError> {
        tokio::time::sleep(COMMIT).await;
        self.0.commit(commit).await
    }

    fn watch(&self, prefix: &Prefix, after: Revision) -> Self::Watch {
        self.0.watch(prefix, after)
    }

    async fn grant(&self, time_to_live: Duration) -> Result<Lease, Failure> {
        self.0.grant(time_to_live).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<Duration, LeaseError> {
        self.0.keep_alive(lease).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), Failure> {
        self.0.revoke(lease).await
    }
}
