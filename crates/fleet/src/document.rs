//! The membership document: settings and sites, and the head that administrators sign.
//!
//! A head has a serial and the digest of the contents, which is made of the digests of their lines. So a change is the lines
//! that are different, however many others there are; who takes it computes the digest anew, and takes nothing that is not
//! exactly what was signed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::authority::NetworkId;
use crate::claims::{Claims, Collision};
use crate::key::Digest;
use crate::line::{Line, NoLine};
use crate::name::Name;
use crate::settings::Settings;
use crate::signed::{Signed, Statement};
use crate::site::{Site, SiteError, SiteLines};

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
    settings: Line<Settings>,
    sites: BTreeMap<Name, Site>,
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
    pub(crate) knew: &'c dyn Fn(&Site) -> bool,
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
        Contents { settings: Line::new(settings), sites: BTreeMap::new() }
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        self.settings.value()
    }

    /// With other settings.
    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = Line::new(settings);
    }

    /// The sites, by their names.
    #[must_use]
    pub fn sites(&self) -> &BTreeMap<Name, Site> {
        &self.sites
    }

    /// Puts a site in, in place of one of its name.
    pub fn put(&mut self, site: Site) {
        self.sites.insert(site.name().clone(), site);
    }

    /// Takes a site out, so that its name and keys are free.
    pub fn remove(&mut self, name: &Name) -> Option<Site> {
        self.sites.remove(name)
    }

    /// What a head commits to: settings, and of each site in the order of names member and contact, be it known or withheld.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let of_site = |site: &'_ Site| [*site.member.digest(), *site.contact.digest()];
        let sites = self.sites.values().flat_map(of_site);
        let all: Vec<Digest> = std::iter::once(*self.settings.digest()).chain(sites).collect();
        Digest::of_all(&all)
    }

    /// The sites that somebody who has `before` is told: those that are new or different, and those of which he may know more
    /// by now.
    pub(crate) fn told<'c>(
        &'c self,
        before: Option<Before<'c>>,
        may_know: &'c dyn Fn(&Site) -> bool,
    ) -> impl Iterator<Item = &'c Site> {
        self.sites.values().filter(move |site| {
            let Some(before) = before else { return true };
            match before.contents.sites.get(site.name()) {
                Some(known) => !known.is_same(site) || (may_know(site) && !(before.knew)(known)),
                None => true,
            }
        })
    }

    /// What somebody who has `before` lacks of these, with how to meet those sites that `may_know` says.
    #[must_use]
    pub(crate) fn change_from(&self, before: Option<Before<'_>>, may_know: &dyn Fn(&Site) -> bool) -> Change {
        let sites = self.told(before, may_know).map(|site| site.lines(may_know(site))).collect();
        let settings = before.is_none_or(|before| before.contents.settings != self.settings);
        let is_gone = |name: &&Name| !self.sites.contains_key(*name);
        let removed = before.map(|before| before.contents.sites.keys().filter(is_gone).cloned().collect());
        Change {
            from: before.map(|before| before.serial),
            settings: settings.then(|| self.settings.text().to_owned()),
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
        self.change_from(Some(Before { serial, contents, knew: &|_| true }), &|_| true)
    }

    /// These after a change, or what a complete one says.
    ///
    /// # Errors
    /// If it is not understood, or what comes of it could not be.
    pub fn after(before: Option<&Contents>, change: Change) -> Result<Self, ContentsError> {
        let settings = change.settings.map(Line::read).transpose()?;
        let mut contents = match (before, settings) {
            (Some(before), None) => before.clone(),
            (Some(before), Some(settings)) => Contents { settings, sites: before.sites.clone() },
            (None, Some(settings)) => Contents { settings, sites: BTreeMap::new() },
            (None, None) => return Err(ContentsError::NoSettings),
        };
        for name in &change.removed {
            contents.sites.remove(name);
        }
        for lines in change.sites {
            contents.put(Site::try_from(lines)?);
        }
        contents.check()?;
        Ok(contents)
    }

    /// Refuses sites that cannot both be as they are, as far as that is known here.
    ///
    /// # Errors
    /// If there are such.
    pub fn check(&self) -> Result<(), ContentsError> {
        let mut claims = Claims::default();
        for site in self.sites.values() {
            claims.add(site.member.value(), site.contact.contact())?;
        }
        Ok(())
    }

    /// Takes over the contacts that others have, and that are the same.
    pub(crate) fn learn_from(&mut self, others: &Contents) {
        for (name, site) in &mut self.sites {
            if let Some(other) = others.sites.get(name)
                && site.contact.contact().is_none()
                && other.contact.digest() == site.contact.digest()
            {
                site.contact = other.contact.clone();
            }
        }
    }

    /// Whether these have the contacts of all sites that the others have.
    pub(crate) fn knows_all_of(&self, others: &Contents) -> bool {
        let is_known = |site: &Site| site.contact.contact().is_some();
        let mut told = others.sites.values().filter(|site| is_known(site));
        told.all(|site| self.sites.get(site.name()).is_some_and(is_known))
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
