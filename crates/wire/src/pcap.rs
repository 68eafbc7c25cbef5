//! Capture files in the classic format of libpcap (draft-ietf-opsawg-pcap), which tcpdump writes and most tools read.
//!
//! Files of both byte orders and both units of time are read. Written are little-endian ones with nanoseconds.
//!
//! ```
//! use sidestep_wire::pcap::{Capture, Header, LINKTYPE_ETHERNET, Record};
//! use std::time::Duration;
//!
//! let header = Header { link_type: LINKTYPE_ETHERNET, longest: 65_535 };
//! let record = Record { time: Duration::new(1_700_000_000, 5), octets: b"a frame" };
//! let file = [&header.to_bytes()[..], &record.header(), record.octets].concat();
//!
//! let capture = Capture::parse(&file)?;
//! assert_eq!(capture.link_type(), LINKTYPE_ETHERNET);
//! assert_eq!(capture.records().next(), Some(Ok(record)));
//! # Ok::<(), sidestep_wire::ParseError>(())
//! ```

use std::time::Duration;

use crate::ParseError;

/// Length of the header of a file.
pub const HEADER_LEN: usize = 24;
/// Length of the header of a packet in a file.
pub const RECORD_HEADER_LEN: usize = 16;
/// Packets begin with an Ethernet header.
pub const LINKTYPE_ETHERNET: u16 = 1;
/// Packets begin with an IP header, of either version.
pub const LINKTYPE_RAW: u16 = 101;

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
const VERSION: [u16; 2] = [2, 4];

/// A capture file that has been read.
#[derive(Debug, Clone, Copy)]
pub struct Capture<'a> {
    order: ByteOrder,
    /// Nanoseconds of the unit of time.
    unit: u64,
    link_type: u16,
    records: &'a [u8],
}

/// The order of the machine that wrote the file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ByteOrder {
    Little,
    Big,
}

impl<'a> Capture<'a> {
    /// Views `file` as a capture; its records may be truncated.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] if it ends before its header does, [`ParseError::Type`] if it is of another format, such
    /// as pcapng.
    pub fn parse(file: &'a [u8]) -> Result<Self, ParseError> {
        let (header, records) = file.split_first_chunk::<HEADER_LEN>().ok_or(ParseError::Truncated)?;
        let mut orders = [ByteOrder::Little, ByteOrder::Big].into_iter();
        let (order, unit) = orders
            .find_map(|order| match order.u32_at(header, 0) {
                MICROSECONDS => Some((order, 1_000)),
                NANOSECONDS => Some((order, 1)),
                _ => None,
            })
            .ok_or(ParseError::Type)?;
        // The upper bits tell of frame check sequences.
        let link_type = order.u32_at(header, 20) as u16;
        Ok(Self { order, unit, link_type, records })
    }

    /// What the packets begin with, a number from the registry of link types.
    pub fn link_type(&self) -> u16 {
        self.link_type
    }

    /// The packets, in their order. The last item is [`ParseError::Truncated`] if the file ends within a packet.
    pub fn records(&self) -> impl Iterator<Item = Result<Record<'a>, ParseError>> + use<'a> {
        let mut capture = *self;
        std::iter::from_fn(move || {
            if capture.records.is_empty() {
                return None;
            }
            let record = capture.record();
            if record.is_err() {
                capture.records = &[];
            }
            Some(record)
        })
    }

    fn record(&mut self) -> Result<Record<'a>, ParseError> {
        let (header, rest) =
            self.records.split_first_chunk::<RECORD_HEADER_LEN>().ok_or(ParseError::Truncated)?;
        let field = |at| self.order.u32_at(header, at);
        let fraction = Duration::from_nanos(u64::from(field(4)) * self.unit);
        let time = Duration::from_secs(field(0).into()) + fraction;
        let (octets, rest) = rest.split_at_checked(field(8) as usize).ok_or(ParseError::Truncated)?;
        self.records = rest;
        Ok(Record { time, octets })
    }
}

impl ByteOrder {
    pub(crate) fn u16_at(self, bytes: &[u8], at: usize) -> u16 {
        let bytes = [bytes[at], bytes[at + 1]];
        match self {
            ByteOrder::Little => u16::from_le_bytes(bytes),
            ByteOrder::Big => u16::from_be_bytes(bytes),
        }
    }

    pub(crate) fn u64_at(self, bytes: &[u8], at: usize) -> u64 {
        let (first, second) = (u64::from(self.u32_at(bytes, at)), u64::from(self.u32_at(bytes, at + 4)));
        match self {
            ByteOrder::Little => second << 32 | first,
            ByteOrder::Big => first << 32 | second,
        }
    }

