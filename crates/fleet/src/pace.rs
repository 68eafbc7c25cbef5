//! How often a site's notices count: one that says something else all the time is heard now and then, and the others have their
//! peace.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::fleet::Fleet;
use crate::name::Name;
use crate::news::News;

/// So many notices of a site count at once,
const BURST: u32 = 6;
/// and then one in this time: who is renumbered says two things, and its provider does that once a day.
const EACH: Duration = Duration::from_secs(30);

/// How often each site may say something new. Times are since any moment, the same for all calls.
#[derive(Debug, Clone, Default)]
pub struct Pace {
    /// When all that a site has said would have been said one by one.
    said: BTreeMap<Name, Duration>,
}

impl Pace {
    /// Whether what a site says now counts, which is then noted; otherwise when it will.
    ///
    /// # Errors
    /// If it has said too much lately.
    pub fn hear(&mut self, site: &Name, now: Duration) -> Result<(), Duration> {
        let said = self.said.get(site).copied().unwrap_or_default().max(now);
        let earliest = said.saturating_sub(EACH * (BURST - 1));
        if earliest > now {
            return Err(earliest);
        }
        self.said.insert(site.clone(), said + EACH);
        Ok(())
    }
}

/// Notices at that pace: of those that came too early the last ones of each site are kept for later.
#[derive(Debug, Default)]
pub(crate) struct Paced {
    pace: Pace,
    early: BTreeMap<Name, Early>,
}

#[derive(Debug)]
struct Early {
    at: Duration,
    /// The numbers of its last contact and its last networks.
    numbers: (u64, u64),
    news: News,
}

impl Paced {
    /// What counts now of some news; what is no site's own word always does. What is not new, or was not signed by who it is of,
    /// is left for others to refuse.
    pub(crate) fn now(&mut self, mut news: News, fleet: &Fleet, now: Duration) -> News {
        let contacts = std::mem::take(&mut news.contacts).into_iter();
        news.contacts = contacts
            .filter(|signed| match fleet.new_contact(signed) {
                None => true,
                Some((site, number)) => self.hear(site, now, |early| {
                    if number > early.numbers.0 {
                        (early.numbers.0, early.news.contacts) = (number, vec![signed.clone()]);
                    }
                }),
            })
            .collect();
        let networks = std::mem::take(&mut news.networks).into_iter();
        news.networks = networks
            .filter(|signed| match fleet.new_networks(signed) {
                None => true,
                Some((site, number)) => self.hear(site, now, |early| {
                    if number > early.numbers.1 {
                        (early.numbers.1, early.news.networks) = (number, vec![signed.clone()]);
                    }
                }),
            })
            .collect();
        news
    }

    fn hear(&mut self, site: Name, now: Duration, keep: impl FnOnce(&mut Early)) -> bool {
        let Err(at) = self.pace.hear(&site, now) else { return true };
        keep(self.early.entry(site).or_insert(Early { at, numbers: (0, 0), news: News::default() }));
        false
    }

    /// When something of it is due.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.early.values().map(|early| early.at).min()
    }

    /// What came too early and counts by now.
    pub(crate) fn due(&mut self, now: Duration) -> News {
        let mut due = News::default();
        let pace = &mut self.pace;
        self.early.retain(|site, early| {
            if early.at > now {
                return true;
            }
            match pace.hear(site, now) {
                Ok(()) => {
                    due.contacts.append(&mut early.news.contacts);
                    due.networks.append(&mut early.news.networks);
                    false
                }
                Err(at) => {
                    early.at = at;
                    true
                }
            }
        });
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_says_much_is_heard_at_a_pace_and_others_at_once() {
        let mut pace = Pace::default();
        let (kiel, bonn): (Name, Name) = ("kiel".parse().unwrap(), "bonn".parse().unwrap());
        let second = Duration::from_secs(1);
        let heard = (0..3600).filter(|at| pace.hear(&kiel, second * *at).is_ok()).count();
        assert_eq!(heard, (3600 / EACH.as_secs() + u64::from(BURST) - 1) as usize);
        assert!(pace.hear(&bonn, second * 3600).is_ok());
        // Some time later it is as if nothing had been.
        let later = second * 7200;
        let at_once = (0..10).filter(|_| pace.hear(&kiel, later).is_ok()).count();
        assert_eq!(at_once, BURST as usize);
        assert_eq!(pace.hear(&kiel, later), Err(later + EACH));
    }
}
