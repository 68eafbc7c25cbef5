//! Random numbers.

/// Evenly distributed.
pub(crate) fn random() -> u64 {
    getrandom::u64().unwrap_or_else(|_| linux::clock::boottime_us().wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// A UUID.
pub(crate) type Uuid = [u8; 16];

/// A random one (RFC 9562 section 5.4).
pub(crate) fn uuid() -> Uuid {
    let bits = u128::from(random()) << 64 | u128::from(random());
    (bits & !(0xf << 76 | 3 << 62) | 4 << 76 | 2 << 62).to_be_bytes()
}
