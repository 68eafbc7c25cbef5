//! TCP (RFC 9293): the header and its options, to read and to send.

use crate::ParseError;
use crate::bytes::{put_u16, put_u32, u16_at, u32_at};

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

/// Timestamps option (RFC 7323 §3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub value: u32,
    /// TSecr: the clock of the other end, as last heard.
    pub echo: u32,
}

/// Blocks of a SACK option (RFC 2018 §3): first sequence number, and the one behind the last.
#[derive(Debug, Clone, Copy, Default)]
pub struct SackBlocks {
    blocks: [(u32, u32); SackBlocks::MAX],
    count: u8,
}

impl SackBlocks {
    /// As many as an option list has room for.
    pub const MAX: usize = 4;

    /// Adds a block; `false` if there are [`MAX`](Self::MAX) already.
    pub fn push(&mut self, start: u32, end: u32) -> bool {
        let Some(block) = self.blocks.get_mut(usize::from(self.count)) else { return false };
        *block = (start, end);
        self.count += 1;
        true
    }

    /// Sorts the blocks by where they begin, counted from `origin` around the circle of sequence numbers.
    pub fn sort_by_distance(&mut self, origin: u32) {
        let count = usize::from(self.count);
        self.blocks[..count].sort_unstable_by_key(|(start, _)| start.wrapping_sub(origin));
    }

    /// Leaves the first `count`.
    pub fn truncate(&mut self, count: usize) {
        self.count = self.count.min(u8::try_from(count).unwrap_or(u8::MAX));
    }

    /// The blocks, in order.
    pub fn as_slice(&self) -> &[(u32, u32)] {
        &self.blocks[..usize::from(self.count)]
    }

    /// Bytes that the option takes, with the padding before it; 0 without blocks.
    pub const fn option_len(&self) -> usize {
        if self.count == 0 { 0 } else { 4 + 8 * self.count as usize }
    }
}

impl PartialEq for SackBlocks {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for SackBlocks {}

/// The options that a TCP of today understands, as received or to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SegmentOptions {
    /// Maximum segment size.
    pub maximum_segment_size: Option<u16>,
    /// Shift of the window (RFC 7323 §2).
    pub window_scale: Option<u8>,
    /// Selective acknowledgement permitted.
    pub sack_permitted: bool,
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
    /// Selective acknowledgement.
    pub sack: SackBlocks,
}

impl SegmentOptions {
    /// Reads the options of a segment. Those of unknown kind or with a wrong length are skipped; of two of one kind
    /// the last counts.
    pub fn of(segment: &Segment<'_>) -> Self {
        let mut read = Self::default();
        for option in segment.options() {
            match (option.kind, option.data) {
                (TcpOption::MAXIMUM_SEGMENT_SIZE, [a, b]) => {
                    read.maximum_segment_size = Some(u16::from_be_bytes([*a, *b]));
                }
                (TcpOption::WINDOW_SCALE, [shift]) => read.window_scale = Some(*shift),
                (TcpOption::SACK_PERMITTED, []) => read.sack_permitted = true,
                (TcpOption::TIMESTAMPS, data) if data.len() == 8 => {
                    read.timestamps = Some(Timestamps { value: u32_at(data, 0), echo: u32_at(data, 4) });
                }
                (TcpOption::SACK, data) if data.len().is_multiple_of(8) => {
                    read.sack = SackBlocks::default();
                    for block in data.chunks_exact(8) {
                        read.sack.push(u32_at(block, 0), u32_at(block, 4));
                    }
                }
                _ => {}
            }
        }
        read
    }

    /// Bytes that they take in a header, padding included. SACK blocks that find no room are not counted, and not sent.
    pub fn len(&self) -> usize {
        let fixed = self.fixed_len();
        fixed + self.sent_sack(fixed).option_len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn fixed_len(&self) -> usize {
        let size = if self.maximum_segment_size.is_some() { 4 } else { 0 };
        let timestamps = if self.timestamps.is_some() { 12 } else { 0 };
        // Beside timestamps, SACK-permitted takes the place of their padding.
        let permitted = if self.sack_permitted && timestamps == 0 { 4 } else { 0 };
        let scale = if self.window_scale.is_some() { 4 } else { 0 };
        size + timestamps + permitted + scale
    }

    fn sent_sack(&self, fixed: usize) -> SackBlocks {
        let room = (MAX_HEADER_LEN - HEADER_LEN).saturating_sub(fixed + 4) / 8;
        let mut sack = self.sack;
        sack.truncate(room);
        sack
    }
}

/// The header of a segment to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Sequence number of the first payload byte (or of the SYN).
    pub sequence: u32,
    /// Acknowledgement number.
    pub acknowledgement: u32,
    /// The eight flags, such as [`SYN`].
    pub flags: u8,
    /// Window, unscaled.
    pub window: u16,
    /// Checksum, over the pseudo-header, the header and the payload.
    pub checksum: u16,
    /// Urgent pointer.
    pub urgent_pointer: u16,
    /// Options.
    pub options: SegmentOptions,
}