    pub(crate) fn u32_at(self, bytes: &[u8], at: usize) -> u32 {
        let bytes = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        match self {
            ByteOrder::Little => u32::from_le_bytes(bytes),
            ByteOrder::Big => u32::from_be_bytes(bytes),
        }
    }
}

/// A packet of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// When it was captured, in Unix time.
    pub time: Duration,
    /// What was captured of it.
    pub octets: &'a [u8],
}

impl Record<'_> {
    /// What goes before `octets` in the file.
    pub fn header(&self) -> [u8; RECORD_HEADER_LEN] {
        let length = self.octets.len() as u32;
        let fields = [self.time.as_secs() as u32, self.time.subsec_nanos(), length, length];
        let mut header = [0; RECORD_HEADER_LEN];
        header.copy_from_slice(fields.map(u32::to_le_bytes).as_flattened());
        header
    }
}

/// The header of a file to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the packets begin with.
    pub link_type: u16,
    /// No packet has more octets in the file.
    pub longest: u32,
}

impl Header {
    /// The header as written.
    pub fn to_bytes(self) -> [u8; HEADER_LEN] {
        let [major, minor] = VERSION;
        let version = u32::from(minor) << 16 | u32::from(major);
        let fields = [NANOSECONDS, version, 0, 0, self.longest, self.link_type.into()];
        let mut header = [0; HEADER_LEN];
        header.copy_from_slice(fields.map(u32::to_le_bytes).as_flattened());
        header
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(order: ByteOrder, magic: u32, link_type: u32, packets: &[&[u8]]) -> Vec<u8> {
        let word = |value: u32| match order {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        };
        let mut file = Vec::new();
        for value in [magic, 0x0004_0002, 0, 0, 65_535, link_type] {
            file.extend(word(value));
        }
        for packet in packets {
            for value in [1, 2, packet.len() as u32, packet.len() as u32] {
                file.extend(word(value));
            }
            file.extend(*packet);
        }
        file
    }

    #[test]
    fn captures_of_both_byte_orders_and_units_are_read() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            for (magic, nanoseconds) in [(MICROSECONDS, 2_000), (NANOSECONDS, 2)] {
                let file = written(order, magic, 0x1000_0065, &[b"one", b"", b"three"]);
                let capture = Capture::parse(&file).unwrap();
                let records: Vec<_> = capture.records().map(Result::unwrap).collect();
                assert_eq!(
                    records.iter().map(|record| record.octets).collect::<Vec<_>>(),
                    [&b"one"[..], b"", b"three"]
                );
                assert_eq!((capture.link_type(), records[0].time), (101, Duration::new(1, nanoseconds)));
            }
        }
    }

    #[test]
    fn a_file_that_is_still_being_written_ends_with_its_last_whole_packet() {
        let mut file = written(ByteOrder::Little, NANOSECONDS, 1, &[b"one", b"two"]);
        file.pop();
        let capture = Capture::parse(&file).unwrap();
        let records: Vec<_> = capture.records().map(|record| record.map(|record| record.octets)).collect();
        assert_eq!(records, [Ok(&b"one"[..]), Err(ParseError::Truncated)]);
    }

    #[test]
    fn other_formats_are_refused() {
        assert_eq!(Capture::parse(&[0x0a; 40]).unwrap_err(), ParseError::Type);
        assert_eq!(Capture::parse(&[0xa1; 3]).unwrap_err(), ParseError::Truncated);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            packets in proptest::collection::vec(
                (any::<u32>(), 0..1_000_000_000u32, proptest::collection::vec(any::<u8>(), 0..50)),
                0..6,
            ),
        ) {
            let mut file = Header { link_type: LINKTYPE_ETHERNET, longest: 50 }.to_bytes().to_vec();
            let records: Vec<_> = packets
                .iter()
                .map(|(seconds, nanos, octets)| Record { time: Duration::new((*seconds).into(), *nanos), octets })
                .collect();
            for record in &records {
                file.extend(record.header());
                file.extend(record.octets);
            }
            let capture = Capture::parse(&file).unwrap();
            prop_assert_eq!(capture.records().collect::<Result<Vec<_>, _>>().unwrap(), records);
        }

        #[test]
        fn never_panics(tail in proptest::collection::vec(any::<u8>(), 0..200)) {
            let file = [&written(ByteOrder::Little, MICROSECONDS, 1, &[])[..], &tail].concat();
            prop_assert!(Capture::parse(&file).unwrap().records().count() <= tail.len() / RECORD_HEADER_LEN + 1);
            let _ = Capture::parse(&tail);
        }
    }
}
