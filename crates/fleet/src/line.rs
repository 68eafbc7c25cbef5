//! Lines: values with the text that they were read from, which is what a head commits to.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::key::Digest;

/// The longest line, in bytes: one site has some hundred.
const LONGEST: usize = 64 * 1024;

/// A value, its text and the text's digest. What it was read from stays, byte for byte; copies share it.
pub struct Line<T>(Arc<Parts<T>>);

struct Parts<T> {
    value: T,
    text: String,
    digest: Digest,
}

/// A text is no such line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a line of the document is not understood by this version of sidestep: {0}")]
pub struct NoLine(String);

impl<T> Line<T> {
    /// The line that says this.
    #[must_use]
    pub fn new(value: T) -> Self
    where
        T: Serialize,
    {
        let text = serde_json::to_string(&value).expect("lines are maps with keys that are texts");
        Self::of(value, text)
    }

    /// Reads one.
    ///
    /// # Errors
    /// If it says something else.
    pub fn read(text: String) -> Result<Self, NoLine>
    where
        T: DeserializeOwned,
    {
        if text.len() > LONGEST {
            return Err(NoLine(format!("it has {} bytes", text.len())));
        }
        match serde_json::from_str(&text) {
            Ok(value) => Ok(Self::of(value, text)),
            Err(error) => Err(NoLine(error.to_string())),
        }
    }

    fn of(value: T, text: String) -> Self {
        let digest = Digest::of(text.as_bytes());
        Line(Arc::new(Parts { value, text, digest }))
    }

    /// What it says.
    #[must_use]
    pub fn value(&self) -> &T {
        &self.0.value
    }

    /// As it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The digest of its text.
    #[must_use]
    pub fn digest(&self) -> &Digest {
        &self.0.digest
    }
}

impl<T> Clone for Line<T> {
    fn clone(&self) -> Self {
        Line(Arc::clone(&self.0))
    }
}

impl<T> PartialEq for Line<T> {
    fn eq(&self, other: &Self) -> bool {
        self.digest() == other.digest()
    }
}

impl<T> Eq for Line<T> {}

impl<T> fmt::Debug for Line<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}
