//! What encrypts and authenticates a message inside of SK and SKF (RFC 7296 §3.14).
//!
//! AES-GCM with a 16-byte ICV (RFC 5282), ChaCha20-Poly1305 (RFC 7634), and AES-CBC with HMAC-SHA-2 (RFC 3602, RFC
//! 4868). The same enums name the algorithms of a child.

use std::fmt;

use aes::cipher::block_padding::NoPadding;
use aes::cipher::{BlockDecryptMut, BlockEncryptMut, KeyIvInit};
use hmac::Hmac;
use ring::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use sha2::{Sha256, Sha384, Sha512};
use subtle::ConstantTimeEq;
use zeroize::Zeroize;

use super::prf::mac;
use super::secret::Secret;
use crate::message::proposal::{Transform, TransformType};
use crate::random::Random;

/// An encryption algorithm, with the length of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encryption {
    /// ENCR_AES_GCM_16, 128 bits.
    Aes128Gcm,
    /// ENCR_AES_GCM_16, 256 bits.
    Aes256Gcm,
    /// ENCR_CHACHA20_POLY1305.
    ChaCha20Poly1305,
    /// ENCR_AES_CBC, 128 bits.
    Aes128Cbc,
    /// ENCR_AES_CBC, 256 bits.
    Aes256Cbc,
}

impl Encryption {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Aes128Gcm, Self::Aes256Gcm, Self::ChaCha20Poly1305, Self::Aes128Cbc, Self::Aes256Cbc];

    /// The transform.
    pub const fn transform(self) -> Transform {
        let kind = TransformType::ENCRYPTION;
        match self {
            Self::Aes128Gcm => Transform::with_key_length(kind, 20, 128),
            Self::Aes256Gcm => Transform::with_key_length(kind, 20, 256),
            Self::ChaCha20Poly1305 => Transform::new(kind, 28),
            Self::Aes128Cbc => Transform::with_key_length(kind, 12, 128),
            Self::Aes256Cbc => Transform::with_key_length(kind, 12, 256),
        }
    }

    /// Whether it authenticates, too.
    pub const fn is_aead(self) -> bool {
        matches!(self, Self::Aes128Gcm | Self::Aes256Gcm | Self::ChaCha20Poly1305)
    }

    /// Length of what is derived for it: the key, and the salt of an AEAD behind it.
    pub const fn key_length(self) -> usize {
        match self {
            Self::Aes128Gcm => 16 + SALT,
            Self::Aes256Gcm | Self::ChaCha20Poly1305 => 32 + SALT,
            Self::Aes128Cbc => 16,
            Self::Aes256Cbc => 32,
        }
    }
}

/// An integrity algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Integrity {
    /// AUTH_HMAC_SHA2_256_128.
    HmacSha256,
    /// AUTH_HMAC_SHA2_384_192.
    HmacSha384,
    /// AUTH_HMAC_SHA2_512_256.
    HmacSha512,
}

impl Integrity {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::HmacSha256, Self::HmacSha384, Self::HmacSha512];

    /// The transform.
    pub const fn transform(self) -> Transform {
        let id = match self {
            Self::HmacSha256 => 12,
            Self::HmacSha384 => 13,
            Self::HmacSha512 => 14,
        };
        Transform::new(TransformType::INTEGRITY, id)
    }

    /// Length of its key.
    pub const fn key_length(self) -> usize {
        match self {
            Self::HmacSha256 => 32,
            Self::HmacSha384 => 48,
            Self::HmacSha512 => 64,
        }
    }

    /// Length of what is sent of its output.
    pub const fn icv_length(self) -> usize {
        self.key_length() / 2
    }

    fn icv(self, key: &[u8], data: &[&[u8]]) -> Vec<u8> {
        let mut whole = match self {
            Self::HmacSha256 => mac::<Hmac<Sha256>>(key, data),
            Self::HmacSha384 => mac::<Hmac<Sha384>>(key, data),
            Self::HmacSha512 => mac::<Hmac<Sha512>>(key, data),
        };
        whole.truncate(self.icv_length());
        whole
    }
}

const SALT: usize = 4;
const AEAD_IV: usize = 8;
const AEAD_TAG: usize = 16;
const BLOCK: usize = 16;

/// What protects the messages of one direction of an IKE SA.
pub(crate) enum Cipher {
    /// The IV counts messages, so that none comes twice with a key.
    Aead { key: Box<LessSafeKey>, salt: [u8; SALT], next_iv: u64 },
    /// Encrypted, then authenticated.
    Cbc { encryption: Secret, integrity: Integrity, integrity_key: Secret },
}

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aead { .. } => "Cipher(AEAD)",
            Self::Cbc { .. } => "Cipher(CBC)",
        })
    }
}

