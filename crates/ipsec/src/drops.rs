//! Why packets go no further here: the counters of a statistics command.

use crate::headers::HeaderError;
use crate::key_engine::SecurityError;
use crate::outcome::{OpenError, SealError};
use crate::replay::ReplayError;

wire::drop_reasons! {
    /// Its headers are not those of an IP packet.
    Malformed = "malformed",
    /// A fragment where a whole packet must be.
    Fragment = "fragment",
    /// It names an association that is not there.
    NoAssociation = "no_association",
    /// Its length is none that the association's algorithms produce.
    Length = "length",
    /// It came before.
    Replayed = "replayed",
    /// It came too late to know whether it came before.
    TooOld = "too_old",
    /// It is damaged or forged.
    Forged = "forged",
    /// The association is past its hard lifetime.
    Expired = "expired",
    /// A dummy; no fault.
    Dummy = "dummy",
    /// The padding is wrong.
    Padding = "padding",
    /// There is no IP packet in the tunnel.
    Inner = "inner",
    /// Congestion was marked outside, where inside nobody would understand it.
    Congestion = "congestion",
    /// The headers before AH are too long, or have a route with stations left.
    Unauthenticatable = "unauthenticatable",
    /// More security headers within each other than are opened.
    Nesting = "nesting",
    /// It is not authentic, and must be.
    NotAuthentic = "not_authentic",
    /// It was not encrypted in transport mode, and must be.
    NotEncrypted = "not_encrypted",
    /// It was not encrypted in tunnel mode, and must be.
    NotTunnelled = "not_tunnelled",
    /// The policy has it discarded.
    Discarded = "discarded",
    /// There is no association, and no daemon to make one.
    NoDaemon = "no_daemon",
    /// There is no association, and it answers a stranger, for whom none is asked for.
    NotAsked = "not_asked",
    /// It would repeat in clear what came encrypted.
    Secret = "secret",
    /// Too many packets or wishes wait for associations.
    TooMany = "too_many",
    /// It has waited for an association that nobody made.
    NotKeyed = "not_keyed",
    /// It would be too long, or its buffer is too short, for the headers that protect it.
    TooLong = "too_long",
    /// The sequence numbers of its association are used up.
    SequenceExhausted = "sequence_exhausted",
}

impl From<HeaderError> for DropReason {
    fn from(error: HeaderError) -> Self {
        match error {
            HeaderError::Malformed(_) => Self::Malformed,
            HeaderError::Fragment => Self::Fragment,
        }
    }
}

impl From<OpenError> for DropReason {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Headers(error) => error.into(),
            OpenError::Association => Self::NoAssociation,
            OpenError::Length => Self::Length,
            OpenError::Replay(ReplayError::Replayed) => Self::Replayed,
            OpenError::Replay(ReplayError::Old) => Self::TooOld,
            OpenError::Forged => Self::Forged,
            OpenError::Expired => Self::Expired,
            OpenError::Dummy => Self::Dummy,
            OpenError::Padding => Self::Padding,
            OpenError::Inner => Self::Inner,
            OpenError::Congestion => Self::Congestion,
            OpenError::HeadersTooLong => Self::Unauthenticatable,
        }
    }
}

impl From<SealError> for DropReason {
    fn from(error: SealError) -> Self {
        match error {
            SealError::Headers(error) => error.into(),
            SealError::Protocol => Self::NoAssociation,
            SealError::NoRoom(_) | SealError::TooLong => Self::TooLong,
            SealError::Exhausted(_) => Self::SequenceExhausted,
            SealError::Expired => Self::Expired,
            SealError::SourceRoute | SealError::HeadersTooLong => Self::Unauthenticatable,
        }
    }
}

impl From<SecurityError> for DropReason {
    fn from(error: SecurityError) -> Self {
        match error {
            SecurityError::NoDaemon => Self::NoDaemon,
            SecurityError::NotAsked => Self::NotAsked,
            SecurityError::TooMany => Self::TooMany,
            SecurityError::Discarded => Self::Discarded,
        }
    }
}
