//! Randomness, and numbers that look random but stay the same: both from the seed that the caller hands in.

use std::hash::Hasher;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use siphasher::sip::SipHasher24;
use siphasher::sip128::{Hasher128, SipHasher24 as SipHasher128};

/// A generator that nobody outside can predict, if the seed was good.
pub struct Random(ChaCha20Rng);

impl Random {
    /// `seed` is 32 bytes of the best randomness there is; in a test, any.
    pub fn new(seed: [u8; 32]) -> Self {
        Random(ChaCha20Rng::from_seed(seed))
    }

    /// Any number.
    pub fn u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// Any number.
    pub fn u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// So many octets.
    pub fn octets<const N: usize>(&mut self) -> [u8; N] {
        let mut octets = [0; N];
        self.0.fill_bytes(&mut octets);
        octets
    }

    /// A time from `least` up to, not including, `most`; `least` if there is none between.
    pub fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let span = most.saturating_sub(least).as_micros() as u64;
        // Of 64 random bits and a span of hours, the modulus favours no value by more than one in a million.
        least + Duration::from_micros(self.u64().checked_rem(span).unwrap_or(0))
    }

    /// A time between 0.5 and 1.5 times `base`, as RFC 4861 §6.3.2 wants it of the reachable time.
    pub fn around(&mut self, base: Duration) -> Duration {
        self.between(base / 2, base * 3 / 2)
    }
}

/// A secret that numbers are derived from by a keyed hash (SipHash-2-4), so that who does not know it learns nothing of
/// one number from others.
#[derive(Clone, Copy)]
pub struct Key([u8; 16]);

impl Key {
    /// 16 bytes of the best randomness there is.
    pub fn new(key: [u8; 16]) -> Self {
        Key(key)
    }

    /// 64 bits that follow from these parts.
    pub fn hash(&self, parts: &[&[u8]]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        for part in parts {
            // Length first: parts that are cut differently are others.
            hasher.write_usize(part.len());
            hasher.write(part);
        }
        hasher.finish()
    }

    /// 128 bits that follow from these parts.
    pub fn hash128(&self, parts: &[&[u8]]) -> u128 {
        let mut hasher = SipHasher128::new_with_key(&self.0);
        for part in parts {
            hasher.write_usize(part.len());
            hasher.write(part);
        }
        hasher.finish128().as_u128()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_their_bounds() {
        let mut random = Random::new([1; 32]);
        let (least, most) = (Duration::from_millis(500), Duration::from_millis(1500));
        for _ in 0..1000 {
            let time = random.around(Duration::from_secs(1));
            assert!(time >= least && time < most);
        }
        assert_eq!(random.between(most, least), most);
    }

    #[test]
    fn a_hash_follows_from_key_and_parts() {
        let key = Key::new([1; 16]);
        assert_eq!(key.hash(&[b"ab", b"c"]), key.hash(&[b"ab", b"c"]));
        assert_ne!(key.hash(&[b"ab", b"c"]), key.hash(&[b"a", b"bc"]));
        assert_ne!(key.hash128(&[b"ab"]), Key::new([2; 16]).hash128(&[b"ab"]));
    }
}
