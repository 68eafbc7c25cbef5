//! What takes effect: documents of administrators, what delegates allow, what sites say of themselves. Signatures decide alone.

use std::collections::BTreeMap;

use fleet::document::{Document, Serial};
use fleet::fleet::Fleet;
use fleet::name::Name;
use fleet::news::{DocumentNews, News, Refusal, Taken};
use fleet::notice::{Act, DelegatedLines, Notice};
use fleet::signed::Signed;
use store::{Commit, CommitError, Key, Revision, Store};

use crate::controller::Controller;
use crate::error::Error;
use crate::load::{self, Loaded};
use crate::records::{self, InForce, StoredDocument, What};
use crate::{keys, log};

/// How often something is tried that others are at, too.
pub(crate) const TRIES: usize = 50;
/// Every so many documents there is one as a whole.
const WHOLE_EVERY: u64 = 16;
/// So many documents are kept, at least.
const KEPT: u64 = 64;
/// How many entries a commit removes.
const AT_ONCE: usize = 50;

/// Makes a network in an empty store.
///
/// # Errors
/// If there is one already, or the first authority and document are not signed as they should be.
pub async fn begin<S: Store>(store: &S, who: &str, news: News) -> Result<(), Error> {
    let mut authorities = news.authorities;
    let (Some(first), true) = (authorities.pop(), authorities.is_empty()) else {
        return Err(Error::Refused("a network begins with one authority".to_owned()));
    };
    let chain =
        fleet::authority::Chain::begin(first.clone()).map_err(|error| Error::Refused(error.to_string()))?;
    let document =
        news.document.ok_or_else(|| Error::Refused("a network begins with a document".to_owned()))?;
    let mut fleet = Fleet::new(chain);
    refuse(&fleet.take(News { document: Some(document), ..News::default() }))?;
    let document = fleet.document().ok_or_else(|| Error::Refused("there is no document".to_owned()))?;
    let (record, head, what) = store_document(store, None, document, true, 1).await?;
    let place = u64::from_be_bytes(records::random()?);
    let commit = Commit::new()
        .if_absent(keys::place())
        // What was left there by a restore that did not come to its end would be in force with it.
        .if_absent(keys::restoring())
        .put(keys::place(), records::text(&place))
        .put(keys::schema(), records::SCHEMA)
        .put(keys::authority(1), records::text(&first))
        .put(keys::document(document.head.serial), record)
        .put(keys::head(), head);
    match log::write(store, commit, who, what).await? {
        Some(_) => Ok(()),
        None => Err(Error::Overtaken(
            "there is a network in this store already, or a backup was not restored to its end: restore it again"
                .to_owned(),
        )),
    }
}

fn refuse(taken: &Taken) -> Result<(), Error> {
    match taken.refused.first() {
        Some(Refusal::Gap(serial)) => Err(Error::Overtaken(format!(
            "document {} is a change of one that is not in force: make it anew from what is",
            serial.0
        ))),
        Some(refusal) => Err(Error::Refused(refusal.to_string())),
        None => Ok(()),
    }
}

/// Writes what a document consists of; what is left to commit are its record and the head.
async fn store_document<S: Store>(
    store: &S,
    before: Option<&Document>,
    document: &Document,
    is_whole: bool,
    authority: u64,
) -> Result<(Vec<u8>, Vec<u8>, What), Error> {
    let serial = document.head.serial;
    let mut stored = StoredDocument { head: document.signed.clone(), change: Vec::new(), whole: Vec::new() };
    if let Some(before) = before {
        stored.change = load::write_chunks(store, serial, &document.contents.change_since(before)).await?;
    }
    if is_whole || before.is_none() {
        stored.whole = load::write_chunks(store, serial, &document.contents.complete()).await?;
    }
    let head = document.signed.digest();
    let in_force = InForce { serial, head };
    Ok((records::text(&stored), records::text(&in_force), What::Published { serial, head, authority }))
}

impl<S: Store> Controller<S> {
    /// Publishes a document, with authorities before it if there are new ones; or what delegates have signed.
    ///
    /// # Errors
    /// If it is not signed by who has to, is not made from what is in force now, or the store does not answer. To publish the
    /// same again is no error.
    pub async fn publish(&self, who: &str, news: News) -> Result<(), Error> {
        if !news.contacts.is_empty() || !news.networks.is_empty() {
            return Err(Error::Refused("what sites say of themselves they say themselves".to_owned()));
        }
        let revision = match (news.document, news.delegated.is_empty()) {
            (Some(document), true) => self.publish_document(who, &news.authorities, &document).await?,
            (None, false) if news.authorities.is_empty() => {
                self.publish_delegated(who, news.delegated).await?
            }
            (None, true) if !news.authorities.is_empty() => {
                let why = "other administrators come with a document that they have signed: who is new \
                           could verify none otherwise";
                return Err(Error::Refused(why.to_owned()));
            }
            _ => return Err(Error::Refused("publish a document, or what delegates have signed".to_owned())),
        };
        if let Some(revision) = revision {
            self.catch_up(revision).await;
        }
        Ok(())
    }

