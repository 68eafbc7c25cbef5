//! A policy: zones, rules, and what they are made of. What is here cannot be wrong by itself; what concerns several
//! zones [`Policy::new`] checks.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::address::Address;
use super::schedule::Schedule;
use super::service::Service;
use crate::forward::{Forward, Ports};

/// How much a zone may do where no rule says otherwise, from most to least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trust {
    /// Opens connections everywhere, and to the gateway.
    Inside,
    /// Opens connections outside only, and gets of the gateway what a host needs.
    Guest,
    /// Opens none, but for what RFC 6092 lets in; none to outside, be it to its own zone.
    Outside,
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It passes.
    Accept,
    /// It is dropped, and nobody told.
    Drop,
    /// It is dropped, and its sender told: a TCP reset, otherwise ICMP "administratively prohibited".
    Reject,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Accept => "accept",
            Verdict::Drop => "drop",
            Verdict::Reject => "reject",
        })
    }
}

/// Networks of equal trust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    /// Letters, digits, `-` and `_`, 1 to 32 of them, beginning with a letter; not `gateway`.
    pub name: String,
    /// What it may do.
    pub trust: Trust,
    /// Names of its interfaces.
    pub interfaces: Vec<String>,
    /// The part of its interfaces that it is, by address; all of them where empty.
    pub networks: Vec<IpNet>,
}

/// An end of a packet's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ZoneRef {
    /// The zone of this index.
    Zone(usize),
    /// This machine itself.
    Gateway,
}

/// Which ends a rule is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ZoneSet {
    /// Any zone, and the gateway.
    Any,
    /// These.
    Of(Vec<ZoneRef>),
}

impl ZoneSet {
    /// Whether the zone is among them.
    #[must_use]
    pub fn contains(&self, zone: ZoneRef) -> bool {
        match self {
            ZoneSet::Any => true,
            ZoneSet::Of(zones) => zones.contains(&zone),
        }
    }

    /// Whether each of `other` is among them.
    #[must_use]
    pub fn contains_all(&self, other: &ZoneSet) -> bool {
        match (self, other) {
            (ZoneSet::Any, _) => true,
            (_, ZoneSet::Any) => false,
            (_, ZoneSet::Of(others)) => others.iter().all(|zone| self.contains(*zone)),
        }
    }
}

/// How often a rule takes a packet; those beyond it go on to the next rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    /// So many packets, 1 or more,
    pub packets: u32,
    /// in each of these.
    pub per: Per,
    /// How many may come at once, 1 or more.
    pub burst: u32,
}

/// The time that a rate counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Per {
    /// Second.
    Second,
    /// Minute.
    Minute,
    /// Hour.
    Hour,
    /// Day.
    Day,
}

/// A rule. The first that matches decides.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rule {
    /// Where packets come from.
    pub from: ZoneSet,
    /// Where they go.
    pub to: ZoneSet,
    /// Their source; any where None.
    pub source: Option<Vec<Address>>,
    /// Their destination; any where None.
    pub destination: Option<Vec<Address>>,
    /// What they are; any where None.
    pub service: Option<Vec<Service>>,
    /// How many it takes; all where None.
    pub rate: Option<Rate>,
    /// When it holds; always where None.
    pub schedule: Option<Schedule>,
    /// Only packets that a [`Forward`] has given their destination.
    pub forwarded: bool,
    /// Each packet that it decides is logged, up to 10 a second.
    pub log: bool,
    /// What it is for.
    pub comment: String,
    /// What becomes of the packet.
    pub action: Verdict,
}

impl Rule {
    /// The rule that lets in what is forwarded, and nothing else.
    #[must_use]
    pub fn of_forward(forward: &Forward, from: ZoneSet, to: ZoneSet) -> Self {
        let at_host = |ports: &Ports| match forward.to_port {
            Some(port) => Service::Ports(ports.protocol, port, port),
            None => Service::from(*ports),
        };
        Rule {
            from,
            to,
            source: (!forward.sources.is_empty()).then(|| forward.sources.clone()),
            destination: Some(vec![IpAddr::V4(forward.to).into()]),
            service: Some(forward.ports.iter().map(at_host).collect()),
            rate: None,
            schedule: None,
            forwarded: true,
            log: forward.log,
            comment: format!("forward {}", forward.name),
            action: Verdict::Accept,
        }
    }

