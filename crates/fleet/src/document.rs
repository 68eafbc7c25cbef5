//! The membership document: settings and sites, and the head that administrators sign.
//!
//! A head has a serial and the digest of the contents, which is made of the digests of their lines. So a change is the lines
//! that are different, however many others there are; who takes it computes the digest anew, and takes nothing that is not
//! exactly what was signed.
//!
//! Contents are in two parts, too: what every member knows, which is the same for all who have the document, and how those sites
//! are met of which that is known here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::authority::NetworkId;
use crate::claims::{Claims, Collision, Part};
use crate::key::Digest;
use crate::line::{Line, NoLine};
use crate::name::Name;
use crate::settings::Settings;
use crate::signed::{Signed, Statement};
use crate::site::{Contact, Known, Member, Site, SiteError, SiteLines, Told};

/// The number of a document: the higher one is the later one, and only higher ones are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Serial(pub u64);

/// What is signed of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// The network that it is of.
    pub network: NetworkId,
    /// The version of the authority that its signers are of.
    pub authority: u64,
    /// Which document it is.
    pub serial: Serial,
    /// When it was made, in seconds of Unix time. It says so to people; nothing is decided by it.
    pub made: u64,
    /// The head that it was made from, so that of two that were made at once only one can be published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Digest>,
    /// [`Contents::digest`].
    pub contents: Digest,
}

impl Statement for Head {
    const KIND: &'static str = "document 1";
}

/// What a document says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    common: Arc<Common>,
    /// How sites are met, as far as that is known here.
    contacts: BTreeMap<Name, Line<Contact>>,
}

/// What every member knows.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Common {
    settings: Line<Settings>,
    /// Each with the digest of the line of its contact.
    sites: BTreeMap<Name, (Line<Member>, Digest)>,
}

/// What is different between the contents of two documents, as it travels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The document that it is a change of; nothing if it is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Serial>,
    /// The settings, if they are different.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    settings: Option<String>,
    /// Sites that are new, different, or of which more is told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sites: Vec<SiteLines>,
    /// Sites that are no longer mentioned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    removed: Vec<Name>,
}

/// Contents that somebody has already.
#[derive(Clone, Copy)]
pub(crate) struct Before<'c> {
    pub(crate) serial: Serial,
    pub(crate) contents: &'c Contents,
    /// The sites of which he was told how they are met.
    pub(crate) knew: &'c dyn Fn(&Member) -> bool,
    /// Sites of which all others are the same, and known or not known as they were; nothing if that is not known.
    pub(crate) different: Option<&'c BTreeSet<Name>>,
}

