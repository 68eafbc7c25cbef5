//! Strangers with the tools of their trade, who know the addresses in use, and mutated copies of what they saw: nothing
//! answers, nothing leaves in clear, nothing is kept. What was sent is counted and printed.

mod soak;
mod tools;

/// Sends one packet of each kind that a stack could answer: `INTERFACE MAC SOURCE PORT TARGET…`.
pub(crate) const SWEEP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/acceptance/hostile/sweep.py");
/// Debian's own, which has scapy.
pub(crate) const PYTHON: &str = "/usr/bin/python3";
