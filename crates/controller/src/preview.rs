//! What a change would do: which sites are different, and which peers and networks come and go at each gateway.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use fleet::authority::Authority;
use fleet::fleet::Fleet;
use fleet::name::Name;
use fleet::plan::{Plan, PlannedPeer};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::rules;

/// How many gateways a text tells of: more are counted.
const MOST: usize = 20;

/// What a change would do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preview {
    /// Sites that come.
    pub added: Vec<Name>,
    /// Sites that were none any more, and are again.
    pub returned: Vec<Name>,
    /// Sites that are none any more.
    pub revoked: Vec<Name>,
    /// Sites that are no longer mentioned.
    pub removed: Vec<Name>,
    /// Sites of which something else is said.
    pub changed: Vec<Name>,
    /// Whether the rules, or where the controllers are, are different.
    pub settings: bool,
    /// Which of them come and go, each in a line.
    pub settings_lines: Lines,
    /// Whether other people may sign.
    pub authority: bool,
    /// Who may and who may not any more, each in a line.
    pub authority_lines: Lines,
    /// What is different at each gateway.
    pub gateways: BTreeMap<Name, Gateway>,
}

/// Lines that come and go.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lines {
    /// Those that are new.
    pub added: Vec<String>,
    /// Those that are there no more.
    pub removed: Vec<String>,
}

/// What is different at a gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gateway {
    /// Peers that come.
    pub peers_added: Vec<Name>,
    /// Peers that go.
    pub peers_removed: Vec<Name>,
    /// Peers that are met in another way.
    pub peers_changed: Vec<Name>,
    /// Networks that it sends packets to then, and not now.
    pub networks_added: Vec<IpNet>,
    /// Networks that it sends packets to now, and not then.
    pub networks_removed: Vec<IpNet>,
}

impl Preview {
    /// What is different between two states of a fleet.
    #[must_use]
    pub fn between(before: &Fleet, after: &Fleet) -> Preview {
        let (old, new) = (before.sites(), after.sites());
        let settings = |fleet: &Fleet| fleet.settings().map(rules::lines).unwrap_or_default();
        let may_sign = |fleet: &Fleet| may_sign(fleet.chain().current());
        let mut preview = Preview {
            settings: before.settings() != after.settings(),
            settings_lines: Lines::between(&settings(before), &settings(after)),
            authority: before.chain().current() != after.chain().current(),
            authority_lines: Lines::between(&may_sign(before), &may_sign(after)),
            ..Preview::default()
        };
        for (name, site) in &new {
            let name = (*name).clone();
            match old.get(&name) {
                None => preview.added.push(name),
                Some(was) if !was.member.is_revoked() && site.member.is_revoked() => {
                    preview.revoked.push(name);
                }
                Some(was) if was.member.is_revoked() && !site.member.is_revoked() => {
                    preview.returned.push(name);
                }
                Some(was) if was.member != site.member || was.contact != site.contact => {
                    preview.changed.push(name);
                }
                Some(_) => {}
            }
        }
        let gone = old.keys().filter(|name| !new.contains_key(*name));
        preview.removed = gone.map(|name| (*name).clone()).collect();
        let all: BTreeSet<&Name> = old.keys().chain(new.keys()).copied().collect();
        for name in all {
            let gateway = Gateway::between(&Plan::of(before, name), &Plan::of(after, name));
            if gateway != Gateway::default() {
                preview.gateways.insert(name.clone(), gateway);
            }
        }
        preview
    }

    /// The same beside what is answered meanwhile: it takes a while with thousands of sites.
    pub(crate) async fn computed(before: Fleet, after: Fleet) -> Result<Preview, Error> {
        let computing = tokio::task::spawn_blocking(move || Preview::between(&before, &after));
        computing.await.map_err(|error| Error::Unavailable(error.to_string()))
    }

    /// Whether nothing is different.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Preview::default()
    }
}

impl Lines {
    fn between(before: &[String], after: &[String]) -> Lines {
        let without = |these: &[String], others: &[String]| {
            these.iter().filter(|line| !others.contains(line)).cloned().collect()
        };
        Lines { added: without(after, before), removed: without(before, after) }
    }
}

