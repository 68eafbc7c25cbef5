//! Prefixes that have an IPv4 address in them: 6to4 (RFC 3056) and 6rd (RFC 5969); which addresses are a single host's.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

/// Where everybody's prefix is made of a common one and their IPv4 address. 6to4 is the domain `2002::/16` with all of
/// the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// The common prefix.
    pub prefix: Ipv6Net,
    /// How many leading bits of the IPv4 addresses are the same in the domain, and left out (`IPv4MaskLen`).
    pub ipv4_mask: u8,
    /// Who leads to addresses beyond the domain. 6to4 has none as a rule (RFC 7526).
    pub relay: Option<Ipv4Addr>,
}

/// The route of an uplink that leads to the other ends of its domain alone, and not to the Internet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DomainRoute {
    /// The prefix that all of them have in common.
    pub prefix: Ipv6Net,
    /// Whether packets of any source go there: those of a relay. Otherwise those of the uplink's own prefixes.
    pub any_source: bool,
}

const SIX_TO_FOUR: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16);

/// What no 6to4 prefix is made of (RFC 3964 section 5, RFC 6890): addresses that are not unique in the Internet, and the
/// relays' own. What is never a host is refused in any domain.
const NOT_PUBLIC: [Ipv4Net; 8] = [
    Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 8),
    Ipv4Net::new_assert(Ipv4Addr::new(100, 64, 0, 0), 10),
    Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 0, 0), 16),
    Ipv4Net::new_assert(Ipv4Addr::new(172, 16, 0, 0), 12),
    Ipv4Net::new_assert(Ipv4Addr::new(192, 0, 0, 0), 24),
    Ipv4Net::new_assert(Ipv4Addr::new(192, 88, 99, 0), 24),
    Ipv4Net::new_assert(Ipv4Addr::new(192, 168, 0, 0), 16),
    Ipv4Net::new_assert(Ipv4Addr::new(198, 18, 0, 0), 15),
];

impl Domain {
    /// The domain of 6to4.
    #[must_use]
    pub fn six_to_four(relay: Option<Ipv4Addr>) -> Self {
        Domain { prefix: SIX_TO_FOUR, ipv4_mask: 0, relay }
    }

    /// A domain of 6rd; none if the prefixes in it would be longer than /64.
    #[must_use]
    pub fn six_rd(prefix: Ipv6Net, ipv4_mask: u8, relay: Ipv4Addr) -> Option<Self> {
        let domain = Domain { prefix: prefix.trunc(), ipv4_mask, relay: Some(relay) };
        (ipv4_mask < 32 && domain.delegated_length() <= 64).then_some(domain)
    }

    /// Whether it is that of 6to4.
    #[must_use]
    pub fn is_6to4(&self) -> bool {
        self.prefix == SIX_TO_FOUR
    }

    /// How long the prefix is that each end has.
    #[must_use]
    pub fn delegated_length(&self) -> u8 {
        self.prefix.prefix_len() + self.ipv4_bits()
    }

    /// How many bits of an IPv4 address are in a prefix.
    #[must_use]
    pub fn ipv4_bits(&self) -> u8 {
        32 - self.ipv4_mask
    }

    /// The prefix of the end with this address (RFC 5969 section 4, RFC 3056 section 2); none where it can have none.
    #[must_use]
    pub fn delegated(&self, local: Ipv4Addr) -> Option<Ipv6Net> {
        let low = u64::from(local.to_bits()) & self.low_bits();
        let bits = self.prefix.network().to_bits() | u128::from(low) << (128 - self.delegated_length());
        let prefix = Ipv6Net::new(Ipv6Addr::from_bits(bits), self.delegated_length()).ok()?;
        self.is_usable(local).then_some(prefix)
    }

    /// Whose address is in this one: the leading bits are those of `local`. None if it is not of the domain.
    #[must_use]
    pub fn embedded(&self, address: Ipv6Addr, local: Ipv4Addr) -> Option<Ipv4Addr> {
        let low = (address.to_bits() >> (128 - self.delegated_length())) as u64 & self.low_bits();
        let high = u64::from(local.to_bits()) & !self.low_bits();
        self.prefix.contains(&address).then(|| Ipv4Addr::from_bits((high | low) as u32))
    }

