//! Why a packet is not sealed or opened.

use wire::ParseError;

use crate::headers::HeaderError;
use crate::packet_buffer::NoRoom;
use crate::replay::{ReplayError, SequenceExhausted};

/// Why a packet is not sealed; it is as before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Its headers allow it not.
    #[error(transparent)]
    Headers(#[from] HeaderError),
    /// The association is one of the other protocol.
    #[error("the association is not one of this protocol")]
    Protocol,
    /// The buffer is too short.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// It would be longer than an IP packet can be.
    #[error("the packet would be too long")]
    TooLong,
    /// All numbers are used up.
    #[error(transparent)]
    Exhausted(#[from] SequenceExhausted),
    /// The association is past its hard lifetime.
    #[error("the association is past its hard lifetime")]
    Expired,
    /// It has a route of which stations are left: AH would have to authenticate what it is at the end of it.
    #[error("AH is not for packets with a source route")]
    SourceRoute,
    /// The headers before AH are longer than [`ah::MAX_HEADERS`](crate::ah::MAX_HEADERS).
    #[error("the headers before AH are too long")]
    HeadersTooLong,
}

/// Why a packet is not opened. It is to be dropped, with no answer; what is in its buffer is nobody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Its headers allow it not.
    #[error(transparent)]
    Headers(#[from] HeaderError),
    /// It has no security header, or another than this association's.
    #[error("the packet is not one of this association")]
    Association,
    /// It is too short, or its length is none that the association's algorithms produce.
    #[error("the packet has a length that its association's algorithms do not produce")]
    Length,
    /// It came before, or too late.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// It is damaged or forged.
    #[error("the integrity check failed")]
    Forged,
    /// The association is past its hard lifetime.
    #[error("the association is past its hard lifetime")]
    Expired,
    /// It is genuine, and a dummy (RFC 4303 §2.6): no fault.
    #[error("a dummy packet")]
    Dummy,
    /// It is genuine, but its padding is not 1, 2, 3, … (RFC 4303 §2.4), or longer than it.
    #[error("the padding is wrong")]
    Padding,
    /// It is genuine, but in the tunnel is no IP packet.
    #[error("there is no IP packet in the tunnel")]
    Inner,
    /// It is genuine, but congestion was marked outside, and inside nobody would understand it (RFC 6040 §4.2).
    #[error("congestion experienced outside, transport inside not ECN-capable")]
    Congestion,
    /// The headers before AH are longer than [`ah::MAX_HEADERS`](crate::ah::MAX_HEADERS).
    #[error("the headers before AH are too long")]
    HeadersTooLong,
}

impl From<ParseError> for SealError {
    fn from(error: ParseError) -> Self {
        Self::Headers(error.into())
    }
}

impl From<ParseError> for OpenError {
    fn from(error: ParseError) -> Self {
        Self::Headers(error.into())
    }
}