impl Header {
    /// The header as sent.
    pub fn to_bytes(self) -> HeaderBytes {
        let mut out = HeaderBytes { bytes: [0; MAX_HEADER_LEN], len: HEADER_LEN };
        let options = &self.options;
        if let Some(size) = options.maximum_segment_size {
            out.put(&[TcpOption::MAXIMUM_SEGMENT_SIZE, 4]);
            out.put(&size.to_be_bytes());
        }
        // The order and padding that Linux uses: equal headers are what lets receivers coalesce.
        match (options.sack_permitted, options.timestamps) {
            (true, Some(_)) => out.put(&[TcpOption::SACK_PERMITTED, 2]),
            (true, None) => out.put(&[1, 1, TcpOption::SACK_PERMITTED, 2]),
            (false, Some(_)) => out.put(&[1, 1]),
            (false, None) => {}
        }
        if let Some(timestamps) = options.timestamps {
            out.put(&[TcpOption::TIMESTAMPS, 10]);
            out.put(&timestamps.value.to_be_bytes());
            out.put(&timestamps.echo.to_be_bytes());
        }
        if let Some(shift) = options.window_scale {
            out.put(&[1, TcpOption::WINDOW_SCALE, 3, shift]);
        }
        let sack = options.sent_sack(options.fixed_len());
        if !sack.as_slice().is_empty() {
            out.put(&[1, 1, TcpOption::SACK, sack.option_len() as u8 - 2]);
            for (start, end) in sack.as_slice() {
                out.put(&start.to_be_bytes());
                out.put(&end.to_be_bytes());
            }
        }

        let words = (out.len / 4) as u8;
        put_u16(&mut out.bytes, 0, self.source_port);
        put_u16(&mut out.bytes, 2, self.destination_port);
        put_u32(&mut out.bytes, 4, self.sequence);
        put_u32(&mut out.bytes, 8, self.acknowledgement);
        out.bytes[12] = words << 4;
        out.bytes[13] = self.flags;
        put_u16(&mut out.bytes, 14, self.window);
        put_u16(&mut out.bytes, CHECKSUM_OFFSET, self.checksum);
        put_u16(&mut out.bytes, 18, self.urgent_pointer);
        out
    }
}

/// A header as sent: a slice of 20 to 60 bytes.
#[derive(Debug, Clone, Copy)]
pub struct HeaderBytes {
    bytes: [u8; MAX_HEADER_LEN],
    len: usize,
}

impl HeaderBytes {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

impl std::ops::Deref for HeaderBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
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

    #[test]
    fn a_syn_is_built_as_it_is_read() {
        let options = SegmentOptions {
            maximum_segment_size: Some(1440),
            window_scale: Some(7),
            sack_permitted: true,
            timestamps: Some(Timestamps { value: 1, echo: 0 }),
            sack: SackBlocks::default(),
        };
        let header = Header {
            source_port: 40000,
            destination_port: 80,
            sequence: 0x0102_0304,
            flags: SYN,
            window: 64240,
            checksum: 0x1234,
            options,
            ..Header::default()
        };
        assert_eq!(header.to_bytes()[..], SYN_SEGMENT);
        assert_eq!(SegmentOptions::of(&Segment::parse(&SYN_SEGMENT).unwrap()), options);
    }

    #[test]
    fn sack_blocks_that_find_no_room_are_left_out() {
        let mut sack = SackBlocks::default();
        for n in 0..4 {
            assert!(sack.push(n, n + 1));
        }
        assert!(!sack.push(9, 10));
        let timestamps = Some(Timestamps { value: 1, echo: 2 });
        let mut options = SegmentOptions { timestamps, sack, ..SegmentOptions::default() };
        assert_eq!(options.len(), 40, "three beside timestamps (RFC 2018 §3)");
        let bytes = Header { options, ..Header::default() }.to_bytes();
        let read = SegmentOptions::of(&Segment::parse(&bytes).unwrap());
        assert_eq!(read.sack.as_slice(), [(0, 1), (1, 2), (2, 3)]);
        options.timestamps = None;
        assert_eq!(options.len(), 36);
    }

    fn any_options() -> impl Strategy<Value = SegmentOptions> {
        let sack = proptest::collection::vec(any::<(u32, u32)>(), 0..=4);
        (any::<Option<u16>>(), any::<Option<u8>>(), any::<bool>(), any::<Option<(u32, u32)>>(), sack)
            .prop_map(|(maximum_segment_size, window_scale, sack_permitted, timestamps, blocks)| {
                let mut sack = SackBlocks::default();
                for (start, end) in blocks {
                    sack.push(start, end);
                }
                let timestamps = timestamps.map(|(value, echo)| Timestamps { value, echo });
                SegmentOptions { maximum_segment_size, window_scale, sack_permitted, timestamps, sack }
            })
    }

    proptest! {
        #[test]
        fn what_is_built_parses_to_the_same(
            ports: (u16, u16), numbers: (u32, u32), flags: u8, window: u16, options in any_options()
        ) {
            let header = Header {
                source_port: ports.0, destination_port: ports.1, sequence: numbers.0,
                acknowledgement: numbers.1, flags, window, checksum: 1, urgent_pointer: 2, options,
            };
            let bytes = header.to_bytes();
            prop_assert_eq!(bytes.len(), HEADER_LEN + options.len());
            let read = Segment::parse(&bytes).unwrap();
            prop_assert!(read.payload().is_empty());
            let again = Header {
                source_port: read.source_port(), destination_port: read.destination_port(),
                sequence: read.sequence(), acknowledgement: read.acknowledgement(), flags: read.flags(),
                window: read.window(), checksum: read.checksum(), urgent_pointer: read.urgent_pointer(),
                options: SegmentOptions::of(&read),
            };
            let mut expected = header;
            expected.options.sack.truncate(again.options.sack.as_slice().len());
            prop_assert_eq!(again, expected);
        }

        #[test]
        fn options_never_panic(bytes in proptest::collection::vec(any::<u8>(), 20..80)) {
            if let Ok(segment) = Segment::parse(&bytes) { SegmentOptions::of(&segment); }
        }

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
