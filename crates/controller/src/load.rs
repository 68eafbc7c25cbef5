//! What a store says about its fleet, verified anew as it is read.

use std::collections::BTreeMap;

use fleet::authority::{Authority, Chain};
use fleet::desk::Desk;
use fleet::document::{Change, Document, Serial};
use fleet::fleet::Fleet;
use fleet::key::Digest;
use fleet::news::{DocumentNews, News};
use fleet::notice::DelegatedLines;
use fleet::signed::Signed;
use serde::de::DeserializeOwned;
use store::{Commit, Entry, Key, Revision, Store};
use tracing::warn;

use crate::error::Error;
use crate::keys;
use crate::records::{self, InForce, StoredDocument};

/// How large a part of a document is, in octets: a commit takes 1 MiB.
const CHUNK: usize = 512 * 1024;
/// How many documents are read to tell agents what is different since one of them.
const HISTORY: u64 = 64;

/// A fleet as the store has it at one moment.
pub(crate) struct Loaded {
    pub(crate) desk: Desk,
    /// When.
    pub(crate) revision: Revision,
    /// What everything that changes who is a member is written under the condition of.
    pub(crate) head: Option<Entry>,
    /// The documents that are stored, by their serials.
    pub(crate) documents: BTreeMap<Serial, StoredDocument>,
}

/// Reads all, or only what is in force now.
pub(crate) async fn load<S: Store>(store: &S, with_history: bool) -> Result<Loaded, Error> {
    let place = store.get(&keys::place()).await?;
    load_as(store, records::read(&place.ok_or_else(no_network)?)?, with_history).await
}

/// The same at this place, whichever the store says it is, if any.
pub(crate) async fn load_as<S: Store>(store: &S, place: u64, with_history: bool) -> Result<Loaded, Error> {
    check_schema(store).await?;
    let listing = store.list(&keys::fleet()).await?;
    let mut authorities: Vec<Signed<Authority>> = Vec::new();
    let mut documents: BTreeMap<Serial, StoredDocument> = BTreeMap::new();
    let mut head = None;
    let mut later: Vec<&Entry> = Vec::new();
    for entry in &listing.entries {
        match part(&entry.key) {
            Part::Authority => authorities.push(records::read(entry)?),
            Part::Head => head = Some(entry.clone()),
            Part::Document(serial) => drop(documents.insert(serial, records::read(entry)?)),
            Part::Contact | Part::Networks | Part::Delegated => later.push(entry),
            Part::Other => {}
        }
    }
    let mut authorities = authorities.into_iter();
    let broken = |error: &dyn std::fmt::Display| Error::Broken(error.to_string());
    let first = authorities.next().ok_or_else(no_network)?;
    let mut desk = Desk::new(Fleet::new(Chain::begin(first).map_err(|error| broken(&error))?), place);
    if let Some(entry) = &head {
        let in_force: InForce = records::read(entry)?;
        let back = if with_history { HISTORY } else { 0 };
        read_documents(store, &mut desk, &mut authorities, to_read(&documents, in_force.serial, back))
            .await?;
        let is_it = |document: &Document| document.signed.digest() == in_force.head;
        if !desk.fleet().document().is_some_and(|document| is_it(document)) {
            return Err(broken(&"the document in force is not there"));
        }
    }
    desk.take_at(News { authorities: authorities.collect(), ..News::default() }, 1);
    // In the order in which they were accepted, so that all controllers accept the same.
    later.sort_by_key(|entry| entry.revision);
    for entry in later {
        take(&mut desk, news_of(entry)?, entry.revision);
    }
    Ok(Loaded { desk, revision: listing.revision, head, documents })
}

/// Refuses what a later version has written. There is one form so far; what brings an older one up to date goes here.
async fn check_schema<S: Store>(store: &S) -> Result<(), Error> {
    let schema = store.get(&keys::schema()).await?.map(|entry| entry.value).unwrap_or_default();
    match schema == records::SCHEMA.as_bytes() {
        true => Ok(()),
        false => Err(Error::Broken(format!(
            "its schema is {:?}, and this version of sidestep knows {}",
            String::from_utf8_lossy(&schema),
            records::SCHEMA
        ))),
    }
}

fn no_network() -> Error {
    Error::Missing(
        "network in this store: `sidestep control init` makes one, `restore` brings one back".to_owned(),
    )
}

/// The fleet as a document had it that is still kept.
pub(crate) async fn at<S: Store>(store: &S, serial: Serial) -> Result<Option<Fleet>, Error> {
    let authorities = store.list(&keys::authorities()).await?.entries;
    let mut authorities =
        authorities.iter().map(records::read).collect::<Result<Vec<Signed<Authority>>, _>>()?.into_iter();
    let mut documents = BTreeMap::new();
    for entry in store.list(&keys::documents()).await?.entries {
        if let Part::Document(serial) = part(&entry.key) {
            documents.insert(serial, records::read(&entry)?);
        }
    }
    if !documents.contains_key(&serial) {
        return Ok(None);
    }
    let first = authorities.next().ok_or_else(no_network)?;
    let chain = Chain::begin(first).map_err(|error| Error::Broken(error.to_string()))?;
    let mut desk = Desk::new(Fleet::new(chain), 1);
    read_documents(store, &mut desk, &mut authorities, to_read(&documents, serial, 0)).await?;
    Ok(Some(desk.fleet().clone()))
}

