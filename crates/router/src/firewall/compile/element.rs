//! A set of regions as a verdict map of nft, and the rule that looks a packet up in it.

use std::fmt::Write as _;
use std::net::IpAddr;

use crate::firewall::address::{Address, Family, address};
use crate::firewall::lookup::{DetailKind, Kind, Set, Shape};
use crate::firewall::policy::Policy;
use crate::firewall::region::{Detail, Region};

use super::rule::{element_comment, verdict};

/// The declaration of the map, empty where a rule does without, and the rule.
pub(super) fn set_text(policy: &Policy, set: &Set, name: &str) -> (String, String) {
    let shape = &set.shape;
    let guard = match shape.family {
        None => "",
        Some(Family::V4) => "meta nfproto ipv4 ",
        Some(Family::V6) => "meta nfproto ipv6 ",
    };
    if shape.is_everything() {
        let rules = set.entries().iter().map(|entry| {
            let comment = element_comment(policy, entry.rule);
            format!("\t\t{guard}counter {}{comment}\n", verdict(policy, entry.rule))
        });
        return (String::new(), rules.collect());
    }
    let masks = Masks::of(set);
    let fields = fields(shape, &masks);
    let types: Vec<&str> = fields.iter().map(|field| field.1).collect();
    let keys: Vec<&str> = fields.iter().map(|field| field.0.as_str()).collect();
    let mut map = format!("\tmap {name} {{\n\t\ttype {} : verdict\n", types.join(" . "));
    if !masks.are_enough {
        map += "\t\tflags interval\n";
    }
    map += "\t\tcounter\n\t\telements = {";
    for (index, entry) in set.entries().iter().enumerate() {
        let separator = if index == 0 { "" } else { "," };
        let _ = write!(map, "{separator}\n\t\t\t{}", key(&masks, &entry.region));
        map += &element_comment(policy, entry.rule);
        let _ = write!(map, " : {}", verdict(policy, entry.rule));
    }
    map += "\n\t\t}\n\t}\n";
    (map, format!("\t\t{guard}{} vmap @{name}\n", keys.join(" . ")))
}

/// What is left of addresses before they are looked up. Where all prefixes of a field are of one length, that makes a hash
/// table of single values of what would be ranges, which are looked up field by field and bit by bit: with 10,000 of them
/// that takes longer than all else that happens to a packet.
struct Masks {
    source: Option<IpAddr>,
    destination: Option<IpAddr>,
    /// Whether no ranges are left.
    are_enough: bool,
}

impl Masks {
    fn of(set: &Set) -> Self {
        let shape = &set.shape;
        let mask = |kind, field: fn(&Region) -> Option<Address>| match kind {
            Kind::Range => common_mask(set.entries().iter().map(|entry| field(&entry.region))),
            _ => None,
        };
        let source = mask(shape.source, |region| region.source);
        let destination = mask(shape.destination, |region| region.destination);
        let left = |kind, mask: Option<IpAddr>| kind == Kind::Range && mask.is_none();
        let are_enough = shape.detail != DetailKind::Ports
            && !left(shape.source, source)
            && !left(shape.destination, destination);
        // One that leaves ranges saves nothing.
        let (source, destination) = if are_enough { (source, destination) } else { (None, None) };
        Masks { source, destination, are_enough }
    }
}

/// The mask of all these prefixes, where they have one.
fn common_mask(addresses: impl Iterator<Item = Option<Address>>) -> Option<IpAddr> {
    let mut common = None;
    for one in addresses {
        let Some(Address::Range(family, first, last)) = one else { return None };
        let hosts = first ^ last;
        let is_prefix = hosts & hosts.wrapping_add(1) == 0 && first & hosts == 0;
        if !is_prefix || common.is_some_and(|common| common != (family, hosts)) {
            return None;
        }
        common = Some((family, hosts));
    }
    common.map(|(family, hosts)| address(family, !hosts))
}

