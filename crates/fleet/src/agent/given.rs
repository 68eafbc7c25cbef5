//! What the gateway is given, and what becomes of it: a site whose part the gateway refuses is left out, and the others are not
//! held up by it.
//!
//! All that is new is given at once. Where that is refused, the sites that the answer names are left out. Where it names none, the
//! gateway is given what it took last, to see whether it is the fleet's doing at all, then one half of what is new after the other:
//! what it has of all other sites stays in the file at each step, so no session ends by that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::key::Digest;
use crate::name::Name;
use crate::peers::{Part, Parts, SharedParts, file, named_in};
use crate::shared::Shared;

/// After how long the gateway is given again what it has refused although nothing in it is new: something else may have been
/// wrong, here or there.
const AGAIN: Duration = Duration::from_secs(30);
/// The same, where it was for some sites alone.
const LEFT_OUT_AGAIN: Duration = Duration::from_secs(600);
/// How long a gateway that is not there has to begin with all that it is to have.
const STARTING: Duration = Duration::from_secs(5);
/// The longest that is kept of a reason.
const LONGEST_WHY: usize = 160;

/// What the gateway has taken, as an agent keeps it over a restart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    parts: Shared<Parts>,
    /// The sites that are left out since the gateway refuses them, and why.
    #[serde(default)]
    pub left_out: BTreeMap<Name, String>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A site is left out now.
    LeftOut {
        /// Which one.
        site: Name,
        /// Why, in the gateway's words.
        why: String,
    },
    /// It is not any more.
    Back(Name),
    /// The gateway takes nothing, and keeps what it had.
    Refused(String),
    /// It does again.
    Takes,
}

#[derive(Debug, Default)]
pub(super) struct Given {
    wanted: Shared<Parts>,
    taken: Taken,
    /// Sites whose parts are still to be tried, the last ones now.
    groups: Vec<BTreeSet<Name>>,
    /// Those that turned out to be refused meanwhile.
    refused: BTreeMap<Name, String>,
    /// Whether something is tried; what it took last by itself; whether that was taken since all of it was tried.
    is_trying: bool,
    is_checking: bool,
    is_checked: bool,
    last: Last,
    /// When all of it is tried again.
    at: Option<Duration>,
    /// When a gateway that is not there is left what it took last.
    leave_at: Option<Duration>,
    /// Why it takes nothing.
    fault: Option<String>,
}

/// What the gateway was given last. The file itself is not kept: of thousands of sites it is large.
#[derive(Debug, Default)]
struct Last {
    parts: Shared<Parts>,
    left_out: BTreeMap<Name, String>,
    /// Of the file; nothing before there was one.
    digest: Option<Digest>,
}

impl Given {
    /// Shares in memory what other gateways have, too.
    pub(super) fn share(&mut self, shared: &mut SharedParts) {
        let wanted = Shared::new(shared.shared(&self.wanted));
        // Mostly all of these are the same.
        for parts in [&mut self.taken.parts, &mut self.last.parts] {
            if *parts == wanted {
                *parts = wanted.clone();
            }
        }
        self.wanted = wanted;
    }

    pub(super) fn remember(&mut self, taken: Taken) {
        self.taken = taken;
    }

    pub(super) fn taken(&self) -> &Taken {
        &self.taken
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        self.at
    }

    pub(super) fn leave_deadline(&self) -> Option<Duration> {
        self.leave_at
    }

    /// What the gateway is to have is this, all of it: the file, if that is something else than it was to have.
    pub(super) fn want(&mut self, mut parts: Parts) -> Option<String> {
        parts.keep(&self.wanted);
        if *self.wanted == parts && self.last.digest.is_some() {
            return None;
        }
        self.wanted = Shared::new(parts);
        Some(self.begin())
    }

    /// All of it once more.
    pub(super) fn begin(&mut self) -> String {
        let taken = &self.taken.parts.sites;
        let is_new = |(site, part): &(&Name, &Shared<Part>)| taken.get(*site) != Some(*part);
        let new = self.wanted.sites.iter().filter(is_new).map(|(site, _)| site.clone());
        self.groups = vec![new.collect()];
        (self.is_trying, self.is_checking, self.is_checked, self.at) = (true, false, false, None);
        self.refused.clear();
        self.give(self.parts())
    }

    /// The gateway has taken what it was given last, or has not; what came of it, and what it is given next.
    pub(super) fn answered(
        &mut self,
        answer: Result<(), String>,
        now: Duration,
    ) -> (Vec<Outcome>, Option<String>) {
        self.there();
        match answer {
            Ok(()) => {
                self.taken.parts = self.last.parts.clone();
                self.is_checked = true;
                if !std::mem::take(&mut self.is_checking) {
                    self.groups.pop();
                }
            }
            Err(why) => {
                if let Some(fault) = self.refused(&why) {
                    return (Vec::from_iter(self.failed(fault, now)), None);
                }
            }
        }
        self.groups.retain(|group| !group.is_empty());
        let is_more = self.is_checking || !self.groups.is_empty();
        let outcomes = if is_more || !self.is_trying { Vec::new() } else { self.end(now) };
        // Who is left out, and why, stands in the file, too.
        (outcomes, self.give_other())
    }

