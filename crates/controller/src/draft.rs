//! A change that is to be signed: by one, or by one after the other, also on machines without a network.
//!
//! It has with it what is in force, so that whoever signs sees what it would do, wherever he is.

use fleet::authority::{Authority, NetworkId};
use fleet::document::{Contents, Head, Serial};
use fleet::enrolment::Application;
use fleet::fleet::Fleet;
use fleet::key::SigningKey;
use fleet::line::Line;
use fleet::name::Name;
use fleet::news::{DocumentNews, News};
use fleet::settings::Settings;
use fleet::signed::Signed;
use fleet::site::Site;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::folder::verified;
use crate::preview::Preview;
use crate::records::now;

/// A change with what it changes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Draft {
    /// The network.
    pub network: NetworkId,
    /// What is in force.
    before: News,
    /// What would be published.
    pub change: News,
}

impl Draft {
    /// The next document after what is in force, perhaps with another authority; nobody has signed it.
    ///
    /// # Errors
    /// If there is no document, or the change cannot be.
    pub fn new(
        fleet: &Fleet,
        before: News,
        authority: Option<Authority>,
        change: impl FnOnce(&mut Contents) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let document = fleet.document().ok_or_else(|| Error::Missing("document".to_owned()))?;
        let mut contents = document.contents.clone();
        take_over(fleet, &mut contents);
        change(&mut contents)?;
        contents.check().map_err(|error| Error::Refused(error.to_string()))?;
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

    /// Lets sites in. Their applications have been verified.
    ///
    /// # Errors
    /// If a name is another's, or the change cannot be.
    pub fn approve(fleet: &Fleet, before: News, applications: Vec<Application>) -> Result<Self, Error> {
        let mut names: Vec<&Name> = applications.iter().map(|application| &application.member.name).collect();
        names.sort();
        if let Some(two) = names.windows(2).find(|two| two[0] == two[1]) {
            let why = format!("two applications are for {}: name one by its first digits", two[0]);
            return Err(Error::Refused(why));
        }
        Draft::new(fleet, before, None, |contents| {
            for Application { member, contact, .. } in applications {
                let there = contents.site(&member.name);
                if there.is_some_and(|site| site.member.value().identity != member.identity) {
                    return Err(Error::Refused(format!("there is a site {} already", member.name)));
                }
                contents.put(Site::new(member, contact));
            }
            Ok(())
        })
    }

    /// Takes sites out; with `remove`, they are mentioned no more.
    ///
    /// # Errors
    /// If there is no such site, it is out already, or the change cannot be.
    pub fn revoke(fleet: &Fleet, before: News, sites: &[Name], remove: bool) -> Result<Self, Error> {
        let since = now();
        let is_signed = |name| fleet.document().is_some_and(|known| known.contents.site(name).is_some());
        if let Some(name) = sites.iter().find(|name| remove && fleet.site(name).is_some() && !is_signed(name))
        {
            // A document without it would be one that was made before, too.
            let why = format!("a delegate has let {name} in: revoke it, and remove it with the next change");
            return Err(Error::Refused(why));
        }
        Draft::new(fleet, before, None, |contents| {
            sites.iter().try_for_each(|name| leave(contents, name, remove, since))
        })
    }

    /// Other rules, and other places of controllers.
    ///
    /// # Errors
    /// If there would be no controller, or the change cannot be.
    pub fn settings(fleet: &Fleet, before: News, settings: Settings) -> Result<Self, Error> {
        if settings.controllers.is_empty() {
            let why = "there is no [[controller]]: no site could ask any";
            return Err(Error::Refused(why.to_owned()));
        }
        Draft::new(fleet, before, None, |contents| {
            contents.set_settings(settings);
            Ok(())
        })
    }

    /// Reads one, and verifies what it says is in force.
    ///
    /// # Errors
    /// If it is none, what it says is in force is not signed, or it is a change of something else.
    pub fn parse(text: &str) -> Result<(Self, Fleet), Error> {
        let no = |error| Error::Refused(format!("this is no draft of `sidestep control draft`: {error}"));
        let draft: Draft = serde_json::from_str(text).map_err(no)?;
        let fleet = verified(draft.network, draft.before.clone());
        let fleet = fleet.map_err(|error| Error::Refused(error.to_string()))?;
        draft.is_of(&fleet)?;
        Ok((draft, fleet))
    }

    /// Refuses a change of anything else than what it says is in force. Whoever has made it may have taken an older document for
    /// that, in which a site was still a member that this one would bring back: nothing would be shown of it, and it would be
    /// signed.
    fn is_of(&self, before: &Fleet) -> Result<(), Error> {
        let no = |why: &str| {
            let next = "do not sign it, and make it anew with `sidestep control draft`";
            Err(Error::Refused(format!("{why}: {next}")))
        };
        let News { authorities, document: Some(document), .. } = &self.change else {
            return no("there is no document in this draft");
        };
        let rest = News { authorities: Vec::new(), document: None, ..self.change.clone() };
        // Of two authorities, or of what a delegate does after the document, only what is there in the end would be shown.
        if authorities.len() > 1 || rest != News::default() {
            return no("this draft has more in it than a document and an authority");
        }
        let head = document.head.read().map_err(|error| Error::Refused(error.to_string()))?;
        let Some(known) = before.document() else {
            return no("this draft does not say which document is in force");
        };
        if head.network != self.network {
            return no("the document in this draft is of another network");
        }
        if head.previous != Some(known.signed.digest())
            || Some(head.serial.0) != known.head.serial.0.checked_add(1)
        {
            let why = format!(
                "document {} in this draft is no change of document {}, which it says is in force, so that what it \
                 would do cannot be shown",
                head.serial.0, known.head.serial.0
            );
            return no(&why);
        }
        Ok(())
    }

    /// As text.
    ///
    /// # Errors
    /// None that anybody has seen: a draft is a map with texts as keys.
    pub fn to_text(&self) -> Result<String, Error> {
        let text = serde_json::to_string(self).map_err(|error| Error::Refused(error.to_string()))?;
        Ok(text + "\n")
    }

    /// What it would do.
    ///
    /// # Errors
    /// If it could not be taken whoever had signed it.
    pub fn preview(&self, fleet: &Fleet) -> Result<Preview, Error> {
        Ok(Preview::between(fleet, &supposing(fleet, &self.change)?))
    }

    /// Signs it.
    ///
    /// # Errors
    /// If the key is no administrator's.
    pub fn sign(&mut self, fleet: &Fleet, key: &SigningKey) -> Result<(), Error> {
        let after = supposing(fleet, &self.change)?;
        let mut administrators =
            fleet.chain().current().administrators.iter().chain(&after.chain().current().administrators);
        if !administrators.any(|one| one.key == key.public()) {
            let why = format!("{} is no administrator's key of this fleet", key.public());
            return Err(Error::Refused(why));
        }
        for authority in &mut self.change.authorities {
            authority.sign(key);
        }
        if let Some(document) = &mut self.change.document {
            document.head.sign(key);
        }
        Ok(())
    }

    /// Who has signed the document, of those who may now or then.
    ///
    /// # Errors
    /// If it could not be taken whoever had signed it.
    pub fn signers(&self, fleet: &Fleet) -> Result<Vec<Name>, Error> {
        let after = supposing(fleet, &self.change)?;
        let may =
            after.chain().current().administrators.iter().chain(&fleet.chain().current().administrators);
        let Some(document) = &self.change.document else { return Ok(Vec::new()) };
        let signed = may.filter(|one| document.head.is_signed_by(one.key)).map(|one| one.name.clone());
        let mut names: Vec<Name> = signed.collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Why it cannot be published yet; nothing, if it can.
    #[must_use]
    pub fn lacks(&self, fleet: &Fleet) -> Option<String> {
        let taken = fleet.clone().take(self.change.clone());
        taken.refused.first().map(ToString::to_string)
    }
}

fn supposing(fleet: &Fleet, change: &News) -> Result<Fleet, Error> {
    fleet.supposing(change).map_err(|refusal| Error::Refused(refusal.to_string()))
}

fn leave(contents: &mut Contents, name: &Name, remove: bool, since: u64) -> Result<(), Error> {
    let missing = || Error::Missing(format!("site {name}"));
    if remove {
        return contents.remove(name).map(drop).ok_or_else(missing);
    }
    let mut site = contents.site(name).ok_or_else(missing)?;
    let mut member = site.member.value().clone();
    if member.revoked.is_some() {
        return Err(Error::Refused(format!("site {name} is revoked already")));
    }
    member.revoked = Some(since);
    site.member = Line::new(member);
    contents.put(site);
    Ok(())
}

/// What delegates have allowed and sites have said of themselves stands in the next document.
fn take_over(fleet: &Fleet, contents: &mut Contents) {
    let added: Vec<_> = fleet.sites().into_iter().filter(|(name, _)| contents.site(name).is_none()).collect();
    for (_, site) in added {
        if let Some(contact) = site.contact {
            contents.put(Site::new(site.member.into_owned(), contact.clone()));
        }
    }
    for mut site in contents.sites().into_values() {
        let now = fleet.site(site.name()).and_then(|now| now.member.revoked);
        let mut member = site.member.value().clone();
        if let Some(since) = now.filter(|_| member.revoked.is_none()) {
            member.revoked = Some(since);
            site.member = Line::new(member);
            contents.put(site);
        }
    }
}
