//! IPv6 (RFC 8200): the header, and the walk over extension headers to the upper layer.

use std::net::Ipv6Addr;

use crate::bytes::{ipv6_at, u16_at, u32_at};
use crate::checksum::Sum;
use crate::{ParseError, protocol};

/// Length of the fixed header in bytes.
pub const HEADER_LEN: usize = 40;
/// Every link carries packets of this size (RFC 8200 §5).
pub const MIN_MTU: usize = 1280;
/// Extension headers that [`upper_layer`] is ready to walk over. RFC 8200 §4.1 names at most seven in a
/// packet.
pub const MAX_EXTENSION_HEADERS: usize = 8;

/// A packet whose stated length is there. What lies behind it is not part of the view.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    header: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Views `bytes` as a packet.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] when shorter than the header or than the header states,
    /// [`ParseError::Version`] when it is not IPv6.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (header, rest) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(ParseError::Truncated)?;
        if header[0] >> 4 != 6 {
            return Err(ParseError::Version);
        }
        let payload = rest.get(..usize::from(u16_at(header, 4))).ok_or(ParseError::Truncated)?;
        Ok(Self { header, payload })
    }

    /// Traffic class: DSCP and ECN.
    pub fn traffic_class(&self) -> u8 {
        (u16_at(self.header, 0) >> 4) as u8
    }

    /// Flow label, 20 bits.
    pub fn flow_label(&self) -> u32 {
        u32_at(self.header, 0) & 0xf_ffff
    }

    /// Bytes behind the fixed header, extension headers included.
    pub fn payload_length(&self) -> u16 {
        u16_at(self.header, 4)
    }

    /// Type of the header that follows.
    pub fn next_header(&self) -> u8 {
        self.header[6]
    }

    /// Hop limit.
    pub fn hop_limit(&self) -> u8 {
        self.header[7]
    }

    /// Source address.
    pub fn source(&self) -> Ipv6Addr {
        ipv6_at(self.header, 8)
    }

    /// Destination address.
    pub fn destination(&self) -> Ipv6Addr {
        ipv6_at(self.header, 24)
    }

    /// The fixed header's bytes.
    pub fn header(&self) -> &'a [u8; HEADER_LEN] {
        self.header
    }

    /// Everything behind the fixed header.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Finds the upper-layer header; offsets count from the start of the IPv6 header.
    ///
    /// # Errors
    /// As [`upper_layer`].
    pub fn upper_layer(&self) -> Result<UpperLayer, ParseError> {
        let mut upper = upper_layer(self.next_header(), self.payload)?;
        upper.offset += HEADER_LEN;
        Ok(upper)
    }

    /// Sum of the pseudo-header for an upper-layer packet of `length` bytes.
    pub fn pseudo_header(&self, length: u32, protocol: u8) -> Sum {
        Sum::of(&self.header[8..]) + Sum::dword(length) + Sum::word(u16::from(protocol))
    }
}

/// The header that the chain of extension headers leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpperLayer {
    /// Its type: a transport protocol, ESP, or no next header. Meaningful in a fragment that is not the first
    /// too, but what is at `offset` is then not a header.
    pub protocol: u8,
    /// Where it begins.
    pub offset: usize,
    /// The Fragment header passed on the way, if any.
    pub fragment: Option<Fragment>,
}

impl UpperLayer {
    /// Whether the bytes at `offset` are the middle of something: a fragment other than the first.
    pub fn is_later_fragment(&self) -> bool {
        self.fragment.is_some_and(|fragment| fragment.offset != 0)
    }
}

/// Fields of a Fragment header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// Offset of the fragment's data in bytes.
    pub offset: u16,
    /// Whether more fragments follow.
    pub more: bool,
    /// Identification.
    pub identification: u32,
}

/// Walks over extension headers, beginning with a header of type `next_header` at `payload[0]`.
///
/// Stops behind the Fragment header of a fragment other than the first: headers beyond it are elsewhere.
///
/// # Errors
/// [`ParseError::Truncated`] when a header leaves the payload, [`ParseError::ExtensionHeaders`] when there
/// are more than [`MAX_EXTENSION_HEADERS`].
pub fn upper_layer(next_header: u8, payload: &[u8]) -> Result<UpperLayer, ParseError> {
    let mut upper = UpperLayer { protocol: next_header, offset: 0, fragment: None };
    for _ in 0..=MAX_EXTENSION_HEADERS {
        let rest = payload.get(upper.offset..).ok_or(ParseError::Truncated)?;
        let length = match upper.protocol {
            protocol::HOP_BY_HOP
            | protocol::ROUTING
            | protocol::DESTINATION_OPTIONS
            | protocol::MOBILITY
            | protocol::HIP
            | protocol::SHIM6 => {
                let [_, units, ..] = rest else { return Err(ParseError::Truncated) };
                (usize::from(*units) + 1) * 8
            }
            protocol::AUTHENTICATION => {
                let [_, units, ..] = rest else { return Err(ParseError::Truncated) };
                (usize::from(*units) + 2) * 4
            }
            protocol::FRAGMENT => {
                let header = rest.first_chunk::<8>().ok_or(ParseError::Truncated)?;
                let field = u16_at(header, 2);
                upper.fragment = Some(Fragment {
                    offset: field & !7,
                    more: field & 1 == 1,
                    identification: u32_at(header, 4),
                });
                8
            }
            _ => return Ok(upper),
        };
        if rest.len() < length {
            return Err(ParseError::Truncated);
        }
        upper.protocol = rest[0];
        upper.offset += length;
        if upper.is_later_fragment() {
            return Ok(upper);
        }
    }
    Err(ParseError::ExtensionHeaders)
}

