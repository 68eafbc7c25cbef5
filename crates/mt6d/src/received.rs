//! What comes with datagrams, beside their bytes.

use std::net::SocketAddrV6;
use std::ops::Range;

use wire::ecn::Ecn;

use crate::id::EndpointId;

/// Datagrams that came to an endpoint together, one behind the other: as many as one call of the kernel's brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// Where they came to.
    pub endpoint: EndpointId,
    /// Where they came from.
    pub source: SocketAddrV6,
    /// The ECN codepoint of the outer packets.
    pub ecn: Ecn,
    /// Where they lie in the arena that is given with this.
    pub at: Range<usize>,
    /// The length of each in bytes but the last, which may be shorter.
    pub segment: usize,
}

impl Received {
    /// Where each of them lies.
    pub(crate) fn each(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (end, segment) = (self.at.end, self.segment.max(1));
        self.at.clone().step_by(segment).map(move |start| start..(start + segment).min(end))
    }
}
