//! AES in CBC mode under a session key (thesis section 3.1.1, docs/classic.md section 7).

use aes::cipher::inout::InOutBuf;
use aes::cipher::{BlockDecryptMut, BlockEncryptMut, InnerIvInit, KeyInit};
use aes::{Aes128, Aes256};
use sha2::{Digest, Sha256};

use crate::hashed::HashedHost;
use crate::keys::SessionKey;

/// Bytes of a block.
pub const BLOCK: usize = 16;

/// How the packets of a stream are encrypted. The number is what stands on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cipher {
    /// AES-256-CBC, the default.
    Aes256Cbc = 1,
    /// AES-128-CBC, that of the report on a live network.
    Aes128Cbc = 2,
}

/// An initialization vector: the same for all packets of a route and direction.
pub type Iv = [u8; BLOCK];

/// The vector for packets from `source` to `destination`.
pub fn iv(key: &SessionKey, source: &HashedHost, destination: &HashedHost) -> Iv {
    let mut hash = Sha256::new();
    hash.update(key.as_bytes());
    hash.update(source.address.octets());
    hash.update(destination.address.octets());
    let hash = hash.finalize();
    std::array::from_fn(|i| hash[i])
}

/// A session key, made ready for both ciphers.
pub struct CipherKeys {
    aes256: Aes256,
    aes128: Aes128,
}

impl CipherKeys {
    /// Expands the key.
    pub fn new(key: &SessionKey) -> Self {
        let bytes = key.as_bytes();
        CipherKeys {
            aes256: Aes256::new(bytes.first_chunk::<32>().unwrap_or(&[0; 32]).into()),
            aes128: Aes128::new(bytes.first_chunk::<16>().unwrap_or(&[0; 16]).into()),
        }
    }

    /// Encrypts whole blocks in place; bytes after the last whole block stay as they are.
    pub fn encrypt(&self, cipher: Cipher, iv: &Iv, data: &mut [u8]) {
        let (blocks, _) = InOutBuf::from(data).into_chunks();
        match cipher {
            Cipher::Aes256Cbc => {
                cbc::Encryptor::inner_iv_init(&self.aes256, iv.into()).encrypt_blocks_inout_mut(blocks);
            }
            Cipher::Aes128Cbc => {
                cbc::Encryptor::inner_iv_init(&self.aes128, iv.into()).encrypt_blocks_inout_mut(blocks);
            }
        }
    }

    /// Decrypts whole blocks in place; bytes after the last whole block stay as they are.
    pub fn decrypt(&self, cipher: Cipher, iv: &Iv, data: &mut [u8]) {
        let (blocks, _) = InOutBuf::from(data).into_chunks();
        match cipher {
            Cipher::Aes256Cbc => {
                cbc::Decryptor::inner_iv_init(&self.aes256, iv.into()).decrypt_blocks_inout_mut(blocks);
            }
            Cipher::Aes128Cbc => {
                cbc::Decryptor::inner_iv_init(&self.aes128, iv.into()).decrypt_blocks_inout_mut(blocks);
            }
        }
    }
}
