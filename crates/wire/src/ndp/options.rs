//! Options of the messages (RFC 4861 §4.6): link-layer addresses, prefixes, the MTU, routes (RFC 4191), DNS servers and
//! search domains (RFC 8106), the prefix of NAT64 (RFC 8781).

use std::net::Ipv6Addr;

use crate::ParseError;
use crate::bytes::{ipv6_at, u16_at, u32_at};
use crate::domain_name;
use crate::ethernet::MacAddress;

pub(super) const SOURCE_LINK_LAYER: u8 = 1;
pub(super) const TARGET_LINK_LAYER: u8 = 2;
const PREFIX_INFORMATION: u8 = 3;
pub(super) const MTU: u8 = 5;
/// RFC 3971 §5.3.2.
pub(super) const NONCE: u8 = 14;
const ROUTE_INFORMATION: u8 = 24;
const DNS_SERVERS: u8 = 25;
const SEARCH_DOMAINS: u8 = 31;
const NAT64_PREFIX: u8 = 38;

/// The unit of the lifetime of a NAT64 prefix, in seconds (RFC 8781 section 4).
const NAT64_UNIT: u16 = 8;
/// Prefix lengths of NAT64 in the order of their codes (RFC 8781 section 4).
const NAT64_LENGTHS: [u8; 6] = [96, 64, 56, 48, 40, 32];

/// Preference of a router or route (RFC 4191 section 2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Preference {
    /// Taken when there is no other.
    Low,
    /// As all that say nothing.
    #[default]
    Medium,
    /// Taken before others.
    High,
}

/// An option of a router advertisement. Lifetimes are in seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdvertisedOption {
    /// The router's link-layer address.
    SourceLinkLayer(MacAddress),
    /// The link's MTU.
    Mtu(u32),
    /// A prefix of the link.
    Prefix(PrefixInformation),
    /// A network that the router leads to.
    Route {
        /// The network.
        prefix: Ipv6Addr,
        /// Its length in bits, 128 at most.
        prefix_length: u8,
        /// Which router to take, of several.
        preference: Preference,
        /// How long; all ones: for ever; 0: not any more.
        lifetime: u32,
    },
    /// Recursive DNS servers.
    DnsServers {
        /// How long; 0: not any more.
        lifetime: u32,
        /// Their addresses.
        servers: Vec<Ipv6Addr>,
    },
    /// Domains in which names are looked up.
    SearchDomains {
        /// How long; 0: not any more.
        lifetime: u32,
        /// The domains, without the dot at the end.
        domains: Vec<String>,
    },
    /// The prefix behind which IPv4 is reached by translation.
    Nat64Prefix {
        /// The prefix.
        prefix: Ipv6Addr,
        /// Its length: 96, 64, 56, 48, 40 or 32.
        prefix_length: u8,
        /// How long; rounded up to a multiple of 8, 65,528 at most.
        lifetime: u16,
    },
}

/// A Prefix Information option (RFC 4861 §4.6.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefixInformation {
    /// The prefix; bits behind its length are whatever the router sent.
    pub prefix: Ipv6Addr,
    /// Its length in bits, possibly above 128 when the router is wrong.
    pub prefix_length: u8,
    /// Addresses of the prefix are on the link.
    pub on_link: bool,
    /// Hosts may make addresses of their own in it.
    pub autonomous: bool,
    /// Seconds that it stays valid; all ones: for ever.
    pub valid_lifetime: u32,
    /// Seconds that addresses in it stay preferred; all ones: for ever.
    pub preferred_lifetime: u32,
}

impl Preference {
    pub(super) fn bits(self) -> u8 {
        match self {
            Preference::Low => 0b11,
            Preference::Medium => 0b00,
            Preference::High => 0b01,
        }
    }

    /// The reserved value counts as medium, of a router (RFC 4191 section 2.2).
    pub(super) fn from_bits(bits: u8) -> Self {
        match bits & 0b11 {
            0b01 => Preference::High,
            0b11 => Preference::Low,
            _ => Preference::Medium,
        }
    }
}

impl PrefixInformation {
    /// From a whole option, if it is of this kind.
    pub(super) fn read(kind: u8, option: &[u8]) -> Option<Self> {
        (kind == PREFIX_INFORMATION && option.len() == 32).then(|| PrefixInformation {
            prefix_length: option[2],
            on_link: option[3] & 0x80 != 0,
            autonomous: option[3] & 0x40 != 0,
            valid_lifetime: u32_at(option, 4),
            preferred_lifetime: u32_at(option, 8),
            prefix: ipv6_at(option, 16),
        })
    }
}

/// Returns `bytes` if they are whole options, none of length 0 (RFC 4861 §4.6).
pub(super) fn checked_options(bytes: &[u8]) -> Result<&[u8], ParseError> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let [_, units, ..] = *rest else { return Err(ParseError::Truncated) };
        if units == 0 {
            return Err(ParseError::Length);
        }
        rest = rest.get(usize::from(units) * 8..).ok_or(ParseError::Truncated)?;
    }
    Ok(bytes)
}

