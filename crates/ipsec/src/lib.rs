//! IPsec (RFC 4301), sans-IO: AH and ESP, security associations behind a key engine, policy apart from mechanism.

#![forbid(unsafe_code)]

pub mod algorithm;
pub mod key;