    /// Whether it decides each packet that fits it: one with a rate or a schedule lets some go on, and one for what is
    /// forwarded the rest.
    #[must_use]
    pub fn is_final(&self) -> bool {
        !self.varies() && !self.forwarded
    }

    /// Whether it takes equal packets at one time and not at another.
    #[must_use]
    pub fn varies(&self) -> bool {
        self.rate.is_some() || self.schedule.is_some()
    }
}

/// What concerns no single rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// What becomes of packets from inside and from guests that nothing lets pass; those from outside are dropped.
    pub refuse: Verdict,
    /// Packets that are refused are logged, up to 10 a second.
    pub log_refused: bool,
    /// Addresses that may not be seen outside (documentation, unique local …), but are here.
    pub accept_special: Vec<IpNet>,
    /// Prefixes at which this gateway's tunnels take datagrams: UDP to them is let in.
    pub tunnel_endpoints: Vec<Ipv6Net>,
    /// IPv6 inside of IPv4 is let in to the gateway, whose transition tunnels judge it: 6in4, 6to4, 6rd.
    pub ipv6_in_ipv4: bool,
    /// The same of IPv4 inside of IPv6: 4in6.
    pub ipv4_in_ipv6: bool,
    /// Ports of uplinks that lead to hosts inside; the rules that let them in are among those of the policy.
    pub forwards: Vec<Forward>,
    /// Hosts inside may have ports opened ([`crate::pcp`]); which these are the kernel alone has.
    pub port_mapping: bool,
    /// The prefix of a translator between IPv6 and IPv4: what comes out of it as IPv4 was judged when it went in, and passes.
    pub translated: Option<Ipv6Net>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            refuse: Verdict::Reject,
            log_refused: false,
            accept_special: Vec::new(),
            tunnel_endpoints: Vec::new(),
            ipv6_in_ipv4: false,
            ipv4_in_ipv6: false,
            forwards: Vec::new(),
            port_mapping: false,
            translated: None,
        }
    }
}

/// Zones, rules and settings that fit together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    zones: Vec<Zone>,
    rules: Vec<Rule>,
    settings: Settings,
}

/// Why zones and rules do not fit together. Zones are given by index.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// A name cannot be one.
    #[error("not a name for a zone")]
    ZoneName(usize),
    /// An interface cannot have this name, or nft would take it for more than one.
    #[error("{1:?} is not an interface name that the firewall can use")]
    InterfaceName(usize, String),
    /// Two zones have a name.
    #[error("two zones have the same name")]
    SameName(usize, usize),
    /// Two zones have all of an interface.
    #[error("interface {2} is in two zones")]
    SameInterface(usize, usize, String),
    /// Two zones have an address of an interface.
    #[error("two zones have addresses of {2} on the same interface")]
    SameNetwork(usize, usize, IpNet),
    /// A rule names a zone that is none. An index of a rule.
    #[error("a rule names a zone that does not exist")]
    NoZone(usize),
}