/// A message that was not sealed by the other end, or not whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotAuthentic;

impl Cipher {
    /// Given keys of the lengths that the algorithms have; none if they have others, or do not go together.
    pub(crate) fn new(
        encryption: Encryption,
        key: &[u8],
        integrity: Option<Integrity>,
        integrity_key: &[u8],
    ) -> Option<Self> {
        let aead = |algorithm: &'static Algorithm| {
            let (key, salt) = key.split_last_chunk::<SALT>()?;
            let key = LessSafeKey::new(UnboundKey::new(algorithm, key).ok()?);
            Some(Self::Aead { key: Box::new(key), salt: *salt, next_iv: 0 })
        };
        match encryption {
            Encryption::Aes128Gcm => aead(&AES_128_GCM),
            Encryption::Aes256Gcm => aead(&AES_256_GCM),
            Encryption::ChaCha20Poly1305 => aead(&CHACHA20_POLY1305),
            Encryption::Aes128Cbc | Encryption::Aes256Cbc => {
                let integrity = integrity?;
                let lengths = (encryption.key_length(), integrity.key_length());
                ((key.len(), integrity_key.len()) == lengths).then(|| Self::Cbc {
                    encryption: Secret::new(key.to_vec()),
                    integrity,
                    integrity_key: Secret::new(integrity_key.to_vec()),
                })
            }
        }
    }

    /// Counts messages from here on: for an end that may come to the same keys again, and does not know how far it was.
    pub(crate) fn count_from(&mut self, first: u64) {
        if let Self::Aead { next_iv, .. } = self {
            *next_iv = first >> 1;
        }
    }

    /// How long so many bytes become.
    pub(crate) fn sealed_length(&self, inner: usize) -> usize {
        match self {
            Self::Aead { .. } => AEAD_IV + inner + 1 + AEAD_TAG,
            Self::Cbc { integrity, .. } => {
                BLOCK + (inner + 1).next_multiple_of(BLOCK) + integrity.icv_length()
            }
        }
    }

    /// Appends what protects `inner` to a message of which all that is before is authenticated.
    pub(crate) fn seal(&mut self, message: &mut Vec<u8>, inner: &[u8], random: &mut dyn Random) {
        let aad_end = message.len();
        match self {
            Self::Aead { key, salt, next_iv } => {
                let iv = next_iv.to_be_bytes();
                // It begins below 2^63, and an IKE SA ends with its message IDs, of 32 bits.
                *next_iv += 1;
                message.extend(iv);
                let start = message.len();
                message.extend(inner);
                message.push(0);
                let (before, content) = message.split_at_mut(start);
                let aad = Aad::from(&before[..aad_end]);
                let tag = key.seal_in_place_separate_tag(nonce(*salt, iv), aad, content);
                // It fails only for more bytes than fit into a datagram a million times.
                debug_assert!(tag.is_ok());
                if let Ok(tag) = tag {
                    message.extend(tag.as_ref());
                }
            }
            Self::Cbc { encryption, integrity, integrity_key } => {
                let mut iv = [0; BLOCK];
                random.fill(&mut iv);
                message.extend(iv);
                let start = message.len();
                let padded = (inner.len() + 1).next_multiple_of(BLOCK);
                let padding = padded - inner.len() - 1;
                message.extend(inner);
                message.extend(std::iter::repeat_n(0, padding));
                message.push(padding as u8);
                cbc_encrypt(encryption.as_bytes(), &iv, &mut message[start..]);
                let icv = integrity.icv(integrity_key.as_bytes(), &[message]);
                message.extend(icv);
            }
        }
    }

    /// What the body protects, if its sender had the key and authenticated these bytes before it.
    pub(crate) fn open(&self, aad: &[u8], body: &[u8]) -> Result<Vec<u8>, NotAuthentic> {
        let mut content = match self {
            Self::Aead { key, salt, .. } => {
                let (iv, sealed) = body.split_first_chunk::<AEAD_IV>().ok_or(NotAuthentic)?;
                let mut content = sealed.to_vec();
                let length = key
                    .open_in_place(nonce(*salt, *iv), Aad::from(aad), &mut content)
                    .map_err(|_| NotAuthentic)?
                    .len();
                content.truncate(length);
                content
            }
            Self::Cbc { encryption, integrity, integrity_key } => {
                let split = body.len().checked_sub(integrity.icv_length()).ok_or(NotAuthentic)?;
                let (sealed, icv) = body.split_at(split);
                let expected = integrity.icv(integrity_key.as_bytes(), &[aad, sealed]);
                if !bool::from(expected.ct_eq(icv)) {
                    return Err(NotAuthentic);
                }
                let (iv, ciphertext) = sealed.split_first_chunk::<BLOCK>().ok_or(NotAuthentic)?;
                if ciphertext.is_empty() || ciphertext.len() % BLOCK != 0 {
                    return Err(NotAuthentic);
                }
                let mut content = ciphertext.to_vec();
                cbc_decrypt(encryption.as_bytes(), iv, &mut content);
                content
            }
        };
        let padding = usize::from(content.pop().ok_or(NotAuthentic)?);
        let Some(length) = content.len().checked_sub(padding) else {
            content.zeroize();
            return Err(NotAuthentic);
        };
        content.truncate(length);
        Ok(content)
    }
}

