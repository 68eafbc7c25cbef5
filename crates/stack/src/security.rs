//! Where security goes: policy and associations are behind [`Security`], and the rest of the stack knows no more of them.
//!
//! What leaves is protected as it will be on the wire, before it is fragmented; what arrives is opened after it is whole
//! again, and the result is parsed like a packet that has just come. Before an upper layer gets a packet, the policy is
//! asked whether it was protected well enough. Messages of neighbor discovery and multicast listeners bypass all that: they
//! never leave the link, and without them no association can be made.

use std::net::Ipv6Addr;
use std::time::Instant;

use crate::icmpv6::ErrorReport;

/// The packet must not be sent or is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("security forbids the packet, or is not there yet")]
pub struct Refused;

/// Protects packets, opens them, and says which need it.
pub trait Security {
    /// What a received packet was protected by, gathered over all its layers.
    type Protection: Default;

    /// Applies the policy to a whole packet that is to be sent, in place.
    ///
    /// # Errors
    /// When the policy forbids it, or wants protection for which there is no association yet.
    fn protect(&mut self, now: Instant, packet: &mut Vec<u8>) -> Result<(), Refused>;

    /// Opens the ESP or AH header at `header` of a whole packet, in place: what is left is a packet without it, or the one
    /// that was inside. Adds to `protection`.
    ///
    /// # Errors
    /// When no association opens it.
    fn open(
        &mut self,
        now: Instant,
        packet: &mut Vec<u8>,
        header: usize,
        protection: &mut Self::Protection,
    ) -> Result<(), Refused>;

    /// Whether the policy lets a packet, whose upper-layer header is at `upper`, in with this protection.
    fn admits(&mut self, now: Instant, packet: &[u8], upper: usize, protection: &Self::Protection) -> bool;

    /// Whether an ICMP error about ESP or AH is about something that was sent.
    fn has_sent(&self, report: &ErrorReport<'_>) -> bool;

    /// How many octets protection adds at most to what is sent there.
    fn overhead(&self, destination: Ipv6Addr) -> usize;
}

/// No security: nothing is protected, and what others have protected cannot be opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSecurity;

impl Security for NoSecurity {
    type Protection = ();

    fn protect(&mut self, _: Instant, _: &mut Vec<u8>) -> Result<(), Refused> {
        Ok(())
    }

    fn open(&mut self, _: Instant, _: &mut Vec<u8>, _: usize, (): &mut ()) -> Result<(), Refused> {
        Err(Refused)
    }

    fn admits(&mut self, _: Instant, _: &[u8], _: usize, (): &()) -> bool {
        true
    }

    fn has_sent(&self, _: &ErrorReport<'_>) -> bool {
        false
    }

    fn overhead(&self, _: Ipv6Addr) -> usize {
        0
    }
}