impl Policy {
    /// The policy, if its parts fit together.
    ///
    /// # Errors
    /// The first thing that does not fit.
    pub fn new(zones: Vec<Zone>, rules: Vec<Rule>, settings: Settings) -> Result<Self, PolicyError> {
        for (index, zone) in zones.iter().enumerate() {
            if !is_zone_name(&zone.name) {
                return Err(PolicyError::ZoneName(index));
            }
            if let Some(name) = zone.interfaces.iter().find(|name| !is_interface_name(name)) {
                return Err(PolicyError::InterfaceName(index, name.clone()));
            }
            for (earlier, other) in zones[..index].iter().enumerate() {
                if other.name == zone.name {
                    return Err(PolicyError::SameName(earlier, index));
                }
                let Some(shared) = zone.interfaces.iter().find(|name| other.interfaces.contains(name)) else {
                    continue;
                };
                if zone.networks.is_empty() && other.networks.is_empty() {
                    return Err(PolicyError::SameInterface(earlier, index, shared.clone()));
                }
                let overlaps = |net: &&IpNet| {
                    other.networks.iter().any(|other| other.contains(*net) || net.contains(other))
                };
                if let Some(net) = zone.networks.iter().find(overlaps) {
                    return Err(PolicyError::SameNetwork(earlier, index, *net));
                }
            }
        }
        let is_there = |set: &ZoneSet| match set {
            ZoneSet::Any => true,
            ZoneSet::Of(refs) => {
                refs.iter().all(|end| !matches!(end, ZoneRef::Zone(zone) if *zone >= zones.len()))
            }
        };
        if let Some(rule) = rules.iter().position(|rule| !is_there(&rule.from) || !is_there(&rule.to)) {
            return Err(PolicyError::NoZone(rule));
        }
        Ok(Policy { zones, rules, settings })
    }

    /// The same with one more prefix at which this gateway's tunnels take datagrams.
    #[must_use]
    pub fn with_tunnel_endpoint(mut self, prefix: Ipv6Net) -> Self {
        self.settings.tunnel_endpoints.push(prefix);
        self
    }

    /// Its zones, in the order of the file.
    #[must_use]
    pub fn zones(&self) -> &[Zone] {
        &self.zones
    }

    /// Its rules, in the order of the file.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Its settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Every end: the zones, then the gateway.
    pub fn zone_refs(&self) -> impl Iterator<Item = ZoneRef> {
        (0..self.zones.len()).map(ZoneRef::Zone).chain([ZoneRef::Gateway])
    }

    /// The name of a zone.
    #[must_use]
    pub fn name(&self, zone: ZoneRef) -> &str {
        match zone {
            ZoneRef::Zone(zone) => self.zones.get(zone).map_or("", |zone| &zone.name),
            ZoneRef::Gateway => GATEWAY,
        }
    }

    /// The end of that name.
    #[must_use]
    pub fn zone_named(&self, name: &str) -> Option<ZoneRef> {
        if name == GATEWAY {
            return Some(ZoneRef::Gateway);
        }
        self.zones.iter().position(|zone| zone.name == name).map(ZoneRef::Zone)
    }

    /// The trust of a zone; None for the gateway.
    #[must_use]
    pub fn trust(&self, zone: ZoneRef) -> Option<Trust> {
        match zone {
            ZoneRef::Zone(zone) => self.zones.get(zone).map(|zone| zone.trust),
            ZoneRef::Gateway => None,
        }
    }

    /// The zone that an address is in behind an interface: one that has this part of it before one that has all, before
    /// that of its link.
    #[must_use]
    pub fn zone_of(&self, interface: &str, address: IpAddr) -> Option<ZoneRef> {
        let has = |zone: &&Zone| zone.interfaces.iter().any(|name| name == interface);
        let part = |zone: &Zone| zone.networks.iter().any(|net| net.contains(&address));
        let mut zones = self.zones.iter();
        let index = zones
            .position(|zone| has(&zone) && part(zone))
            .or_else(|| self.zones.iter().position(|zone| has(&zone) && zone.networks.is_empty()));
        let of_link =
            || self.zone_of_link(interface).filter(|_| LINK_SOURCES.iter().any(|net| net.contains(&address)));
        index.map(ZoneRef::Zone).or_else(of_link)
    }

    /// The zone of what is [`LINK_SOURCES`] where zones have only parts of an interface: the least trusted of them, since
    /// nothing tells whose it is. Without one there would be no neighbor discovery.
    pub(super) fn zone_of_link(&self, interface: &str) -> Option<ZoneRef> {
        let has = |zone: &Zone| zone.interfaces.iter().any(|name| name == interface);
        let there: Vec<_> = self.zones.iter().enumerate().filter(|(_, zone)| has(zone)).collect();
        if there.iter().any(|(_, zone)| zone.networks.is_empty()) {
            return None;
        }
        there.into_iter().max_by_key(|(_, zone)| zone.trust).map(|(index, _)| ZoneRef::Zone(index))
    }
}

