//! The two key-derivation primitives of the protocol: HKDF-SHA-256 (RFC 5869) and HMAC-SHA-256 as a PRF.

use hkdf::Hkdf;
use hmac::digest::FixedOutput as _;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

/// A 32-byte secret that is wiped when dropped.
pub(crate) type Secret = Zeroizing<[u8; 32]>;

/// `HKDF-Extract(salt, ikm)`, ready for [`expand`].
pub(crate) fn extract(salt: &[u8], ikm: &[u8]) -> Hkdf<Sha256> {
    Hkdf::new(Some(salt), ikm)
}

/// `HKDF-Expand(prk, info, 32)`, `info` being the concatenation of `parts`.
pub(crate) fn expand(prk: &Hkdf<Sha256>, parts: &[&[u8]]) -> Secret {
    let mut out = Zeroizing::new([0u8; 32]);
    prk.expand_multi_info(parts, out.as_mut_slice()).expect("32 bytes are within HKDF-SHA-256's limit");
    out
}

/// `PRF(key, m)` = HMAC-SHA-256, `m` being the concatenation of `parts`.
pub(crate) fn prf(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// As [`prf`], for what is a secret itself: made in its place, so that no copy stays behind on the stack.
pub(crate) fn prf_secret(key: &[u8; 32], parts: &[&[u8]]) -> Secret {
    let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(part);
    }
    let mut out = Zeroizing::new([0u8; 32]);
    mac.finalize_into(out.as_mut_slice().into());
    out
}

/// Overwrites what functions that have returned left on the stack: keys that were moved to where they live are copied on the
/// way, and nobody wipes the copies.
#[inline(never)]
pub(crate) fn wipe_stack() {
    std::hint::black_box(&mut [0u8; 1 << 14]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 5869, test case 1, cut to the 32 bytes that the protocol uses.
    #[test]
    fn hkdf_follows_rfc_5869() {
        let prk = extract(&hex::decode("000102030405060708090a0b0c").unwrap(), &[0x0b; 22]);
        let okm = expand(&prk, &[&hex::decode("f0f1f2f3f4f5f6f7").unwrap(), &[0xf8, 0xf9]]);
        assert_eq!(hex::encode(*okm), "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf");
    }

    /// RFC 4231, test case 2 (its key is shorter than ours; padded with zeros HMAC gives the same).
    #[test]
    fn prf_follows_rfc_4231() {
        let mut key = [0u8; 32];
        key[..4].copy_from_slice(b"Jefe");
        assert_eq!(
            hex::encode(prf(&key, &[b"what do ya want ", b"for nothing?"])),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }
}