/// The fields that count: how a packet's is written, and its type.
fn fields(shape: &Shape, masks: &Masks) -> Vec<(String, &'static str)> {
    let mut fields = Vec::new();
    let is_icmp = matches!(shape.detail, DetailKind::Type | DetailKind::TypeAndCode);
    if shape.protocol && !is_icmp {
        fields.push(("meta l4proto".to_owned(), "inet_proto"));
    }
    let (version, of) = match shape.family {
        Some(Family::V4) => ("ip", "ipv4_addr"),
        _ => ("ip6", "ipv6_addr"),
    };
    for (name, kind, mask) in
        [("saddr", shape.source, masks.source), ("daddr", shape.destination, masks.destination)]
    {
        match kind {
            Kind::Any => {}
            Kind::One | Kind::Range => {
                let mask = mask.map_or(String::new(), |mask| format!(" & {mask}"));
                fields.push((format!("{version} {name}{mask}"), of));
            }
            Kind::Suffix(mask) => {
                fields.push((format!("ip6 {name} & {}", std::net::Ipv6Addr::from(mask)), of));
            }
        }
    }
    let (icmp, kind, code) = match shape.family {
        Some(Family::V4) => ("icmp", "icmp_type", "icmp_code"),
        _ => ("icmpv6", "icmpv6_type", "icmpv6_code"),
    };
    match shape.detail {
        DetailKind::Any => {}
        DetailKind::Port | DetailKind::Ports => fields.push(("th dport".to_owned(), "inet_service")),
        DetailKind::Type => fields.push((format!("{icmp} type"), kind)),
        DetailKind::TypeAndCode => {
            fields.push((format!("{icmp} type"), kind));
            fields.push((format!("{icmp} code"), code));
        }
    }
    fields
}

/// The element of a region.
fn key(masks: &Masks, region: &Region) -> String {
    let mut parts = Vec::new();
    if let (Some(protocol), Detail::Any | Detail::Ports(..)) = (region.protocol, region.detail) {
        parts.push(protocol.to_string());
    }
    for (given, mask) in [(region.source, masks.source), (region.destination, masks.destination)] {
        match (given, mask) {
            (Some(Address::Suffix { value, .. }), _) => {
                parts.push(std::net::Ipv6Addr::from(value).to_string());
            }
            (Some(Address::Range(family, first, _)), Some(_)) => {
                parts.push(address(family, first).to_string());
            }
            (Some(range), None) => parts.push(range.to_string()),
            (None, _) => {}
        }
    }
    match region.detail {
        Detail::Any => {}
        Detail::Ports(first, last) if first == last => parts.push(first.to_string()),
        Detail::Ports(first, last) => parts.push(format!("{first}-{last}")),
        Detail::Icmp(kind, code) => {
            parts.push(kind.to_string());
            parts.extend(code.map(|code| code.to_string()));
        }
    }
    parts.join(" . ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(prefixes: &[&str]) -> Option<String> {
        let mask = common_mask(prefixes.iter().map(|text| text.parse().ok()));
        mask.map(|mask| mask.to_string())
    }

    #[test]
    fn prefixes_of_one_length_have_a_mask() {
        assert_eq!(mask(&["2001:db8::/64", "2001:db8:5::/64"]).as_deref(), Some("ffff:ffff:ffff:ffff::"));
        assert_eq!(mask(&["10.0.0.0/24", "192.0.2.0/24"]).as_deref(), Some("255.255.255.0"));
        assert_eq!(mask(&["0.0.0.0/0"]).as_deref(), Some("0.0.0.0"));
        for others in [
            &["2001:db8::/64", "2001:db8::/48"][..],
            &["2001:db8::-2001:db8::2"],
            &["10.0.0.0/24", "2001:db8::/120"],
            &["*::5"],
            &["10.0.0.1-10.0.0.2"],
        ] {
            assert_eq!(mask(others), None, "{others:?}");
        }
    }
}
