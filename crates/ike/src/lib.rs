//! IKEv2 (RFC 7296), sans-IO: the first key daemon of the host stack.

#![forbid(unsafe_code)]

pub mod crypto;
pub mod keys;
pub mod message;
pub mod numbers;
pub mod random;
