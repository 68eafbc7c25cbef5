//! UDP (RFC 768).

use crate::ParseError;
use crate::bytes::u16_at;

/// Length of the header in bytes.
pub const HEADER_LEN: usize = 8;
/// Where the checksum field is in the header.
pub const CHECKSUM_OFFSET: usize = 6;

/// A datagram whose stated length is there.
#[derive(Debug, Clone, Copy)]
pub struct Datagram<'a> {
    header: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Views `bytes` as a datagram. The checksum is not verified.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] when shorter than the header or than the header states,
    /// [`ParseError::Length`] when the stated length is below the header's.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (header, rest) = bytes.split_first_chunk().ok_or(ParseError::Truncated)?;
        let length = usize::from(u16_at(header, 4)).checked_sub(HEADER_LEN).ok_or(ParseError::Length)?;
        let payload = rest.get(..length).ok_or(ParseError::Truncated)?;
        Ok(Self { header, payload })
    }

    /// Source port.
    pub fn source_port(&self) -> u16 {
        u16_at(self.header, 0)
    }

    /// Destination port.
    pub fn destination_port(&self) -> u16 {
        u16_at(self.header, 2)
    }

    /// Length of header and payload.
    pub fn length(&self) -> u16 {
        u16_at(self.header, 4)
    }

    /// Checksum; 0 means none, which only IPv4 allows.
    pub fn checksum(&self) -> u16 {
        u16_at(self.header, CHECKSUM_OFFSET)
    }

    /// What follows the header.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The header of a datagram to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Length of header and payload.
    pub length: u16,
    /// Checksum; see [`Sum::udp_checksum`](crate::checksum::Sum::udp_checksum).
    pub checksum: u16,
}

impl Header {
    /// The header as sent.
    pub fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..2].copy_from_slice(&self.source_port.to_be_bytes());
        bytes[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.length.to_be_bytes());
        bytes[6..].copy_from_slice(&self.checksum.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn header_round_trip() {
        let header = Header { source_port: 5353, destination_port: 53, length: 10, checksum: 0x1234 };
        let mut bytes = header.to_bytes().to_vec();
        bytes.extend([7, 8, 9]);
        let datagram = Datagram::parse(&bytes).unwrap();
        assert_eq!(datagram.source_port(), 5353);
        assert_eq!(datagram.destination_port(), 53);
        assert_eq!(datagram.length(), 10);
        assert_eq!(datagram.checksum(), 0x1234);
        assert_eq!(datagram.payload(), [7, 8]);
    }

    #[test]
    fn impossible_lengths_are_refused() {
        let header = Header { source_port: 1, destination_port: 2, length: 7, checksum: 0 };
        assert_eq!(Datagram::parse(&header.to_bytes()).unwrap_err(), ParseError::Length);
        let header = Header { length: 9, ..header };
        assert_eq!(Datagram::parse(&header.to_bytes()).unwrap_err(), ParseError::Truncated);
        assert_eq!(Datagram::parse(&header.to_bytes()[..7]).unwrap_err(), ParseError::Truncated);
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = Datagram::parse(&bytes);
        }
    }
}
