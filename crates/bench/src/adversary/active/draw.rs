//! What is drawn: numbers and bytes.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;

/// A number below this one.
pub(super) fn below(random: &mut ChaCha8Rng, limit: usize) -> usize {
    (random.next_u64() % limit as u64) as usize
}

/// A number from 0 to 1.
pub(super) fn uniform(random: &mut ChaCha8Rng) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Any number.
pub(super) fn draw(random: &mut ChaCha8Rng) -> u32 {
    random.next_u32()
}

/// So many random bytes.
pub(super) fn bytes(random: &mut ChaCha8Rng, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    random.fill_bytes(&mut bytes);
    bytes
}
