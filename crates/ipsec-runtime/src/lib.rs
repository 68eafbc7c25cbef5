//! `ike` and `ipsec` over `linux`: the gateway and the client of an IPsec tunnel.
//!
//! A [`carrier::Carrier`] is IKE, key engine and policy together, without a device or a socket: inner packets go in,
//! datagrams come out, and back. What is around it differs:
//!
//! | who | inner packets | datagrams |
//! |---|---|---|
//! | `sidestep ipsec up` | a TUN device of this host | the ports of IKE, 500 and 4500, and raw sockets |
//! | `sidestep ipsec run` | a TUN device in a network namespace of a program's own | any port |
//! | `sidestep ipsec proxy`, in a crate of its own | a `stack::host::Host` | any port |
//!
//! # Invariants
//!
//! - A carrier sends nothing in clear: what no tunnel is for is dropped, and counted.
//! - What comes out of a child is what its traffic selectors say, in both addresses, protocol and ports.
//! - Nothing is allocated for a packet, and its payload is copied once, when it is sealed.

#![forbid(unsafe_code)]

pub mod carrier;
pub mod claim;
pub mod deliver;
pub mod drops;
mod error;
pub mod key_socket;
mod machine;
pub mod manual;
pub mod moves;
pub mod outbox;
pub mod place;
pub mod random;
mod run;
mod up;

pub use error::Error;
pub use run::run;
pub use up::{UpOptions, check, up};
