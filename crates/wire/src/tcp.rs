//! TCP (RFC 9293): the header and its options.

use crate::ParseError;
use crate::bytes::{u16_at, u32_at};

/// Length of a header without options, in bytes.
pub const HEADER_LEN: usize = 20;
/// Length of the longest header, in bytes.
pub const MAX_HEADER_LEN: usize = 60;
/// Where the checksum field is in the header.
pub const CHECKSUM_OFFSET: usize = 16;

/// Flag: no more data from the sender.
pub const FIN: u8 = 0x01;
/// Flag: synchronise sequence numbers.
pub const SYN: u8 = 0x02;
/// Flag: reset the connection.
pub const RST: u8 = 0x04;
/// Flag: push.
pub const PSH: u8 = 0x08;
/// Flag: the acknowledgement number counts.
pub const ACK: u8 = 0x10;
/// Flag: the urgent pointer counts.
pub const URG: u8 = 0x20;
/// Flag: congestion experienced echo (RFC 3168).
pub const ECE: u8 = 0x40;
/// Flag: congestion window reduced (RFC 3168).
pub const CWR: u8 = 0x80;

/// A segment whose header is there.
#[derive(Debug, Clone, Copy)]
pub struct Segment<'a> {
    header: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Views `bytes` as a segment. The checksum is not verified.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] when shorter than its header, [`ParseError::Length`] when the data offset is
    /// below 5 words.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        if bytes.len() < HEADER_LEN {
            return Err(ParseError::Truncated);
        }
        let header_len = usize::from(bytes[12] >> 4) * 4;
        if header_len < HEADER_LEN {
            return Err(ParseError::Length);
        }
        let (header, payload) = bytes.split_at_checked(header_len).ok_or(ParseError::Truncated)?;
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

    /// Sequence number of the first payload byte (or of the SYN).
    pub fn sequence(&self) -> u32 {
        u32_at(self.header, 4)
    }

    /// Acknowledgement number.
    pub fn acknowledgement(&self) -> u32 {
        u32_at(self.header, 8)
    }

    /// The eight flags, such as [`SYN`].
    pub fn flags(&self) -> u8 {
        self.header[13]
    }

    /// Window, unscaled.
    pub fn window(&self) -> u16 {
        u16_at(self.header, 14)
    }

    /// Checksum.
    pub fn checksum(&self) -> u16 {
        u16_at(self.header, CHECKSUM_OFFSET)
    }

    /// Urgent pointer.
    pub fn urgent_pointer(&self) -> u16 {
        u16_at(self.header, 18)
    }

    /// The header's bytes, options included.
    pub fn header(&self) -> &'a [u8] {
        self.header
    }

    /// The options, in order.
    pub fn options(&self) -> Options<'a> {
        Options { bytes: &self.header[HEADER_LEN..], offset: HEADER_LEN }
    }

    /// What follows the header.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// One option other than padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpOption<'a> {
    /// Kind, such as [`TcpOption::MAXIMUM_SEGMENT_SIZE`].
    pub kind: u8,
    /// The bytes behind kind and length.
    pub data: &'a [u8],
    /// Where `data` begins, from the start of the TCP header.
    pub data_offset: usize,
}

impl TcpOption<'_> {
    /// Maximum segment size, 2 bytes of data.
    pub const MAXIMUM_SEGMENT_SIZE: u8 = 2;
    /// Window scale, 1 byte of data (RFC 7323).
    pub const WINDOW_SCALE: u8 = 3;
    /// Selective acknowledgement permitted, no data (RFC 2018).
    pub const SACK_PERMITTED: u8 = 4;
    /// Selective acknowledgement blocks (RFC 2018).
    pub const SACK: u8 = 5;
    /// Timestamps, 8 bytes of data (RFC 7323).
    pub const TIMESTAMPS: u8 = 8;
}

/// Iterates over options; ends at the end-of-options option and at the first malformed one.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Iterator for Options<'a> {
    type Item = TcpOption<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        while let [1, rest @ ..] = self.bytes {
            self.bytes = rest;
            self.offset += 1;
        }
        let [kind, length, ..] = *self.bytes else { return None };
        if kind == 0 {
            return None;
        }
        let (option, rest) = self.bytes.split_at_checked(usize::from(length))?;
        let option = TcpOption { kind, data: option.get(2..)?, data_offset: self.offset + 2 };
        self.bytes = rest;
        self.offset += usize::from(length);
        Some(option)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[rustfmt::skip]
    const SYN_SEGMENT: [u8; 40] = [
        0x9c, 0x40, 0x00, 0x50, 0x01, 0x02, 0x03, 0x04, 0, 0, 0, 0, 0xa0, SYN, 0xfa, 0xf0, 0x12, 0x34, 0, 0,
        2, 4, 0x05, 0xa0, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7,
    ];

    #[test]
    fn fields_and_options_of_a_syn() {
        let segment = Segment::parse(&SYN_SEGMENT).unwrap();
        assert_eq!((segment.source_port(), segment.destination_port()), (40000, 80));
        assert_eq!((segment.sequence(), segment.acknowledgement()), (0x0102_0304, 0));
        assert_eq!((segment.flags(), segment.window(), segment.checksum()), (SYN, 64240, 0x1234));
        assert_eq!(segment.payload(), []);
        let options: Vec<_> = segment.options().collect();
        assert_eq!(
            options[0],
            TcpOption { kind: TcpOption::MAXIMUM_SEGMENT_SIZE, data: &[0x05, 0xa0], data_offset: 22 }
        );
        assert_eq!(
            options[3],
            TcpOption { kind: TcpOption::WINDOW_SCALE, data: &[7], data_offset: 39 },
            "padding before it is skipped"
        );
        assert_eq!(options.len(), 4);
    }

    #[test]
    fn options_end_at_a_malformed_one() {
        let mut bytes = SYN_SEGMENT;
        bytes[25] = 1; // a length that does not cover itself
        assert_eq!(Segment::parse(&bytes).unwrap().options().count(), 1);
        bytes[25] = 17; // one that leaves the header
        assert_eq!(Segment::parse(&bytes).unwrap().options().count(), 1);
        bytes[20] = 0; // end of options
        assert_eq!(Segment::parse(&bytes).unwrap().options().count(), 0);
    }

    #[test]
    fn impossible_headers_are_refused() {
        let mut bytes = SYN_SEGMENT;
        assert_eq!(Segment::parse(&bytes[..39]).unwrap_err(), ParseError::Truncated);
        assert_eq!(Segment::parse(&bytes[..19]).unwrap_err(), ParseError::Truncated);
        bytes[12] = 0x40;
        assert_eq!(Segment::parse(&bytes).unwrap_err(), ParseError::Length);
    }

    proptest! {
        #[test]
        fn agrees_with_etherparse(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            match (Segment::parse(&bytes), etherparse::TcpSlice::from_slice(&bytes)) {
                (Ok(ours), Ok(theirs)) => {
                    prop_assert_eq!(ours.header(), theirs.header_slice());
                    prop_assert_eq!(ours.sequence(), theirs.sequence_number());
                    prop_assert_eq!(ours.flags() & FIN != 0, theirs.fin());
                    prop_assert_eq!(ours.payload(), theirs.payload());
                    prop_assert!(ours.options().count() <= 20);
                }
                (ours, theirs) => prop_assert_eq!(ours.is_ok(), theirs.is_ok()),
            }
        }
    }
}
