//! Where randomness comes from: the caller hands it in.

use sha2::Sha256;
use zeroize::Zeroizing;

use crate::numbers::{IkeSpi, Spi};

/// A source of randomness. What keys, nonces and SPIs are made of is its output, so it must be the best there is: the
/// operating system's, or a generator that was seeded by that. In tests it may repeat itself.
pub trait Random {
    /// Fills the bytes.
    fn fill(&mut self, bytes: &mut [u8]);
}

/// Random bytes.
pub(crate) fn bytes<const N: usize>(random: &mut dyn Random) -> [u8; N] {
    let mut bytes = [0; N];
    random.fill(&mut bytes);
    bytes
}

/// An SPI for an IKE SA: any but zero.
pub(crate) fn ike_spi(random: &mut dyn Random) -> IkeSpi {
    IkeSpi(u64::from_be_bytes(bytes(random)).max(1))
}

/// Hands out SPIs for ESP and AH: nobody can foresee them, and none comes twice before all others have come. So no two
/// children of an endpoint have the same, and nothing has to be remembered of those that are gone.
///
/// They are the numbers from 0 on in the order of a permutation of its own: a Feistel network of four rounds.
pub(crate) struct Spis {
    key: Zeroizing<[u8; 32]>,
    next: u32,
}

impl Spis {
    pub(crate) fn new(random: &mut dyn Random) -> Self {
        Self { key: Zeroizing::new(bytes(random)), next: 0 }
    }

    /// The next one that is not reserved.
    pub(crate) fn next(&mut self) -> Spi {
        loop {
            let spi = Spi(self.permuted(self.next));
            self.next = self.next.wrapping_add(1);
            if spi >= Spi::FIRST {
                return spi;
            }
        }
    }

    fn permuted(&self, number: u32) -> u32 {
        let (mut left, mut right) = ((number >> 16) as u16, number as u16);
        for round in 0..4u8 {
            let pieces = [&[round][..], &right.to_be_bytes()];
            let mixed = crate::crypto::prf::mac::<hmac::Hmac<Sha256>>(&*self.key, &pieces);
            (left, right) = (right, left ^ u16::from_be_bytes([mixed[0], mixed[1]]));
        }
        u32::from(left) << 16 | u32::from(right)
    }
}

impl std::fmt::Debug for Spis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Spis")
    }
}

/// A generator for tests, which gives the same for the same seed.
#[cfg(test)]
#[derive(Debug, Clone)]
pub(crate) struct Repeatable(u64);

#[cfg(test)]
impl Repeatable {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }
}

#[cfg(test)]
impl Random for Repeatable {
    fn fill(&mut self, bytes: &mut [u8]) {
        // SplitMix64.
        for chunk in bytes.chunks_mut(8) {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            chunk.copy_from_slice(&(z ^ (z >> 31)).to_be_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_spi_comes_twice_and_none_is_reserved() {
        let mut spis = Spis::new(&mut Repeatable::new(1));
        let seen: HashSet<_> = (0..100_000).map(|_| spis.next()).collect();
        assert_eq!(seen.len(), 100_000);
        assert!(seen.iter().all(|spi| *spi >= Spi::FIRST));
        let mut others = Spis::new(&mut Repeatable::new(2));
        assert!((0..100).filter(|_| seen.contains(&others.next())).count() < 10);
    }
}
