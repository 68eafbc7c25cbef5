//! Agents that wait for news: each is woken by what concerns it, and by nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fleet::fleet::Fleet;
use fleet::name::Name;
use tokio::sync::Notify;

/// Those that wait, one question of each gateway of a site: a later one takes the place of the one before.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// Of each site that has some; the earliest first.
    sites: Mutex<BTreeMap<Name, Vec<Arc<Bell>>>>,
    rung: AtomicU64,
}

#[derive(Debug, Default)]
struct Bell {
    notify: Notify,
    is_over: AtomicBool,
}

/// One that waits.
pub(crate) struct Waiter<'w> {
    waiting: &'w Waiting,
    site: Name,
    bell: Arc<Bell>,
}

/// Whom something concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Concerned {
    /// Everybody.
    All,
    /// Those who have a tunnel with one of these sites, and these.
    Around(Vec<Name>),
}

impl Concerned {
    pub(crate) fn and(self, other: Concerned) -> Concerned {
        match (self, other) {
            (Concerned::Around(mut one), Concerned::Around(other)) => {
                one.extend(other);
                Concerned::Around(one)
            }
            _ => Concerned::All,
        }
    }
}

impl Waiting {
    /// A place for a question of a site that has so many gateways.
    pub(crate) fn enter(&self, site: &Name, gateways: usize) -> Waiter<'_> {
        let bell = Arc::new(Bell::default());
        let mut all = self.all();
        let bells = all.entry(site.clone()).or_default();
        bells.push(Arc::clone(&bell));
        let too_many = bells.len().saturating_sub(gateways);
        for before in bells.drain(..too_many) {
            before.is_over.store(true, Ordering::Relaxed);
            before.notify.notify_one();
        }
        drop(all);
        Waiter { waiting: self, site: site.clone(), bell }
    }

    /// Wakes those whom it concerns.
    pub(crate) fn ring(&self, fleet: &Fleet, concerned: &Concerned) {
        let ring = |bell: &Bell| {
            self.rung.fetch_add(1, Ordering::Relaxed);
            bell.notify.notify_one();
        };
        let all = self.all();
        let Concerned::Around(names) = concerned else {
            return all.values().flatten().for_each(|bell| ring(bell));
        };
        let Some(policy) = fleet.settings().map(|settings| &settings.policy) else { return };
        let about: Vec<_> = names.iter().filter_map(|name| fleet.site(name)).collect();
        for (name, bells) in &*all {
            let is_concerned = names.contains(name)
                || fleet
                    .site(name)
                    .is_some_and(|site| about.iter().any(|other| policy.links(&site.member, &other.member)));
            if is_concerned {
                bells.iter().for_each(|bell| ring(bell));
            }
        }
    }

    /// Those that wait.
    pub(crate) fn sites(&self) -> BTreeSet<Name> {
        self.all().keys().cloned().collect()
    }

    /// How many wait, and how often one was woken.
    pub(crate) fn figures(&self) -> (usize, u64) {
        (self.all().values().map(Vec::len).sum(), self.rung.load(Ordering::Relaxed))
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Name, Vec<Arc<Bell>>>> {
        self.sites.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiter<'_> {
    /// Until something may be new.
    pub(crate) async fn rung(&self) {
        self.bell.notify.notified().await;
    }

    /// Whether the site has asked again meanwhile.
    pub(crate) fn is_over(&self) -> bool {
        self.bell.is_over.load(Ordering::Relaxed)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut all = self.waiting.all();
        let Some(bells) = all.get_mut(&self.site) else { return };
        bells.retain(|bell| !Arc::ptr_eq(bell, &self.bell));
        if bells.is_empty() {
            all.remove(&self.site);
        }
    }
}
