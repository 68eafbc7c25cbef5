//! What somebody is told who knows a part.

use std::collections::{BTreeMap, BTreeSet};

use super::delegates::Effect;
use super::{Fleet, Held};
use crate::authority::Authority;
use crate::document::{Before, Document};
use crate::line::Line;
use crate::name::Name;
use crate::news::{DocumentNews, Have, News};
use crate::notice::{DelegatedLines, Notice};
use crate::settings::Policy;
use crate::signed::Signed;
use crate::site::Member;

/// Which notices somebody is told, beside those of sites that are news to him.
#[derive(Debug, Clone, Copy)]
pub enum Notices<'n> {
    /// Those of these sites.
    Of(&'n BTreeSet<Name>),
    /// Those that are later than what is known of contacts and of networks.
    After(&'n Numbers),
    /// All.
    All,
}

/// A document that somebody has.
#[derive(Debug, Clone, Copy)]
pub struct Old<'o> {
    /// It.
    pub document: &'o Document,
    /// The sites that are different in the newest, if that is known: otherwise all are looked at.
    pub different: Option<&'o BTreeSet<Name>>,
}

/// The numbers of the latest notices of each site, about its contact and about its networks; 0 for none.
pub type Numbers = BTreeMap<Name, (u64, u64)>;

impl Fleet {
    /// What a member lacks who has this. `old`: the document that it has, if that is known here; without it the document is
    /// told as a whole.
    ///
    /// How to meet a site is told to itself, and to those who have a tunnel with it. To who is no member, or none any more,
    /// none is told.
    #[must_use]
    pub fn news_for(&self, who: &Name, have: &Have, old: Option<Old<'_>>, notices: Notices<'_>) -> News {
        let viewer = self.site(who).map(|site| site.member.into_owned());
        let policy = self.settings().map(|settings| &settings.policy);
        let may_know = |site: &Member| is_for(viewer.as_ref(), policy, site);
        self.news(have, old.map(|old| (old, who)), notices, &may_know)
    }

    /// What somebody lacks who may know all: another controller, an administrator.
    #[must_use]
    pub fn all_news(&self, have: &Have, notices: Notices<'_>) -> News {
        self.news(have, None, notices, &|_| true)
    }

    fn news(
        &self,
        have: &Have,
        old: Option<(Old<'_>, &Name)>,
        notices: Notices<'_>,
        may_know: &dyn Fn(&Member) -> bool,
    ) -> News {
        let authorities = self.chain.after(have.authority).to_vec();
        // Who has a later document than is known here is told nothing of this one: it would be told that again and again.
        let (is_ahead, is_current) = (have.serial > self.serial(), have.serial == self.serial());
        let mut told = BTreeSet::new();
        let document = self.document.as_ref().filter(|_| !is_ahead && !is_current).map(|document| {
            let old = old.filter(|(old, _)| Some(old.document.head.serial) == have.serial);
            let contents = &document.contents;
            let viewer = |of: &Document, who| of.contents.told_of(who).map(|site| site.member.clone());
            let was = old.and_then(|(old, who)| viewer(old.document, who));
            let knew = |site: &Member| {
                let policy = old.map(|(old, _)| &old.document.contents.settings().policy);
                is_for(was.as_ref().map(Line::value), policy, site)
            };
            let before = old.map(|(old, who)| {
                let was_in = &old.document.contents;
                // Who sees as he saw has to be told of no site that is the same.
                let sees_as_before = contents.has_settings_of(was_in) && viewer(document, who) == was;
                let different = old.different.filter(|_| sees_as_before);
                Before { serial: old.document.head.serial, contents: was_in, knew: &knew, different }
            });
            let names = contents.told(before, may_know).into_iter().map(|site| site.name().clone());
            told = names.collect();
            let change = contents.change_from(before, may_know);
            DocumentNews { head: document.signed.clone(), change }
        });
        let knows_delegated = is_ahead || (is_current && have.delegated == self.delegated.digest());
        let delegated = self.delegated.all().filter(|_| !knows_delegated).map(|allowed| {
            let contact = match &allowed.effect {
                Effect::Added(site) if may_know(site.member.value()) => {
                    site.contact.text().map(str::to_owned)
                }
                _ => None,
            };
            DelegatedLines { signed: allowed.signed.clone(), contact }
        });
        let may_know = |name: &Name| self.granted(name).is_some_and(|site| may_know(site.member.value()));
        let contacts = wanted(&self.contacts, &told, notices, |numbers| numbers.0);
        let networks = wanted(&self.networks, &told, notices, |numbers| numbers.1);
        News {
            authorities,
            delegated: delegated.collect(),
            contacts: contacts
                .filter(|(name, _)| may_know(name))
                .map(|(_, held)| held.signed.clone())
                .collect(),
            networks: networks.map(|(_, held)| held.signed.clone()).collect(),
            document,
        }
    }

    /// All that is to be kept of it: authorities, and all else as news.
    #[must_use]
    pub fn memory(&self) -> (Vec<Signed<Authority>>, News) {
        let all_but_authorities = Have { authority: u64::MAX, ..Have::default() };
        (self.chain.after(0).to_vec(), self.all_news(&all_but_authorities, Notices::All))
    }

    /// What a site says of itself.
    #[must_use]
    pub fn notices_of(&self, name: &Name) -> News {
        let contacts = self.contacts.get(name).map(|held| held.signed.clone()).into_iter().collect();
        let networks = self.networks.get(name).map(|held| held.signed.clone()).into_iter().collect();
        News { contacts, networks, ..News::default() }
    }

    /// The numbers of the notices that are known here.
    #[must_use]
    pub fn numbers(&self) -> Numbers {
        let mut numbers = Numbers::new();
        for (name, held) in &self.contacts {
            numbers.entry(name.clone()).or_default().0 = held.notice.number;
        }
        for (name, held) in &self.networks {
            numbers.entry(name.clone()).or_default().1 = held.notice.number;
        }
        numbers
    }
}

/// The notices that are wanted, and those of these sites.
fn wanted<'n, T: Notice>(
    held: &'n BTreeMap<Name, Held<T>>,
    told: &'n BTreeSet<Name>,
    notices: Notices<'n>,
    known: fn(&(u64, u64)) -> u64,
) -> Box<dyn Iterator<Item = (&'n Name, &'n Held<T>)> + 'n> {
    match notices {
        // There may be many others.
        Notices::Of(names) => {
            let more = told.iter().filter(|name| !names.contains(*name));
            Box::new(names.iter().chain(more).filter_map(|name| held.get_key_value(name)))
        }
        Notices::After(numbers) => Box::new(held.iter().filter(move |(name, held)| {
            told.contains(*name) || numbers.get(*name).map_or(0, known) < held.notice.number()
        })),
        Notices::All => Box::new(held.iter()),
    }
}

/// Whether somebody may know how a site is met.
fn is_for(viewer: Option<&Member>, policy: Option<&Policy>, member: &Member) -> bool {
    let (Some(viewer), Some(policy)) = (viewer, policy) else { return false };
    !viewer.is_revoked() && (viewer.name == member.name || policy.links(viewer, member))
}
