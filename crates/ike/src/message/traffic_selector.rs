//! TSi and TSr (RFC 7296 §3.13), and what two ends have in common of them (§2.9).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use super::ParseError;

/// More selectors in a payload than any known implementation sends. It bounds the work of narrowing.
pub const MAX_SELECTORS: usize = 64;

/// Addresses, ports and a protocol that a child carries at one end.
///
/// Both addresses are of one IP version, and neither range is the wrong way round, except that the ports 65535 to 0 are
/// OPAQUE: packets whose ports cannot be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TrafficSelector {
    /// IP protocol; 0 is any.
    pub protocol: u8,
    /// First and last port.
    pub ports: (u16, u16),
    first: IpAddr,
    last: IpAddr,
}

const IPV4_RANGE: u8 = 7;
const IPV6_RANGE: u8 = 8;

impl TrafficSelector {
    /// Any IPv4 packet.
    pub const ANY_IPV4: Self = Self {
        protocol: 0,
        ports: (0, u16::MAX),
        first: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        last: IpAddr::V4(Ipv4Addr::BROADCAST),
    };
    /// Any IPv6 packet.
    pub const ANY_IPV6: Self = Self {
        protocol: 0,
        ports: (0, u16::MAX),
        first: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        last: IpAddr::V6(Ipv6Addr::new(0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff)),
    };

    /// Any packet of these addresses, unless they are of two versions or the wrong way round.
    pub fn range(addresses: RangeInclusive<IpAddr>) -> Option<Self> {
        let (first, last) = addresses.into_inner();
        let one_version = first.is_ipv4() == last.is_ipv4();
        (one_version && first <= last).then_some(Self { protocol: 0, ports: (0, u16::MAX), first, last })
    }

    /// Any packet of this address.
    pub fn host(address: IpAddr) -> Self {
        Self { protocol: 0, ports: (0, u16::MAX), first: address, last: address }
    }

    /// Any packet of this prefix, whose length is cut to what the IP version has.
    pub fn prefix(address: IpAddr, length: u8) -> Self {
        let (first, last) = match address {
            IpAddr::V4(v4) => {
                let hosts = u32::MAX.checked_shr(length.into()).unwrap_or(0);
                let bits = v4.to_bits();
                (Ipv4Addr::from_bits(bits & !hosts).into(), Ipv4Addr::from_bits(bits | hosts).into())
            }
            IpAddr::V6(v6) => {
                let hosts = u128::MAX.checked_shr(length.into()).unwrap_or(0);
                let bits = v6.to_bits();
                (Ipv6Addr::from_bits(bits & !hosts).into(), Ipv6Addr::from_bits(bits | hosts).into())
            }
        };
        Self { protocol: 0, ports: (0, u16::MAX), first, last }
    }

    /// The same addresses, for one protocol and its ports.
    pub fn of_protocol(self, protocol: u8, ports: RangeInclusive<u16>) -> Self {
        Self { protocol, ports: ports.into_inner(), ..self }
    }

    /// The same protocol and ports, of one address.
    pub fn at(self, address: IpAddr) -> Self {
        Self { first: address, last: address, ..self }
    }

    /// First and last address.
    pub fn addresses(&self) -> (IpAddr, IpAddr) {
        (self.first, self.last)
    }

    /// What both select, if there is anything.
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        if self.first.is_ipv4() != other.first.is_ipv4() {
            return None;
        }
        let protocol = match (self.protocol, other.protocol) {
            (0, protocol) | (protocol, 0) => protocol,
            (a, b) if a == b => a,
            _ => return None,
        };
        let (first, last) = (self.first.max(other.first), self.last.min(other.last));
        let ports = match (self.ports, other.ports) {
            // OPAQUE is within ANY, and within itself.
            (OPAQUE, OPAQUE | ANY_PORT) | (ANY_PORT, OPAQUE) => OPAQUE,
            (OPAQUE, _) | (_, OPAQUE) => return None,
            (a, b) => {
                let (first, last) = (a.0.max(b.0), a.1.min(b.1));
                if first > last {
                    return None;
                }
                (first, last)
            }
        };
        (first <= last).then_some(Self { protocol, ports, first, last })
    }

    /// Whether everything that `other` selects is selected here.
    pub fn contains(&self, other: &Self) -> bool {
        self.intersection(other) == Some(*other)
    }
}

const ANY_PORT: (u16, u16) = (0, u16::MAX);
const OPAQUE: (u16, u16) = (u16::MAX, 0);

/// What of the proposed selectors is allowed (RFC 7296 §2.9), in the order of the proposal; empty if nothing is.
pub fn narrow(proposed: &[TrafficSelector], allowed: &[TrafficSelector]) -> Vec<TrafficSelector> {
    let mut narrowed: Vec<TrafficSelector> = Vec::new();
    for common in proposed.iter().flat_map(|p| allowed.iter().filter_map(|a| p.intersection(a))) {
        if narrowed.len() < MAX_SELECTORS && !narrowed.iter().any(|wider| wider.contains(&common)) {
            narrowed.push(common);
        }
    }
    narrowed
}

/// Whether each selector of `narrowed` is within one of `proposed`, and there is one.
pub fn is_narrowed(narrowed: &[TrafficSelector], proposed: &[TrafficSelector]) -> bool {
    !narrowed.is_empty() && narrowed.iter().all(|n| proposed.iter().any(|p| p.contains(n)))
}

