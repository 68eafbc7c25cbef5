//! The states of a connection (RFC 9293 §3.3.2). LISTEN is a [`Listener`](super::Listener).

/// State of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Our SYN is under way.
    SynSent,
    /// Both SYNs have been seen, ours is not acknowledged.
    SynReceived,
    /// Data flows both ways.
    Established,
    /// We closed; neither our FIN is acknowledged nor theirs here.
    FinWait1,
    /// Our FIN is acknowledged; they may still send.
    FinWait2,
    /// They closed; we may still send.
    CloseWait,
    /// Both closed at once; our FIN is not acknowledged.
    Closing,
    /// They closed, then we; our FIN is not acknowledged.
    LastAck,
    /// Both FINs are acknowledged; we wait until old segments have left the network.
    TimeWait,
    /// No connection.
    Closed,
}

impl State {
    /// Whether both ends agree on the sequence numbers (RFC 9293 §3.4).
    pub const fn is_synchronized(self) -> bool {
        !matches!(self, State::SynSent | State::SynReceived | State::Closed)
    }

    /// Whether the other end may still send.
    pub(super) const fn may_receive(self) -> bool {
        matches!(self, State::Established | State::FinWait1 | State::FinWait2)
    }

    /// Whether the user may still write.
    pub(super) const fn may_write(self) -> bool {
        matches!(self, State::SynSent | State::SynReceived | State::Established | State::CloseWait)
    }

    /// Whether a segment may carry data or a FIN of ours, first sent or sent again.
    pub(super) const fn may_transmit(self) -> bool {
        matches!(
            self,
            State::Established | State::FinWait1 | State::CloseWait | State::Closing | State::LastAck
        )
    }
}

/// Why a connection ended other than by both ends closing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody listens there.
    #[error("connection refused")]
    Refused,
    /// The other end reset the connection.
    #[error("connection reset by peer")]
    Reset,
    /// The other end did not answer within the user timeout, or to keepalives.
    #[error("connection timed out")]
    TimedOut,
    /// An ICMP error came while connecting.
    #[error("destination unreachable")]
    Unreachable,
    /// Security forbids the connection, or cannot be had: NRL's `EIPSEC`.
    #[error("security forbids the connection, or is not there")]
    Security,
    /// [`abort`](super::Connection::abort) was called.
    #[error("connection aborted")]
    Aborted,
}
