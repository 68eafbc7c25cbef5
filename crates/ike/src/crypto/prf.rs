//! Pseudorandom functions: HMAC with SHA-2 (RFC 4868), and prf+ (RFC 7296 §2.13).

use hmac::digest::KeyInit;
use hmac::{Hmac, Mac};
use sha2::{Sha256, Sha384, Sha512};

use super::secret::Secret;

/// A pseudorandom function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Prf {
    /// PRF_HMAC_SHA2_256.
    HmacSha256,
    /// PRF_HMAC_SHA2_384.
    HmacSha384,
    /// PRF_HMAC_SHA2_512.
    HmacSha512,
}

impl Prf {
    /// The number of the transform.
    pub const fn id(self) -> u16 {
        match self {
            Self::HmacSha256 => 5,
            Self::HmacSha384 => 6,
            Self::HmacSha512 => 7,
        }
    }

    /// The one of this number, if it is known.
    pub const fn from_id(id: u16) -> Option<Self> {
        match id {
            5 => Some(Self::HmacSha256),
            6 => Some(Self::HmacSha384),
            7 => Some(Self::HmacSha512),
            _ => None,
        }
    }

    /// Length of its output, which is also that of its preferred key.
    pub const fn length(self) -> usize {
        match self {
            Self::HmacSha256 => 32,
            Self::HmacSha384 => 48,
            Self::HmacSha512 => 64,
        }
    }

    /// prf(key, data), the data in pieces.
    pub fn compute(self, key: &[u8], data: &[&[u8]]) -> Secret {
        Secret::new(self.mac(key, data))
    }

    fn mac(self, key: &[u8], data: &[&[u8]]) -> Vec<u8> {
        match self {
            Self::HmacSha256 => mac::<Hmac<Sha256>>(key, data),
            Self::HmacSha384 => mac::<Hmac<Sha384>>(key, data),
            Self::HmacSha512 => mac::<Hmac<Sha512>>(key, data),
        }
    }

    /// The first bytes of prf+(key, seed): 255 blocks at most, which no use of it comes near.
    pub fn expand(self, key: &[u8], seed: &[&[u8]], length: usize) -> Secret {
        let mut stream = zeroize::Zeroizing::new(Vec::with_capacity(length + self.length()));
        let mut block = Secret::new(Vec::new());
        for count in 1..=u8::MAX {
            if stream.len() >= length {
                break;
            }
            let count = [count];
            let pieces: Vec<&[u8]> =
                std::iter::once(block.as_bytes()).chain(seed.iter().copied()).chain([&count[..]]).collect();
            let next = self.compute(key, &pieces);
            stream.extend_from_slice(next.as_bytes());
            block = next;
        }
        debug_assert!(stream.len() >= length);
        Secret::new(stream[..length].to_vec())
    }
}

/// HMAC of the data, in pieces.
pub(crate) fn mac<M: Mac + KeyInit>(key: &[u8], data: &[&[u8]]) -> Vec<u8> {
    // HMAC takes keys of any length: the other way never happens.
    let Ok(mut mac) = <M as Mac>::new_from_slice(key) else { return Vec::new() };
    for piece in data {
        mac.update(piece);
    }
    mac.finalize().into_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231 §4.3, test case 2.
    #[test]
    fn the_vectors_of_rfc_4231_hold() {
        let compute =
            |prf: Prf| hex::encode(prf.compute(b"Jefe", &[b"what do ya want ", b"for nothing?"]).as_bytes());
        assert_eq!(
            compute(Prf::HmacSha256),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            compute(Prf::HmacSha384),
            "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e8e2240ca5e69e2c78b3239ecfab21649"
        );
        assert_eq!(
            compute(Prf::HmacSha512),
            "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d034f65f8f0e6fd\
             caeab1a34d4a6b4b636e070a38bce737"
        );
    }

    #[test]
    fn a_longer_expansion_begins_with_a_shorter_one() {
        let short = Prf::HmacSha384.expand(b"key", &[b"seed"], 33);
        let long = Prf::HmacSha384.expand(b"key", &[b"se", b"ed"], 333);
        assert_eq!((short.as_bytes().len(), long.as_bytes().len()), (33, 333));
        assert_eq!(short.as_bytes(), &long.as_bytes()[..33]);
    }
}
