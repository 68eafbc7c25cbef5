//! Which of our addresses to send from, and which of several destinations to try first (RFC 6724): pure functions over
//! addresses, with the default policy table.

use std::cmp::Ordering;
use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

/// An address of ours, as far as the rules look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// The address.
    pub address: Ipv6Addr,
    /// Its prefix length, which ends the comparison of rule 8.
    pub prefix_length: u8,
    /// Its preferred lifetime is over (RFC 4862 §5.5.4).
    pub deprecated: bool,
    /// It is one that changes, for privacy (RFC 8981).
    pub temporary: bool,
    /// It is a home address of Mobile IPv6. A host without mobility says `true` of all.
    pub home: bool,
    /// It is of the interface that the packet leaves by.
    pub outgoing_interface: bool,
    /// Its prefix was advertised by the next hop in use (rule 5.5).
    pub of_next_hop: bool,
}

/// A scope (RFC 4291 §2.7, RFC 6724 §3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scope(u8);

impl Scope {
    /// Of the link.
    pub const LINK_LOCAL: Scope = Scope(2);
    /// Of the site.
    pub const SITE_LOCAL: Scope = Scope(5);
    /// Everywhere.
    pub const GLOBAL: Scope = Scope(14);

    /// The scope of an address. IPv4-mapped addresses have the scope of theirs (RFC 6724 §3.2).
    pub fn of(address: Ipv6Addr) -> Self {
        if address.is_multicast() {
            return Scope(address.octets()[1] & 0xf);
        }
        if let Some(ipv4) = address.to_ipv4_mapped() {
            let link_local = ipv4.is_link_local() || ipv4.is_loopback();
            return if link_local { Self::LINK_LOCAL } else { Self::GLOBAL };
        }
        // The loopback address counts as link-local.
        if address.is_unicast_link_local() || address.is_loopback() {
            return Self::LINK_LOCAL;
        }
        if address.segments()[0] & 0xffc0 == 0xfec0 { Self::SITE_LOCAL } else { Self::GLOBAL }
    }
}

/// Precedence and label of a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Which destinations go first.
    pub precedence: u8,
    /// Sources go with destinations of the same label.
    pub label: u8,
}

