//! Capture files in the format pcapng (draft-ietf-opsawg-pcapng), which Wireshark writes.
//!
//! Files of both byte orders are read, of any number of sections and interfaces: packets in Enhanced and Simple Packet
//! Blocks, and what else there is passed over. Written are little-endian ones of one section, with nanoseconds.
//!
//! ```
//! use sidestep_wire::pcap::{LINKTYPE_ETHERNET, Record};
//! use sidestep_wire::pcapng::{Capture, enhanced_packet, interface, section};
//! use std::time::Duration;
//!
//! let record = Record { time: Duration::new(1_700_000_000, 5), octets: b"a frame" };
//! let file = [section(), interface(LINKTYPE_ETHERNET, 65_535), enhanced_packet(0, &record)].concat();
//!
//! let capture = Capture::parse(&file)?;
//! let packets: Vec<_> = capture.records().collect::<Result<_, _>>()?;
//! assert_eq!(packets, [(LINKTYPE_ETHERNET, record)]);
//! # Ok::<(), sidestep_wire::ParseError>(())
//! ```

use std::time::Duration;

use crate::ParseError;
use crate::pcap::{ByteOrder, Record};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// Type, and the length at both ends.
const FRAME: usize = 12;

// Options of interfaces.
const END: u16 = 0;
const RESOLUTION: u16 = 9;
const OFFSET: u16 = 14;
/// As the resolution: 10^-9.
const NANOSECONDS: u8 = 9;

/// A capture file that has been read.
#[derive(Debug, Clone, Copy)]
pub struct Capture<'a> {
    blocks: &'a [u8],
}

/// Where packets were captured.
#[derive(Debug, Clone, Copy)]
struct Interface {
    link_type: u16,
    /// Octets that are captured of a packet; 0: all.
    longest: u32,
    /// Units of time in a second.
    per_second: u128,
    /// What is added to times, in seconds.
    offset: i64,
}

/// Goes through the blocks.
struct Blocks<'a> {
    rest: &'a [u8],
    order: ByteOrder,
    interfaces: Vec<Interface>,
}

/// An item of a capture: the link type of a packet, and the packet.
type Packet<'a> = (u16, Record<'a>);

impl<'a> Capture<'a> {
    /// Views `file` as a capture; what is in it may be truncated.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] if it is shorter than the first header, [`ParseError::Type`] if it is of another format.
    pub fn parse(file: &'a [u8]) -> Result<Self, ParseError> {
        let header: &[u8; FRAME] = file.first_chunk().ok_or(ParseError::Truncated)?;
        let (order, begins) = (order_of(header), ByteOrder::Little.u32_at(header, 0) == SECTION);
        if !begins || order.is_none() { Err(ParseError::Type) } else { Ok(Self { blocks: file }) }
    }

    /// The packets with their link types, numbers from the registry of them, in their order. The last item is an error if
    /// the file ends within a block ([`ParseError::Truncated`]), or if a block is none ([`ParseError::Length`]).
    pub fn records(&self) -> impl Iterator<Item = Result<Packet<'a>, ParseError>> + use<'a> {
        let mut blocks = Blocks { rest: self.blocks, order: ByteOrder::Little, interfaces: Vec::new() };
        std::iter::from_fn(move || {
            let next = blocks.next_packet();
            if matches!(next, Some(Err(_))) {
                blocks.rest = &[];
            }
            next
        })
    }
}

/// The byte order that a section header tells behind its type and length.
fn order_of(header: &[u8]) -> Option<ByteOrder> {
    [ByteOrder::Little, ByteOrder::Big].into_iter().find(|order| order.u32_at(header, 8) == BYTE_ORDER)
}

