//! The algorithms by name, with the lengths that go with them.

/// Length of the IV of GCM, GMAC and ChaCha20-Poly1305, as sent: the part of the nonce that is not the salt.
pub(super) const COUNTER_IV_LEN: usize = 8;

/// The longest key of keyed MD5: a block of MD5. RFC 1828 §1.1 wants 128 bits and less, and encourages more.
const MAX_KEYED_MD5_KEY: usize = 64;

/// How a payload is hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encryption {
    /// Not at all (RFC 2410).
    Null,
    /// AES-CBC with a 128-bit key (RFC 3602).
    AesCbc128,
    /// AES-CBC with a 256-bit key (RFC 3602).
    AesCbc256,
    /// AES-GCM with a 128-bit key and a 16-byte ICV (RFC 4106).
    AesGcm128,
    /// AES-GCM with a 256-bit key and a 16-byte ICV (RFC 4106).
    AesGcm256,
    /// ChaCha20-Poly1305 (RFC 7634).
    ChaCha20Poly1305,
    /// DES-CBC with a 64-bit IV, in the packet format of RFC 1829: no sequence number, no ICV. Broken.
    #[cfg(feature = "historic")]
    DesCbc,
    /// The same with a 32-bit IV: its other half is the complement (RFC 1829 §2).
    #[cfg(feature = "historic")]
    DesCbcIv32,
}

impl Encryption {
    /// Bytes of the key, those of the salt included.
    pub const fn key_length(self) -> usize {
        match self {
            Self::Null => 0,
            Self::AesCbc128 => 16,
            Self::AesCbc256 => 32,
            Self::AesGcm128 => 16 + 4,
            Self::AesGcm256 | Self::ChaCha20Poly1305 => 32 + 4,
            #[cfg(feature = "historic")]
            Self::DesCbc | Self::DesCbcIv32 => 8,
        }
    }

    /// Whether it authenticates, too, and so stands without an [`Authentication`].
    pub const fn is_combined(self) -> bool {
        matches!(self, Self::AesGcm128 | Self::AesGcm256 | Self::ChaCha20Poly1305)
    }

    pub(super) const fn is_historic(self) -> bool {
        #[cfg(feature = "historic")]
        return matches!(self, Self::DesCbc | Self::DesCbcIv32);
        #[cfg(not(feature = "historic"))]
        false
    }

    pub(super) const fn iv_length(self) -> usize {
        match self {
            Self::Null => 0,
            Self::AesCbc128 | Self::AesCbc256 => 16,
            Self::AesGcm128 | Self::AesGcm256 | Self::ChaCha20Poly1305 => COUNTER_IV_LEN,
            #[cfg(feature = "historic")]
            Self::DesCbc => 8,
            #[cfg(feature = "historic")]
            Self::DesCbcIv32 => 4,
        }
    }

    /// What the length of payload and trailer is a multiple of.
    pub(super) const fn alignment(self) -> usize {
        match self {
            Self::AesCbc128 | Self::AesCbc256 => 16,
            #[cfg(feature = "historic")]
            Self::DesCbc | Self::DesCbcIv32 => 8,
            _ => 4,
        }
    }
}

/// How bytes are authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Authentication {
    /// Not at all: with a combined [`Encryption`].
    None,
    /// HMAC-SHA-256-128 (RFC 4868).
    HmacSha256,
    /// HMAC-SHA-384-192 (RFC 4868).
    HmacSha384,
    /// HMAC-SHA-512-256 (RFC 4868).
    HmacSha512,
    /// AES-GMAC with a 128-bit key (RFC 4543).
    AesGmac128,
    /// AES-GMAC with a 256-bit key (RFC 4543).
    AesGmac256,
    /// MD5 over key, data, key (RFC 1828), in the AH of RFC 1826, which has no sequence number. Broken.
    #[cfg(feature = "historic")]
    KeyedMd5,
}

impl Authentication {
    /// Bytes of the key, those of the salt included; of keyed MD5, which takes others, one that suits it.
    pub const fn key_length(self) -> usize {
        match self {
            Self::None => 0,
            Self::HmacSha256 => 32,
            Self::HmacSha384 => 48,
            Self::HmacSha512 => 64,
            Self::AesGmac128 => 16 + 4,
            Self::AesGmac256 => 32 + 4,
            #[cfg(feature = "historic")]
            Self::KeyedMd5 => 16,
        }
    }

    /// Whether a key of so many bytes, those of the salt included, is one of this algorithm.
    pub const fn accepts_key_length(self, length: usize) -> bool {
        if self.is_historic() {
            return matches!(length, 1..=MAX_KEYED_MD5_KEY);
        }
        length == self.key_length()
    }

    pub(super) const fn is_gmac(self) -> bool {
        matches!(self, Self::AesGmac128 | Self::AesGmac256)
    }

    pub(super) const fn is_historic(self) -> bool {
        #[cfg(feature = "historic")]
        return matches!(self, Self::KeyedMd5);
        #[cfg(not(feature = "historic"))]
        false
    }

    pub(super) const fn icv_length(self) -> usize {
        match self {
            Self::None => 0,
            Self::HmacSha256 | Self::AesGmac128 | Self::AesGmac256 => 16,
            Self::HmacSha384 => 24,
            Self::HmacSha512 => 32,
            #[cfg(feature = "historic")]
            Self::KeyedMd5 => 16,
        }
    }
}