/// The header of a packet to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label; the upper 12 bits are ignored.
    pub flow_label: u32,
    /// Bytes behind this header.
    pub payload_length: u16,
    /// Type of what follows.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
}

impl Header {
    /// The header as sent.
    pub fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
        bytes[..4].copy_from_slice(&first.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.payload_length.to_be_bytes());
        bytes[6] = self.next_header;
        bytes[7] = self.hop_limit;
        bytes[8..24].copy_from_slice(&self.source.octets());
        bytes[24..].copy_from_slice(&self.destination.octets());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(next_header: u8, payload_length: u16) -> Header {
        Header {
            traffic_class: 0xb9,
            flow_label: 0x1_2345,
            payload_length,
            next_header,
            hop_limit: 61,
            source: "2001:db8:a::1".parse().unwrap(),
            destination: "2001:db8:b::2".parse().unwrap(),
        }
    }

    #[test]
    fn header_round_trip() {
        let mut bytes = header(protocol::UDP, 3).to_bytes().to_vec();
        bytes.extend([1, 2, 3, 0xee]);
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!(packet.traffic_class(), 0xb9);
        assert_eq!(packet.flow_label(), 0x1_2345);
        assert_eq!(packet.payload_length(), 3);
        assert_eq!(packet.next_header(), protocol::UDP);
        assert_eq!(packet.hop_limit(), 61);
        assert_eq!(packet.source(), header(0, 0).source);
        assert_eq!(packet.destination(), header(0, 0).destination);
        assert_eq!(packet.payload(), [1, 2, 3], "the byte behind the stated length is not payload");
    }

    #[test]
    fn truncated_or_foreign_packets_are_refused() {
        let mut bytes = header(protocol::UDP, 8).to_bytes().to_vec();
        assert_eq!(Packet::parse(&bytes[..39]).unwrap_err(), ParseError::Truncated);
        assert_eq!(Packet::parse(&bytes).unwrap_err(), ParseError::Truncated);
        bytes[0] = 0x45;
        assert_eq!(Packet::parse(&bytes).unwrap_err(), ParseError::Version);
    }

    #[test]
    fn the_walk_passes_every_kind_of_extension_header() {
        let mut payload = vec![protocol::DESTINATION_OPTIONS, 0, 1, 4, 0, 0, 0, 0]; // hop-by-hop
        payload.extend([protocol::FRAGMENT, 1]); // destination options, 16 bytes
        payload.extend([0; 14]);
        payload.extend([protocol::AUTHENTICATION, 0, 0, 1, 0, 0, 0, 7]); // first fragment
        payload.extend([protocol::TCP, 1]); // authentication header, 12 bytes
        payload.extend([0; 10]);
        payload.push(0xaa);
        let upper = upper_layer(protocol::HOP_BY_HOP, &payload).unwrap();
        assert_eq!(upper.protocol, protocol::TCP);
        assert_eq!(payload[upper.offset], 0xaa);
        assert_eq!(upper.fragment, Some(Fragment { offset: 0, more: true, identification: 7 }));
        assert!(!upper.is_later_fragment());
    }

    #[test]
    fn the_walk_stops_behind_a_later_fragments_header() {
        let payload = [protocol::DESTINATION_OPTIONS, 0, 0x05, 0xa0, 0, 0, 0, 7, 0xff];
        let upper = upper_layer(protocol::FRAGMENT, &payload).unwrap();
        assert!(upper.is_later_fragment());
        assert_eq!((upper.protocol, upper.offset), (protocol::DESTINATION_OPTIONS, 8));
        assert_eq!(upper.fragment.unwrap().offset, 0x5a0);
    }

    #[test]
    fn the_walk_is_bounded() {
        let eight = [protocol::DESTINATION_OPTIONS, 0, 1, 4, 0, 0, 0, 0].repeat(8);
        let mut payload = eight.clone();
        payload[56] = protocol::UDP;
        assert_eq!(upper_layer(protocol::DESTINATION_OPTIONS, &payload).unwrap().offset, 64);
        let nine = [eight, vec![protocol::UDP, 0, 1, 4, 0, 0, 0, 0]].concat();
        assert_eq!(
            upper_layer(protocol::DESTINATION_OPTIONS, &nine).unwrap_err(),
            ParseError::ExtensionHeaders
        );
    }

    proptest! {
        #[test]
        fn agrees_with_etherparse(
            mut bytes in proptest::collection::vec(any::<u8>(), 40..200),
            next in prop::sample::select(vec![0u8, 6, 17, 43, 44, 51, 58, 59, 60, 135]),
        ) {
            bytes[0] = 0x60 | bytes[0] & 0xf;
            let length = (bytes.len() - 40) as u16;
            bytes[4..6].copy_from_slice(&length.to_be_bytes());
            bytes[6] = next;
            let packet = Packet::parse(&bytes).unwrap();
            let theirs = etherparse::Ipv6HeaderSlice::from_slice(&bytes).unwrap();
            prop_assert_eq!(packet.traffic_class(), theirs.traffic_class());
            prop_assert_eq!(packet.flow_label(), theirs.flow_label().value());
            prop_assert_eq!(packet.source(), theirs.source_addr());
            prop_assert_eq!(packet.destination(), theirs.destination_addr());
            let _ = packet.upper_layer();
        }

        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), next: u8) {
            if let Ok(packet) = Packet::parse(&bytes) { let _ = packet.upper_layer(); }
            if let Ok(upper) = upper_layer(next, &bytes) { prop_assert!(upper.offset <= bytes.len()); }
        }
    }
}
