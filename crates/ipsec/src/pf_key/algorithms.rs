//! Algorithms by the numbers of PF_KEY: those of Linux's `linux/pfkeyv2.h` where it has one, of FreeBSD's
//! `net/pfkeyv2.h` for GMAC in AH, of KAME for keyed MD5, and the number of IKEv2 for ChaCha20-Poly1305, which nobody has
//! given one here.

use super::extension::Algorithm;
use crate::algorithm::{AhTransform, Authentication, Encryption, EspTransform, TransformError};
use crate::association::Transform;
use crate::key::Key;

const NULL: u8 = 11;
const AES_CBC: u8 = 12;
const AES_GCM_16: u8 = 20;
const NULL_AES_GMAC: u8 = 23;
const CHACHA20_POLY1305: u8 = 28;
#[cfg(feature = "historic")]
const DES_CBC: u8 = 2;
/// That of ISAKMP (RFC 2407 §4.4.4), as those of Linux are.
#[cfg(feature = "historic")]
const DES_IV32: u8 = 8;

const HMAC_SHA_256: u8 = 5;
const HMAC_SHA_384: u8 = 6;
const HMAC_SHA_512: u8 = 7;
const AES_128_GMAC: u8 = 11;
const AES_256_GMAC: u8 = 13;
#[cfg(feature = "historic")]
const KEYED_MD5: u8 = 249;

/// The transform of ESP by these numbers; key lengths choose between those of one number.
pub(super) fn esp(
    encryption: u8,
    encryption_key: Option<&Key>,
    authentication: u8,
    authentication_key: Option<&Key>,
) -> Result<Transform, TransformError> {
    let empty = Key::empty();
    let encryption_key = encryption_key.unwrap_or(&empty);
    let authentication_key = authentication_key.unwrap_or(&empty);
    // GMAC is an encryption algorithm here, as in IKE.
    if encryption == NULL_AES_GMAC {
        if authentication != 0 {
            return Err(TransformError::Combination);
        }
        let gmac = match encryption_key.reveal().len() {
            20 => Authentication::AesGmac128,
            36 => Authentication::AesGmac256,
            _ => return Err(TransformError::KeyLength),
        };
        return EspTransform::new(Encryption::Null, &empty, gmac, encryption_key).map(Transform::Esp);
    }
    let cipher = match (encryption, encryption_key.reveal().len()) {
        (NULL, _) => Encryption::Null,
        (AES_CBC, 16) => Encryption::AesCbc128,
        (AES_CBC, 32) => Encryption::AesCbc256,
        (AES_GCM_16, 20) => Encryption::AesGcm128,
        (AES_GCM_16, 36) => Encryption::AesGcm256,
        (CHACHA20_POLY1305, _) => Encryption::ChaCha20Poly1305,
        #[cfg(feature = "historic")]
        (DES_CBC, _) => Encryption::DesCbc,
        #[cfg(feature = "historic")]
        (DES_IV32, _) => Encryption::DesCbcIv32,
        _ => return Err(TransformError::KeyLength),
    };
    let authentication = by_number(authentication).ok_or(TransformError::Combination)?;
    EspTransform::new(cipher, encryption_key, authentication, authentication_key).map(Transform::Esp)
}

/// The transform of AH by this number.
pub(super) fn ah(authentication: u8, key: Option<&Key>) -> Result<Transform, TransformError> {
    let authentication = by_number(authentication).ok_or(TransformError::Combination)?;
    AhTransform::new(authentication, key.unwrap_or(&Key::empty())).map(Transform::Ah)
}

fn by_number(number: u8) -> Option<Authentication> {
    Some(match number {
        0 => Authentication::None,
        HMAC_SHA_256 => Authentication::HmacSha256,
        HMAC_SHA_384 => Authentication::HmacSha384,
        HMAC_SHA_512 => Authentication::HmacSha512,
        AES_128_GMAC => Authentication::AesGmac128,
        AES_256_GMAC => Authentication::AesGmac256,
        #[cfg(feature = "historic")]
        KEYED_MD5 => Authentication::KeyedMd5,
        _ => return None,
    })
}

