//! The algorithm switch: which ciphers and authenticators there are, and what is done with them to the bytes of an ESP
//! packet or an AH.
//!
//! An association holds a [`EspTransform`] or an [`AhTransform`]; header processing ([`esp`](crate::esp),
//! [`ah`](crate::ah)) asks it for lengths and calls it, and knows no algorithm by name. A new one is a variant here, and
//! nothing elsewhere.
//!
//! | algorithm | RFC |
//! |---|---|
//! | AES-GCM with a 16-byte ICV | 4106 |
//! | ChaCha20-Poly1305 | 7634 |
//! | AES-CBC | 3602 |
//! | NULL | 2410 |
//! | HMAC-SHA-256-128, -384-192, -512-256 | 4868 |
//! | AES-GMAC, for AH, and for ESP with NULL | 4543 |
//! | DES-CBC with a 64-bit IV, keyed MD5 (feature `historic`) | 1829, 1828 |

mod cipher;
mod integrity;
#[cfg(test)]
mod tests;

use crate::key::Key;
use cipher::Cipher;
pub use integrity::Icv;
use integrity::Integrity;

/// Bytes of SPI and sequence number, before the IV (RFC 4303 §2).
const ESP_HEADER_LEN: usize = 8;
/// Bytes of the SPI, which is all that RFC 1829 has before the IV.
#[cfg(feature = "historic")]
const HISTORIC_HEADER_LEN: usize = 4;
/// Length of the IV of GCM, GMAC and ChaCha20-Poly1305, as sent: the part of the nonce that is not the salt.
const COUNTER_IV_LEN: usize = 8;

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
            Self::DesCbc => 8,
        }
    }

    /// Whether it authenticates, too, and so stands without an [`Authentication`].
    pub const fn is_combined(self) -> bool {
        matches!(self, Self::AesGcm128 | Self::AesGcm256 | Self::ChaCha20Poly1305)
    }

    const fn is_historic(self) -> bool {
        #[cfg(feature = "historic")]
        return matches!(self, Self::DesCbc);
        #[cfg(not(feature = "historic"))]
        false
    }

    const fn iv_length(self) -> usize {
        match self {
            Self::Null => 0,
            Self::AesCbc128 | Self::AesCbc256 => 16,
            Self::AesGcm128 | Self::AesGcm256 | Self::ChaCha20Poly1305 => COUNTER_IV_LEN,
            #[cfg(feature = "historic")]
            Self::DesCbc => 8,
        }
    }

    /// What the length of payload and trailer is a multiple of.
    const fn alignment(self) -> usize {
        match self {
            Self::AesCbc128 | Self::AesCbc256 => 16,
            #[cfg(feature = "historic")]
            Self::DesCbc => 8,
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
    /// Whether a key of so many bytes, those of the salt included, is one of this algorithm.
    pub const fn accepts_key_length(self, length: usize) -> bool {
        match self {
            Self::None => length == 0,
            Self::HmacSha256 => length == 32,
            Self::HmacSha384 => length == 48,
            Self::HmacSha512 => length == 64,
            Self::AesGmac128 => length == 16 + 4,
            Self::AesGmac256 => length == 32 + 4,
            // RFC 1828 §1: keys may be of any length, those of less than 128 bits are not to be used.
            #[cfg(feature = "historic")]
            Self::KeyedMd5 => length >= 16 && length <= 64,
        }
    }

    const fn is_gmac(self) -> bool {
        matches!(self, Self::AesGmac128 | Self::AesGmac256)
    }

    const fn is_historic(self) -> bool {
        #[cfg(feature = "historic")]
        return matches!(self, Self::KeyedMd5);
        #[cfg(not(feature = "historic"))]
        false
    }

    const fn icv_length(self) -> usize {
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

/// Why algorithms and keys make no transform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TransformError {
    /// A key has not the length that its algorithm takes.
    #[error("the key is not of the length that the algorithm takes")]
    KeyLength,
    /// Nothing would be authenticated: RFC 4303 §1 leaves that to whoever asks for it, and here nobody can.
    #[error("nothing would be authenticated")]
    Unauthenticated,
    /// These two are not used together: a combined algorithm takes no second one, GMAC goes with NULL only.
    #[error("the two algorithms do not go together")]
    Combination,
}

/// The bytes are not those that were sealed: damaged or forged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Forged;

/// The algorithms of an ESP association, with their keys.
pub struct EspTransform {
    encryption: Encryption,
    authentication: Authentication,
    cipher: Cipher,
    integrity: Option<Integrity>,
}

impl EspTransform {
    /// Makes algorithms and keys ready.
    ///
    /// # Errors
    /// [`TransformError`] when the keys do not fit the algorithms, or these not each other.
    pub fn new(
        encryption: Encryption,
        encryption_key: &Key,
        authentication: Authentication,
        authentication_key: &Key,
    ) -> Result<Self, TransformError> {
        if encryption_key.reveal().len() != encryption.key_length()
            || !authentication.accepts_key_length(authentication_key.reveal().len())
        {
            return Err(TransformError::KeyLength);
        }
        let alone = authentication == Authentication::None;
        if alone && !encryption.is_combined() && !encryption.is_historic() {
            return Err(TransformError::Unauthenticated);
        }
        if !alone && (encryption.is_combined() || encryption.is_historic())
            || authentication.is_gmac() && encryption != Encryption::Null
            || authentication.is_historic()
        {
            return Err(TransformError::Combination);
        }
        Ok(Self {
            encryption,
            authentication,
            cipher: Cipher::new(encryption, encryption_key.reveal()).ok_or(TransformError::KeyLength)?,
            integrity: Integrity::new(authentication, authentication_key.reveal()),
        })
    }

    /// How it hides.
    pub fn encryption(&self) -> Encryption {
        self.encryption
    }

    /// How it authenticates, where the cipher does not.
    pub fn authentication(&self) -> Authentication {
        self.authentication
    }

    /// Whether payloads are hidden at all.
    pub fn hides(&self) -> bool {
        self.encryption != Encryption::Null
    }

    /// Whether packets are authenticated.
    pub fn authenticates(&self) -> bool {
        self.encryption.is_combined() || self.integrity.is_some()
    }

    /// Whether there is a sequence number behind the SPI; RFC 1829 has none.
    pub fn has_sequence(&self) -> bool {
        !self.encryption.is_historic()
    }

    pub(crate) fn header_length(&self) -> usize {
        #[cfg(feature = "historic")]
        if self.encryption.is_historic() {
            return HISTORIC_HEADER_LEN;
        }
        ESP_HEADER_LEN
    }

    pub(crate) fn iv_length(&self) -> usize {
        if self.authentication.is_gmac() { COUNTER_IV_LEN } else { self.encryption.iv_length() }
    }

    pub(crate) fn alignment(&self) -> usize {
        self.encryption.alignment()
    }

    pub(crate) fn icv_length(&self) -> usize {
        if self.encryption.is_combined() { 16 } else { self.authentication.icv_length() }
    }

    /// Whether the padding is to be 1, 2, 3, … (RFC 4303 §2.4); RFC 1829 has any bytes.
    pub(crate) fn checks_padding(&self) -> bool {
        !self.encryption.is_historic()
    }

    /// Encrypts and authenticates a packet from SPI to ICV. Header, payload and trailer are there; IV and ICV are filled
    /// in. `counter` must be another one each time under one key; `high` is the upper half of an extended sequence number.
    pub(crate) fn seal(&self, packet: &mut [u8], counter: u64, high: Option<u32>) -> Result<(), Forged> {
        let iv = if self.authentication.is_gmac() {
            Iv::of(&counter.to_be_bytes())
        } else {
            self.cipher.iv(counter)
        };
        self.seal_with(packet, &iv, high)
    }

    fn seal_with(&self, packet: &mut [u8], iv: &Iv, high: Option<u32>) -> Result<(), Forged> {
        let payload_at = self.header_length() + self.iv_length();
        let end = packet.len().checked_sub(self.icv_length()).ok_or(Forged)?;
        let (body, icv) = packet.split_at_mut_checked(end).ok_or(Forged)?;
        let (head, payload) = body.split_at_mut_checked(payload_at).ok_or(Forged)?;
        head.get_mut(self.header_length()..).ok_or(Forged)?.copy_from_slice(iv.bytes());
        let associated = Associated::new(head, high);
        if let Some(tag) = self.cipher.encrypt(iv.bytes(), associated.bytes(), payload)? {
            icv.copy_from_slice(&tag);
        }
        if let Some(integrity) = &self.integrity {
            let tag = self.tag(integrity, iv.bytes(), body, high);
            icv.copy_from_slice(tag.bytes());
        }
        Ok(())
    }

    /// Verifies and decrypts a packet from SPI to ICV; then payload and trailer are where
    /// [`payload`](Self::payload) says. On an error, what lies there is nobody's.
    pub(crate) fn open(&self, packet: &mut [u8], high: Option<u32>) -> Result<(), Forged> {
        let payload_at = self.header_length() + self.iv_length();
        let end = packet.len().checked_sub(self.icv_length()).ok_or(Forged)?;
        if let Some(integrity) = &self.integrity {
            let (body, icv) = packet.split_at_checked(end).ok_or(Forged)?;
            let iv = body.get(self.header_length()..payload_at).ok_or(Forged)?;
            if !self.tag(integrity, iv, body, high).is(icv) {
                return Err(Forged);
            }
        }
        let (head, sealed) = packet.split_at_mut_checked(payload_at).ok_or(Forged)?;
        let associated = Associated::new(head, high);
        let iv = head.get(self.header_length()..).ok_or(Forged)?;
        let plain = if self.encryption.is_combined() { sealed.len() } else { end.saturating_sub(payload_at) };
        self.cipher.decrypt(iv, associated.bytes(), sealed.get_mut(..plain).ok_or(Forged)?)
    }

    /// Where payload and trailer are in a packet of so many bytes from SPI to ICV.
    pub(crate) fn payload(&self, length: usize) -> std::ops::Range<usize> {
        self.header_length() + self.iv_length()..length.saturating_sub(self.icv_length())
    }

    /// The ICV of a separate algorithm. The upper half of an extended sequence number is behind the data for HMAC
    /// (RFC 4303 §2.2.1), and before its lower half for GMAC (RFC 4543 §3.3).
    fn tag(&self, integrity: &Integrity, iv: &[u8], body: &[u8], high: Option<u32>) -> Icv {
        let high = high.map(u32::to_be_bytes);
        let high: &[u8] = high.as_ref().map_or(&[], |high| high);
        if self.authentication.is_gmac() {
            let (spi, rest) = body.split_at_checked(4).unwrap_or_default();
            return integrity.icv(iv, &[spi, high, rest]);
        }
        integrity.icv(&[], &[body, high])
    }
}

impl std::fmt::Debug for EspTransform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EspTransform({:?}, {:?})", self.encryption, self.authentication)
    }
}

