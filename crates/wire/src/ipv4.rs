//! IPv4 (RFC 791).

use std::net::Ipv4Addr;

use crate::ParseError;
use crate::bytes::{ipv4_at, u16_at};
use crate::checksum::Sum;

/// Length of a header without options, in bytes.
pub const HEADER_LEN: usize = 20;
/// Length of the longest header, in bytes.
pub const MAX_HEADER_LEN: usize = 60;
/// "Don't fragment", in the flags-and-offset field.
pub const DONT_FRAGMENT: u16 = 0x4000;
/// "More fragments", in the flags-and-offset field.
pub const MORE_FRAGMENTS: u16 = 0x2000;

/// A packet whose stated length is there. What lies behind it is not part of the view.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    header: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Views `bytes` as a packet. The header checksum is not verified:
    /// see [`has_valid_checksum`](Self::has_valid_checksum).
    ///
    /// # Errors
    /// [`ParseError::Truncated`] when shorter than the header or than the header states,
    /// [`ParseError::Version`] when it is not IPv4, [`ParseError::Length`] when the header length is below 20
    /// or the total length below the header's.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        if bytes.len() < HEADER_LEN {
            return Err(ParseError::Truncated);
        }
        if bytes[0] >> 4 != 4 {
            return Err(ParseError::Version);
        }
        let header_len = usize::from(bytes[0] & 0xf) * 4;
        let total_length = usize::from(u16_at(bytes, 2));
        if header_len < HEADER_LEN || total_length < header_len {
            return Err(ParseError::Length);
        }
        let packet = bytes.get(..total_length).ok_or(ParseError::Truncated)?;
        let (header, payload) = packet.split_at(header_len);
        Ok(Self { header, payload })
    }

    /// Type of service: DSCP and ECN.
    pub fn type_of_service(&self) -> u8 {
        self.header[1]
    }

    /// Length of header and payload.
    pub fn total_length(&self) -> u16 {
        u16_at(self.header, 2)
    }

    /// Identification.
    pub fn identification(&self) -> u16 {
        u16_at(self.header, 4)
    }

    /// Whether routers must not fragment the packet.
    pub fn dont_fragment(&self) -> bool {
        u16_at(self.header, 6) & DONT_FRAGMENT != 0
    }

    /// Whether more fragments follow.
    pub fn more_fragments(&self) -> bool {
        u16_at(self.header, 6) & MORE_FRAGMENTS != 0
    }

    /// Offset of this fragment's payload, in bytes.
    pub fn fragment_offset(&self) -> u16 {
        u16_at(self.header, 6) << 3
    }

    /// Whether this is a part of a packet, first or later.
    pub fn is_fragment(&self) -> bool {
        self.more_fragments() || self.fragment_offset() != 0
    }

    /// Time to live.
    pub fn time_to_live(&self) -> u8 {
        self.header[8]
    }

    /// Protocol of the payload.
    pub fn protocol(&self) -> u8 {
        self.header[9]
    }

    /// Source address.
    pub fn source(&self) -> Ipv4Addr {
        ipv4_at(self.header, 12)
    }

    /// Destination address.
    pub fn destination(&self) -> Ipv4Addr {
        ipv4_at(self.header, 16)
    }

    /// The header's bytes, options included.
    pub fn header(&self) -> &'a [u8] {
        self.header
    }

    /// What follows the header.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Whether the header checksum is right.
    pub fn has_valid_checksum(&self) -> bool {
        Sum::of(self.header).is_valid()
    }

    /// Sum of the pseudo-header for an upper-layer packet of `length` bytes.
    pub fn pseudo_header(&self, length: u16, protocol: u8) -> Sum {
        Sum::of(&self.header[12..20]) + Sum::word(length) + Sum::word(u16::from(protocol))
    }
}

/// The header, without options, of a packet to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// DSCP and ECN.
    pub type_of_service: u8,
    /// Length of header and payload.
    pub total_length: u16,
    /// Identification.
    pub identification: u16,
    /// Whether routers must not fragment the packet.
    pub dont_fragment: bool,
    /// Time to live.
    pub time_to_live: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
}