    async fn publish_document(
        &self,
        who: &str,
        authorities: &[Signed<fleet::authority::Authority>],
        news: &DocumentNews,
    ) -> Result<Option<Revision>, Error> {
        for _ in 0..TRIES {
            let Loaded { desk, head, documents, .. } = load::load(self.store(), false).await?;
            let now = desk.fleet();
            let before = now.document().ok_or_else(|| Error::Broken("there is no document".to_owned()))?;
            if before.signed.digest() == news.head.digest() {
                return Ok(None);
            }
            may_follow(before, news)?;
            let mut next = now.clone();
            let known = now.chain().current().version;
            refuse(&next.take(News {
                authorities: authorities.to_vec(),
                document: Some(news.clone()),
                ..News::default()
            }))?;
            let document = next.document().filter(|document| document.signed.digest() == news.head.digest());
            let document =
                document.ok_or_else(|| Error::Refused("it is no document to follow".to_owned()))?;
            keeps_delegated(now, document)?;
            self.close_applications(now, &next).await?;
            let serial = document.head.serial;
            let is_whole = whole_is_due(&documents, serial);
            let (record, in_force, what) =
                store_document(self.store(), Some(before), document, is_whole, document.head.authority)
                    .await?;
            let Some(head) = head else { return Err(Error::Broken("there is no head".to_owned())) };
            let mut commit = Commit::new()
                .if_at(keys::head(), head.revision)
                .if_absent(keys::document(serial))
                .put(keys::head(), in_force)
                .put(keys::document(serial), record);
            for (version, authority) in (known + 1..).zip(next.chain().after(known)) {
                commit = commit.put(keys::authority(version), records::text(authority));
            }
            if let Some(revision) = self.write(commit, who, what).await? {
                // What is left over is removed with the next one, too.
                if let Err(why) = self.forget(&documents, serial).await {
                    tracing::warn!("old documents are kept: {why}");
                }
                return Ok(Some(revision));
            }
        }
        Err(busy())
    }

    async fn publish_delegated(
        &self,
        who: &str,
        lines: Vec<DelegatedLines>,
    ) -> Result<Option<Revision>, Error> {
        if lines.len() > AT_ONCE {
            return Err(Error::Refused(format!("hand in {AT_ONCE} acts of a delegate at once, no more")));
        }
        let mut last = None;
        for _ in 0..TRIES {
            let Loaded { desk, head, .. } = load::load(self.store(), false).await?;
            let mut next = desk.fleet().clone();
            let news = News { delegated: lines.clone(), ..News::default() };
            let taken = next.take(news);
            refuse(&taken)?;
            if !taken.is_new {
                return is_with(desk.fleet(), &lines).map(|()| last);
            }
            is_with(&next, &lines)?;
            self.close_applications(desk.fleet(), &next).await?;
            let (Some(head), Some(serial)) = (head, next.serial()) else { return Err(busy()) };
            // How many a delegate may add is counted: one after the other.
            let mut commit =
                Commit::new().if_at(keys::head(), head.revision).put(keys::head(), head.value.clone());
            for one in &lines {
                commit = commit.put(keys::delegated(serial, &one.signed.digest()), records::text(one));
            }
            let acts = lines.iter().map(|one| one.signed.digest()).collect();
            // Read again: what a site has said meanwhile may collide with it, and then it is not in force.
            last = self.write(commit, who, What::Delegated { acts }).await?.or(last);
        }
        Err(busy())
    }

    /// Removes documents that nobody needs any more, and what delegates have allowed with them.
    async fn forget(
        &self,
        documents: &BTreeMap<Serial, StoredDocument>,
        newest: Serial,
    ) -> Result<(), Error> {
        let oldest = Serial(newest.0.saturating_sub(KEPT));
        let is_whole = |(_, stored): &(&Serial, &StoredDocument)| !stored.whole.is_empty();
        let begin = documents.range(..oldest).rev().find(is_whole).map(|(serial, _)| *serial);
        let mut gone: Vec<Key> = Vec::new();
        for (serial, _) in documents.range(..begin.unwrap_or(Serial(0))) {
            let chunks = self.store().list(&keys::chunks(*serial)).await?;
            gone.push(keys::document(*serial));
            gone.extend(chunks.entries.into_iter().map(|entry| entry.key));
        }
        let delegated = self.store().list(&keys::all_delegated()).await?;
        let is_old = |key: &Key| {
            let serial = key.as_str().split('/').nth(2).and_then(|text| text.parse().ok());
            serial.is_some_and(|serial: u64| serial < newest.0)
        };
        gone.extend(delegated.entries.into_iter().map(|entry| entry.key).filter(is_old));
        for keys in gone.chunks(AT_ONCE) {
            let commit = keys.iter().fold(Commit::new(), |commit, key| commit.delete(key.clone()));
            self.store().commit(&commit).await?;
        }
        Ok(())
    }