/// The algorithm of an AH association, with its key.
pub struct AhTransform {
    authentication: Authentication,
    integrity: Integrity,
}

impl AhTransform {
    /// Makes the algorithm and its key ready.
    ///
    /// # Errors
    /// [`TransformError::KeyLength`], or [`TransformError::Unauthenticated`] for [`Authentication::None`].
    pub fn new(authentication: Authentication, key: &Key) -> Result<Self, TransformError> {
        if !authentication.accepts_key_length(key.reveal().len()) {
            return Err(TransformError::KeyLength);
        }
        let integrity =
            Integrity::new(authentication, key.reveal()).ok_or(TransformError::Unauthenticated)?;
        Ok(Self { authentication, integrity })
    }

    /// How it authenticates.
    pub fn authentication(&self) -> Authentication {
        self.authentication
    }

    /// Whether there is a sequence number behind the SPI; RFC 1826 has none.
    pub fn has_sequence(&self) -> bool {
        !self.authentication.is_historic()
    }

    /// Bytes of the IV at the beginning of the ICV field; GMAC has one (RFC 4543 §4).
    pub(crate) fn iv_length(&self) -> usize {
        if self.authentication.is_gmac() { COUNTER_IV_LEN } else { 0 }
    }

    /// Bytes of the ICV field, without padding.
    pub(crate) fn icv_length(&self) -> usize {
        self.iv_length() + self.authentication.icv_length()
    }

