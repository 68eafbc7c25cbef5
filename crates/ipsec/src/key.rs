//! Secret bytes: wiped when they are no longer used, and never printed.

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// The key of an algorithm, with the salt behind it for those that have one (RFC 4106 §8.1).
#[derive(Clone)]
pub struct Key(Zeroizing<Box<[u8]>>);

impl Key {
    /// A copy of `bytes`, which the caller wipes.
    pub fn new(bytes: &[u8]) -> Self {
        Self(Zeroizing::new(bytes.into()))
    }

    /// No key, for an algorithm that has none.
    pub fn empty() -> Self {
        Self::new(&[])
    }

    /// The secret, for what must hand it on.
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Key {}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_not_printed() {
        assert_eq!(format!("{:?}", Key::new(b"secret")), "Key(6 bytes)");
    }
}
