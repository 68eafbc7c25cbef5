//! A plan as a file that a gateway's configuration includes.

use std::collections::{BTreeMap, HashSet};
use std::fmt::{self, Write as _};
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::name::Name;
use crate::plan::{Behind, Plan};
use crate::shared::Shared;
use crate::site::Contact;

/// The first line, by which others see whose the file is.
pub const OURS: &str =
    "# Written by `sidestep agent`: what is changed here is lost when something changes in its fleet.\n";

/// The file of a plan: a `[[peer]]` table for each peer, and what a firewall has to know.
#[must_use]
pub fn text(plan: &Plan) -> String {
    File::of(&Parts::of(plan), &BTreeMap::new()).text
}

/// A plan, by the sites that its parts are of: each can be left out without the others. Copies share parts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Parts {
    pub(crate) sites: BTreeMap<Name, Shared<Part>>,
    pub(crate) here: Here,
}

/// What a gateway has of a site.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Part {
    /// How it is met as a peer, and how often something leaves, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    met: Option<(Contact, Option<u16>)>,
    /// The peer that it is behind, and its networks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    behind: Option<(Name, Networks)>,
}

/// The networks of a site ([`Behind`]).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Networks {
    networks: Vec<IpNet>,
    zone: Option<Name>,
    opens: bool,
    accepts: bool,
    agent: Option<IpAddr>,
}

/// What a firewall has to know of the site itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Here {
    own: Vec<IpNet>,
    serves: Vec<SocketAddr>,
}

/// What many gateways have of sites, once: for who has many agents in one process.
#[derive(Debug, Default)]
pub struct SharedParts {
    names: HashSet<Name>,
    parts: HashSet<Shared<Part>>,
}

impl SharedParts {
    /// The same, in the memory of those that were there before.
    pub(crate) fn shared(&mut self, parts: &Parts) -> Parts {
        let one = |(name, part)| (shared(&mut self.names, name), shared(&mut self.parts, part));
        Parts { sites: parts.sites.iter().map(one).collect(), here: parts.here.clone() }
    }

    /// Forgets what no agent has any more.
    pub fn forget_unused(&mut self) {
        self.parts.retain(Shared::is_used);
    }
}

/// The one that was there before, or this one from now on.
fn shared<T: Clone + Eq + Hash>(known: &mut HashSet<T>, value: &T) -> T {
    if let Some(known) = known.get(value) {
        return known.clone();
    }
    known.insert(value.clone());
    value.clone()
}

impl Parts {
    pub(crate) fn of(plan: &Plan) -> Self {
        let mut sites: BTreeMap<Name, Part> = BTreeMap::new();
        for peer in &plan.peers {
            sites.entry(peer.name.clone()).or_default().met = Some((peer.contact.clone(), peer.keepalive));
            for Behind { site, zone, networks, opens, accepts, agent } in &peer.behind {
                let (zone, networks) = (zone.clone(), networks.clone());
                let networks = Networks { networks, zone, opens: *opens, accepts: *accepts, agent: *agent };
                sites.entry(site.clone()).or_default().behind = Some((peer.name.clone(), networks));
            }
        }
        let sites = sites.into_iter().map(|(name, part)| (name, Shared::new(part))).collect();
        Parts { sites, here: Here { own: plan.own.clone(), serves: plan.serves.clone() } }
    }
}

/// The file: a `[[peer]]` table for each peer, in which the networks of each site have a line.
#[derive(Debug, Default)]
pub(crate) struct File {
    pub(crate) text: String,
    /// Which site each line is about.
    pub(crate) lines: Lines,
}

/// Which site each line of a file is about.
#[derive(Debug, Default)]
pub(crate) struct Lines(Vec<Option<Name>>);

impl File {
    /// With the sites that are left out, and why.
    pub(crate) fn of(parts: &Parts, left_out: &BTreeMap<Name, String>) -> Self {
        let mut file = File::default();
        file.add(None, format_args!("{}", OURS.trim_end()));
        for (site, why) in left_out {
            file.add(
                None,
                format_args!("# {site} is left out: the gateway refuses it: {}", why.escape_debug()),
            );
        }
        let mut peers: BTreeMap<&Name, Vec<(&Name, &Networks)>> = BTreeMap::new();
        for (site, part) in &parts.sites {
            let Some((peer, networks)) = &part.behind else { continue };
            if parts.sites.get(peer).is_some_and(|peer| peer.met.is_some()) {
                peers.entry(peer).or_default().push((site, networks));
            }
        }
        for (name, behind) in &peers {
            if let Some((contact, keepalive)) = parts.sites.get(*name).and_then(|part| part.met.as_ref()) {
                file.table(name, contact, *keepalive, behind);
            }
        }
        let all: Vec<_> = peers.into_values().flatten().collect();
        if all.iter().any(|(_, networks)| networks.zone.is_some() || !networks.opens || !networks.accepts) {
            file.reach(&parts.here, &all);
        }
        file
    }

