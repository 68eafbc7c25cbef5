//! Names of entries, and what lies below one.

use std::fmt;
use std::str::FromStr;

/// Longest key, in octets.
const LONGEST: usize = 255;

/// The name of an entry: segments of letters, digits, `-`, `_` and `.`, joined by `/`, 255 octets at the most; such as
/// `site/kiel/request`. Keys are ordered by their octets.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(String);

/// Why a text is no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It has too many octets.
    #[error("a key has {LONGEST} octets at the most, not {0}")]
    Long(usize),
    /// It is empty, or has two slashes in a row, one at its beginning or at its end.
    #[error("{0:?} has an empty segment: a key is like `site/kiel/request`")]
    Empty(String),
    /// It has a character that keys do not have.
    #[error("{0:?} has {1:?} in it: a key has letters, digits, `-`, `_`, `.` and `/`")]
    Character(String, char),
}

impl Key {
    /// The key of this name.
    ///
    /// # Errors
    /// If it is none.
    pub fn new(name: impl Into<String>) -> Result<Self, KeyError> {
        let name = name.into();
        if name.len() > LONGEST {
            return Err(KeyError::Long(name.len()));
        }
        if name.split('/').any(str::is_empty) {
            return Err(KeyError::Empty(name));
        }
        let known = |character: &char| character.is_ascii_alphanumeric() || "-_./".contains(*character);
        match name.chars().find(|character| !known(character)) {
            Some(character) => Err(KeyError::Character(name, character)),
            None => Ok(Self(name)),
        }
    }

    /// Its name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(name: &str) -> Result<Self, KeyError> {
        Self::new(name)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// All keys below a name: `site/kiel` has `site/kiel/request` below it, neither itself nor `site/kiel-2`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Prefix(String);

impl Prefix {
    /// All keys.
    #[must_use]
    pub fn everything() -> Self {
        Self(String::new())
    }

    /// All keys below a name, which is itself like a key.
    ///
    /// # Errors
    /// If it is not.
    pub fn new(name: impl Into<String>) -> Result<Self, KeyError> {
        Key::new(name).map(|Key(name)| Self(name + "/"))
    }

    /// A key below it.
    ///
    /// # Errors
    /// If `rest` is not like a key, or both together are too long.
    pub fn key(&self, rest: impl fmt::Display) -> Result<Key, KeyError> {
        Key::new(format!("{}{rest}", self.0))
    }

    /// Whether a key is below it.
    #[must_use]
    pub fn contains(&self, key: &Key) -> bool {
        key.0.starts_with(&self.0)
    }

    /// The first name that keys below it may have, and the first after all of them.
    pub(crate) fn range(&self) -> (String, String) {
        // `0` follows `/`, and DEL all that keys have.
        let end = self.0.strip_suffix('/').map_or_else(|| "\x7f".to_owned(), |name| format!("{name}0"));
        (self.0.clone(), end)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}*", self.0)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_key_is_told_with_the_reason() {
        for (name, reason) in [
            ("", "empty segment"),
            ("/a", "empty segment"),
            ("a/", "empty segment"),
            ("a//b", "empty segment"),
            ("a b", "' ' in it"),
            ("a\0", "in it"),
            ("ä", "'ä' in it"),
            (&"a".repeat(256), "not 256"),
        ] {
            let error = Key::new(name).unwrap_err().to_string();
            assert!(error.contains(reason), "{name:?}: {error}");
        }
        assert_eq!(Key::new("a/B-1/_.").unwrap().as_str(), "a/B-1/_.");
    }

    proptest! {
        /// Stores that know only ranges agree with `contains`.
        #[test]
        fn the_range_of_a_prefix_has_the_keys_below_it(name in "[a/.0-]{0,4}", below in "[a/.0-]{1,6}") {
            let prefix = if name.is_empty() { Ok(Prefix::everything()) } else { Prefix::new(name) };
            if let (Ok(prefix), Ok(key)) = (prefix, Key::new(below)) {
                let (start, end) = prefix.range();
                let inside = start.as_str() <= key.as_str() && key.as_str() < end.as_str();
                prop_assert_eq!(prefix.contains(&key), inside);
            }
        }

        #[test]
        fn whatever_the_text_nothing_panics(text in ".*") {
            if let Ok(key) = Key::new(text.clone()) {
                prop_assert_eq!(key.as_str(), text);
            }
        }
    }
}
