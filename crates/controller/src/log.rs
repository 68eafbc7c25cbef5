//! The log: what was done, by whom, each record with the digest of the one before.
//!
//! A record is written by the commit that does what it tells, under the condition that the log's head is still the one that was
//! read. So nothing is done that is not told, and of two controllers one writes after the other. Who notes a head somewhere
//! else can tell whether the log was written anew since: [`verify`].

use fleet::key::Digest;
use serde::{Deserialize, Serialize};
use store::{Commit, CommitError, Revision, Store, once};

use crate::error::Error;
use crate::keys;
use crate::records::{self, What, now};

/// How long a commit is tried whose outcome is not known.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);
/// How many records are told at once.
pub const PAGE: u64 = 500;

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// 1 for the first.
    pub number: u64,
    /// The digest of the record before; of nothing, for the first.
    pub previous: Digest,
    /// When, in seconds of Unix time, by the controller's clock.
    pub at: u64,
    /// Who has asked for it.
    pub who: String,
    /// What it was.
    pub what: What,
    /// So that no two records are the same.
    nonce: String,
}

/// The last record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Its number.
    pub number: u64,
    /// Its digest.
    pub digest: Digest,
}

/// A log is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the log is not whole: record {number} {why}")]
pub struct NotWhole {
    number: u64,
    why: &'static str,
}

/// Commits, and writes what that was into the log. Nothing, if a condition did not hold: read again.
pub(crate) async fn write<S: Store>(
    store: &S,
    commit: Commit,
    who: &str,
    what: What,
) -> Result<Option<Revision>, Error> {
    let read = store.get(&keys::log_head()).await?;
    let last: Option<Head> = read.as_ref().map(records::read).transpose()?;
    let (number, previous) =
        last.map_or((1, Digest::of(b"")), |last| (last.number.saturating_add(1), last.digest));
    let record =
        Record { number, previous, at: now(), who: who.to_owned(), what, nonce: records::random_hex()? };
    let text = records::text(&record);
    let head = records::text(&Head { number, digest: Digest::of(&text) });
    let commit = match read {
        Some(entry) => commit.if_at(keys::log_head(), entry.revision),
        None => commit.if_absent(keys::log_head()),
    };
    let witness = (keys::log_record(number), text);
    match once(store, commit.put(keys::log_head(), head), witness, PATIENCE).await {
        Ok(revision) => Ok(Some(revision)),
        Err(CommitError::Conflict) => {
            // Others are at it, too.
            tokio::time::sleep(std::time::Duration::from_millis(fastrand::u64(1..20))).await;
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// The last record.
pub(crate) async fn head<S: Store>(store: &S) -> Result<Option<Head>, Error> {
    store.get(&keys::log_head()).await?.as_ref().map(records::read).transpose()
}

/// The texts of records, from this number on: as many as are told at once.
pub(crate) async fn read<S: Store>(store: &S, from: u64) -> Result<Vec<String>, Error> {
    let last = head(store).await?.map_or(0, |head| head.number);
    let mut texts = Vec::new();
    for number in from.max(1)..=last.min(from.max(1).saturating_add(PAGE - 1)) {
        let entry = store.get(&keys::log_record(number)).await?;
        let entry = entry.ok_or_else(|| Error::Broken(format!("record {number} of the log is missing")))?;
        texts.push(String::from_utf8_lossy(&entry.value).into_owned());
    }
    Ok(texts)
}

/// Reads records that follow each other, from the first one, or from one whose digest is known.
///
/// # Errors
/// If one is missing, was changed, or cannot be read.
pub fn verify<'t>(
    before: Option<Head>,
    texts: impl IntoIterator<Item = &'t str>,
) -> Result<(Vec<Record>, Option<Head>), NotWhole> {
    let mut last = before;
    let mut records = Vec::new();
    for text in texts {
        let (number, previous) = last.map_or((1, Digest::of(b"")), |last| (last.number + 1, last.digest));
        let no = |why| NotWhole { number, why };
        let record: Record =
            serde_json::from_str(text).map_err(|_| no("is not understood by this version of sidestep"))?;
        if record.number != number {
            return Err(no("is missing"));
        }
        if record.previous != previous {
            return Err(no("does not follow the one before"));
        }
        last = Some(Head { number, digest: Digest::of(text.as_bytes()) });
        records.push(record);
    }
    Ok((records, last))
}
