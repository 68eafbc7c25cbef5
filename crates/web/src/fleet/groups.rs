//! Sites that no rule tells apart: they have tunnels with the same, and reach the same. So the matrix of ten thousand spokes is
//! as large as that of one, and nothing of it is left out.

use std::collections::{BTreeMap, BTreeSet};

use fleet::fleet::Fleet;
use fleet::name::Name;
use fleet::settings::{Policy, Selector};
use fleet::site::Member;
use serde::Serialize;

/// Groups whose relations are told: a map of more nobody reads.
const MOST: usize = 300;

/// Sites that no rule tells apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Group {
    /// Its name: that of its only site, or what its sites have in common.
    pub(super) label: String,
    /// How many sites it has.
    pub(super) sites: usize,
    /// Whether they pass on what is for others.
    pub(super) relays: bool,
    /// The groups whose sites they have tunnels with, perhaps this one, too.
    pub(super) links: Vec<usize>,
    /// The groups whose sites they may open connections to.
    pub(super) reach: Vec<usize>,
}

/// The groups of a fleet, and which one each site is in that is a member.
pub(super) fn groups(fleet: &Fleet) -> (Vec<Group>, BTreeMap<Name, usize>) {
    let Some(policy) = fleet.settings().map(|settings| &settings.policy) else { return Default::default() };
    let sites = fleet.sites();
    let members = sites.values().map(|site| &*site.member).filter(|member| !member.is_revoked());
    let mut alike: BTreeMap<_, Vec<&Member>> = BTreeMap::new();
    for member in members {
        let mark: Vec<bool> = selectors(policy).map(|selector| selector.selects(member)).collect();
        let region = member.region.as_ref().filter(|_| policy.links.iter().any(|link| link.same_region));
        // Those that relay come first.
        alike.entry((!policy.is_relay(member), mark, region)).or_default().push(member);
    }
    let all: Vec<Vec<&Member>> = alike.into_values().collect();
    let of =
        all.iter().enumerate().flat_map(|(at, group)| group.iter().map(move |one| (one.name.clone(), at)));
    let of = of.collect();
    let related = |at: usize, is: &dyn Fn(&Member, &Member) -> bool| -> Vec<usize> {
        let others = all.iter().take(MOST).enumerate().filter(|(other, group)| {
            let second = if *other == at { group.get(1) } else { group.first() };
            second.is_some_and(|second| is(all[at][0], second))
        });
        if at < MOST { others.map(|(other, _)| other).collect() } else { Vec::new() }
    };
    let group = |at: usize| Group {
        label: label(&all[at]),
        sites: all[at].len(),
        relays: policy.is_relay(all[at][0]),
        links: related(at, &|one, other| policy.links(one, other)),
        reach: related(at, &|one, other| policy.may_reach(one, other)),
    };
    ((0..all.len()).map(group).collect(), of)
}

fn selectors(policy: &Policy) -> impl Iterator<Item = &Selector> {
    let links = policy.links.iter().flat_map(|link| [&link.between, &link.and]);
    let reach = policy.reach.iter().flat_map(|reach| [&reach.from, &reach.to]);
    links.chain(&policy.relays).chain(reach)
}

fn label(group: &[&Member]) -> String {
    if let [only] = group {
        return only.name.to_string();
    }
    let common = |of: &dyn Fn(&Member) -> Option<String>| {
        let all: BTreeSet<Option<String>> = group.iter().map(|member| of(member)).collect();
        match all.len() {
            1 => all.into_iter().next().flatten(),
            _ => None,
        }
    };
    let text = |name: &Option<Name>| name.as_ref().map(Name::to_string);
    let parts = [
        common(&|member| Some(member.role.to_string())),
        common(&|member| text(&member.region)),
        common(&|member| text(&member.zone)),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "sites".to_owned() } else { parts.join(" · ") }
}
