//! What one site's gateway is to do: whom it has tunnels with, and what is behind each of them.
//!
//! Packets go from site to site on the way with the fewest tunnels, over sites that relay. Of several such ways one is drawn, by
//! a hash of each tunnel that is the same from both its ends: so ways are spread over relays, a packet and its answer take the
//! same one, and each gateway, which computes only what follows from its own place, agrees with all others. It has to: a
//! gateway takes packets of a site only from the peer that it would send packets to that site through.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use crate::exchange::PEER_PORT;
use crate::fleet::{Current, Fleet};
use crate::key::Digest;
use crate::name::Name;
use crate::settings::Policy;
use crate::site::{Contact, Member};

/// What a site's gateway is to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Its peers, by their names.
    pub peers: Vec<PlannedPeer>,
    /// The networks behind the site itself, as they are known to others.
    pub own: Vec<IpNet>,
    /// Where it is asked by agents: its own agent, and controllers in its networks.
    pub serves: Vec<SocketAddr>,
    /// Those that it has tunnels with, but of which it is not known how they are met.
    pub unmet: Vec<Name>,
    /// Those that it may exchange packets with, and to which no way leads.
    pub unreachable: Vec<Name>,
}

/// A peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedPeer {
    /// Its name.
    pub name: Name,
    /// How it is met.
    pub contact: Contact,
    /// Something leaves at least this often, in seconds; without it, sessions are for traffic only.
    pub keepalive: Option<u16>,
    /// What is behind it, in the order of the sites' names.
    pub behind: Vec<Behind>,
}

/// The networks of a site behind a peer, which may be that site itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Behind {
    /// Whose they are.
    pub site: Name,
    /// The zone that they are in.
    pub zone: Option<Name>,
    /// Whether they may open connections to this site.
    pub opens: bool,
    /// Whether this site may open connections to them.
    pub accepts: bool,
    /// Where the site's agent is, which is always heard.
    pub agent: Option<IpAddr>,
    /// The networks, in the order of addresses.
    pub networks: Vec<IpNet>,
}

impl PlannedPeer {
    /// All networks behind it.
    pub fn networks(&self) -> impl Iterator<Item = &IpNet> {
        self.behind.iter().flat_map(|behind| &behind.networks)
    }
}

/// A way from one site to another: the sites on it, and those two.
pub type Way<'f> = Vec<&'f Name>;

/// How long a way is: tunnels, then the sum of what was drawn for them.
type Length = (usize, u64);

/// A site that a way leads to. Sites are numbered in the order of their names.
#[derive(Debug, Clone, Copy)]
struct Reached {
    length: Length,
    /// The site before it.
    before: usize,
    /// The first one after where the way begins.
    first: usize,
}

impl Plan {
    /// What the gateway of `own` is to do; nothing if it is no member, or none any more.
    #[must_use]
    pub fn of(fleet: &Fleet, own: &Name) -> Plan {
        let sites = fleet.sites().into_iter().collect::<Vec<_>>();
        let Some(policy) = fleet.settings().map(|settings| &settings.policy) else { return Plan::default() };
        let Some(place) = place_of(own, &sites) else { return Plan::default() };
        let me = &sites[place].1.member;
        if me.is_revoked() {
            return Plan::default();
        }
        let ways = ways_from(&sites, policy, place);
        let mut plan = Plan { own: me.networks.clone(), serves: serves(fleet, me), ..Plan::default() };
        let mut peers: BTreeMap<usize, Vec<Behind>> = BTreeMap::new();
        for ((name, site), way) in sites.iter().zip(&ways) {
            if name == &own || site.member.is_revoked() {
                continue;
            }
            let mut networks = networks_for(policy, me, &site.member);
            networks.sort();
            networks.dedup();
            match way {
                Some(reached) => {
                    let peer = peers.entry(reached.first).or_default();
                    let behind = Behind {
                        site: (*name).clone(),
                        zone: site.member.zone.clone(),
                        opens: policy.may_reach(&site.member, me),
                        accepts: policy.may_reach(me, &site.member),
                        agent: site.member.address,
                        networks,
                    };
                    peer.extend((!behind.networks.is_empty()).then_some(behind));
                }
                None if networks.is_empty() => {}
                None => plan.unreachable.push((*name).clone()),
            }
        }
        for (peer, behind) in peers {
            let (name, site) = &sites[peer];
            let Some(contact) = site.contact else {
                plan.unmet.push((*name).clone());
                continue;
            };
            if behind.is_empty() {
                continue;
            }
            let keepalive = policy.keepalive(me, &site.member);
            plan.peers.push(PlannedPeer {
                name: (*name).clone(),
                contact: contact.clone(),
                keepalive,
                behind,
            });
        }
        plan
    }
}

/// The way of packets from one site to another, if one leads there.
#[must_use]
pub fn way<'f>(fleet: &'f Fleet, from: &Name, to: &Name) -> Option<Way<'f>> {
    let sites: Vec<_> = fleet.sites().into_iter().collect();
    let policy = &fleet.settings()?.policy;
    let (from, mut at) = (place_of(from, &sites)?, place_of(to, &sites)?);
    let ways = ways_from(&sites, policy, from);
    let mut way = vec![sites[at].0];
    while at != from {
        at = ways[at]?.before;
        way.push(sites[at].0);
    }
    way.reverse();
    Some(way)
}

