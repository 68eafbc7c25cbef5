//! What is known of a received packet beside its octets.

/// How a packet has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrived {
    /// For us alone.
    OtherEnd,
    /// In a frame to many: nobody is told of errors (RFC 4443 §2.4 e).
    LinkToMany,
    /// We have sent it.
    Ourselves,
}

/// What is known of a packet beside its octets.
pub(super) struct Arrival<P> {
    pub(super) from: Arrived,
    /// It came in fragments.
    pub(super) fragmented: bool,
    /// It came in another packet or behind a header that security has opened: the hop limit does not prove that it is
    /// from the link.
    pub(super) opened: bool,
    pub(super) protection: P,
}
