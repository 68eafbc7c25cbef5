//! Where randomness comes from: the caller hands it in.

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

/// An SPI for ESP or AH: any that is not reserved.
pub(crate) fn spi(random: &mut dyn Random) -> Spi {
    Spi(u32::from_be_bytes(bytes(random)).max(Spi::FIRST.0))
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
