//! A commit whose outcome has to be known.

use std::time::Duration;

use tokio::time::Instant;

use crate::commit::Commit;
use crate::error::{CommitError, Failure};
use crate::key::Key;
use crate::revision::Revision;
use crate::store::Store;

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// Commits once, also where the store does not say what became of it: tries again, and reads back, for as long as `patience`.
///
/// `witness` is written with it, and must not be there before. Its value must be one that nobody else writes (it has a random
/// number in it, or names who writes), and nobody may change or remove it while `once` runs: an entry of a log is one. Then
/// every answer but [`CommitError::Unknown`] is exact.
///
/// # Errors
/// As [`Store::commit`]. `Unknown` if the store could not be asked within `patience`.
pub async fn once<S: Store>(
    store: &S,
    commit: Commit,
    witness: (Key, Vec<u8>),
    patience: Duration,
) -> Result<Revision, CommitError> {
    let (key, value) = witness;
    let commit = commit.if_absent(key.clone()).put(key.clone(), value.clone());
    let begin = Instant::now();
    let mut doubt = None;
    loop {
        let outcome = match (store.commit(&commit).await, &doubt) {
            (Err(CommitError::Conflict), Some(_)) => written(store, &key, &value).await,
            (outcome, _) => outcome,
        };
        match outcome {
            Err(CommitError::Unknown(why)) => doubt = Some(why),
            Err(CommitError::Failed(Failure::Unreachable(_))) if doubt.is_some() => {}
            // A try that was refused says nothing about the one before.
            Err(error @ (CommitError::Failed(_) | CommitError::LeaseEnded)) if doubt.is_some() => {
                return Err(CommitError::Unknown(error.to_string()));
            }
            known => return known,
        }
        if let Some(why) = doubt.take_if(|_| begin.elapsed() >= patience) {
            return Err(CommitError::Unknown(why));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether a commit that is in conflict now is the one that happened.
async fn written<S: Store>(store: &S, witness: &Key, value: &[u8]) -> Result<Revision, CommitError> {
    match store.get(witness).await? {
        Some(entry) if entry.value == value => Ok(entry.revision),
        _ => Err(CommitError::Conflict),
    }
}
