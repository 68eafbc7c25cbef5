//! IPsec (RFC 4301), sans-IO: AH and ESP, security associations behind a key engine, policy apart from mechanism.

#![forbid(unsafe_code)]

pub mod acquire;
pub mod ah;
pub mod algorithm;
pub mod association;
pub mod drops;
pub mod esp;
pub mod headers;
pub mod key;
pub mod key_engine;
pub mod marks;
pub mod outcome;
pub mod packet_buffer;
pub mod pf_key;
pub mod policy;
pub mod processing;
pub mod replay;
pub mod request;
pub mod selector;
pub mod tunnel;
pub mod udp_encapsulation;

#[cfg(test)]
mod tests;
