//! The name by which hosts find the prefix of a translator (RFC 7050): it has addresses of IPv4 alone, which everybody knows,
//! so that addresses of IPv6 for it are made by a translator's DNS64, and say where it finds IPv4.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::Ipv6Net;

use super::prefix::{LENGTHS, Prefix};

/// The name, and its addresses (RFC 7050 section 2.2). Who resolves names for others answers for it without asking (RFC 8880
/// section 7.1).
pub const IPV4_ONLY: (&str, [Ipv4Addr; 2]) =
    ("ipv4only.arpa", [Ipv4Addr::new(192, 0, 0, 170), Ipv4Addr::new(192, 0, 0, 171)]);

/// The prefixes that addresses of that name say, each once, in their order (RFC 7050 section 3).
#[must_use]
pub fn prefixes(addresses: &[Ipv6Addr]) -> Vec<Prefix> {
    let mut found = Vec::new();
    for prefix in addresses.iter().filter_map(|address| prefix_in(*address)) {
        if !found.contains(&prefix) {
            found.push(prefix);
        }
    }
    found
}

/// The prefix that is in front of one of the name's addresses. It can be that this address is a part of the prefix as well: the
/// one behind which there is nothing is meant. Where there is more behind each, it is not known.
fn prefix_in(address: Ipv6Addr) -> Option<Prefix> {
    // Bits 64 to 71 are skipped, and zero.
    if address.octets()[8] != 0 {
        return None;
    }
    let in_front = |length| {
        let prefix = Prefix::new(Ipv6Net::new_assert(address, length)).ok()?;
        IPV4_ONLY.1.contains(&prefix.extract(address)).then_some(prefix)
    };
    let places: Vec<Prefix> = LENGTHS.into_iter().filter_map(in_front).collect();
    let whole = places.iter().find(|prefix| prefix.embed(prefix.extract(address)) == address);
    match places[..] {
        [only] => Some(only),
        _ => whole.copied(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::prefix::tests::any_prefix;
    use super::*;

    fn found(addresses: &[&str]) -> Vec<String> {
        let addresses: Vec<Ipv6Addr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        prefixes(&addresses).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn prefixes_of_all_records_are_found_each_once() {
        assert_eq!(found(&["64:ff9b::c000:aa", "64:ff9b::c000:ab"]), ["64:ff9b::/96"]);
        assert_eq!(
            found(&["2001:db8:1:2:c0:0:aa00:0", "64:ff9b::c000:ab", "2001:db8:43:c000:0:ab00::"]),
            ["2001:db8:1:2::/64", "64:ff9b::/96", "2001:db8:43::/48"]
        );
        assert_eq!(found(&[]), [""; 0]);
    }

    #[test]
    fn what_tells_no_prefix_is_passed_over() {
        // Of somebody who has addresses for all names; the addresses themselves; the reserved bits.
        let none = [
            "2001:db8::1",
            "::192.0.0.170",
            "::ffff:192.0.0.170",
            "2001:db8:1:2:ffc0:0:aa00:0",
            "fe80::c000:aa",
        ];
        assert_eq!(found(&none), [""; 0]);
        assert_eq!(found(&[&none[..], &["64:ff9b::c000:aa"]].concat()), ["64:ff9b::/96"]);
    }

    #[test]
    fn a_prefix_that_has_one_of_the_addresses_in_it_is_told_all_the_same() {
        // 192.0.0.170 is behind the first 32 bits, too.
        assert_eq!(found(&["2001:db8:c000:aa::c000:ab"]), ["2001:db8:c000:aa::/96"]);
        assert_eq!(found(&["2001:db8:c000:aa::c000:aa"]), ["2001:db8:c000:aa::/96"]);
        // Of those who write something behind it, the one place there is.
        assert_eq!(found(&["2001:db8:1:2:c0:0:aa00:1"]), ["2001:db8:1:2::/64"]);
        assert_eq!(found(&["2001:db8:c000:aa:c0:0:aa00:1"]), [""; 0]);
    }

    proptest! {
        /// Whatever the prefix, each record of its DNS64 tells it, and no other.
        #[test]
        fn every_prefix_is_found(prefix in any_prefix()) {
            for record in IPV4_ONLY.1.map(|address| prefix.embed(address)) {
                prop_assert_eq!(prefixes(&[record]), [prefix]);
            }
        }

        #[test]
        fn what_is_found_is_in_the_record(bits: [u128; 4], place in 0usize..6) {
            let shift = [64, 56, 48, 40, 24, 0][place];
            let addresses = bits.map(|bits| Ipv6Addr::from_bits(bits & !(0xffff_ffff << shift) | 0xc000_00aa << shift));
            for prefix in prefixes(&addresses) {
                let holds = |address: &Ipv6Addr| {
                    prefix.net().contains(address) && IPV4_ONLY.1.contains(&prefix.extract(*address))
                };
                prop_assert!(addresses.iter().any(holds));
            }
        }
    }
}
