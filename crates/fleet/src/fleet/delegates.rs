//! What delegates allow, within their limits. This file and [`Fleet`] need each other: it keeps what is allowed, and what is
//! allowed depends on all that it keeps.

use std::collections::BTreeMap;

use ipnet::IpNet;

use super::Fleet;
use crate::authority::Delegate;
use crate::claims::Claims;
use crate::document::Contents;
use crate::key::{Digest, VerifyingKey};
use crate::line::Line;
use crate::name::Name;
use crate::news::Refusal;
use crate::notice::{Act, Delegated, DelegatedLines};
use crate::signed::Signed;
use crate::site::{Contact, Known, Member, Site, Told};

/// What a delegate has allowed, and is within its limits.
#[derive(Debug, Clone)]
pub(super) struct Allowed {
    pub(super) signed: Signed<Delegated>,
    by: VerifyingKey,
    pub(super) effect: Effect,
}

/// What comes of it.
#[derive(Debug, Clone)]
pub(super) enum Effect {
    /// A site is there.
    Added(Site),
    /// A site is none any more.
    Revoked { site: Name, since: u64 },
}

/// What delegates have allowed, by the digest of what they signed.
#[derive(Debug, Clone, Default)]
pub(super) struct Delegations {
    all: BTreeMap<Digest, Allowed>,
    /// The sites that are there by that.
    added: BTreeMap<Name, Digest>,
    /// Those that are none any more by that, and since when.
    revoked: BTreeMap<Name, u64>,
}

impl Delegations {
    pub(super) fn clear(&mut self) {
        *self = Delegations::default();
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Allowed> {
        self.all.values()
    }

    /// The digest of all of it, if there is anything.
    pub(super) fn digest(&self) -> Option<Digest> {
        (!self.all.is_empty()).then(|| Digest::of_all(self.all.keys()))
    }

    /// The sites that delegates have added to the document.
    pub(super) fn sites(&self) -> impl Iterator<Item = Told<'_>> {
        self.added.keys().filter_map(|name| self.site(name))
    }

    /// One of them.
    pub(super) fn site(&self, name: &Name) -> Option<Told<'_>> {
        match &self.all.get(self.added.get(name)?)?.effect {
            Effect::Added(site) => Some(site.told()),
            Effect::Revoked { .. } => None,
        }
    }

    /// Since when a site is none any more, if a delegate has taken it out.
    pub(super) fn revoked(&self, name: &Name) -> Option<u64> {
        self.revoked.get(name).copied()
    }

    fn put(&mut self, digest: Digest, allowed: Allowed) {
        match &allowed.effect {
            Effect::Added(site) => drop(self.added.insert(site.name().clone(), digest)),
            Effect::Revoked { site, since } => {
                // Whoever takes it out first.
                self.revoked
                    .entry(site.clone())
                    .and_modify(|known| *known = *since.min(known))
                    .or_insert(*since);
            }
        }
        self.all.insert(digest, allowed);
    }
}

impl Fleet {
    pub(super) fn take_delegated(&mut self, lines: DelegatedLines) -> Result<bool, Refusal> {
        let delegated = lines.signed.read()?;
        if delegated.network != self.network() {
            return Err(Refusal::Foreign);
        }
        // With an older document it is forgotten; with a later one it cannot be judged yet, and is told again.
        if self.serial() != Some(delegated.serial) {
            return Ok(false);
        }
        let digest = lines.signed.digest();
        let known = self.delegated.all.get(&digest);
        let is_whole = |allowed: &Allowed| match &allowed.effect {
            Effect::Added(site) => site.contact.contact().is_some(),
            Effect::Revoked { .. } => true,
        };
        if known.is_some_and(|known| is_whole(known) || lines.contact.is_none()) {
            return Ok(false);
        }
        let delegate = self.delegate_of(&lines.signed, &delegated.act).ok_or(Refusal::NoDelegate)?;
        let refused = |why: String| Refusal::Delegate { by: delegate.name.clone(), why };
        let effect = match delegated.act {
            Act::Add { member, contact } => {
                let contact = match lines.contact {
                    Some(text) => {
                        let line = Line::<Contact>::read(text).map_err(|error| refused(error.to_string()))?;
                        if *line.digest() != contact {
                            return Err(refused("the contact is not the one that was signed".to_owned()));
                        }
                        Known::Contact(line)
                    }
                    None => Known::Withheld(contact),
                };
                let site = Site { member: Line::new(*member), contact };
                let claims = self.may_add(&delegate, &site, known.is_some()).map_err(refused)?;
                let effect = Effect::Added(site);
                if let Some(claims) = claims {
                    // It collides with nothing that is known: no notice says less by it.
                    self.claims = claims;
                    let allowed = Allowed { by: delegate.key, signed: lines.signed, effect };
                    self.delegated.put(digest, allowed);
                    return Ok(true);
                }
                effect
            }
            Act::Revoke { site, since } => {
                self.may_revoke(&delegate, &site).map_err(refused)?;
                Effect::Revoked { site, since }
            }
        };
        let by = delegate.key;
        self.delegated.put(digest, Allowed { signed: lines.signed, by, effect });
        self.judge_notices_again();
        Ok(true)
    }