/// The default policy table (RFC 6724 §2.1), the longest prefixes first.
const POLICY_TABLE: [(Ipv6Net, Policy); 9] = [
    entry([0, 0, 0, 0, 0, 0, 0, 1], 128, 50, 0),
    entry([0, 0, 0, 0, 0, 0xffff, 0, 0], 96, 35, 4),
    entry([0, 0, 0, 0, 0, 0, 0, 0], 96, 1, 3),
    entry([0x2001, 0, 0, 0, 0, 0, 0, 0], 32, 5, 5),
    entry([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, 30, 2),
    entry([0x3ffe, 0, 0, 0, 0, 0, 0, 0], 16, 1, 12),
    entry([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, 1, 11),
    entry([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, 3, 13),
    entry([0, 0, 0, 0, 0, 0, 0, 0], 0, 40, 1),
];

const fn entry(segments: [u16; 8], length: u8, precedence: u8, label: u8) -> (Ipv6Net, Policy) {
    let [a, b, c, d, e, f, g, h] = segments;
    (Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), length), Policy { precedence, label })
}

/// The policy of an address: that of the longest prefix that holds it.
pub fn policy(address: Ipv6Addr) -> Policy {
    let found = POLICY_TABLE.iter().find(|(prefix, _)| prefix.contains(&address));
    found.map_or(Policy { precedence: 40, label: 1 }, |(_, policy)| *policy)
}

/// How many bits of both addresses are the same from the front.
fn common_prefix(a: Ipv6Addr, b: Ipv6Addr) -> u8 {
    (a.to_bits() ^ b.to_bits()).leading_zeros() as u8
}

/// The address to send to `destination` from (RFC 6724 §5). The first of equals is taken.
pub fn select(destination: Ipv6Addr, candidates: impl IntoIterator<Item = Candidate>) -> Option<Candidate> {
    candidates.into_iter().reduce(|best, other| {
        if compare(destination, &other, &best) == Ordering::Greater { other } else { best }
    })
}

/// `Greater` if `a` is the better source (RFC 6724 §5, rules 1 to 8).
fn compare(destination: Ipv6Addr, a: &Candidate, b: &Candidate) -> Ordering {
    let wanted = Scope::of(destination);
    let fits = |of: &Candidate| policy(of.address).label == policy(destination).label;
    let matching = |of: &Candidate| common_prefix(of.address, destination).min(of.prefix_length);
    (a.address == destination)
        .cmp(&(b.address == destination))
        .then_with(|| compare_scopes(wanted, Scope::of(a.address), Scope::of(b.address)))
        .then_with(|| b.deprecated.cmp(&a.deprecated))
        .then_with(|| a.home.cmp(&b.home))
        .then_with(|| a.outgoing_interface.cmp(&b.outgoing_interface))
        .then_with(|| a.of_next_hop.cmp(&b.of_next_hop))
        .then_with(|| fits(a).cmp(&fits(b)))
        .then_with(|| a.temporary.cmp(&b.temporary))
        .then_with(|| matching(a).cmp(&matching(b)))
}

/// Rule 2: the smallest scope that reaches the destination, or else the largest.
fn compare_scopes(wanted: Scope, a: Scope, b: Scope) -> Ordering {
    match a.cmp(&b) {
        Ordering::Less if a < wanted => Ordering::Less,
        Ordering::Less => Ordering::Greater,
        Ordering::Greater if b < wanted => Ordering::Greater,
        Ordering::Greater => Ordering::Less,
        Ordering::Equal => Ordering::Equal,
    }
}

/// A destination and the source that [`select`] has found for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination {
    /// The address.
    pub address: Ipv6Addr,
    /// Where it would be sent from; without one it comes last (rule 1).
    pub source: Option<Candidate>,
    /// Known not to be reachable.
    pub unreachable: bool,
    /// Reached through an encapsulating transition mechanism.
    pub encapsulated: bool,
}

/// Sorts destinations, the one to try first to the front (RFC 6724 §6). Equals stay in their order.
pub fn order(destinations: &mut [Destination]) {
    destinations.sort_by(|a, b| compare_destinations(b, a));
}

