//! Rules as regions: boxes in the space of packets, of one family, protocol, range of sources, of destinations, and of
//! ports or ICMP types.

use super::address::{Address, Family};
use super::policy::Rule;
use super::service::Service;

/// A box of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Region {
    /// Both where None.
    pub family: Option<Family>,
    /// Any where None.
    pub protocol: Option<u8>,
    /// Source addresses; any where None. Of `family`.
    pub source: Option<Address>,
    /// Destination addresses; any where None. Of `family`.
    pub destination: Option<Address>,
    /// Ports or types.
    pub detail: Detail,
}

/// What of the upper-layer header counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Detail {
    /// Nothing.
    Any,
    /// Destination ports, the first and the last.
    Ports(u16, u16),
    /// An ICMP type, and a code or any.
    Icmp(u8, Option<u8>),
}

impl Region {
    /// Whether a packet can be in both.
    #[must_use]
    pub fn overlaps(&self, other: &Region) -> bool {
        both(self.family, other.family, |a, b| a == b)
            && both(self.protocol, other.protocol, |a, b| a == b)
            && match (self.detail, other.detail) {
                (Detail::Any, _) | (_, Detail::Any) => true,
                (Detail::Ports(first, last), Detail::Ports(other_first, other_last)) => {
                    first <= other_last && other_first <= last
                }
                (Detail::Icmp(kind, code), Detail::Icmp(other_kind, other_code)) => {
                    kind == other_kind && both(code, other_code, |a, b| a == b)
                }
                _ => false,
            }
            && both(self.source, other.source, |a, b| a.overlaps(&b))
            && both(self.destination, other.destination, |a, b| a.overlaps(&b))
    }

    /// Whether every packet of `other` is in this one.
    #[must_use]
    pub fn contains(&self, other: &Region) -> bool {
        within(self.family, other.family, |a, b| a == b)
            && within(self.protocol, other.protocol, |a, b| a == b)
            && match (self.detail, other.detail) {
                (Detail::Any, _) => true,
                (Detail::Ports(first, last), Detail::Ports(other_first, other_last)) => {
                    first <= other_first && other_last <= last
                }
                (Detail::Icmp(kind, code), Detail::Icmp(other_kind, other_code)) => {
                    kind == other_kind && within(code, other_code, |a, b| a == b)
                }
                _ => false,
            }
            && within(self.source, other.source, |a, b| holds(&a, &b))
            && within(self.destination, other.destination, |a, b| holds(&a, &b))
    }
}

fn both<T>(a: Option<T>, b: Option<T>, meet: impl Fn(T, T) -> bool) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => meet(a, b),
        _ => true,
    }
}

fn within<T>(outer: Option<T>, inner: Option<T>, holds: impl Fn(T, T) -> bool) -> bool {
    match (outer, inner) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(outer), Some(inner)) => holds(outer, inner),
    }
}

fn holds(outer: &Address, inner: &Address) -> bool {
    match (*outer, *inner) {
        (Address::Range(family, first, last), Address::Range(other, other_first, other_last)) => {
            family == other && first <= other_first && other_last <= last
        }
        (Address::Suffix { value, mask }, Address::Suffix { value: other, mask: other_mask }) => {
            mask & !other_mask == 0 && other & mask == value
        }
        (Address::Suffix { value, mask }, Address::Range(family, first, last)) => {
            family == Family::V6 && first == last && first & mask == value
        }
        (Address::Range(family, first, last), Address::Suffix { .. }) => {
            family == Family::V6 && first == 0 && last == u128::MAX
        }
    }
}

/// The regions of a rule, without its zones. None where its addresses and services are of different families.
#[must_use]
pub fn regions(rule: &Rule) -> Vec<Region> {
    let services = choices(rule.service.as_deref());
    let sources = choices(rule.source.as_deref());
    let destinations = choices(rule.destination.as_deref());
    let mut regions = Vec::with_capacity(services.len() * sources.len() * destinations.len());
    for service in &services {
        for source in &sources {
            for destination in &destinations {
                regions.extend(region(*service, *source, *destination));
            }
        }
    }
    regions
}

fn choices<T: Copy>(values: Option<&[T]>) -> Vec<Option<T>> {
    values.map_or_else(|| vec![None], |values| values.iter().copied().map(Some).collect())
}

fn region(service: Option<Service>, source: Option<Address>, destination: Option<Address>) -> Option<Region> {
    let families = [
        service.and_then(|service| service.family()),
        source.map(|address| address.family()),
        destination.map(|address| address.family()),
    ];
    let family = families.iter().flatten().next().copied();
    if families.iter().flatten().any(|other| Some(*other) != family) {
        return None;
    }
    let detail = match service {
        Some(Service::Ports(_, first, last)) => Detail::Ports(first, last),
        Some(Service::Icmp(_, kind, code)) => Detail::Icmp(kind, code),
        Some(Service::Protocol(_)) | None => Detail::Any,
    };
    Some(Region { family, protocol: service.map(|service| service.protocol()), source, destination, detail })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(service: &str, source: &str) -> Region {
        super::region(service.parse().ok(), source.parse().ok(), None).unwrap()
    }

    #[test]
    fn boxes_contain_and_meet_each_other() {
        let all = region("", "");
        let ssh = region("tcp/22", "");
        let low = region("tcp/0-1023", "2001:db8::/32");
        assert!(all.contains(&ssh) && !ssh.contains(&all));
        assert!(ssh.overlaps(&low) && !ssh.contains(&low) && !low.contains(&ssh));
        assert!(!ssh.overlaps(&region("udp/22", "")));
        assert!(!low.overlaps(&region("tcp/22", "10.0.0.0/8")));
        assert!(region("icmpv6/1", "").contains(&region("icmpv6/1/4", "")));
        let suffix = region("tcp", "*::10");
        assert!(suffix.contains(&region("tcp/22", "2001:db8::10")));
        assert!(!suffix.overlaps(&region("tcp", "*::11")));
        assert!(suffix.contains(&region("tcp", "*::1:0:0:0:10/80")));
        assert!(suffix.overlaps(&low), "a prefix has hosts with that suffix");
    }

    #[test]
    fn addresses_and_services_of_different_families_are_no_region() {
        assert_eq!(super::region("icmpv6".parse().ok(), "10.0.0.1".parse().ok(), None), None);
    }
}