/// Why contents are not taken, or should not be signed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContentsError {
    /// A line is not understood.
    #[error(transparent)]
    NoLine(#[from] NoLine),
    /// A site is wrong.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// There are no settings in what should be complete.
    #[error("a document without settings is not complete")]
    NoSettings,
    /// Two sites cannot both be as they are.
    #[error(transparent)]
    Collision(#[from] Collision),
}

impl Contents {
    /// Contents of these settings and no site.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let common = Common { settings: Line::new(settings), sites: BTreeMap::new() };
        Contents { common: Arc::new(common), contacts: BTreeMap::new() }
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        self.common.settings.value()
    }

    /// With other settings.
    pub fn set_settings(&mut self, settings: Settings) {
        Arc::make_mut(&mut self.common).settings = Line::new(settings);
    }

    /// The names of the sites, in their order.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.common.sites.keys()
    }

    /// One of the sites.
    #[must_use]
    pub fn site(&self, name: &Name) -> Option<Site> {
        self.told_of(name).map(Site::from)
    }

    /// The sites, by their names.
    #[must_use]
    pub fn sites(&self) -> BTreeMap<Name, Site> {
        self.all().map(|site| (site.name().clone(), site.into())).collect()
    }

    pub(crate) fn told_of(&self, name: &Name) -> Option<Told<'_>> {
        let (member, digest) = self.common.sites.get(name)?;
        Some(Told { member, digest, contact: self.contacts.get(name) })
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = Told<'_>> {
        let sites = self.common.sites.iter();
        sites.map(|(name, (member, digest))| Told { member, digest, contact: self.contacts.get(name) })
    }

    /// Puts a site in, in place of one of its name.
    pub fn put(&mut self, site: Site) {
        let name = site.name().clone();
        let digest = *site.contact.digest();
        Arc::make_mut(&mut self.common).sites.insert(name.clone(), (site.member, digest));
        match site.contact {
            Known::Contact(line) => drop(self.contacts.insert(name, line)),
            Known::Withheld(_) => drop(self.contacts.remove(&name)),
        }
    }

    /// Takes a site out, so that its name and keys are free.
    pub fn remove(&mut self, name: &Name) -> Option<Site> {
        let (member, digest) = Arc::make_mut(&mut self.common).sites.remove(name)?;
        let contact = self.contacts.remove(name).map_or(Known::Withheld(digest), Known::Contact);
        Some(Site { member, contact })
    }

    /// What a head commits to: settings, and of each site in the order of names member and contact, be it known or withheld.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let sites = self.common.sites.values().flat_map(|(member, contact)| [member.digest(), contact]);
        Digest::of_all(std::iter::once(self.common.settings.digest()).chain(sites))
    }

    /// The sites that are not in both, or not the same.
    pub(crate) fn different_from(&self, other: &Contents) -> BTreeSet<Name> {
        let (one, other) = (&self.common.sites, &other.common.sites);
        let is_other = |name: &&Name| one.get(*name) != other.get(*name);
        one.keys().chain(other.keys()).filter(is_other).cloned().collect()
    }

    pub(crate) fn has_settings_of(&self, other: &Contents) -> bool {
        self.common.settings == other.common.settings
    }

    /// The sites that somebody who has `before` is told: those that are new or different, and those of which he may know more
    /// by now.
    pub(crate) fn told<'c>(
        &'c self,
        before: Option<Before<'c>>,
        may_know: &'c dyn Fn(&Member) -> bool,
    ) -> Vec<Told<'c>> {
        let is_told = |site: &Told<'c>| {
            let Some(before) = before else { return true };
            match before.contents.told_of(site.name()) {
                Some(known) => {
                    let [was, is] = [known.member.value(), site.member.value()];
                    !known.is_same(site) || (may_know(is) && !(before.knew)(was))
                }
                None => true,
            }
        };
        match before.and_then(|before| before.different) {
            Some(names) => names.iter().filter_map(|name| self.told_of(name)).filter(is_told).collect(),
            None => self.all().filter(is_told).collect(),
        }
    }

    /// What somebody who has `before` lacks of these, with how to meet those sites that `may_know` says.
    #[must_use]
    pub(crate) fn change_from(
        &self,
        before: Option<Before<'_>>,
        may_know: &dyn Fn(&Member) -> bool,
    ) -> Change {
        let sites = self.told(before, may_know);
        let sites = sites.into_iter().map(|site| site.lines(may_know(site.member.value()))).collect();
        let settings = before.is_none_or(|before| !self.has_settings_of(before.contents));
        let is_gone = |name: &&Name| !self.common.sites.contains_key(*name);
        let removed = before.map(|before| {
            let was_there = |name: &&Name| before.contents.common.sites.contains_key(*name);
            match before.different {
                Some(names) => names.iter().filter(was_there).filter(is_gone).cloned().collect(),
                None => before.contents.names().filter(is_gone).cloned().collect(),
            }
        });
        Change {
            from: before.map(|before| before.serial),
            settings: settings.then(|| self.common.settings.text().to_owned()),
            sites,
            removed: removed.unwrap_or_default(),
        }
    }

    /// All of it, for who has nothing and may know all.
    #[must_use]
    pub fn complete(&self) -> Change {
        self.change_from(None, &|_| true)
    }

    /// What is different since a document, for who may know all.
    #[must_use]
    pub fn change_since(&self, before: &Document) -> Change {
        let (serial, contents) = (before.head.serial, &before.contents);
        let before = Before { serial, contents, knew: &|_| true, different: None };
        self.change_from(Some(before), &|_| true)
    }

    /// These after a change, or what a complete one says; with what members have to themselves then.
    ///
    /// # Errors
    /// If it is not understood, or what comes of it could not be.
    pub(crate) fn after(
        before: Option<(&Contents, &Part)>,
        change: Change,
    ) -> Result<(Self, Part), ContentsError> {
        let settings = change.settings.map(Line::read).transpose()?;
        let (mut contents, mut claims) = match (before, settings) {
            (Some((before, claims)), settings) => {
                let mut contents = before.clone();
                if let Some(settings) = settings {
                    Arc::make_mut(&mut contents.common).settings = settings;
                }
                (contents, claims.clone())
            }
            (None, Some(settings)) => {
                let common = Common { settings, sites: BTreeMap::new() };
                (Contents { common: Arc::new(common), contacts: BTreeMap::new() }, Part::default())
            }
            (None, None) => return Err(ContentsError::NoSettings),
        };
        let sites = change.sites.into_iter().map(Site::try_from).collect::<Result<Vec<Site>, _>>()?;
        let take_out = |contents: &mut Contents, claims: &mut Part, name: &Name| {
            if let Some(gone) = contents.remove(name) {
                claims.remove(gone.member.value());
            }
        };
        // What one gives up another may have: first all that goes.
        for name in change.removed.iter().chain(sites.iter().map(Site::name)) {
            take_out(&mut contents, &mut claims, name);
        }
        for site in sites {
            // Whoever tells it may tell two lines of one site: the last one counts.
            take_out(&mut contents, &mut claims, site.name());
            claims.add(site.member.value())?;
            contents.put(site);
        }
        Ok((contents, claims))
    }

    /// Refuses sites that cannot both be as they are, as far as that is known here.
    ///
    /// # Errors
    /// If there are such.
    pub fn check(&self) -> Result<(), ContentsError> {
        let mut members = Part::default();
        self.all().try_for_each(|site| members.add(site.member.value()))?;
        self.claim_contacts(&mut Claims::of(Arc::new(members)))
    }

    /// Adds how the sites of these are met that is known here.
    pub(crate) fn claim_contacts(&self, claims: &mut Claims) -> Result<(), ContentsError> {
        for (name, contact) in &self.contacts {
            if let Some(site) = self.told_of(name) {
                claims.add_contact_of(site.member.value(), Some(contact.value()))?;
            }
        }
        Ok(())
    }

    /// Takes over the contacts that others have, and that are the same.
    pub(crate) fn learn_from(&mut self, others: &Contents) {
        for (name, line) in &others.contacts {
            let is_its = |site: Told<'_>| site.contact.is_none() && site.digest == line.digest();
            if self.told_of(name).is_some_and(is_its) {
                self.contacts.insert(name.clone(), line.clone());
            }
        }
    }

    /// Whether these have the contacts of all sites that the others have.
    pub(crate) fn knows_all_of(&self, others: &Contents) -> bool {
        others.contacts.keys().all(|name| self.contacts.contains_key(name))
    }

    /// Shares what is the same in others, in memory.
    pub(crate) fn share(&mut self, others: &Contents) {
        if !Arc::ptr_eq(&self.common, &others.common) && self.common == others.common {
            self.common = Arc::clone(&others.common);
        }
    }
}

/// A document: contents, and the head that commits to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// What was signed.
    pub signed: Signed<Head>,
    /// What that says.
    pub head: Head,
    /// What it commits to.
    pub contents: Contents,
}
