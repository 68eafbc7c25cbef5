//! Sequence numbers (RFC 9293 §3.4): a circle of 2^32, compared by the shorter way around it.

use std::cmp::Ordering;
use std::ops::{Add, AddAssign, Sub};

/// A position in a stream, or the SYN before it or the FIN behind it.
///
/// The order is that of numbers less than 2^31 apart, as all that a connection compares are. It is not transitive
/// around the circle, hence no `Ord`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SequenceNumber(pub u32);

impl SequenceNumber {
    /// How far `self` is behind `earlier`; 0 if it comes before it.
    pub fn since(self, earlier: Self) -> usize {
        usize::try_from(self.signed_distance(earlier)).unwrap_or(0)
    }

    /// The later of the two.
    pub fn max(self, other: Self) -> Self {
        if other > self { other } else { self }
    }

    /// The earlier of the two.
    pub fn min(self, other: Self) -> Self {
        if other < self { other } else { self }
    }

    fn signed_distance(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0).cast_signed()
    }
}

impl PartialOrd for SequenceNumber {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.signed_distance(*other).cmp(&0))
    }
}

impl Add<usize> for SequenceNumber {
    type Output = Self;

    fn add(self, bytes: usize) -> Self {
        Self(self.0.wrapping_add(bytes as u32))
    }
}

impl AddAssign<usize> for SequenceNumber {
    fn add_assign(&mut self, bytes: usize) {
        *self = *self + bytes;
    }
}

impl Sub<usize> for SequenceNumber {
    type Output = Self;

    fn sub(self, bytes: usize) -> Self {
        Self(self.0.wrapping_sub(bytes as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_goes_around_the_circle() {
        let (before, after) = (SequenceNumber(u32::MAX - 1), SequenceNumber(3));
        assert!(before < after);
        assert_eq!((before + 5, after - 5), (after, before));
        assert_eq!((after.since(before), before.since(after)), (5, 0));
        assert_eq!((before.max(after), before.min(after)), (after, before));
    }
}
