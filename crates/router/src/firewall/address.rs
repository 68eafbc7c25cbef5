//! Addresses that a rule is about.
//!
//! | written | is |
//! |---|---|
//! | `2001:db8::1`, `192.0.2.1` | one address |
//! | `2001:db8::/32`, `192.0.2.0/24` | a prefix |
//! | `2001:db8::1-2001:db8::ff` | a range, both ends in it |
//! | `*::10` | hosts whose last 64 bits are these, whatever prefix the provider gives |
//! | `*::10/48` | the same with another number of last bits |

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::IpNet;

/// IPv4 or IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// That of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Family::V4 } else { Family::V6 }
    }
}

/// A set of addresses of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Address {
    /// All from the first to the last, as numbers.
    Range(Family, u128, u128),
    /// IPv6 addresses that have the bits of the value where the mask has ones.
    Suffix {
        /// The bits.
        value: u128,
        /// Which bits count.
        mask: u128,
    },
}

/// Why a text names no addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// It is no address, prefix, range or suffix.
    #[error("neither an address, a prefix, a range nor a suffix")]
    Form,
    /// An address that nobody has (RFC 4291 section 2.5.5.1), and a suffix if it began with `*`.
    #[error("no host has this address; for hosts whose last bits these are write *{0}")]
    NoHost(Ipv6Addr),
    /// A prefix has bits behind its length.
    #[error("bits are set after the prefix length; write {0}")]
    HostBits(IpNet),
    /// A range ends before it begins, or in the other family.
    #[error("a range goes from a smaller to a larger address of one family")]
    Range,
    /// A suffix has bits before those that count, or counts none.
    #[error(
        "a suffix is an IPv6 address whose first bits are zero, like *::10; the last 1 to 127 bits count"
    )]
    Suffix,
}

/// An address as a number.
#[must_use]
pub fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

/// The number as an address of the family; an IPv4 address is made of its last 32 bits.
#[must_use]
pub fn address(family: Family, number: u128) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::from(u32::try_from(number & 0xffff_ffff).unwrap_or(0)).into(),
        Family::V6 => Ipv6Addr::from(number).into(),
    }
}

impl Address {
    /// Whether the address is one of them.
    #[must_use]
    pub fn contains(&self, candidate: IpAddr) -> bool {
        match *self {
            Address::Range(family, first, last) => {
                Family::of(candidate) == family && (first..=last).contains(&number(candidate))
            }
            Address::Suffix { value, mask } => candidate.is_ipv6() && number(candidate) & mask == value,
        }
    }

    /// Whether an address may be in both. Of a suffix and a range, that is said also where the range is too short for it
    /// to be certain.
    #[must_use]
    pub fn overlaps(&self, other: &Address) -> bool {
        match (*self, *other) {
            (Address::Range(family, first, last), Address::Range(other, other_first, other_last)) => {
                family == other && first <= other_last && other_first <= last
            }
            (Address::Suffix { value, mask }, Address::Suffix { value: other, mask: other_mask }) => {
                (value ^ other) & mask & other_mask == 0
            }
            (Address::Suffix { value, mask }, Address::Range(family, first, last))
            | (Address::Range(family, first, last), Address::Suffix { value, mask }) => {
                family == Family::V6 && (first != last || first & mask == value)
            }
        }
    }

    /// The family of its addresses.
    #[must_use]
    pub fn family(&self) -> Family {
        match self {
            Address::Range(family, ..) => *family,
            Address::Suffix { .. } => Family::V6,
        }
    }
}

impl From<IpNet> for Address {
    fn from(net: IpNet) -> Self {
        Address::Range(Family::of(net.addr()), number(net.network()), number(net.broadcast()))
    }
}

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Self {
        Address::Range(Family::of(address), number(address), number(address))
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Some(rest) = text.strip_prefix('*') {
            let (suffix, bits) = rest.split_once('/').unwrap_or((rest, "64"));
            let value: Ipv6Addr = suffix.parse().map_err(|_| AddressError::Suffix)?;
            let bits: u32 = bits.parse().map_err(|_| AddressError::Suffix)?;
            if !(1..=127).contains(&bits) || u128::from(value) >> bits != 0 {
                return Err(AddressError::Suffix);
            }
            return Ok(Address::Suffix { value: value.into(), mask: (1 << bits) - 1 });
        }
        if let Some((first, last)) = text.split_once('-') {
            let parse = |text: &str| text.trim().parse::<IpAddr>().map_err(|_| AddressError::Form);
            let (first, last) = (parse(first)?, parse(last)?);
            if Family::of(first) != Family::of(last) || first > last {
                return Err(AddressError::Range);
            }
            return [first, last]
                .into_iter()
                .try_for_each(is_of_a_host)
                .map(|()| Address::Range(Family::of(first), number(first), number(last)));
        }
        if let Ok(net) = text.parse::<IpNet>() {
            if net.trunc() != net {
                return Err(AddressError::HostBits(net.trunc()));
            }
            // Up to 64 bits it is of networks.
            return if net.prefix_len() > 64 { is_of_a_host(net.addr()) } else { Ok(()) }
                .map(|()| net.into());
        }
        let address = text.parse::<IpAddr>().map_err(|_| AddressError::Form)?;
        is_of_a_host(address).map(|()| address.into())
    }
}