    /// Who has signed it. What lets nobody in may be of whoever was a delegate since the document was signed: so no order of
    /// news undoes a revocation before the next document.
    fn delegate_of(&self, signed: &Signed<Delegated>, act: &Act) -> Option<Delegate> {
        match act {
            Act::Add { .. } => {
                let delegates = &self.chain.current().delegates;
                delegates.iter().find(|one| signed.is_signed_by(one.key)).cloned()
            }
            Act::Revoke { site, .. } => {
                let since = self.document.as_ref()?.head.authority;
                let by: Vec<Delegate> =
                    self.chain.delegates_since(since).filter(|one| signed.is_signed_by(one.key)).collect();
                let may = by.iter().find(|one| self.may_revoke(one, site).is_ok());
                may.or(by.first()).cloned()
            }
        }
    }

    /// Whether what a delegate has signed, of which this is the digest, is in force.
    #[must_use]
    pub fn has_delegated(&self, digest: &Digest) -> bool {
        self.delegated.all.contains_key(digest)
    }

    /// Something that a delegate has done, and that is not so any more with the next document: a site that it let in is not in
    /// there, or one that it took out is as before.
    #[must_use]
    pub fn undone_by(&self, next: &Contents) -> Option<Act> {
        let undone = self.delegated.all().find(|allowed| match &allowed.effect {
            Effect::Added(site) => {
                let then = next.told_of(site.name());
                then.is_none_or(|then| then.member.value().identity != site.member.value().identity)
            }
            Effect::Revoked { site, .. } => {
                next.told_of(site).is_some_and(|then| !then.member.value().is_revoked())
            }
        });
        undone.and_then(|allowed| Some(allowed.signed.read().ok()?.act))
    }

    /// Sites that an authority that is new does not let a delegate add any more are gone.
    pub(super) fn judge_delegated_again(&mut self) {
        let delegates = &self.chain.current().delegates;
        let all = std::mem::take(&mut self.delegated).all;
        let is_added = |(_, allowed): &(Digest, Allowed)| matches!(allowed.effect, Effect::Added(_));
        let (added, revoked): (Vec<_>, Vec<_>) = all.into_iter().partition(is_added);
        for (digest, allowed) in added.into_iter().chain(revoked) {
            let stays = match &allowed.effect {
                Effect::Added(site) => delegates
                    .iter()
                    .any(|one| one.key == allowed.by && within(one, site.member.value()).is_ok()),
                Effect::Revoked { site, .. } => self.granted(site).is_some(),
            };
            if stays {
                self.delegated.put(digest, allowed);
            }
        }
        self.judge_notices_again();
    }

    /// Refuses a site that this delegate may not add. What all have to themselves with it, if it is new.
    fn may_add(&self, delegate: &Delegate, site: &Site, is_known: bool) -> Result<Option<Claims>, String> {
        let member = site.member.value();
        member.check().map_err(|error| error.to_string())?;
        if let Some(contact) = site.contact.contact() {
            contact.check(&member.name).map_err(|error| error.to_string())?;
        }
        within(delegate, member)?;
        if is_known {
            // How it is met was withheld, and could not be judged with the rest.
            let mut claims = self.claims.clone();
            claims.add_contact_of(member, site.contact.contact()).map_err(|error| error.to_string())?;
            return Ok(None);
        }
        if self.granted(&member.name).is_some() {
            return Err(format!("there is a site {} already", member.name));
        }
        let is_added =
            |allowed: &&Allowed| allowed.by == delegate.key && matches!(allowed.effect, Effect::Added(_));
        if self.delegated.all().filter(is_added).count() >= delegate.most {
            return Err(format!("it may add {} sites with one document", delegate.most));
        }
        let mut claims = self.claims.clone();
        // A delegate is no administrator: its sites do not take a part of what is another's, either.
        claims.add_networks(&member.name, &member.networks).map_err(|error| error.to_string())?;
        claims.add(member, site.contact.contact()).map_err(|error| error.to_string())?;
        Ok(Some(claims))
    }

    fn may_revoke(&self, delegate: &Delegate, name: &Name) -> Result<(), String> {
        if !delegate.may_revoke {
            return Err("it may not take sites out".to_owned());
        }
        let Some(site) = self.granted(name) else { return Err(format!("there is no site {name}")) };
        let member = site.member.value();
        if !is_of(delegate, member) {
            return Err(format!("site {name} is not of the roles and zones that it may take out"));
        }
        Ok(())
    }
}

/// Whether a site is of the roles and zones that a delegate deals with.
fn is_of(delegate: &Delegate, member: &Member) -> bool {
    let in_zone = match &member.zone {
        Some(zone) => delegate.zones.contains(zone),
        None => delegate.zones.is_empty(),
    };
    delegate.roles.contains(&member.role) && in_zone
}

/// Refuses a site that is beyond the limits of a delegate.
fn within(delegate: &Delegate, member: &Member) -> Result<(), String> {
    if !is_of(delegate, member) {
        return Err(format!("site {} is not of the roles and zones that it may add", member.name));
    }
    let is_within = |network: &&IpNet| delegate.within.iter().any(|wide| wide.contains(*network));
    let mut networks = member.networks.iter().chain(&member.may_take);
    match networks.find(|network| !is_within(network)) {
        Some(network) => {
            Err(format!("the network {network} of site {} is in none that it may give", member.name))
        }
        None if member.is_revoked() => Err(format!("site {} is revoked as it comes", member.name)),
        None => Ok(()),
    }
}
