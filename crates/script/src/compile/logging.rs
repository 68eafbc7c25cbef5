//! `nf.log` in the kernel: a program tells which line of its text it is at, and the numbers in it, by a ring buffer; the
//! words are put together by who reads that.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Numbers that a line may have: what there is room for on the stack.
pub(super) const MOST_NUMBERS: usize = 8;
/// Octets of a string of the packet whose length is not known, at most; and what one has in a record.
pub(super) const LONGEST: usize = 255;
pub(super) const ROOM: usize = 256;
/// Such strings in a line.
pub(super) const MOST_STRINGS: usize = 4;

/// Numbers that say which octets of a string are dots: a bit for each octet, from the highest of the first on.
pub(super) const DOTS: usize = 4;

/// A call of `nf.log`: its values are one behind the other, with a blank between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line(pub(super) Vec<Part>);

/// A value of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// It is known.
    Text(String),
    Integer,
    Boolean,
    Mac,
    Ipv4,
    /// Two numbers.
    Ipv6,
    /// So many octets, eight in a number; the last one is filled up with zeros.
    Octets(usize),
    /// A string of the packet: its length, and which of its octets are dots if that is not known; the octets are behind all
    /// numbers of the line.
    String {
        lower: bool,
        dotted: bool,
    },
    /// A number, which is zero if it is nil, and what it is otherwise.
    Optional(Box<Part>),
}

impl Part {
    /// How many numbers it takes.
    pub(super) fn numbers(&self) -> usize {
        match self {
            Self::Text(_) => 0,
            Self::Integer | Self::Boolean | Self::Mac | Self::Ipv4 => 1,
            Self::Ipv6 => 2,
            Self::Octets(count) => count.div_ceil(8),
            Self::String { dotted, .. } => 1 + if *dotted { DOTS } else { 0 },
            Self::Optional(part) => 1 + part.numbers(),
        }
    }

    pub(super) fn is_string(&self) -> bool {
        matches!(self, Self::String { .. })
    }

    fn write(&self, f: &mut impl fmt::Write, numbers: &[i64]) -> fmt::Result {
        match (self, numbers) {
            (Self::Text(text), []) => f.write_str(text),
            (Self::Integer, [number]) => write!(f, "{number}"),
            (Self::Boolean, [number]) => write!(f, "{}", *number != 0),
            (Self::Mac, [number]) => {
                let [_, _, octets @ ..] = number.to_be_bytes();
                let octets = octets.map(|octet| format!("{octet:02X}"));
                f.write_str(&octets.join(":"))
            }
            (Self::Ipv4, [number]) => write!(f, "{}", Ipv4Addr::from(*number as u32)),
            (Self::Ipv6, [high, low]) => {
                write!(f, "{}", Ipv6Addr::from(u128::from(*high as u64) << 64 | u128::from(*low as u64)))
            }
            (Self::Octets(count), numbers) => {
                let octets: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
                f.write_str(&String::from_utf8_lossy(&octets[..(*count).min(octets.len())]))
            }
            (Self::String { lower, .. }, [length, more @ ..]) => {
                let (dots, words) = more.split_at(more.len().saturating_sub(ROOM / 8));
                let mut octets: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
                octets.truncate(usize::try_from(*length).unwrap_or(0));
                let is_dot = |at: usize| dots.get(at / 64).is_some_and(|word| word << (at % 64) < 0);
                for (at, octet) in octets.iter_mut().enumerate() {
                    *octet = match is_dot(at) {
                        true => b'.',
                        false if *lower => octet.to_ascii_lowercase(),
                        false => *octet,
                    };
                }
                f.write_str(&String::from_utf8_lossy(&octets))
            }
            (Self::Optional(part), [there, numbers @ ..]) if *there != 0 => part.write(f, numbers),
            _ => f.write_str("nil"),
        }
    }
}

impl Line {
    /// The line with these numbers, as many as it takes: those that are missing are zeros.
    #[must_use]
    pub fn text(&self, numbers: &[i64]) -> String {
        let mut text = String::new();
        let mut numbers = numbers.to_vec();
        let count = self.0.iter().map(Part::numbers).sum();
        let strings = self.0.iter().filter(|part| part.is_string()).count();
        numbers.resize(count + strings * (ROOM / 8), 0);
        let (mut rest, strings) = numbers.split_at(count);
        let mut strings = strings.chunks(ROOM / 8);
        for (place, part) in self.0.iter().enumerate() {
            let (own, others) = rest.split_at(part.numbers());
            let octets = if part.is_string() { strings.next().unwrap_or_default() } else { &[] };
            let own = [own, octets].concat();
            if place > 0 {
                text.push(' ');
            }
            // A string takes whatever is written to it.
            let _ = part.write(&mut text, &own);
            rest = others;
        }
        text
    }
}

/// Octets of a captured packet that are kept, with its link header.
pub const CAPTURED: usize = 1536;
/// Octets before them: the tag, and the length of the packet.
pub(super) const HEAD: usize = 16;
/// The bit of a tag that says that it is of a packet.
pub(super) const OF_PACKET: u32 = 1 << 31;

/// A packet that a program wrote to the ring buffer for `nf.capture`: which program, which of its
/// [names](super::ir::Program::captures), and the packet with its link header, as far as there was room.
#[must_use]
pub fn captured(bytes: &[u8]) -> Option<(u32, usize, &[u8])> {
    let (tag, rest) = bytes.split_first_chunk::<8>()?;
    let tag = u64::from_ne_bytes(*tag);
    let name = (tag as u32 & OF_PACKET != 0).then_some((tag as u32 & !OF_PACKET) as usize)?;
    Some(((tag >> 32) as u32, name, rest.get(HEAD - 8..)?))
}

/// What a program wrote to the ring buffer: which program it is ([`super::account::Log`]), which of its
/// [lines](super::ir::Program::lines), and the numbers.
#[must_use]
pub fn record(bytes: &[u8]) -> Option<(u32, usize, Vec<i64>)> {
    let (words, _) = bytes.as_chunks::<8>();
    let (tag, numbers) = words.split_first()?;
    let tag = u64::from_ne_bytes(*tag);
    if tag as u32 & OF_PACKET != 0 {
        return None;
    }
    let numbers = numbers.iter().map(|word| i64::from_ne_bytes(*word)).collect();
    Some(((tag >> 32) as u32, tag as u32 as usize, numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_lua() {
        let optional = Part::Optional(Box::new(Part::Integer));
        let parts = [
            Part::Text("from".into()),
            Part::Ipv6,
            Part::Ipv4,
            Part::Mac,
            Part::Boolean,
            optional.clone(),
            optional,
            Part::Octets(10),
        ];
        let numbers = [0x2001_0db8 << 32, 1, 0xc000_0201, 0x0200_0000_00ab, 1, 1, -7, 0, 5];
        let octets = [i64::from_be_bytes(*b"octets, "), i64::from_be_bytes(*b"9\xff------")];
        assert_eq!(
            Line(parts.to_vec()).text(&[&numbers[..], &octets].concat()),
            "from 2001:db8::1 192.0.2.1 02:00:00:00:00:AB true -7 nil octets, 9\u{fffd}"
        );
        assert_eq!(Line(vec![Part::Integer]).text(&[]), "0", "what somebody else wrote");
    }

    #[test]
    fn records_are_read() {
        let words = [7_u64 << 32 | 2, 5, u64::MAX];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(record(&bytes), Some((7, 2, vec![5, -1])));
        assert_eq!(record(&bytes[..7]), None);
    }
}