/// `Greater` if `a` is the better destination (RFC 6724 §6, rules 1 to 9).
fn compare_destinations(a: &Destination, b: &Destination) -> Ordering {
    let usable = |of: &Destination| of.source.is_some() && !of.unreachable;
    let by_source = |property: fn(&Destination, &Candidate) -> bool| {
        let holds = |of: &Destination| of.source.is_some_and(|source| property(of, &source));
        holds(a).cmp(&holds(b))
    };
    let matching = |of: &Destination| {
        of.source.map(|source| common_prefix(source.address, of.address).min(source.prefix_length))
    };
    usable(a)
        .cmp(&usable(b))
        .then_with(|| by_source(|of, source| Scope::of(of.address) == Scope::of(source.address)))
        .then_with(|| by_source(|_, source| !source.deprecated))
        .then_with(|| by_source(|_, source| source.home))
        .then_with(|| by_source(|of, source| policy(of.address).label == policy(source.address).label))
        .then_with(|| policy(a.address).precedence.cmp(&policy(b.address).precedence))
        .then_with(|| b.encapsulated.cmp(&a.encapsulated))
        .then_with(|| Scope::of(b.address).cmp(&Scope::of(a.address)))
        .then_with(|| match (a.address.to_ipv4_mapped(), b.address.to_ipv4_mapped()) {
            (None, None) => matching(a).cmp(&matching(b)),
            _ => Ordering::Equal,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    fn candidate(text: &str) -> Candidate {
        Candidate {
            address: address(text),
            prefix_length: 64,
            deprecated: false,
            temporary: false,
            home: true,
            outgoing_interface: true,
            of_next_hop: false,
        }
    }

    fn chosen(destination: &str, candidates: &[Candidate]) -> Ipv6Addr {
        // Whatever the order in which they are given.
        let backwards = select(address(destination), candidates.iter().rev().copied()).unwrap().address;
        assert_eq!(select(address(destination), candidates.iter().copied()).unwrap().address, backwards);
        backwards
    }

    /// The examples of RFC 6724 §10.1.
    #[test]
    fn rfc_6724_10_1_default_source_address_selection() {
        let deprecated = Candidate { deprecated: true, ..candidate("fe80::2") };
        let temporary = Candidate { temporary: true, ..candidate("2002:c633:6401::d5e3:7953:13eb:22e8") };
        let care_of = Candidate { home: false, ..candidate("2001:db8:1::2") };
        for (destination, candidates, expected) in [
            ("2001:db8:1::1", vec![candidate("2001:db8:3::1"), candidate("fe80::1")], "2001:db8:3::1"),
            ("ff05::1", vec![candidate("2001:db8:3::1"), candidate("fe80::1")], "2001:db8:3::1"),
            (
                "2001:db8:1::1",
                vec![
                    Candidate { deprecated: true, ..candidate("2001:db8:1::1") },
                    candidate("2001:db8:2::1"),
                ],
                "2001:db8:1::1",
            ),
            ("fe80::1", vec![deprecated, candidate("2001:db8:1::1")], "fe80::2"),
            ("2001:db8:1::1", vec![candidate("2001:db8:1::2"), candidate("2001:db8:3::2")], "2001:db8:1::2"),
            ("2001:db8:1::1", vec![care_of, candidate("2001:db8:3::2")], "2001:db8:3::2"),
            (
                "2002:c633:6401::1",
                vec![temporary, candidate("2001:db8:1::2")],
                "2002:c633:6401::d5e3:7953:13eb:22e8",
            ),
            (
                "2001:db8:1::d5e3:0:0:1",
                vec![
                    candidate("2001:db8:1::2"),
                    Candidate { temporary: true, ..candidate("2001:db8:1::d5e3:7953:13eb:22e8") },
                ],
                "2001:db8:1::d5e3:7953:13eb:22e8",
            ),
        ] {
            assert_eq!(chosen(destination, &candidates), address(expected), "to {destination}");
        }
    }

    #[test]
    fn rfc_6724_5_rules_5_and_5_5_prefer_the_interface_and_the_router_in_use() {
        let elsewhere = Candidate { outgoing_interface: false, ..candidate("2001:db8:1::2") };
        assert_eq!(
            chosen("2001:db8:1::1", &[elsewhere, candidate("2001:db8:9::2")]),
            address("2001:db8:9::2")
        );
        let of_router = Candidate { of_next_hop: true, ..candidate("2001:db8:9::2") };
        assert_eq!(
            chosen("2001:db8:1::1", &[candidate("2001:db8:1::2"), of_router]),
            address("2001:db8:9::2")
        );
    }

    fn sorted(pairs: &[(&str, &str)]) -> Vec<Ipv6Addr> {
        sorted_with(pairs, |_| {})
    }

    fn sorted_with(pairs: &[(&str, &str)], change: impl Fn(&mut Candidate)) -> Vec<Ipv6Addr> {
        let destination = |(destination, source): &(&str, &str)| Destination {
            address: address(destination),
            source: (!source.is_empty()).then(|| {
                let mut source = candidate(source);
                change(&mut source);
                source
            }),
            unreachable: false,
            encapsulated: false,
        };
        let mut destinations: Vec<_> = pairs.iter().map(destination).collect();
        order(&mut destinations);
        destinations.iter().map(|destination| destination.address).collect()
    }

    /// The examples of RFC 6724 §10.2; the pairs are destination and source.
    #[test]
    fn rfc_6724_10_2_default_destination_address_selection() {
        for (pairs, first) in [
            // Matching scope.
            (
                [("2001:db8:1::1", "2001:db8:1::2"), ("::ffff:198.51.100.121", "::ffff:169.254.13.78")],
                "2001:db8:1::1",
            ),
            (
                [("2001:db8:1::1", "fe80::1"), ("::ffff:198.51.100.121", "::ffff:198.51.100.117")],
                "::ffff:198.51.100.121",
            ),
            // Higher precedence.
            ([("2001:db8:1::1", "2001:db8:1::2"), ("::ffff:10.1.2.3", "::ffff:10.1.2.4")], "2001:db8:1::1"),
            // Smaller scope.
            ([("2001:db8:1::1", "2001:db8:1::2"), ("fe80::1", "fe80::2")], "fe80::1"),
            // Longest matching prefix.
            ([("2001:db8:1::1", "2001:db8:1::2"), ("2001:db8:3ffe::1", "2001:db8:3f44::2")], "2001:db8:1::1"),
            // Matching label.
            (
                [("2002:c633:6401::1", "2002:c633:6401::2"), ("2001:db8:1::1", "2002:c633:6401::2")],
                "2002:c633:6401::1",
            ),
            // Higher precedence.
            (
                [("2002:c633:6401::1", "2002:c633:6401::2"), ("2001:db8:1::1", "2001:db8:1::2")],
                "2001:db8:1::1",
            ),
        ] {
            assert_eq!(sorted(&pairs)[0], address(first), "{pairs:?}");
            assert_eq!(sorted(&[pairs[1], pairs[0]])[0], address(first), "{pairs:?}");
        }
        let pairs = [("2001:db8:1::1", "2001:db8:1::2"), ("fe80::1", "fe80::2")];
        let deprecated =
            sorted_with(&pairs, |source| source.deprecated = source.address == address("fe80::2"));
        assert_eq!(deprecated[0], address("2001:db8:1::1"), "deprecated addresses are avoided");
    }

    #[test]
    fn rfc_6724_10_2_a_home_address_is_preferred() {
        let pairs = [("2001:db8:1::1", "2001:db8:3::1"), ("fe80::1", "fe80::2")];
        let care_of = sorted_with(&pairs, |source| source.home = source.address == address("2001:db8:3::1"));
        assert_eq!(care_of[0], address("2001:db8:1::1"));
    }

    #[test]
    fn rfc_6724_6_rule_1_destinations_without_a_source_come_last() {
        assert_eq!(sorted(&[("2001:db8::1", ""), ("fd00::1", "fd00::2")])[0], address("fd00::1"));
    }

    #[test]
    fn scopes() {
        for (text, scope) in [
            ("fe80::1", Scope::LINK_LOCAL),
            ("::1", Scope::LINK_LOCAL),
            ("fec0::1", Scope::SITE_LOCAL),
            ("ff05::1", Scope::SITE_LOCAL),
            ("fd00::1", Scope::GLOBAL),
            ("::ffff:127.0.0.1", Scope::LINK_LOCAL),
            ("::ffff:10.0.0.1", Scope::GLOBAL),
        ] {
            assert_eq!(Scope::of(address(text)), scope, "{text}");
        }
    }

    proptest! {
        #[test]
        fn the_order_is_total_whatever_the_addresses(octets in proptest::collection::vec(any::<[u8; 16]>(), 0..20), flags: u32) {
            let mut destinations: Vec<_> = octets.iter().enumerate().map(|(index, octets)| Destination {
                address: Ipv6Addr::from(*octets),
                source: (flags >> index & 1 == 0).then(|| candidate("2001:db8::1")),
                unreachable: flags >> (index + 3) & 3 == 0,
                encapsulated: false,
            }).collect();
            order(&mut destinations);
        }
    }
}
