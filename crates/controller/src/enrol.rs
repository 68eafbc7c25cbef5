//! Invitations, and the applications that come of them. Nobody becomes a member here: what is signed does that.

use std::collections::HashSet;

use fleet::authority::Authority;
use fleet::document::Serial;
use fleet::enrolment::{self, Application, State, Status, Terms};
use fleet::fleet::{Current, Fleet};
use fleet::key::VerifyingKey;
use fleet::name::Name;
use fleet::signed::Signed;
use serde::{Deserialize, Serialize};
use store::{Commit, CommitError, Entry, Store};

use crate::controller::Controller;
use crate::error::Error;
use crate::keys;
use crate::publish::{TRIES, busy};
use crate::records::{self, Applied, Token, What, now};

/// The longest that an invitation is good for, in seconds: 30 days.
const LONGEST: u64 = 30 * 24 * 3600;

/// An invitation, as people are told of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invited {
    /// How it is named.
    pub id: String,
    /// What is stored of it.
    pub token: Token,
}

/// An application, as people are told of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waiting {
    /// How it is named.
    pub id: String,
    /// What is stored of it. Whoever signs what comes of it verifies it anew.
    pub applied: Applied,
    /// What became of it.
    pub state: State,
}

impl<S: Store> Controller<S> {
    /// Takes note of an invitation's key: its private half stays with who invites.
    ///
    /// # Errors
    /// If it is good for longer than 30 days, there is such a key already, or the store does not answer.
    pub async fn invite(
        &self,
        who: &str,
        key_of_it: VerifyingKey,
        terms: Terms,
        expires: u64,
    ) -> Result<String, Error> {
        let now = now();
        if expires <= now || expires > now + LONGEST {
            return Err(Error::Refused("an invitation is good for 30 days at the most".to_owned()));
        }
        let id = keys::token_id(key_of_it);
        let token = Token { terms, expires, by: who.to_owned(), used: None };
        let key = keys::token(key_of_it);
        for _ in 0..TRIES {
            if let Some(entry) = self.store().get(&key).await? {
                // A second try, whose first was not heard of.
                return match records::read::<Token>(&entry)? == token {
                    true => Ok(id),
                    false => Err(Error::Refused("there is an invitation with this key".to_owned())),
                };
            }
            let commit = Commit::new().if_absent(key.clone()).put(key.clone(), records::text(&token));
            let what = What::Invited { token: id.clone(), site: token.terms.site.clone(), expires };
            if self.write(commit, who, what).await?.is_some() {
                self.forget_expired(now).await;
                return Ok(id);
            }
        }
        Err(busy())
    }

    /// Invitations that nobody used in time are gone.
    async fn forget_expired(&self, now: u64) {
        if !self.may_look() {
            return;
        }
        let Ok(listing) = self.store().list(&keys::tokens()).await else { return };
        let is_gone = |entry: &&Entry| {
            records::read::<Token>(entry).is_ok_and(|token| token.used.is_none() && token.expires < now)
        };
        for entry in listing.entries.iter().filter(is_gone).take(50) {
            let commit = Commit::new().if_at(entry.key.clone(), entry.revision).delete(entry.key.clone());
            // The next invitation tries again.
            let _ = self.store().commit(&commit).await;
        }
    }

    /// Takes an invitation back that nobody has used.
    ///
    /// # Errors
    /// If there is none, it was used, or the store does not answer.
    pub async fn uninvite(&self, who: &str, id: &str) -> Result<(), Error> {
        for _ in 0..TRIES {
            let listing = self.store().list(&keys::tokens()).await?;
            let ends = format!("/{id}");
            let entry = listing.entries.iter().find(|entry| entry.key.as_str().ends_with(&ends));
            let entry = entry.ok_or_else(|| Error::Missing("such invitation".to_owned()))?;
            if records::read::<Token>(entry)?.used.is_some() {
                let why = "the invitation was used: turn the application down instead";
                return Err(Error::Refused(why.to_owned()));
            }
            let commit = Commit::new().if_at(entry.key.clone(), entry.revision).delete(entry.key.clone());
            let what = What::Uninvited { token: id.to_owned() };
            if self.write(commit, who, what).await?.is_some() {
                return Ok(());
            }
        }
        Err(busy())
    }

