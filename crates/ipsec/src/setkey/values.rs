//! Values in setkey's language: addresses, numbers, keys, algorithms, protocols.

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use super::words::{SyntaxError, Word};
use crate::algorithm::{Authentication, Encryption};
use crate::association::{Protocol, Spi};
use crate::key::Key;

/// An address, with a port if there is one: `2001:db8::1[4500]`.
pub(super) fn address(word: &Word) -> Result<(IpAddr, Option<u16>), SyntaxError> {
    let (text, port) = split_port(word)?;
    let address = text.parse().map_err(|_| {
        word.error(format!("“{text}” is no address"), "write one like 2001:db8::1 or 192.0.2.1")
    })?;
    Ok((address, port))
}

/// A network or address, with a port if there is one: `2001:db8::/32[80]`.
pub(super) fn network(word: &Word) -> Result<(IpNet, Option<u16>), SyntaxError> {
    let (text, port) = split_port(word)?;
    let network = IpNet::from_str(text).or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let network = network.map_err(|_| {
        word.error(format!("“{text}” is no network"), "write one like 2001:db8::/32 or 192.0.2.0/24")
    })?;
    Ok((network.trunc(), port))
}

fn split_port(word: &Word) -> Result<(&str, Option<u16>), SyntaxError> {
    let Some((address, port)) = word.text.split_once('[') else { return Ok((&word.text, None)) };
    let port = port.strip_suffix(']').filter(|port| !port.is_empty());
    match port {
        Some("any") => Ok((address, None)),
        Some(port) => {
            let port = port.parse().map_err(|_| {
                word.error(format!("“{port}” is no port"), "write a number up to 65535, or any")
            })?;
            Ok((address, Some(port)))
        }
        None => Err(word.error("the port does not end", "write it in brackets, like [4500]")),
    }
}

/// A number, decimal or, with `0x`, hexadecimal.
pub(super) fn number<T: TryFrom<u64>>(word: &Word) -> Result<T, SyntaxError> {
    let number = match word.text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.text.parse().ok(),
    };
    number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| {
        word.error(
            format!("{} is no number of the right size", word.shown()),
            "write a decimal one, or a hexadecimal one after 0x",
        )
    })
}

/// An SPI that an association may have.
pub(super) fn spi(word: &Word) -> Result<Spi, SyntaxError> {
    let spi = Spi(number(word)?);
    if spi.is_reserved() {
        return Err(word.error("SPIs below 256 are reserved", "take a number from 256 on"));
    }
    Ok(spi)
}

/// A security protocol; the second value is whether it is in UDP.
pub(super) fn protocol(word: &Word) -> Result<(Protocol, bool), SyntaxError> {
    match word.text.as_str() {
        "ah" | "ah-old" => Ok((Protocol::Ah, false)),
        "esp" | "esp-old" => Ok((Protocol::Esp, false)),
        "esp-udp" => Ok((Protocol::Esp, true)),
        other => {
            Err(word.error(format!("“{other}” is no security protocol here"), "write ah, esp or esp-udp"))
        }
    }
}

/// A key: a string in quotation marks, or hexadecimal digits after `0x`. Of a wrong one nothing is repeated.
pub(super) fn key(word: &Word) -> Result<Key, SyntaxError> {
    if word.is_quoted {
        return Ok(Key::new(word.text.as_bytes()));
    }
    let wrong = || {
        word.error(
            "this is no key",
            "write a string in quotation marks, or pairs of hexadecimal digits after 0x",
        )
    };
    let digits = word.text.strip_prefix("0x").ok_or_else(wrong)?;
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    if pairs.is_empty() || !rest.is_empty() {
        return Err(wrong());
    }
    let mut bytes = zeroize::Zeroizing::new(vec![0; pairs.len()]);
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        let digit = |character: u8| char::from(character).to_digit(16).ok_or_else(wrong);
        *byte = (digit(*high)? << 4 | digit(*low)?) as u8;
    }
    Ok(Key::new(&bytes))
}

/// An encryption algorithm by name and length of its key; GMAC is one here, and has none.
pub(super) fn encryption(
    word: &Word,
    key_length: usize,
) -> Result<(Encryption, Option<Authentication>), SyntaxError> {
    let wrong_length = |lengths: &str| {
        word.error(
            format!("a key of {key_length} bytes does not fit {}", word.text.as_str()),
            format!("give it one of {lengths} bytes"),
        )
    };
    Ok(match (word.text.as_str(), key_length) {
        ("null", _) => (Encryption::Null, None),
        ("aes-cbc" | "rijndael-cbc", 16) => (Encryption::AesCbc128, None),
        ("aes-cbc" | "rijndael-cbc", 32) => (Encryption::AesCbc256, None),
        ("aes-cbc" | "rijndael-cbc", _) => return Err(wrong_length("16 or 32")),
        ("aes-gcm-16", 20) => (Encryption::AesGcm128, None),
        ("aes-gcm-16", 36) => (Encryption::AesGcm256, None),
        ("aes-gcm-16", _) => return Err(wrong_length("20 or 36 (the last 4 are the salt)")),
        ("aes-gmac", 20) => (Encryption::Null, Some(Authentication::AesGmac128)),
        ("aes-gmac", 36) => (Encryption::Null, Some(Authentication::AesGmac256)),
        ("aes-gmac", _) => return Err(wrong_length("20 or 36 (the last 4 are the salt)")),
        ("chacha20-poly1305", 36) => (Encryption::ChaCha20Poly1305, None),
        ("chacha20-poly1305", _) => return Err(wrong_length("36 (the last 4 are the salt)")),
        #[cfg(feature = "historic")]
        ("des-cbc", 8) => (Encryption::DesCbc, None),
        #[cfg(feature = "historic")]
        ("des-32iv", 8) => (Encryption::DesCbcIv32, None),
        #[cfg(feature = "historic")]
        ("des-cbc" | "des-32iv", _) => return Err(wrong_length("8")),
        (other, _) => {
            return Err(word.error(
                format!("“{other}” is no encryption algorithm here"),
                "take aes-gcm-16, chacha20-poly1305, aes-cbc, aes-gmac or null",
            ));
        }
    })
}

/// An authentication algorithm by name, with a key of this length.
pub(super) fn authentication(word: &Word, key_length: usize) -> Result<Authentication, SyntaxError> {
    let (algorithm, lengths) = match (word.text.as_str(), key_length) {
        ("hmac-sha256" | "hmac-sha2-256", _) => (Authentication::HmacSha256, "32"),
        ("hmac-sha384" | "hmac-sha2-384", _) => (Authentication::HmacSha384, "48"),
        ("hmac-sha512" | "hmac-sha2-512", _) => (Authentication::HmacSha512, "64"),
        ("aes-gmac", 36) => (Authentication::AesGmac256, "36"),
        ("aes-gmac", _) => (Authentication::AesGmac128, "20 or 36 (the last 4 are the salt)"),
        #[cfg(feature = "historic")]
        ("keyed-md5", _) => (Authentication::KeyedMd5, "1 to 64"),
        (other, _) => {
            return Err(word.error(
                format!("“{other}” is no authentication algorithm here"),
                "take hmac-sha256, hmac-sha384, hmac-sha512 or aes-gmac",
            ));
        }
    };
    if !algorithm.accepts_key_length(key_length) {
        return Err(word.error(
            format!("a key of {key_length} bytes does not fit {}", word.text.as_str()),
            format!("give it one of {lengths} bytes"),
        ));
    }
    Ok(algorithm)
}