/// Options as (type, whole option); ends at a malformed one.
#[derive(Clone, Copy)]
pub(super) struct Options<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Options<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let [kind, units @ 1..=255, ..] = *self.0 else { return None };
        let (option, rest) = self.0.split_at_checked(usize::from(units) * 8)?;
        self.0 = rest;
        Some((kind, option))
    }
}

/// The address in the first link-layer address option of that kind.
pub(super) fn link_layer(options: &[u8], kind: u8) -> Option<MacAddress> {
    let (_, option) = Options(options).find(|(found, option)| *found == kind && option.len() == 8)?;
    let [_, _, address @ ..] = option.first_chunk::<8>()?;
    Some(MacAddress(*address))
}

/// Appends an option, padded to a multiple of 8 octets. What does not fit into an option is left away: servers after
/// the 127th, domains behind the 2,032nd octet.
pub(super) fn write_option(out: &mut Vec<u8>, option: &AdvertisedOption) {
    let start = out.len();
    out.extend([0, 0]);
    let kind = match option {
        AdvertisedOption::SourceLinkLayer(mac) => {
            out.extend(mac.0);
            SOURCE_LINK_LAYER
        }
        AdvertisedOption::Mtu(mtu) => {
            out.extend([0, 0]);
            out.extend(mtu.to_be_bytes());
            MTU
        }
        AdvertisedOption::Prefix(information) => {
            let flags = u8::from(information.on_link) << 7 | u8::from(information.autonomous) << 6;
            out.extend([information.prefix_length, flags]);
            out.extend(information.valid_lifetime.to_be_bytes());
            out.extend(information.preferred_lifetime.to_be_bytes());
            out.extend([0; 4]);
            out.extend(information.prefix.octets());
            PREFIX_INFORMATION
        }
        AdvertisedOption::Route { prefix, prefix_length, preference, lifetime } => {
            out.extend([*prefix_length, preference.bits() << 3]);
            out.extend(lifetime.to_be_bytes());
            let octets = match prefix_length {
                0 => 0,
                1..=64 => 8,
                _ => 16,
            };
            out.extend(&prefix.octets()[..octets]);
            ROUTE_INFORMATION
        }
        AdvertisedOption::DnsServers { lifetime, servers } => {
            out.extend([0, 0]);
            out.extend(lifetime.to_be_bytes());
            out.extend(servers.iter().take(127).flat_map(Ipv6Addr::octets));
            DNS_SERVERS
        }
        AdvertisedOption::SearchDomains { lifetime, domains } => {
            out.extend([0, 0]);
            out.extend(lifetime.to_be_bytes());
            for domain in domains {
                let whole = out.len();
                domain_name::write(out, domain);
                if out.len() - start > 255 * 8 {
                    out.truncate(whole);
                    break;
                }
            }
            SEARCH_DOMAINS
        }
        AdvertisedOption::Nat64Prefix { prefix, prefix_length, lifetime } => {
            let code = NAT64_LENGTHS.iter().position(|length| length == prefix_length).unwrap_or(0);
            let units = lifetime.div_ceil(NAT64_UNIT).min(0x1fff);
            out.extend((units << 3 | code as u16).to_be_bytes());
            out.extend(&prefix.octets()[..12]);
            NAT64_PREFIX
        }
    };
    out.resize(start + (out.len() - start).next_multiple_of(8), 0);
    out[start] = kind;
    out[start + 1] = ((out.len() - start) / 8) as u8;
}

/// An option of this kind, if it is known here and well formed.
pub(super) fn read_option(kind: u8, option: &[u8]) -> Option<AdvertisedOption> {
    match (kind, option.len()) {
        (SOURCE_LINK_LAYER, 8) => {
            option[2..].first_chunk().map(|mac| AdvertisedOption::SourceLinkLayer(MacAddress(*mac)))
        }
        (MTU, 8) => Some(AdvertisedOption::Mtu(u32_at(option, 4))),
        (PREFIX_INFORMATION, 32) => PrefixInformation::read(kind, option).map(AdvertisedOption::Prefix),
        (ROUTE_INFORMATION, 8 | 16 | 24) => {
            let prefix_length = option[2];
            let mut octets = [0; 16];
            octets[..option.len() - 8].copy_from_slice(&option[8..]);
            let fits =
                prefix_length <= 128 && usize::from(prefix_length.div_ceil(64)) * 8 <= option.len() - 8;
            // Unlike of a router, a reserved preference is none that could be taken for another (RFC 4191 section 2.3).
            let is_reserved = option[3] >> 3 & 0b11 == 0b10;
            (fits && !is_reserved).then(|| AdvertisedOption::Route {
                prefix: octets.into(),
                prefix_length,
                preference: Preference::from_bits(option[3] >> 3),
                lifetime: u32_at(option, 4),
            })
        }
        // Nothing is left over (RFC 8106 section 5.3.1).
        (DNS_SERVERS, 24..) if (option.len() - 8).is_multiple_of(16) => Some(AdvertisedOption::DnsServers {
            lifetime: u32_at(option, 4),
            servers: (8..option.len()).step_by(16).map(|at| ipv6_at(option, at)).collect(),
        }),
        (SEARCH_DOMAINS, 16..) => Some(AdvertisedOption::SearchDomains {
            lifetime: u32_at(option, 4),
            domains: read_domains(&option[8..])?,
        }),
        (NAT64_PREFIX, 16) => {
            let scaled = u16_at(option, 2);
            let mut octets = [0; 16];
            octets[..12].copy_from_slice(&option[4..]);
            Some(AdvertisedOption::Nat64Prefix {
                prefix: octets.into(),
                prefix_length: *NAT64_LENGTHS.get(usize::from(scaled & 7))?,
                lifetime: (scaled >> 3) * NAT64_UNIT,
            })
        }
        _ => None,
    }
}

