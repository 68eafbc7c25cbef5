//! Changing what a test has from an example.

/// A text that can be changed in places that must be there.
pub trait Edited {
    /// The text with `to` wherever it has `from`.
    ///
    /// # Panics
    /// If it is nowhere: what the test is about would not be tried.
    fn edited(&self, from: &str, to: &str) -> String;
}

impl Edited for str {
    fn edited(&self, from: &str, to: &str) -> String {
        assert!(self.contains(from), "nothing to change, `{from}` is not in:\n{self}");
        self.replace(from, to)
    }
}
