//! `nf.log` and traces in the kernel: a program tells which line of its text it is at, and the numbers in it, by a ring
//! buffer; the words are put together by who reads that.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::logged::{Logged, Scalar};
use crate::trace;

/// Numbers that a line may have: what there is room for on the stack.
pub(super) const MOST_NUMBERS: usize = 8;
/// Octets of a string of the packet whose length is not known, at most; and what one has in a record.
pub(super) const LONGEST: usize = 255;
pub(super) const ROOM: usize = 256;
/// Such strings in a line.
pub(super) const MOST_STRINGS: usize = 4;

/// Numbers that say which octets of a string are dots: a bit for each octet, from the highest of the first on.
pub(super) const DOTS: usize = 4;

/// What a program tells in a record: a call of `nf.log`, or a part of a packet's trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub(super) form: Form,
    /// Its values.
    pub(super) parts: Vec<Part>,
}

/// What the values of a line are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Of `nf.log`: words, behind them fields with these names.
    Log(Vec<String>),
    /// A packet begins that is followed: its length, and its first octets.
    Begin,
    /// It has come by this line of the script, with what these variables have; or, without a name, a condition.
    Point(u32, Vec<String>),
    /// It ends: place among the counters, whether it was changed, and the [fault](super::account::fault).
    End,
}

/// A value of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// It is known.
    Text(String),
    /// What there is of it to say is known: it is no string.
    Bare(String),
    Nil,
    Integer,
    Boolean,
    Mac,
    Ipv4,
    /// Two numbers.
    Ipv6,
    /// So many octets, eight in a number; the last one is filled up with zeros.
    Octets(usize),
    /// A byte array, of which only the length is told.
    Length,
    /// A string of the packet: its length, and which of its octets are dots if that is not known; the octets are behind all
    /// numbers of the line.
    String {
        lower: bool,
        dotted: bool,
    },
    /// The beginning of such a string: before these numbers, the length of all of it.
    Beginning {
        lower: bool,
        dotted: bool,
    },
    /// A number, which is zero if it is nil, and what it is otherwise.
    Optional(Box<Part>),
}

/// What a record of a program says.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// It logs this.
    Log(Logged),
    /// A packet begins that is followed, the one of this number.
    Begin {
        /// The packet.
        packet: i64,
        /// Octets that it has, with a link header that is true or made up.
        length: i64,
        /// Its first octets, behind the link header.
        octets: Vec<u8>,
    },
    /// It has come by a line.
    Point {
        /// The packet.
        packet: i64,
        /// The line of the script.
        line: u32,
        /// What came of it there.
        told: String,
    },
    /// It ends.
    End {
        /// The packet.
        packet: i64,
        /// Which of the counters has counted it: a verdict of [`Verdict::ALL`](crate::vm::Verdict::ALL), or another one of
        /// [`super::account`].
        place: usize,
        /// Whether something was written to it.
        changed: bool,
        /// The error, if that is how it ended: see [`super::account::fault`].
        fault: u64,
    },
}

impl Part {
    /// How many numbers it takes.
    pub(super) fn numbers(&self) -> usize {
        match self {
            Self::Text(_) | Self::Bare(_) | Self::Nil => 0,
            Self::Integer | Self::Boolean | Self::Mac | Self::Ipv4 | Self::Length => 1,
            Self::Ipv6 => 2,
            Self::Octets(count) => count.div_ceil(8),
            Self::String { dotted, .. } => 1 + if *dotted { DOTS } else { 0 },
            Self::Beginning { dotted, .. } => 2 + if *dotted { DOTS } else { 0 },
            Self::Optional(part) => 1 + part.numbers(),
        }
    }

    pub(super) fn is_string(&self) -> bool {
        matches!(self, Self::String { .. } | Self::Beginning { .. })
    }

    fn scalar(&self, numbers: &[i64]) -> Scalar {
        match (self, numbers) {
            (Self::Text(text), []) => Scalar::Text(text.clone().into_bytes()),
            (Self::Bare(text), []) => Scalar::Other(text.clone()),
            (Self::Integer, [number]) => Scalar::Integer(*number),
            (Self::Boolean, [number]) => Scalar::Boolean(*number != 0),
            (Self::Length, [number]) => Scalar::Other(format!("{number} octets")),
            (Self::Mac, [number]) => {
                let [_, _, octets @ ..] = number.to_be_bytes();
                let octets = octets.map(|octet| format!("{octet:02X}"));
                Scalar::Text(octets.join(":").into())
            }
            (Self::Ipv4, [number]) => Scalar::Text(Ipv4Addr::from(*number as u32).to_string().into()),
            (Self::Ipv6, [high, low]) => {
                let address = Ipv6Addr::from(u128::from(*high as u64) << 64 | u128::from(*low as u64));
                Scalar::Text(address.to_string().into())
            }
            (Self::Octets(count), numbers) => {
                let mut octets: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
                octets.truncate(*count);
                Scalar::Text(octets)
            }
            (Self::String { lower, .. }, [length, more @ ..]) => Scalar::Text(looks(*length, more, *lower)),
            (Self::Beginning { lower, .. }, [all, length, more @ ..]) => {
                let octets = looks(*length, more, *lower);
                let all = usize::try_from(*all).unwrap_or(0).max(octets.len());
                Scalar::Beginning(octets, all)
            }
            (Self::Optional(part), [there, numbers @ ..]) if *there != 0 => part.scalar(numbers),
            _ => Scalar::Nil,
        }
    }
}

