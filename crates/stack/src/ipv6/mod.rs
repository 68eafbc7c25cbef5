//! IPv6 (RFC 8200): the header chain of a received packet, reassembly, and fragmentation of those that leave.
//!
//! | file | subject |
//! |---|---|
//! | `input` | the header chain, parsed once |
//! | `options` | Hop-by-Hop and Destination Options |
//! | `refusal` | what a packet is refused for |
//! | `reassembly` | fragments received |
//! | `fragmentation` | packets too large for the path |

pub mod fragmentation;
pub mod input;
mod options;
pub mod reassembly;
mod refusal;

pub use refusal::Refusal;
pub(crate) use refusal::unknown;
