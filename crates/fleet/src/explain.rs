//! Who may reach what, and why: the rule, the way over relays, the networks.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::Serialize;

use crate::fleet::Fleet;
use crate::name::Name;
use crate::plan;
use crate::settings::{Link, Reach};

/// Whether the hosts of one site may reach those of another, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// Who would open connections.
    pub from: End,
    /// Who would answer.
    pub to: End,
    /// Whether the rules let the one open connections to the other.
    pub verdict: Verdict,
    /// Whether they let the other open connections to the one. Where one of both is so, the gateways carry packets both ways.
    pub back: Verdict,
    /// The tunnels on the way, in their order; none where no way leads there.
    pub way: Option<Vec<Hop>>,
}

/// An end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct End {
    /// The site.
    pub site: Name,
    /// The networks behind it.
    pub networks: Vec<IpNet>,
    /// Whether it is no member any more.
    pub is_revoked: bool,
}

/// What the rules say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// There are no `[[reach]]`: everybody may.
    NoRules,
    /// One allows it: the first of them, counted from 1.
    Allowed {
        /// Which.
        number: usize,
        /// What it says.
        rule: Reach,
    },
    /// None does.
    Refused,
}

/// A tunnel on a way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hop {
    /// From here.
    pub from: Name,
    /// To there.
    pub to: Name,
    /// Why there is a tunnel: the first `[[link]]` that gives it, counted from 1.
    pub number: usize,
    /// What that says.
    pub rule: Link,
}

impl Verdict {
    fn of(rules: &[Reach], from: &crate::site::Member, to: &crate::site::Member) -> Verdict {
        let found = rules.iter().enumerate().find(|(_, rule)| rule.from.selects(from) && rule.to.selects(to));
        match found {
            _ if rules.is_empty() => Verdict::NoRules,
            Some((at, rule)) => Verdict::Allowed { number: at + 1, rule: rule.clone() },
            None => Verdict::Refused,
        }
    }

    /// Whether it may.
    #[must_use]
    pub fn allows(&self) -> bool {
        !matches!(self, Verdict::Refused)
    }
}

impl Explanation {
    /// Why one site may reach another, or not; nothing where one of them is none.
    #[must_use]
    pub fn of(fleet: &Fleet, from: &Name, to: &Name) -> Option<Explanation> {
        let (one, other) = (fleet.site(from)?, fleet.site(to)?);
        let policy = &fleet.settings()?.policy;
        let end = |site: &crate::fleet::Current<'_>| End {
            site: site.member.name.clone(),
            networks: site.member.networks.clone(),
            is_revoked: site.member.is_revoked(),
        };
        let hop = |pair: &[&Name]| -> Option<Hop> {
            let (here, there) = (fleet.site(pair[0])?, fleet.site(pair[1])?);
            let mut links = policy.links.iter().enumerate();
            let (at, rule) = links.find(|(_, link)| link.joins(&here.member, &there.member))?;
            Some(Hop { from: pair[0].clone(), to: pair[1].clone(), number: at + 1, rule: rule.clone() })
        };
        let way = plan::way(fleet, from, to).and_then(|way| way.windows(2).map(hop).collect());
        Some(Explanation {
            from: end(&one),
            to: end(&other),
            verdict: Verdict::of(&policy.reach, &one.member, &other.member),
            back: Verdict::of(&policy.reach, &other.member, &one.member),
            way,
        })
    }

    /// Whether packets pass: no end is out, a way leads there, and a rule allows connections of either.
    #[must_use]
    pub fn passes(&self) -> bool {
        let is_allowed = self.verdict.allows() || self.back.allows();
        is_allowed && self.way.is_some() && !self.from.is_revoked && !self.to.is_revoked
    }
}

/// The site that an address is behind, and the network that it is in: of several the narrowest.
#[must_use]
pub fn site_of(fleet: &Fleet, address: IpAddr) -> Option<(Name, IpNet)> {
    let sites = fleet.sites();
    let members = sites.values().map(|site| &site.member).filter(|member| !member.is_revoked());
    let networks = members.flat_map(|member| member.networks.iter().map(|network| (&member.name, *network)));
    let holding = networks.filter(|(_, network)| network.contains(&address));
    let (name, network) = holding.max_by_key(|(_, network)| network.prefix_len())?;
    Some((name.clone(), network))
}
