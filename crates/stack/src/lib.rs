//! An IPv6 host stack, sans-IO: IPv6, neighbor discovery, autoconfiguration, ICMPv6, UDP, TCP.

#![forbid(unsafe_code)]

pub mod autoconf;
mod drops;
pub mod icmpv6;
pub mod interface;
pub mod ipv6;
mod limit;
pub mod mld;
pub mod neighbor;
pub mod random;
pub mod route;
pub mod security;
pub mod source_address;
pub mod tcp;
pub mod udp;

pub use drops::{DropReason, Drops};