impl<'a> Blocks<'a> {
    fn next_packet(&mut self) -> Option<Result<Packet<'a>, ParseError>> {
        while !self.rest.is_empty() {
            match self.block() {
                Ok(None) => {}
                Ok(Some(packet)) => return Some(Ok(packet)),
                Err(error) => return Some(Err(error)),
            }
        }
        None
    }

    fn block(&mut self) -> Result<Option<Packet<'a>>, ParseError> {
        if self.rest.len() < FRAME {
            return Err(ParseError::Truncated);
        }
        // The type of a section's header is the same in both orders.
        if ByteOrder::Little.u32_at(self.rest, 0) == SECTION {
            self.order = order_of(self.rest).ok_or(ParseError::Type)?;
            self.interfaces.clear();
        }
        let kind = self.order.u32_at(self.rest, 0);
        let length = self.order.u32_at(self.rest, 4) as usize;
        if length < FRAME || !length.is_multiple_of(4) {
            return Err(ParseError::Length);
        }
        let (block, rest) = self.rest.split_at_checked(length).ok_or(ParseError::Truncated)?;
        self.rest = rest;
        let body = &block[8..length - 4];
        match kind {
            INTERFACE => self.interface(body).map(|()| None),
            SIMPLE_PACKET => self.simple(body).map(Some),
            ENHANCED_PACKET => self.enhanced(body).map(Some),
            _ => Ok(None),
        }
    }

    fn interface(&mut self, body: &[u8]) -> Result<(), ParseError> {
        let (head, mut options) = body.split_at_checked(8).ok_or(ParseError::Length)?;
        let (link_type, longest) = (self.order.u16_at(head, 0), self.order.u32_at(head, 4));
        let mut interface = Interface { link_type, longest, per_second: 1_000_000, offset: 0 };
        while let Some((head, rest)) = options.split_at_checked(4) {
            let (code, length) = (self.order.u16_at(head, 0), usize::from(self.order.u16_at(head, 2)));
            let Some((padded, rest)) = rest.split_at_checked(length.next_multiple_of(4)) else { break };
            match (code, &padded[..length]) {
                (END, _) => break,
                (RESOLUTION, [resolution]) => interface.per_second = units(*resolution)?,
                (OFFSET, value) if value.len() == 8 => interface.offset = self.order.u64_at(value, 0) as i64,
                _ => {}
            }
            options = rest;
        }
        self.interfaces.push(interface);
        Ok(())
    }

    fn enhanced(&self, body: &'a [u8]) -> Result<Packet<'a>, ParseError> {
        let (head, rest) = body.split_at_checked(20).ok_or(ParseError::Length)?;
        let field = |at| self.order.u32_at(head, at);
        let interface = self.interfaces.get(field(0) as usize).ok_or(ParseError::Value)?;
        let octets = rest.get(..field(12) as usize).ok_or(ParseError::Length)?;
        let time = interface.time(u64::from(field(4)) << 32 | u64::from(field(8)));
        Ok((interface.link_type, Record { time, octets }))
    }

    /// A packet of the first interface, without a time.
    fn simple(&self, body: &'a [u8]) -> Result<Packet<'a>, ParseError> {
        let (head, rest) = body.split_at_checked(4).ok_or(ParseError::Length)?;
        let interface = self.interfaces.first().ok_or(ParseError::Value)?;
        let longest = if interface.longest == 0 { u32::MAX } else { interface.longest };
        let length = self.order.u32_at(head, 0).min(longest) as usize;
        let octets = rest.get(..length).ok_or(ParseError::Length)?;
        Ok((interface.link_type, Record { time: Duration::ZERO, octets }))
    }
}

impl Interface {
    /// A time since 1970; what comes before is that moment.
    fn time(&self, units: u64) -> Duration {
        let (units, per_second) = (u128::from(units), self.per_second);
        let seconds = (units / per_second) as u64;
        let nanoseconds = (units % per_second) * 1_000_000_000 / per_second;
        let time = Duration::new(seconds, nanoseconds as u32);
        let offset = Duration::from_secs(self.offset.unsigned_abs());
        if self.offset < 0 { time.saturating_sub(offset) } else { time.saturating_add(offset) }
    }
}

/// Units of time in a second: a negative power of ten, or of two where the first bit is set.
fn units(resolution: u8) -> Result<u128, ParseError> {
    let base: u128 = if resolution & 0x80 == 0 { 10 } else { 2 };
    let exponent = u32::from(resolution & 0x7f);
    // A unit that is much smaller than a nanosecond is told by nobody.
    base.checked_pow(exponent).filter(|units| *units <= 1 << 64).ok_or(ParseError::Value)
}

/// The header of a file: of its only section.
pub fn section() -> Vec<u8> {
    let version = [1_u16.to_le_bytes(), 0_u16.to_le_bytes()].concat();
    // How long the section is, is not told.
    block(SECTION, &[&BYTE_ORDER.to_le_bytes()[..], &version, &u64::MAX.to_le_bytes()].concat())
}

/// An interface: the first one that is written has number 0. No packet has more octets in the file.
pub fn interface(link_type: u16, longest: u32) -> Vec<u8> {
    let mut body = [link_type.to_le_bytes(), [0; 2]].concat();
    body.extend(longest.to_le_bytes());
    body.extend([RESOLUTION.to_le_bytes(), 1_u16.to_le_bytes()].as_flattened());
    body.extend([NANOSECONDS, 0, 0, 0]);
    body.extend([END.to_le_bytes(), [0; 2]].as_flattened());
    block(INTERFACE, &body)
}

/// A packet that came to the interface of this number.
pub fn enhanced_packet(interface: u32, record: &Record<'_>) -> Vec<u8> {
    // Until the year 2554.
    let time = record.time.as_nanos() as u64;
    let length = record.octets.len() as u32;
    let fields = [interface, (time >> 32) as u32, time as u32, length, length];
    let mut body = fields.map(u32::to_le_bytes).as_flattened().to_vec();
    body.extend(record.octets);
    body.resize(body.len().next_multiple_of(4), 0);
    block(ENHANCED_PACKET, &body)
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let length = ((FRAME + body.len()) as u32).to_le_bytes();
    [&kind.to_le_bytes()[..], &length, body, &length].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn records(file: &[u8]) -> Result<Vec<Packet<'_>>, ParseError> {
        Capture::parse(file)?.records().collect()
    }

    /// A file of one interface with these options, in either order.
    fn written(order: ByteOrder, options: &[u8], time: u64, octets: &[u8]) -> Vec<u8> {
        let word = |value: u32| match order {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        };
        let half = |value: u16| match order {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        };
        let block = |kind: u32, body: &[u8]| {
            let length = word((FRAME + body.len()) as u32);
            [&word(kind)[..], &length, body, &length].concat()
        };
        let section = [&word(BYTE_ORDER)[..], &half(1), &half(0), &[0xff; 8]].concat();
        let interface = [&half(101)[..], &half(0), &word(0), options].concat();
        let length = word(octets.len() as u32);
        let mut packet =
            [&word(0)[..], &word((time >> 32) as u32), &word(time as u32), &length, &length].concat();
        packet.extend(octets);
        packet.resize(packet.len().next_multiple_of(4), 0);
        let unknown = block(0x0bad, &[0; 4]);
        [block(SECTION, &section), unknown, block(INTERFACE, &interface), block(ENHANCED_PACKET, &packet)]
            .concat()
    }

    #[test]
    fn captures_of_both_byte_orders_are_read() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let file = written(order, &[], (1 << 33) + 5, b"three");
            let time = Duration::from_micros((1 << 33) + 5);
            assert_eq!(records(&file).unwrap(), [(101, Record { time, octets: b"three" })]);
        }
    }

    #[test]
    fn times_are_in_the_units_of_their_interface() {
        let resolution = |value: u8| [RESOLUTION.to_le_bytes(), [1, 0], [value, 0], [0, 0]].concat();
        let offset = |value: i64| [&OFFSET.to_le_bytes()[..], &[8, 0], &value.to_le_bytes()].concat();
        for (options, units, wanted) in [
            (resolution(9), 1_500_000_000, Duration::from_millis(1500)),
            (resolution(0x81), 3, Duration::from_millis(1500)),
            (offset(100), 1, Duration::from_secs(100) + Duration::from_micros(1)),
            (offset(-100), 1, Duration::ZERO),
        ] {
            let file = written(ByteOrder::Little, &options, units, b"");
            assert_eq!(records(&file).unwrap()[0].1.time, wanted);
        }
        let file = written(ByteOrder::Little, &resolution(0xff), 1, b"");
        assert_eq!(records(&file), Err(ParseError::Value));
    }

    #[test]
    fn what_is_no_capture_or_ends_too_early_is_refused() {
        assert_eq!(records(&[0xa1; 40]), Err(ParseError::Type));
        assert_eq!(records(&[0x0a; 3]), Err(ParseError::Truncated));
        let whole = [section(), interface(1, 0)].concat();
        let packet = enhanced_packet(0, &Record { time: Duration::ZERO, octets: b"one" });
        let mut file = [&whole[..], &packet, &packet].concat();
        file.pop();
        let read: Vec<_> =
            Capture::parse(&file).unwrap().records().map(|one| one.map(|one| one.1.octets)).collect();
        assert_eq!(read, [Ok(&b"one"[..]), Err(ParseError::Truncated)]);
        let nobodys = enhanced_packet(7, &Record { time: Duration::ZERO, octets: b"one" });
        assert_eq!(records(&[whole, nobodys].concat()), Err(ParseError::Value));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            packets in proptest::collection::vec(
                (0..2_u32, any::<u32>(), 0..1_000_000_000u32, proptest::collection::vec(any::<u8>(), 0..50)),
                0..6,
            ),
        ) {
            let mut file = [section(), interface(1, 65_535), interface(101, 65_535)].concat();
            let wanted: Vec<_> = packets
                .iter()
                .map(|(interface, seconds, nanos, octets)| {
                    let record = Record { time: Duration::new((*seconds).into(), *nanos), octets };
                    ([1, 101][*interface as usize], record)
                })
                .collect();
            for ((interface, ..), (_, record)) in packets.iter().zip(&wanted) {
                file.extend(enhanced_packet(*interface, record));
            }
            prop_assert_eq!(records(&file).unwrap(), wanted);
        }

        #[test]
        fn never_panics(
            tail in proptest::collection::vec(any::<u8>(), 0..200),
            at in 0..150_usize,
            octet: u8,
        ) {
            let mut file = [section(), interface(1, 0), tail.clone()].concat();
            let _ = records(&file);
            let _ = records(&tail);
            file.extend(enhanced_packet(0, &Record { time: Duration::ZERO, octets: b"one" }));
            let length = file.len();
            file[at % length] = octet;
            let _ = records(&file);
        }
    }
}
