//! Port mappings that hosts inside ask for: PCP (RFC 6887), and NAT-PMP (RFC 6886), which is its version 0.
//!
//! | module | what it is |
//! |---|---|
//! | [`message`] | requests and responses of PCP |
//! | [`nat_pmp`] | those of NAT-PMP |
//! | [`table`] | what is mapped: for whom, until when, within which [`Limits`] |
//! | [`server`] | a datagram in, an answer out |
//!
//! Of IPv4 a port of the gateway leads to the host's, of IPv6 the firewall lets packets in to the host's own address and
//! port: the external address and port are the internal ones. The kernel has every mapping with its lifetime, and forgets it
//! by itself.
//!
//! Invariants:
//! - A host opens ports at its own address alone: the datagram's source. Nobody asks for others (THIRD_PARTY).
//! - A mapping that was asked for by PCP is changed by who knows its nonce alone.
//! - No datagram makes more mappings than the limits, and none makes an answer longer than [`message::MAX`].
//!
//! PEER is refused (UNSUPP_OPCODE): what hosts begin themselves is conntrack's, which keeps it as long as RFC 6092 wants.

pub mod message;
pub mod nat_pmp;
pub mod server;
pub mod table;

use std::time::Duration;

pub use server::{Link, Server};
pub use table::{Internal, Mapping, Transport};

/// The server's UDP port, of both protocols.
pub const PORT: u16 = 5351;

/// What hosts of a network may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// So many mappings each, 1 or more.
    pub per_host: usize,
    /// Neither the host's port nor that at the gateway is lower.
    pub lowest_port: u16,
    /// What is asked for longer ends after this, and has to be asked for again.
    pub longest: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { per_host: 32, lowest_port: 1024, longest: Duration::from_secs(86_400) }
    }
}