pub(super) const LINK_LOCAL: IpNet =
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10));
pub(super) const UNSPECIFIED: IpNet = IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 128));
const UNSPECIFIED_IPV4: IpNet = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 32));
/// What every host on a link may write as its source, whatever its networks: the unspecified addresses before it has
/// another.
pub(super) const LINK_SOURCES: [IpNet; 3] = [LINK_LOCAL, UNSPECIFIED, UNSPECIFIED_IPV4];

/// The reserved name of this machine in `from` and `to`.
pub const GATEWAY: &str = "gateway";

/// Whether a zone may have this name.
#[must_use]
pub fn is_zone_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    (1..=32).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(plain)
        && name != GATEWAY
}

/// Whether nft takes the name, in quotes, for this one interface.
fn is_interface_name(name: &str) -> bool {
    (1..=15).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '"' | '*' | '\\' | '/' | ':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &str, interfaces: &[&str], networks: &[&str]) -> Zone {
        Zone {
            name: name.to_owned(),
            trust: Trust::Inside,
            interfaces: interfaces.iter().map(ToString::to_string).collect(),
            networks: networks.iter().map(|net| net.parse().unwrap()).collect(),
        }
    }

    fn policy(zones: Vec<Zone>) -> Result<Policy, PolicyError> {
        Policy::new(zones, Vec::new(), Settings::default())
    }

    #[test]
    fn a_part_of_an_interface_goes_before_the_whole() {
        let policy = policy(vec![zone("all", &["t0"], &[]), zone("part", &["t0"], &["fd00::/8"])]).unwrap();
        assert_eq!(policy.zone_of("t0", "fd00::1".parse().unwrap()), Some(ZoneRef::Zone(1)));
        assert_eq!(policy.zone_of("t0", "2001:db8::1".parse().unwrap()), Some(ZoneRef::Zone(0)));
        assert_eq!(policy.zone_of("t1", "fd00::1".parse().unwrap()), None);
        assert_eq!(policy.zone_of("t0", "fe80::1".parse().unwrap()), Some(ZoneRef::Zone(0)));
    }

    #[test]
    fn what_is_of_the_link_is_in_the_least_trusted_of_its_parts() {
        let guests = Zone { trust: Trust::Guest, ..zone("guests", &["t0"], &["fd00:2::/32"]) };
        let policy = policy(vec![guests, zone("part", &["t0"], &["fd00:1::/32"])]).unwrap();
        for address in ["fe80::1", "::", "0.0.0.0"] {
            assert_eq!(policy.zone_of("t0", address.parse().unwrap()), Some(ZoneRef::Zone(0)), "{address}");
            assert_eq!(policy.zone_of("t1", address.parse().unwrap()), None, "{address}");
        }
        assert_eq!(policy.zone_of("t0", "fd00:3::1".parse().unwrap()), None);
    }

    #[test]
    fn zones_do_not_share_what_cannot_be_told_apart() {
        let same = policy(vec![zone("a", &["e0", "e1"], &[]), zone("b", &["e1"], &[])]);
        assert_eq!(same, Err(PolicyError::SameInterface(0, 1, "e1".to_owned())));
        let parts = policy(vec![zone("a", &["e0"], &["fd00::/8"]), zone("b", &["e0"], &["fd00:1::/32"])]);
        assert_eq!(parts, Err(PolicyError::SameNetwork(0, 1, "fd00:1::/32".parse().unwrap())));
        assert_eq!(policy(vec![zone("gateway", &["e0"], &[])]), Err(PolicyError::ZoneName(0)));
        assert_eq!(policy(vec![zone("a;b", &["e0"], &[])]), Err(PolicyError::ZoneName(0)));
        for name in ["e*", "e\"", "", "e e"] {
            let wrong = policy(vec![zone("a", &[name], &[])]);
            assert_eq!(wrong, Err(PolicyError::InterfaceName(0, name.to_owned())));
        }
    }
}
