//! What somebody is told who knows a part.

use std::collections::{BTreeMap, BTreeSet};

use super::Fleet;
use super::delegates::Effect;
use crate::authority::Authority;
use crate::document::{Before, Document};
use crate::name::Name;
use crate::news::{DocumentNews, Have, News};
use crate::notice::DelegatedLines;
use crate::settings::Policy;
use crate::signed::Signed;
use crate::site::{Member, Site};

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

/// The numbers of the latest notices of each site, about its contact and about its networks; 0 for none.
pub type Numbers = BTreeMap<Name, (u64, u64)>;

impl Fleet {
    /// What a member lacks who has this. `old`: the document that it has, if that is known here; without it the document is
    /// told as a whole.
    ///
    /// How to meet a site is told to itself, and to those who have a tunnel with it. To who is no member, or none any more,
    /// none is told.
    #[must_use]
    pub fn news_for(&self, who: &Name, have: &Have, old: Option<&Document>, notices: Notices<'_>) -> News {
        let viewer = self.site(who).map(|site| site.member.into_owned());
        let policy = self.settings().map(|settings| &settings.policy);
        let may_know = |site: &Site| is_for(viewer.as_ref(), policy, site);
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
        old: Option<(&Document, &Name)>,
        notices: Notices<'_>,
        may_know: &dyn Fn(&Site) -> bool,
    ) -> News {
        let authorities = self.chain.after(have.authority).to_vec();
        let is_current = have.serial == self.serial();
        let mut told = BTreeSet::new();
        let document = self.document.as_ref().filter(|_| !is_current).map(|document| {
            let old = old.filter(|(old, _)| Some(old.head.serial) == have.serial);
            let viewer = old.and_then(|(old, who)| old.contents.sites().get(who));
            let knew = |site: &Site| {
                let policy = old.map(|(old, _)| &old.contents.settings().policy);
                is_for(viewer.map(|viewer| viewer.member.value()), policy, site)
            };
            let before =
                old.map(|(old, _)| Before { serial: old.head.serial, contents: &old.contents, knew: &knew });
            told = document.contents.told(before, may_know).map(|site| site.name().clone()).collect();
            let change = document.contents.change_from(before, may_know);
            DocumentNews { head: document.signed.clone(), change }
        });
        let knows_delegated = is_current && have.delegated == self.have().delegated;
        let delegated = self.delegated.values().filter(|_| !knows_delegated).map(|allowed| {
            let contact = match &allowed.effect {
                Effect::Added(site) if may_know(site) => site.contact.text().map(str::to_owned),
                _ => None,
            };
            DelegatedLines { signed: allowed.signed.clone(), contact }
        });
        let is_wanted = |name: &Name, number: u64, known: fn(&(u64, u64)) -> u64| {
            told.contains(name)
                || match notices {
                    Notices::Of(names) => names.contains(name),
                    Notices::After(numbers) => numbers.get(name).map_or(0, known) < number,
                    Notices::All => true,
                }
        };
        let contacts = self.contacts.iter().filter(|(name, held)| {
            is_wanted(name, held.notice.number, |numbers| numbers.0)
                && self.granted(name).is_some_and(may_know)
        });
        let networks = self
            .networks
            .iter()
            .filter(|(name, held)| is_wanted(name, held.notice.number, |numbers| numbers.1));
        News {
            authorities,
            delegated: delegated.collect(),
            contacts: contacts.map(|(_, held)| held.signed.clone()).collect(),
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

/// Whether somebody may know how a site is met.
fn is_for(viewer: Option<&Member>, policy: Option<&Policy>, site: &Site) -> bool {
    let (Some(viewer), Some(policy)) = (viewer, policy) else { return false };
    let member = site.member.value();
    !viewer.is_revoked() && (viewer.name == member.name || policy.links(viewer, member))
}
