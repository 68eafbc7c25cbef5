//! Where a part of a text came from.

use std::path::PathBuf;

/// A file that a part of the text came from.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    /// Its name in messages.
    pub(crate) name: PathBuf,
    /// Where it begins in the text.
    pub(crate) start: usize,
    /// Whether others than its owner can read it.
    pub(crate) is_open: bool,
}