    /// All invitations.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn invitations(&self) -> Result<Vec<Invited>, Error> {
        let listing = self.store().list(&keys::tokens()).await?;
        let one = |entry: &Entry| Ok(Invited { id: last(entry), token: records::read(entry)? });
        listing.entries.iter().map(one).collect()
    }

    /// Takes an application of a site that was invited. The same again is no other one.
    ///
    /// # Errors
    /// If it is not signed by who has to, nobody was invited so, somebody else has applied with the invitation, or the store
    /// does not answer.
    pub async fn apply(&self, signed: Signed<Application>) -> Result<Status, Error> {
        let network = self.desk().fleet().network();
        let refused = |error: &dyn std::fmt::Display| Error::Refused(error.to_string());
        // Signatures first: a stranger costs these, and one read.
        let application = enrolment::check(&signed, network).map_err(|error| refused(&error))?;
        let id = enrolment::id(&signed);
        let token_key = keys::token(application.token);
        let key = keys::application(&id).ok_or_else(busy)?;
        for _ in 0..TRIES {
            let entry = self.store().get(&token_key).await?;
            let entry = entry.ok_or_else(|| {
                refused(&"the invitation is not known here: it has expired, was taken back, or is of another fleet")
            })?;
            let mut token: Token = records::read(&entry)?;
            if token.used.as_ref() == Some(&id) {
                return self.status(&id).await;
            }
            if token.used.is_some() {
                return Err(refused(&"the invitation was used: have another one made"));
            }
            if token.expires < now() {
                return Err(refused(&"the invitation has expired: have another one made"));
            }
            token.terms.admit(&application.member).map_err(|error| refused(&error))?;
            self.refuse_known(&application)?;
            token.used = Some(id.clone());
            let applied =
                Applied { signed: signed.clone(), invited_by: token.by.clone(), at: now(), refused: None };
            let commit = Commit::new()
                .if_at(token_key.clone(), entry.revision)
                .put(token_key.clone(), records::text(&token))
                .put(key.clone(), records::text(&applied));
            let site = application.member.name.clone();
            let what = What::Applied { application: id.clone(), site: site.clone() };
            if self.write(commit, &format!("site {site}"), what).await?.is_some() {
                return self.status(&id).await;
            }
        }
        Err(busy())
    }

    /// Refuses an application as a site that is another one.
    fn refuse_known(&self, application: &Application) -> Result<(), Error> {
        let (desk, member) = (self.desk(), &application.member);
        match desk.fleet().site(&member.name) {
            Some(known) if known.member.identity != member.identity => Err(Error::Refused(format!(
                "there is a site {} already: take another name, or have it removed first",
                member.name
            ))),
            _ => Ok(()),
        }
    }

    /// What became of an application.
    ///
    /// # Errors
    /// If there is none, or the store does not answer.
    pub async fn status(&self, id: &str) -> Result<Status, Error> {
        let (_, applied) = self.application_entry(id).await?;
        let state = self.state(&applied)?;
        let authorities: Vec<Signed<Authority>> = self.desk().fleet().chain().after(0).to_vec();
        Ok(Status { id: id.to_owned(), state, authorities })
    }

    async fn application_entry(&self, id: &str) -> Result<(Entry, Applied), Error> {
        let missing = || Error::Missing("such application".to_owned());
        let key = keys::application(id).ok_or_else(missing)?;
        let entry = self.store().get(&key).await?.ok_or_else(missing)?;
        let applied = records::read(&entry)?;
        Ok((entry, applied))
    }

    fn state(&self, applied: &Applied) -> Result<State, Error> {
        let application = applied.signed.read().map_err(|error| Error::Broken(error.to_string()))?;
        let desk = self.desk();
        let known = desk.fleet().site(&application.member.name);
        let is_it = known.is_some_and(|site| {
            site.member.identity == application.member.identity && !site.member.is_revoked()
        });
        Ok(match &applied.refused {
            _ if is_it => State::Member,
            Some(why) => State::Refused { why: why.clone() },
            None => State::Waiting,
        })
    }

    /// All applications.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn applications(&self) -> Result<Vec<Waiting>, Error> {
        let listing = self.store().list(&keys::applications()).await?;
        let one = |entry: &Entry| {
            let applied: Applied = records::read(entry)?;
            Ok(Waiting { id: last(entry), state: self.state(&applied)?, applied })
        };
        listing.entries.iter().map(one).collect()
    }

    /// Turns an application down.
    ///
    /// # Errors
    /// If there is none, the site is a member, or the store does not answer.
    pub async fn refuse(&self, who: &str, id: &str, why: &str) -> Result<(), Error> {
        if why.len() > 200 || why.chars().any(char::is_control) {
            return Err(Error::Refused("a reason is one line of 200 octets at the most".to_owned()));
        }
        for _ in 0..TRIES {
            let (entry, mut applied) = self.application_entry(id).await?;
            if self.state(&applied)? == State::Member {
                let why = "the site is a member: revoke it, with a document";
                return Err(Error::Refused(why.to_owned()));
            }
            if applied.refused.as_deref() == Some(why) {
                return Ok(());
            }
            applied.refused = Some(why.to_owned());
            let site = self.site_of(&applied)?;
            let commit = Commit::new()
                .if_at(entry.key.clone(), entry.revision)
                .put(entry.key.clone(), records::text(&applied));
            let what = What::Refused { application: id.to_owned(), site, why: why.to_owned() };
            if self.write(commit, who, what).await?.is_some() {
                return Ok(());
            }
        }
        Err(busy())
    }

    /// Closes the applications of sites that are members now and will be none: nobody lets them in by these again. It comes
    /// before what takes them out; for as long as they are members, it changes nothing.
    pub(crate) async fn close_applications(&self, now: &Fleet, next: &Fleet) -> Result<(), Error> {
        let leaves = |name: &Name, site: &Current<'_>| {
            !site.member.is_revoked()
                && next.site(name).is_none_or(|then| {
                    then.member.identity != site.member.identity || then.member.is_revoked()
                })
        };
        let sites = now.sites().into_iter().filter(|(name, site)| leaves(name, site));
        let leavers: HashSet<VerifyingKey> = sites.map(|(_, site)| site.member.identity).collect();
        if leavers.is_empty() {
            return Ok(());
        }
        for entry in self.store().list(&keys::applications()).await?.entries {
            self.close(entry, &leavers).await?;
        }
        Ok(())
    }

    async fn close(&self, mut entry: Entry, leavers: &HashSet<VerifyingKey>) -> Result<(), Error> {
        for _ in 0..TRIES {
            let mut applied: Applied = records::read(&entry)?;
            let application = applied.signed.read().map_err(|error| Error::Broken(error.to_string()))?;
            if applied.refused.is_some() || !leavers.contains(&application.member.identity) {
                return Ok(());
            }
            applied.refused = Some("the site was taken out of the fleet".to_owned());
            let commit = Commit::new()
                .if_at(entry.key.clone(), entry.revision)
                .put(entry.key.clone(), records::text(&applied));
            match self.store().commit(&commit).await {
                Ok(_) => return Ok(()),
                Err(CommitError::Conflict) => {}
                Err(error) => return Err(error.into()),
            }
            let Some(newer) = self.store().get(&entry.key).await? else { return Ok(()) };
            entry = newer;
        }
        Err(busy())
    }

    fn site_of(&self, applied: &Applied) -> Result<Name, Error> {
        let application = applied.signed.read().map_err(|error| Error::Broken(error.to_string()))?;
        Ok(application.member.name)
    }

    /// The serial of the document in force, by the store.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn serial_in_store(&self) -> Result<Serial, Error> {
        let head = self.store().get(&keys::head()).await?;
        let head = head.ok_or_else(|| Error::Missing("document".to_owned()))?;
        Ok(records::read::<records::InForce>(&head)?.serial)
    }
}

/// How an entry is named by people.
fn last(entry: &Entry) -> String {
    entry.key.as_str().rsplit('/').next().unwrap_or_default().to_owned()
}
