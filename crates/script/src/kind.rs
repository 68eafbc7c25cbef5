//! Kinds of field values: how octets become what a script sees, and back.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// How the bits of a field are read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Octets as they are: a byte array that is a view.
    Raw,
    /// A big-endian unsigned integer of 1 to 64 bits, at any bit. Of 64 bits it is what Lua makes of them: the
    /// upper half of the range is negative.
    Int,
    /// True unless all bits are zero.
    Bool,
    /// Six octets as "AA:BB:CC:DD:EE:FF".
    Mac,
    /// Four octets as "192.0.2.1".
    Ipv4,
    /// Sixteen octets in the form of RFC 5952.
    Ipv6,
    /// Octets as a string.
    Text,
}

/// A value of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Of the kind int.
    Int(i64),
    /// Of the kind bool.
    Bool(bool),
    /// Of the other kinds.
    Text(Vec<u8>),
}

/// Why a value cannot be written to a field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// Something else than the kind takes.
    #[error("{kind} takes {takes}, not {got}")]
    Form {
        /// Of the field.
        kind: Kind,
        /// What would do.
        takes: &'static str,
        /// What was given.
        got: String,
    },
    /// An integer that the field's bits cannot hold.
    #[error("{value} does not fit into {bits} bits")]
    TooLarge {
        /// What was given.
        value: i64,
        /// Length of the field.
        bits: u32,
    },
    /// Octets of another number than the field has.
    #[error("the field has {field} octets, the value {value} (`p:grow` and `p:shrink` make room)")]
    Length {
        /// Of the field.
        field: usize,
        /// Of the value.
        value: usize,
    },
}

impl Kind {
    /// Every kind, in the order of the documentation.
    pub const ALL: [Self; 7] =
        [Self::Raw, Self::Int, Self::Bool, Self::Mac, Self::Ipv4, Self::Ipv6, Self::Text];

