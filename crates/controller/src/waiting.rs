//! Agents that wait for news: each is woken by what concerns it, and by nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fleet::fleet::Fleet;
use fleet::name::Name;
use tokio::sync::Notify;

/// Those that wait, one question of each site: a later one takes the place of the one before.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    sites: Mutex<BTreeMap<Name, Arc<Bell>>>,
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
    /// A place for a question of a site.
    pub(crate) fn enter(&self, site: &Name) -> Waiter<'_> {
        let bell = Arc::new(Bell::default());
        let before = self.all().insert(site.clone(), Arc::clone(&bell));
        if let Some(before) = before {
            before.is_over.store(true, Ordering::Relaxed);
            before.notify.notify_one();
        }
        Waiter { waiting: self, site: site.clone(), bell }
    }

    /// Wakes those whom it concerns.
    pub(crate) fn ring(&self, fleet: &Fleet, concerned: &Concerned) {
        let ring = |bell: &Bell| {
            self.rung.fetch_add(1, Ordering::Relaxed);
            bell.notify.notify_one();
        };
        let all = self.all();
        let Concerned::Around(names) = concerned else { return all.values().for_each(|bell| ring(bell)) };
        let Some(policy) = fleet.settings().map(|settings| &settings.policy) else { return };
        let about: Vec<_> = names.iter().filter_map(|name| fleet.site(name)).collect();
        for (name, bell) in &*all {
            let is_concerned = names.contains(name)
                || fleet
                    .site(name)
                    .is_some_and(|site| about.iter().any(|other| policy.links(&site.member, &other.member)));
            if is_concerned {
                ring(bell);
            }
        }
    }

    /// Those that wait.
    pub(crate) fn sites(&self) -> BTreeSet<Name> {
        self.all().keys().cloned().collect()
    }

    /// How many wait, and how often one was woken.
    pub(crate) fn figures(&self) -> (usize, u64) {
        (self.all().len(), self.rung.load(Ordering::Relaxed))
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Name, Arc<Bell>>> {
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
        if all.get(&self.site).is_some_and(|bell| Arc::ptr_eq(bell, &self.bell)) {
            all.remove(&self.site);
        }
    }
}