/// Names, padded with zeros.
fn read_domains(mut bytes: &[u8]) -> Option<Vec<String>> {
    let mut domains = Vec::new();
    while let [first, ..] = bytes
        && *first != 0
    {
        let (domain, rest) = domain_name::read(bytes)?;
        domains.push(domain);
        bytes = rest;
    }
    Some(domains)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(in crate::ndp) fn option() -> impl Strategy<Value = AdvertisedOption> {
        let address = || any::<[u8; 16]>().prop_map(Ipv6Addr::from);
        let domain =
            proptest::collection::vec("[a-z][a-z0-9-]{0,20}", 1..5).prop_map(|labels| labels.join("."));
        let preference = prop_oneof![Just(Preference::Low), Just(Preference::Medium), Just(Preference::High)];
        prop_oneof![
            any::<[u8; 6]>().prop_map(|mac| AdvertisedOption::SourceLinkLayer(MacAddress(mac))),
            any::<u32>().prop_map(AdvertisedOption::Mtu),
            (address(), 0..=128u8, any::<(bool, bool, u32, u32)>()).prop_map(
                |(prefix, prefix_length, (on_link, autonomous, valid_lifetime, preferred_lifetime))| {
                    AdvertisedOption::Prefix(PrefixInformation {
                        prefix,
                        prefix_length,
                        on_link,
                        autonomous,
                        valid_lifetime,
                        preferred_lifetime,
                    })
                }
            ),
            (address(), 0..=128u8, preference, any::<u32>()).prop_map(
                |(prefix, prefix_length, preference, lifetime)| {
                    let kept = u32::from(prefix_length).div_ceil(64) * 64;
                    let mask = u128::MAX.checked_shl(128 - kept).unwrap_or(0);
                    let prefix = Ipv6Addr::from_bits(prefix.to_bits() & mask);
                    AdvertisedOption::Route { prefix, prefix_length, preference, lifetime }
                }
            ),
            (any::<u32>(), proptest::collection::vec(address(), 1..10))
                .prop_map(|(lifetime, servers)| AdvertisedOption::DnsServers { lifetime, servers }),
            (any::<u32>(), proptest::collection::vec(domain, 1..6))
                .prop_map(|(lifetime, domains)| AdvertisedOption::SearchDomains { lifetime, domains }),
            (address(), proptest::sample::select(&NAT64_LENGTHS[..]), 0..=0x1fffu16).prop_map(
                |(prefix, prefix_length, units)| AdvertisedOption::Nat64Prefix {
                    prefix: Ipv6Addr::from_bits(prefix.to_bits() >> 32 << 32),
                    prefix_length,
                    lifetime: units * 8,
                }
            ),
        ]
    }

    proptest! {
        #[test]
        fn options_of_any_octets_are_read_or_left_out(kind: u8, mut bytes in proptest::collection::vec(any::<u8>(), 8..64)) {
            bytes.truncate(bytes.len() / 8 * 8);
            let _ = read_option(kind, &bytes);
        }
    }

    #[test]
    fn rfc_4191_2_3_a_route_of_the_reserved_preference_is_ignored() {
        let route = |bits: u8| {
            let option = [ROUTE_INFORMATION, 1, 0, bits << 3, 0, 0, 0, 60];
            match read_option(ROUTE_INFORMATION, &option) {
                Some(AdvertisedOption::Route { preference, .. }) => Some(preference),
                _ => None,
            }
        };
        let preferences = [Some(Preference::Medium), Some(Preference::High), None, Some(Preference::Low)];
        assert_eq!([0, 1, 2, 3].map(route), preferences);
    }

    #[test]
    fn rfc_8106_5_3_1_servers_of_which_something_is_left_over_are_discarded() {
        let read = |length| read_option(DNS_SERVERS, &vec![0; length]).is_some();
        assert_eq!([16, 24, 32, 40, 48].map(read), [false, true, false, true, false]);
    }

    #[test]
    fn many_domains_end_with_the_last_whole_one() {
        let domains = vec!["a-rather-long-name.example.net".to_owned(); 100];
        let mut out = Vec::new();
        write_option(&mut out, &AdvertisedOption::SearchDomains { lifetime: 1, domains });
        assert!(out.len() <= 255 * 8 && out.len() == usize::from(out[1]) * 8);
        assert!(read_option(SEARCH_DOMAINS, &out).is_some());
    }
}
