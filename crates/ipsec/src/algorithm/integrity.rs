//! Authenticators: an ICV over parts of memory that lie apart, since mutable fields and the upper half of a sequence
//! number are not where the packet is.

use aes::cipher::{BlockEncrypt, KeyInit};
use aes::{Aes128, Aes256};
use ghash::GHash;
use ghash::universal_hash::UniversalHash;
use ring::hmac;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::names::Authentication;

/// An integrity check value. The longest is that of HMAC-SHA-512-256.
pub struct Icv {
    bytes: [u8; 32],
    length: usize,
}

impl Icv {
    /// The first `length` bytes of `bytes`.
    fn of(bytes: &[u8], length: usize) -> Self {
        let mut icv = Self { bytes: [0; 32], length: length.min(32) };
        let given = bytes.len().min(32);
        icv.bytes[..given].copy_from_slice(&bytes[..given]);
        icv
    }

    /// As sent.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// Whether this is what arrived, in a time that does not tell where they differ.
    pub fn is(&self, arrived: &[u8]) -> bool {
        self.bytes().ct_eq(arrived).into()
    }
}

/// An authenticator with its key.
pub(super) enum Integrity {
    Hmac {
        key: Box<hmac::Key>,
        icv_length: usize,
    },
    Gmac(Gmac),
    #[cfg(feature = "historic")]
    KeyedMd5(crate::key::Key),
}

impl Integrity {
    /// `None` for [`Authentication::None`], or a key of a wrong length.
    pub(super) fn new(authentication: Authentication, key: &[u8]) -> Option<Self> {
        let hmac = |algorithm| Self::Hmac {
            key: Box::new(hmac::Key::new(algorithm, key)),
            icv_length: authentication.icv_length(),
        };
        Some(match authentication {
            Authentication::None => return None,
            Authentication::HmacSha256 => hmac(hmac::HMAC_SHA256),
            Authentication::HmacSha384 => hmac(hmac::HMAC_SHA384),
            Authentication::HmacSha512 => hmac(hmac::HMAC_SHA512),
            Authentication::AesGmac128 | Authentication::AesGmac256 => Self::Gmac(Gmac::new(key)?),
            #[cfg(feature = "historic")]
            Authentication::KeyedMd5 => Self::KeyedMd5(crate::key::Key::new(key)),
        })
    }

    /// The ICV over `parts`, one behind the other. Only GMAC looks at the IV.
    pub(super) fn icv(&self, iv: &[u8], parts: &[&[u8]]) -> Icv {
        match self {
            Self::Hmac { key, icv_length } => {
                let mut context = hmac::Context::with_key(key);
                for part in parts {
                    context.update(part);
                }
                Icv::of(context.sign().as_ref(), *icv_length)
            }
            Self::Gmac(gmac) => Icv::of(&gmac.tag(iv, parts), 16),
            #[cfg(feature = "historic")]
            Self::KeyedMd5(key) => Icv::of(&keyed_md5(key.reveal(), parts), 16),
        }
    }
}

/// GCM with nothing to encrypt (RFC 4543 §2). `ring` takes what is authenticated in one piece only.
pub(super) struct Gmac {
    cipher: Aes,
    hash: GHash,
    salt: Zeroizing<[u8; 4]>,
}

enum Aes {
    Aes128(Box<Aes128>),
    Aes256(Box<Aes256>),
}

impl Aes {
    fn encrypt(&self, block: &mut [u8; 16]) {
        match self {
            Self::Aes128(aes) => aes.encrypt_block(block.into()),
            Self::Aes256(aes) => aes.encrypt_block(block.into()),
        }
    }
}

impl Gmac {
    fn new(key: &[u8]) -> Option<Self> {
        let (key, salt) = key.split_last_chunk::<4>()?;
        let cipher = match key.len() {
            16 => Aes::Aes128(Box::new(Aes128::new_from_slice(key).ok()?)),
            _ => Aes::Aes256(Box::new(Aes256::new_from_slice(key).ok()?)),
        };
        let mut hash_key = Zeroizing::new([0; 16]);
        cipher.encrypt(&mut hash_key);
        Some(Self { cipher, hash: GHash::new((&*hash_key).into()), salt: Zeroizing::new(*salt) })
    }

    fn tag(&self, iv: &[u8], parts: &[&[u8]]) -> [u8; 16] {
        let mut hash = self.hash.clone();
        let mut block = [0; 16];
        let mut filled = 0;
        let mut length = 0u64;
        for part in parts {
            length += part.len() as u64;
            let mut rest = *part;
            if filled > 0 {
                let (first, behind) = rest.split_at(rest.len().min(16 - filled));
                block[filled..filled + first.len()].copy_from_slice(first);
                filled += first.len();
                rest = behind;
                if filled < 16 {
                    continue;
                }
                hash.update_padded(&block);
            }
            let (blocks, tail) = rest.as_chunks::<16>();
            hash.update_padded(blocks.as_flattened());
            block[..tail.len()].copy_from_slice(tail);
            filled = tail.len();
        }
        hash.update_padded(block.get(..filled).unwrap_or_default());
        let mut lengths = [0; 16];
        lengths[..8].copy_from_slice(&(length * 8).to_be_bytes());
        hash.update_padded(&lengths);
        // Salt, IV, and a block counter of 1.
        let mut tag = [0; 16];
        tag[..4].copy_from_slice(&*self.salt);
        for (to, from) in tag[4..12].iter_mut().zip(iv) {
            *to = *from;
        }
        tag[15] = 1;
        self.cipher.encrypt(&mut tag);
        for (to, from) in tag.iter_mut().zip(hash.finalize()) {
            *to ^= from;
        }
        tag
    }
}

/// The key, filled up as MD5 itself fills up; the data; the key (RFC 1828 §2).
#[cfg(feature = "historic")]
fn keyed_md5(key: &[u8], parts: &[&[u8]]) -> [u8; 16] {
    use md5::{Digest, Md5};
    let mut digest = Md5::new();
    digest.update(key);
    digest.update([0x80]);
    digest.update(&[0; 64][..(64 + 55 - key.len() % 64) % 64]);
    digest.update((key.len() as u64 * 8).to_le_bytes());
    for part in parts {
        digest.update(part);
    }
    digest.update(key);
    digest.finalize().into()
}
