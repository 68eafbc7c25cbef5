//! Programs of others that run beside the gateway, because they do well what would otherwise be written here: dnsmasq, stubby.
//!
//! A [`program::Program`] is started and confined, started anew when it ends, and ends with the gateway, however that ends.
//! What it is told is written anew each time; what it remembers is in a file of its own.

pub(crate) mod dnsmasq;
pub(crate) mod program;
pub(crate) mod stubby;