/// A string of the packet: its length, its dots, its octets.
fn looks(length: i64, more: &[i64], lower: bool) -> Vec<u8> {
    let (dots, words) = more.split_at(more.len().saturating_sub(ROOM / 8));
    let mut octets: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    octets.truncate(usize::try_from(length).unwrap_or(0));
    let is_dot = |at: usize| dots.get(at / 64).is_some_and(|word| word << (at % 64) < 0);
    for (at, octet) in octets.iter_mut().enumerate() {
        *octet = match is_dot(at) {
            true => b'.',
            false if lower => octet.to_ascii_lowercase(),
            false => *octet,
        };
    }
    octets
}

impl Line {
    /// A call of `nf.log` without fields.
    #[cfg(test)]
    fn words(parts: Vec<Part>) -> Self {
        Self { form: Form::Log(Vec::new()), parts }
    }

    /// Whether it is told of packets that are followed alone.
    pub(super) const fn is_of_trace(&self) -> bool {
        !matches!(self.form, Form::Log(_))
    }

    /// What the line says with these numbers, as many as it takes: those that are missing are zeros.
    #[must_use]
    pub fn said(&self, numbers: &[i64]) -> Said {
        let (packet, numbers) = match numbers {
            [packet, rest @ ..] if self.is_of_trace() => (*packet, rest),
            numbers => (0, numbers),
        };
        let scalars = self.scalars(numbers);
        let integer = |at: usize| match scalars.get(at) {
            Some(Scalar::Integer(number)) => *number,
            _ => 0,
        };
        match &self.form {
            Form::Log(names) => Said::Log(Logged::new(scalars, names)),
            Form::Begin => {
                let length = integer(0);
                let octets = match scalars.into_iter().nth(1) {
                    Some(Scalar::Text(octets)) => octets,
                    _ => Vec::new(),
                };
                Said::Begin { packet, length, octets }
            }
            Form::Point(line, names) => {
                Said::Point { packet, line: *line, told: trace::told(names, &scalars) }
            }
            Form::End => Said::End {
                packet,
                place: usize::try_from(integer(0) / 8).unwrap_or(usize::MAX),
                changed: integer(1) != 0,
                fault: integer(2).cast_unsigned(),
            },
        }
    }

    fn scalars(&self, numbers: &[i64]) -> Vec<Scalar> {
        let mut numbers = numbers.to_vec();
        let count = self.parts.iter().map(Part::numbers).sum();
        let strings = self.parts.iter().filter(|part| part.is_string()).count();
        numbers.resize(count + strings * (ROOM / 8), 0);
        let (mut rest, strings) = numbers.split_at(count);
        let mut strings = strings.chunks(ROOM / 8);
        let scalar = |part: &Part| {
            let (own, others) = rest.split_at(part.numbers());
            let octets = if part.is_string() { strings.next().unwrap_or_default() } else { &[] };
            rest = others;
            part.scalar(&[own, octets].concat())
        };
        self.parts.iter().map(scalar).collect()
    }

    /// The same as text, of a call of `nf.log`.
    #[cfg(test)]
    pub(super) fn text(&self, numbers: &[i64]) -> String {
        match self.said(numbers) {
            Said::Log(logged) => logged.shown(),
            other => panic!("{other:?}"),
        }
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
            Line::words(parts.to_vec()).text(&[&numbers[..], &octets].concat()),
            "from 2001:db8::1 192.0.2.1 02:00:00:00:00:AB true -7 nil octets, 9\u{fffd}"
        );
        assert_eq!(Line::words(vec![Part::Integer]).text(&[]), "0", "what somebody else wrote");
    }

    #[test]
    fn records_are_read() {
        let words = [7_u64 << 32 | 2, 5, u64::MAX];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(record(&bytes), Some((7, 2, vec![5, -1])));
        assert_eq!(record(&bytes[..7]), None);
    }
}