    /// The kind of this name, as declarations give it.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Its name in declarations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Int => "int",
            Self::Bool => "bool",
            Self::Mac => "mac",
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Text => "text",
        }
    }

    /// The number of bits that a field of this kind must have, if there is just one.
    pub const fn bits(self) -> Option<u32> {
        match self {
            Self::Mac => Some(48),
            Self::Ipv4 => Some(32),
            Self::Ipv6 => Some(128),
            Self::Raw | Self::Int | Self::Bool | Self::Text => None,
        }
    }

    /// Whether fields of this kind may begin and end within an octet.
    pub const fn is_of_bits(self) -> bool {
        matches!(self, Self::Int | Self::Bool)
    }

    /// What `octets` mean, for the kinds of whole octets. Octets of another number than an address has are given
    /// as text.
    pub fn read(self, octets: &[u8]) -> Value {
        let text = match self {
            Self::Mac => <[u8; 6]>::try_from(octets).ok().map(|octets| mac(octets).to_vec()),
            Self::Ipv4 => <[u8; 4]>::try_from(octets).ok().map(|octets| display(Ipv4Addr::from(octets))),
            Self::Ipv6 => <[u8; 16]>::try_from(octets).ok().map(|octets| display(Ipv6Addr::from(octets))),
            Self::Raw | Self::Int | Self::Bool | Self::Text => None,
        };
        Value::Text(text.unwrap_or_else(|| octets.to_vec()))
    }

    /// The octets that `text` means, into `octets`; how many were given. MAC and IPv4 addresses may be given in
    /// part, from the beginning and with their separator at the end, as in "FF:FF:".
    pub fn parse(self, text: &[u8], octets: &mut [u8; 16]) -> Result<usize, ValueError> {
        let parsed = match self {
            Self::Mac => {
                separated::<6>(text, b':', 16).map(|(value, given)| fill(octets, &value[..given.min(6)]))
            }
            Self::Ipv4 => {
                separated::<4>(text, b'.', 10).map(|(value, given)| fill(octets, &value[..given.min(4)]))
            }
            Self::Ipv6 => std::str::from_utf8(text)
                .ok()
                .and_then(|text| text.parse::<Ipv6Addr>().ok())
                .map(|address| fill(octets, &address.octets())),
            Self::Raw | Self::Int | Self::Bool | Self::Text => None,
        };
        parsed.ok_or_else(|| self.refuses(format_args!("{:?}", String::from_utf8_lossy(text))))
    }

    /// The error for a value of another form.
    pub fn refuses(self, got: impl fmt::Display) -> ValueError {
        ValueError::Form { kind: self, takes: self.takes(), got: got.to_string() }
    }

    /// What its fields take, as messages name it.
    pub(crate) const fn takes(self) -> &'static str {
        match self {
            Self::Raw => "a number from 0 to 255 for every octet, a string or a byte array",
            Self::Int => "an integer of 0 or more",
            Self::Bool => "true or false",
            Self::Mac => "\"AA:BB:CC:DD:EE:FF\"",
            Self::Ipv4 => "\"192.0.2.1\"",
            Self::Ipv6 => "\"2001:db8::1\"",
            Self::Text => "a string",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The big-endian unsigned integer in `length` bits (at most 64) from bit `offset` on.
///
/// # Panics
/// If they are not all in `bytes`.
pub fn read_bits(bytes: &[u8], offset: usize, length: u32) -> u64 {
    let last = (offset + length as usize).div_ceil(8);
    let mut value = 0u128;
    for byte in &bytes[offset / 8..last] {
        value = value << 8 | u128::from(*byte);
    }
    let below = last * 8 - offset - length as usize;
    let mask = (1u128 << length) - 1;
    // The mask leaves at most 64 bits.
    (value >> below & mask) as u64
}

/// The octets around `length` bits (1 to 64) from bit `offset` on, with `value` in these bits; the number of octets.
///
/// # Panics
/// If they are not all in `bytes`.
pub fn replace_bits(bytes: &[u8], offset: usize, length: u32, value: u64) -> ([u8; 9], usize) {
    let (first, last) = (offset / 8, (offset + length as usize).div_ceil(8));
    let below = last * 8 - offset - length as usize;
    let mut all = 0u128;
    for byte in &bytes[first..last] {
        all = all << 8 | u128::from(*byte);
    }
    let mask = ((1u128 << length) - 1) << below;
    all = all & !mask | u128::from(value) << below & mask;
    let mut octets = [0; 9];
    let count = last - first;
    octets[..count].copy_from_slice(&all.to_be_bytes()[16 - count..]);
    (octets, count)
}

fn mac(octets: [u8; 6]) -> [u8; 17] {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut text = [b':'; 17];
    for (at, octet) in octets.into_iter().enumerate() {
        text[at * 3] = DIGITS[usize::from(octet >> 4)];
        text[at * 3 + 1] = DIGITS[usize::from(octet & 15)];
    }
    text
}

fn display(value: impl fmt::Display) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn fill(octets: &mut [u8; 16], value: &[u8]) -> usize {
    octets[..value.len()].copy_from_slice(value);
    value.len()
}

/// `N` numbers of one octet each, or fewer with the separator behind the last; how many there were.
fn separated<const N: usize>(text: &[u8], separator: u8, radix: u32) -> Option<([u8; N], usize)> {
    let mut octets = [0; N];
    let (mut given, mut current) = (0, None::<u32>);
    for &byte in text {
        if byte == separator {
            *octets.get_mut(given)? = u8::try_from(current?).ok()?;
            (given, current) = (given + 1, None);
        } else {
            let value = current.unwrap_or(0) * radix + char::from(byte).to_digit(radix)?;
            current = (value <= 255).then_some(value);
            current?;
        }
    }
    match current {
        Some(value) => {
            // Without a separator at its end it has to be whole: "10.0.0" is a mistake.
            *octets.get_mut(given)? = u8::try_from(value).ok()?;
            (given + 1 == N).then_some((octets, N))
        }
        None => (given > 0).then_some((octets, given)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(kind: Kind, text: &str) -> Option<Vec<u8>> {
        let mut octets = [0; 16];
        kind.parse(text.as_bytes(), &mut octets).ok().map(|count| octets[..count].to_vec())
    }

    #[test]
    fn addresses_are_written_and_read() {
        assert_eq!(parsed(Kind::Mac, "01:23:45:67:89:ab"), Some(vec![1, 0x23, 0x45, 0x67, 0x89, 0xab]));
        assert_eq!(
            Kind::Mac.read(&[1, 0x23, 0x45, 0x67, 0x89, 0xab]),
            Value::Text(b"01:23:45:67:89:AB".into())
        );
        assert_eq!(parsed(Kind::Ipv4, "10.0.0.255"), Some(vec![10, 0, 0, 255]));
        assert_eq!(Kind::Ipv4.read(&[10, 0, 0, 255]), Value::Text(b"10.0.0.255".into()));
        assert_eq!(
            Kind::Ipv6.read(&parsed(Kind::Ipv6, "2001:DB8:0:0::1").unwrap()),
            Value::Text(b"2001:db8::1".into())
        );
    }

    #[test]
    fn a_part_of_an_address_ends_with_its_separator() {
        assert_eq!(parsed(Kind::Mac, "FF:FF:FF:FF:FF:"), Some(vec![255; 5]));
        assert_eq!(parsed(Kind::Ipv4, "192.168."), Some(vec![192, 168]));
        for wrong in ["", ":", "FF:FF", "FF::FF", "100:", "FF:FF:FF:FF:FF:FF:FF", "G0:"] {
            assert_eq!(parsed(Kind::Mac, wrong), None, "{wrong}");
        }
        for wrong in ["10.0.0", "256.0.0.1", "10.0.0.1.2", "10..0.1", ".10", "99999999999."] {
            assert_eq!(parsed(Kind::Ipv4, wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn bits_that_are_replaced_are_read_again_and_others_stay(
            bytes in proptest::collection::vec(any::<u8>(), 16),
            offset in 0usize..64,
            length in 1u32..=64,
            value: u64,
        ) {
            let value = if length == 64 { value } else { value & ((1 << length) - 1) };
            let (octets, count) = replace_bits(&bytes, offset, length, value);
            let mut changed = bytes.clone();
            changed[offset / 8..offset / 8 + count].copy_from_slice(&octets[..count]);
            prop_assert_eq!(read_bits(&changed, offset, length), value);
            for bit in (0..offset).chain(offset + length as usize..128) {
                prop_assert_eq!(read_bits(&changed, bit, 1), read_bits(&bytes, bit, 1), "bit {}", bit);
            }
        }
    }
}
