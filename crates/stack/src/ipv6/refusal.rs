//! Why a packet is refused, and whether its sender is told.

use wire::icmp_error::Reason;

use crate::DropReason;

/// Why a packet is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Dropped without a word.
    Silent(DropReason),
    /// Dropped, with an ICMP error.
    Answered(DropReason, Reason),
}

/// A Parameter Problem of code 0 at `pointer`, which counts from the start of the IPv6 header.
pub(super) fn erroneous(drop: DropReason, pointer: usize) -> Refusal {
    Refusal::Answered(drop, Reason::ErroneousField { pointer: pointer as u32 })
}

/// A Parameter Problem of code 1: the field at `pointer` names what nobody here knows.
pub(crate) fn unknown(pointer: usize) -> Refusal {
    let reason = Reason::UnrecognizedNextHeader { pointer: pointer as u32 };
    Refusal::Answered(DropReason::UnknownNextHeader, reason)
}

/// A Parameter Problem of code 3 (RFC 7112 §5): a first fragment has not all headers.
pub(super) fn incomplete() -> Refusal {
    Refusal::Answered(DropReason::IncompleteHeaderChain, Reason::IncompleteHeaderChain)
}
