//! The fields of packets that a set of regions looks at, and the values that its regions have there.

use std::collections::HashSet;
use std::net::Ipv6Addr;

use crate::firewall::address::{Address, Family, address};
use crate::firewall::lookup::{DetailKind, Entry, Kind, Set};
use crate::firewall::region::Detail;

/// One field.
pub(super) struct Field {
    /// How nft writes that of a packet.
    pub(super) expression: String,
    /// nft's type of it.
    pub(super) kind: &'static str,
    /// Whether it is a whole address: one can be asked for its first bits.
    pub(super) prefixes: Option<Family>,
    /// The first and the last value of each region, in the order of the set. A suffix is one value.
    values: Vec<(u128, u128)>,
    /// Of a suffix: values are written as addresses, too.
    is_suffix: bool,
}

/// What has to be done with a packet's field so that one value is left to look up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Form {
    /// Mask these bits: prefixes of one length; of single values, none.
    Masked(u128),
    /// Compare it with this range first, and look up the rest.
    Between(u128, u128),
}

/// What a region has there.
type Value<'a> = &'a dyn Fn(&Entry) -> (u128, u128);

impl Field {
    /// Those that count in a set, what rules out most packets at the least cost first.
    pub(super) fn of(set: &Set) -> Vec<Self> {
        let shape = &set.shape;
        let mut fields = Vec::new();
        let mut add = |expression: String, kind, prefixes, is_suffix, value: Value<'_>| {
            let values = set.entries().iter().map(value).collect();
            fields.push(Field { expression, kind, prefixes, values, is_suffix });
        };
        let is_icmp = matches!(shape.detail, DetailKind::Type | DetailKind::TypeAndCode);
        // nft compares the protocol by itself where a type is looked up.
        if shape.protocol && !is_icmp {
            add("meta l4proto".into(), "inet_proto", None, false, &|entry| {
                one(entry.region.protocol.unwrap_or(0))
            });
        }
        let detail = |entry: &Entry| entry.region.detail;
        let (icmp, of_type, of_code) = match shape.family {
            Some(Family::V4) => ("icmp", "icmp_type", "icmp_code"),
            _ => ("icmpv6", "icmpv6_type", "icmpv6_code"),
        };
        if is_icmp {
            add(format!("{icmp} type"), of_type, None, false, &|entry| match detail(entry) {
                Detail::Icmp(kind, _) => one(kind),
                _ => (0, 0),
            });
        }
        if shape.detail == DetailKind::TypeAndCode {
            add(format!("{icmp} code"), of_code, None, false, &|entry| match detail(entry) {
                Detail::Icmp(_, code) => one(code.unwrap_or(0)),
                _ => (0, 0),
            });
        }
        if matches!(shape.detail, DetailKind::Port | DetailKind::Ports) {
            add("th dport".into(), "inet_service", None, false, &|entry| match detail(entry) {
                Detail::Ports(first, last) => (first.into(), last.into()),
                _ => (0, 0),
            });
        }
        let family = shape.family.unwrap_or(Family::V6);
        let (version, of_address) = match family {
            Family::V4 => ("ip", "ipv4_addr"),
            Family::V6 => ("ip6", "ipv6_addr"),
        };
        let source = |entry: &Entry| bounds(entry.region.source);
        let destination = |entry: &Entry| bounds(entry.region.destination);
        let addresses: [(_, _, Value<'_>); 2] =
            [("saddr", shape.source, &source), ("daddr", shape.destination, &destination)];
        for (name, kind, value) in addresses {
            let field = format!("{version} {name}");
            match kind {
                Kind::Any => {}
                Kind::One | Kind::Range => add(field, of_address, Some(family), false, value),
                Kind::Suffix(mask) => {
                    add(format!("{field} & {}", Ipv6Addr::from(mask)), of_address, None, true, value);
                }
            }
        }
        fields
    }

    /// That of a region.
    pub(super) fn value(&self, entry: usize) -> (u128, u128) {
        self.values[entry]
    }

    /// What makes one value of that of a region.
    pub(super) fn form(&self, entry: usize) -> Form {
        let (first, last) = self.value(entry);
        let hosts = first ^ last;
        let is_prefix = hosts & hosts.wrapping_add(1) == 0 && first & hosts == 0;
        if hosts == 0 || is_prefix && self.prefixes.is_some() {
            Form::Masked(hosts)
        } else {
            Form::Between(first, last)
        }
    }

    /// How many values these regions have.
    pub(super) fn distinct(&self, entries: &[usize]) -> usize {
        entries.iter().map(|entry| self.value(*entry)).collect::<HashSet<_>>().len()
    }

    /// A packet's field without the bits that do not count.
    pub(super) fn masked(&self, hosts: u128) -> String {
        match self.prefixes {
            Some(family) if hosts != 0 => format!("{} & {}", self.expression, address(family, !hosts)),
            _ => self.expression.clone(),
        }
    }

    /// One value, a prefix or a range, as nft writes it.
    pub(super) fn text(&self, (first, last): (u128, u128)) -> String {
        match self.prefixes {
            Some(family) => Address::Range(family, first, last).to_string(),
            None if self.is_suffix => Ipv6Addr::from(first).to_string(),
            None if first == last => first.to_string(),
            None => format!("{first}-{last}"),
        }
    }
}

fn one(value: u8) -> (u128, u128) {
    (value.into(), value.into())
}

fn bounds(given: Option<Address>) -> (u128, u128) {
    match given {
        Some(Address::Range(_, first, last)) => (first, last),
        Some(Address::Suffix { value, .. }) => (value, value),
        None => (0, 0),
    }
}