impl Header {
    /// The header as sent, with its checksum.
    pub fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[0] = 0x45;
        bytes[1] = self.type_of_service;
        bytes[2..4].copy_from_slice(&self.total_length.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.identification.to_be_bytes());
        if self.dont_fragment {
            bytes[6..8].copy_from_slice(&DONT_FRAGMENT.to_be_bytes());
        }
        bytes[8] = self.time_to_live;
        bytes[9] = self.protocol;
        bytes[12..16].copy_from_slice(&self.source.octets());
        bytes[16..].copy_from_slice(&self.destination.octets());
        write_checksum(&mut bytes);
        bytes
    }
}

/// Writes the checksum of `header`, which is a whole header of at least 20 bytes.
///
/// # Panics
/// When it is shorter than 12 bytes.
pub fn write_checksum(header: &mut [u8]) {
    header[10..12].fill(0);
    let checksum = Sum::of(header).checksum();
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(total_length: u16) -> Header {
        Header {
            type_of_service: 0x28,
            total_length,
            identification: 0xbeef,
            dont_fragment: true,
            time_to_live: 63,
            protocol: crate::protocol::UDP,
            source: Ipv4Addr::new(192, 0, 2, 1),
            destination: Ipv4Addr::new(198, 51, 100, 7),
        }
    }

    #[test]
    fn header_round_trip() {
        let mut bytes = header(22).to_bytes().to_vec();
        bytes.extend([1, 2, 3]);
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!(packet.type_of_service(), 0x28);
        assert_eq!(packet.total_length(), 22);
        assert_eq!(packet.identification(), 0xbeef);
        assert!(packet.dont_fragment() && !packet.is_fragment());
        assert_eq!(packet.time_to_live(), 63);
        assert_eq!(packet.protocol(), crate::protocol::UDP);
        assert_eq!(packet.source(), header(0).source);
        assert_eq!(packet.destination(), header(0).destination);
        assert_eq!(packet.payload(), [1, 2], "the byte behind the stated length is not payload");
        assert!(packet.has_valid_checksum());
    }

    #[test]
    fn contradicting_lengths_are_refused() {
        let mut bytes = header(20).to_bytes();
        assert_eq!(Packet::parse(&bytes[..19]).unwrap_err(), ParseError::Truncated);
        bytes[0] = 0x44;
        assert_eq!(Packet::parse(&bytes).unwrap_err(), ParseError::Length);
        bytes[0] = 0x46;
        assert_eq!(Packet::parse(&bytes).unwrap_err(), ParseError::Length);
        bytes[0] = 0x65;
        assert_eq!(Packet::parse(&bytes).unwrap_err(), ParseError::Version);
        assert_eq!(Packet::parse(&header(21).to_bytes()).unwrap_err(), ParseError::Truncated);
    }

    proptest! {
        #[test]
        fn agrees_with_etherparse(
            mut bytes in proptest::collection::vec(any::<u8>(), 20..120),
            has_right_checksum in any::<bool>(),
        ) {
            bytes[0] = 0x40 | bytes[0] & 0xf;
            let length = bytes.len() as u16;
            bytes[2..4].copy_from_slice(&length.to_be_bytes());
            // etherparse forgets the reserved flag, and computes the checksum without it.
            bytes[6] &= 0x7f;
            let header = (bytes[0] & 0xf) as usize * 4;
            if has_right_checksum && (HEADER_LEN..=bytes.len()).contains(&header) {
                write_checksum(&mut bytes[..header]);
            }
            match (Packet::parse(&bytes), etherparse::Ipv4HeaderSlice::from_slice(&bytes)) {
                (Ok(ours), Ok(theirs)) => {
                    prop_assert_eq!(ours.header(), theirs.slice());
                    prop_assert_eq!(ours.source(), theirs.source_addr());
                    prop_assert_eq!(ours.fragment_offset(), theirs.fragments_offset().byte_offset());
                    prop_assert_eq!(ours.more_fragments(), theirs.more_fragments());
                    prop_assert_eq!(ours.dont_fragment(), theirs.dont_fragment());
                    let right = theirs.to_header().calc_header_checksum();
                    prop_assert_eq!(ours.has_valid_checksum(), right == theirs.header_checksum());
                }
                (ours, theirs) => prop_assert_eq!(ours.is_ok(), theirs.is_ok()),
            }
        }

        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = Packet::parse(&bytes);
        }
    }
}