/// No host has an address without a network; what is meant is the end of one, `*::443`.
fn is_of_a_host(address: IpAddr) -> Result<(), AddressError> {
    match address {
        IpAddr::V6(address) if address.to_bits() >> 64 == 0 && !address.is_unspecified() => {
            Err(AddressError::NoHost(address))
        }
        _ => Ok(()),
    }
}

/// As nft and [`FromStr`] write it: the shortest form.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Address::Range(family, first, last) => {
                let (low, high) = (address(family, first), address(family, last));
                let width = if family == Family::V4 { 32 } else { 128 };
                let host_bits = 128 - (first ^ last).leading_zeros();
                let ones = u128::MAX.checked_shr(128 - host_bits).unwrap_or(0);
                if first == last {
                    write!(f, "{low}")
                } else if first & ones == 0 && last & ones == ones {
                    write!(f, "{low}/{}", width - host_bits)
                } else {
                    write!(f, "{low}-{high}")
                }
            }
            Address::Suffix { value, mask } => {
                write!(f, "*{}/{}", Ipv6Addr::from(value), mask.count_ones())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn contains(set: &str, address: &str) -> bool {
        set.parse::<Address>().unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn a_suffix_follows_a_host_through_prefixes() {
        for address in ["2001:db8::10", "2001:db8:ffff:1::10", "fe80::10"] {
            assert!(contains("*::10", address));
        }
        assert!(!contains("*::10", "2001:db8::1:10"));
        assert!(contains("*::10/16", "2001:db8::1:10"));
        assert!(!contains("*::10", "0.0.0.16"));
    }

    #[test]
    fn ranges_and_prefixes_have_both_ends() {
        assert!(contains("10.0.0.1-10.0.0.3", "10.0.0.3") && !contains("10.0.0.1-10.0.0.3", "10.0.0.4"));
        assert!(contains("2001:db8::/32", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"));
        assert!(contains("::/0", "::1") && contains("0.0.0.0/0", "255.255.255.255"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, error) in [
            ("host", AddressError::Form),
            ("2001:db8::1/64", AddressError::HostBits("2001:db8::/64".parse().unwrap())),
            ("::443", AddressError::NoHost("::443".parse().unwrap())),
            ("::443/128", AddressError::NoHost("::443".parse().unwrap())),
            ("::443-::450", AddressError::NoHost("::443".parse().unwrap())),
            ("::21a:2bff:fe3c:4d5e", AddressError::NoHost("::21a:2bff:fe3c:4d5e".parse().unwrap())),
            ("::ffff:10.0.0.1", AddressError::NoHost("::ffff:10.0.0.1".parse().unwrap())),
            ("::2-::1", AddressError::Range),
            ("::1-10.0.0.1", AddressError::Range),
            ("*2001:db8::1", AddressError::Suffix),
            ("*::1/0", AddressError::Suffix),
            ("*::1/128", AddressError::Suffix),
        ] {
            assert_eq!(text.parse::<Address>(), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(first: u128, more in 0u128..1 << 20, v4: bool, bits in 0u32..=32) {
            let family = if v4 { Family::V4 } else { Family::V6 };
            let first = if v4 { first & 0xffff_ffff } else { first | 1 << 127 } >> bits << bits;
            let limit = if v4 { 0xffff_ffff } else { u128::MAX };
            let range = Address::Range(family, first, first.saturating_add(more).min(limit));
            prop_assert_eq!(range.to_string().parse(), Ok(range));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,40}|[*0-9a-f:./-]{0,40}") {
            let _ = text.parse::<Address>();
        }
    }
}
