//! Multicast Listener Discovery (RFC 3810; version 1: RFC 2710): what a listener reads and sends.
//!
//! A report travels behind a Hop-by-Hop Options header with the Router Alert option, so that routers look at it though it
//! is addressed to others.

use std::net::Ipv6Addr;
use std::time::Duration;

use crate::bytes::{ipv6_at, put_u16, u16_at};
use crate::checksum::Sum;
use crate::{ParseError, icmpv6, ipv6, protocol};

/// All routers that know version 2: where its reports go.
pub const ALL_MLDV2_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);

/// Hop-by-Hop Options with Router Alert for MLD (RFC 2711), padded.
const HOP_BY_HOP: [u8; 8] = [protocol::ICMPV6, 0, 5, 2, 0, 0, 1, 0];
const V1_LEN: usize = 24;
const V2_QUERY_LEN: usize = 28;
const RECORD_LEN: usize = 20;
/// Records of a report that fit into a packet of the least MTU.
pub const MAX_RECORDS: usize = (ipv6::MIN_MTU - ipv6::HEADER_LEN - HOP_BY_HOP.len() - 8) / RECORD_LEN;

/// Which version a router asks in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// RFC 2710.
    V1,
    /// RFC 3810.
    V2,
}

/// A router asks who listens.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    /// The version that the router speaks.
    pub version: Version,
    /// The group asked for; `None`: all of them.
    pub group: Option<Ipv6Addr>,
    /// The answer is due at a random instant within this time.
    pub maximum_response_delay: Duration,
    sources: &'a [u8],
}

impl<'a> Query<'a> {
    /// Reads a query that has been found in `packet`, whose message is `message`, and whose checksum has been verified.
    ///
    /// # Errors
    /// [`ParseError::Type`] for other messages, [`ParseError::Value`] for a source that is not link-local, a hop limit
    /// other than 1, or a group that is none (RFC 3810 §5.1.14, §6.2), [`ParseError::Truncated`].
    pub fn parse(packet: &ipv6::Packet<'a>, message: &'a [u8]) -> Result<Self, ParseError> {
        if message.first() != Some(&icmpv6::MULTICAST_LISTENER_QUERY) {
            return Err(ParseError::Type);
        }
        if packet.hop_limit() != 1 || !packet.source().is_unicast_link_local() {
            return Err(ParseError::Value);
        }
        if message.len() < V1_LEN {
            return Err(ParseError::Truncated);
        }
        let group = ipv6_at(message, 8);
        if !group.is_unspecified() && !group.is_multicast() {
            return Err(ParseError::Value);
        }
        let code = u16_at(message, 4);
        // A length in between is of no version (RFC 3810 §8.1).
        let (version, milliseconds, sources) = match message.len() {
            V1_LEN => (Version::V1, u32::from(code), &[][..]),
            V2_QUERY_LEN.. => {
                let number = usize::from(u16_at(message, 26));
                let sources = message[V2_QUERY_LEN..].get(..number * 16).ok_or(ParseError::Truncated)?;
                (Version::V2, response_delay(code), sources)
            }
            _ => return Err(ParseError::Length),
        };
        Ok(Query {
            version,
            group: (!group.is_unspecified()).then_some(group),
            maximum_response_delay: Duration::from_millis(u64::from(milliseconds)),
            sources,
        })
    }

    /// The sources asked for; none: any.
    pub fn sources(&self) -> impl Iterator<Item = Ipv6Addr> + use<'a> {
        let (sources, _) = self.sources.as_chunks::<16>();
        sources.iter().map(|octets| Ipv6Addr::from(*octets))
    }
}

/// A Query as a router sends it: to all nodes, or to the group that it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueryPacket {
    /// The router's link-local address.
    pub source: Ipv6Addr,
    /// Which version.
    pub version: Version,
    /// The group; `None`: all.
    pub group: Option<Ipv6Addr>,
    /// In milliseconds, below 32,768, where the code of both versions is the number itself.
    pub maximum_response_delay: u16,
}

