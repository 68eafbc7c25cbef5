//! A set of regions as a verdict map of nft, and the rule that looks a packet up in it.

use std::fmt::Write as _;

use crate::firewall::address::{Address, Family};
use crate::firewall::lookup::{DetailKind, Kind, Set, Shape};
use crate::firewall::model::Policy;
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
    let fields = fields(shape);
    let types: Vec<&str> = fields.iter().map(|field| field.1).collect();
    let keys: Vec<&str> = fields.iter().map(|field| field.0.as_str()).collect();
    let mut map = format!("\tmap {name} {{\n\t\ttype {} : verdict\n", types.join(" . "));
    if shape.has_ranges() {
        map += "\t\tflags interval\n";
    }
    map += "\t\tcounter\n\t\telements = {";
    for (index, entry) in set.entries().iter().enumerate() {
        let separator = if index == 0 { "" } else { "," };
        let _ = write!(map, "{separator}\n\t\t\t{}", key(shape, &entry.region));
        map += &element_comment(policy, entry.rule);
        let _ = write!(map, " : {}", verdict(policy, entry.rule));
    }
    map += "\n\t\t}\n\t}\n";
    (map, format!("\t\t{guard}{} vmap @{name}\n", keys.join(" . ")))
}

/// The fields that count: how a packet's is written, and its type.
fn fields(shape: &Shape) -> Vec<(String, &'static str)> {
    let mut fields = Vec::new();
    let is_icmp = matches!(shape.detail, DetailKind::Type | DetailKind::TypeAndCode);
    if shape.protocol && !is_icmp {
        fields.push(("meta l4proto".to_owned(), "inet_proto"));
    }
    let (version, of) = match shape.family {
        Some(Family::V4) => ("ip", "ipv4_addr"),
        _ => ("ip6", "ipv6_addr"),
    };
    for (name, kind) in [("saddr", shape.source), ("daddr", shape.destination)] {
        match kind {
            Kind::Any => {}
            Kind::One | Kind::Range => fields.push((format!("{version} {name}"), of)),
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

/// The element of a region of the shape.
fn key(shape: &Shape, region: &Region) -> String {
    let mut parts = Vec::new();
    if let (Some(protocol), Detail::Any | Detail::Ports(..)) = (region.protocol, region.detail) {
        parts.push(protocol.to_string());
    }
    for (address, kind) in [(region.source, shape.source), (region.destination, shape.destination)] {
        match (address, kind) {
            (Some(Address::Suffix { value, .. }), _) => {
                parts.push(std::net::Ipv6Addr::from(value).to_string());
            }
            (Some(address), _) => parts.push(address.to_string()),
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
