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
//! | DES-CBC with an IV of 64 or 32 bits, keyed MD5 (feature `historic`) | 1829, 1828 |

mod cipher;
mod integrity;
mod names;
#[cfg(test)]
mod tests;

use crate::key::Key;
pub(crate) use cipher::Forged;
use cipher::{Cipher, Iv};
pub use integrity::Icv;
use integrity::Integrity;
use names::COUNTER_IV_LEN;
pub use names::{Authentication, Encryption};

/// Bytes of SPI and sequence number, before the IV (RFC 4303 §2).
const ESP_HEADER_LEN: usize = 8;
/// Bytes of the SPI, which is all that RFC 1829 has before the IV.
#[cfg(feature = "historic")]
const HISTORIC_HEADER_LEN: usize = 4;
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

    /// Bytes of header and IV.
    pub(crate) fn front(&self) -> usize {
        self.header_length() + self.iv_length()
    }

    /// The most bytes of padding, trailer and ICV.
    pub(crate) fn most_behind(&self) -> usize {
        self.alignment() - 1 + 2 + self.icv_length()
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
        let payload_at = self.front();
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

    /// Verifies and decrypts a packet from SPI to ICV; then payload and trailer are
    /// behind the [front](Self::front). On an error, what lies there is nobody's.
    pub(crate) fn open(&self, packet: &mut [u8], high: Option<u32>) -> Result<(), Forged> {
        let payload_at = self.front();
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

    /// What of the headers before it the ICV covers.
    pub(crate) fn coverage(&self) -> Coverage {
        #[cfg(feature = "historic")]
        if self.authentication.is_historic() {
            return Coverage::Rfc1826;
        }
        Coverage::Rfc4302
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

    /// Bytes of AH before the ICV field.
    pub(crate) fn fixed_length(&self) -> usize {
        if self.has_sequence() { 12 } else { 8 }
    }

    /// Bytes of AH, padded to 32 bits in IPv4 and 64 in IPv6 (RFC 4302 §2.6).
    pub(crate) fn header_length(&self, is_ipv6: bool) -> usize {
        (self.fixed_length() + self.icv_length()).next_multiple_of(if is_ipv6 { 8 } else { 4 })
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

/// By which RFC fields of headers before AH are taken as zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coverage {
    Rfc4302,
    #[cfg(feature = "historic")]
    Rfc1826,
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
