//! The rules of a fleet, and where its controllers are: the line of a document that concerns nobody alone.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::key::Digest;
use crate::name::Name;
use crate::site::Member;

/// What concerns the whole fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The domain below which sites that reach nobody are told where controllers are ([`crate::signpost`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signposts: Option<String>,
    /// Who has a tunnel with whom, and who may reach whom.
    #[serde(default)]
    pub policy: Policy,
    /// Where the controllers are.
    #[serde(default, rename = "controller", skip_serializing_if = "Vec::is_empty")]
    pub controllers: Vec<Controller>,
}

/// The rules. They are read in no order: what one of them allows is allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Who has a tunnel with whom.
    #[serde(default, rename = "link", skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
    /// Who passes on what is from one site for another. The others are the ends of every way.
    #[serde(default, rename = "relay", skip_serializing_if = "Vec::is_empty")]
    pub relays: Vec<Selector>,
    /// Who may reach whom; without any rule everybody may.
    #[serde(default, rename = "reach", skip_serializing_if = "Vec::is_empty")]
    pub reach: Vec<Reach>,
}

/// Sites that have a tunnel with each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// The ones.
    pub between: Selector,
    /// The others; they may be the same.
    pub and: Selector,
    /// Only those that are in the same region.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub same_region: bool,
    /// Something leaves at least this often, in seconds, so that firewalls on the path stay open and a peer that is gone is
    /// noticed; 0 for sessions that are made when there is traffic.
    #[serde(default = "usual_keepalive")]
    pub keepalive: u16,
}

/// What most sites want: firewalls on the path forget after 30 s at the least.
fn usual_keepalive() -> u16 {
    25
}

/// Sites that may open connections to others, which may answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reach {
    /// Who opens them.
    pub from: Selector,
    /// Who answers.
    pub to: Selector,
}

/// Some sites: those that each list which is not empty has; without any, all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selector {
    /// Their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<Name>,
    /// Their roles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<Name>,
    /// Their regions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<Name>,
    /// Their zones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<Name>,
}

/// Where a controller is. It is believed nothing that is not signed; so this says where to ask, and whom to talk to about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Controller {
    /// Its name.
    pub name: Name,
    /// Where it is inside of the tunnels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside: Option<SocketAddr>,
    /// Where it is outside, to enrol and to recover: `control.example.net:4160`, `[2001:db8::1]:4160`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside: Option<String>,
    /// The digest of its certificate.
    pub certificate: Digest,
}

impl Selector {
    /// Those of a role.
    #[must_use]
    pub fn of_role(role: Name) -> Self {
        Selector { roles: vec![role], ..Self::default() }
    }

    /// Whether a site is one of them.
    #[must_use]
    pub fn selects(&self, site: &Member) -> bool {
        let has = |list: &[Name], name: Option<&Name>| {
            list.is_empty() || name.is_some_and(|name| list.contains(name))
        };
        has(&self.sites, Some(&site.name))
            && has(&self.roles, Some(&site.role))
            && has(&self.regions, site.region.as_ref())
            && has(&self.zones, site.zone.as_ref())
    }
}

impl Link {
    /// Whether it gives these two a tunnel.
    #[must_use]
    pub fn joins(&self, one: &Member, other: &Member) -> bool {
        let in_order = |one, other| self.between.selects(one) && self.and.selects(other);
        // Two that are in no region are not in the same.
        let in_region = !self.same_region || one.region.is_some() && one.region == other.region;
        in_region && (in_order(one, other) || in_order(other, one))
    }
}

impl Policy {
    /// Whether two sites have a tunnel with each other.
    #[must_use]
    pub fn links(&self, one: &Member, other: &Member) -> bool {
        let are_two = one.name != other.name && !one.is_revoked() && !other.is_revoked();
        are_two && self.links.iter().any(|link| link.joins(one, other))
    }

    /// How often something leaves between two sites that have a tunnel: the most often that a rule says.
    #[must_use]
    pub fn keepalive(&self, one: &Member, other: &Member) -> Option<u16> {
        let joining = self.links.iter().filter(|link| link.joins(one, other));
        joining.map(|link| link.keepalive).filter(|seconds| *seconds > 0).min()
    }

    /// Whether a site passes on what is for others.
    #[must_use]
    pub fn is_relay(&self, site: &Member) -> bool {
        self.relays.iter().any(|selector| selector.selects(site))
    }

    /// Whether one site may open connections to another.
    #[must_use]
    pub fn may_reach(&self, from: &Member, to: &Member) -> bool {
        let allows = |rule: &Reach| rule.from.selects(from) && rule.to.selects(to);
        self.reach.is_empty() || self.reach.iter().any(allows)
    }

    /// Whether packets pass between two sites: connections of either, and answers.
    #[must_use]
    pub fn may_exchange(&self, one: &Member, other: &Member) -> bool {
        self.may_reach(one, other) || self.may_reach(other, one)
    }
}
