//! Why a segment must not pass.

/// Why a segment must not reach a receiver that is to have what was examined, and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It has octets of a stream whose beginning was not seen, or was forgotten.
    Unknown,
    /// There is a hole before it.
    Early,
    /// An octet, the end or the beginning was another one before.
    Contradicts,
    /// It has octets beyond what is kept of a stream.
    Full,
    /// A receiver may take octets out of their order (RFC 6093).
    Urgent,
    /// Its checksum is wrong.
    Checksum,
    /// There is more of it elsewhere: it is a fragment, or longer than what is there.
    Cut,
}

impl Fault {
    /// As scripts call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Early => "early",
            Self::Contradicts => "contradicts",
            Self::Full => "full",
            Self::Urgent => "urgent",
            Self::Checksum => "checksum",
            Self::Cut => "cut",
        }
    }
}
