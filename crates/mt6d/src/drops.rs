//! Why a packet or datagram went no further. One list for counters, `show --json` and the documentation.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A reason to drop. The name is the label in the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum DropReason {
    /// A datagram is shorter than any of the protocol.
    TooShort,
    /// A data datagram does not open under the key of its endpoint.
    NotAuthentic,
    /// A data datagram came before.
    Replayed,
    /// A data datagram lies so far behind that nobody knows whether it came before.
    TooOld,
    /// A datagram came to an endpoint that has just been closed.
    Stale,
    /// A rendezvous datagram does not open: a stranger's, or of another epoch.
    NotForUs,
    /// A rendezvous datagram came before: a retransmission, or a replay.
    HandshakeRepeated,
    /// A rendezvous datagram is of an older epoch than one accepted before.
    HandshakeOld,
    /// A handshake failed inside a genuine envelope: the pre-shared keys differ, or a payload is malformed.
    HandshakeFailed,
    /// A handshake took longer than its answer may.
    HandshakeLate,
    /// A first message came from an address or port that was rewritten on its way (NAT66): unsupported.
    SourceRewritten,
    /// An inner packet is malformed or of an unknown form.
    Malformed,
    /// An inner packet came in a context that is not known (any more).
    UnknownContext,
    /// An inner packet's source is not within the peer's allowed prefixes.
    SourceNotAllowed,
    /// An inner packet's destination is link-local, multicast, or a hopping address.
    DestinationNotAllowed,
    /// The path marked congestion on a packet whose sender does not understand it (RFC 6040).
    Congestion,
    /// No peer has the destination in its allowed prefixes.
    NoPeer,
    /// The queue of packets that wait for a session is full, or they waited too long.
    NoSession,
    /// A packet does not fit the path; its sender was told.
    TooBig,
    /// Too many halves of split packets wait for each other, or one waited too long.
    Reassembly,
    /// A key is used up and the next is not agreed yet.
    KeyExhausted,
    /// The kernel did not take a datagram.
    SendFailed,
    /// There was more that only the protocol's thread can deal with than it can.
    Overload,
}

impl DropReason {
    /// All reasons, in the order of the counters.
    pub const ALL: [DropReason; 23] = [
        DropReason::TooShort,
        DropReason::NotAuthentic,
        DropReason::Replayed,
        DropReason::TooOld,
        DropReason::Stale,
        DropReason::NotForUs,
        DropReason::HandshakeRepeated,
        DropReason::HandshakeOld,
        DropReason::HandshakeFailed,
        DropReason::HandshakeLate,
        DropReason::SourceRewritten,
        DropReason::Malformed,
        DropReason::UnknownContext,
        DropReason::SourceNotAllowed,
        DropReason::DestinationNotAllowed,
        DropReason::Congestion,
        DropReason::NoPeer,
        DropReason::NoSession,
        DropReason::TooBig,
        DropReason::Reassembly,
        DropReason::KeyExhausted,
        DropReason::SendFailed,
        DropReason::Overload,
    ];

    /// The label in status and metrics.
    pub fn name(self) -> &'static str {
        match self {
            DropReason::TooShort => "too_short",
            DropReason::NotAuthentic => "not_authentic",
            DropReason::Replayed => "replayed",
            DropReason::TooOld => "too_old",
            DropReason::Stale => "stale",
            DropReason::NotForUs => "not_for_us",
            DropReason::HandshakeRepeated => "handshake_repeated",
            DropReason::HandshakeOld => "handshake_old",
            DropReason::HandshakeFailed => "handshake_failed",
            DropReason::HandshakeLate => "handshake_late",
            DropReason::SourceRewritten => "source_rewritten",
            DropReason::Malformed => "malformed",
            DropReason::UnknownContext => "unknown_context",
            DropReason::SourceNotAllowed => "source_not_allowed",
            DropReason::DestinationNotAllowed => "destination_not_allowed",
            DropReason::Congestion => "congestion",
            DropReason::NoPeer => "no_peer",
            DropReason::NoSession => "no_session",
            DropReason::TooBig => "too_big",
            DropReason::Reassembly => "reassembly",
            DropReason::KeyExhausted => "key_exhausted",
            DropReason::SendFailed => "send_failed",
            DropReason::Overload => "overload",
        }
    }
}

/// A counter for each reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drops([u64; DropReason::ALL.len()]);

impl Drops {
    /// Counts one.
    pub fn count(&mut self, reason: DropReason) {
        self.0[reason as usize] += 1;
    }

    /// Counts what others have counted.
    pub(crate) fn add(&mut self, others: &Drops) {
        for (own, other) in self.0.iter_mut().zip(others.0) {
            *own += other;
        }
    }

    /// How often for this reason.
    pub fn of(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// The reasons that occurred, with their counts.
    pub fn nonzero(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.into_iter().map(|r| (r, self.of(r))).filter(|(_, n)| *n > 0)
    }
}

/// The same, for several threads to count in.
#[derive(Debug, Default)]
pub(crate) struct AtomicDrops([AtomicU64; DropReason::ALL.len()]);

impl AtomicDrops {
    pub(crate) fn count(&self, reason: DropReason) {
        self.0[reason as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn get(&self) -> Drops {
        Drops(std::array::from_fn(|reason| self.0[reason].load(Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_complete_and_in_order() {
        for (index, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
        }
    }
}
