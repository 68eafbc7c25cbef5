//! Diffie-Hellman groups: Curve25519 (RFC 8031), and the NIST curves P-256 and P-384 (RFC 5903).
//!
//! `ring` would do it too, but takes its private keys from no source but its own, so nothing could be repeated in a test.

use std::fmt;

use p256::elliptic_curve::sec1::ToEncodedPoint;
use zeroize::Zeroizing;

use super::secret::Secret;
use crate::random::{Random, bytes};

/// A group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Group {
    /// Group 31.
    Curve25519,
    /// Group 19.
    P256,
    /// Group 20.
    P384,
}

/// A public value that is none of its group, or that leads to no secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a public value that must not be used")]
pub struct BadPublicValue;

impl Group {
    /// The number of the transform.
    pub const fn id(self) -> u16 {
        match self {
            Self::Curve25519 => 31,
            Self::P256 => 19,
            Self::P384 => 20,
        }
    }

    /// The group of this number, if it is known.
    pub const fn from_id(id: u16) -> Option<Self> {
        match id {
            31 => Some(Self::Curve25519),
            19 => Some(Self::P256),
            20 => Some(Self::P384),
            _ => None,
        }
    }
}

enum Private {
    Curve25519(x25519_dalek::StaticSecret),
    P256(p256::SecretKey),
    P384(p384::SecretKey),
}

/// A private key and its public value.
pub struct KeyPair {
    private: Private,
    public: Vec<u8>,
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyPair({:?})", self.group())
    }
}

impl KeyPair {
    /// A new one.
    pub fn generate(group: Group, random: &mut dyn Random) -> Self {
        match group {
            Group::Curve25519 => {
                let private = x25519_dalek::StaticSecret::from(*Zeroizing::new(bytes(random)));
                let public = x25519_dalek::PublicKey::from(&private).as_bytes().to_vec();
                Self { private: Private::Curve25519(private), public }
            }
            Group::P256 => {
                let private = until_valid(random, |bytes: &[u8; 32]| p256::SecretKey::from_slice(bytes).ok());
                let public = private.public_key().to_encoded_point(false).as_bytes()[1..].to_vec();
                Self { private: Private::P256(private), public }
            }
            Group::P384 => {
                let private = until_valid(random, |bytes: &[u8; 48]| p384::SecretKey::from_slice(bytes).ok());
                let public = private.public_key().to_encoded_point(false).as_bytes()[1..].to_vec();
                Self { private: Private::P384(private), public }
            }
        }
    }

    /// Its group.
    pub fn group(&self) -> Group {
        match self.private {
            Private::Curve25519(_) => Group::Curve25519,
            Private::P256(_) => Group::P256,
            Private::P384(_) => Group::P384,
        }
    }

    /// The public value, as a KE payload has it.
    pub fn public(&self) -> &[u8] {
        &self.public
    }

    /// The secret that is shared with the owner of a public value.
    pub fn agree(&self, public: &[u8]) -> Result<Secret, BadPublicValue> {
        match &self.private {
            Private::Curve25519(private) => {
                let public: [u8; 32] = public.try_into().map_err(|_| BadPublicValue)?;
                let shared = private.diffie_hellman(&public.into());
                // RFC 8031 §2: an all-zero result is not to be used.
                if !shared.was_contributory() {
                    return Err(BadPublicValue);
                }
                Ok(Secret::new(shared.as_bytes().to_vec()))
            }
            Private::P256(private) => {
                let point = [&[4], public].concat();
                let public = p256::PublicKey::from_sec1_bytes(&point).map_err(|_| BadPublicValue)?;
                let shared = p256::ecdh::diffie_hellman(private.to_nonzero_scalar(), public.as_affine());
                Ok(Secret::new(shared.raw_secret_bytes().to_vec()))
            }
            Private::P384(private) => {
                let point = [&[4], public].concat();
                let public = p384::PublicKey::from_sec1_bytes(&point).map_err(|_| BadPublicValue)?;
                let shared = p384::ecdh::diffie_hellman(private.to_nonzero_scalar(), public.as_affine());
                Ok(Secret::new(shared.raw_secret_bytes().to_vec()))
            }
        }
    }
}

/// A scalar is zero, or not below the order of the group, once in 2^32 tries at most.
fn until_valid<const N: usize, T>(random: &mut dyn Random, make: impl Fn(&[u8; N]) -> Option<T>) -> T {
    loop {
        if let Some(made) = make(&Zeroizing::new(bytes(random))) {
            return made;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::random::Repeatable;

    const ALL: [Group; 3] = [Group::Curve25519, Group::P256, Group::P384];

    #[test]
    fn both_ends_agree_in_each_group() {
        let mut random = Repeatable::new(1);
        for group in ALL {
            let (a, b) = (KeyPair::generate(group, &mut random), KeyPair::generate(group, &mut random));
            let (at_a, at_b) = (a.agree(b.public()).unwrap(), b.agree(a.public()).unwrap());
            assert_eq!(at_a.as_bytes(), at_b.as_bytes());
            assert_eq!(Group::from_id(group.id()), Some(group));
        }
    }

    #[test]
    fn lengths_are_those_of_the_rfcs() {
        let mut random = Repeatable::new(2);
        let lengths = ALL.map(|group| {
            let pair = KeyPair::generate(group, &mut random);
            (pair.public().len(), pair.agree(pair.public()).unwrap().as_bytes().len())
        });
        assert_eq!(lengths, [(32, 32), (64, 32), (96, 48)]);
    }

    #[test]
    fn points_that_lead_to_no_secret_are_refused() {
        let mut random = Repeatable::new(3);
        let [x25519, p256, p384] = ALL.map(|group| KeyPair::generate(group, &mut random));
        assert_eq!(x25519.agree(&[0; 32]).unwrap_err(), BadPublicValue);
        assert_eq!(p256.agree(&[1; 64]).unwrap_err(), BadPublicValue);
        assert_eq!(p384.agree(&[1; 96]).unwrap_err(), BadPublicValue);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_public_value_panics(public in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut random = Repeatable::new(4);
            for group in ALL {
                let _ = KeyPair::generate(group, &mut random).agree(&public);
            }
        }
    }
}
