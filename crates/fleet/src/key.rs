//! Keys that sign (Ed25519, RFC 8032), and digests (SHA-256).
//!
//! Their texts name what they are: a tunnel's keys are 32 bytes in base64, too, and one is not to pass for the other.

use std::fmt;
use std::str::FromStr;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use curve25519_dalek::edwards::CompressedEdwardsY;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256, Sha512};
use x25519_dalek::StaticSecret;
use zeroize::Zeroizing;

const PUBLIC: &str = "ed25519:";
const PRIVATE: &str = "ed25519-private:";

/// A key that signs. Never printed, but by [`SigningKey::to_text`].
pub struct SigningKey {
    seed: Zeroizing<[u8; 32]>,
    pair: Ed25519KeyPair,
}

/// The public half of a [`SigningKey`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VerifyingKey([u8; 32]);

/// A signature.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Signature([u8; 64]);

/// SHA-256 of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

/// Why a text is not what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// No public key.
    #[error("a signing key's public half is expected: `ed25519:` and 44 characters of base64")]
    PublicKey,
    /// No private key.
    #[error("a signing key is expected: `ed25519-private:` and 44 characters of base64")]
    PrivateKey,
    /// No signature.
    #[error("a signature is expected: 88 characters of base64")]
    Signature,
    /// No digest.
    #[error("a SHA-256 digest is expected: 44 characters of base64")]
    Digest,
}

impl SigningKey {
    /// The key that 32 random bytes are the seed of.
    #[must_use]
    pub fn from_seed(seed: [u8; 32]) -> Self {
        let seed = Zeroizing::new(seed);
        let pair = Ed25519KeyPair::from_seed_unchecked(&*seed).expect("a seed has 32 bytes");
        SigningKey { seed, pair }
    }

    /// Its public half.
    #[must_use]
    pub fn public(&self) -> VerifyingKey {
        let bytes = self.pair.public_key().as_ref().try_into();
        VerifyingKey(bytes.expect("a public key has 32 bytes"))
    }

    /// Signs.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> Signature {
        let bytes = self.pair.sign(message).as_ref().try_into();
        Signature(bytes.expect("a signature has 64 bytes"))
    }

    /// What this key and another agree on by X25519 (RFC 7748), as the keys of signatures have their like there: only who has one of
    /// the two has it. Nothing where the other is none that a secret can be shared with.
    pub(crate) fn agree(&self, other: VerifyingKey) -> Option<Zeroizing<[u8; 32]>> {
        let hash = Zeroizing::new(<[u8; 64]>::from(Sha512::digest(*self.seed)));
        let mut scalar = Zeroizing::new([0; 32]);
        scalar.copy_from_slice(&hash[..32]);
        let point = CompressedEdwardsY(other.0).decompress()?.to_montgomery();
        let shared =
            StaticSecret::from(*scalar).diffie_hellman(&x25519_dalek::PublicKey::from(point.to_bytes()));
        shared.was_contributory().then(|| Zeroizing::new(shared.to_bytes()))
    }

    /// As text, for its file alone.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{PRIVATE}{}", BASE64_STANDARD.encode(*self.seed)))
    }
}

impl FromStr for SigningKey {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let encoded = text.trim().strip_prefix(PRIVATE).ok_or(TextError::PrivateKey)?;
        decode(encoded).map(Self::from_seed).ok_or(TextError::PrivateKey)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey(public {})", self.public())
    }
}

impl VerifyingKey {
    /// Its bytes.
    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Whether the signature is one of this key for the message.
    #[must_use]
    pub fn verifies(&self, message: &[u8], signature: &Signature) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.0).verify(message, &signature.0).is_ok()
    }
}

impl Digest {
    /// Of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Digest(Sha256::digest(bytes).into())
    }

    /// The digest of digests, in their order.
    #[must_use]
    pub fn of_all<'d>(digests: impl IntoIterator<Item = &'d Digest>) -> Self {
        let mut hash = Sha256::new();
        for digest in digests {
            hash.update(digest.0);
        }
        Digest(hash.finalize().into())
    }

    /// The digest that has these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Digest(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// In hexadecimal, for paths and names of entries.
    #[must_use]
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    let bytes = Zeroizing::new(BASE64_STANDARD.decode(text).ok()?);
    bytes.as_slice().try_into().ok()
}

impl FromStr for VerifyingKey {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        text.strip_prefix(PUBLIC).and_then(decode).map(VerifyingKey).ok_or(TextError::PublicKey)
    }
}

impl FromStr for Signature {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        decode(text).map(Signature).ok_or(TextError::Signature)
    }
}

impl FromStr for Digest {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        decode(text).map(Digest).ok_or(TextError::Digest)
    }
}

impl fmt::Display for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PUBLIC}{}", BASE64_STANDARD.encode(self.0))
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64_STANDARD.encode(self.0))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64_STANDARD.encode(self.0))
    }
}

/// What is printed of values that have a text, and how they are read from and written into documents.
macro_rules! as_text {
    ($($kind:ty),+) => {$(
        impl fmt::Debug for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl TryFrom<String> for $kind {
            type Error = TextError;

            fn try_from(text: String) -> Result<Self, TextError> {
                text.parse()
            }
        }

        impl From<$kind> for String {
            fn from(value: $kind) -> String {
                value.to_string()
            }
        }
    )+};
}

as_text!(VerifyingKey, Signature, Digest);

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8032 section 7.1, test 2.
    #[test]
    fn a_signature_is_that_of_the_rfc() {
        let bytes = |text| hex::decode(text).unwrap();
        let seed = bytes("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb");
        let key = SigningKey::from_seed(seed.try_into().unwrap());
        let public = bytes("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
        assert_eq!(key.public().0, *public);
        let signature = key.sign(&[0x72]);
        let expected = "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da\
                        085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00";
        assert_eq!(signature.0, *bytes(expected));
        assert!(key.public().verifies(&[0x72], &signature));
        assert!(!key.public().verifies(&[0x73], &signature));
        assert!(!SigningKey::from_seed([1; 32]).public().verifies(&[0x72], &signature));
    }

    #[test]
    fn texts_come_back_and_none_passes_for_another() {
        let key = SigningKey::from_seed([7; 32]);
        let again: SigningKey = key.to_text().parse().unwrap();
        assert_eq!(again.public(), key.public());
        let public = key.public().to_string();
        assert_eq!(public.parse(), Ok(key.public()));
        assert_eq!(public.parse::<Digest>(), Err(TextError::Digest));
        assert!(public.parse::<SigningKey>().is_err());
        assert_eq!(key.to_text().parse::<VerifyingKey>(), Err(TextError::PublicKey));
        let of_a_tunnel = mt6d::keys::PrivateKey::from_bytes([7; 32]).public().to_string();
        assert_eq!(of_a_tunnel.parse::<VerifyingKey>(), Err(TextError::PublicKey));
        assert!(!format!("{key:?}").contains(&**key.to_text()));
    }
}
