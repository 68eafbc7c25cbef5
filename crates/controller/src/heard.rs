//! When each site asked last, and which document it had: what this controller itself has heard since it runs, in memory alone.
//!
//! Other controllers have heard others. Who wants to know of the whole fleet asks them all, and knows as much as those that
//! answered know. A site that asked none of them may still hear of what is new from its peers.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use fleet::document::Serial;
use fleet::fleet::Fleet;
use fleet::name::Name;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// What a controller has heard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hearing {
    /// For how many seconds it has been listening: since it runs.
    pub for_s: u64,
    /// The sites that have asked.
    pub sites: Vec<Heard>,
}

/// A site that has asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Heard {
    /// Which.
    pub site: Name,
    /// How many seconds ago it asked last.
    pub ago_s: u64,
    /// The document that it had then.
    pub serial: Option<Serial>,
    /// Whether it waits for the answer: then it has been there all the time since.
    pub waits: bool,
}

#[derive(Debug)]
pub(crate) struct Ear {
    since: Instant,
    sites: Mutex<BTreeMap<Name, (Instant, Option<Serial>)>>,
}

impl Ear {
    pub(crate) fn new() -> Self {
        Ear { since: Instant::now(), sites: Mutex::default() }
    }

    /// A site, as which nobody else can ask, has asked.
    pub(crate) fn note(&self, site: &Name, serial: Option<Serial>) {
        let mut sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        sites.insert(site.clone(), (Instant::now(), serial));
    }

    /// What it has heard of those that are sites, and that wait as `waits` says.
    pub(crate) fn tell(&self, fleet: &Fleet, waits: impl Fn(&Name) -> bool) -> Hearing {
        let mut sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        sites.retain(|name, _| fleet.site(name).is_some_and(|site| !site.member.is_revoked()));
        let heard = sites.iter().map(|(name, (at, serial))| Heard {
            site: name.clone(),
            ago_s: at.elapsed().as_secs(),
            serial: *serial,
            waits: waits(name),
        });
        Hearing { for_s: self.since.elapsed().as_secs(), sites: heard.collect() }
    }
}
