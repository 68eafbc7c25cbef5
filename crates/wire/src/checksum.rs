//! The internet checksum (RFC 1071), pseudo-headers (RFC 8200 §8.1, RFC 9293 §3.1) and incremental updates
//! (RFC 1624).

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Add;

/// A ones' complement sum of 16-bit words, folded to 16 bits.
///
/// Sums of parts add up to the sum of the whole as long as every part but the last has an even length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sum(u16);

impl Sum {
    /// The sum of `bytes` as big-endian words; an odd last byte is the high half of a word.
    pub fn of(bytes: &[u8]) -> Self {
        // The ones' complement sum does not care for byte order as long as it is the same throughout
        // (RFC 1071 §2 B), so whole machine words are added and only the result is swapped. 64-bit
        // accumulators of 32-bit words cannot overflow below 16 GB; four of them let the compiler vectorise.
        let mut lanes = [0u64; 4];
        let (blocks, tail) = bytes.as_chunks::<16>();
        for block in blocks {
            for (lane, word) in lanes.iter_mut().zip(block.as_chunks::<4>().0) {
                *lane += u64::from(u32::from_ne_bytes(*word));
            }
        }
        let mut sum = lanes.iter().sum::<u64>();
        let (words, tail) = tail.as_chunks::<4>();
        for word in words {
            sum += u64::from(u32::from_ne_bytes(*word));
        }
        sum += match *tail {
            [a, b, c] => u64::from(u16::from_ne_bytes([a, b])) + u64::from(u16::from_ne_bytes([c, 0])),
            [a, b] => u64::from(u16::from_ne_bytes([a, b])),
            [a] => u64::from(u16::from_ne_bytes([a, 0])),
            _ => 0,
        };
        Self(fold(sum).to_be())
    }

    /// A single word.
    pub const fn word(word: u16) -> Self {
        Self(word)
    }

    /// A 32-bit value that begins at an even offset.
    pub fn dword(value: u32) -> Self {
        Self(fold(u64::from(value)))
    }

    /// The IPv6 pseudo-header: addresses, upper-layer packet length in bytes, upper-layer protocol.
    pub fn pseudo_ipv6(source: Ipv6Addr, destination: Ipv6Addr, length: u32, protocol: u8) -> Self {
        Self::of(&source.octets())
            + Self::of(&destination.octets())
            + Self::dword(length)
            + Self::word(u16::from(protocol))
    }

    /// The IPv4 pseudo-header: addresses, upper-layer packet length in bytes, protocol.
    pub fn pseudo_ipv4(source: Ipv4Addr, destination: Ipv4Addr, length: u16, protocol: u8) -> Self {
        Self::of(&source.octets())
            + Self::of(&destination.octets())
            + Self::word(length)
            + Self::word(u16::from(protocol))
    }

    /// The sum itself, not inverted: what a partial checksum field holds.
    pub const fn value(self) -> u16 {
        self.0
    }

    /// The checksum field's value: the complement of the sum.
    pub const fn checksum(self) -> u16 {
        !self.0
    }

    /// As [`checksum`](Self::checksum), for UDP, where 0 means "none" and is sent as its equal, 0xffff
    /// (RFC 768).
    pub const fn udp_checksum(self) -> u16 {
        if self.0 == 0xffff { 0xffff } else { !self.0 }
    }

    /// Whether this, the sum over data that includes its checksum field, proves the checksum right.
    pub const fn is_valid(self) -> bool {
        self.0 == 0xffff
    }
}

impl Add for Sum {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let (sum, carry) = self.0.overflowing_add(other.0);
        Self(sum + u16::from(carry))
    }
}

/// The checksum after one 16-bit word of the covered data changed from `old` to `new` (RFC 1624 equation 3).
///
/// The word lies at an even offset of the covered data; for an odd one give both values byte-swapped.
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    (Sum(!checksum) + Sum(!old) + Sum(new)).checksum()
}

/// Whether a packet's transport checksum field holds the checksum, or only the pseudo-header's sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransportChecksum {
    /// The field covers the transport header and payload: changes to them must change it.
    Complete,
    /// The field holds the sum of the pseudo-header, somebody later completes it (`NEEDS_CSUM` in
    /// [`virtio_net`](crate::virtio_net)): only changes of addresses, length or protocol must change it.
    Partial,
}

fn fold(mut sum: u64) -> u16 {
    sum = (sum & 0xffff_ffff) + (sum >> 32);
    sum = (sum & 0xffff_ffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    // Each pair of steps halves the width, the second absorbing the first one's carry.
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As the RFC's C code does it.
    fn reference(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for word in bytes.chunks(2) {
            sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    #[test]
    fn example_of_rfc_1071() {
        let sum = Sum::of(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.value(), 0xddf2);
        assert_eq!(sum.checksum(), 0x220d);
    }

    #[test]
    fn example_of_rfc_1624() {
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn udp_never_sends_zero() {
        assert_eq!(Sum::word(0xffff).udp_checksum(), 0xffff);
        assert_eq!(Sum::word(0x1234).udp_checksum(), 0xedcb);
    }

    #[test]
    fn the_largest_input_does_not_overflow() {
        assert_eq!(Sum::of(&[0xff; 200_000]).value(), 0xffff);
    }

    proptest! {
        #[test]
        fn equals_the_reference(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(Sum::of(&bytes).value(), reference(&bytes));
        }

        #[test]
        fn parts_add_up(bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0usize..150) {
            let (head, tail) = bytes.split_at((at * 2).min(bytes.len() & !1));
            prop_assert_eq!(Sum::of(head) + Sum::of(tail), Sum::of(&bytes));
        }

        #[test]
        fn update_equals_recomputing(
            mut bytes in proptest::collection::vec(any::<u8>(), 2..100), at in 0usize..100, new: u16
        ) {
            // A first word that is never zero: all-zero data is the one case where equation 3 gives 0xffff
            // for 0.
            bytes[0] = 1;
            let at = at % (bytes.len() / 2) * 2;
            if at == 0 { return Ok(()); }
            let before = Sum::of(&bytes).checksum();
            let old = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
            prop_assert_eq!(update(before, old, new), Sum::of(&bytes).checksum());
        }
    }
}
