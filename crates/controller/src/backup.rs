//! All that a store has as one text, and back again.
//!
//! A line that says what it is, a line for each entry, and a line with the digest of all before. There is no secret in it but
//! where sites hop: who may let others in is there by digests alone.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use fleet::key::Digest;
use serde::{Deserialize, Serialize};
use store::{Commit, CommitError, Key, Prefix, Store};

use crate::error::Error;
use crate::load;
use crate::records::{self, What};
use crate::{keys, log};

/// The first line. Each form that a version has written is read by all later ones.
const FIRST: &str = "sidestep control backup 1";
/// How much of a backup is put into a store at once, in octets.
const AT_ONCE: usize = 256 * 1024;
/// The largest entries are the parts of documents.
const MOST: usize = 50;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: String,
    /// In base64.
    value: String,
}

/// All of a store, at one moment.
///
/// # Errors
/// If the store does not answer.
pub async fn backup<S: Store>(store: &S) -> Result<String, Error> {
    let listing = store.list(&Prefix::everything()).await?;
    let mut text = format!("{FIRST}\n");
    for entry in &listing.entries {
        // What is bound to a lease is gone with it.
        if entry.lease.is_none() {
            let line = Line { key: entry.key.to_string(), value: BASE64_STANDARD.encode(&entry.value) };
            text += &serde_json::to_string(&line).map_err(|error| Error::Broken(error.to_string()))?;
            text.push('\n');
        }
    }
    let digest = Digest::of(text.as_bytes());
    Ok(format!("{text}{digest}\n"))
}

/// Brings a backup back into an empty store. Nothing is in force before all of it is there and was verified.
///
/// # Errors
/// If the store is not empty, or the backup is not whole, or what it says was not signed by who has to.
pub async fn restore<S: Store>(store: &S, who: &str, text: &str) -> Result<(), Error> {
    let mut entries = entries(text)?;
    entries.retain(|(key, _)| ![keys::place(), keys::restoring()].contains(key));
    // Who comes later has it for himself: what is on its way from an earlier one, which may have failed, does not happen then.
    let begin = Commit::new().if_absent(keys::place()).put(keys::restoring(), records::random_hex()?);
    let turn = store.commit(&begin).await.map_err(|error| match error {
        CommitError::Conflict => {
            Error::Refused("the store has a network: restore into an empty one".to_owned())
        }
        error => error.into(),
    })?;
    let mine = || Commit::new().if_absent(keys::place()).if_at(keys::restoring(), turn);
    // What another one left behind that did not come to its end would be in force with this one.
    let mut left = store.list(&Prefix::everything()).await?.entries;
    left.retain(|entry| entry.key != keys::restoring());
    for some in left.chunks(MOST) {
        let commit = some.iter().fold(mine(), |commit, entry| commit.delete(entry.key.clone()));
        store.commit(&commit).await.map_err(overtaken)?;
    }
    let (mut commit, mut octets, mut count) = (mine(), 0, 0);
    for (key, value) in entries {
        octets += key.as_str().len() + value.len();
        count += 1;
        commit = commit.put(key, value);
        if octets >= AT_ONCE || count >= MOST {
            store.commit(&std::mem::replace(&mut commit, mine())).await.map_err(overtaken)?;
            (octets, count) = (0, 0);
        }
    }
    store.commit(&commit).await.map_err(overtaken)?;
    // Last the place, and another one: the positions of notices are this store's now.
    let place = u64::from_be_bytes(records::random()?);
    load::load_as(store, place, true).await?;
    let commit = mine().put(keys::place(), records::text(&place)).delete(keys::restoring());
    match log::write(store, commit, who, What::Restored {}).await? {
        Some(_) => Ok(()),
        None => Err(overtaken(CommitError::Conflict)),
    }
}

fn overtaken(error: CommitError) -> Error {
    match error {
        CommitError::Conflict => Error::Overtaken("somebody else restores into this store, too".to_owned()),
        error => error.into(),
    }
}

fn entries(text: &str) -> Result<Vec<(Key, Vec<u8>)>, Error> {
    let no = |why: &str| Error::Refused(format!("this is no backup that can be restored: {why}"));
    let body = text.strip_suffix('\n').and_then(|text| text.rfind('\n')).map(|end| text.split_at(end + 1));
    let (body, digest) = body.ok_or_else(|| no("it is not whole"))?;
    if Digest::of(body.as_bytes()).to_string() != digest.trim_end() {
        return Err(no("it is not whole, or was changed"));
    }
    let mut lines = body.lines();
    match lines.next() {
        Some(FIRST) => {}
        Some(first) => {
            return Err(no(&format!("it begins with {first:?}, which this version does not know")));
        }
        None => return Err(no("it is empty")),
    }
    let entry = |text: &str| {
        let line: Line = serde_json::from_str(text).map_err(|error| no(&error.to_string()))?;
        let key = Key::new(line.key).map_err(|error| no(&error.to_string()))?;
        let value = BASE64_STANDARD.decode(line.value).map_err(|error| no(&error.to_string()))?;
        Ok((key, value))
    };
    lines.map(entry).collect()
}
