//! Ciphers, by what they do to a payload in place.

use aes::cipher::inout::InOutBuf;
use aes::cipher::{BlockDecryptMut, BlockEncrypt, BlockEncryptMut, InnerIvInit, KeyInit};
use aes::{Aes128, Aes256};
use ring::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroizing;

use super::names::Encryption;

/// The bytes are not those that were sealed: damaged or forged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Forged;

/// An initialization vector as sent.
pub(super) struct Iv {
    bytes: [u8; 16],
    length: usize,
}

impl Iv {
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut iv = Self { bytes: [0; 16], length: bytes.len().min(16) };
        for (to, from) in iv.bytes.iter_mut().zip(bytes) {
            *to = *from;
        }
        iv
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// A cipher with its key. What is boxed lies on the heap once and is not copied about.
pub(super) enum Cipher {
    Null,
    AesCbc128(Box<Aes128>),
    AesCbc256(Box<Aes256>),
    Aead(Box<LessSafeKey>, Zeroizing<[u8; 4]>),
    #[cfg(feature = "historic")]
    DesCbc {
        des: Box<des::Des>,
        iv_length: usize,
    },
}

impl Cipher {
    /// `None` when the key is not of the right length.
    pub(super) fn new(encryption: Encryption, key: &[u8]) -> Option<Self> {
        Some(match encryption {
            Encryption::Null => Self::Null,
            Encryption::AesCbc128 => Self::AesCbc128(Box::new(Aes128::new_from_slice(key).ok()?)),
            Encryption::AesCbc256 => Self::AesCbc256(Box::new(Aes256::new_from_slice(key).ok()?)),
            Encryption::AesGcm128 => Self::aead(&aead::AES_128_GCM, key)?,
            Encryption::AesGcm256 => Self::aead(&aead::AES_256_GCM, key)?,
            Encryption::ChaCha20Poly1305 => Self::aead(&aead::CHACHA20_POLY1305, key)?,
            #[cfg(feature = "historic")]
            Encryption::DesCbc | Encryption::DesCbcIv32 => Self::DesCbc {
                des: Box::new(des::Des::new_from_slice(key).ok()?),
                iv_length: encryption.iv_length(),
            },
        })
    }

    fn aead(algorithm: &'static aead::Algorithm, key: &[u8]) -> Option<Self> {
        let (key, salt) = key.split_last_chunk::<4>()?;
        let key = LessSafeKey::new(UnboundKey::new(algorithm, key).ok()?);
        Some(Self::Aead(Box::new(key), Zeroizing::new(*salt)))
    }

    /// The IV for a packet of this number. Those of CBC must not be foreseen: they are the number, encrypted (NIST
    /// SP 800-38A appendix C). Those of the others must only never come twice.
    pub(super) fn iv(&self, counter: u64) -> Iv {
        let mut block = [0; 16];
        block[8..].copy_from_slice(&counter.to_be_bytes());
        match self {
            Self::Null => Iv::of(&[]),
            Self::AesCbc128(aes) => {
                aes.encrypt_block((&mut block).into());
                Iv::of(&block)
            }
            Self::AesCbc256(aes) => {
                aes.encrypt_block((&mut block).into());
                Iv::of(&block)
            }
            Self::Aead(..) => Iv::of(&counter.to_be_bytes()),
            // Half a block, encrypted and cut, would come twice long before the counter does (RFC 1829 §2).
            #[cfg(feature = "historic")]
            Self::DesCbc { iv_length: 4, .. } => Iv::of(&(counter as u32).to_be_bytes()),
            #[cfg(feature = "historic")]
            Self::DesCbc { des, .. } => {
                let mut block = counter.to_be_bytes();
                des.encrypt_block((&mut block).into());
                Iv::of(&block)
            }
        }
    }

    /// Encrypts in place; a combined algorithm's tag is returned.
    pub(super) fn encrypt(
        &self,
        iv: &[u8],
        associated: &[u8],
        data: &mut [u8],
    ) -> Result<Option<[u8; 16]>, Forged> {
        match self {
            Self::Null => {}
            Self::AesCbc128(aes) => {
                cbc::Encryptor::inner_iv_slice_init(aes.as_ref(), iv)
                    .map_err(|_| Forged)?
                    .encrypt_blocks_inout_mut(InOutBuf::from(data).into_chunks().0);
            }
            Self::AesCbc256(aes) => {
                cbc::Encryptor::inner_iv_slice_init(aes.as_ref(), iv)
                    .map_err(|_| Forged)?
                    .encrypt_blocks_inout_mut(InOutBuf::from(data).into_chunks().0);
            }
            Self::Aead(key, salt) => {
                let tag = key
                    .seal_in_place_separate_tag(nonce(salt, iv)?, Aad::from(associated), data)
                    .map_err(|_| Forged)?;
                return Ok(Some(tag.as_ref().try_into().map_err(|_| Forged)?));
            }
            #[cfg(feature = "historic")]
            Self::DesCbc { des, .. } => {
                cbc::Encryptor::inner_iv_slice_init(des.as_ref(), &des_iv(iv))
                    .map_err(|_| Forged)?
                    .encrypt_blocks_inout_mut(InOutBuf::from(data).into_chunks().0);
            }
        }
        Ok(None)
    }

    /// Decrypts in place; behind a combined algorithm's data is the tag, which is verified.
    pub(super) fn decrypt(&self, iv: &[u8], associated: &[u8], data: &mut [u8]) -> Result<(), Forged> {
        match self {
            Self::Null => {}
            Self::AesCbc128(aes) => {
                cbc::Decryptor::inner_iv_slice_init(aes.as_ref(), iv)
                    .map_err(|_| Forged)?
                    .decrypt_blocks_inout_mut(InOutBuf::from(data).into_chunks().0);
            }
            Self::AesCbc256(aes) => {
                cbc::Decryptor::inner_iv_slice_init(aes.as_ref(), iv)
                    .map_err(|_| Forged)?
                    .decrypt_blocks_inout_mut(InOutBuf::from(data).into_chunks().0);
            }
            Self::Aead(key, salt) => {
                key.open_in_place(nonce(salt, iv)?, Aad::from(associated), data).map_err(|_| Forged)?;
            }
            #[cfg(feature = "historic")]
            Self::DesCbc { des, .. } => {
                cbc::Decryptor::inner_iv_slice_init(des.as_ref(), &des_iv(iv))
                    .map_err(|_| Forged)?
                    .decrypt_blocks_inout_mut(InOutBuf::from(data).into_chunks().0);
            }
        }
        Ok(())
    }
}

/// The IV of DES as it is sent, or half of one and its complement (RFC 1829 §2).
#[cfg(feature = "historic")]
fn des_iv(sent: &[u8]) -> [u8; 8] {
    std::array::from_fn(|at| match sent.get(at) {
        Some(byte) => *byte,
        None => !sent.get(at.wrapping_sub(sent.len())).copied().unwrap_or_default(),
    })
}

/// Salt and IV (RFC 4106 §4).
fn nonce(salt: &[u8; 4], iv: &[u8]) -> Result<Nonce, Forged> {
    let iv: &[u8; 8] = iv.try_into().map_err(|_| Forged)?;
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(salt);
    nonce[4..].copy_from_slice(iv);
    Ok(Nonce::assume_unique_for_key(nonce))
}
