//! Why a packet or datagram went no further. One list for counters, `show --json` and the documentation.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

wire::drop_reasons! {
    /// A datagram is shorter than any of the protocol.
    TooShort = "too_short",
    /// A data datagram does not open under the key of its endpoint.
    NotAuthentic = "not_authentic",
    /// A data datagram came before.
    Replayed = "replayed",
    /// A data datagram lies so far behind that nobody knows whether it came before.
    TooOld = "too_old",
    /// A datagram came to an endpoint that has just been closed.
    Stale = "stale",
    /// A rendezvous datagram does not open: a stranger's, or of another epoch.
    NotForUs = "not_for_us",
    /// A rendezvous datagram came before: a retransmission, or a replay.
    HandshakeRepeated = "handshake_repeated",
    /// A first message is of an older epoch than one that led to a session, or an earlier run of this node may have had
    /// it.
    HandshakeOld = "handshake_old",
    /// The peer begins more handshakes than one in a second.
    HandshakeLimit = "handshake_limit",
    /// A handshake failed inside a genuine envelope: the pre-shared keys differ, or a payload is malformed.
    HandshakeFailed = "handshake_failed",
    /// A handshake took longer than its answer may.
    HandshakeLate = "handshake_late",
    /// A handshake message came from another address or port than its sender's: something on the path rewrites them, or
    /// somebody sends copies.
    SourceRewritten = "source_rewritten",
    /// An inner packet is malformed or of an unknown form.
    Malformed = "malformed",
    /// An inner packet came in a context that is not known (any more).
    UnknownContext = "unknown_context",
    /// An inner packet's source is not within the peer's allowed prefixes.
    SourceNotAllowed = "source_not_allowed",
    /// An inner packet's destination is link-local, multicast, or a hopping address.
    DestinationNotAllowed = "destination_not_allowed",
    /// The path marked congestion on a packet whose sender does not understand it (RFC 6040).
    Congestion = "congestion",
    /// No peer has the destination in its allowed prefixes.
    NoPeer = "no_peer",
    /// The queue of packets that wait for a session is full, or they waited too long.
    NoSession = "no_session",
    /// A packet does not fit the path; its sender was told.
    TooBig = "too_big",
    /// Too many halves of split packets wait for each other, or one waited too long.
    Reassembly = "reassembly",
    /// A packet did not fit the queue of a shape, or waited there for too long: there is more than its rate carries.
    ShapeFull = "shape_full",
    /// A key is used up and the next is not agreed yet.
    KeyExhausted = "key_exhausted",
    /// The kernel did not take a datagram.
    SendFailed = "send_failed",
    /// There was more that only the protocol's thread can deal with than it can.
    Overload = "overload",
}

impl Drops {
    /// Counts what others have counted.
    pub(crate) fn add(&mut self, others: &Drops) {
        for (own, other) in self.0.iter_mut().zip(others.0) {
            *own += other;
        }
    }
}

/// As [`Drops`], for several threads to count in.
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
