//! Why segments go no further. A connection says so, and its stack counts.

wire::drop_reasons! {
    /// The connection has ended.
    Closed = "tcp_closed",
    /// Nothing of it is within the receive window. It was answered with an acknowledgement, as far as RFC 5961 §7 allows.
    OutsideWindow = "tcp_outside_window",
    /// Its timestamp is older than one that was received (PAWS, RFC 7323 §5).
    OldTimestamp = "tcp_old_timestamp",
    /// It has no timestamp, though both ends agreed on them (RFC 7323 §3.2).
    NoTimestamp = "tcp_no_timestamp",
    /// A RST or SYN that might be forged, and was challenged (RFC 5961 §3 and §4).
    Challenged = "tcp_challenged",
    /// It has no ACK flag where one is needed, or other flags than the state asks for.
    Flags = "tcp_flags",
    /// It acknowledges what was never sent, or what was acknowledged long ago (RFC 5961 §5).
    Acknowledgement = "tcp_acknowledgement",
    /// Text behind the other end's FIN.
    AfterFin = "tcp_after_fin",
    /// The user is gone.
    Abandoned = "tcp_abandoned",
    /// There are more gaps in what was received than are kept track of.
    Gaps = "tcp_gaps",
    /// The listener is paused.
    Paused = "tcp_paused",
}