    /// Whether an end may have this address.
    #[must_use]
    pub fn is_usable(&self, address: Ipv4Addr) -> bool {
        is_single_host_ipv4(address)
            && !(self.is_6to4() && NOT_PUBLIC.iter().any(|net| net.contains(&address)))
    }

    /// Addresses that no end has, beside those that are never hosts.
    #[must_use]
    pub fn unusable(&self) -> &'static [Ipv4Net] {
        if self.is_6to4() { &NOT_PUBLIC } else { &[] }
    }

    fn low_bits(&self) -> u64 {
        (1 << self.ipv4_bits()) - 1
    }
}

/// Whether an address of IPv6 can be that of one host somewhere: not one of `::/64`, which has the unspecified, the
/// loopback, and the IPv4-mapped and -compatible addresses, and no group.
pub(super) fn is_single_host(address: Ipv6Addr) -> bool {
    address.to_bits() >> 64 != 0 && !address.is_multicast()
}

/// The same for IPv4: not of this network, loopback, group, or reserved.
pub(super) fn is_single_host_ipv4(address: Ipv4Addr) -> bool {
    !matches!(address.octets()[0], 0 | 127 | 224..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
        text.parse().unwrap()
    }

    #[test]
    fn prefixes_of_rfc_3056_and_rfc_5969() {
        let delegated = |domain: &Domain, local| domain.delegated(address(local)).map(|net| net.to_string());
        let six_to_four = Domain::six_to_four(None);
        assert_eq!(delegated(&six_to_four, "192.0.2.1").as_deref(), Some("2002:c000:201::/48"));
        // RFC 5969 section 7.1.1: 10.100.100.1, IPv4MaskLen 8, 2001:db8::/32.
        let six_rd = Domain::six_rd(address("2001:db8::/32"), 8, address("10.0.0.1")).unwrap();
        assert_eq!(delegated(&six_rd, "10.100.100.1").as_deref(), Some("2001:db8:6464:100::/56"));
        let whole = Domain::six_rd(address("2001:db8::/32"), 0, address("10.0.0.1")).unwrap();
        assert_eq!(delegated(&whole, "192.0.2.9").as_deref(), Some("2001:db8:c000:209::/64"));
        assert_eq!(Domain::six_rd(address("2001:db8::/33"), 0, address("10.0.0.1")), None);
        assert_eq!(Domain::six_rd(address("2001:db8::/32"), 32, address("10.0.0.1")), None);
    }

    #[test]
    fn no_6to4_prefix_of_an_address_that_is_not_unique() {
        let six_to_four = Domain::six_to_four(None);
        for local in [
            "10.1.2.3",
            "172.31.0.1",
            "192.168.1.1",
            "169.254.9.9",
            "100.64.0.1",
            "127.0.0.1",
            "224.0.0.1",
            "0.0.0.0",
        ] {
            assert_eq!(six_to_four.delegated(address(local)), None, "{local}");
        }
    }

    proptest! {
        #[test]
        fn the_address_that_a_prefix_is_made_of_is_found_in_it(
            prefix: u128, length in 1u8..=63, mask in 0u8..32, local: u32, host: u128,
        ) {
            let net = Ipv6Net::new(Ipv6Addr::from_bits(prefix), length).unwrap();
            let Some(domain) = Domain::six_rd(net, mask, Ipv4Addr::BROADCAST) else { return Ok(()) };
            let local = Ipv4Addr::from_bits(local);
            let Some(delegated) = domain.delegated(local) else { return Ok(()) };
            prop_assert!(net.contains(&delegated));
            let host = delegated.network().to_bits() | host & delegated.hostmask().to_bits();
            prop_assert_eq!(domain.embedded(Ipv6Addr::from_bits(host), local), Some(local));
        }
    }
}
