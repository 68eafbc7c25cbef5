//! What is known of a received packet beside its octets.

use ipsec::policy::Socket;
use ipsec::selector::Traffic;

use crate::security::Security;

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
    /// It came encrypted.
    pub(super) secret: bool,
    /// The device vouches for the checksum of its upper layer.
    pub(super) verified: bool,
}

impl<P> Arrival<P> {
    /// Whether the device has vouched for the checksum of what the upper layer is given: it has not looked into fragments
    /// and what was protected.
    pub(super) fn is_verified(&self) -> bool {
        self.verified && !self.fragmented && !self.opened
    }
}

/// What the policy may ask of a packet that has come.
pub(super) struct Evidence<'a, P> {
    /// What it is, as the upper layer is going to see it.
    pub(super) traffic: Traffic,
    pub(super) arrival: &'a Arrival<P>,
}

impl<P> Evidence<'_, P> {
    /// Whether it suffices for this socket, or for the host. What comes from ourselves has never left the host.
    pub(super) fn suffices(
        &self,
        security: &mut impl Security<Protection = P>,
        socket: Option<&Socket>,
    ) -> bool {
        self.arrival.from == Arrived::Ourselves
            || security.admits(&self.traffic, &self.arrival.protection, socket)
    }
}