/// Reads documents in their order, and before each the authorities up to the one of its time.
async fn read_documents<S: Store>(
    store: &S,
    desk: &mut Desk,
    authorities: &mut std::vec::IntoIter<Signed<Authority>>,
    documents: impl Iterator<Item = (Serial, &StoredDocument)>,
) -> Result<(), Error> {
    let broken = |error: &dyn std::fmt::Display| Error::Broken(error.to_string());
    for (serial, stored) in documents {
        let authority = stored.head.read().map_err(|error| broken(&error))?.authority;
        while desk.fleet().chain().current().version < authority {
            let Some(next) = authorities.next() else { break };
            desk.take_at(News { authorities: vec![next], ..News::default() }, 1);
        }
        let is_before_known = desk.fleet().serial().is_some_and(|known| known.0 + 1 == serial.0);
        let news = document_news(store, serial, stored, is_before_known).await?;
        let taken = desk.take_at(News { document: Some(news), ..News::default() }, 1);
        if let Some(refusal) = taken.refused.first() {
            return Err(broken(refusal));
        }
    }
    Ok(())
}

/// The documents to read: from one that is there as a whole, `back` before the last one or earlier, to that.
fn to_read(
    documents: &BTreeMap<Serial, StoredDocument>,
    last: Serial,
    back: u64,
) -> impl Iterator<Item = (Serial, &StoredDocument)> {
    let oldest = Serial(last.0.saturating_sub(back));
    let is_whole = |(_, stored): &(&Serial, &StoredDocument)| !stored.whole.is_empty();
    let before = documents.range(..=oldest).rev().find(is_whole);
    let begin = before.or_else(|| documents.range(..=last).find(is_whole));
    let begin = begin.map_or(last, |(serial, _)| *serial);
    documents.range(begin..=last.max(begin)).map(|(serial, stored)| (*serial, stored))
}

/// A document as news: as a change where the one before is known, else as a whole.
pub(crate) async fn document_news<S: Store>(
    store: &S,
    serial: Serial,
    stored: &StoredDocument,
    is_before_known: bool,
) -> Result<DocumentNews, Error> {
    let parts = if (is_before_known && !stored.change.is_empty()) || stored.whole.is_empty() {
        &stored.change
    } else {
        &stored.whole
    };
    let mut text = Vec::new();
    for digest in parts {
        let key = keys::chunk(serial, digest);
        let entry = store.get(&key).await?;
        let entry = entry.filter(|entry| Digest::of(&entry.value) == *digest);
        text.extend(entry.ok_or_else(|| Error::Broken(format!("{key} is missing, or was changed")))?.value);
    }
    let change: Change = serde_json::from_slice(&text)
        .map_err(|error| Error::Broken(format!("document {}: {error}", serial.0)))?;
    Ok(DocumentNews { head: stored.head.clone(), change })
}

/// Writes a text in parts; nobody knows of them until a document names them.
pub(crate) async fn write_chunks<S: Store>(
    store: &S,
    serial: Serial,
    change: &Change,
) -> Result<Vec<Digest>, Error> {
    let text = records::text(change);
    let mut digests = Vec::new();
    for part in text.chunks(CHUNK) {
        let digest = Digest::of(part);
        // It is the same whoever writes it how often.
        store.commit(&Commit::new().put(keys::chunk(serial, &digest), part)).await?;
        digests.push(digest);
    }
    Ok(digests)
}

/// What an entry below [`keys::fleet`] is.
pub(crate) enum Part {
    Authority,
    Head,
    Document(Serial),
    Contact,
    Networks,
    Delegated,
    Other,
}

pub(crate) fn part(key: &Key) -> Part {
    let mut segments = key.as_str().split('/').skip(1);
    let (kind, number) = (segments.next(), segments.next().and_then(|text| text.parse().ok()));
    match (kind, number) {
        (Some("authority"), _) => Part::Authority,
        (Some("head"), _) => Part::Head,
        (Some("document"), Some(serial)) => Part::Document(Serial(serial)),
        (Some("contact"), _) => Part::Contact,
        (Some("networks"), _) => Part::Networks,
        (Some("delegated"), _) => Part::Delegated,
        _ => Part::Other,
    }
}

/// What an entry says that is no document.
pub(crate) fn news_of(entry: &Entry) -> Result<News, Error> {
    fn one<T: DeserializeOwned>(entry: &Entry) -> Result<Vec<T>, Error> {
        Ok(vec![records::read(entry)?])
    }
    let mut news = News::default();
    match part(&entry.key) {
        Part::Authority => news.authorities = one(entry)?,
        Part::Contact => news.contacts = one(entry)?,
        Part::Networks => news.networks = one(entry)?,
        Part::Delegated => news.delegated = one::<DelegatedLines>(entry)?,
        Part::Head | Part::Document(_) | Part::Other => {}
    }
    Ok(news)
}

/// Takes what is stored. What is refused stays out of force, whoever has stored it.
pub(crate) fn take(desk: &mut Desk, news: News, revision: Revision) -> bool {
    let taken = desk.take_at(news, revision.number());
    for refusal in &taken.refused {
        warn!("in the store, at revision {revision}: {refusal}");
    }
    taken.is_new
}