fn nonce(salt: [u8; SALT], iv: [u8; AEAD_IV]) -> Nonce {
    let mut nonce = [0; SALT + AEAD_IV];
    nonce[..SALT].copy_from_slice(&salt);
    nonce[SALT..].copy_from_slice(&iv);
    Nonce::assume_unique_for_key(nonce)
}

/// In place: whole blocks, a key of 16 or 32 bytes.
fn cbc_encrypt(key: &[u8], iv: &[u8; BLOCK], blocks: &mut [u8]) {
    let length = blocks.len();
    let done = if key.len() == 16 {
        cbc::Encryptor::<aes::Aes128>::new_from_slices(key, iv)
            .is_ok_and(|cipher| cipher.encrypt_padded_mut::<NoPadding>(blocks, length).is_ok())
    } else {
        cbc::Encryptor::<aes::Aes256>::new_from_slices(key, iv)
            .is_ok_and(|cipher| cipher.encrypt_padded_mut::<NoPadding>(blocks, length).is_ok())
    };
    // Nothing may leave in the clear, whatever went wrong.
    if !done {
        debug_assert!(false, "a key of {} bytes, {length} bytes", key.len());
        blocks.zeroize();
    }
}

fn cbc_decrypt(key: &[u8], iv: &[u8; BLOCK], blocks: &mut [u8]) {
    if key.len() == 16 {
        if let Ok(cipher) = cbc::Decryptor::<aes::Aes128>::new_from_slices(key, iv) {
            let _ = cipher.decrypt_padded_mut::<NoPadding>(blocks);
        }
    } else if let Ok(cipher) = cbc::Decryptor::<aes::Aes256>::new_from_slices(key, iv) {
        let _ = cipher.decrypt_padded_mut::<NoPadding>(blocks);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::random::Repeatable;

    fn ciphers() -> Vec<Cipher> {
        let mut ciphers = Vec::new();
        for encryption in Encryption::ALL {
            let key: Vec<u8> = (0..encryption.key_length() as u8).collect();
            if encryption.is_aead() {
                ciphers.push(Cipher::new(encryption, &key, None, &[]).unwrap());
                continue;
            }
            for integrity in Integrity::ALL {
                let integrity_key = vec![7; integrity.key_length()];
                ciphers.push(Cipher::new(encryption, &key, Some(integrity), &integrity_key).unwrap());
            }
        }
        ciphers
    }

    #[test]
    fn keys_of_other_lengths_make_no_cipher() {
        assert!(Cipher::new(Encryption::Aes128Gcm, &[0; 16], None, &[]).is_none());
        assert!(Cipher::new(Encryption::Aes256Cbc, &[0; 32], None, &[]).is_none());
        assert!(
            Cipher::new(Encryption::Aes256Cbc, &[0; 16], Some(Integrity::HmacSha256), &[0; 32]).is_none()
        );
    }

    /// What `reference/ike_sealed.py` prints: an INFORMATIONAL request with N(INITIAL_CONTACT) inside.
    #[test]
    fn messages_are_those_of_the_second_implementation() {
        let key: Vec<u8> = (0..48).collect();
        let aead = |length: usize| [&key[..length], b"salt"].concat();
        let gcm = Cipher::new(Encryption::Aes128Gcm, &aead(16), None, &[]).unwrap();
        let chacha = Cipher::new(Encryption::ChaCha20Poly1305, &aead(32), None, &[]).unwrap();
        let integrity = Some(Integrity::HmacSha384);
        let cbc = Cipher::new(Encryption::Aes256Cbc, &key[..32], integrity, &key).unwrap();
        let inner = [0, 0, 0, 8, 0, 0, 0x40, 0];
        for (mut cipher, message) in [
            (
                gcm,
                "000102030405060708090a0b0c0d0e0f2e2025080000000700000041290000250000000000000000cb02ee2cf9\
             18697977b82742da6480f6dcff6fbe7324fd3af9",
            ),
            (
                chacha,
                "000102030405060708090a0b0c0d0e0f2e2025080000000700000041290000250000000000000000e8635843a9\
             3feb041282f019c9a71653833dd303484cdf0ce8",
            ),
            (
                cbc,
                "000102030405060708090a0b0c0d0e0f2e20250800000007000000582900003c6465666768696a6b6c6d6e6f70\
             7172739b77980262c9af2a7db8d2feb0fbd8210cb15f7796bdad1b135804705915af0f6ac8e2f6f7603dec",
            ),
        ] {
            let message = hex::decode(message).unwrap();
            let (aad, body) = message.split_at(32);
            assert_eq!(cipher.open(aad, body).unwrap(), inner);
            let mut sealed = aad.to_vec();
            cipher.seal(&mut sealed, &inner, &mut Repeatable::new(1));
            assert_eq!(sealed.len(), message.len());
            // The IV of CBC is random, that of an AEAD begins with zero.
            assert_eq!(sealed == message, !matches!(cipher, Cipher::Cbc { .. }));
        }
    }

    #[test]
    fn chacha20_poly1305_as_in_rfc_7634_appendix_b() {
        let key: Vec<u8> = (0x80..0xa4).collect();
        let mut cipher = Cipher::new(Encryption::ChaCha20Poly1305, &key, None, &[]).unwrap();
        let message = hex::decode(
            "c0c1c2c3c4c5c6c7d0d1d2d3d4d5d6d72e202500000000090000004529000029\
             1011121314151617610394701f8d017f7c129248896b71bfe25236efd7cdc670\
             66906315b2",
        )
        .unwrap();
        let notify = hex::decode("0000000c000040010000000a").unwrap();
        let (aad, body) = message.split_at(32);
        assert_eq!(cipher.open(aad, body).unwrap(), notify);
        let Cipher::Aead { next_iv, .. } = &mut cipher else { panic!("an AEAD") };
        *next_iv = 0x1011_1213_1415_1617;
        let mut sealed = aad.to_vec();
        cipher.seal(&mut sealed, &notify, &mut Repeatable::new(1));
        assert_eq!(hex::encode(sealed), hex::encode(message));
    }

    /// §3.14: any IV, any padding of a length that fits.
    #[test]
    fn padding_may_be_of_any_bytes_and_blocks() {
        let (key, integrity_key) = ([3; 16], [7; 32]);
        let cipher =
            Cipher::new(Encryption::Aes128Cbc, &key, Some(Integrity::HmacSha256), &integrity_key).unwrap();
        for (iv, blocks) in [([0; BLOCK], 1), ([0xff; BLOCK], 2), ([9; BLOCK], 16)] {
            let mut content = b"inner".to_vec();
            content.resize(BLOCK * blocks - 1, 0xa5);
            content.push((BLOCK * blocks - 1 - b"inner".len()) as u8);
            cbc_encrypt(&key, &iv, &mut content);
            let mut body = [&iv[..], &content].concat();
            let icv = Integrity::HmacSha256.icv(&integrity_key, &[b"header", &body]);
            body.extend(icv);
            assert_eq!(cipher.open(b"header", &body).unwrap(), b"inner");
        }
    }

    proptest! {
        #[test]
        fn what_is_sealed_opens_and_nothing_else_does(
            inner in proptest::collection::vec(any::<u8>(), 0..80),
            at in any::<prop::sample::Index>(),
            bit in 0u8..8,
        ) {
            let mut random = Repeatable::new(5);
            for mut cipher in ciphers() {
                let mut message = b"authenticated".to_vec();
                let aad = message.len();
                cipher.seal(&mut message, &inner, &mut random);
                prop_assert_eq!(message.len() - aad, cipher.sealed_length(inner.len()));
                prop_assert_eq!(&cipher.open(&message[..aad], &message[aad..]).unwrap(), &inner);
                let at = at.index(message.len());
                message[at] ^= 1 << bit;
                prop_assert!(cipher.open(&message[..aad], &message[aad..]).is_err());
            }
        }

        #[test]
        fn no_bytes_panic(body in proptest::collection::vec(any::<u8>(), 0..120)) {
            for cipher in ciphers() {
                prop_assert!(cipher.open(b"", &body).is_err());
            }
        }
    }
}
