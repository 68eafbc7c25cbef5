//! IKEv2 (RFC 7296), sans-IO: the first key daemon of the host stack.

#![forbid(unsafe_code)]

mod channel;
pub mod config;
mod cookie;
pub mod crypto;
mod drops;
pub mod event;
pub mod keys;
pub mod message;
mod nat;
pub mod negotiation;
pub mod numbers;
mod output;
pub mod random;