/// Which of the sites has a name.
fn place_of(name: &Name, sites: &[(&Name, Current<'_>)]) -> Option<usize> {
    sites.binary_search_by(|(other, _)| (*other).cmp(name)).ok()
}

/// Where agents ask at a site.
fn serves(fleet: &Fleet, me: &Member) -> Vec<SocketAddr> {
    let controllers = fleet.settings().into_iter().flat_map(|settings| &settings.controllers);
    let inside = controllers.filter_map(|controller| controller.inside);
    let own = inside.filter(|place| me.networks.iter().any(|network| network.contains(&place.ip())));
    let agent = me.address.map(|address| SocketAddr::new(address, PEER_PORT));
    let mut places: Vec<SocketAddr> = own.chain(agent).collect();
    places.sort();
    places.dedup();
    places
}

/// What this gateway sends to a site, and takes from it. A relay passes on whatever comes: those at the ends refuse what they are
/// not to have. The addresses of agents are always reached, since by them the fleet is run.
fn networks_for(policy: &Policy, me: &Member, site: &Member) -> Vec<IpNet> {
    match policy.is_relay(me) || policy.may_exchange(me, site) {
        true => site.networks.clone(),
        false => site.address.map(IpAddr::into).into_iter().collect(),
    }
}

/// The way from one site to each of them that one leads to.
fn ways_from(sites: &[(&Name, Current<'_>)], policy: &Policy, from: usize) -> Vec<Option<Reached>> {
    let mut reached: Vec<Option<Reached>> = vec![None; sites.len()];
    let is_member = |site: &usize| !sites[*site].1.member.is_revoked();
    if !is_member(&from) {
        return reached;
    }
    let mut kinds = Kinds::of(policy);
    let kind: Vec<usize> = sites.iter().map(|(_, site)| kinds.of_site(&site.member)).collect();
    let mut left: Vec<usize> = (0..sites.len()).filter(|site| *site != from).filter(is_member).collect();
    // The sites that were reached last, with one tunnel more each time.
    let mut edge = vec![from];
    while !edge.is_empty() && !left.is_empty() {
        for at in edge {
            let way = reached[at];
            if way.is_some() && !kinds.is_relay(kind[at]) {
                continue;
            }
            let linked = kinds.linked_with(kind[at]);
            let (hops, drawn) = way.map_or((0, 0), |way| way.length);
            for site in left.iter().copied().filter(|site| linked[kind[*site]]) {
                let length = (hops + 1, drawn + draw(sites[at].0, sites[site].0));
                if reached[site].is_none_or(|best| length < best.length) {
                    let first = way.map_or(site, |way| way.first);
                    reached[site] = Some(Reached { length, before: at, first });
                }
            }
        }
        (edge, left) = left.into_iter().partition(|site| reached[*site].is_some());
    }
    reached
}

/// Sites of a kind are the same to the rules about tunnels, which therefore are looked at once for each two kinds, and not for
/// each two of thousands of sites.
struct Kinds<'p, 'f> {
    policy: &'p Policy,
    /// Sites that rules name are of a kind each.
    named: BTreeSet<&'p Name>,
    numbers: BTreeMap<Kind<'f>, usize>,
    /// One site of each.
    examples: Vec<&'f Member>,
}

/// Name if rules name it, role, region, zone.
type Kind<'f> = (Option<&'f Name>, &'f Name, Option<&'f Name>, Option<&'f Name>);

impl<'p, 'f> Kinds<'p, 'f> {
    fn of(policy: &'p Policy) -> Self {
        let of_links = policy.links.iter().flat_map(|link| [&link.between, &link.and]);
        let named = of_links.chain(&policy.relays).flat_map(|selector| &selector.sites).collect();
        Kinds { policy, named, numbers: BTreeMap::new(), examples: Vec::new() }
    }

    fn of_site(&mut self, site: &'f Member) -> usize {
        let name = Some(&site.name).filter(|name| self.named.contains(*name));
        let kind = (name, &site.role, site.region.as_ref(), site.zone.as_ref());
        *self.numbers.entry(kind).or_insert_with(|| {
            self.examples.push(site);
            self.examples.len() - 1
        })
    }

    fn is_relay(&self, kind: usize) -> bool {
        self.policy.is_relay(self.examples[kind])
    }

    /// With which kinds sites of this one have tunnels.
    fn linked_with(&self, kind: usize) -> Vec<bool> {
        let joins = |other| self.policy.links.iter().any(|link| link.joins(self.examples[kind], other));
        self.examples.iter().map(|other| joins(other)).collect()
    }
}

/// What is drawn for a tunnel: 48 bits, the same from both ends.
fn draw(one: &Name, other: &Name) -> u64 {
    let (low, high) = if one < other { (one, other) } else { (other, one) };
    // No name has a space.
    let digest = Digest::of(format!("{low} {high}").as_bytes());
    let bytes = digest.as_bytes();
    u64::from_be_bytes([0, 0, bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5]])
}
