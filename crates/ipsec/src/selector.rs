//! Selectors (RFC 4301 §4.4.1.1): which packets a policy or an association is for.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use ipnet::IpNet;
use wire::{ParseError, flow, icmpv4, icmpv6, ipv4, ipv6, protocol};

/// What follows the IP headers, as far as a selector asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Upper {
    /// Anything, fragments included.
    Any,
    /// One protocol.
    Protocol(u8),
    /// One protocol with ports.
    Ports {
        /// TCP, UDP or another with ports where these have them.
        protocol: u8,
        /// Source ports.
        source: RangeInclusive<u16>,
        /// Destination ports.
        destination: RangeInclusive<u16>,
    },
    /// ICMP of IPv4 or IPv6: from the first code of the first type to the last code of the last type, with all that is
    /// between, as RFC 4301 §4.4.1.1 compares them.
    Icmp {
        /// [`protocol::ICMPV4`] or [`protocol::ICMPV6`].
        protocol: u8,
        /// Message types.
        types: RangeInclusive<u8>,
        /// The code that the first type begins with, and that which the last one ends with.
        codes: RangeInclusive<u8>,
    },
}

/// Which packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// Where they come from.
    pub source: IpNet,
    /// Where they go.
    pub destination: IpNet,
    /// What is in them.
    pub upper: Upper,
}

impl Selector {
    /// All packets between two networks.
    pub fn between(source: IpNet, destination: IpNet) -> Self {
        Self { source, destination, upper: Upper::Any }
    }

    /// Whether these are such packets. A port that cannot be seen is in no range (OPAQUE, RFC 4301 §4.4.1.1), except in
    /// that of all ports.
    pub fn matches(&self, traffic: &Traffic) -> bool {
        self.selects(traffic, false)
    }

    /// Whether these may be such packets: as [`matches`](Self::matches), but a port that cannot be seen is in each range.
    /// For what must not pass unprotected: a fragment without ports may be one of a packet that must not.
    pub fn may_match(&self, traffic: &Traffic) -> bool {
        self.selects(traffic, true)
    }

    fn selects(&self, traffic: &Traffic, opaque_is_any: bool) -> bool {
        let upper = match &self.upper {
            Upper::Any => true,
            Upper::Protocol(protocol) => *protocol == traffic.protocol,
            Upper::Ports { protocol, source, destination } => {
                *protocol == traffic.protocol
                    && match traffic.detail {
                        Detail::Ports { source: from, destination: to } => {
                            source.contains(&from) && destination.contains(&to)
                        }
                        _ => opaque_is_any || *source == (0..=u16::MAX) && *destination == (0..=u16::MAX),
                    }
            }
            Upper::Icmp { protocol, types, codes } => {
                *protocol == traffic.protocol
                    && match traffic.detail {
                        Detail::Icmp { message_type, code } => {
                            let first = (*types.start(), *codes.start());
                            let last = (*types.end(), *codes.end());
                            (first..=last).contains(&(message_type, code))
                        }
                        _ => opaque_is_any || *types == (0..=u8::MAX) && *codes == (0..=u8::MAX),
                    }
            }
        };
        upper && self.source.contains(&traffic.source) && self.destination.contains(&traffic.destination)
    }
}

/// What of a packet selectors look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Traffic {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Upper-layer protocol.
    pub protocol: u8,
    /// Its ports, or type and code.
    pub detail: Detail,
}

/// What tells packets of one protocol apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Detail {
    /// It cannot be seen: a fragment, another protocol, or cut off.
    Opaque,
    /// TCP, UDP and others with ports in the same place.
    Ports {
        /// Source port.
        source: u16,
        /// Destination port.
        destination: u16,
    },
    /// ICMP.
    Icmp {
        /// Message type.
        message_type: u8,
        /// Code.
        code: u8,
    },
}

/// Protocols whose header begins with the ports: TCP, UDP, DCCP, SCTP, UDP-Lite.
const WITH_PORTS: [u8; 5] = [protocol::TCP, protocol::UDP, 33, 132, 136];

impl Traffic {
    /// That of a packet.
    ///
    /// # Errors
    /// [`ParseError`] when it is no IP packet.
    pub fn of(packet: &[u8]) -> Result<Self, ParseError> {
        let (source, destination) = flow::addresses(packet)?;
        let (protocol, upper) = upper(packet)?;
        Ok(Self::of_upper(source, destination, protocol, upper))
    }

    /// What an ICMP error answers, on its way back: an association that would carry that carries the error, too, whichever
    /// router it comes from (RFC 4301 §6.2). `None` for what is no error, or goes to another than the sender of what it
    /// quotes.
    pub fn of_return(packet: &[u8]) -> Option<Self> {
        let (_, destination) = flow::addresses(packet).ok()?;
        let quoted = match upper(packet).ok()? {
            (protocol::ICMPV4, bytes) if destination.is_ipv4() => {
                icmpv4::Message::parse(bytes).ok().filter(icmpv4::Message::is_error)?.payload()
            }
            (protocol::ICMPV6, bytes) if destination.is_ipv6() => {
                icmpv6::Message::parse(bytes).ok().filter(icmpv6::Message::is_error)?.payload()
            }
            _ => return None,
        };
        // It may be cut, which its header does not know: headers as long as any real ones, and the length that is there.
        let mut copy = [0; 128];
        let length = quoted.len().min(copy.len());
        let copy = copy.get_mut(..length)?;
        copy.copy_from_slice(quoted.get(..length)?);
        let (at, stated) = match copy.first()? >> 4 {
            6 => (4, length.checked_sub(ipv6::HEADER_LEN)?),
            _ => (2, length),
        };
        copy.get_mut(at..at + 2)?.copy_from_slice(&(stated as u16).to_be_bytes());
        let sent = Self::of(copy).ok()?;
        let detail = match sent.detail {
            Detail::Ports { source, destination } => {
                Detail::Ports { source: destination, destination: source }
            }
            other => other,
        };
        (sent.source == destination).then_some(Self {
            source: sent.destination,
            destination: sent.source,
            detail,
            ..sent
        })
    }