    /// Takes what a site says of itself.
    ///
    /// # Errors
    /// If it says something of another, what it may not say, or the store does not answer.
    pub async fn hear(&self, site: &Name, news: News) -> Result<(), Error> {
        let News { authorities, document, delegated, contacts, networks } = &news;
        let only_notices = authorities.is_empty() && document.is_none() && delegated.is_empty();
        if !only_notices || contacts.len() > 1 || networks.len() > 1 {
            return Err(Error::Refused("a site tells one notice of each kind, and nothing else".to_owned()));
        }
        if news == News::default() {
            return Ok(());
        }
        let mut next = self.fleet();
        let (contacts, networks) = (news.contacts.clone(), news.networks.clone());
        let taken = next.take(news);
        refuse(&taken)?;
        // It has the last of it then, and tells it again.
        if taken.is_new && !self.hears(site) {
            return Err(Error::Unavailable(format!("{site} says something new too often")));
        }
        let mut last = None;
        for notice in contacts {
            last = self.keep(site, keys::contact(site), &notice).await?.or(last);
        }
        for notice in networks {
            last = self.keep(site, keys::networks(site), &notice).await?.or(last);
        }
        if let Some(revision) = last {
            self.catch_up(revision).await;
        }
        Ok(())
    }

    /// Keeps a notice that has been verified, unless a later one is there.
    async fn keep<T: Notice>(
        &self,
        site: &Name,
        key: Key,
        notice: &Signed<T>,
    ) -> Result<Option<Revision>, Error> {
        let said = |notice: &Signed<T>| notice.read().map_err(|error| Error::Refused(error.to_string()));
        let new = said(notice)?;
        if new.site() != site {
            return Err(Error::Refused(format!("{site} tells what {} says", new.site())));
        }
        if !self.has_signed(site, notice) {
            return Err(Error::Refused(format!("{site} has not signed what it tells")));
        }
        for _ in 0..TRIES {
            let entry = self.store().get(&key).await?;
            let commit = match &entry {
                Some(entry) => {
                    let old = records::read(entry)?;
                    if said(&old)?.number() >= new.number() && self.has_signed(site, &old) {
                        return Ok(None);
                    }
                    Commit::new().if_at(key.clone(), entry.revision)
                }
                None => Commit::new().if_absent(key.clone()),
            };
            match self.store().commit(&commit.put(key.clone(), records::text(notice))).await {
                Ok(revision) => return Ok(Some(revision)),
                Err(CommitError::Conflict) => {}
                // The site tells it again until it is heard.
                Err(error) => return Err(error.into()),
            }
        }
        Err(busy())
    }

    /// Whether the site that has this name now has signed something: another may have had it before.
    fn has_signed<T: Notice>(&self, site: &Name, notice: &Signed<T>) -> bool {
        let desk = self.desk();
        desk.fleet().site(site).is_some_and(|site| notice.is_signed_by(site.member.identity))
    }
}

/// Refuses a document that was not made from the one in force.
fn may_follow(before: &Document, news: &DocumentNews) -> Result<(), Error> {
    let head = news.head.read().map_err(|error| Error::Refused(error.to_string()))?;
    let in_force = before.head.serial.0;
    if head.previous != Some(before.signed.digest()) {
        return Err(Error::Overtaken(format!(
            "document {} was not made from document {in_force}, which is in force: make it anew from that one",
            head.serial.0
        )));
    }
    if head.serial.0 != in_force + 1 {
        return Err(Error::Refused(format!(
            "document {} cannot follow document {in_force}: serials count by one",
            head.serial.0
        )));
    }
    Ok(())
}

/// Refuses a document made before a delegate did something, which it would undo: a site that was let in would be gone, and one
/// that was taken out be there again.
fn keeps_delegated(now: &Fleet, next: &Document) -> Result<(), Error> {
    let what = match now.undone_by(&next.contents) {
        None => return Ok(()),
        Some(Act::Add { member, .. }) => format!("let {} in", member.name),
        Some(Act::Revoke { site, .. }) => format!("taken {site} out"),
    };
    Err(Error::Overtaken(format!(
        "a delegate has {what}, which document {} knows nothing of: make it anew from what is in force",
        next.head.serial.0
    )))
}

/// Whether the next document is stored as a whole, too.
fn whole_is_due(documents: &BTreeMap<Serial, StoredDocument>, serial: Serial) -> bool {
    let last = documents.iter().rev().find(|(_, stored)| !stored.whole.is_empty());
    last.is_none_or(|(last, _)| serial.0 >= last.0 + WHOLE_EVERY)
}

/// Refuses what is not in force after all.
fn is_with(fleet: &Fleet, lines: &[DelegatedLines]) -> Result<(), Error> {
    match lines.iter().all(|one| fleet.has_delegated(&one.signed.digest())) {
        true => Ok(()),
        false => Err(Error::Overtaken(
            "it goes with another document than the one in force, or collides: sign it anew".to_owned(),
        )),
    }
}

pub(crate) fn busy() -> Error {
    Error::Unavailable("others change the same without a pause".to_owned())
}
