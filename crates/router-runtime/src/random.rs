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

/// What nobody else can guess who does not know the machine's UUID, and the same at each start.
pub(crate) fn secret(uuid: &Uuid) -> [u64; 2] {
    let bits = u128::from_be_bytes(*uuid);
    [bits as u64, (bits >> 64) as u64].map(|half| half.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ half >> 29)
}