/// Authentication and encryption number of a transform.
pub(crate) fn numbers(transform: &Transform) -> (u8, u8) {
    let of = |authentication| match authentication {
        Authentication::None => 0,
        Authentication::HmacSha256 => HMAC_SHA_256,
        Authentication::HmacSha384 => HMAC_SHA_384,
        Authentication::HmacSha512 => HMAC_SHA_512,
        Authentication::AesGmac128 => AES_128_GMAC,
        Authentication::AesGmac256 => AES_256_GMAC,
        #[cfg(feature = "historic")]
        Authentication::KeyedMd5 => KEYED_MD5,
    };
    match transform {
        Transform::Ah(transform) => (of(transform.authentication()), 0),
        Transform::Esp(transform) => {
            let authentication = of(transform.authentication());
            match transform.encryption() {
                Encryption::Null if matches!(authentication, AES_128_GMAC | AES_256_GMAC) => {
                    (0, NULL_AES_GMAC)
                }
                Encryption::Null => (authentication, NULL),
                Encryption::AesCbc128 | Encryption::AesCbc256 => (authentication, AES_CBC),
                Encryption::AesGcm128 | Encryption::AesGcm256 => (0, AES_GCM_16),
                Encryption::ChaCha20Poly1305 => (0, CHACHA20_POLY1305),
                #[cfg(feature = "historic")]
                Encryption::DesCbc => (0, DES_CBC),
                #[cfg(feature = "historic")]
                Encryption::DesCbcIv32 => (0, DES_IV32),
            }
        }
    }
}

/// What setkey's language calls an encryption algorithm.
pub fn encryption_name(number: u8) -> Option<&'static str> {
    Some(match number {
        NULL => "null",
        AES_CBC => "aes-cbc",
        AES_GCM_16 => "aes-gcm-16",
        NULL_AES_GMAC => "aes-gmac",
        CHACHA20_POLY1305 => "chacha20-poly1305",
        #[cfg(feature = "historic")]
        DES_CBC => "des-cbc",
        #[cfg(feature = "historic")]
        DES_IV32 => "des-32iv",
        _ => return None,
    })
}

/// What setkey's language calls an authentication algorithm.
pub fn authentication_name(number: u8) -> Option<&'static str> {
    Some(match number {
        HMAC_SHA_256 => "hmac-sha256",
        HMAC_SHA_384 => "hmac-sha384",
        HMAC_SHA_512 => "hmac-sha512",
        AES_128_GMAC | AES_256_GMAC => "aes-gmac",
        #[cfg(feature = "historic")]
        KEYED_MD5 => "keyed-md5",
        _ => return None,
    })
}

/// The algorithms of a transform, with keys of the length that its own have.
pub(super) fn used(transform: &Transform) -> (Option<Algorithm>, Option<Algorithm>) {
    let (authentication_number, encryption_number) = numbers(transform);
    let (authentication, encryption) = match transform {
        Transform::Ah(transform) => (transform.authentication(), Encryption::Null),
        Transform::Esp(transform) => (transform.authentication(), transform.encryption()),
    };
    let of = |supported: Vec<Algorithm>, id: u8, key_length: usize| {
        let found = supported.into_iter().find(|algorithm| algorithm.id == id)?;
        let bits = (key_length * 8) as u16;
        Some(Algorithm { min_bits: bits, max_bits: bits, ..found })
    };
    let encryption_length = match encryption_number {
        NULL_AES_GMAC => authentication.key_length(),
        _ => encryption.key_length(),
    };
    let is_ah = matches!(transform, Transform::Ah(_));
    (
        of(supported_authentication(is_ah), authentication_number, authentication.key_length()),
        of(supported_encryption(), encryption_number, encryption_length),
    )
}

const fn algorithm(id: u8, iv_length: u8, min_bits: u16, max_bits: u16) -> Algorithm {
    Algorithm { id, iv_length, min_bits, max_bits }
}

/// What is told to a daemon that registers. Bits of the salt count, as they are a part of the key.
pub(super) fn supported_authentication(is_ah: bool) -> Vec<Algorithm> {
    let mut supported = vec![
        algorithm(HMAC_SHA_256, 0, 256, 256),
        algorithm(HMAC_SHA_384, 0, 384, 384),
        algorithm(HMAC_SHA_512, 0, 512, 512),
    ];
    if is_ah {
        supported.extend([algorithm(AES_128_GMAC, 8, 160, 160), algorithm(AES_256_GMAC, 8, 288, 288)]);
        #[cfg(feature = "historic")]
        supported.push(algorithm(KEYED_MD5, 0, 8, 512));
    }
    supported
}

/// As [`supported_authentication`], for ESP.
pub(super) fn supported_encryption() -> Vec<Algorithm> {
    vec![
        algorithm(AES_GCM_16, 8, 160, 288),
        algorithm(CHACHA20_POLY1305, 8, 288, 288),
        algorithm(AES_CBC, 16, 128, 256),
        algorithm(NULL_AES_GMAC, 8, 160, 288),
        algorithm(NULL, 0, 0, 0),
        #[cfg(feature = "historic")]
        algorithm(DES_CBC, 8, 64, 64),
        #[cfg(feature = "historic")]
        algorithm(DES_IV32, 4, 64, 64),
    ]
}

/// Whether an encryption algorithm needs no other to authenticate, and hides: what a proposal is made of.
pub(super) fn stands_alone(encryption: u8) -> bool {
    matches!(encryption, AES_GCM_16 | CHACHA20_POLY1305)
}