impl QueryPacket {
    /// The IPv6 packet.
    pub fn to_packet(self) -> Vec<u8> {
        let mut message = vec![0; if self.version == Version::V1 { V1_LEN } else { V2_QUERY_LEN }];
        message[0] = icmpv6::MULTICAST_LISTENER_QUERY;
        put_u16(&mut message, 4, self.maximum_response_delay.min(0x7fff));
        message[8..24].copy_from_slice(&self.group.unwrap_or(Ipv6Addr::UNSPECIFIED).octets());
        packet(self.source, self.group.unwrap_or(crate::ndp::ALL_NODES), message)
    }
}

/// What a record says of a group (RFC 3810 §5.2.12). This host listens to all sources of a group, or to none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordType {
    /// MODE_IS_EXCLUDE without sources: it listens, as an answer to a query.
    IsExclude = 2,
    /// CHANGE_TO_INCLUDE_MODE without sources: it listens no longer.
    ToInclude = 3,
    /// CHANGE_TO_EXCLUDE_MODE without sources: it has begun to listen.
    ToExclude = 4,
}

/// A report of version 2, complete from the IPv6 header on. What does not fit ([`MAX_RECORDS`]) is left away. `source` is a
/// link-local address, or the unspecified one while there is none.
pub fn report(source: Ipv6Addr, records: &[(RecordType, Ipv6Addr)]) -> Vec<u8> {
    let records = &records[..records.len().min(MAX_RECORDS)];
    let mut message = vec![icmpv6::MULTICAST_LISTENER_REPORT, 0, 0, 0, 0, 0];
    message.extend((records.len() as u16).to_be_bytes());
    for (kind, group) in records {
        message.extend([*kind as u8, 0, 0, 0]);
        message.extend(group.octets());
    }
    packet(source, ALL_MLDV2_ROUTERS, message)
}

/// A report of version 1.
pub fn report_v1(source: Ipv6Addr, group: Ipv6Addr) -> Vec<u8> {
    packet(source, group, v1(icmpv6::MULTICAST_LISTENER_REPORT_V1, group))
}

/// That nobody here listens any longer, in version 1.
pub fn done_v1(source: Ipv6Addr, group: Ipv6Addr) -> Vec<u8> {
    packet(source, crate::ndp::ALL_ROUTERS, v1(icmpv6::MULTICAST_LISTENER_DONE, group))
}

/// The group that a report of version 1 in `message` is about.
pub fn reported_v1(message: &[u8]) -> Option<Ipv6Addr> {
    let is_report = message.first() == Some(&icmpv6::MULTICAST_LISTENER_REPORT_V1) && message.len() >= V1_LEN;
    is_report.then(|| ipv6_at(message, 8))
}

fn v1(message_type: u8, group: Ipv6Addr) -> Vec<u8> {
    let mut message = vec![message_type, 0, 0, 0, 0, 0, 0, 0];
    message.extend(group.octets());
    message
}

fn packet(source: Ipv6Addr, destination: Ipv6Addr, mut message: Vec<u8>) -> Vec<u8> {
    let header = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: (HOP_BY_HOP.len() + message.len()) as u16,
        next_header: protocol::HOP_BY_HOP,
        hop_limit: 1,
        source,
        destination,
    };
    let sum =
        Sum::pseudo_ipv6(source, destination, message.len() as u32, protocol::ICMPV6) + Sum::of(&message);
    put_u16(&mut message, icmpv6::CHECKSUM_OFFSET, sum.checksum());
    [&header.to_bytes()[..], &HOP_BY_HOP, &message].concat()
}