/// Who may sign, each in a line.
fn may_sign(authority: &Authority) -> Vec<String> {
    let Authority { threshold, administrators, delegates, .. } = authority;
    let threshold = format!("{threshold} of {} administrators have to sign", administrators.len());
    let administrators = administrators.iter().map(|one| format!("administrator {}: {}", one.name, one.key));
    let delegates = delegates.iter().map(|one| rules::line("delegate", one));
    std::iter::once(threshold).chain(administrators).chain(delegates).collect()
}

impl Gateway {
    fn between(before: &Plan, after: &Plan) -> Gateway {
        let peers = |plan: &Plan| -> BTreeMap<Name, PlannedPeer> {
            plan.peers.iter().map(|peer| (peer.name.clone(), peer.clone())).collect()
        };
        let networks = |plan: &Plan| -> BTreeSet<IpNet> {
            plan.peers.iter().flat_map(|peer| peer.networks().copied()).collect()
        };
        let (old, new) = (peers(before), peers(after));
        let (had, has) = (networks(before), networks(after));
        let without = |these: &BTreeMap<Name, PlannedPeer>, others: &BTreeMap<Name, PlannedPeer>| {
            these.keys().filter(|name| !others.contains_key(*name)).cloned().collect()
        };
        let is_other = |(name, peer): &(&Name, &PlannedPeer)| {
            old.get(*name).is_some_and(|was| was.contact != peer.contact || was.keepalive != peer.keepalive)
        };
        Gateway {
            peers_added: without(&new, &old),
            peers_removed: without(&old, &new),
            peers_changed: new.iter().filter(is_other).map(|(name, _)| name.clone()).collect(),
            networks_added: has.difference(&had).copied().collect(),
            networks_removed: had.difference(&has).copied().collect(),
        }
    }
}

impl fmt::Display for Preview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return writeln!(f, "nothing is different");
        }
        let mut line = |mark: char, names: &[Name], what: &str| {
            names.iter().try_for_each(|name| writeln!(f, "{mark} site {name}{what}"))
        };
        line('+', &self.added, "")?;
        line('+', &self.returned, " (it was revoked, and comes back)")?;
        line('-', &self.revoked, " (revoked)")?;
        line('-', &self.removed, " (its name and keys are free)")?;
        line('~', &self.changed, "")?;
        if self.settings {
            write!(f, "~ rules, or where controllers are\n{}", self.settings_lines)?;
        }
        if self.authority {
            write!(f, "~ who may sign\n{}", self.authority_lines)?;
        }
        for (name, gateway) in self.gateways.iter().take(MOST) {
            writeln!(f, "  at the gateway of {name}:{gateway}")?;
        }
        if let Some(more) = self.gateways.len().checked_sub(MOST).filter(|more| *more > 0) {
            writeln!(f, "  and at {more} more gateways")?;
        }
        Ok(())
    }
}

impl fmt::Display for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.removed.iter().try_for_each(|line| writeln!(f, "  - {line}"))?;
        self.added.iter().try_for_each(|line| writeln!(f, "  + {line}"))
    }
}

impl fmt::Display for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        let mut list = |mark: char, what: &str, items: &mut dyn Iterator<Item = String>| {
            let items: Vec<String> = items.collect();
            match items.as_slice() {
                [] => Ok(()),
                few if few.len() <= 5 => write!(text, " {mark}{what} {}", few.join(" ")),
                many => write!(text, " {mark}{} {what}s", many.len()),
            }
        };
        list('+', "peer", &mut self.peers_added.iter().map(Name::to_string))?;
        list('-', "peer", &mut self.peers_removed.iter().map(Name::to_string))?;
        list('~', "peer", &mut self.peers_changed.iter().map(Name::to_string))?;
        list('+', "network", &mut self.networks_added.iter().map(IpNet::to_string))?;
        list('-', "network", &mut self.networks_removed.iter().map(IpNet::to_string))?;
        f.write_str(&text)
    }
}
