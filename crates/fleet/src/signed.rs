//! Texts with signatures.
//!
//! What is signed is the text as it travels, byte for byte, behind a line that says what it is: nothing has to be written in
//! one canonical form, and a text of one kind never passes for one of another.

use std::marker::PhantomData;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::key::{Digest, Signature, SigningKey, VerifyingKey};

/// The most signatures that a text may have.
const MOST: usize = 32;

/// What can be signed.
pub trait Statement: Serialize + DeserializeOwned {
    /// What it is, in the line that is signed with it. Another form of it has another name.
    const KIND: &'static str;
}

/// A text of a kind, with signatures that nobody has verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signed<T> {
    text: String,
    signatures: Vec<By>,
    #[serde(skip)]
    kind: PhantomData<fn() -> T>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct By {
    key: VerifyingKey,
    signature: Signature,
}

/// A text is not of its kind: it is of another version, or of no program of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this is no {kind} that this version of sidestep understands: {why}")]
pub struct NotUnderstood {
    kind: &'static str,
    why: String,
}

impl<T: Statement> Signed<T> {
    /// The value's text with the signatures of these keys.
    #[must_use]
    pub fn new<'k>(value: &T, keys: impl IntoIterator<Item = &'k SigningKey>) -> Self {
        let text = serde_json::to_string(value).expect("statements are maps with keys that are texts");
        let mut signed = Signed { text, signatures: Vec::new(), kind: PhantomData };
        for key in keys {
            signed.sign(key);
        }
        signed
    }

    /// Adds a key's signature, in place of one that it has already.
    pub fn sign(&mut self, key: &SigningKey) {
        let public = key.public();
        let by = By { key: public, signature: key.sign(&self.message()) };
        self.signatures.retain(|by| by.key != public);
        self.signatures.push(by);
    }

    /// Takes over the signatures of another copy of the same text.
    pub fn add_signatures_of(&mut self, other: &Self) {
        if self.text == other.text {
            let own: Vec<VerifyingKey> = self.signatures.iter().map(|by| by.key).collect();
            self.signatures.extend(other.signatures.iter().filter(|by| !own.contains(&by.key)));
        }
    }

    /// What it says, whoever signed it.
    ///
    /// # Errors
    /// If it says nothing of its kind.
    pub fn read(&self) -> Result<T, NotUnderstood> {
        serde_json::from_str(&self.text)
            .map_err(|error| NotUnderstood { kind: T::KIND, why: error.to_string() })
    }

    /// How many of these keys have signed it. Each counts once, and signatures that do not verify do not count.
    #[must_use]
    pub fn signers(&self, keys: impl IntoIterator<Item = VerifyingKey>) -> usize {
        let mut keys: Vec<VerifyingKey> = keys.into_iter().collect();
        keys.sort();
        keys.dedup();
        let message = self.message();
        let has_signed = |key: &VerifyingKey| {
            let mut by_it = self.signatures.iter().take(MOST).filter(|by| by.key == *key);
            by_it.any(|by| key.verifies(&message, &by.signature))
        };
        keys.iter().filter(|key| has_signed(key)).count()
    }

    /// Whether this key has signed it.
    #[must_use]
    pub fn is_signed_by(&self, key: VerifyingKey) -> bool {
        self.signers([key]) == 1
    }

    /// About how many bytes it has, as it travels.
    #[must_use]
    pub fn length(&self) -> usize {
        self.text.len() + self.signatures.len() * size_of::<By>()
    }

    /// The digest of what is signed.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&self.message())
    }

    fn message(&self) -> Vec<u8> {
        [b"sidestep fleet: ", T::KIND.as_bytes(), b"\n", self.text.as_bytes()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct One {
        number: u64,
    }
    impl Statement for One {
        const KIND: &'static str = "one";
    }
    #[derive(Debug, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Other {
        number: u64,
    }
    impl Statement for Other {
        const KIND: &'static str = "other";
    }

    fn key(seed: u8) -> SigningKey {
        SigningKey::from_seed([seed; 32])
    }

    #[test]
    fn keys_count_once_and_only_where_they_have_signed() {
        let (a, b, c) = (key(1), key(2), key(3));
        let mut signed = Signed::new(&One { number: 5 }, [&a, &b, &a]);
        assert_eq!(signed.signatures.len(), 2);
        assert_eq!(signed.read(), Ok(One { number: 5 }));
        assert_eq!(signed.signers([a.public(), a.public(), c.public()]), 1);
        assert_eq!(signed.signers([a.public(), b.public(), c.public()]), 2);
        signed.text = signed.text.replace('5', "6");
        assert_eq!(signed.signers([a.public(), b.public()]), 0);
    }

    #[test]
    fn a_text_does_not_pass_for_another_kind() {
        let one = Signed::new(&One { number: 5 }, [&key(1)]);
        let json = serde_json::to_string(&one).unwrap();
        let other: Signed<Other> = serde_json::from_str(&json).unwrap();
        assert!(other.read().is_ok());
        assert!(!other.is_signed_by(key(1).public()));
        let again: Signed<One> = serde_json::from_str(&json).unwrap();
        assert!(again.is_signed_by(key(1).public()));
    }

    #[test]
    fn signatures_of_copies_come_together() {
        let value = One { number: 5 };
        let (mut one, other) = (Signed::new(&value, [&key(1)]), Signed::new(&value, [&key(2)]));
        one.add_signatures_of(&other);
        one.add_signatures_of(&Signed::new(&One { number: 6 }, [&key(3)]));
        assert_eq!(one.signers([1, 2, 3].map(|seed| key(seed).public())), 2);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let mut signed = Signed::new(&One { number: 5 }, []);
        signed.text = r#"{"number":5,"more":1}"#.to_owned();
        assert!(signed.read().unwrap_err().to_string().contains("more"));
    }
}