/// Milliseconds from a Maximum Response Code: a floating-point number from 32,768 on (RFC 3810 §5.1.3).
fn response_delay(code: u16) -> u32 {
    if code < 0x8000 {
        return u32::from(code);
    }
    let (exponent, mantissa) = (code >> 12 & 7, u32::from(code & 0xfff));
    (mantissa | 0x1000) << (exponent + 3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(packet: &[u8]) -> &[u8] {
        let view = ipv6::Packet::parse(packet).unwrap();
        icmpv6::Message::of_packet(&view).unwrap();
        let upper = view.upper_layer().unwrap();
        assert_eq!((upper.protocol, upper.offset), (protocol::ICMPV6, 48));
        &packet[upper.offset..]
    }

    #[test]
    fn a_report_has_a_record_for_each_group_and_the_router_alert() {
        let group = "ff02::1:ff00:2".parse().unwrap();
        let bytes = report("fe80::2".parse().unwrap(), &[(RecordType::ToExclude, group)]);
        assert_eq!(ipv6::Packet::parse(&bytes).unwrap().destination(), ALL_MLDV2_ROUTERS);
        assert_eq!(message(&bytes)[6..12], [0, 1, 4, 0, 0, 0]);
        assert_eq!(message(&bytes)[12..], group.octets());
        assert_eq!(bytes[42..46], [5, 2, 0, 0]);
        let many = vec![(RecordType::IsExclude, group); 100];
        assert!(report(group, &many).len() <= ipv6::MIN_MTU);
    }

    #[test]
    fn messages_of_version_1() {
        let (source, group) = ("fe80::2".parse().unwrap(), "ff02::1:ff00:2".parse().unwrap());
        let report = report_v1(source, group);
        assert_eq!(ipv6::Packet::parse(&report).unwrap().destination(), group);
        assert_eq!(reported_v1(message(&report)), Some(group));
        let done = done_v1(source, group);
        assert_eq!(message(&done)[0], 132);
        assert_eq!(reported_v1(message(&done)), None);
    }

    #[test]
    fn queries_that_are_not_from_a_router_of_the_link_are_refused() {
        let query = QueryPacket {
            source: "fe80::1".parse().unwrap(),
            version: Version::V2,
            group: None,
            maximum_response_delay: 1,
        };
        let refused = |packet: &[u8]| {
            let view = ipv6::Packet::parse(packet).unwrap();
            Query::parse(&view, &packet[48..]).unwrap_err()
        };
        let far = QueryPacket { source: "2001:db8::1".parse().unwrap(), ..query }.to_packet();
        assert_eq!(refused(&far), ParseError::Value);
        let mut hops = query.to_packet();
        hops[7] = 64;
        assert_eq!(refused(&hops), ParseError::Value);
        let one = QueryPacket { group: Some("2001:db8::1".parse().unwrap()), ..query };
        assert_eq!(refused(&one.to_packet()), ParseError::Value);
    }

    #[test]
    fn the_response_delay_is_a_number_or_a_floating_point_number() {
        assert_eq!([0, 1000, 0x7fff, 0x8000, 0xffff].map(response_delay), [0, 1000, 32767, 32768, 8_387_584]);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(v2: bool, group: Option<u16>, delay in 0u16..0x8000) {
            let sent = QueryPacket {
                source: "fe80::1".parse().unwrap(),
                version: if v2 { Version::V2 } else { Version::V1 },
                group: group.map(|last| Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, last)),
                maximum_response_delay: delay,
            };
            let packet = sent.to_packet();
            let query = Query::parse(&ipv6::Packet::parse(&packet).unwrap(), message(&packet)).unwrap();
            prop_assert_eq!((query.version, query.group), (sent.version, sent.group));
            prop_assert_eq!(query.maximum_response_delay, Duration::from_millis(u64::from(delay)));
            prop_assert_eq!(query.sources().count(), 0);
        }

        #[test]
        fn any_message_is_read_without_panic(mut message in proptest::collection::vec(any::<u8>(), 1..80)) {
            message[0] = icmpv6::MULTICAST_LISTENER_QUERY;
            let packet = packet("fe80::1".parse().unwrap(), crate::ndp::ALL_NODES, vec![0; 24]);
            if let Ok(query) = Query::parse(&ipv6::Packet::parse(&packet).unwrap(), &message) {
                prop_assert!(query.sources().count() <= 4);
            }
            let _ = reported_v1(&message);
        }
    }
}
