//! Session keys (thesis section 2.5.1).

use std::fmt;
use std::str::FromStr;

use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// Bytes of a session key: the 512 bits of the reference implementation.
pub const SESSION_KEY_LEN: usize = 64;

/// The secret of a stream, which both ends have.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct SessionKey([u8; SESSION_KEY_LEN]);

/// A text is no session key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a session key: 128 hexadecimal digits")]
pub struct InvalidKey;

impl SessionKey {
    /// The key with these bytes.
    pub const fn from_bytes(bytes: [u8; SESSION_KEY_LEN]) -> Self {
        SessionKey(bytes)
    }

    /// The key's bytes.
    pub const fn as_bytes(&self) -> &[u8; SESSION_KEY_LEN] {
        &self.0
    }

    /// The key as key files have it.
    pub fn to_hex(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(2 * SESSION_KEY_LEN));
        for byte in self.0 {
            for nibble in [byte >> 4, byte & 15] {
                text.push(char::from_digit(u32::from(nibble), 16).unwrap_or('0'));
            }
        }
        text
    }
}

/// Reads 128 hexadecimal digits, with white space around them.
impl FromStr for SessionKey {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        let digits = text.trim().as_bytes();
        if digits.len() != 2 * SESSION_KEY_LEN {
            return Err(InvalidKey);
        }
        let mut key = SessionKey([0; SESSION_KEY_LEN]);
        for (byte, pair) in key.0.iter_mut().zip(digits.as_chunks::<2>().0) {
            for digit in pair {
                let value = char::from(*digit).to_digit(16).ok_or(InvalidKey)?;
                *byte = *byte << 4 | value as u8;
            }
        }
        Ok(key)
    }
}

impl PartialEq for SessionKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for SessionKey {}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_key_is_never_printed() {
        assert_eq!(format!("{:?}", SessionKey([7; SESSION_KEY_LEN])), "SessionKey(…)");
    }

    proptest! {
        #[test]
        fn text_and_key_are_one(bytes in prop::collection::vec(any::<u8>(), SESSION_KEY_LEN)) {
            let key = SessionKey::from_bytes(bytes.try_into().unwrap());
            prop_assert_eq!(format!(" {}\n", *key.to_hex()).parse::<SessionKey>().unwrap(), key);
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,140}|[0-9a-fé]{120,130}") {
            let _ = text.parse::<SessionKey>();
        }
    }
}
