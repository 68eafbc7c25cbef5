//! Prefixes of translators, and where an IPv4 address is in them (RFC 6052 section 2.2).

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::Ipv6Net;

/// The lengths that a prefix can have.
pub const LENGTHS: [u8; 6] = [32, 40, 48, 56, 64, 96];

/// Where a translator finds IPv4 addresses: a prefix of one of [`LENGTHS`], whose bits 64 to 71 are zero, as they are in all
/// addresses that are made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix(Ipv6Net);

/// Why something is no translator's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPrefix {
    /// It has none of the [`LENGTHS`].
    Length,
    /// Bits 64 to 71 are not zero.
    ReservedBits,
    /// Such addresses mean something else: they stay on a link, are groups', or IPv4 addresses written as those of IPv6.
    OtherUse,
}

impl Prefix {
    /// The prefix that needs no agreement (RFC 6052 section 2.1).
    pub const WELL_KNOWN: Self = Self(Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96));

    /// A network as a prefix; bits behind its length do not matter.
    ///
    /// # Errors
    /// If no translator can have it.
    pub fn new(net: Ipv6Net) -> Result<Self, NoPrefix> {
        let net = net.trunc();
        let first = net.network();
        if !LENGTHS.contains(&net.prefix_len()) {
            return Err(NoPrefix::Length);
        }
        if first.octets()[8] != 0 {
            return Err(NoPrefix::ReservedBits);
        }
        let starts_empty = first.to_bits() >> 64 == 0;
        if starts_empty || first.is_multicast() || first.is_unicast_link_local() {
            return Err(NoPrefix::OtherUse);
        }
        Ok(Self(net))
    }

    /// As a network.
    #[must_use]
    pub const fn net(self) -> Ipv6Net {
        self.0
    }

    /// How an IPv4 address is seen by hosts of IPv6.
    #[must_use]
    pub fn embed(self, address: Ipv4Addr) -> Ipv6Addr {
        let Layout { prefix, mask, left, right } = self.layout();
        let number = u64::from(address.to_bits());
        let halves = (u128::from(number >> left) << 64) | u128::from(number << right);
        Ipv6Addr::from_bits(prefix | (halves & mask))
    }

    /// The IPv4 address that is at its place in an address, whatever else that is.
    #[must_use]
    pub fn extract(self, address: Ipv6Addr) -> Ipv4Addr {
        let Layout { mask, left, right, .. } = self.layout();
        let number = address.to_bits() & mask;
        let [upper, lower] = [(number >> 64) as u64, number as u64];
        Ipv4Addr::from_bits(((upper << left) | (lower >> right)) as u32)
    }

    /// Whether an address is one that an IPv4 address has in this prefix: nothing stands beside that.
    #[must_use]
    pub fn has(self, address: Ipv6Addr) -> bool {
        self.embed(self.extract(address)) == address
    }

    /// Where the bits are, for who moves them.
    #[must_use]
    pub fn layout(self) -> Layout {
        // How many bits are in front of the octet that is skipped.
        let front = 64 - u32::from(self.0.prefix_len()).min(64);
        let (mask, right) = match self.0.prefix_len() {
            96 => (u128::from(u32::MAX), 0),
            _ => ((((1 << front) - 1) << 64) | ((1 << 56) - (1 << (24 + front))), 24 + front),
        };
        Layout { prefix: self.0.network().to_bits(), mask, left: 32 - front, right }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The bits of an address that is made of a [`Prefix`]: some of the IPv4 address are in its upper half, and the rest is in
/// the lower half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The first address. All bits that are not in `mask` are as here.
    pub prefix: u128,
    /// The bits that are the IPv4 address.
    pub mask: u128,
    /// How many bits the upper half's part has to go to the left to be where it is in the IPv4 address.
    pub left: u32,
    /// How many bits the lower half's part has to go to the right.
    pub right: u32,
}

#[cfg(test)]
pub(in crate::nat64) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 6052 section 2.4: prefixes, and how 192.0.2.33 is seen in them.
    const VECTORS: [(&str, &str); 7] = [
        ("2001:db8::/32", "2001:db8:c000:221::"),
        ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
        ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
        ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
        ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
        ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
        ("64:ff9b::/96", "64:ff9b::192.0.2.33"),
    ];

    fn of(text: &str) -> Result<Prefix, NoPrefix> {
        Prefix::new(text.parse().unwrap())
    }

    pub(in crate::nat64) fn any_prefix() -> impl Strategy<Value = Prefix> {
        (any::<u128>(), proptest::sample::select(&LENGTHS[..])).prop_filter_map(
            "no prefix",
            |(bits, length)| {
                let bits = bits & !(0xff << 56);
                Prefix::new(Ipv6Net::new_assert(bits.into(), length)).ok()
            },
        )
    }

    #[test]
    fn addresses_are_those_of_the_rfc() {
        let address = Ipv4Addr::new(192, 0, 2, 33);
        for (prefix, expected) in VECTORS {
            let (prefix, expected) = (of(prefix).unwrap(), expected.parse().unwrap());
            assert_eq!(prefix.embed(address), expected, "{prefix}");
            assert_eq!(prefix.extract(expected), address, "{prefix}");
        }
        assert_eq!(of("64:ff9b::/96"), Ok(Prefix::WELL_KNOWN));
    }

    #[test]
    fn what_no_translator_can_have_is_refused() {
        for length in (0..=128).filter(|length| !LENGTHS.contains(length)) {
            assert_eq!(of(&format!("2001:db8::/{length}")), Err(NoPrefix::Length), "{length}");
        }
        assert_eq!(of("2001:db8::ff00:0:0:0/96"), Err(NoPrefix::ReservedBits));
        // Behind the length nothing matters.
        assert!(of("2001:db8::ff00:0:0:0/64").is_ok());
        for other in ["::/96", "::ffff:0:0/96", "::/32", "fe80::/64", "ff02::/96"] {
            assert_eq!(of(other), Err(NoPrefix::OtherUse), "{other}");
        }
    }

    proptest! {
        #[test]
        fn what_is_embedded_is_found_again(prefix in any_prefix(), bits: u32) {
            let address = Ipv4Addr::from_bits(bits);
            let embedded = prefix.embed(address);
            prop_assert!(prefix.net().contains(&embedded));
            prop_assert_eq!(prefix.extract(embedded), address);
            prop_assert_eq!(embedded.octets()[8], 0, "bits 64 to 71");
            prop_assert_eq!(embedded.to_bits() & !prefix.layout().mask, prefix.net().network().to_bits());
            prop_assert_eq!(prefix.layout().mask.count_ones(), 32);
        }

        #[test]
        fn addresses_are_in_the_order_of_those_of_ipv4(prefix in any_prefix(), a: u32, b: u32) {
            let [one, other] = [a, b].map(|bits| prefix.embed(Ipv4Addr::from_bits(bits)));
            prop_assert_eq!(one.cmp(&other), a.cmp(&b));
        }
    }
}