    /// The ICV over `parts`, one behind the other.
    pub(crate) fn icv(&self, iv: &[u8], parts: &[&[u8]]) -> Icv {
        self.integrity.icv(iv, parts)
    }
}

impl std::fmt::Debug for AhTransform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AhTransform({:?})", self.authentication)
    }
}

/// An initialization vector as sent.
struct Iv {
    bytes: [u8; 16],
    length: usize,
}

impl Iv {
    fn of(bytes: &[u8]) -> Self {
        let mut iv = Self { bytes: [0; 16], length: bytes.len().min(16) };
        for (to, from) in iv.bytes.iter_mut().zip(bytes) {
            *to = *from;
        }
        iv
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// What a combined algorithm authenticates beside the payload: SPI and sequence number (RFC 4106 §5).
struct Associated {
    bytes: [u8; 12],
    length: usize,
}

impl Associated {
    fn new(header: &[u8], high: Option<u32>) -> Self {
        let mut associated = Self { bytes: [0; 12], length: ESP_HEADER_LEN };
        let Some((spi_and_low, _)) = header.split_first_chunk::<ESP_HEADER_LEN>() else {
            return Self { length: 0, ..associated };
        };
        associated.bytes[..8].copy_from_slice(spi_and_low);
        if let Some(high) = high {
            associated.bytes.copy_within(4..8, 8);
            associated.bytes[4..8].copy_from_slice(&high.to_be_bytes());
            associated.length = 12;
        }
        associated
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}
