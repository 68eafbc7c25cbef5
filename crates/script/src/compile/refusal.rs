//! What stands in the way of a script's compilation.

/// Something that cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// Where, from line 1 on.
    pub line: u32,
    /// Why.
    pub reason: String,
}
