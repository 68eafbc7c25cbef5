//! IKEv2 (RFC 7296), sans-IO: the first key daemon of the host stack.

#![forbid(unsafe_code)]

mod auth;
mod channel;
mod child;
pub mod config;
mod cookie;
pub mod crypto;
mod drops;
pub mod endpoint;
pub mod event;
mod initiator;
pub mod keys;
pub mod message;
mod nat;
pub mod negotiation;
pub mod numbers;
mod output;
pub mod random;
mod responder;
mod sa;

pub use drops::{DropReason, Drops};
pub use endpoint::Endpoint;
pub use output::{NAT_PORT, Transmit};
