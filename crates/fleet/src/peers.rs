//! A plan as a file that a gateway's configuration includes.

use std::collections::{BTreeMap, HashSet};
use std::fmt::{self, Write as _};
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::name::Name;
use crate::plan::{Behind, Plan, PlannedPeer};
use crate::shared::Shared;
use crate::site::Contact;

/// The first line, by which others see whose the file is.
pub const OURS: &str =
    "# Written by `sidestep agent`: what is changed here is lost when something changes in its fleet.\n";

/// What a site takes in a file, about, so that space is there at once.
const LINE: usize = 128;

/// The file of a plan: a `[[peer]]` table for each peer, and what a firewall has to know.
#[must_use]
pub fn text(plan: &Plan) -> String {
    file(&Parts::of(plan.clone()), &BTreeMap::new())
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
    pub(crate) fn of(plan: Plan) -> Self {
        let (mut met, mut all) = (Vec::new(), Vec::new());
        for PlannedPeer { name, contact, keepalive, behind } in plan.peers {
            for Behind { site, zone, networks, opens, accepts, agent } in behind {
                let networks = Networks { networks, zone, opens, accepts, agent };
                all.push((site, Part { met: None, behind: Some((name.clone(), networks)) }));
            }
            met.push((name, (contact, keepalive)));
        }
        let mut sites: BTreeMap<Name, Part> = all.into_iter().collect();
        for (name, met) in met {
            sites.entry(name).or_default().met = Some(met);
        }
        let sites = sites.into_iter().map(|(name, part)| (name, Shared::new(part))).collect();
        Parts { sites, here: Here { own: plan.own, serves: plan.serves } }
    }

    /// Keeps in its place in memory what is the same as before: it is compared often, which then takes a look at the place.
    pub(crate) fn keep(&mut self, before: &Parts) {
        let mut before = before.sites.iter().peekable();
        for (name, part) in &mut self.sites {
            while before.next_if(|(other, _)| *other < name).is_some() {}
            if let Some((_, same)) = before.next_if(|(other, same)| *other == name && *same == part) {
                *part = same.clone();
            }
        }
    }
}

/// The file: a `[[peer]]` table for each peer, in which the networks of each site have a line. With the sites that are left out,
/// and why.
pub(crate) fn file(parts: &Parts, left_out: &BTreeMap<Name, String>) -> String {
    let mut file = File(String::with_capacity(OURS.len() + LINE * parts.sites.len()));
    file.0.push_str(OURS);
    for (site, why) in left_out {
        let why = why.escape_debug();
        file.add(format_args!("# {site} is left out: the gateway refuses it: {why}"));
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
    file.0
}

/// A file that is being written.
struct File(String);

impl File {
    fn table(
        &mut self,
        name: &Name,
        contact: &Contact,
        keepalive: Option<u16>,
        behind: &[(&Name, &Networks)],
    ) {
        self.add(format_args!("\n[[peer]]\nname        = \"{name}\""));
        self.add(format_args!("public_key  = \"{}\"", contact.key.0));
        if let Some(next) = &contact.next_key {
            self.add(format_args!("next_public_key = \"{}\"", next.0));
        }
        self.add(format_args!("hop_prefix  = \"{}\"", contact.hop_prefix));
        self.list("allowed_ips", behind.iter().map(|(site, behind)| (*site, &behind.networks[..])));
        if let Some(seconds) = keepalive {
            self.add(format_args!("keepalive   = \"{seconds}s\""));
        }
    }

    /// Who may open connections to whom, for a firewall.
    fn reach(&mut self, here: &Here, all: &[(&Name, &Networks)]) {
        self.add(format_args!("\n[reach]\nown         = {}", quoted(&here.own)));
        self.add(format_args!("serves      = {}", quoted(&here.serves)));
        let agents: Vec<(&Name, [IpAddr; 1])> =
            all.iter().filter_map(|(site, networks)| Some((*site, [networks.agent?]))).collect();
        self.list("agents", agents.iter().map(|(site, agent)| (*site, &agent[..])));
        let those = |is_so: fn(&Networks) -> bool| {
            let some = all.iter().filter(move |(_, networks)| is_so(networks));
            some.map(|(site, networks)| (*site, &networks.networks[..]))
        };
        self.list("answers_only", those(|networks| !networks.opens));
        self.list("asks_only", those(|networks| !networks.accepts));
        let mut zones: BTreeMap<&Name, Vec<(&Name, &[IpNet])>> = BTreeMap::new();
        for (site, networks) in all {
            if let Some(zone) = &networks.zone {
                zones.entry(zone).or_default().push((site, &networks.networks));
            }
        }
        self.add(format_args!("\n[reach.zones]"));
        for (zone, networks) in zones {
            self.list(&format!("\"{zone}\""), networks.into_iter());
        }
    }

    /// A list in which each site has a line, that ends with its name.
    fn list<'a, T: fmt::Display + 'a>(
        &mut self,
        key: &str,
        items: impl Iterator<Item = (&'a Name, &'a [T])>,
    ) {
        self.add(format_args!("{key:<11} = ["));
        for (site, items) in items {
            self.0.push_str("   ");
            for item in items {
                write!(self.0, " \"{item}\",").expect("a text takes all");
            }
            self.0.push_str(" # ");
            self.0.push_str(site.as_str());
            self.0.push('\n');
        }
        self.add(format_args!("]"));
    }

    fn add(&mut self, line: fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("a text takes all");
    }
}

/// The sites that a gateway names which refuses a file: by the places that its answer points to.
pub(crate) fn named_in(answer: &str, file: &str) -> Vec<Name> {
    let places = answer.lines().filter_map(|line| line.trim_start().strip_prefix("--> "));
    let numbers = places.filter_map(|place| {
        let line = place.split_once("peers.toml:")?.1;
        line.split(':').next()?.trim().parse::<usize>().ok()
    });
    let lines: Vec<&str> = file.lines().collect();
    let mut named: Vec<Name> = numbers.filter_map(|number| site_of(number, &lines)).collect();
    named.sort();
    named.dedup();
    named
}

/// The site that a line is about, by its number: it says so, or is in a peer's table.
fn site_of(number: usize, lines: &[&str]) -> Option<Name> {
    let until = lines.get(..number)?;
    if let Some((_, site)) = until.last()?.split_once(" # ") {
        return site.parse().ok();
    }
    let table = until.iter().rposition(|line| line.starts_with('['))?;
    let name = lines.get(table + 1)?.strip_prefix("name        = ")?;
    name.trim_matches('"').parse().ok()
}

/// A list in one line.
fn quoted(items: &[impl fmt::Display]) -> String {
    let items: Vec<String> = items.iter().map(|item| format!("\"{item}\"")).collect();
    format!("[{}]", items.join(", "))
}