    fn table(
        &mut self,
        name: &Name,
        contact: &Contact,
        keepalive: Option<u16>,
        behind: &[(&Name, &Networks)],
    ) {
        let own = Some(name);
        self.add(own, format_args!("\n[[peer]]\nname        = \"{name}\""));
        self.add(own, format_args!("public_key  = \"{}\"", contact.key.0));
        if let Some(next) = &contact.next_key {
            self.add(own, format_args!("next_public_key = \"{}\"", next.0));
        }
        self.add(own, format_args!("hop_prefix  = \"{}\"", contact.hop_prefix));
        self.list(own, "allowed_ips", behind.iter().map(|(site, behind)| (*site, &behind.networks[..])));
        if let Some(seconds) = keepalive {
            self.add(own, format_args!("keepalive   = \"{seconds}s\""));
        }
    }

    /// Who may open connections to whom, for a firewall.
    fn reach(&mut self, here: &Here, all: &[(&Name, &Networks)]) {
        self.add(None, format_args!("\n[reach]\nown         = {}", quoted(&here.own)));
        self.add(None, format_args!("serves      = {}", quoted(&here.serves)));
        let agents: Vec<(&Name, [IpAddr; 1])> =
            all.iter().filter_map(|(site, networks)| Some((*site, [networks.agent?]))).collect();
        self.list(None, "agents", agents.iter().map(|(site, agent)| (*site, &agent[..])));
        let those = |is_so: fn(&Networks) -> bool| {
            let some = all.iter().filter(move |(_, networks)| is_so(networks));
            some.map(|(site, networks)| (*site, &networks.networks[..]))
        };
        self.list(None, "answers_only", those(|networks| !networks.opens));
        self.list(None, "asks_only", those(|networks| !networks.accepts));
        let mut zones: BTreeMap<&Name, Vec<(&Name, &[IpNet])>> = BTreeMap::new();
        for (site, networks) in all {
            if let Some(zone) = &networks.zone {
                zones.entry(zone).or_default().push((site, &networks.networks));
            }
        }
        self.add(None, format_args!("\n[reach.zones]"));
        for (zone, networks) in zones {
            self.list(None, &format!("\"{zone}\""), networks.into_iter());
        }
    }

    /// A list in which each site has a line.
    fn list<'a, T: fmt::Display + 'a>(
        &mut self,
        of: Option<&Name>,
        key: &str,
        items: impl Iterator<Item = (&'a Name, &'a [T])>,
    ) {
        self.add(of, format_args!("{key:<11} = ["));
        for (site, items) in items {
            let items: Vec<String> = items.iter().map(|item| format!("\"{item}\",")).collect();
            self.add(Some(site), format_args!("    {} # {site}", items.join(" ")));
        }
        self.add(of, format_args!("]"));
    }

    /// Lines about a site.
    fn add(&mut self, site: Option<&Name>, lines: fmt::Arguments<'_>) {
        let before = self.text.len();
        writeln!(self.text, "{lines}").expect("a text takes all");
        let count = self.text[before..].matches('\n').count();
        self.lines.0.extend(std::iter::repeat_n(site.cloned(), count));
    }
}

impl Lines {
    /// The sites that a gateway names which refuses the file: by the places that its answer points to.
    pub(crate) fn named_in(&self, answer: &str) -> Vec<Name> {
        let places = answer.lines().filter_map(|line| line.trim_start().strip_prefix("--> "));
        let lines = places.filter_map(|place| {
            let line = place.split_once("peers.toml:")?.1;
            line.split(':').next()?.trim().parse::<usize>().ok()?.checked_sub(1)
        });
        let mut named: Vec<Name> = lines.filter_map(|line| self.0.get(line)?.clone()).collect();
        named.sort();
        named.dedup();
        named
    }
}

/// A list in one line.
fn quoted(items: &[impl fmt::Display]) -> String {
    let items: Vec<String> = items.iter().map(|item| format!("\"{item}\"")).collect();
    format!("[{}]", items.join(", "))
}
