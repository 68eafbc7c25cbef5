//! A change that is to be signed: by one, or by one after the other, also on machines without a network.
//!
//! It has with it what is in force, so that whoever signs sees what it would do, wherever he is.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use controller::Preview;
use fleet::authority::{Authority, NetworkId};
use fleet::document::{Contents, Head, Serial};
use fleet::fleet::Fleet;
use fleet::key::SigningKey;
use fleet::news::{DocumentNews, News};
use fleet::signed::Signed;
use serde::{Deserialize, Serialize};

use super::folder::{read, verified};
use crate::failure::Failure;

/// A change with what it changes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Draft {
    /// The network.
    pub(super) network: NetworkId,
    /// What is in force.
    before: News,
    /// What would be published.
    pub(super) change: News,
}

impl Draft {
    /// The next document after what is in force, perhaps with another authority; nobody has signed it.
    pub(super) fn new(
        fleet: &Fleet,
        before: News,
        authority: Option<Authority>,
        change: impl FnOnce(&mut Contents) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let document = fleet.document().ok_or_else(|| Failure::Message("there is no document".to_owned()))?;
        let mut contents = document.contents.clone();
        take_over(fleet, &mut contents);
        change(&mut contents)?;
        contents.check()?;
        let version =
            authority.as_ref().map_or(fleet.chain().current().version, |authority| authority.version);
        let head = Head {
            network: fleet.network(),
            authority: version,
            serial: Serial(document.head.serial.0 + 1),
            made: now(),
            previous: Some(document.signed.digest()),
            contents: contents.digest(),
        };
        let change = News {
            authorities: authority.map(|authority| Signed::new(&authority, [])).into_iter().collect(),
            document: Some(DocumentNews {
                head: Signed::new(&head, []),
                change: contents.change_since(document),
            }),
            ..News::default()
        };
        Ok(Draft { network: fleet.network(), before, change })
    }

    /// Reads one, and verifies what it says is in force.
    pub(super) fn read(path: &Path) -> Result<(Self, Fleet), Failure> {
        let draft: Draft = serde_json::from_str(&read(path)?).map_err(|error| {
            Failure::Message(format!(
                "{}: this is no draft of `sidestep control draft`: {error}",
                path.display()
            ))
        })?;
        let fleet = verified(draft.network, draft.before.clone())?;
        Ok((draft, fleet))
    }

    /// As text.
    pub(super) fn to_text(&self) -> Result<String, Failure> {
        Ok(serde_json::to_string(self)? + "\n")
    }

    /// What it would do.
    pub(super) fn preview(&self, fleet: &Fleet) -> Result<Preview, Failure> {
        Ok(Preview::between(fleet, &fleet.supposing(&self.change)?))
    }

    /// Signs it.
    pub(super) fn sign(&mut self, fleet: &Fleet, key: &SigningKey) -> Result<(), Failure> {
        let after = fleet.supposing(&self.change)?;
        let mut administrators =
            fleet.chain().current().administrators.iter().chain(&after.chain().current().administrators);
        if !administrators.any(|one| one.key == key.public()) {
            let why = format!("{} is no administrator's key of this fleet", key.public());
            return Err(Failure::Message(why));
        }
        for authority in &mut self.change.authorities {
            authority.sign(key);
        }
        if let Some(document) = &mut self.change.document {
            document.head.sign(key);
        }
        Ok(())
    }

    /// Why it cannot be published yet; nothing, if it can.
    pub(super) fn lacks(&self, fleet: &Fleet) -> Option<String> {
        let taken = fleet.clone().take(self.change.clone());
        taken.refused.first().map(ToString::to_string)
    }
}

/// What delegates have allowed and sites have said of themselves stands in the next document.
fn take_over(fleet: &Fleet, contents: &mut Contents) {
    let added: Vec<_> =
        fleet.sites().into_iter().filter(|(name, _)| !contents.sites().contains_key(*name)).collect();
    for (_, site) in added {
        if let Some(contact) = site.contact {
            contents.put(fleet::site::Site::new(site.member.into_owned(), contact.clone()));
        }
    }
    let revoked: Vec<_> = contents.sites().values().cloned().collect();
    for mut site in revoked {
        let now = fleet.site(site.name()).and_then(|now| now.member.revoked);
        let mut member = site.member.value().clone();
        if let Some(since) = now.filter(|_| member.revoked.is_none()) {
            member.revoked = Some(since);
            site.member = fleet::line::Line::new(member);
            contents.put(site);
        }
    }
}

/// Seconds of Unix time.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