/// The selectors of a payload's body. Those of an unknown type are passed over.
pub fn parse(body: &[u8]) -> Result<Vec<TrafficSelector>, ParseError> {
    let [count, _, _, _, rest @ ..] = body else { return Err(ParseError::Truncated) };
    if usize::from(*count) > MAX_SELECTORS {
        return Err(ParseError::TooMany);
    }
    let (mut selectors, mut rest) = (Vec::new(), rest);
    for _ in 0..*count {
        let [kind, protocol, high, low, ..] = *rest else { return Err(ParseError::Truncated) };
        let length = usize::from(u16::from_be_bytes([high, low]));
        let (this, after) = rest.split_at_checked(length).ok_or(ParseError::Truncated)?;
        let this = this.get(4..).ok_or(ParseError::Malformed)?;
        rest = after;
        if !matches!(kind, IPV4_RANGE | IPV6_RANGE) {
            continue;
        }
        let [a, b, c, d, addresses @ ..] = this else { return Err(ParseError::Truncated) };
        let ports = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
        let (first, last) = addresses_of(kind, addresses).ok_or(ParseError::Malformed)?;
        if first > last || (ports.0 > ports.1 && ports != OPAQUE) {
            return Err(ParseError::Malformed);
        }
        selectors.push(TrafficSelector { protocol, ports, first, last });
    }
    if rest.is_empty() { Ok(selectors) } else { Err(ParseError::Malformed) }
}

fn addresses_of(kind: u8, bytes: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let (first, last) = bytes.split_at_checked(bytes.len() / 2)?;
    if kind == IPV4_RANGE {
        let octets = |bytes: &[u8]| Some(IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?));
        Some((octets(first)?, octets(last)?))
    } else {
        let octets = |bytes: &[u8]| Some(IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?));
        Some((octets(first)?, octets(last)?))
    }
}

/// Appends the body of a payload.
pub(crate) fn write(to: &mut Vec<u8>, selectors: &[TrafficSelector]) {
    to.extend([selectors.len() as u8, 0, 0, 0]);
    for selector in selectors {
        let (kind, length): (u8, u16) =
            if selector.first.is_ipv4() { (IPV4_RANGE, 16) } else { (IPV6_RANGE, 40) };
        to.extend([kind, selector.protocol]);
        to.extend(length.to_be_bytes());
        to.extend(selector.ports.0.to_be_bytes());
        to.extend(selector.ports.1.to_be_bytes());
        for address in [selector.first, selector.last] {
            match address {
                IpAddr::V4(v4) => to.extend(v4.octets()),
                IpAddr::V6(v6) => to.extend(v6.octets()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn prefix(text: &str, length: u8) -> TrafficSelector {
        TrafficSelector::prefix(text.parse().unwrap(), length)
    }

    #[test]
    fn what_both_allow_is_left_once_and_in_order() {
        let proposed = [prefix("192.0.2.7", 32), prefix("192.0.2.0", 24), TrafficSelector::ANY_IPV6];
        let allowed = [prefix("192.0.2.0", 25), prefix("2001:db8::", 32)];
        assert_eq!(
            narrow(&proposed, &allowed),
            [prefix("192.0.2.7", 32), prefix("192.0.2.0", 25), prefix("2001:db8::", 32)]
        );
        assert!(narrow(&proposed, &[prefix("198.51.100.0", 24)]).is_empty());
    }

    #[test]
    fn protocols_and_ports_narrow_too() {
        let any = prefix("2001:db8::", 32);
        let web = any.of_protocol(6, 443..=443);
        assert_eq!(any.intersection(&web), Some(web));
        assert_eq!(web.intersection(&any.of_protocol(17, 0..=65535)), None);
        assert_eq!(web.intersection(&any.of_protocol(6, 80..=80)), None);
        let opaque = TrafficSelector { ports: OPAQUE, ..any };
        assert_eq!(any.intersection(&opaque), Some(opaque));
        assert_eq!(web.intersection(&opaque), None);
    }

    #[test]
    fn the_ends_of_prefixes_are_in_them() {
        assert_eq!(prefix("192.0.2.9", 0), TrafficSelector::ANY_IPV4);
        assert_eq!(prefix("2001:db8::", 0), TrafficSelector::ANY_IPV6);
        assert_eq!(
            prefix("2001:db8::1", 64).addresses().1,
            "2001:db8::ffff:ffff:ffff:ffff".parse::<IpAddr>().unwrap()
        );
        assert_eq!(prefix("192.0.2.9", 200), TrafficSelector::host("192.0.2.9".parse().unwrap()));
    }

    fn selector() -> impl Strategy<Value = TrafficSelector> {
        let addresses = prop_oneof![
            (any::<Ipv4Addr>(), any::<Ipv4Addr>()).prop_map(|(a, b)| (IpAddr::V4(a), IpAddr::V4(b))),
            (any::<Ipv6Addr>(), any::<Ipv6Addr>()).prop_map(|(a, b)| (IpAddr::V6(a), IpAddr::V6(b))),
        ];
        (any::<u8>(), any::<u16>(), any::<u16>(), addresses).prop_map(|(protocol, a, b, (first, last))| {
            TrafficSelector {
                protocol,
                ports: (a.min(b), a.max(b)),
                first: first.min(last),
                last: first.max(last),
            }
        })
    }

    proptest! {
        #[test]
        fn selectors_come_back_as_they_were(selectors in proptest::collection::vec(selector(), 0..10)) {
            let mut body = Vec::new();
            write(&mut body, &selectors);
            prop_assert_eq!(parse(&body).unwrap(), selectors);
        }

        #[test]
        fn no_bytes_panic(body in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = parse(&body);
        }

        #[test]
        fn what_is_narrowed_is_within_both(
            proposed in proptest::collection::vec(selector(), 0..6),
            allowed in proptest::collection::vec(selector(), 0..6),
        ) {
            let narrowed = narrow(&proposed, &allowed);
            if !narrowed.is_empty() {
                prop_assert!(is_narrowed(&narrowed, &proposed) && is_narrowed(&narrowed, &allowed));
            }
        }
    }
}