    /// Nothing of it is taken, for a reason that is no site's: all of it is tried again later.
    pub(super) fn failed(&mut self, fault: String, now: Duration) -> Option<Outcome> {
        self.groups.clear();
        (self.is_trying, self.is_checking, self.at) = (false, false, Some(now + AGAIN));
        let is_new = self.fault.replace(fault.clone()).as_ref() != Some(&fault);
        is_new.then_some(Outcome::Refused(fault))
    }

    /// The gateway runs.
    pub(super) fn there(&mut self) {
        self.leave_at = None;
    }

    /// The gateway is not there. Perhaps it is starting, and has read its file already: then that is to stay as it is.
    pub(super) fn absent(&mut self, now: Duration) {
        self.groups.clear();
        (self.is_trying, self.is_checking) = (false, false);
        self.leave_at.get_or_insert(now + STARTING);
    }

    /// It is still not there: what it is to begin with, which is what it took last, without those that are none any more.
    /// Nothing if it has that.
    pub(super) fn leave(&mut self) -> Option<String> {
        self.leave_at = None;
        self.give_other()
    }

    /// Something was refused; why, if it is not for any site.
    fn refused(&mut self, why: &str) -> Option<String> {
        let said = in_short(why);
        if !self.is_trying {
            return Some(said);
        }
        let mut is_named = false;
        for site in named_in(why, &file(&self.last.parts, &self.last.left_out)) {
            let group = self.groups.last_mut().filter(|_| !self.is_checking);
            // What is new of it, or what it had taken: then something else here is not as it was.
            if group.is_some_and(|group| group.remove(&site))
                || self.taken.parts.to_mut().sites.remove(&site).is_some()
            {
                is_named = true;
                self.refused.insert(site, said.clone());
            }
        }
        if is_named {
            return None;
        }
        let Some(group) = self.groups.last_mut().filter(|_| !self.is_checking) else { return Some(said) };
        if group.is_empty() {
            return Some(said);
        }
        self.is_checking = !self.is_checked;
        if let Some(half) = group.iter().nth(group.len() / 2).filter(|_| group.len() > 1).cloned() {
            let other = group.split_off(&half);
            self.groups.push(other);
        } else if self.is_checked
            && let Some(site) = group.pop_first()
        {
            self.refused.insert(site, said);
        }
        None
    }

    /// All was tried.
    fn end(&mut self, now: Duration) -> Vec<Outcome> {
        self.is_trying = false;
        let before = std::mem::replace(&mut self.taken.left_out, std::mem::take(&mut self.refused));
        let left_out = &self.taken.left_out;
        self.at = (!left_out.is_empty()).then_some(now + LEFT_OUT_AGAIN);
        let mut outcomes = Vec::from_iter(self.fault.take().map(|_| Outcome::Takes));
        for (site, why) in left_out.iter().filter(|(site, why)| before.get(*site) != Some(why)) {
            outcomes.push(Outcome::LeftOut { site: site.clone(), why: why.clone() });
        }
        outcomes.extend(before.into_keys().filter(|site| !left_out.contains_key(site)).map(Outcome::Back));
        outcomes
    }

    /// What it took last of those that are still to be there, with what is tried now.
    fn parts(&self) -> Shared<Parts> {
        let none = BTreeSet::new();
        let tried = self.groups.last().filter(|_| !self.is_checking).unwrap_or(&none);
        let taken = &self.taken.parts.sites;
        let is_there = |(site, part): (&Name, _)| tried.contains(site) || taken.get(site) == Some(part);
        if self.wanted.sites.iter().all(is_there) {
            return self.wanted.clone();
        }
        let mut parts = Parts::clone(&self.taken.parts);
        parts.here.clone_from(&self.wanted.here);
        parts.sites.retain(|site, _| self.wanted.sites.contains_key(site));
        for site in tried {
            if let Some(part) = self.wanted.sites.get(site) {
                parts.sites.insert(site.clone(), part.clone());
            }
        }
        Shared::new(parts)
    }

    /// The file of these.
    fn give(&mut self, parts: Shared<Parts>) -> String {
        let left_out = self.taken.left_out.clone();
        let text = file(&parts, &left_out);
        self.last = Last { parts, left_out, digest: Some(Digest::of(text.as_bytes())) };
        text
    }

    /// The file, if it is another one than it was given last.
    fn give_other(&mut self) -> Option<String> {
        let (parts, before) = (self.parts(), self.last.digest);
        let is_same =
            before.is_some() && self.last.parts == parts && self.last.left_out == self.taken.left_out;
        let text = if is_same { None } else { Some(self.give(parts)) };
        text.filter(|_| self.last.digest != before)
    }
}

/// A reason in a line.
fn in_short(why: &str) -> String {
    let line = why.lines().next().unwrap_or_default().trim();
    line.chars().take(LONGEST_WHY).collect()
}