    /// That of a packet whose headers were taken apart already. `upper` is what follows them, empty for a fragment that is
    /// not the first.
    pub fn of_upper(source: IpAddr, destination: IpAddr, protocol: u8, upper: &[u8]) -> Self {
        let detail = match *upper {
            [a, b, c, d, ..] if WITH_PORTS.contains(&protocol) => {
                Detail::Ports { source: u16::from_be_bytes([a, b]), destination: u16::from_be_bytes([c, d]) }
            }
            [message_type, code, ..] if matches!(protocol, protocol::ICMPV4 | protocol::ICMPV6) => {
                Detail::Icmp { message_type, code }
            }
            _ => Detail::Opaque,
        };
        Self { source, destination, protocol, detail }
    }
}

/// Protocol and bytes of what follows the IP headers; no bytes of a fragment that is not the first.
fn upper(packet: &[u8]) -> Result<(u8, &[u8]), ParseError> {
    let (protocol, upper, is_fragment) = if packet.first().is_some_and(|first| first >> 4 == 6) {
        let view = ipv6::Packet::parse(packet)?;
        let upper = view.upper_layer()?;
        let bytes = packet.get(upper.offset..ipv6::HEADER_LEN + view.payload().len());
        (upper.protocol, bytes.unwrap_or_default(), upper.is_later_fragment())
    } else {
        let view = ipv4::Packet::parse(packet)?;
        (view.protocol(), view.payload(), view.fragment_offset() != 0)
    };
    Ok((protocol, if is_fragment { &[] } else { upper }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn traffic(protocol: u8, detail: Detail) -> Traffic {
        Traffic {
            source: "2001:db8:a::1".parse().unwrap(),
            destination: "2001:db8:b::1".parse().unwrap(),
            protocol,
            detail,
        }
    }

    fn selector(upper: Upper) -> Selector {
        Selector {
            upper,
            ..Selector::between("2001:db8:a::/48".parse().unwrap(), "2001:db8:b::/48".parse().unwrap())
        }
    }

    #[test]
    fn ports_types_and_networks_select() {
        let web =
            selector(Upper::Ports { protocol: protocol::TCP, source: 0..=u16::MAX, destination: 80..=443 });
        let ports = |destination| Detail::Ports { source: 4000, destination };
        assert!(web.matches(&traffic(protocol::TCP, ports(443))));
        assert!(!web.matches(&traffic(protocol::TCP, ports(444))));
        assert!(!web.matches(&traffic(protocol::UDP, ports(443))));
        assert!(!web.matches(&traffic(protocol::TCP, Detail::Opaque)), "a port that cannot be seen");
        assert!(web.may_match(&traffic(protocol::TCP, Detail::Opaque)));
        assert!(!web.may_match(&traffic(protocol::UDP, Detail::Opaque)));
        assert!(!web.may_match(&traffic(protocol::TCP, ports(444))));
        let echo = selector(Upper::Icmp { protocol: protocol::ICMPV6, types: 128..=129, codes: 0..=0 });
        assert!(echo.matches(&traffic(protocol::ICMPV6, Detail::Icmp { message_type: 128, code: 0 })));
        assert!(!echo.matches(&traffic(protocol::ICMPV6, Detail::Icmp { message_type: 135, code: 0 })));
        let elsewhere = Traffic { source: "2001:db8:c::1".parse().unwrap(), ..traffic(17, Detail::Opaque) };
        assert!(!selector(Upper::Any).matches(&elsewhere));
    }

    #[test]
    fn types_of_icmp_are_compared_together_with_codes() {
        // From the fourth code of one type to the first of another.
        let codes = RangeInclusive::new(4, 1);
        let some = selector(Upper::Icmp { protocol: protocol::ICMPV6, types: 1..=3, codes });
        let is = |message_type, code| {
            some.matches(&traffic(protocol::ICMPV6, Detail::Icmp { message_type, code }))
        };
        for (message_type, code) in [(1, 4), (1, 255), (2, 0), (2, 255), (3, 0), (3, 1)] {
            assert!(is(message_type, code), "{message_type} {code}");
        }
        for (message_type, code) in [(0, 4), (1, 3), (3, 2), (4, 0)] {
            assert!(!is(message_type, code), "{message_type} {code}");
        }
        let one = selector(Upper::Icmp { protocol: protocol::ICMPV6, types: 1..=1, codes: 2..=3 });
        let is = |code| one.matches(&traffic(protocol::ICMPV6, Detail::Icmp { message_type: 1, code }));
        assert!(!is(1) && is(2) && is(3) && !is(4));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = Traffic::of(&bytes);
            let _ = Traffic::of_return(&bytes);
        }
    }
}
