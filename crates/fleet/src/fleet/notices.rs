//! What sites say of themselves.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Fleet, Held};
use crate::claims::Claims;
use crate::key::VerifyingKey;
use crate::line::Line;
use crate::name::Name;
use crate::news::Refusal;
use crate::notice::{ContactNotice, NetworksNotice, Notice};
use crate::signed::Signed;
use crate::site::{Member, check_networks};

impl Fleet {
    pub(super) fn take_contact(&mut self, signed: Signed<ContactNotice>) -> Result<Option<Name>, Refusal> {
        let Some((notice, by)) = self.verify(&signed, &self.contacts)? else { return Ok(None) };
        let site = notice.site.clone();
        notice.contact.check(&site).map_err(|error| refused(&site, &error))?;
        let old = self.contacts.remove(&site);
        if old.is_some() {
            self.claims = self.all_claims();
        }
        let result = self.claims.add_contact(&site, &notice.contact);
        let result = result.map(|()| site.clone()).map_err(|error| refused(&site, &error));
        self.keep(result, |fleet, is_kept| {
            let held = if is_kept { Some(Held { signed, notice, by }) } else { old };
            fleet.contacts.extend(held.map(|held| (site, held)));
        })
    }

    pub(super) fn take_networks(&mut self, signed: Signed<NetworksNotice>) -> Result<Option<Name>, Refusal> {
        let Some((notice, by)) = self.verify(&signed, &self.networks)? else { return Ok(None) };
        let site = notice.site.clone();
        self.may_take(&notice)?;
        let old = self.networks.remove(&site);
        if old.is_some() {
            self.claims = self.all_claims();
        }
        let result = self.claims.add_networks(&site, &notice.networks);
        let result = result.map(|()| site.clone()).map_err(|error| refused(&site, &error));
        self.keep(result, |fleet, is_kept| {
            let held = if is_kept { Some(Held { signed, notice, by }) } else { old };
            fleet.networks.extend(held.map(|held| (site, held)));
        })
    }

    /// Who says something new of how he is met, in a notice with this number: later than what is known, and signed by him.
    #[must_use]
    pub fn new_contact(&self, signed: &Signed<ContactNotice>) -> Option<(Name, u64)> {
        let (notice, _) = self.verify(signed, &self.contacts).ok()??;
        Some((notice.site, notice.number))
    }

    /// The same of networks.
    #[must_use]
    pub fn new_networks(&self, signed: &Signed<NetworksNotice>) -> Option<(Name, u64)> {
        let (notice, _) = self.verify(signed, &self.networks).ok()??;
        Some((notice.site, notice.number))
    }

    /// Puts a notice where the old one was, or that back.
    fn keep(
        &mut self,
        result: Result<Name, Refusal>,
        put: impl FnOnce(&mut Self, bool),
    ) -> Result<Option<Name>, Refusal> {
        put(self, result.is_ok());
        if result.is_err() {
            self.claims = self.all_claims();
        }
        result.map(Some)
    }

    /// What a notice says, if a site has signed it and has said nothing later.
    fn verify<T: Notice>(
        &self,
        signed: &Signed<T>,
        known: &BTreeMap<Name, Held<T>>,
    ) -> Result<Option<(T, VerifyingKey)>, Refusal> {
        let notice = signed.read()?;
        if notice.network() != self.network() {
            return Err(Refusal::Foreign);
        }
        let name = notice.site();
        if known.get(name).is_some_and(|held| held.notice.number() >= notice.number()) {
            return Ok(None);
        }
        let member = self.speaker(name).ok_or_else(|| Refusal::Unsigned(name.clone()))?;
        if notice.number() <= member.notices_after {
            return Ok(None);
        }
        let by = member.identity;
        if !signed.is_signed_by(by) {
            return Err(Refusal::Unsigned(name.clone()));
        }
        Ok(Some((notice, by)))
    }

    /// A site that may say something.
    fn speaker(&self, name: &Name) -> Option<&Member> {
        let member = self.granted(name)?.member.value();
        (!member.is_revoked() && self.delegated.revoked(name).is_none()).then_some(member)
    }

    /// Refuses networks that a site may not take.
    fn may_take(&self, notice: &NetworksNotice) -> Result<(), Refusal> {
        let site = &notice.site;
        check_networks(site, &notice.networks, notice.address).map_err(|error| refused(site, &error))?;
        let Some(member) = self.speaker(site) else { return Err(Refusal::Unsigned(site.clone())) };
        let is_its = |network| {
            member.networks.contains(network) || member.may_take.iter().any(|wide| wide.contains(network))
        };
        match notice.networks.iter().find(|network| !is_its(network)) {
            Some(network) => Err(refused(site, &format!("it may not take {network}"))),
            None => Ok(()),
        }
    }

    /// Forgets what sites say that they may not say any more, or that collides with what was signed since. What was verified
    /// once is not verified again.
    pub(super) fn judge_notices_again(&mut self) {
        let (contacts, networks) = (std::mem::take(&mut self.contacts), std::mem::take(&mut self.networks));
        self.claims = self.all_claims();
        for (site, held) in networks {
            let is_said = self.still_says(&site, &held) && self.may_take(&held.notice).is_ok();
            if is_said && self.claims.add_networks(&site, &held.notice.networks).is_ok() {
                self.networks.insert(site, held);
            }
        }
        for (site, held) in contacts {
            if self.still_says(&site, &held) && self.claims.add_contact(&site, &held.notice.contact).is_ok() {
                self.contacts.insert(site, held);
            }
        }
    }

    /// Whether the site of this name is the one that has said it, and is still believed.
    fn still_says<T: Notice>(&self, site: &Name, held: &Held<T>) -> bool {
        let is_its =
            |member: &Member| held.notice.number() > member.notices_after && held.by == member.identity;
        self.speaker(site).is_some_and(is_its)
    }

    /// What all sites have to themselves, and what they say they have.
    fn all_claims(&self) -> Claims {
        let mut claims = Claims::of(Arc::clone(self.claims.members()));
        // Where two are the same, that was refused before.
        if let Some(document) = &self.document {
            let _ = document.contents.claim_contacts(&mut claims);
        }
        for site in self.delegated.sites() {
            let _ = claims.add(site.member.value(), site.contact.map(Line::value));
        }
        for (site, held) in &self.networks {
            let _ = claims.add_networks(site, &held.notice.networks);
        }
        for (site, held) in &self.contacts {
            let _ = claims.add_contact(site, &held.notice.contact);
        }
        claims
    }
}

fn refused(site: &Name, why: &impl ToString) -> Refusal {
    Refusal::Notice { site: site.clone(), why: why.to_string() }
}
